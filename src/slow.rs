//! What is done to a slot under its mutex: election, publish, failure, expiry, removal. Every change of the word that is
//! not a report is made here, by CAS: the mutex is against each other, the CAS against a report.
//!
//! - No native call, no user code and no allocation happens under the mutex: [`locked`] brings what may be needed, and what
//!   is left over (outcomes to resolve, records to retire, connections to close) is done after unlock.
//! - A slot always has exactly one unresolved outcome cell: of the attempt that runs or, if none runs, of the next one.
//!   Ending an attempt puts a fresh cell in its place and resolves the old one after unlock (loom-tests/outcome.rs).
//! - An election reserves a bay, and publish is the first to touch it: expiry frees the reservation at once.
//! - At most one native connect of a slot runs. One that outlives its attempt still counts, until it has returned and what
//!   it made is closed.

use crate::error::{ReadyError, Reason};
use crate::name::{Incarnation, PeerName};
use crate::note;
use crate::peer::Removed;
use crate::queue::{DRAINED, LOOK, WANTED};
use crate::record::{Draft, Record, Retired};
use crate::shared::Shared;
use crate::slot::{Slot, SlotRef};
use crate::state::{Generation, Phase, Word};
use crate::sync::{Arc, MutexGuard};
use crate::transport::{CloseReason, Transport};
use crate::wait::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The outcome of one attempt, for everybody who waited for it.
pub(crate) type Ended = Result<Generation, ReadyError>;

/// What the mutex guards.
pub(crate) struct Slow<T: Transport> {
    pub(crate) name: PeerName,
    /// A counted copy is compared or given to the transport, never this one under the lock.
    pub(crate) address: Option<Arc<T::Address>>,
    address_text: Arc<str>,
    pub(crate) bays: [Place<T::Connection>; 2],
    pub(crate) connect: Option<Connect>,
    /// The attempt whose outcome is not resolved.
    trying: Option<Generation>,
    /// The word that the record is about.
    settled: Word,
    ready_since: Option<Instant>,
    cell: Arc<Cell<Ended>>,
    attempts: u64,
    failures: u32,
    pub(crate) retry_at: Option<Instant>,
    /// No thread was free for a connect that was asked for; not a failure.
    pub(crate) busy_until: Option<Instant>,
    pub(crate) last_error: Option<Arc<str>>,
    reason: Reason,
    since: Instant,
    incarnation: Option<Incarnation>,
    pub(crate) removal: Option<Removal>,
    /// The lane's own reference, from insert to Removed.
    lane: Option<SlotRef<T>>,
    /// Whether the slot stands in the driver's line for a permit.
    pub(crate) in_line: bool,
    /// The earliest time the driver will look by itself.
    pub(crate) timer: Option<Instant>,
}

/// What a bay is used for.
pub(crate) enum Place<C> {
    Free,
    /// For an attempt; untouched until it is published.
    Reserved(Generation),
    Live(Generation),
    Draining(Draining),
    Closing(Closing<C>),
    /// Closed; its transfers have not all been counted out yet. With the time when they end for their callers.
    Quiescing(Option<Instant>),
}

pub(crate) struct Draining {
    pub(crate) generation: Generation,
    pub(crate) since: Instant,
    pub(crate) why: CloseReason,
    /// The DRAINED bit came: nobody is inside. Never inferred from the gate.
    pub(crate) drained: bool,
    /// Its drain deadline has passed and waiters were told.
    pub(crate) overdue: bool,
}

pub(crate) struct Closing<C> {
    pub(crate) generation: Generation,
    pub(crate) since: Instant,
    pub(crate) why: CloseReason,
    /// The native side asked to be called again, then.
    pub(crate) again: Option<(C, Instant)>,
    pub(crate) transfers_end_at: Option<Instant>,
}

/// The native connect that runs, or the close of one that came too late.
pub(crate) struct Connect {
    pub(crate) generation: Generation,
    pub(crate) deadline: Instant,
    /// Counts among the table's concurrent connects; false once it has given its permit up.
    pub(crate) permit: bool,
    cancelled: Arc<AtomicBool>,
}

pub(crate) struct Removal {
    pub(crate) why: CloseReason,
    pub(crate) since: Instant,
    pub(crate) leaked: Option<&'static str>,
    pub(crate) waiting: Removers,
}

/// Who waits for a removal, and until when.
pub(crate) type Removers = Vec<(Instant, Arc<Cell<Removed>>)>;

/// Why an attempt failed, made before the lock.
pub(crate) struct Failure {
    pub(crate) reason: Reason,
    pub(crate) text: Arc<str>,
    pub(crate) outcome: ReadyError,
    pub(crate) blame: Blame,
}

/// What a failure does to the backoff.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blame {
    /// Counts against the peer.
    Peer,
    /// The peer said when to come again.
    Busy(Duration),
    /// Nothing changes before one side does: wait as long as the cap.
    Incompatible,
    /// A fault of this process: backs off table-wide, never counts against a peer.
    Local,
}

/// What an election hands to the connecting thread.
pub(crate) struct Elected<A> {
    pub(crate) generation: Generation,
    pub(crate) name: PeerName,
    pub(crate) address: Arc<A>,
    pub(crate) deadline: Instant,
    pub(crate) cancelled: Arc<AtomicBool>,
}

/// A connection that left its bay, or never had one, and is to be closed.
pub(crate) struct ToClose<C> {
    pub(crate) name: PeerName,
    pub(crate) generation: Generation,
    pub(crate) bay: Option<usize>,
    pub(crate) connection: C,
    pub(crate) why: CloseReason,
    pub(crate) job: u64,
}

/// How a waiter joins.
pub(crate) enum Join {
    Ended(Ended),
    Wait(Arc<Cell<Ended>>),
}

impl<T: Transport> Slow<T> {
    pub(crate) fn new(name: PeerName, address: Arc<T::Address>, generation: Generation, now: Instant) -> Self {
        Slow {
            name,
            address_text: address.to_string().into(),
            incarnation: crate::transport::Address::incarnation(&*address),
            address: Some(address),
            bays: [Place::Free, Place::Free],
            connect: None,
            trying: None,
            settled: Word::new(generation, Phase::Idle),
            ready_since: None,
            cell: Arc::new(Cell::new()),
            attempts: 0,
            failures: 0,
            retry_at: None,
            busy_until: None,
            last_error: None,
            reason: Reason::NotAsked,
            since: now,
            removal: None,
            lane: None,
            in_line: false,
            timer: None,
        }
    }
}

/// The mutex held, with what was brought and what is left to do after unlock.
pub(crate) struct Locked<'a, T: Transport> {
    pub(crate) slot: &'a Slot<T>,
    pub(crate) slow: &'a mut Slow<T>,
    pub(crate) now: Instant,
    random: u64,
    drafts: Vec<Draft>,
    fresh: Vec<Arc<Cell<Ended>>>,
    after: After<T>,
}

/// Done after unlock, in this order.
struct After<T: Transport> {
    events: u32,
    resolve: Vec<(Arc<Cell<Ended>>, Ended)>,
    removed: Option<(PeerName, Removed, Removers)>,
    retired: Vec<Retired>,
    notes: Vec<note::Taken>,
    /// Failures that nobody waited for: a transport's error in them is user code when it is dropped.
    unused: Vec<ReadyError>,
    lane: Option<SlotRef<T>>,
    address: Option<Arc<T::Address>>,
}

/// How many records one section writes, and how many attempts it ends, at most: a failure that is settled, then one more.
const TRANSITIONS: usize = 3;

/// Runs `f` under the slot's mutex. The caller keeps the slot alive.
pub(crate) fn locked<T: Transport, R>(slot: &Slot<T>, f: impl FnOnce(&mut Locked<'_, T>) -> R) -> R {
    section(slot, || Some(slot.slow.lock()), f).expect("a lock that is waited for is got")
}

/// The same for the driver, which waits for nobody.
pub(crate) fn try_locked<T: Transport, R>(slot: &Slot<T>, f: impl FnOnce(&mut Locked<'_, T>) -> R) -> Option<R> {
    section(slot, || slot.slow.try_lock(), f)
}

fn section<'a, T: Transport, R>(
    slot: &'a Slot<T>,
    lock: impl FnOnce() -> Option<MutexGuard<'a, Option<Slow<T>>>>,
    f: impl FnOnce(&mut Locked<'_, T>) -> R,
) -> Option<R> {
    let home = slot.home();
    let (now, random) = (home.clock.now(), home.random());
    let drafts = (0..TRANSITIONS).map(|_| Draft::new()).collect();
    let fresh = (0..TRANSITIONS).map(|_| Arc::new(Cell::new())).collect();
    let after = After {
        events: 0,
        resolve: Vec::with_capacity(TRANSITIONS),
        removed: None,
        retired: Vec::with_capacity(TRANSITIONS),
        notes: Vec::with_capacity(TRANSITIONS),
        unused: Vec::with_capacity(TRANSITIONS),
        lane: None,
        address: None,
    };
    let mut guard = lock()?;
    let slow = guard.as_mut().expect("a counted slot has a life");
    let mut locked = Locked { slot, slow, now, random, drafts, fresh, after };
    let answer = f(&mut locked);
    let Locked { drafts, fresh, after, .. } = locked;
    drop(guard);
    drop((drafts, fresh));
    after.run(slot, home);
    Some(answer)
}

impl<T: Transport> After<T> {
    fn run(self, slot: &Slot<T>, home: &Shared<T>) {
        if self.events != 0 {
            slot.tell(self.events);
        }
        self.retired.into_iter().for_each(Retired::retire);
        for (cell, outcome) in self.resolve {
            cell.resolve(outcome);
        }
        if let Some((name, removed, waiting)) = self.removed {
            home.has_left(&name, slot);
            home.peer_removed();
            for (_, cell) in waiting {
                cell.resolve(removed.clone());
            }
        }
        if let Some(address) = self.address {
            home.drop_elsewhere(address);
        }
        drop((self.notes, self.unused));
        drop(self.lane);
    }
}

impl<T: Transport> Locked<'_, T> {
    pub(crate) fn word(&self) -> Word {
        self.slot.word()
    }

    fn home(&self) -> &Shared<T> {
        self.slot.home()
    }

    /// Wakes the lane after unlock.
    pub(crate) fn look_after_this(&mut self) {
        self.after.events |= LOOK;
    }

    /// Gives the lane its reference, at insert.
    pub(crate) fn start_lane(&mut self, lane: SlotRef<T>) {
        self.slow.lane = Some(lane);
        self.write_record(self.slow.settled, Reason::NotAsked);
    }

    /// Accounts for a failure that the word shows and the record does not: a report, or the CAS of the caller.
    pub(crate) fn settle(&mut self, failure: Option<Failure>) {
        let word = self.word();
        if word.phase() != Phase::Failed || word == self.slow.settled {
            return;
        }
        let generation = word.generation();
        let (note, taken) = self.slot.notes.take(generation);
        self.after.notes.push(taken);
        self.shut(CloseReason::Failed);
        self.free_reservation();
        let stable = self.slow.ready_since.take().map_or(Duration::ZERO, |since| self.now.duration_since(since));
        let blame = failure.as_ref().map_or(Blame::Peer, |failure| failure.blame);
        self.back_off(blame, stable);
        let (reason, text, outcome) = match (failure, note) {
            (Some(failure), _) => (failure.reason, Some(failure.text), Some(failure.outcome)),
            (None, Some(note)) => (Reason::Broken(note.native_code), Some(note.text), None),
            (None, None) => (Reason::Broken(None), None, None),
        };
        self.slow.last_error = text;
        self.cancel_connect(generation);
        if self.slow.trying.take() != Some(generation) {
            self.after.unused.extend(outcome);
        } else {
            let error = outcome.unwrap_or_else(|| ReadyError::Reported {
                peer: self.slow.name.clone(),
                generation,
                error: self.slow.last_error.clone().unwrap_or_else(|| self.home().no_text.clone()),
            });
            self.end_attempt(Err(error));
        }
        self.write_record(word, reason);
    }

    fn back_off(&mut self, blame: Blame, stable: Duration) {
        let home = self.slot.home();
        let backoff = &home.config.backoff;
        let wait = match blame {
            Blame::Peer => {
                self.slow.failures = backoff.failures_after(self.slow.failures, stable);
                backoff.delay(self.slow.failures, self.random)
            }
            Blame::Busy(wait) => wait,
            Blame::Incompatible => backoff.cap,
            Blame::Local => home.local_fault(self.now, self.random),
        };
        self.slow.retry_at = Some(self.now + wait);
    }

    /// A note that came after its generation was settled joins the record.
    pub(crate) fn join_note(&mut self) {
        let word = self.word();
        if word.phase() != Phase::Failed || word != self.slow.settled {
            return;
        }
        let (note, taken) = self.slot.notes.take(word.generation());
        self.after.notes.push(taken);
        if let Some(note) = note.filter(|_| self.slow.last_error.is_none()) {
            self.slow.last_error = Some(note.text);
            self.write_record(word, Reason::Broken(note.native_code));
        }
    }

    /// Stops admission to every live bay that the word no longer names.
    fn shut(&mut self, why: CloseReason) {
        for bay in 0..2 {
            let Place::Live(generation) = self.slow.bays[bay] else { continue };
            debug_assert_ne!(self.word().bay(), Some(bay), "the word moves before the gate closes");
            self.slow.bays[bay] =
                Place::Draining(Draining { generation, since: self.now, why, drained: false, overdue: false });
            if self.slot.bay(bay).gate.close() {
                self.after.events |= DRAINED << bay;
            }
        }
    }

    fn free_reservation(&mut self) {
        for place in &mut self.slow.bays {
            if matches!(place, Place::Reserved(_)) {
                *place = Place::Free;
            }
        }
    }

    fn cancel_connect(&mut self, generation: Generation) {
        if let Some(connect) = self.slow.connect.as_ref().filter(|connect| connect.generation == generation) {
            connect.cancelled.store(true, Ordering::Release);
        }
    }

    /// Whether an election may happen now; when, if only time is missing.
    pub(crate) fn may_elect(&self) -> MayElect {
        let word = self.word();
        let slow = &*self.slow;
        let failed = matches!(word.phase(), Phase::Idle | Phase::Failed) && slow.settled == word;
        if !failed || slow.connect.is_some() || !self.slot.is_wanted(word.generation()) || self.free_bay().is_none() {
            return MayElect::No;
        }
        let not_before = [slow.retry_at, slow.busy_until, self.home().local_retry_at()].into_iter().flatten().max();
        match not_before {
            Some(at) if at > self.now => MayElect::At(at),
            _ => MayElect::Now,
        }
    }

    fn free_bay(&self) -> Option<usize> {
        let free = |place: &Place<_>| matches!(place, Place::Free);
        let at = self.slow.bays.iter().position(free)?;
        (!self.home().has_one_slot_per_name() || self.slow.bays.iter().all(free)).then_some(at)
    }

    /// Starts an attempt. The caller holds a permit and has asked [`may_elect`](Self::may_elect).
    pub(crate) fn elect(&mut self) -> Option<Elected<T::Address>> {
        let word = self.word();
        let bay = self.free_bay()?;
        let address = self.slow.address.clone()?;
        let generation = self.home().next_generation();
        let connecting = Word::new(generation, Phase::Connecting);
        self.slot.change_word(word, connecting).ok()?;
        self.slow.bays[bay] = Place::Reserved(generation);
        let cancelled = Arc::new(AtomicBool::new(false));
        let deadline = self.now + self.home().config.connect_timeout;
        self.slow.connect = Some(Connect { generation, deadline, permit: true, cancelled: cancelled.clone() });
        self.slot.connecting.store(true, Ordering::Relaxed);
        self.slow.trying = Some(generation);
        self.slow.attempts += 1;
        self.slow.busy_until = None;
        self.write_record(connecting, Reason::Connecting);
        Some(Elected { generation, name: self.slow.name.clone(), address, deadline, cancelled })
    }

    /// Makes the connection of attempt `generation` current. `Err`: it came too late and is to be closed; the native
    /// connect counts as running until [`connect_returned`](Self::connect_returned).
    pub(crate) fn publish(
        &mut self,
        generation: Generation,
        connection: T::Connection,
        incarnation: Option<Incarnation>,
    ) -> Result<(), T::Connection> {
        let word = Word::new(generation, Phase::Connecting);
        let reserved = |place: &Place<_>| matches!(place, Place::Reserved(of) if *of == generation);
        let bay = match self.slow.bays.iter().position(reserved) {
            Some(bay) if self.word() == word => bay,
            _ => return Err(connection),
        };
        // SAFETY: the bay is Reserved: it was Free, so its gate is closed and drained and its connection taken; the mutex
        // is held. Ends if: a bay becomes Free before its connection is taken.
        unsafe { self.slot.bay(bay).fill(connection) };
        self.slow.bays[bay] = Place::Live(generation);
        std::mem::forget(SlotRef::of(self.slot)); // the bay's own, given back when its connection is taken
        self.connect_returned(generation);
        let ready = Word::ready(generation, bay);
        match self.slot.change_word(word, ready) {
            Ok(()) => {
                self.home().local_fault_is_over();
                self.slow.trying = None;
                self.slow.ready_since = Some(self.now);
                self.slow.incarnation = incarnation.or(self.slow.incarnation);
                self.slow.last_error = None;
                self.slow.retry_at = None;
                self.end_attempt(Ok(generation));
                self.write_record(ready, Reason::Ready);
            }
            // A report came in between: shut like any other.
            Err(_) => self.settle(None),
        }
        Ok(())
    }

    /// Ends attempt `generation`. Its native connect counts as running until [`connect_returned`](Self::connect_returned).
    pub(crate) fn fail(&mut self, generation: Generation, failure: Failure) {
        let connecting = Word::new(generation, Phase::Connecting);
        let failed = Word::new(generation, Phase::Failed);
        match self.slot.change_word(connecting, failed) {
            Ok(()) => self.settle(Some(failure)),
            Err(now) if now == failed && now != self.slow.settled => self.settle(Some(failure)),
            Err(_) => self.after.unused.push(failure.outcome),
        }
    }

    /// Ends the attempt whose deadline has passed; its native connect goes on, without a permit.
    pub(crate) fn expire(&mut self) {
        let home = self.slot.home();
        let Some(connect) = self.slow.connect.as_mut().filter(|connect| connect.permit) else { return };
        if connect.deadline > self.now {
            return;
        }
        connect.permit = false;
        home.connects.gave_up();
        let generation = connect.generation;
        let after = home.config.connect_timeout;
        let connecting = Word::new(generation, Phase::Connecting);
        if self.slot.change_word(connecting, Word::new(generation, Phase::Failed)).is_ok() {
            let outcome = ReadyError::TimedOut { peer: self.slow.name.clone(), generation, after };
            let text = home.timed_out_text.clone();
            self.settle(Some(Failure { reason: Reason::TimedOut, text, outcome, blame: Blame::Peer }));
        }
    }

    /// The native connect of `generation` is over, and so is the close of what came too late.
    pub(crate) fn connect_returned(&mut self, generation: Generation) {
        if let Some(connect) = self.slow.connect.take_if(|connect| connect.generation == generation) {
            self.home().connects.returned(connect.permit);
            self.slot.connecting.store(false, Ordering::Relaxed);
            self.after.events |= LOOK;
        }
    }

    /// Joins what the peer is doing: for `ready()`.
    pub(crate) fn join(&mut self) -> Join {
        self.settle(None);
        let word = self.word();
        let peer = || self.slow.name.clone();
        match word.phase() {
            Phase::Ready => return Join::Ended(Ok(word.generation())),
            Phase::Removing | Phase::Removed => return Join::Ended(Err(self.removed_error())),
            Phase::Idle | Phase::Failed => {
                let not_before = [self.slow.retry_at, self.home().local_retry_at()].into_iter().flatten().max();
                if let Some(retry_at) = not_before.filter(|at| *at > self.now) {
                    let last_error = self.slow.last_error.clone().unwrap_or_else(|| self.home().no_text.clone());
                    return Join::Ended(Err(ReadyError::BackingOff { peer: peer(), retry_at, last_error }));
                }
                if let Some(busy_until) = self.slow.busy_until.filter(|at| *at > self.now) {
                    let retry_after = busy_until - self.now;
                    let stuck = self.home().connects.stuck();
                    return Join::Ended(Err(ReadyError::Busy { peer: peer(), stuck, retry_after }));
                }
                if let Some(error) = self.undrained_error() {
                    return Join::Ended(Err(error));
                }
                self.slot.want(word.generation());
                self.after.events |= WANTED;
            }
            // Not asked for again: if the running attempt fails, nobody has asked since.
            Phase::Connecting => {}
        }
        Join::Wait(self.slow.cell.clone())
    }

    /// What keeps the next attempt waiting beyond the drain deadline, if anything does.
    fn undrained_error(&self) -> Option<ReadyError> {
        if self.free_bay().is_some() || !matches!(self.word().phase(), Phase::Idle | Phase::Failed) {
            return None;
        }
        self.slow.bays.iter().enumerate().find_map(|(bay, place)| match place {
            Place::Draining(draining) if draining.overdue => Some(ReadyError::Undrained {
                peer: self.slow.name.clone(),
                leases: self.slot.bay(bay).gate.users(),
                transfers: self.slot.bay(bay).transfers(),
                oldest: self.now.duration_since(draining.since),
            }),
            _ => None,
        })
    }

    /// Tells the waiters that the old connection is not drained, and the record.
    pub(crate) fn tell_undrained(&mut self) {
        if let Some(error) = self.undrained_error() {
            self.end_attempt(Err(error));
            if self.word() == self.slow.settled {
                self.write_record(self.slow.settled, Reason::Undrained);
            }
        }
    }

    /// Answers the waiters that no thread is free for a connect; changes no word and counts no failure.
    pub(crate) fn answer_busy(&mut self, stuck: usize, retry_after: Duration) {
        self.slow.busy_until = Some(self.now + retry_after);
        self.end_attempt(Err(ReadyError::Busy { peer: self.slow.name.clone(), stuck, retry_after }));
    }

    /// Starts the removal unless it has started; answers whether this call did. `expected`: only at this generation.
    pub(crate) fn begin_removal(&mut self, why: CloseReason, expected: Option<Generation>) -> Result<bool, Word> {
        self.settle(None);
        let mut word = self.word();
        let generation = loop {
            if matches!(word.phase(), Phase::Removing | Phase::Removed) {
                return Ok(false);
            }
            if expected.is_some_and(|expected| expected != word.generation()) {
                return Err(word);
            }
            match self.slot.change_word(word, Word::new(word.generation(), Phase::Removing)) {
                Ok(()) => break word.generation(),
                Err(now) => word = now, // a report
            }
        };
        self.slow.removal = Some(Removal { why, since: self.now, leaked: None, waiting: Vec::new() });
        self.free_reservation();
        self.shut(why);
        if let Some(connect) = &self.slow.connect {
            connect.cancelled.store(true, Ordering::Release);
        }
        self.slow.trying = None;
        let error = self.removed_error();
        self.end_attempt(Err(error));
        self.write_record(Word::new(generation, Phase::Removing), self.removed_reason());
        self.after.events |= LOOK;
        Ok(true)
    }

    /// Adds somebody who waits for the removal, or answers how it ended.
    pub(crate) fn await_removal(&mut self, deadline: Instant, cell: &Arc<Cell<Removed>>) -> Option<Removed> {
        let removal = self.slow.removal.as_mut().expect("a removal has begun");
        if self.slot.word().phase() == Phase::Removed {
            return Some(removal.leaked.map_or(Removed::Removed, Removed::Leaked));
        }
        removal.waiting.push((deadline, cell.clone()));
        self.after.events |= LOOK;
        None
    }

    /// Makes the slot Removed once nothing of it is left. The lane's alone.
    pub(crate) fn finish_removal(&mut self) {
        let word = self.word();
        let idle = self.slow.bays.iter().all(|place| matches!(place, Place::Free)) && self.slow.connect.is_none();
        if word.phase() != Phase::Removing || !idle {
            return;
        }
        let removed = Word::new(word.generation(), Phase::Removed);
        if self.slot.change_word(word, removed).is_err() {
            return;
        }
        self.write_record(removed, self.removed_reason());
        self.after.address = self.slow.address.take();
        self.after.lane = self.slow.lane.take();
        let removal = self.slow.removal.as_mut().expect("a removal has begun");
        let outcome = removal.leaked.map_or(Removed::Removed, Removed::Leaked);
        let waiting = std::mem::take(&mut removal.waiting);
        self.after.removed = Some((self.slow.name.clone(), outcome, waiting));
    }

    /// Ends a slot that never came into the names.
    pub(crate) fn discard(&mut self) {
        let word = self.word();
        let ended = self.slot.change_word(word, Word::new(word.generation(), Phase::Removed));
        debug_assert!(ended.is_ok(), "nobody else knows this slot");
        self.after.lane = self.slow.lane.take();
        self.after.removed = Some((self.slow.name.clone(), Removed::Removed, Vec::new()));
    }

    fn removed_error(&self) -> ReadyError {
        let peer = self.slow.name.clone();
        match &self.slow.removal {
            Some(Removal { why: CloseReason::Shutdown, .. }) => ReadyError::ShutDown { peer },
            _ => ReadyError::Removed { peer },
        }
    }

    fn removed_reason(&self) -> Reason {
        match &self.slow.removal {
            Some(Removal { why: CloseReason::Shutdown, .. }) => Reason::ShutDown,
            _ => Reason::Removed,
        }
    }

    /// Resolves the cell after unlock and puts a fresh one in its place.
    pub(crate) fn end_attempt(&mut self, outcome: Ended) {
        debug_assert!(!self.fresh.is_empty(), "more transitions in one section than it brought cells for");
        let fresh = self.fresh.pop().unwrap_or_else(|| Arc::new(Cell::new()));
        let ended = std::mem::replace(&mut self.slow.cell, fresh);
        self.after.resolve.push((ended, outcome));
    }

    fn write_record(&mut self, word: Word, reason: Reason) {
        debug_assert!(!self.drafts.is_empty(), "more transitions in one section than it brought records for");
        let draft = self.drafts.pop().unwrap_or_else(Draft::new);
        let slow = &mut *self.slow;
        if slow.settled.phase() != word.phase() || slow.settled.generation() != word.generation() {
            slow.since = self.now;
        }
        slow.settled = word;
        slow.reason = reason;
        let record = Record {
            name: slow.name.clone(),
            phase: word.phase(),
            generation: word.generation(),
            incarnation: slow.incarnation,
            address: slow.address_text.clone(),
            reason,
            last_error: slow.last_error.clone(),
            since: slow.since,
            attempts: slow.attempts,
            failures: slow.failures,
            retry_at: slow.retry_at,
        };
        self.after.retired.push(self.slot.record.replace(draft, record));
    }
}

/// The answer of [`Locked::may_elect`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MayElect {
    /// Something else must happen first.
    No,
    /// Only time is missing.
    At(Instant),
    Now,
}
