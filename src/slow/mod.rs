//! What is done to a slot under its mutex: election, publish, failure, expiry, removal. Every change of the word that is
//! not a report is made here, by CAS: the mutex is against each other, the CAS against a report.
//!
//! - No native call and no user code happens under the mutex, and no allocation but for the lists of who waits for a removal
//!   and what a record's pin brings with it (a thread's first, and the collector's garbage): [`locked`] brings what may be
//!   needed, and what is left over (outcomes to resolve, records to retire, connections to close) is done after unlock.
//! - A slot always has exactly one unresolved outcome cell: of the attempt that runs or, if none runs, of the next one.
//!   Ending an attempt puts a fresh cell in its place and resolves the old one after unlock (loom-tests/outcome.rs).
//! - An election reserves a bay, and publish is the first to touch it: expiry frees the reservation at once.
//! - At most one native connect of a slot runs. One that outlives its attempt still counts, until it has returned and what
//!   it made is closed.

mod attempt;
mod beat;
mod forsaken;
mod group;
mod removal;
mod update;
mod visit;

pub(crate) use attempt::{Blame, Connect, Elected, Failure, Join, MayElect};
pub(crate) use beat::{Beat, probe};
pub(crate) use group::Group;
pub(crate) use removal::{BegunRemoval, Removers};
pub(crate) use update::NewAddress;

use crate::error::{ReadyError, Reason};
use crate::events::Change;
use crate::history::History;
use crate::name::{Incarnation, PeerId, PeerName};
use crate::note;
use crate::observe;
use crate::queue::{DRAINED, LOOK};
use crate::record::{Draft, Record, Retired};
use crate::removal::Removed;
use crate::shared::Shared;
use crate::slot::{Slot, SlotRef};
use crate::state::{Generation, Phase, Word};
use crate::sync::{Arc, MutexGuard};
use crate::transport::{CloseReason, Transport};
use crate::wait::Cell;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// The outcome of one attempt, for everybody who waited for it.
pub(crate) type Ended = Result<Generation, ReadyError>;

/// What the mutex guards.
pub(crate) struct Slow<T: Transport> {
    pub(crate) name: PeerName,
    /// A counted copy is compared or given to the transport, never this one under the lock.
    pub(crate) address: Option<Arc<T::Address>>,
    address_text: Arc<str>,
    pub(crate) bays: [BayState<T::Connection>; 2],
    /// Calls of who has no lease, in each bay: its connection is not taken out meanwhile.
    pub(crate) visitors: [usize; 2],
    pub(crate) connect: Option<Connect>,
    /// The attempt whose outcome is not resolved.
    trying: Option<Generation>,
    /// The word that the record is about.
    settled: Word,
    /// When the last attempt began.
    began: Option<Instant>,
    ready_since: Option<Instant>,
    cell: Arc<Cell<Ended>>,
    attempts: u64,
    failures: u32,
    /// Counts among the table's open breakers.
    breaker_open: bool,
    pub(crate) retry_at: Option<Instant>,
    /// No thread was free for a connect that was asked for; not a failure.
    pub(crate) busy_until: Option<Instant>,
    pub(crate) last_error: Option<Arc<str>>,
    reason: Reason,
    pub(crate) since: Instant,
    pub(crate) history: History,
    /// The newest subscription that has visited this peer; 0 if none has.
    told: u64,
    incarnation: Option<Incarnation>,
    pub(crate) removal: Option<BegunRemoval>,
    /// Who had the name before and is in the way until it is Removed.
    pub(crate) predecessor: Option<Predecessor>,
    /// The lane's own reference, from insert to Removed.
    lane: Option<SlotRef<T>>,
    /// Whether the slot stands in the driver's line for a permit.
    pub(crate) in_line: bool,
    /// The last attempt ran into its deadline: the next one shares half of the permits with its like.
    pub(crate) timed_out: bool,
    /// Since when it has failed and had no connection in between.
    failing_since: Option<Instant>,
    /// The last time the lane found it used, or in use.
    used_at: Instant,
    /// Why the table removed it by itself, if it did.
    forsaken: Option<Reason>,
    /// The ranks of one engine, it among them.
    group: Option<Arc<Group>>,
    /// The heartbeat of the generation that is Ready.
    beat: Option<Beat>,
    /// The earliest time the driver will look by itself.
    pub(crate) timer: Option<Instant>,
}

/// The slot that had a name before.
pub(crate) struct Predecessor {
    pub(crate) id: PeerId,
    /// It was waited for until the drain deadline, and waiters were told.
    pub(crate) overdue: bool,
}

/// What a bay is used for.
pub(crate) enum BayState<C> {
    Free,
    /// For an attempt; untouched until it is published.
    Reserved(Generation),
    Live(Generation),
    Draining(Draining),
    Closing(Closing<C>),
    /// Closed; its transfers have not all been counted out yet.
    Quiescing(Quiescing),
}

impl<C> BayState<C> {
    /// Whether it has been waited for long enough that waiters were told.
    pub(crate) fn is_overdue(&self) -> bool {
        match self {
            BayState::Draining(draining) => draining.overdue,
            BayState::Closing(closing) => closing.overdue,
            BayState::Quiescing(quiescing) => quiescing.transfers_end_at.is_none(),
            BayState::Free | BayState::Reserved(_) | BayState::Live(_) => false,
        }
    }
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
    /// When its transfers end for their callers, if they have not.
    pub(crate) transfers_end_at: Option<Instant>,
    /// It takes longer than `close_timeout` and waiters were told.
    pub(crate) overdue: bool,
}

pub(crate) struct Quiescing {
    pub(crate) since: Instant,
    pub(crate) transfers_end_at: Option<Instant>,
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

impl<T: Transport> Slow<T> {
    pub(crate) fn new(
        name: PeerName,
        address: Arc<T::Address>,
        generation: Generation,
        now: Instant,
        after: Option<PeerId>,
    ) -> Self {
        Slow {
            name,
            address_text: address.to_string().into(),
            incarnation: crate::transport::Address::incarnation(&*address),
            address: Some(address),
            bays: [BayState::Free, BayState::Free],
            visitors: [0; 2],
            connect: None,
            trying: None,
            settled: Word::new(generation, Phase::Idle),
            began: None,
            ready_since: None,
            cell: Arc::new(Cell::new()),
            attempts: 0,
            failures: 0,
            breaker_open: false,
            retry_at: None,
            busy_until: None,
            last_error: None,
            reason: Reason::NotAsked,
            since: now,
            history: History::new(),
            told: 0,
            removal: None,
            predecessor: after.map(|id| Predecessor { id, overdue: false }),
            lane: None,
            in_line: false,
            timed_out: false,
            failing_since: None,
            used_at: now,
            forsaken: None,
            group: None,
            beat: None,
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
    /// For the attempt that may begin.
    flag: Option<Arc<AtomicBool>>,
    after: After<T>,
}

/// Done after unlock, in this order.
struct After<T: Transport> {
    events: u32,
    /// Readers of events have something to read.
    told: bool,
    /// For who observes, if anybody does; with the error's text.
    changed: Vec<(Change, Option<Arc<str>>)>,
    resolve: Vec<(Arc<Cell<Ended>>, Ended)>,
    removed: Option<(PeerName, Removed, Removers)>,
    retired: Vec<Retired>,
    notes: Vec<note::Taken>,
    /// Failures that nobody waited for: a transport's error in them is user code when it is dropped.
    unused: Vec<ReadyError>,
    /// Whose other members are to be asked whether they are alive.
    ask: Option<Arc<Group>>,
    lane: Option<SlotRef<T>>,
    address: Option<Arc<T::Address>>,
}

/// How many records one section writes, and how many attempts it ends, at most: a failure that is settled and its note that
/// comes between, two bays that become overdue together, and one more.
const TRANSITIONS: usize = 5;

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
    let random = home.random();
    let drafts = (0..TRANSITIONS).map(|_| Draft::new()).collect();
    let fresh = (0..TRANSITIONS).map(|_| Arc::new(Cell::new())).collect();
    let flag = Some(Arc::new(AtomicBool::new(false)));
    let after = After {
        events: 0,
        told: false,
        changed: Vec::with_capacity(if observe::OBSERVED { TRANSITIONS } else { 0 }),
        resolve: Vec::with_capacity(TRANSITIONS),
        removed: None,
        retired: Vec::with_capacity(TRANSITIONS),
        notes: Vec::with_capacity(TRANSITIONS),
        unused: Vec::with_capacity(TRANSITIONS),
        ask: None,
        lane: None,
        address: None,
    };
    let mut guard = lock()?;
    let slow = guard.as_mut().expect("a counted slot has a life");
    // Not before the lock: what an earlier section wrote must not lie in the future.
    let now = home.clock.now();
    let mut locked = Locked { slot, slow, now, random, drafts, fresh, flag, after };
    let answer = f(&mut locked);
    let Locked { drafts, fresh, flag, after, .. } = locked;
    drop(guard);
    drop((drafts, fresh, flag));
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
        if let Some(group) = self.ask {
            group.ask_all_but(slot, home);
        }
        if self.told {
            home.hub.wake();
        }
        for (change, error) in &self.changed {
            observe::changed(change, error.as_deref());
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

    pub(crate) fn home(&self) -> &Shared<T> {
        self.slot.home()
    }

    /// Wakes the lane after unlock.
    pub(crate) fn look_after_this(&mut self) {
        self.after.events |= LOOK;
    }

    /// Gives the lane its reference, at insert.
    pub(crate) fn start_lane(&mut self, lane: SlotRef<T>) {
        self.slow.lane = Some(lane);
        self.slow.told = self.home().hub.newest();
        self.write_record(self.slow.settled, Reason::NotAsked);
        if self.slow.predecessor.is_some() || self.home().config.idle_ttl.is_some() {
            self.look_after_this(); // for its deadline
        }
    }

    /// Stops admission to every live bay that the word no longer names.
    fn shut(&mut self, why: CloseReason) {
        self.end_beat();
        for bay in 0..2 {
            let BayState::Live(generation) = self.slow.bays[bay] else { continue };
            debug_assert_ne!(self.word().bay(), Some(bay), "the word moves before the gate closes");
            self.slow.bays[bay] =
                BayState::Draining(Draining { generation, since: self.now, why, drained: false, overdue: false });
            if self.slot.gates().close(bay) {
                self.after.events |= DRAINED << bay;
            }
        }
    }

    fn free_reservation(&mut self) {
        for state in &mut self.slow.bays {
            if matches!(state, BayState::Reserved(_)) {
                *state = BayState::Free;
            }
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
        let transition = slow.history.write(word.phase(), word.generation(), reason, self.now);
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
            breaker_open: slow.breaker_open,
            group: slow.group.as_ref().map(|group| group.name.clone()),
            retry_at: slow.retry_at,
        };
        self.after.retired.push(self.slot.record.replace(draft, record));
        let Some(transition) = transition.filter(|_| observe::OBSERVED || self.slow.told != 0) else { return };
        let change = Change { name: self.slow.name.clone(), id: self.slot.id(), transition };
        if self.slow.told != 0 {
            self.home().hub.tell(self.slow.told, &change);
            self.after.told = true;
        }
        if observe::OBSERVED {
            self.after.changed.push((change, self.slow.last_error.clone()));
        }
    }

    /// A subscription's visit: from here on the peer tells it, and what came before is in the answer. `None` for a peer
    /// that has ended, and for one whose first record it was or will be told.
    pub(crate) fn follow(&mut self, subscription: u64) -> Option<Change> {
        let transition = self.slow.history.newest().filter(|_| self.slow.told < subscription)?;
        self.slow.told = subscription;
        let change = Change { name: self.slow.name.clone(), id: self.slot.id(), transition };
        (transition.phase != Phase::Removed).then_some(change)
    }
}
