//! Another address for a peer that stays in the table.
//!
//! An address that may be another process retires the old generation: by CAS from Ready(g) or Connecting(g) to Failed(g),
//! like a report, but under the mutex and without a failure that counts. Who waits for the attempt that is given up goes
//! on waiting, for the next one (loom-tests/updates.rs).

use super::Locked;
use crate::error::{ReadyError, Reason};
use crate::name::Incarnation;
use crate::queue::{LOOK, WANTED};
use crate::state::{Phase, Word};
use crate::sync::Arc;
use crate::transport::{Capabilities, CloseReason, Transport};
use crate::update::Updated;

/// An address, and what it says of itself: asked before the lock, for it is the user's code that answers.
pub(crate) struct NewAddress<A> {
    pub(crate) address: Arc<A>,
    pub(crate) text: std::sync::Arc<str>,
    pub(crate) incarnation: Option<Incarnation>,
}

impl<T: Transport> Locked<'_, T> {
    /// A counted copy of the peer's address, to be compared after unlock.
    pub(crate) fn address(&self) -> Result<Arc<T::Address>, ReadyError> {
        let leaving = matches!(self.word().phase(), Phase::Removing | Phase::Removed);
        self.slow.address.clone().filter(|_| !leaving).ok_or_else(|| self.removed_error())
    }

    /// Puts `new` in place of the address the caller has `seen` and compared. `None`: it is not the peer's any more.
    pub(crate) fn update(
        &mut self,
        seen: &Arc<T::Address>,
        new: &NewAddress<T::Address>,
    ) -> Option<Result<Updated, ReadyError>> {
        self.settle(None);
        if matches!(self.word().phase(), Phase::Removing | Phase::Removed) {
            return Some(Err(self.removed_error()));
        }
        if !self.slow.address.as_ref().is_some_and(|address| Arc::ptr_eq(address, seen)) {
            return None;
        }
        let known = self.slow.incarnation;
        let same_process = known.is_some() && known == new.incarnation;
        self.after.address = self.slow.address.replace(new.address.clone());
        self.slow.address_text = new.text.clone();
        self.slow.incarnation = new.incarnation.or(known);
        let keeps = same_process && self.home().capabilities.contains(Capabilities::UPDATES_IN_PLACE);
        Some(Ok(self.move_on(keeps, same_process, Reason::Replaced, CloseReason::Replaced)))
    }

    /// This process is another one from here on: whatever connection or attempt there is was the former one's.
    pub(crate) fn renew(&mut self) {
        self.settle(None);
        if !matches!(self.word().phase(), Phase::Removing | Phase::Removed) {
            self.move_on(false, false, Reason::NewIncarnation, CloseReason::NewIncarnation);
        }
    }

    /// Retires the current generation unless it `keeps` its connection, and asks for the next one. The backoff is forgotten
    /// unless both ends are the processes they were.
    fn move_on(&mut self, keeps: bool, same_process: bool, reason: Reason, why: CloseReason) -> Updated {
        let mut word = self.word();
        let updated = loop {
            let generation = word.generation();
            match word.phase() {
                Phase::Ready | Phase::Connecting => {
                    if keeps {
                        break Updated::Kept(generation);
                    }
                    match self.slot.change_word(word, Word::new(generation, Phase::Failed)) {
                        Ok(()) => break Updated::Retired(generation),
                        Err(reported) => word = reported,
                    }
                }
                _ => break Updated::Stored,
            }
        };
        match updated {
            Updated::Retired(generation) => {
                let (_, taken) = self.slot.notes.take(generation);
                self.after.notes.push(taken);
                self.retire(generation, why);
                self.slow.trying = None;
                self.slow.last_error = None;
                self.slow.retry_at = None;
                self.slot.want(generation);
                self.after.events |= WANTED;
            }
            _ => self.settle(None), // a report that came in between
        }
        // Not the word as it reads by now: a report since then is not accounted for, and its record would say that it is.
        let (word, reason) = match updated {
            Updated::Retired(generation) => (Word::new(generation, Phase::Failed), reason),
            _ => (self.slow.settled, self.slow.reason),
        };
        if !same_process {
            self.forgive();
        }
        if word.phase() == Phase::Failed {
            self.slow.failing_since.get_or_insert(self.now);
        }
        self.write_record(word, reason);
        self.after.events |= LOOK;
        updated
    }

    /// What failed was another process, as far as anybody knows: the next attempt may start at once.
    fn forgive(&mut self) {
        self.slow.failures = 0;
        self.slow.failing_since = None;
        self.slow.retry_at = None;
        self.slow.timed_out = false;
        self.close_breaker();
    }
}
