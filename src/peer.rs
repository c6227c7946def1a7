//! Our handle of one remote agent, and what it can be asked.

use crate::error::{NotReady, ReadyError, Reason, WouldDeadlock};
use crate::gate::stripe_of_thread;
use crate::lease::Lease;
use crate::name::{PeerId, PeerName};
use crate::note::Note;
use crate::pool::is_table_thread;
pub use crate::record::Record;
use crate::shared::ProbeRequest;
use crate::slot::{Slot, SlotRef};
use crate::slow::{Ended, Join, locked};
use crate::state::{Generation, Phase, Word};
use crate::sync::caught;
use crate::transport::{Capabilities, CloseReason, Liveness, ProbeContext, Reported, Transport};
use crate::wait::{AfterFork, Cell, Pending, Wait};
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// A handle of one remote agent. Cheap to clone; counts a reference to the peer's slot, not a connection.
pub struct Peer<T: Transport> {
    name: PeerName,
    slot: SlotRef<T>,
}

impl<T: Transport> Clone for Peer<T> {
    fn clone(&self) -> Self {
        Peer { name: self.name.clone(), slot: self.slot.clone() }
    }
}

impl<T: Transport> Peer<T> {
    pub(crate) fn new(name: PeerName, slot: SlotRef<T>) -> Self {
        Peer { name, slot }
    }

    pub(crate) fn of(slot: SlotRef<T>) -> Self {
        let name = slot.name();
        Peer { name, slot }
    }

    pub(crate) fn slot(&self) -> &SlotRef<T> {
        &self.slot
    }

    /// The peer in 8 bytes, for [`PeerTable::lease_by_id`](crate::PeerTable::lease_by_id).
    pub fn id(&self) -> PeerId {
        self.slot.id()
    }

    /// The peer's name.
    pub fn name(&self) -> &PeerName {
        &self.name
    }

    /// Where it stands, now. In a forked child: where it stood at the fork, like all that only reads.
    pub fn phase(&self) -> Phase {
        self.slot.word().phase()
    }

    /// At which generation, now.
    pub fn generation(&self) -> Generation {
        self.slot.word().generation()
    }

    /// Whether it is Ready and has not answered for a [heartbeat](crate::Heartbeat)'s interval, or a transfer of this generation
    /// is [stalled](crate::Builder::stalled_after). Leases are granted all the same; who has a choice sends elsewhere first.
    /// Where neither is asked for always false. Wait-free.
    pub fn is_suspect(&self) -> bool {
        self.slot.is_suspect()
    }

    /// The right to use the current generation's connection. Never waits, takes no lock, allocates nothing. Refused, it
    /// has asked for one reconnect, which starts when the backoff allows.
    ///
    /// # Errors
    /// [`NotReady`]; nothing was sent. Fail the request, or wait with [`ready`](Self::ready).
    #[inline]
    pub fn lease(&self) -> Result<Lease<T>, NotReady> {
        Lease::enter(&self.slot)
    }

    /// Waits, on any runtime, until the peer is ready, and asks for a connect if none runs. Resolves with the outcome of
    /// the first attempt that ends after the question; never sleeps through a backoff. Dropping it cancels nothing.
    pub fn ready(&self) -> Ready<T> {
        Ready { slot: self.slot.clone(), wait: None }
    }

    /// The same, blocking this thread, until `deadline` (by the table's clock) at the latest. Like `ready`, it answers at once
    /// while the peer backs off; who wants to sit that out says so:
    ///
    /// ```
    /// # use peerage::{Generation, Peer, ReadyError, Transport};
    /// # use std::time::Instant;
    /// fn wait_through<T: Transport>(peer: &Peer<T>, deadline: Instant) -> Result<Generation, ReadyError> {
    ///     loop {
    ///         match peer.wait_ready(deadline) {
    ///             Err(ReadyError::BackingOff { retry_at, .. }) if retry_at < deadline => {
    ///                 std::thread::sleep(retry_at.saturating_duration_since(Instant::now()));
    ///             }
    ///             answer => return answer,
    ///         }
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// [`ReadyError`]; [`ReadyError::WouldDeadlock`] inside a transport's calls.
    pub fn wait_ready(&self, deadline: Instant) -> Result<Generation, ReadyError> {
        let word = self.slot.word();
        if word.bay().is_some() && self.slot.is_here() {
            return Ok(word.generation());
        }
        if is_table_thread() {
            return Err(ReadyError::WouldDeadlock { peer: self.name.clone() });
        }
        match join(&self.slot) {
            Join::Ended(ended) => ended,
            Join::Wait(cell) => match cell.wait(Some(deadline), &self.slot.home().clock) {
                Some(ended) => ended,
                None => Err(ReadyError::Deadline { peer: self.name.clone() }),
            },
        }
    }

    /// Reports `generation` as broken. A generation that is not the current one changes nothing, and the answer says so.
    /// After this returns no new send is admitted on it, whatever the answer. Connects nothing. Never waits; allocates
    /// one note. The error is taken as text: its class is not asked, so busy and local errors are not for this.
    pub fn report(&self, generation: Generation, error: &dyn Error) -> Reported {
        let note = || Note::of_text(generation, error.to_string().into());
        self.slot.home().report(&self.slot, generation, note)
    }

    /// Removes the peer: no lease from here on, the connection is closed when its leases are back. The name is free at once,
    /// or when the removal has resolved if a second connection would be in the way of this one. The future resolves with
    /// what really happened, at `deadline` at the latest; the work goes on after that. May be called again, by anybody,
    /// with the same end. Dropping the future cancels nothing.
    pub fn remove(&self, deadline: Instant) -> Removal {
        match self.start_removal(None, deadline) {
            Ok(removal) => removal,
            Err(_) => unreachable!("a removal without a condition is not refused"),
        }
    }

    /// Removes the peer only if it stands at `generation`.
    ///
    /// # Errors
    /// [`NotReady`] with where it stands; nothing was changed.
    pub fn remove_if(&self, generation: Generation, deadline: Instant) -> Result<Removal, NotReady> {
        self.start_removal(Some(generation), deadline).map_err(|now| self.slot.explain(now))
    }

    fn start_removal(&self, expected: Option<Generation>, deadline: Instant) -> Result<Removal, Word> {
        let home = self.slot.home();
        let cell = Arc::new(Cell::new());
        if !self.slot.is_here() {
            if expected.is_some() {
                return Err(self.slot.word());
            }
            cell.resolve(Removed::UsedAfterFork);
            return Ok(Removal(Pending::new(cell, home.clock.clone())));
        }
        let (began, ended) = locked(&self.slot, |lane| {
            let began = lane.begin_removal(CloseReason::Removed, expected)?;
            Ok((began, lane.await_removal(deadline, &cell)))
        })?;
        if began {
            home.leaves(&self.name, &self.slot);
        }
        if let Some(ended) = ended {
            cell.resolve(ended);
        } else if home.driver_died() {
            cell.resolve(Removed::DriverDied);
        }
        Ok(Removal(Pending::new(cell, home.clock.clone())))
    }

    /// The full state as plain data: what the last transition was and why. `None` between two transitions, for a moment.
    pub fn record(&self) -> Option<Record> {
        self.slot.record_of(self.slot.word())
    }

    /// The peer's line of [`PeerTable::snapshot`](crate::PeerTable::snapshot). Without a lock.
    pub fn status(&self) -> PeerStatus {
        PeerStatus::of_slot(&self.slot, self.name.clone())
    }

    /// Asks the peer whether it is alive, on a probing thread and inside the current generation, which stays open as long as
    /// the native call takes. Changes nothing and connects nothing: the caller decides whether to
    /// [`report`](Self::report). Resolves at `deadline` at the latest, with `Dead` if the peer was asked and has not
    /// answered; at once with `Unknown` if it is not Ready, if the transport can't probe, if `max_stuck` probes run
    /// already, or in a forked child.
    pub fn probe(&self, deadline: Instant) -> Probe {
        let cell = Arc::new(Cell::new());
        let home = self.slot.home();
        let is_ready = self.slot.word().bay().is_some() && self.slot.is_here();
        let can = is_ready && home.capabilities.contains(Capabilities::PROBE);
        if !can || !home.probe_begins() {
            cell.resolve(Liveness::Unknown);
        } else {
            let (peer, answer, job) = (self.clone(), cell.clone(), home.next_job());
            home.probes.lock().push(ProbeRequest { deadline, job, cell: cell.clone() });
            // Looked at after the push: either the driver's end has seen the request, or this sees that it died.
            if home.driver_died() {
                cell.resolve(Liveness::Unknown);
            }
            let ask = move || {
                if answer.peek().is_none() {
                    answer.resolve(peer.probe_now(deadline));
                }
                peer.slot.home().probe_ended();
            };
            home.probers.submit(job, Box::new(ask));
            home.queue.wake();
        }
        Probe(Pending::new(cell, home.clock.clone()))
    }

    /// Enters without asking for a connect.
    fn probe_now(&self, deadline: Instant) -> Liveness {
        let Ok(entered) = self.slot.enter_to_probe(stripe_of_thread()) else { return Liveness::Unknown };
        let lease = Lease::of(&self.slot, entered);
        probe_inside(&self.slot, &lease, deadline)
    }
}

/// The native call, caught.
pub(crate) fn probe_inside<T: Transport>(slot: &SlotRef<T>, lease: &Lease<T>, deadline: Instant) -> Liveness {
    let cx = ProbeContext { name: slot.name(), generation: lease.generation(), deadline };
    let transport = &slot.home().transport;
    caught(|| transport.probe(&cx, lease.connection())).unwrap_or(Liveness::Unknown)
}

impl<T: Transport> fmt::Debug for Peer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer").field("name", &self.name).field("at", &self.slot.word()).finish_non_exhaustive()
    }
}

pub(crate) fn join<T: Transport>(slot: &SlotRef<T>) -> Join {
    if !slot.is_here() {
        return Join::Ended(Err(ReadyError::UsedAfterFork { peer: slot.name() }));
    }
    let word = slot.word();
    if word.bay().is_some() {
        return Join::Ended(Ok(word.generation()));
    }
    slot.mark_asked();
    let joined = locked(slot, |lane| lane.join());
    if matches!(joined, Join::Wait(_)) && slot.home().driver_died() {
        let peer = slot.name();
        return Join::Ended(Err(ReadyError::DriverDied { peer }));
    }
    joined
}

/// A future: the peer is ready, or why it is not. Asks for a connect when it is first polled.
#[must_use = "nothing is asked for until it is polled"]
pub struct Ready<T: Transport> {
    slot: SlotRef<T>,
    wait: Option<Wait<Ended>>,
}

impl<T: Transport> Future for Ready<T> {
    type Output = Result<Generation, ReadyError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.wait.is_none() || !self.slot.is_here() {
            match join(&self.slot) {
                Join::Ended(ended) => return Poll::Ready(ended),
                Join::Wait(cell) => self.wait = Some(Wait::new(cell)),
            }
        }
        Pin::new(self.wait.as_mut().expect("joined above")).poll(cx)
    }
}

impl<T: Transport> fmt::Debug for Ready<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ready").field("at", &self.slot.word()).field("wait", &self.wait).finish()
    }
}

/// A future of how a removal ended, or of where it stood at its deadline.
#[derive(Debug)]
pub struct Removal(Pending<Removed>);

impl Removal {
    /// Blocks this thread until the removal's deadline at the latest.
    ///
    /// # Errors
    /// [`WouldDeadlock`] on a thread of a table; the removal goes on.
    pub fn wait(self) -> Result<Removed, WouldDeadlock> {
        self.0.wait()
    }
}

impl Future for Removal {
    type Output = Removed;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Removed> {
        Pin::new(&mut self.0).poll(cx)
    }
}

/// What really happened to a peer that was removed.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removed {
    /// Nothing of it is left.
    Removed,
    /// The native side did not take everything back; why.
    Leaked(&'static str),
    /// At the caller's deadline something was still in use. The removal goes on.
    #[non_exhaustive]
    StillBusy {
        /// Leases not given back.
        leases: u64,
        /// Transfers that are not quiescent.
        transfers: u64,
        /// How long ago the removal began.
        oldest: Duration,
        /// Whether a native connect, or the close of one that came too late, has not returned.
        connecting: bool,
        /// Whether a native close has not returned.
        closing: bool,
    },
    /// The table's driver thread died; nothing more will be closed.
    DriverDied,
    /// This is a forked child, the table is the parent's: [`UsedAfterFork`](crate::UsedAfterFork).
    UsedAfterFork,
}

impl AfterFork for Removed {
    fn after_fork() -> Self {
        Removed::UsedAfterFork
    }
}

impl AfterFork for Liveness {
    fn after_fork() -> Self {
        Liveness::Unknown
    }
}

/// A future of a probe's answer.
#[derive(Debug)]
pub struct Probe(Pending<Liveness>);

impl Probe {
    /// Blocks this thread for the answer.
    ///
    /// # Errors
    /// [`WouldDeadlock`] on a thread of a table.
    pub fn wait(self) -> Result<Liveness, WouldDeadlock> {
        self.0.wait()
    }
}

impl Future for Probe {
    type Output = Liveness;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Liveness> {
        Pin::new(&mut self.0).poll(cx)
    }
}

/// One peer's line of a snapshot.
#[non_exhaustive]
#[derive(Debug, Clone)]
pub struct PeerStatus {
    /// Its name.
    pub name: PeerName,
    /// Its id.
    pub id: PeerId,
    /// Where it stands.
    pub phase: Phase,
    /// At which generation.
    pub generation: Generation,
    /// Whether it is Ready and has not answered for a heartbeat's interval, or a transfer of this generation is stalled.
    pub suspect: bool,
    /// The record of exactly this phase and generation; `None` while it changes.
    pub record: Option<Record>,
    /// Leases of the current generation.
    pub leases: u64,
    /// Leases of an older generation that have not been given back.
    pub draining: u64,
    /// Transfers in flight.
    pub transfers: u64,
    /// Transfers that ended for their caller and still hold their pages.
    pub quarantined: u64,
    /// Of both, those of which no byte moves.
    pub stalled: u64,
    /// Grants that are not quiesced.
    pub grants: u64,
    /// Of these, those that were revoked.
    pub quarantined_grants: u64,
    /// Bytes of the transfers and grants that are in quarantine.
    pub quarantined_bytes: u64,
    /// Whether a native connect, or the close of one that came too late, has not returned.
    pub connecting: bool,
    /// When this was seen, by the table's clock.
    pub at: Instant,
}

impl PeerStatus {
    /// `None` if the slot is Removed.
    pub(crate) fn of<T: Transport>(slot: &SlotRef<T>) -> Option<Self> {
        let name = slot.try_name()?;
        let status = Self::of_slot(slot, name);
        (status.phase != Phase::Removed).then_some(status)
    }

    fn of_slot<T: Transport>(slot: &Slot<T>, name: PeerName) -> Self {
        let word = slot.word();
        let users = |bay: usize| slot.gates().users(bay);
        let all = users(0) + users(1);
        let leases = word.bay().map_or(0, users);
        let (transfers, quarantined) = slot.in_flight.counts();
        let kept = slot.in_flight.quarantine.counts();
        PeerStatus {
            name,
            id: slot.id(),
            phase: word.phase(),
            generation: word.generation(),
            suspect: slot.is_suspect(),
            record: slot.record_of(word),
            leases,
            draining: all.saturating_sub(leases),
            transfers: transfers as u64,
            quarantined: quarantined as u64,
            stalled: (0..2).map(|bay| slot.in_flight.stalled(bay) as u64).sum(),
            grants: slot.grants.load(Ordering::Relaxed),
            quarantined_grants: kept.grants,
            quarantined_bytes: kept.bytes,
            connecting: slot.connecting.load(Ordering::Relaxed),
            at: slot.home().clock.now(),
        }
    }
}

impl<T: Transport> Slot<T> {
    /// The peer's name, without a lock. The caller keeps the slot alive.
    pub(crate) fn name(&self) -> PeerName {
        self.try_name().expect("an inserted peer has a record")
    }

    /// `None` in a slot whose life has only just begun.
    pub(crate) fn try_name(&self) -> Option<PeerName> {
        self.record.read(|record| record.map(|record| record.name.clone()))
    }

    /// The record, if it is about `word`.
    pub(crate) fn record_of(&self, word: Word) -> Option<Record> {
        self.record.read(|record| record.filter(|record| record.is_of(word)).cloned())
    }

    /// Refuses a lease: asks for a reconnect and says why. The caller keeps the slot alive. Takes no lock.
    #[cold]
    pub(crate) fn refuse(&self, word: Word) -> NotReady {
        self.mark_asked();
        let not_ready = self.explain(word); // before the driver is asked, who changes it
        if self.is_here() && matches!(word.phase(), Phase::Idle | Phase::Failed) {
            self.ask(word.generation());
        }
        not_ready
    }

    fn explain(&self, word: Word) -> NotReady {
        let explained =
            self.record.read(|record| record.filter(|record| record.is_of(word)).map(|r| (r.reason, r.retry_at)));
        let (reason, retry_at) = match explained {
            _ if !self.is_here() => (Reason::UsedAfterFork, None),
            _ if self.home().is_driver_dead() => (Reason::DriverDied, None),
            Some(explained) => explained,
            None => (Reason::Unsettled, None),
        };
        NotReady { phase: word.phase(), generation: word.generation(), retry_at, reason }
    }
}

impl Record {
    fn is_of(&self, word: Word) -> bool {
        self.phase == word.phase() && self.generation == word.generation()
    }
}
