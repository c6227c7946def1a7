//! One attempt to connect: election, publish, failure, expiry, and who waits for it.

use super::{Ended, Locked, Place, Quiescing};
use crate::error::{ReadyError, Reason};
use crate::name::{Incarnation, PeerName};
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
    /// Counts among the table's concurrent connects; false once it has given its permit up.
    pub(crate) permit: bool,
    cancelled: Arc<AtomicBool>,
}

impl Connect {
    /// Tells the native connect that nobody wants its connection any more.
    pub(super) fn cancel(&self) {
        // ord! Release: who sees it also sees the word that moved on before. No model: only transports read it, and nothing of
        //      ours rests on what they do then.
        self.cancelled.store(true, Ordering::Release);
    }
}

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

    fn cancel_connect(&mut self, generation: Generation) {
        if let Some(connect) = self.slow.connect.as_ref().filter(|connect| connect.generation == generation) {
            connect.cancel();
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
        let cancelled = self.flag.take()?;
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
        } else if matches!(self.word().phase(), Phase::Idle | Phase::Failed) {
            // Reported long ago; who has joined since waits for a native call that does not return.
            let error = self.stuck_error();
            self.end_attempt(Err(error));
        }
    }

    /// The native connect of an attempt that has ended goes on beyond its deadline: no other may start.
    fn stuck_error(&self) -> ReadyError {
        let (home, peer) = (self.home(), self.slow.name.clone());
        ReadyError::Busy { peer, stuck: home.connects.stuck(), retry_after: home.config.connect_timeout }
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
        self.join_note();
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
                if self.slow.connect.as_ref().is_some_and(|connect| !connect.permit) {
                    return Join::Ended(Err(self.stuck_error()));
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

    /// What keeps the next attempt waiting beyond its deadline, if anything does: leases or transfers of the old connection,
    /// or a native close that hangs.
    fn undrained_error(&self) -> Option<ReadyError> {
        if self.free_bay().is_some() || !matches!(self.word().phase(), Phase::Idle | Phase::Failed) {
            return None;
        }
        self.slow.bays.iter().enumerate().find_map(|(bay, place)| {
            let closing = matches!(place, Place::Closing(_));
            let since = match place {
                Place::Draining(draining) if draining.overdue => draining.since,
                Place::Closing(closing) if closing.overdue => closing.since,
                // Without transfers it is only for a moment.
                Place::Quiescing(Quiescing { since, transfers_end_at: None }) if self.slot.bay(bay).transfers() > 0 => {
                    *since
                }
                _ => return None,
            };
            Some(ReadyError::Undrained {
                peer: self.slow.name.clone(),
                leases: self.slot.bay(bay).gate.users(),
                transfers: self.slot.bay(bay).transfers(),
                oldest: self.now.duration_since(since),
                closing,
            })
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
}
