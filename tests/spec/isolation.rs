//! Promise 2. A bad peer costs only its own callers: connects run in parallel, and black-holed ones give up their permit.

use crate::common::*;
use peerage::transport::memory::{MemoryError, Step};
use peerage::{BusyCause, Capabilities, ErrorClass, Liveness, Phase, ReadyError, Removed};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(5);

#[test]
fn connects_to_different_peers_run_at_the_same_time() {
    let world = world();
    let holds = ["p", "q", "r"].map(|name| world.memory.steps().hold(Step::Connect, name));
    let peers = ["p", "q", "r"].map(|name| world.peer(name));
    peers.iter().for_each(|peer| assert!(peer.lease().is_err()));
    holds.iter().for_each(|hold| hold.wait_reached(1));
    assert_eq!(world.memory.total_counts().connecting, 3);
}

#[test]
fn beyond_max_stuck_a_connect_is_answered_busy_and_counts_no_failure() {
    let world = world_with(|builder| builder.max_concurrent_connects(1).max_stuck(1).connect_timeout(TIMEOUT));
    let holds = ["a", "b"].map(|name| {
        let hold = world.memory.steps().hold(Step::Connect, name);
        assert!(world.peer(name).lease().is_err());
        hold.wait_reached(1);
        world.advance(TIMEOUT);
        hold
    });
    assert_eq!(world.table.snapshot().stuck_connects, 2);
    let peer = world.peer("c");
    let (phase, generation) = (peer.phase(), peer.generation());
    let retry_after = match block_on(peer.ready()) {
        Err(ReadyError::Busy { peer, cause: BusyCause::StuckConnects(2), retry_after }) if peer.as_str() == "c" => {
            retry_after
        }
        other => panic!("{other:?}"),
    };
    assert_eq!((peer.phase(), peer.generation(), world.connects("c")), (phase, generation, 0));
    assert_eq!(peer.record().unwrap().failures, 0);
    drop(holds);
    eventually("the stuck ones have returned", || world.table.snapshot().stuck_connects == 0);
    world.clock.advance(retry_after);
    block_on(peer.ready()).unwrap();
}

#[test]
fn who_waits_again_while_connects_are_stuck_is_answered_busy_at_once() {
    let world = world_with(|builder| builder.max_concurrent_connects(1).max_stuck(0).connect_timeout(TIMEOUT));
    let hold = world.memory.steps().hold(Step::Connect, "a");
    assert!(world.peer("a").lease().is_err());
    hold.wait_reached(1);
    world.advance(TIMEOUT);
    let peer = world.peer("c");
    for _ in 0..2 {
        assert!(matches!(block_on(peer.ready()), Err(ReadyError::Busy { .. })));
    }
}

#[test]
fn a_peer_in_line_is_not_forgotten_when_a_fault_of_this_process_puts_everybody_off() {
    let world = world_with(|builder| builder.max_concurrent_connects(1));
    let hold = world.memory.steps().hold(Step::Connect, "a");
    world.memory.steps().fail_next(Step::Connect, "a", 1, MemoryError::new(ErrorClass::Local, "no descriptors"));
    let [a, b, c] = ["a", "b", "c"].map(|name| world.peer(name));
    assert!(a.lease().is_err());
    hold.wait_reached(1);
    let (mut second, mut third) = (b.ready(), c.ready());
    assert!(poll_once(&mut second).is_pending());
    assert!(poll_once(&mut third).is_pending());
    world.settle();
    hold.release();
    eventually("a has failed", || a.phase() == Phase::Failed);
    world.wait_out_backoff(&a);
    block_on(second).unwrap();
    block_on(third).unwrap();
}

#[test]
fn a_close_held_for_ever_delays_no_other_close_beyond_its_deadline() {
    let world = world_with(|builder| builder.max_concurrent_closes(1).close_timeout(TIMEOUT));
    let hold = world.memory.steps().hold(Step::Close, "p");
    let (p, q) = (world.connected("p"), world.connected("q"));
    let _held = p.remove(world.after(TIMEOUT * 100));
    hold.wait_reached(1);
    let removal = q.remove(world.after(TIMEOUT * 100));
    world.advance(TIMEOUT);
    assert_eq!(block_on(removal), Removed::Removed);
}

#[test]
fn a_probe_that_hangs_delays_no_close_and_is_answered_at_its_deadline() {
    let world = world_with(|builder| builder.max_concurrent_closes(1));
    let hold = world.memory.steps().hold(Step::Probe, "p");
    let (p, q) = (world.connected("p"), world.connected("q"));
    let probe = p.probe(world.after(TIMEOUT));
    hold.wait_reached(1);
    let removal = q.remove(world.after(TIMEOUT * 100));
    world.advance(TIMEOUT);
    assert_eq!(block_on(removal), Removed::Removed);
    assert_ne!(block_on(probe), Liveness::Alive);
}

#[test]
fn a_peer_in_line_gets_its_permit_also_while_somebody_else_holds_its_state_for_a_moment() {
    for _ in 0..100 {
        let world = world_with(|builder| builder.max_concurrent_connects(1));
        let hold = world.memory.steps().hold(Step::Connect, "a");
        let (a, b) = (world.peer("a"), world.peer("b"));
        assert!(a.lease().is_err());
        hold.wait_reached(1);
        let mut second = b.ready();
        assert!(poll_once(&mut second).is_pending());
        world.settle();
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        drop(world.table.peer("b"))
                    }
                });
            }
            hold.release();
            eventually("a is ready", || a.phase() == Phase::Ready);
            over.store(true, Ordering::Relaxed);
        });
        block_on(second).unwrap();
    }
}

#[test]
fn a_close_of_what_came_too_late_that_is_held_for_ever_delays_no_other_close_either() {
    let world = world_with(|builder| builder.max_concurrent_closes(1).close_timeout(TIMEOUT).connect_timeout(TIMEOUT));
    let hold = world.memory.steps().hold(Step::Connect, "p");
    let closes = world.memory.steps().hold(Step::Close, "p");
    let (p, q) = (world.peer("p"), world.connected("q"));
    assert!(p.lease().is_err());
    hold.wait_reached(1);
    world.advance(TIMEOUT);
    hold.release();
    closes.wait_reached(1);
    let removal = q.remove(world.after(TIMEOUT * 100));
    world.advance(TIMEOUT);
    assert_eq!(block_on(removal), Removed::Removed);
}

#[test]
fn closes_that_hang_one_after_the_other_delay_no_other_close() {
    let world = world_with(|builder| builder.max_concurrent_closes(1).close_timeout(TIMEOUT));
    let peers = ["a", "b", "c", "d"].map(|name| world.connected(name));
    let holds = ["a", "b", "c"].map(|name| world.memory.steps().hold(Step::Close, name));
    let [_, _, _, healthy] = peers.map(|peer| {
        let removal = peer.remove(world.after(TIMEOUT * 100));
        world.settle(); // so they wait for the one place in this order
        removal
    });
    for hold in &holds {
        hold.wait_reached(1);
        world.advance(TIMEOUT);
    }
    assert_eq!(block_on(healthy), Removed::Removed);
}

#[test]
fn closes_that_hang_cost_no_more_threads_than_their_places_and_max_stuck() {
    let world = world_with(|builder| builder.max_concurrent_closes(1).max_stuck(2).close_timeout(TIMEOUT));
    let peers: Vec<_> = (0..6).map(|n| world.connected(&format!("p{n}"))).collect();
    let holds: Vec<_> = peers.iter().map(|peer| world.memory.steps().hold(Step::Close, peer.name().as_str())).collect();
    let removals: Vec<_> = peers.iter().map(|peer| peer.remove(world.after(TIMEOUT * 1_000))).collect();
    let hanging = || holds.iter().map(|hold| hold.reached()).sum::<usize>();
    for threads in 1..=3 {
        eventually("one more hangs", || hanging() == threads);
        world.advance(TIMEOUT);
    }
    for _ in 0..10 {
        world.advance(TIMEOUT);
    }
    assert_eq!(hanging(), 3);
    drop(holds);
    for removal in removals {
        assert_eq!(block_on(removal), Removed::Removed);
    }
}

#[test]
fn closes_of_removed_peers_that_hang_keep_no_other_peer_from_connecting_again() {
    let world = world_of(Capabilities::NATIVE_CLOSE, |builder| {
        builder.max_concurrent_closes(1).max_stuck(1).close_timeout(TIMEOUT)
    });
    let healthy = world.connected("healthy");
    let holds = ["a", "b", "c", "d"].map(|name| {
        let hold = world.memory.steps().hold(Step::Close, name);
        let _removal = world.connected(name).remove(world.after(TIMEOUT));
        world.settle(); // so that they close in this order
        hold
    });
    for hold in &holds[..2] {
        hold.wait_reached(1); // one has the place, then one more has it because the first gave it up
        world.advance(TIMEOUT);
    }
    eventually("as many are overdue as may be", || world.table.snapshot().stuck_closes == 1);
    healthy.report(healthy.generation(), &broken());
    world.reconnect(&healthy);
    drop(holds);
}
