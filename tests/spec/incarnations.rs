//! Promise 10. A restarted peer is a new incarnation; the old generation is retired first, and closed first where the
//! native side has one slot per name.

use crate::common::*;
use peerage::transport::memory::{MemoryAddress, Step};
use peerage::{Capabilities, DataPlane, Phase};

fn a_restarted_peer_is_a_new_generation_and_a_new_incarnation<F: Fleet>() {
    let mut fleet = F::of(&["p"]);
    let table = table_of(&fleet);
    let peer = insert(&fleet, &table, "p");
    let old = peer.wait_ready(far()).unwrap();
    let before = peer.record().unwrap().incarnation.expect("the transport learns it");
    fleet.stop("p");
    fleet.start("p");
    eventually("the old connection is known to be dead", || {
        let _ = peer.lease().map(|lease| lease.notify(b"are you there"));
        peer.generation() != old || peer.phase() == Phase::Failed
    });
    let new = ready_again(&peer);
    assert!(new > old);
    eventually("the record is of the new generation", || {
        peer.record().is_some_and(|record| record.generation == new && record.incarnation != Some(before))
    });
    while fleet.remote("p").inbox().try_recv().is_some() {}
    peer.lease().unwrap().notify(b"hello again").unwrap();
    let got = fleet.remote("p").inbox().recv(far()).unwrap();
    assert_eq!((got.generation, got.bytes), (Some(new), b"hello again".to_vec()));
}

with_transports!(a_restarted_peer_is_a_new_generation_and_a_new_incarnation);

#[test]
fn the_old_life_is_closed_before_the_new_one_is_opened_where_there_is_one_slot_per_name() {
    let world = world_of(Capabilities::NATIVE_CLOSE, |builder| builder);
    let peer = world.connected("p");
    let (old, lease) = (peer.generation(), peer.lease().unwrap());
    world.fabric.restart("p").wait();
    assert_eq!((peer.phase(), peer.generation()), (Phase::Failed, old));
    world.wait_out_backoff(&peer);
    let mut waiter = peer.ready();
    assert!(poll_once(&mut waiter).is_pending());
    world.settle();
    assert_eq!(world.connects("p"), 1);
    drop(lease);
    block_on(waiter).unwrap();
    let log = world.memory.log();
    let close = log.iter().find(|call| call.step == Step::Close).unwrap();
    let connect = log.iter().rfind(|call| call.step == Step::Connect).unwrap();
    assert_eq!(close.generation, old);
    assert!(close.ended.unwrap() < connect.begun);
    let now = world.fabric.node("p").incarnation();
    assert_eq!(peer.record().unwrap().incarnation, Some(now));
}

#[test]
fn an_address_that_names_the_right_incarnation_connects() {
    let world = world();
    let incarnation = world.fabric.node("p").incarnation();
    let address = MemoryAddress::new("p").with_incarnation(incarnation);
    let peer = world.table.insert("p", address).unwrap();
    assert_eq!(peer.record().unwrap().incarnation, Some(incarnation), "known before it is connected");
    block_on(peer.ready()).unwrap();
}
