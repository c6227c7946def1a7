//! Calls on a connection by somebody who has no lease of it: a transfer that is given up, whose connection may be draining
//! by then. The lane closes over transfers, where the close quiesces them, but never over such a call.

use super::{BayState, Locked};
use crate::state::Generation;
use crate::transport::Transport;

impl<T: Transport> Locked<'_, T> {
    /// Keeps the connection of `generation` in its bay until the visit ends. `false`: it is being closed, or is.
    pub(crate) fn visit(&mut self, bay: usize, generation: Generation) -> bool {
        let is_there = match &self.slow.bays[bay] {
            BayState::Live(of) => *of == generation,
            BayState::Draining(draining) => draining.generation == generation,
            _ => false,
        };
        self.slow.visitors[bay] += usize::from(is_there);
        is_there
    }

    pub(crate) fn visit_ends(&mut self, bay: usize) {
        self.slow.visitors[bay] -= 1;
        if matches!(self.slow.bays[bay], BayState::Draining(_)) {
            self.look_after_this();
        }
    }
}
