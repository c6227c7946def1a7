//! Promise 3. A send never waits: `lease()` answers at once, and so do `notify` and `post`. (That a granted lease
//! allocates nothing is in `tests/allocations.rs`.)

use crate::common::*;
use peerage::transport::memory::Step;
use peerage::{DataPlane, NotifyError, Phase, Reason, Sent};
use std::time::Duration;

#[test]
fn a_refused_lease_says_at_once_where_the_peer_stands_and_why() {
    let world = world();
    let peer = world.peer("p");
    let hold = world.memory.steps().hold(Step::Connect, "p");
    let idle = peer.lease().unwrap_err();
    assert_eq!((idle.phase, idle.reason, idle.retry_at), (Phase::Idle, Reason::NotAsked, None));
    hold.wait_reached(1);
    let connecting = peer.lease().unwrap_err();
    assert_eq!((connecting.phase, connecting.reason), (Phase::Connecting, Reason::Connecting));
    assert!(connecting.generation > idle.generation);
    world.memory.steps().fail_next(Step::Connect, "p", 1, broken().with_native_code(-7));
    hold.release();
    eventually("the attempt has failed", || peer.phase() == Phase::Failed);
    world.settle();
    let failed = peer.lease().unwrap_err();
    assert_eq!((failed.phase, failed.generation), (Phase::Failed, connecting.generation));
    assert_eq!(failed.reason, Reason::ConnectFailed(Some(-7)));
    assert_eq!(failed.retry_at, peer.record().unwrap().retry_at);
    world.reconnect(&peer);
    peer.report(peer.generation(), &broken());
    world.settle();
    assert_eq!(peer.lease().unwrap_err().reason, Reason::Broken(None));
    block_on(peer.remove(world.after(Duration::from_secs(1))));
    let removed = peer.lease().unwrap_err();
    assert_eq!((removed.phase, removed.reason), (Phase::Removed, Reason::Removed));
    assert_eq!(world.table.lease("p").unwrap_err().reason, Reason::Unknown);
}

#[test]
fn any_number_of_refused_leases_asks_for_one_connect() {
    let world = world();
    let peer = world.peer("p");
    let hold = world.memory.steps().hold(Step::Connect, "p");
    for _ in 0..1_000 {
        assert!(peer.lease().is_err());
    }
    hold.release();
    eventually("the peer is ready", || peer.lease().is_ok());
    world.settle();
    assert_eq!(world.connects("p"), 1);
}

fn messages_arrive_in_order_with_their_senders_name_and_generation<F: Fleet>() {
    let fleet = F::of(&["p"]);
    let table = table_of(&fleet);
    let peer = insert(&fleet, &table, "p");
    let generation = peer.wait_ready(far()).unwrap();
    let lease = peer.lease().unwrap();
    for number in 0..100_u8 {
        lease.notify(&[number]).unwrap();
    }
    for number in 0..100_u8 {
        let got = fleet.remote("p").inbox().recv(far()).expect("a message");
        assert_eq!((got.from.as_str(), got.generation, got.bytes), ("here", Some(generation), vec![number]));
    }
}

fn a_message_that_is_too_long_is_refused_unsent_and_the_peer_stays_ready<F: Fleet>() {
    let fleet = F::of(&["p"]);
    let table = table_of(&fleet);
    let peer = insert(&fleet, &table, "p");
    peer.wait_ready(far()).unwrap();
    let long = vec![0; table.transport().max_notification() + 1];
    let refused = peer.lease().unwrap().notify(&long).unwrap_err();
    assert!(matches!(&refused, NotifyError::TooLong { peer, .. } if peer.as_str() == "p"), "{refused:?}");
    assert_eq!(refused.sent(), Sent::No);
    peer.lease().unwrap().notify(b"short").unwrap();
    assert_eq!(fleet.remote("p").inbox().recv(far()).unwrap().bytes, b"short");
}

fn by_handle_by_id_and_by_name_a_lease_is_of_the_same_connection<F: Fleet>() {
    let fleet = F::of(&["p", "q"]);
    let table = table_of(&fleet);
    let peer = insert(&fleet, &table, "p");
    insert(&fleet, &table, "q").wait_ready(far()).unwrap();
    let generation = peer.wait_ready(far()).unwrap();
    let leases = [peer.lease(), table.lease("p"), table.lease_by_id(peer.id())].map(Result::unwrap);
    for lease in &leases {
        assert_eq!((lease.generation(), lease.id()), (generation, peer.id()));
        assert_eq!(lease.name().as_str(), "p");
        assert!(std::ptr::eq(lease.connection(), leases[0].connection()));
    }
}

with_transports!(
    messages_arrive_in_order_with_their_senders_name_and_generation,
    a_message_that_is_too_long_is_refused_unsent_and_the_peer_stays_ready,
    by_handle_by_id_and_by_name_a_lease_is_of_the_same_connection,
);
