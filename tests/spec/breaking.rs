//! What a peer gets that goes on failing, and what keeps that from harming the others.

use crate::common::*;
use peerage::transport::memory::{Memory, MemoryError, Step};
use peerage::{Backoff, Breaker, BusyCause, ErrorClass, Peer, Phase, ReadyError};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// Opens after three failures for half a minute to a minute; windows of at most a second before that.
fn breaking(peers: usize, max_open_percent: u8) -> (World, Vec<Peer<Memory>>) {
    let backoff = Backoff { base: SECOND, cap: SECOND, ..Backoff::default() };
    let breaker = Breaker { after: 3, open_for: MINUTE, max_open_percent };
    let world = world_with(|builder| builder.backoff(backoff).breaker(breaker));
    let peers = (0..peers).map(|at| world.peer(&format!("p{at}"))).collect();
    (world, peers)
}

/// Fails so many attempts, each as soon as it may start.
fn fail(world: &World, peer: &Peer<Memory>, attempts: usize) {
    world.memory.steps().fail_next(Step::Connect, peer.name().as_str(), attempts, broken());
    for _ in 0..attempts {
        world.wait_out_backoff(peer);
        assert!(matches!(block_on(peer.ready()), Err(ReadyError::Failed { .. })));
    }
}

fn wait_of(world: &World, peer: &Peer<Memory>) -> Duration {
    record_of(peer).retry_at.unwrap().saturating_duration_since(world.clock.now())
}

fn is_open(peer: &Peer<Memory>) -> bool {
    record_of(peer).breaker_open
}

#[test]
fn the_breaker_opens_after_its_failures_and_then_one_attempt_runs_at_a_time() {
    let (world, peers) = breaking(1, 10);
    let peer = &peers[0];
    fail(&world, peer, 2);
    assert!(!is_open(peer) && wait_of(&world, peer) < SECOND);
    fail(&world, peer, 1);
    assert!(is_open(peer) && (MINUTE / 2..MINUTE).contains(&wait_of(&world, peer)));
    world.advance(MINUTE / 2 - SECOND);
    assert!(peer.lease().is_err());
    assert_eq!(world.connects("p0"), 3, "it is open");
    // The lease has asked for it, so it starts by itself when it may.
    world.memory.steps().fail_next(Step::Connect, "p0", 1, broken());
    world.wait_out_backoff(peer);
    eventually("half open, one failure opens it again", || is_open(peer) && wait_of(&world, peer) >= MINUTE / 2);
    assert_eq!(world.connects("p0"), 4);
}

#[test]
fn a_connection_closes_the_breaker_and_nobody_restarts_anything() {
    let (world, peers) = breaking(1, 10);
    let peer = &peers[0];
    fail(&world, peer, 3);
    world.wait_out_backoff(peer);
    block_on(peer.ready()).unwrap();
    assert!(!is_open(peer));
    world.advance(Backoff::default().min_stable);
    peer.report(peer.generation(), &broken());
    world.settle();
    assert!(!is_open(peer) && wait_of(&world, peer) < SECOND, "stable: forgiven");
}

#[test]
fn a_live_peer_whose_connections_break_again_and_again_is_slowed_down_too() {
    let (world, peers) = breaking(1, 10);
    let peer = &peers[0];
    block_on(peer.ready()).unwrap();
    for flap in 1..=3 {
        peer.report(peer.generation(), &broken());
        world.settle();
        assert_eq!(is_open(peer), flap == 3);
        world.reconnect(peer);
    }
}

#[test]
fn when_many_fail_at_once_only_a_share_of_the_breakers_opens_and_the_others_come_back_within_the_cap() {
    let (world, peers) = breaking(20, 10);
    peers.iter().for_each(|peer| fail(&world, peer, 3));
    let (open, closed): (Vec<_>, Vec<_>) = peers.iter().partition(|peer| is_open(peer));
    assert_eq!((open.len(), closed.len()), (2, 18));
    world.advance(SECOND);
    closed.iter().for_each(|peer| drop(peer.lease()));
    eventually("the outage is over for them", || closed.iter().all(|peer| peer.phase() == Phase::Ready));
    assert!(open.iter().all(|peer| peer.phase() == Phase::Failed));
}

#[test]
fn an_open_breaker_gives_its_share_back_when_its_peer_is_removed_or_updated() {
    let (world, peers) = breaking(3, 1);
    fail(&world, &peers[0], 3);
    fail(&world, &peers[1], 3);
    assert_eq!([0, 1].map(|at| is_open(&peers[at])), [true, false], "one at a time");
    let elsewhere = peerage::transport::memory::MemoryAddress::new("elsewhere");
    peers[0].update(elsewhere).unwrap();
    fail(&world, &peers[1], 1);
    assert_eq!([0, 1].map(|at| is_open(&peers[at])), [false, true]);
    block_on(peers[1].remove(world.after(SECOND)));
    fail(&world, &peers[2], 3);
    assert!(is_open(&peers[2]));
}

#[test]
fn what_is_no_fault_of_the_peer_opens_nothing() {
    let (world, peers) = breaking(2, 100);
    for (peer, class) in peers.iter().zip([ErrorClass::Local, ErrorClass::Busy { retry_after: SECOND }]) {
        let name = peer.name().as_str();
        world.memory.steps().fail_next(Step::Connect, name, 10, MemoryError::new(class, "not yours"));
        for _ in 0..10 {
            world.advance(MINUTE);
            assert!(matches!(block_on(peer.ready()), Err(ReadyError::Failed { .. })));
        }
        assert_eq!((is_open(peer), record_of(peer).failures), (false, 0));
        world.advance(MINUTE);
    }
}

#[test]
fn the_wait_after_a_failed_attempt_runs_from_its_start_and_after_a_broken_generation_from_its_end() {
    let backoff = Backoff { base: SECOND, cap: SECOND, ..Backoff::default() };
    let world = world_with(|builder| builder.backoff(backoff));
    let peer = world.peer("p");
    world.memory.steps().fail_next(Step::Connect, "p", 1, broken());
    let slow = world.memory.steps().hold(Step::Connect, "p");
    let waiting = peer.ready();
    let mut waiting = Box::pin(waiting);
    assert!(poll_once(&mut waiting).is_pending());
    slow.wait_reached(1);
    world.clock.advance(SECOND);
    slow.release();
    assert!(matches!(block_on(waiting), Err(ReadyError::Failed { .. })));
    assert_eq!(wait_of(&world, &peer), Duration::ZERO, "the attempt took as long as the widest wait");
    block_on(peer.ready()).unwrap();
    world.advance(MINUTE);
    peer.report(peer.generation(), &broken());
    world.settle();
    assert!(wait_of(&world, &peer) > Duration::ZERO, "or all who lost it would dial at once");
}

#[test]
fn more_callers_than_may_wait_are_told_and_the_others_get_their_outcome() {
    let world = world_with(|builder| builder.max_waiters_per_peer(3));
    let peer = world.peer("p");
    let hold = world.memory.steps().hold(Step::Connect, "p");
    let mut waiting: Vec<_> = (0..3).map(|_| peer.ready()).collect();
    assert!(waiting.iter_mut().all(|ready| poll_once(ready).is_pending()));
    for refused in [block_on(peer.ready()), peer.wait_ready(far())] {
        assert!(matches!(refused, Err(ReadyError::Busy { cause: BusyCause::Waiters(3), .. })), "{refused:?}");
    }
    drop(waiting.pop());
    let mut late = peer.ready();
    assert!(poll_once(&mut late).is_pending(), "there is room again");
    hold.release();
    for ready in waiting.into_iter().chain([late]) {
        block_on(ready).unwrap();
    }
}
