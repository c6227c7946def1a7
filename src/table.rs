//! All peers of this process.

use crate::builder::Builder;
use crate::error::{GrantError, NotReady, Reason};
use crate::gate::stripe_of_thread;
use crate::grant::{Access, Grant};
use crate::inbox::Inbox;
use crate::lease::Lease;
use crate::name::PeerId;
use crate::names::Found;
use crate::peer::Peer;
use crate::region::Slice;
use crate::shared::Shared;
use crate::shutdown;
use crate::state::{Phase, Word};
use crate::sync::Ordering;
use crate::transport::{DataPlane, Transport};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

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

    /// A lease by id, for message headers and foreign callers: costs a little more than one by handle. Never waits.
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

    pub(crate) fn shared(&self) -> &Arc<Shared<T>> {
        &self.shared
    }
}

impl<T: DataPlane> PeerTable<T> {
    /// Lends `page` to a peer for remote writing or reading. Does not wait.
    ///
    /// # Errors
    /// [`GrantError`]; nothing is lent.
    ///
    /// # Panics
    /// If the operating system gives no random bytes, which it does once booted.
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
