//! `remove` says what really happened, everybody who removes is told the same, and the name is free at once.

use crate::common::*;
use peerage::transport::memory::{CloseAnswer, Step};
use peerage::{Capabilities, Phase, ReadyError, Reason, Removed};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

fn a_removal_resolves_when_nothing_of_the_peer_is_left<F: Fleet>() {
    let fleet = F::of(&["p"]);
    let table = table_of(&fleet);
    let peer = insert(&fleet, &table, "p");
    peer.wait_ready(far()).unwrap();
    assert_eq!(peer.remove(far()).wait().unwrap(), Removed::Removed);
    let counts = table.transport().total();
    assert_eq!((counts.closes, counts.open), (1, 0));
    assert!(table.peer("p").is_none() && table.snapshot().peers.is_empty());
    let again = insert(&fleet, &table, "p");
    again.wait_ready(far()).unwrap();
    assert_eq!(peer.phase(), Phase::Removed, "the old handle stays what it was");
}

with_transports!(a_removal_resolves_when_nothing_of_the_peer_is_left);

#[test]
fn a_peer_that_was_never_connected_is_removed_without_a_native_call() {
    let world = world();
    let peer = world.peer("p");
    assert_eq!(block_on(peer.remove(world.after(HOUR))), Removed::Removed);
    assert!(world.memory.log().is_empty());
}

#[test]
fn at_its_deadline_a_removal_says_what_is_still_busy_and_goes_on() {
    let world = world();
    let peer = world.connected("p");
    let lease = peer.lease().unwrap();
    let mut removal = peer.remove(world.after(SECOND));
    world.settle();
    assert!(poll_once(&mut removal).is_pending());
    assert_eq!((peer.phase(), world.table.peer("p").is_none()), (Phase::Removing, true));
    world.clock.advance(SECOND);
    let ended = block_on(removal);
    let leased =
        matches!(ended, Removed::StillBusy { leases: 1, oldest: SECOND, connecting: false, closing: false, .. });
    assert!(leased, "{ended:?}");
    drop(lease);
    eventually("the removal went on", || peer.phase() == Phase::Removed);
    assert_eq!(world.closes("p"), 1);
}

#[test]
fn a_removal_waits_for_a_native_connect_that_has_not_returned_and_says_so() {
    let world = world();
    let peer = world.peer("p");
    let hold = world.memory.steps().hold(Step::Connect, "p");
    assert!(peer.lease().is_err());
    hold.wait_reached(1);
    let removal = peer.remove(world.after(SECOND));
    world.clock.advance(SECOND);
    let ended = block_on(removal);
    let connecting = matches!(ended, Removed::StillBusy { leases: 0, oldest: SECOND, connecting: true, .. });
    assert!(connecting, "{ended:?}");
    hold.release();
    assert_eq!(block_on(peer.remove(world.after(HOUR))), Removed::Removed);
}

#[test]
fn two_removers_get_the_same_end_and_a_dropped_one_cancels_nothing() {
    for (answer, end) in [(None, Removed::Removed), (Some("kept"), Removed::Leaked("kept"))] {
        let world = world();
        let peer = world.connected("p");
        let lease = peer.lease().unwrap();
        if let Some(why) = answer {
            world.memory.steps().close_next("p", 1, CloseAnswer::Leaked(why));
        }
        drop(peer.remove(world.after(HOUR)));
        let (one, two) = (peer.remove(world.after(HOUR)), peer.clone().remove(world.after(HOUR * 2)));
        drop(lease);
        assert_eq!((block_on(one), block_on(two)), (end.clone(), end.clone()));
        assert_eq!(block_on(peer.remove(world.after(HOUR))), end, "and so does who comes later");
        assert_eq!(world.closes("p"), 1);
    }
}

#[test]
fn a_name_is_free_once_its_removal_has_begun_where_two_connections_are_allowed() {
    let world = world();
    let old = world.connected("p");
    let lease = old.lease().unwrap();
    let removal = old.remove(world.after(HOUR));
    let new = world.connected("p");
    assert_ne!(old.id(), new.id());
    assert_eq!((old.phase(), new.phase()), (Phase::Removing, Phase::Ready));
    drop(lease);
    assert_eq!(block_on(removal), Removed::Removed);
    assert!(world.table.lease("p").unwrap().generation() > old.generation());
}

#[test]
fn a_name_inserted_again_connects_when_its_former_peer_is_gone_where_the_native_side_has_one_slot_per_name() {
    let world = world_of(Capabilities::NATIVE_CLOSE, |builder| builder);
    let old = world.connected("p");
    let lease = old.lease().unwrap();
    let removal = old.remove(world.after(HOUR));
    let new = world.peer("p");
    let mut waiting = new.ready();
    assert!(poll_once(&mut waiting).is_pending());
    world.settle();
    assert_eq!((new.phase(), world.connects("p"), world.closes("p")), (Phase::Idle, 1, 0));
    drop(lease);
    assert_eq!(block_on(removal), Removed::Removed);
    assert!(block_on(waiting).unwrap() > old.generation());
    assert_eq!((world.connects("p"), world.closes("p"), world.memory.counts("p").open_max), (2, 1, 1));
}

#[test]
fn a_name_inserted_again_connects_when_the_native_connect_of_its_former_peer_is_back() {
    let world = world();
    let hold = world.memory.steps().hold(Step::Connect, "p");
    let old = world.peer("p");
    assert!(old.lease().is_err());
    hold.wait_reached(1);
    let removal = old.remove(world.after(HOUR));
    let new = world.peer("p");
    assert!(new.lease().is_err());
    world.settle();
    assert_eq!((new.phase(), world.connects("p")), (Phase::Idle, 1));
    hold.release();
    assert_eq!(block_on(removal), Removed::Removed);
    block_on(new.ready()).unwrap();
    let counts = world.memory.counts("p");
    assert_eq!((counts.connecting_max, counts.duplicate_connects), (1, 0));
}

#[test]
fn who_waits_behind_a_former_peer_that_does_not_go_is_told_at_the_drain_deadline_and_connects_when_it_has_gone() {
    let world = world_of(Capabilities::NATIVE_CLOSE, |builder| builder.drain_deadline(SECOND));
    let old = world.connected("p");
    let lease = old.lease().unwrap();
    let removal = old.remove(world.after(HOUR));
    let new = world.peer("p");
    let mut waiting = new.ready();
    assert!(poll_once(&mut waiting).is_pending());
    world.settle();
    world.advance(SECOND);
    let told = |outcome| matches!(outcome, Err(ReadyError::WaitingForPredecessor { waited: SECOND, .. }));
    assert!(told(block_on(waiting)));
    assert!(told(block_on(new.ready())), "and so is who comes later, at once");
    assert_eq!(new.lease().unwrap_err().reason, Reason::WaitingForPredecessor);
    drop(lease);
    assert_eq!(block_on(removal), Removed::Removed);
    block_on(new.ready()).unwrap();
}

#[test]
fn a_successor_removed_first_hands_its_predecessor_on() {
    let world = world_of(Capabilities::NATIVE_CLOSE, |builder| builder);
    let old = world.connected("p");
    let lease = old.lease().unwrap();
    let removal = old.remove(world.after(HOUR));
    for _ in 0..3 {
        let between = world.peer("p");
        assert!(between.lease().is_err());
        assert_eq!(block_on(between.remove(world.after(HOUR))), Removed::Removed, "it has nothing to wait for");
    }
    let new = world.peer("p");
    let mut waiting = new.ready();
    assert!(poll_once(&mut waiting).is_pending());
    world.settle();
    assert_eq!((new.phase(), world.connects("p")), (Phase::Idle, 1));
    drop(lease);
    assert_eq!(block_on(removal), Removed::Removed);
    block_on(waiting).unwrap();
    assert_eq!((world.connects("p"), world.memory.counts("p").open_max), (2, 1));
}

#[test]
fn a_forgotten_lease_keeps_its_own_peer_from_being_removed_and_nobody_else() {
    let world = world();
    let [p, q] = ["p", "q"].map(|name| world.connected(name));
    std::mem::forget(p.lease().unwrap());
    let removal = p.remove(world.after(SECOND));
    assert_eq!(block_on(q.remove(world.after(HOUR))), Removed::Removed);
    world.clock.advance(SECOND);
    assert!(matches!(block_on(removal), Removed::StillBusy { leases: 1, .. }));
    let status = p.status();
    assert_eq!((status.phase, status.draining), (Phase::Removing, 1));
}
