//! How many native connects run in the whole table, and when one more may start.

use crate::builder::Config;
use crate::policy::Pace;
use crate::sync::lock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// How many connects run. A permit is counted in before its election, so there are never more than there may be.
// ord! The counts publish nothing; what a connect did is told under its slot's mutex. A late look is too high, and puts a
//      connect off until the driver has the push that follows `returned`: that push (Release), not the count, ends it.
//      `gave_up` adds before it subtracts, so the sum is never too low.
//      test: isolation::beyond_max_stuck_a_connect_is_answered_busy_and_counts_no_failure
//      model: attempts::a_deadline_and_a_late_failure_end_the_attempt_once   fails if: returns-a-permit-it-gave-up
pub(crate) struct Connects {
    permits: AtomicUsize,
    /// Of those, the ones of peers whose attempt before ran into its deadline.
    timed_out: AtomicUsize,
    stuck: AtomicUsize,
    /// The limit of connects per second, if there is one.
    pace: Option<std::sync::Mutex<Pace>>,
}

/// The line a peer waits in for a permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Line {
    Ordinary,
    /// Peers whose last attempt ran into its deadline: together they get at most half of the permits, so that a thousand
    /// black-holed peers starve nobody.
    TimedOut,
}

/// As what a native connect counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CountsAs {
    /// Its attempt is younger than its deadline.
    Permit(Line),
    /// It holds one of the table's threads beyond that.
    Stuck,
    /// It holds a ticket of the user's beyond that.
    Nowhere,
}

impl Connects {
    pub(crate) fn new(config: &Config, now: Instant) -> Self {
        let (permits, timed_out, stuck) = Default::default();
        let pace = config.max_connects_per_second.map(|limit| std::sync::Mutex::new(Pace::new(limit, now)));
        Connects { permits, timed_out, stuck, pace }
    }

    /// Counts a connect in, if it may start. The driver has asked [`are_stuck`](Self::are_stuck) for its own.
    pub(crate) fn try_begin(&self, line: Line, config: &Config, now: Instant) -> bool {
        let one_more = |limit: usize| move |count: usize| (count < limit).then(|| count + 1);
        let limit = config.max_concurrent_connects;
        if line == Line::TimedOut
            && self.timed_out.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more(limit.div_ceil(2))).is_err()
        {
            return false;
        }
        let counted = self.permits.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more(limit)).is_ok();
        if !counted && line == Line::TimedOut {
            self.timed_out.fetch_sub(1, Ordering::AcqRel);
        }
        let in_pace = counted && self.pace.as_ref().is_none_or(|pace| lock(pace).try_take(now));
        if counted && !in_pace {
            self.returned(CountsAs::Permit(line));
        }
        in_pace
    }

    /// When the limit of connects per second lets the next one start, if not now.
    pub(crate) fn paused_until(&self, now: Instant) -> Option<Instant> {
        lock(self.pace.as_ref()?).wait(now)
    }

    /// Whether [`try_begin`](Self::try_begin) would find room.
    pub(crate) fn has_room(&self, line: Line, config: &Config, now: Instant) -> bool {
        let limit = config.max_concurrent_connects;
        let among_its_like = line == Line::Ordinary || self.timed_out.load(Ordering::Acquire) < limit.div_ceil(2);
        among_its_like && self.permits.load(Ordering::Acquire) < limit && self.paused_until(now).is_none()
    }

    /// Whether so many connects hang that no thread is left for another one.
    pub(crate) fn are_stuck(&self, config: &Config) -> bool {
        let running = self.permits.load(Ordering::Acquire) + self.stuck();
        running >= config.max_concurrent_connects.saturating_add(config.max_stuck)
    }

    /// An attempt passed its deadline while its native connect goes on.
    pub(crate) fn gave_up(&self, permit: CountsAs, now: CountsAs) {
        if now == CountsAs::Stuck {
            self.stuck.fetch_add(1, Ordering::AcqRel);
        }
        self.returned(permit);
    }

    pub(crate) fn returned(&self, counts_as: CountsAs) {
        match counts_as {
            CountsAs::Permit(line) => {
                if line == Line::TimedOut {
                    self.timed_out.fetch_sub(1, Ordering::AcqRel);
                }
                self.permits.fetch_sub(1, Ordering::AcqRel);
            }
            CountsAs::Stuck => drop(self.stuck.fetch_sub(1, Ordering::AcqRel)),
            CountsAs::Nowhere => {}
        }
    }

    /// Attempts younger than their deadline.
    #[cfg(peerage_loom)]
    pub(crate) fn permits(&self) -> usize {
        self.permits.load(Ordering::Acquire)
    }

    pub(crate) fn stuck(&self) -> usize {
        self.stuck.load(Ordering::Acquire)
    }
}
