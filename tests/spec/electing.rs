//! A user who connects by itself: the ticket is the right and the duty to end one attempt (promise 1), whoever holds it.

use crate::common::*;
use peerage::transport::memory::{Memory, MemoryAddress, Step};
use peerage::{Capabilities, NotElected, Peer, Phase, PublishError, ReadyError, Removed, Ticket, Transport};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// What the holder of a ticket does with it.
fn connect(world: &World, ticket: Ticket<Memory>) -> Result<peerage::Generation, PublishError> {
    let connected = world.memory.connect(ticket.context(), ticket.address()).unwrap();
    ticket.publish(connected)
}

fn elected(peer: &Peer<Memory>) -> Ticket<Memory> {
    peer.try_elect().expect("nobody else connects")
}

#[test]
fn the_holder_of_the_ticket_connects_and_everybody_who_waits_gets_the_outcome() {
    let world = world();
    let peer = world.peer("p");
    let ticket = elected(&peer);
    assert_eq!((peer.phase(), peer.generation()), (Phase::Connecting, ticket.generation()));
    let mut waiting = peer.ready();
    assert!(poll_once(&mut waiting).is_pending());
    let generation = connect(&world, ticket).unwrap();
    assert_eq!((block_on(waiting).unwrap(), peer.lease().unwrap().generation()), (generation, generation));
    assert_eq!(world.connects("p"), 1);
}

#[test]
fn nobody_else_is_elected_while_a_ticket_exists_the_lane_included() {
    let world = world();
    let peer = world.peer("p");
    let ticket = elected(&peer);
    match peer.try_elect() {
        Err(NotElected::Connecting { generation, .. }) => assert_eq!(generation, ticket.generation()),
        other => panic!("{other:?}"),
    }
    assert!(peer.lease().is_err());
    world.settle();
    assert_eq!(world.connects("p"), 0);
    connect(&world, ticket).unwrap();
    assert!(matches!(peer.try_elect(), Err(NotElected::Ready { .. })));
}

#[test]
fn a_failed_ticket_fails_the_attempt_for_all_and_backs_off() {
    let world = world();
    let peer = world.peer("p");
    let ticket = elected(&peer);
    let waiting = peer.ready();
    let mut waiting = Box::pin(waiting);
    assert!(poll_once(&mut waiting).is_pending());
    ticket.fail(broken());
    assert!(matches!(block_on(waiting), Err(ReadyError::Failed { .. })));
    assert!(matches!(peer.try_elect(), Err(NotElected::NotNow(ReadyError::BackingOff { .. }))));
    world.wait_out_backoff(&peer);
    connect(&world, elected(&peer)).unwrap();
    assert_eq!(peer.record().unwrap().attempts, 2);
}

#[test]
fn a_dropped_ticket_fails_the_attempt() {
    let world = world();
    let peer = world.peer("p");
    drop(elected(&peer));
    assert_eq!(peer.phase(), Phase::Failed);
    world.reconnect(&peer);
}

#[test]
fn a_ticket_expires_and_what_it_publishes_then_is_closed_before_the_next_connect() {
    let world = world_with(|builder| builder.connect_timeout(SECOND));
    let peer = world.peer("p");
    let ticket = elected(&peer);
    assert_eq!(ticket.deadline(), world.after(SECOND));
    let connected = world.memory.connect(ticket.context(), ticket.address()).unwrap();
    let mut waiting = peer.ready();
    assert!(poll_once(&mut waiting).is_pending());
    world.settle();
    world.advance(SECOND);
    assert!(matches!(block_on(waiting), Err(ReadyError::TimedOut { .. })));
    assert!(ticket.is_cancelled());
    world.wait_out_backoff(&peer);
    let refused = peer.try_elect();
    assert!(matches!(refused, Err(NotElected::NotNow(ReadyError::Busy { .. }))), "a native call may run: {refused:?}");
    assert!(peer.lease().is_err());
    world.settle();
    assert_eq!((world.connects("p"), world.table.snapshot().stuck_connects), (1, 0), "no thread of ours is stuck");
    assert!(matches!(ticket.publish(connected), Err(PublishError::Superseded { phase: Phase::Failed, .. })));
    eventually("what came too late is closed", || world.closes("p") == 1);
    block_on(peer.ready()).unwrap();
    let counts = world.memory.counts("p");
    assert_eq!((counts.closes, counts.connects_begun, counts.open_max), (1, 2, 1));
}

#[test]
fn a_forgotten_ticket_blocks_its_peer_and_shows() {
    let world = world_with(|builder| builder.connect_timeout(SECOND).max_concurrent_connects(1).max_stuck(0));
    let (peer, other) = (world.peer("p"), world.peer("q"));
    std::mem::forget(elected(&peer));
    assert!(matches!(other.try_elect(), Err(NotElected::NotNow(ReadyError::Busy { .. }))), "it holds the only permit");
    world.advance(SECOND);
    block_on(other.ready()).expect("it has given its permit up");
    assert!(peer.status().connecting);
    let removal = peer.remove(world.after(SECOND));
    world.advance(SECOND);
    assert!(matches!(block_on(removal), Removed::StillBusy { connecting: true, .. }));
}

#[test]
fn a_ticket_of_a_removed_peer_publishes_nothing() {
    let world = world();
    let peer = world.peer("p");
    let ticket = elected(&peer);
    let removal = peer.remove(world.after(HOUR));
    assert!(ticket.is_cancelled());
    assert!(matches!(connect(&world, ticket), Err(PublishError::Superseded { .. })));
    assert_eq!(block_on(removal), Removed::Removed);
    assert_eq!(world.closes("p"), 1);
    assert!(matches!(peer.try_elect(), Err(NotElected::NotNow(ReadyError::Removed { .. }))));
}

#[test]
fn a_ticket_outlives_its_table() {
    let world = world();
    let peer = world.peer("p");
    let ticket = elected(&peer);
    let report = block_on(world.table.shutdown(world.clock.now()));
    assert_eq!(report.stuck_connects, [peer.name().clone()]);
    drop(connect(&world, ticket));
    eventually("what it published is closed", || world.closes("p") == 1);
    assert!(matches!(peer.try_elect(), Err(NotElected::NotNow(ReadyError::ShutDown { .. }))));
}

#[test]
fn a_ticket_whose_address_names_another_life_is_told_and_undone() {
    let world = world();
    world.fabric.node("p");
    let wrong = MemoryAddress::new("p").with_incarnation(peerage::Incarnation(1));
    let peer = world.table.insert("p", wrong).unwrap();
    let ticket = elected(&peer);
    assert!(matches!(connect(&world, ticket), Err(PublishError::WrongIncarnation { .. })));
    eventually("it is closed", || world.closes("p") == 1);
    assert_eq!(peer.phase(), Phase::Failed);
}

#[test]
fn nobody_is_elected_while_the_old_connection_is_in_the_way() {
    let world = world_of(Capabilities::NATIVE_CLOSE, |builder| builder);
    let peer = world.connected("p");
    let lease = peer.lease().unwrap();
    peer.report(peer.generation(), &broken());
    world.wait_out_backoff(&peer);
    match peer.try_elect() {
        Err(NotElected::NotNow(ReadyError::Undrained { leases: 1, .. })) => {}
        other => panic!("{other:?}"),
    }
    drop(lease);
    eventually("it is closed", || world.closes("p") == 1);
    world.settle();
    connect(&world, elected(&peer)).unwrap();
}

#[test]
fn peers_that_time_out_share_half_of_the_permits_and_starve_nobody() {
    let world = world_with(|builder| builder.connect_timeout(SECOND).max_concurrent_connects(4).max_stuck(100));
    let dead: Vec<_> = (0..20).map(|at| world.peer(&format!("dead-{at}"))).collect();
    let holds: Vec<_> =
        dead.iter().map(|peer| world.memory.steps().hold(Step::Connect, peer.name().as_str())).collect();
    let ask = || dead.iter().for_each(|peer| drop(peer.lease()));
    // Each runs into its deadline once; then all of them ask again, and again.
    ask();
    for _ in 0..5 {
        world.settle();
        world.advance(SECOND);
    }
    assert!(dead.iter().all(|peer| peer.phase() == Phase::Failed));
    holds.into_iter().for_each(peerage::transport::memory::Hold::release);
    eventually("their old connects are back", || dead.iter().all(|peer| !peer.status().connecting));
    let _black_holes: Vec<_> =
        dead.iter().map(|peer| world.memory.steps().hold(Step::Connect, peer.name().as_str())).collect();
    world.advance(HOUR);
    ask();
    world.settle();
    let connecting = || dead.iter().filter(|peer| peer.phase() == Phase::Connecting).count();
    assert_eq!(connecting(), 2, "half of four");
    let healthy: Vec<_> = (0..10).map(|at| world.peer(&format!("healthy-{at}"))).collect();
    for peer in &healthy {
        block_on(peer.ready()).unwrap();
    }
    assert_eq!(connecting(), 2);
}
