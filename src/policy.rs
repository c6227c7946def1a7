//! When to try again: pure functions of their arguments, no clock and no random numbers of their own.

use std::time::{Duration, Instant};

/// Exponential backoff with full jitter: before attempt *n* + 1 a peer waits a random time between zero and
/// `min(cap, base × 2ⁿ⁻¹)`, where *n* counts the failures since it was last stable. The time runs from the start of the
/// attempt that failed, first or later, and from the failure of a generation that was Ready.
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
        within(Duration::from_nanos(u64::try_from(window).unwrap_or(u64::MAX)), random)
    }

    /// The failures that count after a generation ended that was Ready for `stable` (`None`: it never was).
    pub fn failures_after(&self, failures: u32, stable: Option<Duration>) -> u32 {
        if stable.is_some_and(|stable| stable >= self.min_stable) { 1 } else { failures.saturating_add(1) }
    }
}

/// A circuit breaker for a peer that goes on failing: its next attempt waits much longer than the backoff's cap. When that
/// time is over the breaker is half open: one attempt may start, if somebody asks, and its failure opens the breaker again.
/// A connection that is published closes it; so does new metadata of another life
/// ([`Peer::update`](crate::Peer::update)).
///
/// A whole table whose peers fail at once more likely has a fault of its own, or sees an outage that will end for all at
/// once. So at most `max_open_percent` of the peers, and always one, may have an open breaker; the others back off as
/// usual, and come back within the backoff's cap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breaker {
    /// Failures in a row, as the backoff counts them, that open it. Default 16: with the default backoff about half a
    /// minute of failing, so that a process that is only restarted is not held up. A shorter backoff gets there sooner, with
    /// 2 ms in 32 ms: whoever shortens it raises this, or has no breaker.
    pub after: u32,
    /// The longest it stays open after a failure; the shortest is half of it, by jitter. Default 30 s, the base ejection
    /// time of Envoy's outlier detection.
    pub open_for: Duration,
    /// The share of the table's peers that may be open at once. Default 10, that of Envoy's outlier detection.
    pub max_open_percent: u8,
}

impl Default for Breaker {
    fn default() -> Self {
        Breaker { after: 16, open_for: Duration::from_secs(30), max_open_percent: 10 }
    }
}

impl Breaker {
    /// Whether so many failures open it.
    pub fn opens_at(&self, failures: u32) -> bool {
        failures >= self.after
    }

    /// How long it stays open, given 64 random bits.
    pub fn delay(&self, random: u64) -> Duration {
        let half = self.open_for / 2;
        half + within(self.open_for - half, random)
    }

    /// How many of so many peers may be open at once.
    pub fn may_open(&self, peers: usize) -> usize {
        (peers.saturating_mul(usize::from(self.max_open_percent)) / 100).max(1)
    }
}

/// How a Ready peer is watched that says nothing by itself: it is probed in every interval, on threads of the table's, inside
/// its current generation. Only what an unanswered probe costs in time counts, so a table whose threads are all in use, or
/// a process that was itself stopped, condemns nobody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat {
    /// A probe begins at most this long after the one before, and by jitter not before half of it. A probe has this long
    /// to answer; a peer that has not answered for so long is Suspect. Default 1 s; less than 1 ms is taken as 1 ms.
    pub interval: Duration,
    /// A peer that has not answered for so long, from the beginning of the first probe it left unanswered, fails. Default
    /// 3 s: a stop of a second or two, by a garbage collector or a debugger, is survived. Less than the interval is taken as
    /// the interval.
    pub dead_after: Duration,
}

impl Default for Heartbeat {
    fn default() -> Self {
        Heartbeat { interval: Duration::from_secs(1), dead_after: Duration::from_secs(3) }
    }
}

impl Heartbeat {
    /// From the beginning of one probe to the next, given 64 random bits.
    pub fn delay(&self, random: u64) -> Duration {
        let half = self.interval / 2;
        half + within(self.interval - half, random)
    }
}

/// A time below `window`, given 64 random bits.
fn within(window: Duration, random: u64) -> Duration {
    let window = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(((u128::from(window) * u128::from(random)) >> 64) as u64)
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

    /// Takes a token, if there is one.
    pub(crate) fn try_take(&mut self, now: Instant) -> bool {
        let there = self.wait(now).is_none();
        if there {
            self.full_at = self.full_at.max(now) + self.interval;
        }
        there
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
            while at.len() < starts && pace.try_take(now) {
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
            assert!(pace.try_take(at) && !pace.try_take(at));
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
        assert_eq!(backoff.failures_after(7, None), 8);
        assert_eq!(backoff.failures_after(7, Some(Duration::from_secs(4))), 8);
        assert_eq!(backoff.failures_after(7, Some(Duration::from_secs(5))), 1);
        assert_eq!(backoff.failures_after(u32::MAX, None), u32::MAX);
    }

    #[test]
    fn a_breaker_opens_at_its_number_of_failures_for_at_least_half_of_its_time() {
        let breaker = Breaker::default();
        assert_eq!([15, 16, 17].map(|failures| breaker.opens_at(failures)), [false, true, true]);
        assert_eq!(breaker.delay(0).as_millis(), 15_000);
        assert_eq!(breaker.delay(u64::MAX).as_millis(), 29_999);
    }

    #[test]
    fn the_next_probe_begins_within_the_interval_and_not_before_half_of_it() {
        let heartbeat = Heartbeat::default();
        assert_eq!([0, u64::MAX].map(|random| heartbeat.delay(random).as_millis()), [500, 999]);
    }

    #[test]
    fn one_peer_may_always_be_open_and_never_more_than_the_share() {
        let breaker = Breaker::default();
        assert_eq!([0, 1, 9, 10, 19, 20, 1_000].map(|peers| breaker.may_open(peers)), [1, 1, 1, 1, 1, 2, 100]);
        assert_eq!(Breaker { max_open_percent: 255, ..breaker }.may_open(usize::MAX), usize::MAX / 100);
    }
}
