//! A setting may be as large as its type: "for ever" and "no limit" harm neither the driver nor a peer.

use crate::common::*;
use peerage::transport::memory::{Memory, MemoryError, Step};
use peerage::{Backoff, Builder, ErrorClass, Phase, ReadyError, Removed};
use std::time::Duration;

const FOR_EVER: Duration = Duration::MAX;

/// A peer connects, breaks while it is in use, is connected again, and is removed.
fn a_life_is_ordinary_with(set: impl FnOnce(Builder<Memory>) -> Builder<Memory>) {
    let world = world_with(set);
    let peer = world.connected("p");
    let lease = peer.lease().unwrap();
    peer.report(lease.generation(), &broken());
    world.reconnect(&peer);
    drop(lease);
    eventually("the broken one is closed", || world.closes("p") == 1);
    assert_eq!(block_on(peer.remove(world.after(PATIENCE))), Removed::Removed);
}

#[test]
fn an_attempt_may_take_for_ever() {
    a_life_is_ordinary_with(|builder| builder.connect_timeout(FOR_EVER));
}

#[test]
fn a_drain_may_take_for_ever() {
    a_life_is_ordinary_with(|builder| builder.drain_deadline(FOR_EVER));
}

#[test]
fn a_close_may_take_for_ever() {
    a_life_is_ordinary_with(|builder| builder.close_timeout(FOR_EVER));
}

#[test]
fn any_number_of_connects_closes_and_stuck_calls_may_be_allowed() {
    a_life_is_ordinary_with(|builder| {
        builder.max_stuck(usize::MAX).max_concurrent_connects(usize::MAX).max_concurrent_closes(usize::MAX)
    });
}

#[test]
fn a_backoff_that_waits_for_ever_ends_its_attempt_and_says_so() {
    let backoff = Backoff { cap: FOR_EVER, ..Backoff::default() };
    let world = world_with(|builder| builder.backoff(backoff));
    let peer = world.peer("p");
    world.memory.steps().fail_next(Step::Connect, "p", 1, MemoryError::new(ErrorClass::Incompatible, "version 9"));
    assert!(matches!(block_on(peer.ready()), Err(ReadyError::Failed { .. })));
    world.settle();
    assert_eq!((peer.phase(), peer.status().connecting), (Phase::Failed, false));
    assert!(matches!(block_on(peer.ready()), Err(ReadyError::BackingOff { .. })));
}

#[test]
fn a_peer_that_asks_to_be_left_alone_for_ever_delays_nobody_else() {
    let world = world();
    let never = MemoryError::new(ErrorClass::Busy { retry_after: FOR_EVER }, "full");
    world.memory.steps().fail_next(Step::Connect, "p", 1, never);
    assert!(block_on(world.peer("p").ready()).is_err());
    world.connected("q");
}

#[test]
fn a_clock_may_be_moved_by_for_ever_again_and_again() {
    let world = world();
    let peer = world.connected("p");
    for _ in 0..3 {
        world.advance(FOR_EVER);
        peer.report(peer.generation(), &broken());
        world.reconnect(&peer);
    }
}

#[test]
fn a_step_may_be_delayed_for_ever() {
    let world = world();
    let peer = world.connected("p");
    world.memory.steps().delay(Step::Notify, "p", FOR_EVER);
    peer.lease().unwrap().notify(b"late").unwrap();
    world.memory.steps().delay(Step::Connect, "q", FOR_EVER);
    world.memory.steps().delay(Step::Connect, "q", Duration::ZERO);
    world.connected("q");
}
