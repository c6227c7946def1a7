//! The failure that this library began with, as it was reported: a peer's connection breaks under two threads that send, both add
//! the peer again, and the process dies. Here one of them hears of the break, and the peer is added once.

use crate::support::*;
use peerage::transport::Counting;
use peerage::transport::nixl::Nixl;
use peerage::{NotifyError, Peer, Phase};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[derive(Default)]
struct Seen {
    sent: AtomicU64,
    /// The connection failed under it.
    broke: AtomicU64,
    /// The connection had failed by then, or there was none.
    refused: AtomicU64,
}

fn send(peer: &Peer<Counting<Nixl>>, seen: &Seen, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        let count = match peer.lease() {
            Err(_) => {
                std::thread::yield_now();
                &seen.refused
            }
            Ok(lease) => match lease.notify(b"request") {
                Ok(()) => &seen.sent,
                Err(NotifyError::Busy { .. }) => continue,
                Err(error) => {
                    println!("\"{}\" broke: {error:?}", peer.name());
                    &seen.broke
                }
            },
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// fails if: who meets an error connects by itself, or a break of one peer touches another.
#[test]
fn a_peer_that_breaks_under_two_threads_is_added_again_once_and_the_other_does_not_notice() {
    alone(a_peer_that_breaks_under_two_threads_is_added_again_once_and_the_other_does_not_notice, || {
        let table = table_of(Counting::new(nixl("here")));
        let (mut first, second) = (Served::called("first"), Served::called("second"));
        let to_first = table.insert("first", first.address.clone()).unwrap();
        let to_second = table.insert("second", second.address.clone()).unwrap();
        ready_again(&to_first);
        ready_again(&to_second);
        let (at_first, at_second, over) = (Seen::default(), Seen::default(), AtomicBool::new(false));
        let sent = |seen: &Seen| seen.sent.load(Ordering::Relaxed);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| send(&to_first, &at_first, &over));
                scope.spawn(|| send(&to_second, &at_second, &over));
            }
            for _ in 0..5 {
                let before = (sent(&at_first), sent(&at_second));
                eventually("both are sent to", || sent(&at_first) > before.0 && sent(&at_second) > before.1);
                let generation = to_first.generation();
                first.kill();
                eventually("the break is found", || {
                    to_first.generation() != generation || to_first.phase() != Phase::Ready
                });
                first = Served::called("first");
                to_first.update(first.address.clone()).unwrap();
                ready_again(&to_first);
            }
            over.store(true, Ordering::Relaxed);
        });
        let broke = at_first.broke.load(Ordering::Relaxed);
        assert!(broke > 0, "nobody was told");
        let bad = |seen: &Seen| seen.broke.load(Ordering::Relaxed) + seen.refused.load(Ordering::Relaxed);
        assert_eq!(bad(&at_second), 0, "the other peer was touched");
        let counted = table.transport().total();
        assert_eq!((counted.connects_begun, counted.duplicate_connects), (generations(&table), 0));
        println!("{broke} sends failed in 5 breaks; {} adds", counted.connects_begun);
        assert!(table.shutdown(soon()).wait().unwrap().is_clean());
    });
}
