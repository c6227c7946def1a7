//! Whom the table removes by itself: who has failed for too long, and whom nobody uses. The lane asks, at times it has set
//! itself, so that it happens when nothing else does.

use super::Locked;
use crate::error::Reason;
use crate::state::Phase;
use crate::sync::Arc;
use crate::transport::{CloseReason, Transport};
use std::sync::atomic::Ordering;
use std::time::Instant;

impl<T: Transport> Locked<'_, T> {
    /// Begins the removal if its time has come; answers whether it did. The caller sees to the peer's name after unlock.
    pub(crate) fn remove_forsaken(&mut self) -> bool {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= self.now);
        let reason = if is_due(self.failed_deadline()) {
            Reason::FailedTooLong
        } else if !is_due(self.idle_deadline()) {
            return false;
        } else if self.slot.take_marks() | self.is_in_use() {
            self.slow.used_at = self.now;
            return false;
        } else {
            Reason::IdleTooLong
        };
        self.slow.forsaken = Some(reason);
        self.begin_removal(CloseReason::Removed, None).is_ok()
    }

    /// When [`remove_forsaken`](Self::remove_forsaken) has something to do.
    pub(crate) fn forsaken_look(&self) -> Option<Instant> {
        [self.failed_deadline(), self.idle_deadline()].into_iter().flatten().min()
    }

    fn failed_deadline(&self) -> Option<Instant> {
        let after = self.slot.home().config.remove_failed_after.filter(|_| self.word().phase() == Phase::Failed)?;
        Some(self.slow.failing_since? + after)
    }

    fn idle_deadline(&self) -> Option<Instant> {
        let ttl = self.slot.home().config.idle_ttl?;
        let leaving = matches!(self.word().phase(), Phase::Removing | Phase::Removed);
        (!leaving).then(|| self.slow.used_at + ttl)
    }

    fn is_in_use(&self) -> bool {
        let (running, quarantined) = self.slot.in_flight.counts();
        let leased = (0..2).any(|bay| self.slot.gates().users(bay) > 0);
        let waited_for = Arc::strong_count(&self.slow.cell) > 1;
        let granted = self.slot.grants.load(Ordering::Relaxed) > 0;
        leased || granted || waited_for || running + quarantined > 0 || self.slow.connect.is_some()
    }
}
