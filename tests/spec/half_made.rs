//! Promise 7. Half-made connections are undone and never visible.

use crate::common::*;
use peerage::transport::memory::{MemoryAddress, Step};
use peerage::{CloseReason, ConnectContext, PeerTable, Phase, ReadyError, Removed, Reported};
use std::sync::{Arc, Mutex};

#[test]
fn a_connect_that_minds_its_time_is_told_when_nobody_wants_it_any_more() {
    let world = world();
    let peer = world.peer("p");
    let hold = world.memory.steps().hold_until_cancelled(Step::Connect, "p");
    assert!(peer.lease().is_err());
    hold.wait_reached(1);
    assert_eq!(block_on(peer.remove(world.after(PATIENCE))), Removed::Removed);
    assert_eq!((world.memory.counts("p").connects_failed, world.closes("p")), (1, 0));
}

#[test]
fn a_connection_that_comes_after_its_attempt_was_reported_is_closed_as_superseded() {
    let why = Arc::new(Mutex::new(Vec::new()));
    let transport = {
        let why = why.clone();
        let report = |cx: &ConnectContext| assert_eq!(cx.reporter().report(&broken()), Reported::Failed);
        Custom::new(report, move |cx, reason| why.lock().unwrap().push((cx.generation, reason)))
    };
    let table = PeerTable::builder(transport).build().unwrap();
    let peer = table.insert("p", Place("here")).unwrap();
    assert!(matches!(block_on(peer.ready()), Err(ReadyError::Reported { .. })));
    let attempt = peer.generation();
    eventually("it is closed", || !why.lock().unwrap().is_empty());
    assert_eq!(*why.lock().unwrap(), [(attempt, CloseReason::Superseded)]);
    assert_eq!(peer.phase(), Phase::Failed);
}

#[test]
fn a_connection_to_another_incarnation_than_the_address_names_is_undone() {
    let world = world();
    let p = world.fabric.node("p");
    let named = p.incarnation();
    world.fabric.restart("p");
    let known = p.incarnation();
    let address = MemoryAddress::new("p").with_incarnation(named);
    let peer = world.table.insert("p", address).unwrap();
    match block_on(peer.ready()) {
        Err(ReadyError::WrongIncarnation { peer, named: asked, known: answered }) => {
            assert_eq!((peer.as_str(), asked, answered), ("p", named, known));
        }
        other => panic!("{other:?}"),
    }
    eventually("it is closed", || world.closes("p") == 1);
    assert_eq!(peer.phase(), Phase::Failed);
    assert!(peer.lease().is_err());
}

#[test]
fn a_connection_that_comes_after_its_peer_was_removed_is_closed_before_the_removal_ends() {
    let world = world();
    let peer = world.peer("p");
    let hold = world.memory.steps().hold(Step::Connect, "p");
    assert!(peer.lease().is_err());
    hold.wait_reached(1);
    let mut removal = peer.remove(world.after(PATIENCE));
    world.settle();
    assert!(poll_once(&mut removal).is_pending());
    hold.release();
    assert_eq!(block_on(removal), Removed::Removed);
    let counts = world.memory.counts("p");
    assert_eq!((counts.connects_ok, counts.closes, counts.open), (1, 1, 0));
}

#[test]
fn a_failed_connect_leaves_nothing_to_close() {
    let world = world();
    let peer = world.peer("p");
    world.memory.steps().fail_next(Step::Connect, "p", 1, broken());
    assert!(matches!(block_on(peer.ready()), Err(ReadyError::Failed { .. })));
    block_on(peer.remove(world.after(PATIENCE)));
    assert_eq!((world.closes("p"), world.memory.counts("p").open_max), (0, 0));
}
