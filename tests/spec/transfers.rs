//! Promise 8, first half. A transfer ends exactly once as `Done`, `Failed` or `Unknown`; its pages are released only on
//! proven quiescence, else quarantined, bounded and visible.

use crate::common::*;
use peerage::transport::memory::{CloseAnswer, MemoryError, Step};
use peerage::{
    Access, Capabilities, DataPlane, ErrorClass, Outcome, Phase, PostError, Refusal, RegisterError, Sent, TransferError,
};
use std::time::Duration;

const DRAIN: Duration = Duration::from_secs(5);

fn a_write_and_a_read_move_their_bytes_and_end_as_done<F: Fleet>() {
    let fleet = F::of(&["p"]);
    let table = table_of(&fleet);
    let peer = insert(&fleet, &table, "p");
    peer.wait_ready(far()).unwrap();
    let (ours, theirs, back) = (page_of(7), page_of(0), page_of(0));
    table.register(ours.region()).unwrap();
    table.register(back.region()).unwrap();
    let to_write = lend(fleet.remote("p"), &theirs, Access::Write);
    let write = peer.lease().unwrap().write(&ours, to_write.remote()).unwrap();
    assert_eq!(block_on(write), Outcome::Done);
    assert_eq!(theirs.to_vec(), ours.to_vec());
    let to_read = lend(fleet.remote("p"), &theirs, Access::Read);
    let read = peer.lease().unwrap().read(&back, to_read.remote()).unwrap();
    assert_eq!(read.wait(far()), Some(Outcome::Done));
    assert_eq!(back.to_vec(), ours.to_vec());
    eventually("both are quiescent", || peer.status().transfers + peer.status().quarantined == 0);
    table.deregister(ours.region()).unwrap();
}

fn what_the_owner_of_the_page_refuses_fails_and_moves_nothing<F: Fleet>() {
    let fleet = F::of(&["p"]);
    let table = table_of(&fleet);
    let peer = insert(&fleet, &table, "p");
    peer.wait_ready(far()).unwrap();
    let (ours, theirs) = (page_of(7), page_of(0));
    table.register(ours.region()).unwrap();
    let p = fleet.remote("p");
    let revoked = lend(p, &theirs, Access::Write);
    assert!(revoked.revoke().wait(far()));
    let other = p.grants().lend(&"somebody-else".try_into().unwrap(), &theirs, Access::Write);
    let read_only = lend(p, &theirs, Access::Read);
    let half = lend(p, &theirs.slice(0..5_000).unwrap(), Access::Write);
    let beyond = peerage::RemoteSlice { len: 10_000, ..half.remote() };
    let overflow = peerage::RemoteSlice { offset: u64::MAX - 5_000, len: 10_000, ..half.remote() };
    for (remote, refusal) in [
        (revoked.remote(), Refusal::NoSuchGrant),
        (other.remote(), Refusal::NotYours),
        (read_only.remote(), Refusal::WrongAccess),
        (beyond, Refusal::OutOfBounds),
        (overflow, Refusal::OutOfBounds),
    ] {
        let transfer = peer.lease().unwrap().write(&ours, remote).unwrap();
        assert_eq!(transfer.wait(far()), Some(Outcome::Failed(TransferError::Refused(refusal))));
    }
    assert_eq!(theirs.to_vec(), page_of(0).to_vec());
    assert_eq!(peer.phase(), Phase::Ready, "a refusal is an answer, not a broken connection");
}

fn what_can_not_be_posted_is_refused_at_once_with_nothing_sent<F: Fleet>() {
    let fleet = F::of(&["p"]);
    let table = table_of(&fleet);
    let peer = insert(&fleet, &table, "p");
    peer.wait_ready(far()).unwrap();
    let (ours, theirs) = (page_of(7), page_of(0));
    let grant = lend(fleet.remote("p"), &theirs, Access::Write);
    let lease = peer.lease().unwrap();
    match lease.write(&ours, grant.remote()).unwrap_err() {
        PostError::NotRegistered { peer, region } => {
            assert_eq!((peer.as_str(), region), ("p", ours.region().id()));
        }
        error => panic!("{error:?}"),
    }
    table.register(ours.region()).unwrap();
    let short = ours.slice(0..9_999).unwrap();
    assert!(matches!(lease.write(&short, grant.remote()), Err(PostError::Length { local: 9_999, remote: 10_000, .. })));
    peer.report(lease.generation(), &broken());
    let stale = lease.write(&ours, grant.remote()).unwrap_err();
    assert!(matches!(stale, PostError::StaleGeneration { .. }) && stale.sent() == Sent::No, "{stale:?}");
    assert_eq!((peer.status().transfers, peer.status().quarantined), (0, 0));
    assert_eq!(table.transport().total().posts, 0);
}

with_transports!(
    a_write_and_a_read_move_their_bytes_and_end_as_done,
    what_the_owner_of_the_page_refuses_fails_and_moves_nothing,
    what_can_not_be_posted_is_refused_at_once_with_nothing_sent,
);

#[test]
fn a_transfer_keeps_its_connection_open_without_its_lease() {
    let world = world_of(Capabilities::NATIVE_CLOSE, |builder| builder);
    let peer = world.connected("p");
    let hold = world.memory.steps().hold(Step::Complete, "p");
    let (_page, _grant, transfer) = write(&world, &peer);
    hold.wait_reached(1);
    peer.report(peer.generation(), &broken());
    world.settle();
    assert_eq!((peer.status().draining, peer.status().transfers, world.closes("p")), (0, 1, 0));
    hold.release();
    assert_eq!(block_on(transfer), Outcome::Done);
    eventually("it is closed after its last transfer", || world.closes("p") == 1);
}

#[test]
fn at_the_drain_deadline_a_transfer_is_unknown_and_its_page_in_quarantine_until_it_is_over() {
    let world = world_of(Capabilities::NATIVE_CLOSE, |builder| builder.drain_deadline(DRAIN));
    let peer = world.connected("p");
    let hold = world.memory.steps().hold(Step::Complete, "p");
    let (local, _grant, transfer) = write(&world, &peer);
    hold.wait_reached(1);
    peer.report(peer.generation(), &broken());
    world.settle();
    assert_eq!(transfer.try_outcome(), None);
    world.advance(DRAIN);
    assert_eq!(transfer.try_outcome(), Some(Outcome::Unknown));
    assert!(!transfer.is_quiescent());
    assert_eq!((peer.status().transfers, peer.status().quarantined), (0, 1));
    assert!(matches!(
        world.table.deregister(local.region()),
        Err(RegisterError::InUse { transfers: 1, grants: 0, .. })
    ));
    assert_eq!(world.closes("p"), 0, "a close would not stop the transfer");
    hold.release();
    eventually("it is quiescent", || transfer.is_quiescent());
    assert_eq!(transfer.try_outcome(), Some(Outcome::Unknown), "it ended once");
    eventually("it is closed", || world.closes("p") == 1);
    assert_eq!(peer.status().quarantined, 0);
    world.table.deregister(local.region()).unwrap();
}

#[test]
fn where_a_close_quiesces_the_connection_is_closed_over_its_transfers_and_gives_their_pages_back() {
    let world = world_with(|builder| builder.drain_deadline(DRAIN));
    let peer = world.connected("p");
    let hold = world.memory.steps().hold(Step::Complete, "p");
    let (local, _grant, transfer) = write(&world, &peer);
    hold.wait_reached(1);
    peer.report(peer.generation(), &broken());
    assert_eq!(block_on(peer.remove(world.after(DRAIN * 100))), peerage::Removed::Removed);
    assert!(transfer.is_quiescent() && transfer.try_outcome().is_some());
    world.table.deregister(local.region()).unwrap();
}

#[test]
fn a_completion_that_is_lost_is_unknown_and_its_page_in_quarantine_until_the_close() {
    let world = world();
    let peer = world.connected("p");
    world.memory.steps().panic_next(Step::Complete, "p");
    let (local, _grant, transfer) = write(&world, &peer);
    assert_eq!(transfer.wait(world.after(PATIENCE)), Some(Outcome::Unknown));
    assert!(!transfer.is_quiescent());
    assert_eq!(peer.status().quarantined, 1);
    peer.report(peer.generation(), &broken());
    eventually("its connection is closed", || transfer.is_quiescent());
    assert_eq!(peer.status().quarantined, 0);
    world.table.deregister(local.region()).unwrap();
}

#[test]
fn a_transfer_whose_handle_is_dropped_goes_on() {
    let world = world();
    let peer = world.connected("p");
    let hold = world.memory.steps().hold(Step::Post, "p");
    let (local, grant, transfer) = write(&world, &peer);
    drop(transfer);
    hold.release();
    eventually("its bytes have arrived", || grant.page().to_vec() == local.to_vec());
    eventually("it is quiescent", || peer.status().transfers == 0);
}

#[test]
fn a_peer_has_no_more_transfers_than_it_may() {
    let world = world_with(|builder| builder.max_transfers_per_peer(2));
    let peer = world.connected("p");
    let hold = world.memory.steps().hold(Step::Post, "p");
    let transfers = [write(&world, &peer), write(&world, &peer)];
    let (local, grant) = ready_to_write(&world);
    match peer.lease().unwrap().write(&local, grant.remote()).unwrap_err() {
        PostError::TooManyTransfers { peer, limit: 2 } => assert_eq!(peer.as_str(), "p"),
        error => panic!("{error:?}"),
    }
    hold.release();
    for (.., transfer) in transfers {
        assert_eq!(block_on(transfer), Outcome::Done);
    }
    eventually("there is room again", || peer.lease().unwrap().write(&local, grant.remote()).is_ok());
}

#[test]
fn transfers_over_a_connection_that_drains_count_among_those_its_peer_may_have() {
    let world = world_with(|builder| builder.max_transfers_per_peer(2));
    let peer = world.connected("p");
    let hold = world.memory.steps().hold(Step::Post, "p");
    let lease = peer.lease().unwrap();
    let transfers = [write(&world, &peer), write(&world, &peer)];
    peer.report(lease.generation(), &broken());
    world.reconnect(&peer);
    let (local, grant) = ready_to_write(&world);
    let third = peer.lease().unwrap().write(&local, grant.remote());
    assert!(matches!(third, Err(PostError::TooManyTransfers { limit: 2, .. })), "{third:?}");
    hold.release();
    drop(lease);
    eventually("there is room again", || transfers.iter().all(|(.., transfer)| transfer.is_quiescent()));
    assert!(peer.lease().unwrap().write(&local, grant.remote()).is_ok());
}

#[test]
fn a_post_that_breaks_the_connection_reports_it_and_leaves_no_page_behind() {
    let world = world();
    let peer = world.connected("p");
    let (local, grant) = ready_to_write(&world);
    world.memory.steps().fail_next(Step::Post, "p", 1, MemoryError::new(ErrorClass::OutcomeUnknown, "reset"));
    let error = peer.lease().unwrap().write(&local, grant.remote()).unwrap_err();
    assert_eq!((error.sent(), peer.phase()), (Sent::Maybe, Phase::Failed));
    assert_eq!((peer.status().transfers, peer.status().quarantined), (0, 0));
    world.table.deregister(local.region()).unwrap();
}

#[test]
fn a_region_is_deregistered_once_nothing_uses_it_and_is_unknown_afterwards() {
    let world = world();
    let peer = world.connected("p");
    let hold = world.memory.steps().hold(Step::Post, "p");
    let (local, grant, transfer) = write(&world, &peer);
    assert!(matches!(world.table.deregister(local.region()), Err(RegisterError::InUse { transfers: 1, .. })));
    hold.release();
    assert_eq!(block_on(transfer), Outcome::Done);
    eventually("it is quiescent", || peer.status().transfers == 0);
    world.table.deregister(local.region()).unwrap();
    assert!(matches!(world.table.deregister(local.region()), Err(RegisterError::NotRegistered { .. })));
    let lease = peer.lease().unwrap();
    assert!(matches!(lease.write(&local, grant.remote()), Err(PostError::NotRegistered { .. })));
}

#[test]
fn a_transfer_ends_at_the_drain_deadline_also_when_the_close_over_it_hangs_or_leaks() {
    for leaks in [false, true] {
        let world = world_with(|builder| builder.drain_deadline(DRAIN).close_timeout(DRAIN * 10));
        let peer = world.connected("p");
        let completes = world.memory.steps().hold(Step::Complete, "p");
        let closes = world.memory.steps().hold(Step::Close, "p");
        let (local, _grant, transfer) = write(&world, &peer);
        completes.wait_reached(1);
        peer.report(peer.generation(), &broken());
        closes.wait_reached(1);
        if leaks {
            world.memory.steps().close_next("p", 1, CloseAnswer::Leaked("kept"));
            closes.release();
            eventually("it is counted", || world.table.snapshot().leaked == 1);
        }
        assert_eq!(transfer.try_outcome(), None);
        world.advance(DRAIN);
        assert_eq!(transfer.try_outcome(), Some(Outcome::Unknown));
        assert!(!transfer.is_quiescent() && peer.status().quarantined == 1);
        assert!(world.table.deregister(local.region()).is_err());
        completes.release();
        eventually("it is quiescent", || transfer.is_quiescent());
    }
}
