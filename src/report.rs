//! Reports: who may make one, what it changes, and what its reporter is told.
//!
//! The change itself is one CAS and one note: `Slot::report`. A report by a transport counts only if its error breaks the
//! connection; one by a user always does.

use crate::name::PeerId;
use crate::note::Note;
use crate::shared::Shared;
use crate::slot::Slot;
use crate::slow::locked;
use crate::state::Generation;
use crate::transport::{ReportSink, Reported, Transport, TransportError};
use std::sync::Weak;

impl<T: Transport> Shared<T> {
    /// Reports `generation` of a slot that the caller keeps alive.
    pub(crate) fn report(&self, slot: &Slot<T>, generation: Generation, note: impl FnOnce() -> Note) -> Reported {
        if !self.is_here() {
            return Reported::UsedAfterFork;
        }
        if slot.report(generation, note) {
            self.counters.report();
            return Reported::Failed;
        }
        self.counters.stale_report();
        Reported::Stale
    }
}

/// The table as reporters see it: they do not keep it alive.
pub(crate) struct Sink<T: Transport>(pub(crate) Weak<Shared<T>>);

impl<T: Transport> ReportSink for Sink<T> {
    fn report(&self, peer: PeerId, generation: Generation, error: &dyn TransportError) -> Reported {
        if !error.class().breaks_the_connection() {
            return Reported::NotThePeer;
        }
        let Some(shared) = self.0.upgrade() else { return Reported::Stale };
        match shared.upgrade(peer) {
            Some(slot) => shared.report(&slot, generation, || Note::of_error(generation, error)),
            None => Reported::Stale,
        }
    }

    fn leaked(&self, peer: PeerId, why: &'static str) {
        let Some(shared) = self.0.upgrade().filter(|shared| shared.is_here()) else { return };
        if let Some(slot) = shared.upgrade(peer) {
            locked(&slot, |lane| lane.leaked(Some(why)));
        }
    }
}
