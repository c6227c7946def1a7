//! Who waits for a transfer moves it on: by a thread of ours that does so for it, a sender pays for two threads that take turns,
//! where NIXL's user without a table has one that polls. Measured with 1.5.1 over TCP on 2 cores, writes of 64 KiB, 16 at once, run
//! at 0.66 of that user's rate without help; BENCHMARKS.md has what they do with it.

use super::link::Link;
use super::mailbox::OfOurs;
use super::moving::Asked;
use crate::help::Help;
use crate::transfer::TransferId;
use std::sync::TryLockError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// For so long after somebody has helped, the thread leaves transfers to who waits for them.
const LEFT: Duration = Duration::from_millis(1);
/// It looks once in so long whether one is there that was there before: nobody may wait for it.
const RARELY: Duration = Duration::from_millis(2);

/// Relaxed: each says what was lately, and the thread looks again soon, whatever it says.
#[derive(Default)]
pub(super) struct Helped {
    times: AtomicU64,
    /// One who waits sleeps by now.
    has_stopped: AtomicBool,
    is_left: AtomicBool,
}

impl Helped {
    /// Whether the thread leaves transfers to who waits for them, so need not be woken for one more.
    pub(super) fn is_left(&self) -> bool {
        self.is_left.load(Relaxed)
    }
}

/// What the thread knows of it, for one connection.
#[derive(Default)]
pub(super) struct Left {
    times: u64,
    helped_at: Option<Instant>,
    looked_at: Option<Instant>,
    oldest: Option<TransferId>,
}

impl Left {
    /// Whether the thread leaves the transfers of this connection alone now.
    pub(super) fn leave_to_who_waits(&mut self, helped: &Helped, is_crowded: bool, now: Instant) -> bool {
        let is_within = |at: Option<Instant>, time| at.is_some_and(|at| now.saturating_duration_since(at) < time);
        let times = helped.times.load(Relaxed);
        if times != self.times {
            (self.times, self.helped_at) = (times, Some(now));
        }
        if helped.has_stopped.swap(false, Relaxed) {
            self.helped_at = None;
        }
        let is_left = !is_crowded && is_within(self.helped_at, LEFT);
        if is_left != helped.is_left() {
            helped.is_left.store(is_left, Relaxed);
        }
        let leaves = is_left && is_within(self.looked_at, RARELY);
        if !leaves {
            self.looked_at = Some(now);
        }
        leaves
    }

    /// Whether the oldest of them was there before.
    pub(super) fn is_stuck(&mut self, oldest: Option<TransferId>) -> bool {
        std::mem::replace(&mut self.oldest, oldest) == oldest
    }
}

impl Help for Link {
    fn help(&self, transfer: TransferId) -> bool {
        // Who waits while the process exits goes on to sleep.
        let Some(_inside) = self.door.enter() else { return false };
        // The thread begins the next when one ends, and has nobody to take turns with.
        if self.is_crowded() {
            return false;
        }
        self.helped.times.fetch_add(1, Relaxed);
        let mut moving = match self.moving.try_lock() {
            Ok(moving) => moving,
            Err(TryLockError::Poisoned(moving)) => moving.into_inner(),
            // Somebody asks NIXL at this moment.
            Err(TryLockError::WouldBlock) => return true,
        };
        moving.take_over(self.take_begun());
        // Who waits has a deadline.
        let Some(no_long_call) = self.long_calls.try_keep_out() else { return true };
        let asked = moving.ask(transfer, self);
        drop((no_long_call, moving));
        match asked {
            Asked::Runs => return true,
            Asked::Over(over) => over.tell(),
            Asked::Other => {}
        }
        false
    }

    fn stop(&self, _: TransferId) {
        self.helped.has_stopped.store(true, Relaxed);
        self.mailbox.put(OfOurs::Waits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_leaves_transfers_to_who_helps_and_sees_to_them_when_nobody_does() {
        let (helped, mut left, now) = (Helped::default(), Left::default(), Instant::now());
        assert!(!left.leave_to_who_waits(&helped, false, now), "nobody has helped");
        helped.times.fetch_add(1, Relaxed);
        assert!(left.leave_to_who_waits(&helped, false, now) && helped.is_left(), "one has");
        assert!(left.leave_to_who_waits(&helped, false, now + LEFT / 2) && helped.is_left(), "lately");
        assert!(!left.leave_to_who_waits(&helped, true, now) && !helped.is_left(), "some wait for their turn");
        assert!(!left.leave_to_who_waits(&helped, false, now + LEFT) && !helped.is_left(), "long ago");
    }

    #[test]
    fn the_thread_sees_now_and_then_to_transfers_that_nobody_waits_for() {
        let (helped, mut left, now) = (Helped::default(), Left::default(), Instant::now());
        let mut look = |at| {
            helped.times.fetch_add(1, Relaxed);
            left.leave_to_who_waits(&helped, false, at)
        };
        assert!(!look(now) && look(now) && !look(now + RARELY) && look(now + RARELY));
        assert!(helped.is_left(), "nobody need wake it");
    }
}
