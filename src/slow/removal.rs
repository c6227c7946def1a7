//! The removal of a peer: once begun it goes on to its end, whoever waits for it.

use super::{BayState, Locked};
use crate::error::{ReadyError, Reason};
use crate::queue::LOOK;
use crate::removal::Removed;
use crate::state::{Generation, Phase, Word};
use crate::sync::Arc;
use crate::transport::{CloseReason, Transport};
use crate::wait::Cell;
use std::time::Instant;

/// One that has begun.
pub(crate) struct BegunRemoval {
    pub(crate) why: CloseReason,
    pub(crate) since: Instant,
    pub(crate) leaked: Option<&'static str>,
    pub(crate) waiting: Removers,
}

/// Who waits for a removal, and until when.
pub(crate) type Removers = Vec<(Instant, Arc<Cell<Removed>>)>;

impl<T: Transport> Locked<'_, T> {
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
        self.slow.removal = Some(BegunRemoval { why, since: self.now, leaked: None, waiting: Vec::new() });
        self.free_reservation();
        self.shut(why);
        if let Some(connect) = &self.slow.connect {
            connect.cancel();
        }
        self.slow.trying = None;
        self.close_breaker();
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
        removal.waiting.retain(|(_, cell)| Arc::strong_count(cell) > 1); // whose futures were dropped
        removal.waiting.push((deadline, cell.clone()));
        self.after.events |= LOOK;
        None
    }

    /// Makes the slot Removed once nothing of it is left. The lane's alone, and of who made a slot in vain.
    pub(crate) fn finish_removal(&mut self) {
        let word = self.word();
        let idle = self.slow.bays.iter().all(|state| matches!(state, BayState::Free)) && self.slow.connect.is_none();
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

    /// Ends a slot that never came into the names: at once, unless somebody who found it by its id has used it. Then it
    /// ends like any other.
    pub(crate) fn discard(&mut self) {
        if let Ok(true) = self.begin_removal(CloseReason::Removed, None) {
            self.finish_removal();
        }
    }

    pub(super) fn removed_error(&self) -> ReadyError {
        let peer = self.slow.name.clone();
        match &self.slow.removal {
            Some(BegunRemoval { why: CloseReason::Shutdown, .. }) => ReadyError::ShutDown { peer },
            _ => ReadyError::Removed { peer },
        }
    }

    fn removed_reason(&self) -> Reason {
        match &self.slow.removal {
            Some(BegunRemoval { why: CloseReason::Shutdown, .. }) => Reason::ShutDown,
            _ => self.slow.forsaken.unwrap_or(Reason::Removed),
        }
    }
}
