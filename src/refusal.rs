//! What a lease that is refused asks for, and what it is told.

use crate::error::{NotReady, Reason};
use crate::shared::Shared;
use crate::slot::Slot;
use crate::state::{Generation, Phase, Word};
use crate::transport::Transport;

impl<T: Transport> Slot<T> {
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

    pub(crate) fn explain(&self, word: Word) -> NotReady {
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

impl<T: Transport> Shared<T> {
    /// By a table that has no such peer.
    #[cold]
    pub(crate) fn nobody(&self, reason: Reason) -> NotReady {
        let reason = if self.is_here() { reason } else { Reason::UsedAfterFork };
        NotReady { phase: Phase::Removed, generation: Generation(0), retry_at: None, reason }
    }
}
