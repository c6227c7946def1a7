//! Another address for a peer that stays. Who may be another process is retired first (promise 10), and the failures of
//! the one before are not held against it.

use crate::common::*;
use peerage::transport::memory::{Memory, MemoryAddress, Step};
use peerage::{Capabilities, Incarnation, Peer, Phase, ReadyError, Reason, UpdateError, Updated};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// The address of the process that runs as `node` now.
fn life_of(world: &World, node: &str) -> MemoryAddress {
    MemoryAddress::new(node).with_incarnation(world.fabric.node(node).incarnation())
}

fn refused(peer: &Peer<Memory>) -> Reason {
    peer.lease().unwrap_err().reason
}

#[test]
fn the_same_address_changes_nothing() {
    let world = world();
    let peer = world.connected("p");
    let before = peer.record();
    assert_eq!(peer.update(MemoryAddress::new("p")), Ok(Updated::Same));
    assert_eq!((peer.record(), world.connects("p")), (before, 1));
}

#[test]
fn an_idle_peer_takes_the_address_and_makes_no_call() {
    let world = world();
    let peer = world.peer("p");
    world.fabric.node("q");
    assert_eq!(peer.update(MemoryAddress::new("q")), Ok(Updated::Stored));
    world.settle();
    let record = record_of(&peer);
    assert_eq!((record.phase, &*record.address, world.connects("p")), (Phase::Idle, "memory:q", 0));
    block_on(peer.ready()).unwrap();
    assert_eq!(record_of(&peer).incarnation, Some(world.fabric.node("q").incarnation()));
}

#[test]
fn the_address_of_another_life_retires_the_generation_first_and_asks_for_a_connect() {
    let world = world_of(Capabilities::NATIVE_CLOSE.with(Capabilities::UPDATES_IN_PLACE), |builder| builder);
    let peer = world.connected("p");
    let old = peer.generation();
    let lease = peer.lease().unwrap();
    assert_eq!(peer.update(life_of(&world, "q")), Ok(Updated::Retired(old)));
    assert_eq!((peer.phase(), refused(&peer)), (Phase::Failed, Reason::Replaced), "nobody is admitted on the old life");
    world.settle();
    assert_eq!((world.connects("p"), world.closes("p")), (1, 0), "closed first, and not under a lease");
    drop(lease);
    assert!(block_on(peer.ready()).unwrap() > old);
    let record = record_of(&peer);
    assert_eq!((record.incarnation, record.failures), (Some(world.fabric.node("q").incarnation()), 0));
    assert_eq!((world.connects("p"), world.closes("p")), (2, 1));
}

#[test]
fn the_same_life_keeps_its_connection_where_the_transport_can() {
    let world = world();
    let peer = world.connected("p");
    let generation = peer.generation();
    let lease = peer.lease().unwrap();
    assert_eq!(peer.update(life_of(&world, "p")), Ok(Updated::Kept(generation)));
    lease.notify(b"still here").unwrap();
    assert_eq!(peer.generation(), generation);
    assert_eq!(*record_of(&peer).address, *life_of(&world, "p").to_string());
    assert_eq!((world.connects("p"), world.closes("p")), (1, 0));
}

#[test]
fn the_same_life_is_retired_without_a_failure_where_the_transport_cannot() {
    let world = world_of(Capabilities::NATIVE_CLOSE, |builder| builder);
    let peer = world.connected("p");
    let old = peer.generation();
    assert_eq!(peer.update(life_of(&world, "p")), Ok(Updated::Retired(old)));
    block_on(peer.ready()).unwrap();
    assert_eq!((record_of(&peer).failures, world.connects("p"), world.closes("p")), (0, 2, 1));
}

#[test]
fn the_first_request_with_the_address_of_a_new_life_finds_the_peer_however_long_the_old_one_backs_off() {
    let world = world();
    let peer = world.connected("p");
    world.memory.steps().fail_next(Step::Connect, "p", 8, broken());
    peer.report(peer.generation(), &broken());
    for _ in 0..8 {
        world.wait_out_backoff(&peer);
        assert!(matches!(block_on(peer.ready()), Err(ReadyError::Failed { .. })));
    }
    assert!(matches!(block_on(peer.ready()), Err(ReadyError::BackingOff { .. })));
    world.fabric.restart("p").wait();
    assert_eq!(peer.update(life_of(&world, "p")), Ok(Updated::Stored));
    block_on(peer.ready()).unwrap();
}

#[test]
fn new_metadata_of_the_same_life_does_not_shorten_its_backoff() {
    let world = world();
    world.fabric.node("p");
    let peer = world.table.insert("p", life_of(&world, "p")).unwrap();
    block_on(peer.ready()).unwrap();
    peer.report(peer.generation(), &broken());
    world.settle();
    let before = record_of(&peer);
    let moved = MemoryAddress::new("q").with_incarnation(world.fabric.node("p").incarnation());
    assert_eq!(peer.update(moved), Ok(Updated::Stored));
    let after = record_of(&peer);
    assert_eq!((after.retry_at, after.failures), (before.retry_at, before.failures));
    assert!(after.retry_at > Some(world.clock.now()));
}

#[test]
fn an_update_of_a_removed_peer_says_so_and_of_nobody_too() {
    let world = world();
    let peer = world.connected("p");
    block_on(peer.remove(world.after(HOUR)));
    assert_eq!(peer.update(MemoryAddress::new("q")), Err(UpdateError::Removed { peer: peer.name().clone() }));
    assert_eq!(world.table.update("p", MemoryAddress::new("q")), Err(UpdateError::Unknown { name: "p".to_owned() }));
    let kept = world.connected("kept");
    block_on(world.table.shutdown(world.after(HOUR)));
    assert_eq!(kept.update(MemoryAddress::new("q")), Err(UpdateError::ShutDown { peer: kept.name().clone() }));
}

#[test]
fn an_address_that_names_another_life_than_answers_is_retried_only_at_the_next_question() {
    let world = world();
    let peer = world.connected("p");
    let held = world.memory.steps().hold(Step::Connect, "p");
    assert!(matches!(peer.update(MemoryAddress::new("p").with_incarnation(Incarnation(1))), Ok(Updated::Retired(_))));
    let mut waiting = Box::pin(peer.ready());
    assert!(poll_once(&mut waiting).is_pending());
    held.release();
    assert!(matches!(block_on(waiting), Err(ReadyError::WrongIncarnation { .. })));
    world.advance(HOUR);
    assert_eq!(world.connects("p"), 2);
}
