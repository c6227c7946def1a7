//! Promise 2 again. Peers that were lost together do not fall on the network together: a limit of connects per second holds
//! them in line.

use crate::common::*;
use peerage::{BusyCause, NotElected, Phase, ReadyError, Reason};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
const NANOSECOND: Duration = Duration::from_nanos(1);
const INTERVAL: Duration = Duration::from_millis(250);

#[test]
fn beyond_the_limit_of_a_second_connects_wait_in_line_and_start_when_it_allows_not_before() {
    let world = world_with(|builder| builder.max_connects_per_second(4));
    let peers = ["a", "b", "c"].map(|name| world.peer(name));
    let mut waits = peers.each_ref().map(|peer| {
        let mut wait = peer.ready();
        let _ = poll_once(&mut wait);
        world.settle(); // so that they stand in this order
        wait
    });
    for (place, peer) in peers.iter().enumerate() {
        block_on(&mut waits[place]).unwrap();
        let connects = || peers.each_ref().map(|peer| world.connects(peer.name().as_str()));
        let so_far = [0, 1, 2].map(|of| u64::from(of <= place));
        world.advance(INTERVAL - NANOSECOND);
        assert_eq!(connects(), so_far, "a nanosecond too early for who comes after {peer:?}");
        world.advance(NANOSECOND);
    }
}

#[test]
fn who_waits_for_the_limit_has_not_failed_and_is_not_connecting() {
    let world = world_with(|builder| builder.max_connects_per_second(4));
    world.connected("first");
    let peer = world.peer("p");
    assert!(peer.lease().is_err());
    world.settle();
    let record = peer.record().unwrap();
    assert_eq!((record.phase, record.reason, record.failures), (Phase::Idle, Reason::NotAsked, 0));
    assert!(!peer.status().connecting);
}

#[test]
fn a_time_without_connects_saves_no_more_than_a_hundredth_of_the_limit() {
    let world = world_with(|builder| builder.max_connects_per_second(300));
    world.advance(HOUR);
    let peers: Vec<_> = (0..20).map(|n| world.peer(&format!("p{n}"))).collect();
    peers.iter().for_each(|peer| assert!(peer.lease().is_err()));
    world.settle();
    eventually("what was elected has connected", || {
        peers.iter().all(|peer| peer.phase() != Phase::Connecting) && world.memory.total_counts().connecting == 0
    });
    assert_eq!(peers.iter().filter(|peer| peer.phase() == Phase::Ready).count(), 3);
}

#[test]
fn removing_a_peer_that_waits_for_the_limit_costs_nobody_else_their_turn() {
    let world = world_with(|builder| builder.max_connects_per_second(4));
    world.connected("first");
    let [gone, next] = ["gone", "next"].map(|name| {
        let peer = world.peer(name);
        assert!(peer.lease().is_err());
        world.settle();
        peer
    });
    block_on(gone.remove(world.after(HOUR)));
    world.advance(INTERVAL);
    block_on(next.ready()).unwrap();
    assert_eq!(world.connects("gone"), 0);
}

#[test]
fn a_user_who_would_connect_by_itself_is_told_when_the_limit_allows_it() {
    let world = world_with(|builder| builder.max_connects_per_second(4));
    world.connected("first");
    let peer = world.peer("p");
    match peer.try_elect() {
        Err(NotElected::NotNow(ReadyError::Busy { cause: BusyCause::ConnectsPerSecond, retry_after, .. })) => {
            assert_eq!(retry_after, INTERVAL);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(peer.phase(), Phase::Idle);
    world.advance(INTERVAL);
    drop(peer.try_elect().expect("its turn has come"));
}
