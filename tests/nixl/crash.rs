//! The crash that the table makes impossible: several threads find that a peer is gone, and each adds it again, while others send.
//!
//! The same load twice, each in a process of its own: workers that notify and write without a pause, and a thread that takes the
//! peer away every few milliseconds. Once the workers take a lease and that thread reports the generation; once they do as one
//! does without a table, with the mode of NIXL's agent that is its default, and look whether the peer is there before they add it.
//!
//! `PEERAGE_TEST_NIXL_RUNS` and `PEERAGE_TEST_NIXL_SECONDS` say how often with the table and for how long; 2 and 2 by default,
//! 20 and 15 for a proof.

use crate::bypassed;
use crate::support::*;
use peerage::transport::Counting;
use peerage::{Access, Generation, Outcome, Peer, Region, Reported};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const MODE: &str = "PEERAGE_TEST_CRASH";
pub(crate) const MESSAGE: &[u8] = b"q";
pub(crate) const WORKERS: usize = 6;
/// Bytes of a write.
pub(crate) const PIECE: usize = 4096;

/// How often it was done.
#[derive(Default)]
pub(crate) struct Done {
    pub(crate) adds: AtomicU64,
    pub(crate) removes: AtomicU64,
    pub(crate) sends: AtomicU64,
    pub(crate) writes: AtomicU64,
}

impl Done {
    pub(crate) fn is_load(&self) -> bool {
        let more = |count: &AtomicU64, than: u64| count.load(Ordering::Relaxed) > than;
        more(&self.adds, 20) && more(&self.removes, 20) && more(&self.sends, 1000) && more(&self.writes, 20)
    }
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |number| number.parse().unwrap())
}

fn seconds() -> Duration {
    Duration::from_secs(number("PEERAGE_TEST_NIXL_SECONDS", 2))
}

/// How a child ended.
enum End {
    Of(ExitStatus),
    /// It had to be killed: what breaks may also be a lock.
    Hung,
}

fn child(mode: &str, seed: u64) -> End {
    let mut command = this_binary("crash::child_of_the_crash_test");
    command.env(MODE, format!("{mode} {seed}"));
    if mode == "bypassed" {
        // NIXL says a line for each call that fails: gigabytes.
        command.env("NIXL_LOG_LEVEL", "FATAL");
    }
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

#[test]
fn threads_that_add_a_peer_at_once_kill_the_process_without_the_table_and_not_with_it() {
    alone(threads_that_add_a_peer_at_once_kill_the_process_without_the_table_and_not_with_it, || {
        for seed in 1..=number("PEERAGE_TEST_NIXL_RUNS", 2) {
            assert!(matches!(child("table", seed), End::Of(ended) if ended.success()), "with the table, seed {seed}");
        }
        // By a signal of its own: a test that fails is no crash, and one that hangs is none either.
        let died = (1..=5).find(|seed| matches!(child("bypassed", *seed), End::Of(ended) if ended.signal().is_some()));
        assert!(died.is_some(), "no race seen: five runs without the table went well, so those with it prove nothing");
    });
}

/// The body of such a process.
#[test]
#[ignore = "is run by the tests that start such a process"]
fn child_of_the_crash_test() {
    let how = std::env::var(MODE).expect("which mode and seed");
    let (mode, seed) = how.split_once(' ').unwrap();
    let mut random = seed.parse::<u64>().unwrap().wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    // Until the peer is taken away again, up to 10 ms.
    let mut pause = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        std::thread::sleep(Duration::from_micros(random % 10_000));
    };
    let (served, done, end) = (Served::start(), Done::default(), Instant::now() + seconds());
    if mode == "bypassed" {
        bypassed::run(&served.address, (end, soon()), &mut pause, &done);
    } else {
        with_the_table(served, end, &mut pause, &done);
    }
    let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let (adds, removes) = (count(&done.adds), count(&done.removes));
    let (sends, writes) = (count(&done.sends), count(&done.writes));
    println!("{mode}: {adds} adds, {removes} removes, {sends} sends, {writes} writes");
    assert!(done.is_load(), "no load");
}

fn with_the_table(served: Served, end: Instant, pause: &mut dyn FnMut(), done: &Done) {
    let table = table_of(Counting::new(nixl("here")));
    let peer = table.insert("served", served.address.clone()).unwrap();
    let local = Region::zeroed(PIECE);
    table.register(&local).unwrap();
    let (served, over, latest) = (Mutex::new(served), AtomicBool::new(false), soon());
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (peer, local, served, over) = (&peer, &local, &served, &over);
            scope.spawn(move || {
                let mut lent = (Generation(0), None);
                while !over.load(Ordering::Relaxed) {
                    let Ok(lease) = peer.lease() else {
                        std::thread::yield_now();
                        continue;
                    };
                    done.sends.fetch_add(lease.notify(MESSAGE).is_ok().into(), Ordering::Relaxed);
                    if worker % 2 == 1 {
                        continue;
                    }
                    // What was lent over one connection is good for that one.
                    if lent.0 != lease.generation() {
                        lent = (lease.generation(), Some(served.lock().unwrap().lends(Access::Write)));
                    }
                    let page = peerage::RemoteSlice { len: PIECE as u64, ..lent.1.unwrap() };
                    if let Ok(transfer) = lease.write(&local.slice(0..PIECE).unwrap(), page) {
                        drop(lease);
                        let outcome = transfer.wait(soon());
                        done.writes.fetch_add((outcome == Some(Outcome::Done)).into(), Ordering::Relaxed);
                    }
                }
            });
        }
        // On a machine that is busy with something else, the same work takes longer.
        while Instant::now() < end || (!done.is_load() && Instant::now() < latest) {
            take_away(&peer, pause, done);
            done.adds.store(table.transport().total().connects_begun, Ordering::Relaxed);
        }
        over.store(true, Ordering::Relaxed);
    });
    // A generation that was elected just now may not have come to its connect.
    ready_again(&peer);
    let counted = table.transport().total();
    assert_eq!(
        (counted.connects_begun, counted.duplicate_connects),
        (generations(&table), 0),
        "adds are not generations"
    );
    done.adds.store(counted.connects_begun, Ordering::Relaxed);
    assert_eq!(table.transport().inner().leaked_transfers(), 0);
    assert!(table.shutdown(soon()).wait().unwrap().is_clean());
}

fn take_away(peer: &Peer<Counting<peerage::transport::nixl::Nixl>>, pause: &mut dyn FnMut(), done: &Done) {
    let generation = ready_again(peer);
    pause();
    let failed = peer.report(generation, &Told) == Reported::Failed;
    done.removes.fetch_add(failed.into(), Ordering::Relaxed);
}
