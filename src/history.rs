//! What a peer went through: its last transitions, kept in place for whoever looks after a fault.
//!
//! A transition is a change of phase or generation. What a record learns later of the same phase and generation (an error
//! that came after its report, an old connection that does not drain) changes the reason of the newest one.

use crate::error::Reason;
use crate::peer::Peer;
use crate::slow::locked;
use crate::state::{Generation, Phase};
use crate::transport::Transport;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How many transitions a peer remembers.
const KEPT: usize = 32;

/// One change of a peer's phase or generation.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transition {
    /// Where the peer stood before; `None` for its first, at insert.
    pub before: Option<Phase>,
    /// How long it had stood there, by the table's clock.
    pub lasted: Option<Duration>,
    /// Where it stands from here on.
    pub phase: Phase,
    /// At which generation.
    pub generation: Generation,
    /// Why.
    pub reason: Reason,
    /// Since when, by the table's clock. Of a report: since the table has accounted for it, soon after.
    pub since: Instant,
}

impl Transition {
    /// The transport's own number for the error, if the reason is one that has it.
    pub fn native_code(&self) -> Option<i64> {
        native_code(self.reason)
    }
}

pub(crate) fn native_code(reason: Reason) -> Option<i64> {
    match reason {
        Reason::Broken(code) | Reason::ConnectFailed(code) => code,
        _ => None,
    }
}

impl<T: Transport> Peer<T> {
    /// The peer's last 32 transitions, oldest first, for post-mortems: every attempt, how it ended, why, and how long each
    /// phase lasted. A handle of a removed peer still answers them. Takes the peer's mutex for one copy, so it waits for
    /// nothing but another thread's short look; senders are not disturbed. Empty in a forked child.
    pub fn history(&self) -> Vec<Transition> {
        let mut history = Vec::with_capacity(KEPT);
        if !self.slot().is_here() {
            return history;
        }
        locked(self.slot(), |lane| history.extend(lane.slow.history.0.iter().copied()));
        history
    }
}

/// The last [`KEPT`] transitions; never empty once the peer has a record. Allocates when it is made, and never again.
pub(crate) struct History(VecDeque<Transition>);

impl History {
    pub(crate) fn new() -> Self {
        History(VecDeque::with_capacity(KEPT))
    }

    pub(crate) fn newest(&self) -> Option<Transition> {
        self.0.back().copied()
    }

    /// Answers the transition, if it is one.
    pub(crate) fn write(
        &mut self,
        phase: Phase,
        generation: Generation,
        reason: Reason,
        now: Instant,
    ) -> Option<Transition> {
        let (before, lasted) = match self.0.back_mut() {
            Some(newest) if (newest.phase, newest.generation) == (phase, generation) => {
                newest.reason = reason;
                return None;
            }
            Some(newest) => (Some(newest.phase), Some(now.duration_since(newest.since))),
            None => (None, None),
        };
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        let transition = Transition { before, lasted, phase, generation, reason, since: now };
        self.0.push_back(transition);
        Some(transition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_kept_in_the_place_that_was_made_for_them() {
        let (mut history, start) = (History::new(), Instant::now());
        let room = history.0.capacity();
        for generation in 0..100 {
            history.write(Phase::Failed, Generation(generation), Reason::TimedOut, start);
        }
        assert_eq!(history.0.iter().map(|kept| kept.generation.0).collect::<Vec<_>>(), (68..100).collect::<Vec<_>>());
        assert_eq!(history.0.capacity(), room);
    }
}
