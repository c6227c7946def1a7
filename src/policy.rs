//! When to try again: pure functions of their arguments, no clock and no random numbers of their own.

use std::time::{Duration, Instant};

/// Exponential backoff with full jitter: before attempt *n* + 1 a peer waits a random time between zero and
/// `min(cap, base × 2ⁿ)`, where *n* counts the failures since it was last stable.
///
/// Full jitter spreads the dials of many clients that lost one peer at the same instant evenly over the whole window
/// (M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backoff {
    /// The window after the first failure. Default 50 ms: a restarted process is back in about that order of time.
    pub base: Duration,
    /// The widest window. Default 5 s.
    pub cap: Duration,
    /// A generation that was Ready for this long is forgiven its peer's earlier failures. Default 5 s.
    pub min_stable: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff { base: Duration::from_millis(50), cap: Duration::from_secs(5), min_stable: Duration::from_secs(5) }
    }
}

impl Backoff {
    /// How long to wait after the `failures`-th failure in a row (from 1), given 64 random bits.
    pub fn delay(&self, failures: u32, random: u64) -> Duration {
        let doublings = failures.saturating_sub(1).min(63);
        let window = self.base.as_nanos().saturating_mul(1 << doublings).min(self.cap.as_nanos());
        let window = u64::try_from(window).unwrap_or(u64::MAX);
        Duration::from_nanos(((u128::from(window) * u128::from(random)) >> 64) as u64)
    }

    /// The failures that count after a generation ended that was Ready for `stable` (zero: it never was).
    pub fn failures_after(&self, failures: u32, stable: Duration) -> u32 {
        if stable >= self.min_stable && !stable.is_zero() { 1 } else { failures.saturating_add(1) }
    }
}

/// A limit of starts per second, as a token bucket that holds what a hundredth of a second fills, at least one token: who
/// comes late to it catches up, and what it lets through stays even.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Between two tokens.
    interval: Duration,
    /// How long an empty bucket takes to be full, less one token.
    slack: Duration,
    full_at: Instant,
}

impl Pace {
    /// With a full bucket at `now`. `per_second` is at least 1.
    pub(crate) fn new(per_second: u32, now: Instant) -> Self {
        let interval = Duration::from_nanos(1_000_000_000_u64.div_ceil(per_second.into()));
        let depth = (per_second / 100).max(1);
        Pace { interval, slack: interval * (depth - 1), full_at: now }
    }

    /// When there is a token, if there is none at `now`.
    pub(crate) fn wait(&self, now: Instant) -> Option<Instant> {
        // A bucket that is full but for `slack` holds one.
        self.full_at.checked_sub(self.slack).filter(|at| *at > now)
    }

    /// Takes a token. The caller has asked whether there is one.
    pub(crate) fn take(&mut self, now: Instant) {
        self.full_at = self.full_at.max(now) + self.interval;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When each of `starts` happens that want to start at once and ask again every `every`.
    fn starts(pace: &mut Pace, from: Instant, starts: usize, every: Duration) -> Vec<Duration> {
        let mut now = from;
        let mut at = Vec::new();
        while at.len() < starts {
            while at.len() < starts && pace.wait(now).is_none() {
                pace.take(now);
                at.push(now - from);
            }
            now += every;
        }
        at
    }

    #[test]
    fn a_slow_pace_lets_one_through_at_each_interval_and_tells_when() {
        let now = Instant::now();
        let mut pace = Pace::new(4, now);
        for start in 0..10 {
            let at = now + Duration::from_millis(250) * start;
            assert_eq!(pace.wait(at), None);
            pace.take(at);
            assert_eq!(pace.wait(at), Some(at + Duration::from_millis(250)));
            assert!(pace.wait(at + Duration::from_nanos(249_999_999)).is_some());
        }
    }

    #[test]
    fn no_second_has_more_starts_than_the_limit_and_one_bucket() {
        for per_second in [1, 7, 99, 100, 250, 10_000] {
            for every in [100, 33_333, 5_000_000].map(Duration::from_micros) {
                let now = Instant::now();
                let at = starts(&mut Pace::new(per_second, now), now, 3 * per_second as usize, every);
                let bucket = (per_second / 100).max(1) as usize;
                let limit = per_second as usize + bucket;
                let too_many = at.windows(limit + 1).find(|starts| starts[limit] - starts[0] < Duration::from_secs(1));
                assert_eq!(too_many, None, "more than {limit} in a second");
            }
        }
    }

    #[test]
    fn who_asks_late_within_a_bucket_loses_nothing_and_who_idled_gains_one_bucket() {
        let now = Instant::now();
        let mut pace = Pace::new(1_000, now);
        let at = starts(&mut pace, now, 2_001, Duration::from_millis(7));
        assert!(*at.last().unwrap() <= Duration::from_millis(1_995), "the limit is reached: {:?}", at.last());
        let later = now + Duration::from_secs(3600);
        assert_eq!(starts(&mut pace, later, 11, Duration::from_micros(1))[9..], [0, 1000].map(Duration::from_micros));
    }

    #[test]
    fn the_window_doubles_up_to_the_cap() {
        let backoff = Backoff::default();
        let widest: Vec<_> = (1..=9).map(|n| backoff.delay(n, u64::MAX).as_millis()).collect();
        assert_eq!(widest, [49, 99, 199, 399, 799, 1599, 3199, 4999, 4999]);
        assert_eq!(backoff.delay(u32::MAX, u64::MAX).as_millis(), 4999);
        assert_eq!(backoff.delay(9, 0), Duration::ZERO);
    }

    #[test]
    fn jitter_is_spread_over_the_whole_window() {
        let backoff = Backoff::default();
        let at = |part: u64| backoff.delay(1, u64::MAX / 8 * part).as_millis();
        assert_eq!((1..8).map(at).collect::<Vec<_>>(), [6, 12, 18, 24, 31, 37, 43]);
    }

    #[test]
    fn only_a_stable_generation_forgives() {
        let backoff = Backoff::default();
        assert_eq!(backoff.failures_after(7, Duration::ZERO), 8);
        assert_eq!(backoff.failures_after(7, Duration::from_secs(4)), 8);
        assert_eq!(backoff.failures_after(7, Duration::from_secs(5)), 1);
        assert_eq!(backoff.failures_after(u32::MAX, Duration::ZERO), u32::MAX);
    }
}
