//! D: what is left behind.

use crate::common::*;
use crate::pages::pages;
use peerage::transport::memory::{CloseAnswer, Step};
use peerage::{Backoff, InsertError, Phase, PostError, Reason, Removed};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const MOMENT: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Whenever a removal has resolved, the native side holds as little as before the first connect.
///
/// fails if: d1 (some connections are never closed)
#[test]
fn case_d1_each_removal_gives_the_native_side_back_all_it_gave() {
    let world = world();
    for cycle in 1..=3_000 {
        let peer = world.connected("p");
        assert_eq!(block_on(peer.remove(world.after(HOUR))), Removed::Removed);
        if [1, 100, 3_000].contains(&cycle) {
            let counts = world.memory.counts("p");
            assert_eq!((counts.closes, counts.open, counts.connecting, counts.dropped), (cycle, 0, 0, 0));
            assert!(world.table.snapshot().peers.is_empty());
        }
    }
}

/// What a dead peer held is given back when it has been dead for so long, with nothing else going on.
///
/// fails if: d2 (nobody looks when a peer has failed for too long)
#[test]
fn case_d2_a_peer_that_has_failed_for_so_long_is_removed_and_its_name_is_free() {
    let world = world_with(|builder| builder.remove_failed_after(10 * SECOND));
    let peer = world.connected("p");
    peer.report(peer.generation(), &broken());
    eventually("its connection is closed", || world.closes("p") == 1);
    (0..9).for_each(|_| world.advance(SECOND));
    world.advance(SECOND - MOMENT);
    assert_eq!(peer.phase(), Phase::Failed);
    world.advance(MOMENT);
    eventually("it is removed", || peer.phase() == Phase::Removed);
    assert_eq!((peer.lease().unwrap_err().reason, world.closes("p")), (Reason::FailedTooLong, 1));
    assert!(world.table.peer("p").is_none(), "its name is free");
    assert_eq!(world.connected("p").phase(), Phase::Ready);
}

/// Many short-lived peers that nobody uses any more are gone after their time, and their places hold others.
///
/// fails if: d3 (nobody looks when a peer has been idle for too long)
#[test]
fn case_d3_short_lived_peers_are_gone_after_their_time_and_make_room() {
    const PEERS: usize = 500;
    let world = world_with(|builder| builder.idle_ttl(10 * SECOND).max_peers(PEERS + 1));
    for generation in ["first", "second"] {
        let peers: Vec<_> = (0..PEERS).map(|at| world.connected(&format!("{generation}-{at}"))).collect();
        assert_eq!(world.memory.total_counts().open, PEERS as u64);
        drop(world.peer("one more"));
        let full = world.table.insert("full", peerage::transport::memory::MemoryAddress::new("full"));
        assert!(matches!(full, Err(InsertError::TooManyPeers { .. })));
        eventually("all are gone", || {
            world.clock.advance(SECOND);
            peers.iter().all(|peer| peer.phase() == Phase::Removed)
        });
        eventually("and their places", || world.table.snapshot().peers.is_empty());
        assert_eq!(world.memory.total_counts().open, 0);
    }
}

/// However many transfers fail one after the other, a peer owns one connection and one that drains.
///
/// fails if: d4 (a failed connection is left open)
#[test]
fn case_d4_a_peer_whose_every_transfer_fails_owns_one_connection_and_one_that_drains() {
    let backoff = Backoff { base: MOMENT, cap: MOMENT, ..Backoff::default() };
    let world = world_with(|builder| builder.backoff(backoff).breaker(None));
    let peer = world.peer("p");
    let (ours, lent) = pages(&world, "p");
    let mut drains = None;
    for _ in 0..200 {
        world.reconnect(&peer);
        world.memory.steps().fail_next(Step::Post, "p", 1, broken());
        let lease = peer.lease().unwrap();
        assert!(matches!(lease.write(&ours, lent.remote()), Err(PostError::PeerBroken { .. })));
        drains = Some(lease);
    }
    drop(drains);
    let counts = world.memory.counts("p");
    assert_eq!(counts.connects_begun, 200);
    assert!(counts.open_max <= 2, "{counts:?}");
    eventually("all are closed", || world.closes("p") == 200);
}

/// A close that the native side refuses is asked for again, then counted as a leak, with its reason, for whoever looks.
///
/// fails if: d8 (a leak counts as closed)
#[test]
fn case_d8_a_close_that_fails_is_retried_and_then_said_and_counted() {
    let world = world();
    let peer = world.connected("p");
    world.memory.steps().close_next("p", 2, CloseAnswer::Retry);
    world.memory.steps().close_next("p", 1, CloseAnswer::Leaked("device busy"));
    let removal = peer.remove(world.after(HOUR));
    eventually("it was asked three times", || {
        world.clock.advance(20 * MOMENT);
        world.closes("p") == 1
    });
    assert_eq!(block_on(removal), Removed::Leaked("device busy"));
    assert_eq!(world.memory.log().iter().filter(|call| call.step == Step::Close).count(), 3);
    assert_eq!(world.table.snapshot().leaked, 1);
    assert_eq!(block_on(world.table.shutdown(world.after(HOUR))).leaked_connections, 1);
}
