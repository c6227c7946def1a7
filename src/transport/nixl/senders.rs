//! Whether senders keep NIXL busy, for the thread that can do without it for a while.
//!
//! NIXL holds its agent's lock, shared, through the posting of a transfer; where UCX copies from process to process, that is the
//! copy. A thread that wants the lock for itself, to take notifications, sleeps in NIXL until then, and the sender has to wake it:
//! measured with 1.5.1 on 2 cores, a sixth of the time of writes of 1 MiB, 16 at once. So while senders stream and no answer is
//! due, the thread takes notifications now and then.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How late a notification may be that nobody waits for: a goodbye, or that a page is wanted back which is written to all the same.
const LATE: Duration = Duration::from_millis(20);

/// The senders of one agent that begin transfers. Relaxed: who looks at a count that is about to change is as early or late as without it.
#[derive(Default)]
pub(super) struct Senders {
    inside: AtomicUsize,
    entered: AtomicU64,
}

/// A sender is inside NIXL.
pub(super) struct Inside<'a>(&'a Senders);

impl Senders {
    /// NIXL is called by a sender, until this is dropped.
    pub(super) fn enter(&self) -> Inside<'_> {
        self.entered.fetch_add(1, Ordering::Relaxed);
        self.inside.fetch_add(1, Ordering::Relaxed);
        Inside(self)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, Ordering::Relaxed);
    }
}

/// When the thread has taken notifications, and how many had entered when it looked last.
pub(super) struct Taking {
    at: Instant,
    entered: u64,
}

impl Taking {
    pub(super) fn new(now: Instant) -> Self {
        Taking { at: now, entered: 0 }
    }

    /// Whether to take notifications now. `expects`: an answer is due.
    pub(super) fn is_due(&mut self, senders: &Senders, expects: bool, now: Instant) -> bool {
        let entered = senders.entered.load(Ordering::Relaxed);
        let streams = entered != self.entered || senders.inside.load(Ordering::Relaxed) > 0;
        self.entered = entered;
        let is_due = expects || !streams || now.saturating_duration_since(self.at) >= LATE;
        if is_due {
            self.at = now;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notifications_are_taken_unless_senders_stream_and_then_late_but_taken() {
        let (senders, now) = (Senders::default(), Instant::now());
        let mut taking = Taking::new(now);
        assert!(taking.is_due(&senders, false, now), "nobody sends");
        let inside = senders.enter();
        assert!(!taking.is_due(&senders, false, now), "one is inside");
        assert!(!taking.is_due(&senders, false, now), "and stays there");
        assert!(taking.is_due(&senders, true, now), "an answer is due");
        assert!(taking.is_due(&senders, false, now + LATE), "one is late");
        assert!(!taking.is_due(&senders, false, now + LATE), "not any more");
        drop(inside);
        drop(senders.enter());
        assert!(!taking.is_due(&senders, false, now), "one has sent since");
        assert!(taking.is_due(&senders, false, now), "nobody has");
    }
}
