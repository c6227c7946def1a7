//! Who is removed by the table itself, with nothing else going on; and who never is.

use crate::common::*;
use peerage::transport::memory::{Memory, MemoryAddress, Step};
use peerage::{Access, DataPlane, Heartbeat, Peer, Phase, Reason, Region, Updated};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn removing_failed() -> World {
    world_with(|builder| builder.remove_failed_after(10 * SECOND))
}

fn evicting() -> World {
    world_with(|builder| builder.idle_ttl(10 * SECOND))
}

fn is_gone(world: &World, peer: &Peer<Memory>, reason: Reason) {
    eventually("its connection is closed", || peer.phase() == Phase::Removed);
    assert_eq!(peer.lease().unwrap_err().reason, reason);
    assert!(world.table.peer(peer.name().as_str()).is_none(), "its name is free");
}

#[test]
fn attempts_that_fail_do_not_put_it_off_and_a_connection_or_another_process_does() {
    let world = removing_failed();
    let peer = world.connected("p");
    let fail = || {
        peer.report(peer.generation(), &broken());
        world.settle();
    };
    fail();
    world.advance(9 * SECOND);
    world.reconnect(&peer);
    fail();
    world.advance(9 * SECOND);
    let elsewhere = MemoryAddress::new("elsewhere").with_incarnation(peerage::Incarnation(7));
    assert_eq!(peer.update(elsewhere).unwrap(), Updated::Stored);
    world.advance(5 * SECOND);
    for _ in 0..4 {
        assert!(block_on(peer.ready()).is_err(), "nobody lives there");
        assert_eq!(peer.phase(), Phase::Failed);
        world.wait_out_backoff(&peer);
    }
    world.advance(5 * SECOND);
    is_gone(&world, &peer, Reason::FailedTooLong);
}

#[test]
fn who_stands_well_or_was_never_asked_for_is_not_removed_for_failing_and_by_default_nobody_is() {
    let (world, patient) = (removing_failed(), world());
    let peers = [world.peer("idle"), world.connected("ready"), patient.connected("failed")];
    peers[2].report(peers[2].generation(), &broken());
    world.advance(1_000 * SECOND);
    patient.advance(1_000 * SECOND);
    assert_eq!(peers.map(|peer| peer.phase()), [Phase::Idle, Phase::Ready, Phase::Failed]);
}

#[test]
fn a_peer_that_nobody_uses_is_evicted_wherever_it_stands() {
    let world = world_with(|builder| builder.idle_ttl(10 * SECOND).heartbeat(Heartbeat::default()));
    let peers = [world.peer("idle"), world.connected("ready"), world.connected("failed")];
    peers[2].report(peers[2].generation(), &broken());
    for _ in 0..20 {
        world.advance(SECOND);
    }
    peers.iter().for_each(|peer| is_gone(&world, peer, Reason::IdleTooLong));
    assert_eq!([world.closes("ready"), world.closes("failed")], [1, 1]);
    assert_eq!(world.table.snapshot().peers.len(), 0);
}

#[test]
fn a_peer_that_is_leased_or_asked_for_in_time_is_kept() {
    let world = evicting();
    let [leased, refused, waited_for, inserted] =
        ["leased", "refused", "waited for", "inserted"].map(|name| world.connected(name));
    let hold = ["refused", "waited for"].map(|name| world.memory.steps().hold(Step::Connect, name));
    for peer in [&refused, &waited_for] {
        peer.report(peer.generation(), &broken());
    }
    world.settle();
    world.advance(SECOND);
    for _ in 0..10 {
        world.advance(9 * SECOND);
        drop(leased.lease().unwrap());
        assert!(refused.lease().is_err());
        drop(poll_once(&mut waited_for.ready()));
        drop(world.peer("inserted"));
    }
    let phases = [&leased, &refused, &waited_for, &inserted].map(|peer| peer.phase());
    assert!(!phases.contains(&Phase::Removing) && !phases.contains(&Phase::Removed), "{phases:?}");
    drop(hold);
    for _ in 0..40 {
        world.advance(SECOND);
    }
    is_gone(&world, &leased, Reason::IdleTooLong);
    is_gone(&world, &inserted, Reason::IdleTooLong);
}

#[test]
fn a_peer_with_leases_transfers_or_grants_is_never_evicted() {
    let world = evicting();
    let [leased, posting, lent] = ["leased", "posting", "lent"].map(|name| world.connected(name));
    let region = Region::zeroed(8);
    world.table.register(&region).unwrap();
    let page = || region.slice(0..8).unwrap();
    let theirs = Region::zeroed(8);
    let remote = world.fabric.node("posting").grants().lend(
        &"here".try_into().unwrap(),
        &theirs.slice(0..8).unwrap(),
        Access::Write,
    );
    let hold = world.memory.steps().hold(Step::Post, "posting");
    let lease = leased.lease().unwrap();
    let transfer = posting.lease().unwrap().write(&page(), remote.remote()).unwrap();
    let grant = world.table.grant(&lent, &page(), Access::Read).unwrap();
    for _ in 0..100 {
        world.advance(SECOND);
    }
    assert_eq!([&leased, &posting, &lent].map(|peer| peer.phase()), [Phase::Ready; 3]);
    hold.release();
    block_on(transfer);
    block_on(grant.revoke());
    drop(lease);
    for _ in 0..20 {
        world.advance(SECOND);
    }
    [&leased, &posting, &lent].iter().for_each(|peer| is_gone(&world, peer, Reason::IdleTooLong));
}
