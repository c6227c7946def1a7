//! Futures that wait for a receiver or for a sender.

use crate::sync::came_through;
use std::collections::BTreeMap;
use std::task::Waker;

/// Futures that wait, in the order in which they began: one turn each, which ends when it is woken or dropped.
#[derive(Default)]
pub(super) struct Waiting {
    begun: u64,
    wakers: BTreeMap<u64, Waker>,
}

impl Waiting {
    /// Takes or keeps a future's turn. What is given back is other people's code: to be dropped after unlock.
    pub(super) fn wait(&mut self, turn: &mut Option<u64>, waker: Waker) -> Option<Waker> {
        let at = *turn.get_or_insert_with(|| {
            self.begun += 1;
            self.begun
        });
        self.wakers.insert(at, waker)
    }

    pub(super) fn leave(&mut self, turn: Option<u64>) -> Option<Waker> {
        self.wakers.remove(&turn?)
    }

    /// For [`wake`], after unlock.
    pub(super) fn take(&mut self) -> BTreeMap<u64, Waker> {
        std::mem::take(&mut self.wakers)
    }
}

pub(super) fn wake(wakers: BTreeMap<u64, Waker>) {
    for waker in wakers.into_values() {
        // One that panics must harm neither the others nor the task that serves the sender's connection.
        came_through(|| waker.wake());
    }
}
