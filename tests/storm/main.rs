//! Many peers restart together while many callers wait for each: in virtual time, with the real core.
//!
//! Every caller is a `ready()` future of its own. 1,000 peers with 100 callers each by default; for ten million callers
//! `PEERAGE_STORM_PEERS=10000 PEERAGE_STORM_CALLERS=1000 cargo test --release --test storm -- --nocapture --test-threads 1`.

mod callers;
mod healthy;
mod storm;
mod wire;

use peerage::Backoff;
use std::thread;
use std::time::{Duration, Instant};
use storm::{Seen, Storm};

/// How long a test waits for what must happen before it says that it won't.
const PATIENCE: Duration = Duration::from_secs(60);

const CAP: usize = 32;
const DOWN: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(1);
/// Where a run lasts for seconds.
const COARSE_TICK: Duration = Duration::from_millis(5);
/// The slowest connect.
const SLOWEST: Duration = Duration::from_millis(15);
/// Dials of the fullest tenth of a second, in means.
const EVEN: f64 = 2.0;

#[test]
fn peers_that_restart_together_are_back_as_soon_as_the_cap_allows() {
    let seen =
        Storm::over(peers(), callers(), |builder| builder.max_concurrent_connects(CAP)).run(Duration::ZERO, TICK);
    let busy = seen.ticks.iter().all(|(running, waiting)| *running == CAP.min(*waiting));
    assert!(busy, "a permit was free while somebody waited: {:?}", seen.ticks);
    let bound = seen.connecting_on(CAP);
    tell("restart at once", &seen, bound);
    // The first may start when their first backoff is over, and the last one may be the slowest.
    assert!(seen.took <= bound + Backoff::default().base + SLOWEST + TICK, "{:?}, not {bound:?}", seen.took);
    assert_eq!(seen.log.len(), peers(), "dials");
    whatever_the_storm(&seen);
    assert!(seen.peak() < EVEN, "{:?}", seen.buckets());
}

#[test]
fn peers_that_refuse_for_a_while_are_dialed_evenly_under_a_limit_of_connects_per_second() {
    // Few enough to last; so many that a start which waits for the tick is made up for.
    let per_second = (peers() / 4).max(200);
    let seen = Storm::over(peers(), callers(), |builder| {
        builder.max_concurrent_connects(CAP).max_connects_per_second(per_second as u32)
    })
    .run(DOWN, COARSE_TICK);
    let bound = DOWN + Duration::from_secs_f64(peers() as f64 / per_second as f64);
    tell("down for a second, limited", &seen, bound);
    // The last one's backoff after at most a few failures, which ends while others are dialed.
    assert!(seen.took <= bound + Backoff::default().base * 4 + SLOWEST + COARSE_TICK, "{:?}, not {bound:?}", seen.took);
    whatever_the_storm(&seen);
    assert!(seen.peak() < EVEN, "{:?}", seen.buckets());
}

/// The control: what the limit is for.
#[test]
fn without_that_limit_refusals_make_the_dials_come_in_bursts() {
    // Not more: a refusal takes a whole tick here, so the cap would hide from so many what it does not prevent.
    let few = peers().min(1_000);
    let seen = Storm::over(few, 1, |builder| builder.max_concurrent_connects(CAP)).run(DOWN, COARSE_TICK);
    tell("down for a second, no limit", &seen, DOWN + seen.connecting_on(CAP));
    whatever_the_storm(&seen);
    assert!(seen.peak() > EVEN, "{:?}", seen.buckets());
}

fn whatever_the_storm(seen: &Seen) {
    assert!(seen.most_running <= CAP, "{} connects at once", seen.most_running);
    assert_eq!(seen.repeated_generations(), 0, "a generation was dialed twice");
    assert!(seen.sent.granted > 0 && seen.sent.disturbed == 0, "healthy peers: {:?}", seen.sent);
}

fn tell(storm: &str, seen: &Seen, bound: Duration) {
    let Seen { took, log, most_running, sent, memory, .. } = seen;
    let buckets = seen.buckets();
    let mean = log.len() as f64 / buckets.len() as f64;
    println!("{storm}: {} peers", seen.peers);
    println!("  recovered after {took:.3?} of virtual time, lower bound {bound:.3?}");
    println!(
        "  {} dials, {most_running} at once; in 100 ms: mean {mean:.0}, fullest {:.2} means",
        log.len(),
        seen.peak()
    );
    println!("  {} leases of healthy peers granted meanwhile, {} disturbed", sent.granted, sent.disturbed);
    if let Some(memory) = memory {
        println!("  {:.0} MB resident while callers wait", *memory as f64 / 1e6);
    }
}

fn peers() -> usize {
    size("PEERAGE_STORM_PEERS", 1_000)
}

fn callers() -> usize {
    size("PEERAGE_STORM_CALLERS", 100)
}

fn size(variable: &str, usual: usize) -> usize {
    std::env::var(variable).map_or(usual, |size| size.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

fn eventually(mut holds: impl FnMut() -> bool, what: impl FnOnce() -> String) {
    let give_up = Instant::now() + PATIENCE;
    while !holds() {
        if Instant::now() >= give_up {
            panic!("{}", what());
        }
        thread::yield_now();
    }
}
