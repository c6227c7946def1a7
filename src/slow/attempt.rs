//! One attempt to connect: election, publish, failure, expiry, and who waits for it.

use super::{BayState, Closing, Draining, Ended, Locked, Predecessor, Quiescing};
use crate::builder::Config;
use crate::connects::{CountsAs, Line};
use crate::error::{BusyCause, NotElected, ReadyError, Reason};
use crate::name::{Incarnation, PeerName};
use crate::policy::Breaker;
use crate::queue::{LOOK, WANTED};
use crate::slot::SlotRef;
use crate::state::{Generation, Phase, Word};
use crate::sync::Arc;
use crate::transport::{CloseReason, Transport};
use crate::wait::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The native connect that runs, or the close of one that came too late.
pub(crate) struct Connect {
    pub(crate) generation: Generation,
    pub(crate) deadline: Instant,
    counts_as: CountsAs,
    /// A thread of the table makes it; otherwise the user who holds its ticket.
    on_our_thread: bool,
    cancelled: Arc<AtomicBool>,
}

impl Connect {
    /// Whether its attempt's deadline has not passed.
    pub(crate) fn is_young(&self) -> bool {
        matches!(self.counts_as, CountsAs::Permit(_))
    }

    /// Tells the native connect that nobody wants its connection any more.
    pub(super) fn cancel(&self) {
        // ord! Release: who sees it also sees the word that moved on before. In no model, for only transports read it, and
        //      nothing of ours rests on what they do then.
        self.cancelled.store(true, Ordering::Release);
    }
}

/// Why an attempt failed, made before the lock.
pub(crate) struct Failure {
    pub(crate) reason: Reason,
    pub(crate) text: Arc<str>,
    pub(crate) outcome: ReadyError,
    pub(crate) blame: Blame,
    /// The other ranks of its engine are to be asked.
    pub(crate) process_is_gone: bool,
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

/// How a waiter joins.
pub(crate) enum Join {
    Ended(Ended),
    Wait(Arc<Cell<Ended>>),
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

impl<T: Transport> Locked<'_, T> {
    /// Accounts for a failure that the word shows and the record does not: a report, or the CAS of the caller.
    pub(crate) fn settle(&mut self, failure: Option<Failure>) {
        let word = self.word();
        if word.phase() != Phase::Failed || word == self.slow.settled {
            return;
        }
        let generation = word.generation();
        let (note, taken) = self.slot.notes.take(generation);
        self.after.notes.push(taken);
        let stable = self.retire(generation, CloseReason::Failed);
        let began = if stable.is_some() { self.now } else { self.slow.began.unwrap_or(self.now) };
        let blame = failure.as_ref().map_or(Blame::Peer, |failure| failure.blame);
        self.back_off(blame, stable, began);
        self.slow.failing_since.get_or_insert(self.now);
        let told_by_note = note.as_ref().is_some_and(|note| note.process_is_gone);
        if told_by_note || failure.as_ref().is_some_and(|failure| failure.process_is_gone) {
            self.ask_the_others();
        }
        let (reason, text, outcome) = match (failure, note) {
            (Some(failure), _) => (failure.reason, Some(failure.text), Some(failure.outcome)),
            (None, Some(note)) => (Reason::Broken(note.native_code), Some(note.text), None),
            (None, None) => (Reason::Broken(None), None, None),
        };
        self.slow.last_error = text;
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

    /// Lets go of everything of a generation that the word no longer names. Answers for how long it was Ready, if it was.
    pub(super) fn retire(&mut self, generation: Generation, why: CloseReason) -> Option<Duration> {
        self.shut(why);
        self.free_reservation();
        if let Some(connect) = self.slow.connect.as_ref().filter(|connect| connect.generation == generation) {
            connect.cancel();
        }
        self.slow.ready_since.take().map(|since| self.now.duration_since(since))
    }

    /// `began`: where the time of a failure that counts runs from.
    fn back_off(&mut self, blame: Blame, stable: Option<Duration>, began: Instant) {
        let home = self.slot.home();
        let retry_at = match blame {
            Blame::Peer => {
                self.slow.failures = home.config.backoff.failures_after(self.slow.failures, stable);
                match home.config.breaker.as_ref().filter(|breaker| breaker.opens_at(self.slow.failures)) {
                    Some(breaker) if self.open_breaker(breaker) => self.now + breaker.delay(self.random),
                    _ => began + home.config.backoff.delay(self.slow.failures, self.random),
                }
            }
            Blame::Busy(wait) => self.now + wait,
            Blame::Incompatible => self.now + home.config.backoff.cap,
            Blame::Local => self.now + home.local_faults.one_more(&home.config.backoff, self.now, self.random),
        };
        self.slow.retry_at = Some(retry_at);
    }

    /// Whether this peer's breaker is open now; refused if too many others' are.
    fn open_breaker(&mut self, breaker: &Breaker) -> bool {
        self.slow.breaker_open = self.slow.breaker_open || self.home().breaker_opens(breaker);
        self.slow.breaker_open
    }

    pub(super) fn close_breaker(&mut self) {
        if std::mem::take(&mut self.slow.breaker_open) {
            self.home().breaker_closes();
        }
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
            if note.process_is_gone {
                self.ask_the_others();
            }
            self.slow.last_error = Some(note.text);
            self.write_record(word, Reason::Broken(note.native_code));
        }
    }

    /// Whether an election may happen now; when, if only time is missing.
    pub(crate) fn may_elect(&self) -> MayElect {
        let word = self.word();
        let slow = &*self.slow;
        let failed = matches!(word.phase(), Phase::Idle | Phase::Failed) && slow.settled == word;
        if !failed
            || self.predecessor().is_some()
            || slow.connect.is_some()
            || !self.slot.is_wanted(word.generation())
            || self.free_bay().is_none()
        {
            return MayElect::No;
        }
        let not_before =
            [slow.retry_at, slow.busy_until, self.home().local_faults.retry_at()].into_iter().flatten().max();
        match not_before {
            Some(at) if at > self.now => MayElect::At(at),
            _ => MayElect::Now,
        }
    }

    fn free_bay(&self) -> Option<usize> {
        let free = |state: &BayState<_>| matches!(state, BayState::Free);
        let at = self.slow.bays.iter().position(free)?;
        (!self.home().has_one_slot_per_name() || self.slow.bays.iter().all(free)).then_some(at)
    }

    /// Which line the peer stands in for a permit.
    pub(crate) fn line(&self) -> Line {
        if self.slow.timed_out { Line::TimedOut } else { Line::Ordinary }
    }

    /// The same for a caller who will connect by itself, whether or not somebody has asked.
    pub(crate) fn try_elect(&mut self) -> Result<Elected<T::Address>, NotElected> {
        self.settle(None);
        let (peer, generation) = (self.slow.name.clone(), self.word().generation());
        match self.word().phase() {
            Phase::Ready => return Err(NotElected::Ready { peer, generation }),
            Phase::Connecting => return Err(NotElected::Connecting { peer, generation }),
            Phase::Removing | Phase::Removed => return Err(self.removed_error().into()),
            Phase::Idle | Phase::Failed => {}
        }
        if let Some(error) = self.not_now() {
            return Err(error.into());
        }
        if self.predecessor().is_some() {
            return Err(self.predecessor_error().into());
        }
        if let Some(connect) = &self.slow.connect {
            return Err(NotElected::Connecting { peer, generation: connect.generation });
        }
        if let Some(error) = self.undrained_error(|_| true) {
            return Err(error.into());
        }
        let (home, line) = (self.slot.home(), self.line());
        if !home.connects.try_begin(line, &home.config, self.now) {
            let Config { max_concurrent_connects, connect_timeout, .. } = home.config;
            let (cause, retry_after) = match home.connects.paused_until(self.now) {
                Some(at) => (BusyCause::ConnectsPerSecond, at - self.now),
                None => (BusyCause::Permits(max_concurrent_connects), connect_timeout),
            };
            return Err(self.busy(cause, retry_after).into());
        }
        let Some(elected) = self.elect(false) else {
            home.connects.returned(CountsAs::Permit(line));
            return Err(NotElected::Connecting { peer, generation });
        };
        self.after.events |= LOOK; // for the deadline
        Ok(elected)
    }

    /// Starts an attempt. The caller has counted it in among the [`connects`](crate::connects::Connects) and has asked
    /// [`may_elect`](Self::may_elect).
    pub(crate) fn elect(&mut self, on_our_thread: bool) -> Option<Elected<T::Address>> {
        let word = self.word();
        let bay = self.free_bay()?;
        let address = self.slow.address.clone()?;
        let generation = self.home().next_generation();
        let connecting = Word::new(generation, Phase::Connecting);
        self.slot.change_word(word, connecting).ok()?;
        self.slow.bays[bay] = BayState::Reserved(generation);
        let cancelled = self.flag.take()?;
        let deadline = self.now + self.home().config.connect_timeout;
        let counts_as = CountsAs::Permit(self.line());
        self.slow.connect =
            Some(Connect { generation, deadline, counts_as, on_our_thread, cancelled: cancelled.clone() });
        self.slot.connecting.store(true, Ordering::Relaxed);
        self.slow.trying = Some(generation);
        self.slow.attempts += 1;
        self.slow.began = Some(self.now);
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
        let reserved = |state: &BayState<_>| matches!(state, BayState::Reserved(of) if *of == generation);
        let bay = match self.slow.bays.iter().position(reserved) {
            Some(bay) if self.word() == word => bay,
            _ => return Err(connection),
        };
        // SAFETY: the bay is Reserved: it was Free, so its gate is closed and drained and its connection taken; the mutex
        // is held. Ends if: a bay becomes Free before its connection is taken.
        unsafe { self.slot.bay(bay).fill(connection) };
        self.slot.gates().open(bay);
        self.slow.bays[bay] = BayState::Live(generation);
        std::mem::forget(SlotRef::of(self.slot)); // the bay's own, given back when its connection is taken
        self.connect_returned(generation);
        let ready = Word::ready(generation, bay);
        match self.slot.change_word(word, ready) {
            Ok(()) => {
                self.home().local_faults.are_over();
                self.slow.trying = None;
                self.slow.ready_since = Some(self.now);
                self.slow.incarnation = incarnation.or(self.slow.incarnation);
                self.slow.last_error = None;
                self.slow.retry_at = None;
                self.slow.timed_out = false;
                self.slow.failing_since = None;
                self.close_breaker();
                self.start_beat(generation);
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
        let Some(connect) = self.slow.connect.as_mut().filter(|connect| connect.is_young()) else { return };
        if connect.deadline > self.now {
            return;
        }
        let (generation, permit) = (connect.generation, connect.counts_as);
        // A user's ticket holds no thread of ours.
        connect.counts_as = if connect.on_our_thread { CountsAs::Stuck } else { CountsAs::Nowhere };
        home.connects.gave_up(permit, connect.counts_as);
        let after = home.config.connect_timeout;
        let connecting = Word::new(generation, Phase::Connecting);
        if self.slot.change_word(connecting, Word::new(generation, Phase::Failed)).is_ok() {
            let outcome = ReadyError::TimedOut { peer: self.slow.name.clone(), generation, after };
            let text = home.timed_out_text.clone();
            self.slow.timed_out = true;
            self.settle(Some(Failure {
                reason: Reason::TimedOut,
                text,
                outcome,
                blame: Blame::Peer,
                process_is_gone: false,
            }));
        } else if matches!(self.word().phase(), Phase::Idle | Phase::Failed) {
            // Reported long ago; who has joined since waits for a native call that does not return.
            let error = self.stuck_error();
            self.end_attempt(Err(error));
        }
    }

    /// The native connect of an attempt that has ended goes on beyond its deadline: no other may start.
    fn stuck_error(&self) -> ReadyError {
        let home = self.home();
        self.busy(BusyCause::StuckConnects(home.connects.stuck()), home.config.connect_timeout)
    }

    fn busy(&self, cause: BusyCause, retry_after: Duration) -> ReadyError {
        ReadyError::Busy { peer: self.slow.name.clone(), cause, retry_after }
    }

    /// The native connect of `generation` is over, and so is the close of what came too late.
    pub(crate) fn connect_returned(&mut self, generation: Generation) {
        if let Some(connect) = self.slow.connect.take_if(|connect| connect.generation == generation) {
            self.home().connects.returned(connect.counts_as);
            self.slot.connecting.store(false, Ordering::Relaxed);
            self.after.events |= LOOK;
        }
    }

    /// Joins what the peer is doing: for `ready()`.
    pub(crate) fn join(&mut self) -> Join {
        self.settle(None);
        self.join_note();
        let word = self.word();
        match word.phase() {
            Phase::Ready => return Join::Ended(Ok(word.generation())),
            Phase::Removing | Phase::Removed => return Join::Ended(Err(self.removed_error())),
            Phase::Idle | Phase::Failed => {
                if let Some(error) = self.not_now().or_else(|| self.undrained_error(BayState::is_overdue)) {
                    return Join::Ended(Err(error));
                }
                self.slot.want(word.generation());
                self.after.events |= WANTED;
            }
            // Not asked for again: if the running attempt fails, nobody has asked since.
            Phase::Connecting => {}
        }
        // Whoever waits holds the cell; so does the slot.
        let limit = self.home().config.max_waiters_per_peer;
        if Arc::strong_count(&self.slow.cell) > limit {
            let retry_after = self.home().config.backoff.base;
            return Join::Ended(Err(self.busy(BusyCause::Waiters(limit), retry_after)));
        }
        Join::Wait(self.slow.cell.clone())
    }

    /// Why no attempt may start before some time has passed or a native call is back.
    fn not_now(&self) -> Option<ReadyError> {
        let not_before = [self.slow.retry_at, self.home().local_faults.retry_at()].into_iter().flatten().max();
        if let Some(retry_at) = not_before.filter(|at| *at > self.now) {
            let last_error = self.slow.last_error.clone().unwrap_or_else(|| self.home().no_text.clone());
            return Some(ReadyError::BackingOff { peer: self.slow.name.clone(), retry_at, last_error });
        }
        if let Some(busy_until) = self.slow.busy_until.filter(|at| *at > self.now) {
            let cause = BusyCause::StuckConnects(self.home().connects.stuck());
            return Some(self.busy(cause, busy_until - self.now));
        }
        if self.predecessor().is_some_and(|predecessor| predecessor.overdue) {
            return Some(self.predecessor_error());
        }
        self.slow.connect.as_ref().filter(|connect| !connect.is_young()).map(|_| self.stuck_error())
    }

    /// Who is in the way, if the name's last slot still is.
    pub(crate) fn predecessor(&self) -> Option<&Predecessor> {
        self.slow.predecessor.as_ref().filter(|predecessor| !self.home().has_ended(predecessor.id))
    }

    fn predecessor_error(&self) -> ReadyError {
        let waited = self.now.duration_since(self.slow.since);
        ReadyError::WaitingForPredecessor { peer: self.slow.name.clone(), waited }
    }

    /// Forgets a predecessor that is gone; tells the waiters of one that takes too long, and the record.
    pub(crate) fn look_at_predecessor(&mut self) {
        if self.predecessor().is_none() {
            let gone = self.slow.predecessor.take();
            if gone.is_some_and(|before| before.overdue) && self.slow.settled.phase() == Phase::Idle {
                self.write_record(self.slow.settled, Reason::NotAsked);
            }
        }
        let Some(waits_until) = self.predecessor_deadline() else { return };
        if waits_until <= self.now {
            self.slow.predecessor.iter_mut().for_each(|predecessor| predecessor.overdue = true);
            let error = self.predecessor_error();
            self.end_attempt(Err(error));
            self.write_record(self.slow.settled, Reason::WaitingForPredecessor);
        }
    }

    /// When who waits for the predecessor is to be told.
    pub(crate) fn predecessor_deadline(&self) -> Option<Instant> {
        let waits = self.word().phase() == Phase::Idle && self.predecessor().is_some_and(|before| !before.overdue);
        waits.then(|| self.slow.since + self.home().config.drain_deadline)
    }

    /// What keeps the next attempt waiting, if a bay does of whose state `counts` is true: leases or transfers of the old
    /// connection, or its native close.
    fn undrained_error(&self, counts: impl Fn(&BayState<T::Connection>) -> bool) -> Option<ReadyError> {
        if self.free_bay().is_some() || !matches!(self.word().phase(), Phase::Idle | Phase::Failed) {
            return None;
        }
        self.slow.bays.iter().enumerate().find_map(|(bay, state)| {
            let transfers = self.slot.bay(bay).transfers();
            let since = match state {
                BayState::Draining(Draining { since, .. }) | BayState::Closing(Closing { since, .. }) => *since,
                // Without transfers it is only for a moment.
                BayState::Quiescing(Quiescing { since, .. }) if transfers > 0 => *since,
                _ => return None,
            };
            counts(state).then(|| ReadyError::Undrained {
                peer: self.slow.name.clone(),
                leases: self.slot.gates().users(bay),
                transfers,
                oldest: self.now.duration_since(since),
                closing: matches!(state, BayState::Closing(_)),
            })
        })
    }

    /// Tells the waiters that the old connection is not drained, and the record.
    pub(crate) fn tell_undrained(&mut self) {
        if let Some(error) = self.undrained_error(BayState::is_overdue) {
            self.end_attempt(Err(error));
            if self.word() == self.slow.settled {
                self.write_record(self.slow.settled, Reason::Undrained);
            }
        }
    }

    /// Answers the waiters that no thread is free for a connect; changes no word and counts no failure.
    pub(crate) fn answer_busy(&mut self, stuck: usize, retry_after: Duration) {
        self.slow.busy_until = Some(self.now + retry_after);
        let error = self.busy(BusyCause::StuckConnects(stuck), retry_after);
        self.end_attempt(Err(error));
    }
}
