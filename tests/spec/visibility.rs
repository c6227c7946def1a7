//! Promise 12. Everything is visible without waiting: phase, generation, incarnation, age, leases, transfers, grants, last
//! error, next try.

use crate::common::*;
use peerage::transport::memory::Step;
use peerage::{Access, DataPlane, Liveness, PeerStatus, Phase, Reason, Region};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn of(world: &World, name: &str) -> PeerStatus {
    let snapshot = world.table.snapshot();
    snapshot.peers.into_iter().find(|peer| peer.name.as_str() == name).expect("a line per peer")
}

#[test]
fn a_snapshot_says_of_every_peer_where_it_stands_since_when_and_what_is_in_use() {
    let world = world();
    let peer = world.connected("p");
    world.settle();
    world.advance(SECOND);
    let region = Region::zeroed(8);
    world.table.register(&region).unwrap();
    let p = world.fabric.node("p");
    let theirs = Region::zeroed(8);
    let lent = p.grants().lend(&"here".try_into().unwrap(), &theirs.slice(0..8).unwrap(), Access::Write);
    let hold = world.memory.steps().hold(Step::Post, "p");
    let leases = [peer.lease().unwrap(), peer.lease().unwrap()];
    let _transfer = leases[0].write(&region.slice(0..8).unwrap(), lent.remote()).unwrap();
    let _grant = world.table.grant(&peer, &region.slice(0..8).unwrap(), Access::Read).unwrap();
    let status = of(&world, "p");
    assert_eq!((status.id, status.phase, status.generation), (peer.id(), Phase::Ready, peer.generation()));
    assert_eq!((status.leases, status.draining, status.transfers, status.grants), (2, 0, 1, 1));
    let record = status.record.expect("the record of this phase");
    assert_eq!(record.incarnation, Some(p.incarnation()));
    assert_eq!((record.reason, record.attempts, &*record.address), (Reason::Ready, 1, "memory:p"));
    assert_eq!(world.clock.now() - record.since, SECOND);
    hold.release();
}

#[test]
fn a_failure_shows_its_error_its_native_code_and_the_next_try() {
    let world = world();
    let peer = world.connected("p");
    let generation = peer.generation();
    world.memory.break_connection("p", broken().with_native_code(-107)).wait();
    world.settle();
    let status = of(&world, "p");
    assert_eq!((status.phase, status.generation), (Phase::Failed, generation));
    let record = status.record.unwrap();
    assert_eq!((record.reason, record.last_error.as_deref()), (Reason::Broken(Some(-107)), Some("cable pulled")));
    assert!(record.retry_at.is_some());
    world.reconnect(&peer);
    let record = of(&world, "p").record.unwrap();
    assert_eq!((record.last_error, record.retry_at), (None, None), "forgotten once it is ready");
}

#[test]
fn a_snapshot_is_answered_while_every_native_call_hangs() {
    let world = world();
    let holds = [(Step::Connect, "c"), (Step::Close, "d"), (Step::Probe, "p")]
        .map(|(step, name)| world.memory.steps().hold(step, name));
    let [closing, probed] = ["d", "p"].map(|name| world.connected(name));
    let connecting = world.peer("c");
    assert!(connecting.lease().is_err());
    let _removal = closing.remove(world.after(SECOND));
    let _probe = probed.probe(world.after(SECOND));
    holds.iter().for_each(|hold| hold.wait_reached(1));
    let phases = ["c", "d", "p"].map(|name| of(&world, name).phase);
    assert_eq!(phases, [Phase::Connecting, Phase::Removing, Phase::Ready]);
    assert_eq!(probed.status().leases, 1, "a probe runs under a lease");
}

#[test]
fn every_generation_is_a_native_connect_or_an_election_that_made_none() {
    let world = world_with(|builder| builder.max_concurrent_connects(2));
    let peers: Vec<_> = (0..8).map(|n| world.connected(&format!("p{n}"))).collect();
    for peer in &peers {
        peer.report(peer.generation(), &broken());
        world.reconnect(peer);
    }
    let snapshot = world.table.snapshot();
    let connects = world.memory.total_counts().connects_begun;
    assert_eq!(snapshot.elections, connects + snapshot.elections_without_connect);
    assert_eq!(connects, 16);
}

#[test]
fn a_record_is_always_of_the_phase_and_generation_beside_it() {
    let world = world();
    let (peer, over) = (world.connected("p"), Arc::new(AtomicBool::new(false)));
    let reader = {
        let (table, over) = (world.table.clone(), over.clone());
        thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                for status in table.snapshot().peers {
                    if let Some(record) = status.record {
                        assert_eq!((record.phase, record.generation), (status.phase, status.generation));
                    }
                }
            }
        })
    };
    for round in 1..=100 {
        peer.report(peer.generation(), &broken());
        // Else the clock, which is moved below, may make its close look late.
        eventually("the old one is closed", || world.closes("p") == round);
        world.reconnect(&peer);
    }
    over.store(true, Ordering::Relaxed);
    reader.join().unwrap();
}

#[test]
fn a_probe_tells_alive_from_dead_and_changes_nothing() {
    let world = world();
    let peer = world.connected("p");
    assert_eq!(block_on(peer.probe(world.after(SECOND))), Liveness::Alive);
    world.memory.steps().fail_next(Step::Probe, "p", 1, broken());
    assert_eq!(block_on(peer.probe(world.after(SECOND))), Liveness::Dead);
    assert_eq!(peer.phase(), Phase::Ready);
    peer.report(peer.generation(), &broken());
    assert_eq!(block_on(peer.probe(world.after(SECOND))), Liveness::Unknown);
}
