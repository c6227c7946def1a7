//! A probe asks and does nothing else, and waits for nothing but its peer.

use crate::common::*;
use peerage::transport::memory::{Hold, Step};
use peerage::{Liveness, Phase};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// One closing thread, on which the close of a stranger hangs.
fn world_whose_only_closing_thread_hangs() -> (World, Hold) {
    let world = world_with(|builder| builder.max_concurrent_closes(1));
    let stranger = world.connected("stranger");
    let hold = world.memory.steps().hold(Step::Close, "stranger");
    stranger.report(stranger.generation(), &broken());
    hold.wait_reached(1);
    (world, hold)
}

#[test]
fn a_probe_of_a_peer_that_is_not_ready_can_not_tell_and_connects_nothing() {
    let world = world();
    let peer = world.peer("p");
    assert_eq!(block_on(peer.probe(world.after(SECOND))), Liveness::Unknown);
    world.settle();
    assert_eq!((peer.phase(), world.connects("p")), (Phase::Idle, 0));
    let peer = world.connected("q");
    peer.report(peer.generation(), &broken());
    assert_eq!(block_on(peer.probe(world.after(SECOND))), Liveness::Unknown);
    world.wait_out_backoff(&peer);
    world.settle();
    assert_eq!((peer.phase(), world.connects("q")), (Phase::Failed, 1));
}

#[test]
fn a_probe_of_a_peer_that_is_not_ready_is_answered_at_once() {
    let (world, _hold) = world_whose_only_closing_thread_hangs();
    let mut probe = world.peer("p").probe(world.after(SECOND));
    assert_eq!(poll_once(&mut probe), std::task::Poll::Ready(Liveness::Unknown));
}

#[test]
fn a_probe_of_a_healthy_peer_does_not_wait_for_the_close_of_another() {
    let (world, hold) = world_whose_only_closing_thread_hangs();
    let peer = world.connected("p");
    assert_eq!(block_on(peer.probe(world.after(SECOND))), Liveness::Alive);
    assert_eq!(hold.reached(), 1, "it still hangs");
}

#[test]
fn probes_that_hang_cost_no_more_threads_than_max_stuck_and_the_next_can_not_tell() {
    let world = world_with(|builder| builder.max_stuck(2));
    let hold = world.memory.steps().hold(Step::Probe, "p");
    let peer = world.connected("p");
    let hanging = [(); 2].map(|()| peer.probe(world.after(SECOND)));
    hold.wait_reached(2);
    let mut third = peer.probe(world.after(SECOND));
    assert_eq!(poll_once(&mut third), std::task::Poll::Ready(Liveness::Unknown));
    world.advance(SECOND);
    for probe in hanging {
        assert_eq!(block_on(probe), Liveness::Dead);
    }
    hold.release();
    eventually("there is room again", || block_on(peer.probe(world.after(SECOND))) == Liveness::Alive);
}
