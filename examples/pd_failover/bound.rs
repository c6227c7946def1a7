//! How often a backoff lets one peer be dialed.

use peerage::Backoff;
use std::time::Duration;

/// The most attempts that `backoff` lets begin within `over` of a peer's first failure, if no connection lasts long enough to be
/// forgiven what came before; that there are more has a probability below `chance`. Without such a probability there is no
/// bound: by full jitter every wait may be next to nothing.
pub(crate) fn most_connects(backoff: &Backoff, over: Duration, chance: f64) -> u64 {
    let limit = chance.ln();
    let too_many = (1_u32..).find(|n| ln_chance(backoff, *n, over.as_secs_f64()) < limit);
    u64::from(too_many.unwrap_or(u32::MAX)) - 1
}

/// At least the logarithm of the probability that `n` attempts begin within `over` seconds: that their waits, each spread
/// evenly from zero to its window, add up to no more. Chernoff's bound: it is no more than e^(s × over) times the product of
/// the means of e^(−s × wait), for every s > 0. The least over some s is taken.
fn ln_chance(backoff: &Backoff, n: u32, over: f64) -> f64 {
    let windows: Vec<_> = (1..=n).map(|failures| backoff.delay(failures, u64::MAX).as_secs_f64()).collect();
    let at = |s: f64| {
        let means = windows.iter().filter(|window| **window > 0.0).map(|window| {
            let sw = s * window;
            (-(-sw).exp_m1() / sw).ln()
        });
        s * over + means.sum::<f64>()
    };
    (0..120).map(|step| at(0.001 * 1.1_f64.powi(step))).fold(0.0, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Attempts that begin within `over`.
    fn drawn(backoff: &Backoff, over: Duration, random: &mut Random) -> u64 {
        let mut at = Duration::ZERO;
        let mut wait = |n| {
            at += backoff.delay(n, random.next());
            at <= over
        };
        (1..).take_while(|n| wait(*n)).count() as u64
    }

    #[test]
    fn what_is_drawn_stays_within_the_bound_and_comes_near_to_it() {
        let backoff = Backoff::default();
        for seconds in [1, 5, 30] {
            let over = Duration::from_secs(seconds);
            let mut random = Random::new(seconds);
            let drawn: Vec<_> = (0..20_000).map(|_| drawn(&backoff, over, &mut random)).collect();
            let most = *drawn.iter().max().unwrap();
            let never = most_connects(&backoff, over, 1e-9);
            assert!(most <= never && never <= 2 * most, "{seconds} s: {most}, not more than {never}");
            let seldom = most_connects(&backoff, over, 0.01);
            let above = drawn.iter().filter(|n| **n > seldom).count();
            assert!(above <= 200, "{seconds} s: {above} of 20,000 above {seldom}");
        }
    }

    #[test]
    fn a_wider_window_allows_fewer_and_a_longer_time_more() {
        let backoff = Backoff::default();
        let most = |backoff: &Backoff, seconds| most_connects(backoff, Duration::from_secs(seconds), 1e-9);
        assert!(most(&backoff, 30) > most(&backoff, 10));
        assert!(most(&Backoff { cap: backoff.cap * 4, ..backoff.clone() }, 30) < most(&backoff, 30));
    }
}
