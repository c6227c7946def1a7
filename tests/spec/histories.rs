//! Promise 12, after the fact: what a peer went through is kept with its reasons and times.

use crate::common::*;
use peerage::transport::memory::Step;
use peerage::{Capabilities, Phase, Reason, Transition};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// The phase before, how long it lasted, the phase, and why.
fn told(history: &[Transition]) -> Vec<(Option<Phase>, Option<Duration>, Phase, Reason)> {
    history.iter().map(|one| (one.before, one.lasted, one.phase, one.reason)).collect()
}

fn phases(history: &[Transition]) -> Vec<Phase> {
    history.iter().map(|one| one.phase).collect()
}

#[test]
fn a_history_tells_every_phase_with_its_reason_and_how_long_it_lasted() {
    let world = world();
    let peer = world.peer("p");
    world.advance(SECOND);
    let hold = world.memory.steps().hold(Step::Connect, "p");
    assert!(peer.lease().is_err());
    hold.wait_reached(1);
    world.advance(2 * SECOND);
    hold.release();
    let generation = block_on(peer.ready()).unwrap();
    world.advance(3 * SECOND);
    world.memory.break_connection("p", broken().with_native_code(-107)).wait();
    world.settle();
    world.advance(4 * SECOND);
    block_on(peer.remove(world.after(SECOND)));
    let history = peer.history();
    let zero = Some(Duration::ZERO);
    assert_eq!(
        told(&history),
        [
            (None, None, Phase::Idle, Reason::NotAsked),
            (Some(Phase::Idle), Some(SECOND), Phase::Connecting, Reason::Connecting),
            (Some(Phase::Connecting), Some(2 * SECOND), Phase::Ready, Reason::Ready),
            (Some(Phase::Ready), Some(3 * SECOND), Phase::Failed, Reason::Broken(Some(-107))),
            (Some(Phase::Failed), Some(4 * SECOND), Phase::Removing, Reason::Removed),
            (Some(Phase::Removing), zero, Phase::Removed, Reason::Removed),
        ]
    );
    assert!(history[1..].iter().all(|one| one.generation == generation) && history[0].generation != generation);
    assert_eq!((history[3].native_code(), history[2].native_code()), (Some(-107), None));
    assert_eq!(history[4].since - history[0].since, 10 * SECOND);
}

#[test]
fn a_history_keeps_the_last_thirty_two() {
    let world = world();
    let peer = world.peer("p");
    world.memory.steps().fail_next(Step::Connect, "p", 20, broken());
    for _ in 0..20 {
        world.wait_out_backoff(&peer);
        block_on(peer.ready()).unwrap_err();
    }
    let history = peer.history();
    assert_eq!(phases(&history), [Phase::Connecting, Phase::Failed].repeat(16));
    assert_eq!(history[31].generation, peer.generation());
}

#[test]
fn what_is_learned_of_a_phase_later_is_no_transition_but_its_reason() {
    let world = world_of(Capabilities::NATIVE_CLOSE, |builder| builder);
    let peer = world.connected("p");
    let lease = peer.lease().unwrap();
    peer.report(peer.generation(), &broken());
    world.settle();
    let before = peer.history();
    assert!(peer.lease().is_err());
    world.advance(3600 * SECOND); // beyond the drain deadline
    let after = peer.history();
    assert_eq!((before[3].reason, after[3].reason), (Reason::Broken(None), Reason::Undrained));
    assert_eq!((after.len(), after[3].since), (4, before[3].since));
    drop(lease);
}
