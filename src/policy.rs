//! When to try again: pure functions of their arguments, no clock and no random numbers of their own.

use std::time::Duration;

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

#[cfg(test)]
mod tests {
    use super::*;

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
