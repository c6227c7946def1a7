//! All peers of this process.

use crate::builder::Builder;
use crate::error::{GrantError, GroupError, GroupMember, InsertError, NotReady, Reason, WouldDeadlock};
use crate::gate::stripe_of_thread;
use crate::grant::{Access, Grant};
use crate::inbox::Inbox;
use crate::lease::Lease;
use crate::name::{PeerId, PeerName};
use crate::names::{Found, New, NotAdded};
use crate::peer::{Peer, PeerStatus};
use crate::quarantine;
use crate::region::{RegionId, Slice};
use crate::shared::{Shared, ShutdownRequest};
use crate::shutdown;
use crate::slot::{Slot, SlotRef};
use crate::slow::{Group, Slow, locked};
use crate::state::{Generation, Phase, Word};
use crate::sync::Ordering;
use crate::transport::{Address, DataPlane, Transport};
use crate::wait::{AfterFork, Cell, Pending};
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// All peers of this process: cheap to clone, used from any thread and task. Dropping the last clone starts a shutdown and
/// waits for nothing; leases and handles outlive it safely.
///
/// It belongs to the process that built it. In a child of `fork` whatever was made before answers
/// [`UsedAfterFork`](crate::UsedAfterFork) at once, or what stood at the fork if it only reads, and dropping it does
/// nothing: see [`docs::limitations`](crate::docs::limitations).
pub struct PeerTable<T: Transport> {
    /// The same as the owner's, one step nearer: a lease by id starts here.
    shared: Arc<Shared<T>>,
    owner: Arc<Owner<T>>,
}

struct Owner<T: Transport>(Arc<Shared<T>>);

impl<T: Transport> Drop for Owner<T> {
    fn drop(&mut self) {
        match self.0.is_here() {
            true => shutdown::abandon(&self.0),
            false => std::mem::forget(self.0.clone()), // what it holds is the parent's, and is not dropped here
        }
    }
}

impl<T: Transport> Clone for PeerTable<T> {
    fn clone(&self) -> Self {
        PeerTable { shared: self.shared.clone(), owner: self.owner.clone() }
    }
}

impl<T: Transport> PeerTable<T> {
    pub(crate) fn new(shared: Arc<Shared<T>>) -> Self {
        PeerTable { owner: Arc::new(Owner(shared.clone())), shared }
    }

    /// Settings of a table over `transport`.
    pub fn builder(transport: T) -> Builder<T> {
        Builder::new(transport)
    }

    /// Adds a peer; makes no native call. A live name with the same address answers the existing peer. A name whose former
    /// peer is still being removed may be inserted at once; where a second connection would be in its way, the new peer
    /// connects when the old one is gone. Runs the address's
    /// `Eq` and `Display` on this thread, under no lock. May wait while another insert makes room: a sixteenth more places
    /// than there are.
    ///
    /// # Errors
    /// [`InsertError`]; the table is unchanged.
    pub fn insert<N>(&self, name: N, address: T::Address) -> Result<Peer<T>, InsertError>
    where
        N: TryInto<PeerName>,
        InsertError: From<N::Error>,
    {
        let mut peers = self.insert_many([(name.try_into()?, address)])?;
        Ok(peers.pop().expect("one peer for one name"))
    }

    /// Adds many peers at the cost of one copy of the names: all or none. Runs code and may wait as
    /// [`insert`](Self::insert).
    ///
    /// # Errors
    /// [`InsertError`] of the first that can't be added; the table is unchanged.
    pub fn insert_many(
        &self,
        peers: impl IntoIterator<Item = (PeerName, T::Address)>,
    ) -> Result<Vec<Peer<T>>, InsertError> {
        let wanted: Vec<_> = peers.into_iter().map(|(name, address)| (name, Arc::new(address))).collect();
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        if !self.shared().is_here() {
            return Err(InsertError::UsedAfterFork { name: wanted[0].0.clone() });
        }
        self.check_batch(&wanted)?;
        loop {
            if let Some(peers) = self.try_insert(&wanted)? {
                return Ok(peers);
            }
        }
    }

    /// Adds the ranks of one engine, each a peer of its own: all or none. When an error of one says that its
    /// [process is gone](TransportError::process_is_gone), the others that are Ready are probed at once, as by a
    /// [heartbeat](Builder::heartbeat) that is due; without heartbeats nobody is. A member that is in the table already
    /// with this address joins the group, and leaves its last one. Runs code and may wait as [`insert`](Self::insert).
    ///
    /// # Errors
    /// [`GroupError`]: as [`insert_many`](Self::insert_many), or two addresses name different
    /// [engines](crate::Address::engine); the table is unchanged. An address that names none fits with any.
    pub fn insert_group(
        &self,
        group: &str,
        members: impl IntoIterator<Item = (PeerName, T::Address)>,
    ) -> Result<Vec<Peer<T>>, GroupError> {
        let group = PeerName::new(group).map_err(InsertError::from)?;
        let members: Vec<_> = members.into_iter().collect();
        check_engines(&group, &members)?;
        let peers = self.insert_many(members)?;
        let group = Arc::new(Group { name: group, members: peers.iter().map(Peer::id).collect() });
        peers.iter().for_each(|peer| locked(peer.slot(), |lane| lane.join_group(group.clone())));
        Ok(peers)
    }

    /// Names in one batch may repeat only with one address, and none may be ours.
    fn check_batch(&self, wanted: &[(PeerName, Arc<T::Address>)]) -> Result<(), InsertError> {
        let own = self.shared().transport.local_name();
        let mut seen: HashMap<&PeerName, &Arc<T::Address>> = HashMap::new();
        for (name, address) in wanted {
            if own == Some(name) {
                return Err(InsertError::OwnName { name: name.clone() });
            }
            match seen.insert(name, address) {
                Some(before) if **before != **address => return Err(conflict(name, before, address)),
                _ => {}
            }
        }
        Ok(())
    }

    /// `None`: somebody else changed one of the names meanwhile.
    fn try_insert(&self, wanted: &[(PeerName, Arc<T::Address>)]) -> Result<Option<Vec<Peer<T>>>, InsertError> {
        let mut slots: HashMap<PeerName, SlotRef<T>> = HashMap::with_capacity(wanted.len());
        let mut new = NotListed(Vec::new());
        for (name, address) in wanted {
            if slots.contains_key(name) {
                continue;
            }
            let slot = match self.existing(name, address)? {
                Existing::Live(slot) => slot,
                Existing::Nobody { after } => {
                    let slot = self.new_slot(name, address, after)?;
                    new.0.push(New { name: name.clone(), slot: slot.clone(), after });
                    slot
                }
            };
            slots.insert(name.clone(), slot);
        }
        match self.shared().names.add(&new.0) {
            Ok(()) => {
                new.0.clear();
                let peer = |name: &PeerName| Peer::new(name.clone(), slots[name].clone());
                Ok(Some(wanted.iter().map(|(name, _)| peer(name)).collect()))
            }
            Err(NotAdded::Taken) => Ok(None),
            Err(NotAdded::ShutDown) => Err(InsertError::ShutDown { name: wanted[0].0.clone() }),
        }
    }

    /// The live slot of `name`, if there is one and it has this address.
    fn existing(&self, name: &PeerName, address: &Arc<T::Address>) -> Result<Existing<T>, InsertError> {
        let shared = self.shared();
        let slot = shared.names.with(name.as_str(), |found| match found {
            Found::Slot(slot) => Ok(Existing::Live(slot.clone())),
            Found::Nothing => Ok(Existing::Nobody { after: None }),
            Found::Leaving(id) => Ok(Existing::Nobody { after: Some(id) }),
            Found::ShutDown => Err(InsertError::ShutDown { name: name.clone() }),
        })?;
        let Existing::Live(slot) = slot else { return Ok(slot) };
        slot.mark_asked();
        let (live, phase) = locked(&slot, |lane| (lane.slow.address.clone(), lane.word().phase()));
        match live {
            Some(live) if !matches!(phase, Phase::Removing | Phase::Removed) => match *live == **address {
                true => Ok(Existing::Live(slot)),
                false => Err(conflict(name, &live, address)),
            },
            // Its remover has not come to the names yet.
            _ => {
                shared.leaves(name, &slot);
                Ok(Existing::Nobody { after: shared.names.leaving(name.as_str()) })
            }
        }
    }

    fn new_slot(
        &self,
        name: &PeerName,
        address: &Arc<T::Address>,
        after: Option<PeerId>,
    ) -> Result<SlotRef<T>, InsertError> {
        let shared = self.shared();
        let limit = shared.config.max_peers;
        let too_many = || InsertError::TooManyPeers { name: name.clone(), limit };
        let generation = shared.next_generation();
        // Before the peer is counted: it shows the address, which may panic.
        let slow = Slow::new(name.clone(), address.clone(), generation, shared.clock.now(), after);
        if !shared.count_peer() {
            return Err(too_many());
        }
        let home: *const Shared<T> = Arc::as_ptr(shared);
        let Some(place) = shared.slab.claim(|index| Slot::new(index, shared.config.stripes, home)) else {
            shared.peer_removed();
            return Err(too_many());
        };
        let slot = place.begin_life(shared, generation, slow);
        locked(&slot, |lane| lane.start_lane(slot.clone()));
        Ok(slot)
    }

    /// The peer called `name`, if there is one. A counted handle: keep it rather than ask for it per send.
    pub fn peer(&self, name: &str) -> Option<Peer<T>> {
        self.shared()
            .names
            .with(name, |found| match found {
                Found::Slot(slot) => Some(slot.clone()),
                _ => None,
            })
            .map(Peer::of)
    }

    /// The peer that `id` names, unless it is gone.
    pub fn peer_by_id(&self, id: PeerId) -> Option<Peer<T>> {
        let slot = self.shared().upgrade(id).filter(|slot| slot.word().phase() != Phase::Removed)?;
        Some(Peer::new(slot.try_name()?, slot))
    }

    /// A lease by name: one look at the names more than [`Peer::lease`]. Never waits.
    ///
    /// # Errors
    /// [`NotReady`]; nothing was sent. `Reason::Unknown` if no peer has this name.
    #[inline]
    pub fn lease(&self, name: &str) -> Result<Lease<T>, NotReady> {
        self.shared().names.with(name, |found| match found {
            Found::Slot(slot) => Lease::enter(slot),
            Found::Nothing => Err(self.shared().nobody(Reason::Unknown)),
            Found::Leaving(_) => Err(self.shared().nobody(Reason::Removed)),
            Found::ShutDown => Err(self.shared().nobody(Reason::ShutDown)),
        })
    }

    /// A lease by id, for message headers and foreign callers: costs about a fifth more than one by handle. Never waits.
    ///
    /// # Errors
    /// [`NotReady`]; nothing was sent. `Reason::Unknown` if the id's peer is gone, or the id was never one.
    #[inline]
    pub fn lease_by_id(&self, id: PeerId) -> Result<Lease<T>, NotReady> {
        let entered = self.shared().slab.place(id.index).and_then(|slot| {
            let entered = slot.enter_by_id(id.version, stripe_of_thread())?;
            Some(entered.map(|entered| Lease::of(slot, entered)))
        });
        match entered {
            Some(Ok(lease)) => Ok(lease),
            Some(Err(word)) => Err(self.refuse_by_id(id, word)),
            None => Err(self.shared().nobody(Reason::Unknown)),
        }
    }

    #[cold]
    fn refuse_by_id(&self, id: PeerId, word: Word) -> NotReady {
        match self.shared().upgrade(id) {
            Some(slot) => slot.refuse(word),
            None => self.shared().nobody(Reason::Unknown),
        }
    }

    /// Every peer's state, those being removed included, and those whose insert has not returned yet, from any thread and
    /// without waiting for any of them, also during a hang. Each peer's phase, generation and record are of one moment, its
    /// counts of the next; the list is not of one moment.
    pub fn snapshot(&self) -> Snapshot {
        let shared = self.shared();
        let [generations, elections_without_connect, reports, stale_reports, leaked] = shared.counters.read();
        let slots = shared.slab.lives();
        let kept: quarantine::Counts = shared.slab.places().map(|slot| slot.in_flight.quarantine.counts()).sum();
        Snapshot {
            peers: slots.filter_map(|slot| PeerStatus::of(&slot)).collect(),
            stuck_connects: shared.connects.stuck() as u64,
            stuck_closes: shared.stuck_closes() as u64,
            quarantined: kept.transfers,
            quarantined_grants: kept.grants,
            quarantined_bytes: kept.bytes,
            leaked,
            generations,
            elections_without_connect,
            reports,
            stale_reports,
        }
    }

    /// From the moment a Ready peer stops answering, however it does, until its generation has failed, at most: the
    /// heartbeat's `interval`, until the next probe begins, and its `dead_after`. `None` without heartbeats, or where the
    /// transport can't probe: then only an error or the caller's own report tells. Holds while a thread is free for the
    /// probe, see [`Builder::max_stuck`]. An error that the transport reports is sooner.
    pub fn time_to_declare_dead(&self) -> Option<Duration> {
        self.shared().config.heartbeat.as_ref().map(|heartbeat| heartbeat.interval + heartbeat.dead_after)
    }

    /// From the moment a Ready peer stops answering until a process that took its place can be in use, at most:
    /// [`time_to_declare_dead`](Self::time_to_declare_dead), the widest wait after a first failure, and `connect_timeout`;
    /// where the transport can't [`OVERLAP`](crate::Capabilities::OVERLAP) connections also the old one's end, `drain_deadline` and
    /// `close_timeout`. `None` like that one. Supposes that the process listens by then, that somebody asks for the peer,
    /// that its earlier failures are forgiven, that a permit is free, and that callers give failed leases back.
    pub fn time_to_reusable(&self) -> Option<Duration> {
        let (shared, config) = (self.shared(), &self.shared().config);
        let end =
            if shared.has_one_slot_per_name() { config.drain_deadline + config.close_timeout } else { Duration::ZERO };
        let backoff = config.backoff.base.min(config.backoff.cap);
        self.time_to_declare_dead().map(|dead| dead + end + backoff + config.connect_timeout)
    }

    /// The transport.
    pub fn transport(&self) -> &T {
        &self.shared().transport
    }

    /// Ends the table: no insert, lease or grant from here on; leases and transfers may finish until `deadline`;
    /// connections are closed, then regions that nothing uses are deregistered. The future resolves by then (50 ms later if
    /// the native side hangs while it deregisters) and says what was left. May be called again, by anybody; dropping the future cancels nothing.
    pub fn shutdown(&self, deadline: Instant) -> Shutdown {
        let shared = self.shared();
        let cell = Arc::new(Cell::new());
        if !shared.is_here() {
            cell.resolve(ShutdownReport::after_fork());
            return Shutdown(Pending::new(cell, shared.clock.clone()));
        }
        shutdown::begin(shared);
        let request = ShutdownRequest { deadline: Some(deadline), cell: cell.clone(), submitted: None };
        shared.shutdown.lock().push(request);
        shared.queue.wake();
        // Looked at after the push: either the driver's end has seen the request, or this sees that it died.
        if shared.driver_died() {
            shutdown::submit_report(shared, cell.clone(), Some(deadline));
        }
        Shutdown(Pending::new(cell, shared.clock.clone()))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared<T>> {
        &self.shared
    }
}

/// What a name stands for when it is to be inserted.
enum Existing<T: Transport> {
    Live(SlotRef<T>),
    Nobody {
        /// The slot that has to be Removed before a new one may connect.
        after: Option<PeerId>,
    },
}

/// New slots that are not in the names yet. They end with this, also when a user's address panics.
struct NotListed<T: Transport>(Vec<New<T>>);

impl<T: Transport> Drop for NotListed<T> {
    fn drop(&mut self) {
        for New { slot, .. } in self.0.drain(..) {
            locked(&slot, |lane| lane.discard());
        }
    }
}

impl<T: DataPlane> PeerTable<T> {
    /// Lends `page` to a peer for remote writing or reading. Does not wait.
    ///
    /// # Errors
    /// [`GrantError`]; nothing is lent.
    pub fn grant(&self, to: &Peer<T>, page: &Slice, access: Access) -> Result<Grant, GrantError> {
        let shared = self.shared();
        let (peer, region) = (to.name(), page.region().id());
        if !shared.is_here() {
            return Err(GrantError::UsedAfterFork { peer: peer.clone() });
        }
        let (quarantine, limit) = (&to.slot().in_flight.quarantine, shared.config.max_quarantined_bytes);
        if let Some(bytes) = quarantine.is_full(limit) {
            return Err(GrantError::Quarantined { peer: peer.clone(), bytes, limit });
        }
        let grant = shared.transport.grants().lend(peer, page, access);
        let (core, slot) = (grant.core().clone(), to.slot().clone());
        core.quarantined_in(quarantine.clone());
        shared.lent.lock().insert(core.id(), core.clone());
        slot.grants.fetch_add(1, Ordering::Relaxed);
        let (home, id) = (Arc::downgrade(shared), core.id());
        core.on_quiesced(move || {
            slot.grants.fetch_sub(1, Ordering::Relaxed);
            if let Some(home) = home.upgrade() {
                let returned = home.lent.lock().remove(&id);
                drop(returned);
            }
        });
        // Looked at after the grant is listed, so a deregistration or a shutdown that missed it is seen here.
        if shared.names.is_shut_down() {
            return Err(GrantError::ShutDown { peer: peer.clone() });
        }
        if !shared.registered.look().contains_key(&region) {
            return Err(GrantError::NotRegistered { peer: peer.clone(), region });
        }
        Ok(grant)
    }

    /// Messages from everybody who connected to us, also from peers this table does not hold.
    pub fn inbox(&self) -> Inbox {
        self.transport().inbox().clone()
    }
}

impl<T: Transport> fmt::Debug for PeerTable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerTable").field("live", &self.shared().live()).finish_non_exhaustive()
    }
}

fn conflict<A: fmt::Display>(name: &PeerName, live: &A, given: &A) -> InsertError {
    InsertError::NameConflict { name: name.clone(), live: live.to_string(), given: given.to_string() }
}

/// Addresses that name an engine must name one start of it.
fn check_engines<A: Address>(group: &PeerName, members: &[(PeerName, A)]) -> Result<(), GroupError> {
    let engines: Vec<_> = members.iter().map(|(_, address)| address.engine()).collect();
    let mut named = engines.iter().flatten();
    let first = named.next();
    if named.all(|engine| Some(engine) == first) {
        return Ok(());
    }
    let member = |((name, address), engine): (&(PeerName, A), _)| GroupMember {
        name: name.clone(),
        engine,
        address: address.to_string(),
    };
    let members = members.iter().zip(engines).map(member).collect();
    Err(GroupError::Mixed { group: group.clone(), members })
}

impl<T: Transport> Shared<T> {
    #[cold]
    fn nobody(&self, reason: Reason) -> NotReady {
        let reason = if self.is_here() { reason } else { Reason::UsedAfterFork };
        NotReady { phase: Phase::Removed, generation: Generation(0), retry_at: None, reason }
    }
}

/// A future of what a shutdown could not take back.
#[derive(Debug)]
pub struct Shutdown(Pending<ShutdownReport>);

impl Shutdown {
    /// Blocks this thread until the shutdown's deadline at the latest.
    ///
    /// # Errors
    /// [`WouldDeadlock`] on a thread of a table; the shutdown goes on.
    pub fn wait(self) -> Result<ShutdownReport, WouldDeadlock> {
        self.0.wait()
    }
}

impl Future for Shutdown {
    type Output = ShutdownReport;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<ShutdownReport> {
        Pin::new(&mut self.0).poll(cx)
    }
}

/// What a shutdown could not take back.
#[non_exhaustive]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShutdownReport {
    /// Peers with leases that were not given back, and how many.
    pub leaked_leases: Vec<(PeerName, u64)>,
    /// Peers whose native connect has not returned.
    pub stuck_connects: Vec<PeerName>,
    /// Connections that the native side refused to close, ever.
    pub leaked_connections: u64,
    /// Peers with transfers that are not quiescent, and how many.
    pub quarantined: Vec<(PeerName, u64)>,
    /// Regions that are still in use, or that the transport did not take back.
    pub still_registered: Vec<RegionId>,
    /// This is a forked child, the table is the parent's: [`UsedAfterFork`](crate::UsedAfterFork). Nothing was ended.
    pub used_after_fork: bool,
}

impl AfterFork for ShutdownReport {
    fn after_fork() -> Self {
        ShutdownReport { used_after_fork: true, ..ShutdownReport::default() }
    }
}

impl ShutdownReport {
    /// Whether nothing was left.
    pub fn is_clean(&self) -> bool {
        *self == ShutdownReport::default()
    }
}

/// Every peer's state, and the table's counters since it was built.
#[non_exhaustive]
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// One entry per peer that is not Removed.
    pub peers: Vec<PeerStatus>,
    /// Native connects that run beyond their attempt's deadline, now.
    pub stuck_connects: u64,
    /// Native closes that have taken longer than `close_timeout` and go on, now.
    pub stuck_closes: u64,
    /// Transfers that ended for their callers and still hold their pages, of all peers, also those that are removed.
    pub quarantined: u64,
    /// Grants that were revoked and are not quiesced, likewise.
    pub quarantined_grants: u64,
    /// Bytes of both.
    pub quarantined_bytes: u64,
    /// Connections that the native side did not take back.
    pub leaked: u64,
    /// Elections won: each drew one generation for one attempt.
    pub generations: u64,
    /// Elections whose attempt ended before its native connect was called.
    pub elections_without_connect: u64,
    /// Reports that failed the generation they named.
    pub reports: u64,
    /// Reports that named a generation which was not current.
    pub stale_reports: u64,
}
