//! Promise 1. One connect: at any instant at most one native connect runs per peer, and at most one connection is open,
//! plus a draining one where the transport allows it. Every waiter of an attempt gets that attempt's outcome.

use crate::common::*;
use peerage::transport::memory::{Ending, Step};
use peerage::{BusyCause, Capabilities, Phase, ReadyError, Reason};
use std::collections::HashSet;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

fn threads_that_race_for_an_absent_peer_make_one_connect_and_get_one_generation<F: Fleet>() {
    const RACERS: usize = 8;
    let fleet = F::of(&["p"]);
    let table = table_of(&fleet);
    let peer = insert(&fleet, &table, "p");
    let start = Arc::new(Barrier::new(RACERS));
    let racers = (0..RACERS).map(|racer| {
        let (peer, start) = (peer.clone(), start.clone());
        thread::spawn(move || {
            start.wait();
            match racer % 3 {
                0 => block_on(peer.ready()).unwrap(),
                1 => peer.wait_ready(far()).unwrap(),
                _ => {
                    eventually("a lease is granted", || peer.lease().is_ok());
                    peer.lease().unwrap().generation()
                }
            }
        })
    });
    let racers: Vec<_> = racers.collect();
    let generations: HashSet<_> = racers.into_iter().map(|racer| racer.join().unwrap()).collect();
    assert_eq!(generations.len(), 1);
    let counts = table.transport().total();
    assert_eq!((counts.connects_begun, counts.open_max), (1, 1));
}

with_transports!(threads_that_race_for_an_absent_peer_make_one_connect_and_get_one_generation);

#[test]
fn the_next_native_connect_waits_until_a_stuck_one_has_returned_and_its_connection_is_closed() {
    let world = world_with(|builder| builder.connect_timeout(Duration::from_secs(5)));
    let peer = world.peer("p");
    let hold = world.memory.steps().hold(Step::Connect, "p");
    let mut waiter = peer.ready();
    assert!(poll_once(&mut waiter).is_pending());
    hold.wait_reached(1);
    world.advance(Duration::from_secs(5));
    assert!(matches!(block_on(waiter), Err(ReadyError::TimedOut { .. })));
    world.wait_out_backoff(&peer);
    match block_on(peer.ready()) {
        Err(ReadyError::Busy { cause: BusyCause::StuckConnects(1), .. }) => {}
        other => panic!("{other:?}"),
    }
    assert!(peer.lease().is_err(), "this asks");
    world.settle();
    assert_eq!((world.connects("p"), peer.phase()), (1, Phase::Failed));
    hold.release();
    eventually("the next connect is made when the stuck one is back", || peer.phase() == Phase::Ready);
    let generation = peer.generation();
    let counts = world.memory.counts("p");
    assert_eq!((counts.connects_begun, counts.connecting_max, counts.open_max), (2, 1, 1));
    assert_eq!(peer.lease().unwrap().generation(), generation);
    let log = world.memory.log();
    let close = log.iter().find(|call| call.step == Step::Close).expect("the late connection is closed");
    let second = log.iter().rfind(|call| call.step == Step::Connect).unwrap();
    assert!(close.ended.unwrap() < second.begun);
    assert_ne!(close.generation, generation);
}

#[test]
fn where_the_transport_allows_one_connection_the_old_one_is_closed_before_the_next_connect() {
    let world = world_of(Capabilities::NATIVE_CLOSE, |builder| builder);
    let peer = world.connected("p");
    let lease = peer.lease().unwrap();
    peer.report(lease.generation(), &broken());
    world.wait_out_backoff(&peer);
    let mut waiter = peer.ready();
    assert!(poll_once(&mut waiter).is_pending());
    world.settle();
    assert_eq!(world.connects("p"), 1, "the old connection is in use");
    drop(lease);
    block_on(waiter).unwrap();
    let counts = world.memory.counts("p");
    assert_eq!((counts.connects_begun, counts.open_max, counts.duplicate_connects), (2, 1, 0));
}

#[test]
fn where_the_transport_allows_two_the_next_connects_while_the_old_one_drains_but_never_a_third() {
    let world = world();
    let peer = world.connected("p");
    let first = peer.lease().unwrap();
    let call = first.native_call();
    peer.report(first.generation(), &broken());
    world.reconnect(&peer);
    let second = peer.lease().unwrap();
    assert!(second.generation() > first.generation());
    assert_eq!((peer.status().leases, peer.status().draining), (1, 1));
    peer.report(second.generation(), &broken());
    world.wait_out_backoff(&peer);
    assert!(peer.lease().is_err());
    world.settle();
    assert_eq!((world.connects("p"), world.memory.counts("p").open), (2, 2));
    drop(call);
    drop(first);
    eventually("the third connects once the first is closed", || peer.phase() == Phase::Ready);
    assert_eq!(world.memory.counts("p").open_max, 2);
    drop(second);
    eventually("the second is closed", || world.closes("p") == 2);
    let closes = world.memory.log().into_iter().filter(|call| call.step == Step::Close);
    assert!(closes.into_iter().all(|close| close.ending == Some(Ending::Done)));
}

#[test]
fn who_waits_for_a_running_attempt_is_not_told_of_an_older_connection_that_is_kept_in_use() {
    let drain = Duration::from_secs(2);
    let world = world_with(|builder| builder.drain_deadline(drain).connect_timeout(drain * 10));
    let peer = world.connected("p");
    let lease = peer.lease().unwrap();
    peer.report(lease.generation(), &broken());
    world.wait_out_backoff(&peer);
    let hold = world.memory.steps().hold(Step::Connect, "p");
    let mut waiter = peer.ready();
    assert!(poll_once(&mut waiter).is_pending());
    hold.wait_reached(1);
    world.advance(drain);
    assert!(poll_once(&mut waiter).is_pending());
    hold.release();
    let generation = block_on(waiter).unwrap();
    world.advance(drain);
    let record = peer.record().unwrap();
    assert_eq!((record.generation, record.reason), (generation, Reason::Ready));
}
