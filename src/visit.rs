//! A call on a connection by somebody who no longer has a lease of it: to give up a transfer that was posted on it. The lane
//! agrees to the visit, and does not take the connection out of its bay meanwhile (slow/visit.rs).

use crate::cancel::Cancelled;
use crate::note::Note;
use crate::queue::LOOK;
use crate::slot::SlotRef;
use crate::slow::locked;
use crate::state::{Generation, Word};
use crate::sync::caught;
use crate::transfer::{self, Reach, TransferId};
use crate::transport::{DataPlane, Transport};
use crate::wait::Cell;
use std::sync::Arc;
use std::time::Instant;

/// The connection a transfer was posted on.
pub(crate) struct At<T: Transport> {
    pub(crate) slot: SlotRef<T>,
    pub(crate) word: Word,
    pub(crate) bay: usize,
}

impl<T: Transport> Clone for At<T> {
    fn clone(&self) -> Self {
        At { slot: self.slot.clone(), word: self.word, bay: self.bay }
    }
}

impl<T: DataPlane> Reach for At<T> {
    fn answer_at(&self, deadline: Instant, transfer: &Arc<transfer::Core>, cell: &Arc<Cell<Cancelled>>) {
        if self.slot.in_flight.answer_at(deadline, transfer, cell) {
            self.slot.tell(LOOK);
        }
        // Looked at after the timer is set: either the driver's end has seen it, or this sees that it died.
        if self.slot.home().driver_died() {
            cell.resolve(Cancelled::NotQuiesced);
        }
    }

    fn cancel(&self, transfer: TransferId) {
        let generation = self.word.generation();
        let Some(_visit) = Visit::begin(self, generation) else { return };
        // SAFETY: the connection of this generation is in the bay: the lane, which takes it out, has agreed to the visit, and
        // waits for its end. It was put in before the transfer was posted.
        let connection = unsafe { self.slot.bay(self.bay).connection() };
        if let Err(text) = caught(|| self.slot.home().transport.cancel(connection, transfer)) {
            let note = || Note::of_text(generation, text);
            let _ = self.slot.home().report(&self.slot, generation, note);
        }
    }
}

/// A call on a connection by somebody who has no lease of it: its lane does not take it out meanwhile.
struct Visit<'a, T: Transport>(&'a At<T>);

impl<'a, T: Transport> Visit<'a, T> {
    /// `None`: the connection is being closed, or is.
    fn begin(at: &'a At<T>, generation: Generation) -> Option<Self> {
        locked(&at.slot, |lane| lane.visit(at.bay, generation)).then(|| Visit(at))
    }
}

impl<T: Transport> Drop for Visit<'_, T> {
    fn drop(&mut self) {
        locked(&self.0.slot, |lane| lane.visit_ends(self.0.bay));
    }
}
