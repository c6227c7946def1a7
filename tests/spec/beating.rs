//! Heartbeats: who stops answering is suspected, then fails, and nobody is condemned for what is not its fault.

use crate::common::*;
use peerage::transport::memory::{Hold, Memory, MemoryError, Step};
use peerage::{Capabilities, ErrorClass, Heartbeat, Liveness, Peer, Phase, Reason, Transport};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const MOMENT: Duration = Duration::from_millis(1);

fn beating() -> World {
    world_with(|builder| builder.heartbeat(Heartbeat::default()))
}

/// A connected peer that answers no probe from now on, one of which has just begun.
fn stopped(world: &World) -> (Peer<Memory>, Hold) {
    let peer = world.connected("p");
    let hold = world.memory.steps().hold(Step::Probe, "p");
    world.advance(SECOND);
    hold.wait_reached(1);
    world.settle();
    (peer, hold)
}

/// Lets time pass in steps in which every timer is in time.
fn pass(world: &World, seconds: u32) {
    (0..4 * seconds).for_each(|_| world.advance(SECOND / 4));
}

#[test]
fn a_peer_that_stops_answering_is_suspect_after_an_interval_and_fails_after_the_dead_timeout() {
    let world = beating();
    let (peer, hold) = stopped(&world);
    let generation = peer.generation();
    world.advance(SECOND - MOMENT);
    assert!(!peer.is_suspect());
    world.advance(MOMENT);
    assert!(peer.is_suspect() && peer.status().suspect);
    drop(peer.lease().expect("a suspect is not refused"));
    world.advance(2 * SECOND - MOMENT);
    assert_eq!((peer.phase(), peer.generation()), (Phase::Ready, generation));
    world.advance(MOMENT);
    assert_eq!((peer.phase(), peer.generation(), peer.is_suspect()), (Phase::Failed, generation, false));
    let record = peer.record().unwrap();
    assert_eq!((record.reason, record.failures), (Reason::Unresponsive, 1));
    assert_eq!(hold.reached(), 1, "its native call has not returned");
    assert_eq!(world.table.time_to_declare_dead(), Some(4 * SECOND), "the second before the probe began, and three");
}

#[test]
fn a_stopped_peer_that_answers_again_before_the_dead_timeout_is_as_before() {
    let world = beating();
    let (peer, hold) = stopped(&world);
    let before = peer.record().unwrap();
    world.advance(3 * SECOND - MOMENT);
    assert!(peer.is_suspect());
    hold.release();
    eventually("it is not suspected any more", || !peer.is_suspect());
    pass(&world, 5);
    assert_eq!(peer.record().unwrap(), before);
    assert!(!peer.is_suspect() && peer.lease().is_ok());
}

#[test]
fn a_probe_that_waits_for_a_thread_condemns_nobody() {
    let world = world_with(|builder| builder.heartbeat(Heartbeat::default()).max_stuck(0));
    let (stopped, hold) = stopped(&world);
    let healthy = world.connected("healthy");
    let later = world.memory.steps().hold(Step::Probe, "healthy");
    pass(&world, 20);
    assert_eq!((stopped.phase(), hold.reached()), (Phase::Failed, 1), "it holds the only thread");
    assert_eq!((healthy.phase(), healthy.is_suspect()), (Phase::Ready, false));
    hold.release();
    later.wait_reached(1);
    drop(later);
}

#[test]
fn the_silence_of_one_generation_is_not_held_against_the_next() {
    let world = beating();
    let (peer, hold) = stopped(&world);
    world.advance(2 * SECOND);
    assert!(peer.is_suspect());
    peer.report(peer.generation(), &broken());
    assert!(!peer.is_suspect());
    let generation = world.reconnect(&peer);
    world.advance(SECOND);
    assert_eq!((peer.phase(), peer.generation()), (Phase::Ready, generation));
    hold.release();
    eventually("the new one answers", || !peer.is_suspect());
    pass(&world, 5);
    assert_eq!((peer.phase(), peer.generation()), (Phase::Ready, generation));
}

#[test]
fn a_process_that_was_stopped_itself_begins_a_silence_anew() {
    let world = beating();
    let (peer, _hold) = stopped(&world);
    world.advance(60 * SECOND);
    assert_eq!((peer.phase(), peer.is_suspect()), (Phase::Ready, false), "who knows what it has not read");
    world.advance(3 * SECOND);
    assert_eq!(peer.phase(), Phase::Failed);
}

#[test]
fn a_dead_answer_is_silence_and_one_that_can_not_tell_is_none() {
    let world = beating();
    for (answer, class) in [(Liveness::Dead, ErrorClass::PeerBroken), (Liveness::Unknown, ErrorClass::Local)] {
        let name = format!("{answer:?}");
        let peer = world.connected(&name);
        world.memory.steps().fail_next(Step::Probe, &name, 1_000, MemoryError::new(class, "asked"));
        for _ in 0..40 {
            world.advance(SECOND / 4);
            // Time that passes before an answer is there is silence, whatever it says then.
            eventually("who was asked has answered", || world.memory.log().iter().all(|call| call.ending.is_some()));
            assert!(answer == Liveness::Dead || !peer.is_suspect());
        }
        let ended = if answer == Liveness::Dead { Phase::Failed } else { Phase::Ready };
        eventually("it is judged", || {
            world.advance(SECOND / 4);
            peer.phase() == ended
        });
    }
}

#[test]
fn nobody_is_probed_without_heartbeats_or_where_the_transport_can_not() {
    let all = world().memory.capabilities();
    for world in
        [world(), world_of(all.without(Capabilities::PROBE), |builder| builder.heartbeat(Heartbeat::default()))]
    {
        let peer = world.connected("p");
        let hold = world.memory.steps().hold(Step::Probe, "p");
        pass(&world, 20);
        assert_eq!((peer.phase(), hold.reached()), (Phase::Ready, 0));
        assert_eq!((world.table.time_to_declare_dead(), world.table.time_to_reusable()), (None, None));
    }
}

#[test]
fn how_long_until_a_peer_may_be_used_again_counts_what_the_transport_makes_necessary() {
    let all = world().memory.capabilities();
    let reusable = |capabilities| {
        let world = world_of(capabilities, |builder| builder.heartbeat(Heartbeat::default()));
        world.table.time_to_reusable().unwrap()
    };
    let overlapping = Duration::from_millis(3_000 + 1_000 + 50 + 5_000);
    assert_eq!(reusable(all), overlapping);
    assert_eq!(reusable(all.without(Capabilities::OVERLAP)), overlapping + 10 * SECOND);
}
