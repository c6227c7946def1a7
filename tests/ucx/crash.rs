//! The crash that the table makes impossible: one thread closes an endpoint while others send on it.
//!
//! The same load twice, each in a process of its own: two senders without a pause, and a third thread that closes the
//! connection every few milliseconds and opens it again. Once the senders take a lease for each send and the third reports
//! the generation; once they do as one does without a table, and look whether there is an endpoint before they use it.
//!
//! `PEERAGE_TEST_UCX_RUNS` and `PEERAGE_TEST_UCX_SECONDS` say how often with the table and for how long; 2 and 2 by default,
//! 20 and 10 for a proof.

use crate::processes::table;
use crate::support::*;
use peerage::Reported;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[path = "bypassed.rs"]
mod bypassed;

const MODE: &str = "PEERAGE_TEST_CRASH";
const MESSAGE: [u8; 1024] = [7; 1024];
const SENDERS: usize = 2;

/// How often it was done.
#[derive(Default)]
pub(crate) struct Done {
    connects: AtomicU64,
    closes: AtomicU64,
    sends: AtomicU64,
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |number| number.parse().unwrap())
}

fn child(mode: &str, seed: u64) -> End {
    let served = Served::start(0);
    let mut command = this_binary("crash::child_of_the_crash_test");
    command.env(MODE, format!("{mode} {} {seed}", served.addr));
    let (mut child, mut hung) = (command.spawn().unwrap(), false);
    let end = soon() + seconds();
    let ended = loop {
        match child.try_wait().unwrap() {
            Some(ended) => break ended,
            None if Instant::now() < end => std::thread::sleep(Duration::from_millis(10)),
            None => {
                hung = true;
                child.kill().unwrap();
            }
        }
    };
    println!("{mode}, seed {seed}: {ended}{}", if hung { ", by us: it hung" } else { "" });
    if hung { End::Hung } else { End::Of(ended) }
}

/// How a child ended.
enum End {
    Of(ExitStatus),
    /// It had to be killed: what a close that meets a send breaks may also be a lock.
    Hung,
}

fn seconds() -> Duration {
    Duration::from_secs(number("PEERAGE_TEST_UCX_SECONDS", 2))
}

#[test]
fn a_close_that_meets_a_send_kills_the_process_without_the_table_and_not_with_it() {
    let runs = number("PEERAGE_TEST_UCX_RUNS", 2);
    for seed in 1..=runs {
        assert!(matches!(child("table", seed), End::Of(ended) if ended.success()), "with the table, seed {seed}");
    }
    // By a signal of its own: a test that fails is no crash, and one that hangs is none either.
    let died = (1..=5).find(|seed| matches!(child("bypassed", *seed), End::Of(ended) if ended.signal().is_some()));
    assert!(died.is_some(), "no race seen: five runs without the table went well, so those with it prove nothing");
}

/// The body of such a process.
#[test]
#[ignore = "is run by the tests that start such a process"]
fn child_of_the_crash_test() {
    let how = std::env::var(MODE).expect("who starts it says how");
    let mut how = how.split(' ');
    let (mode, addr) = (how.next().unwrap(), how.next().unwrap().parse().unwrap());
    let mut random = how.next().unwrap().parse::<u64>().unwrap().wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let end = Instant::now() + seconds();
    // Until the next close, 0.5 to 4 ms.
    let mut pause = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        std::thread::sleep(Duration::from_micros(500 + random % 3500));
    };
    let done = Done::default();
    if mode == "bypassed" {
        bypassed::run(addr, end, &mut pause, &done);
    } else {
        with_the_table(addr, end, &mut pause, &done);
    }
    let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
    println!(
        "{mode}, libucp {}: {} connects, {} closes, {} sends",
        bypassed::version(),
        count(&done.connects),
        count(&done.closes),
        count(&done.sends)
    );
    assert!(count(&done.connects) > 20 && count(&done.closes) > 20 && count(&done.sends) > 1000, "no load");
}

fn with_the_table(addr: std::net::SocketAddr, end: Instant, pause: &mut dyn FnMut(), done: &Done) {
    let table = table("here");
    let peer = table.insert("served", addr.into()).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..SENDERS {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    match peer.lease() {
                        Ok(lease) => done.sends.fetch_add(lease.notify(&MESSAGE).is_ok().into(), Ordering::Relaxed),
                        Err(_) => {
                            std::thread::yield_now();
                            0
                        }
                    };
                }
            });
        }
        while Instant::now() < end {
            crate::processes::ready_again(&peer);
            done.connects.fetch_add(1, Ordering::Relaxed);
            pause();
            let failed = peer.report(peer.generation(), &Told) == Reported::Failed;
            done.closes.fetch_add(failed.into(), Ordering::Relaxed);
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(table.shutdown(soon()).wait().unwrap().is_clean());
}

/// What the third thread says of a connection that is well.
#[derive(Debug)]
struct Told;

impl std::fmt::Display for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a test says that it is broken")
    }
}

impl std::error::Error for Told {}

impl peerage::TransportError for Told {
    fn class(&self) -> peerage::ErrorClass {
        peerage::ErrorClass::PeerBroken
    }
}
