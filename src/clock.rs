//! Time as a table and its waiters see it. There is one clock, and clones of it: of the table, its pools, waits, transfers,
//! grants, events and inboxes. What decides about a peer reads it once per section of its mutex (slow/mod.rs), after the
//! lock, and takes time as an argument from there on. The driver, closes and shutdowns read it for themselves.

use crate::builder::FOREVER;
use crate::sync::lock;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a thread sleeps at most before it looks at a manual clock again.
const MANUAL_LOOK: Duration = Duration::from_millis(1);

/// The system's clock, or one that only a test moves.
#[derive(Clone)]
pub struct Clock(Kind);

#[derive(Clone)]
enum Kind {
    System,
    Manual(Arc<Mutex<Manual>>),
}

struct Manual {
    now: Instant,
    on_advance: Vec<Box<dyn Fn() + Send>>,
}

impl Clock {
    /// The system's monotonic clock.
    pub fn system() -> Self {
        Clock(Kind::System)
    }

    /// A clock that stands still until [`advance`](Self::advance) is called; for tests of users and of this crate. Every
    /// deadline of its table is by this clock: `clock.now() + …`, not `Instant::now() + …`.
    pub fn manual() -> Self {
        Clock(Kind::Manual(Arc::new(Mutex::new(Manual { now: Instant::now(), on_advance: Vec::new() }))))
    }

    /// The time.
    pub fn now(&self) -> Instant {
        match &self.0 {
            Kind::System => Instant::now(),
            Kind::Manual(manual) => lock(manual).now,
        }
    }

    /// Moves a manual clock forward and wakes the drivers that use it. Timers that are due run on their driver, soon after.
    /// More than 30 years is taken as 30 years.
    ///
    /// # Panics
    /// If this is the system's clock.
    pub fn advance(&self, by: Duration) {
        let Kind::Manual(manual) = &self.0 else { panic!("the system's clock can't be moved") };
        let mut manual = lock(manual);
        manual.now += by.min(FOREVER);
        manual.on_advance.iter().for_each(|wake| wake());
    }

    pub(crate) fn on_advance(&self, wake: impl Fn() + Send + 'static) {
        if let Kind::Manual(manual) = &self.0 {
            lock(manual).on_advance.push(Box::new(wake));
        }
    }

    /// How long a thread may really sleep before it must look again whether `deadline` is over; `None` once it is.
    pub(crate) fn real_wait_until(&self, deadline: Instant) -> Option<Duration> {
        let left = deadline.checked_duration_since(self.now()).filter(|left| !left.is_zero())?;
        match self.0 {
            Kind::System => Some(left),
            Kind::Manual(_) => Some(MANUAL_LOOK),
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Kind::System => "Clock::system",
            Kind::Manual(_) => "Clock::manual",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_by_hand() {
        let clock = Clock::manual();
        let start = clock.now();
        assert_eq!(clock.now(), start);
        let deadline = start + Duration::from_secs(1);
        assert!(clock.real_wait_until(deadline).is_some());
        clock.advance(Duration::from_secs(1));
        assert_eq!(clock.now(), deadline);
        assert!(clock.real_wait_until(deadline).is_none());
    }
}
