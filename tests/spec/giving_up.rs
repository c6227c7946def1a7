//! Giving a transfer up: by hand, at its own deadline, at the drain deadline. The peer is told, the transfer ends once, and
//! its pages are ours again only when nothing touches them.

use crate::common::*;
use peerage::transport::memory::{MemoryError, Step};
use peerage::{
    Access, Cancelled, Capabilities, Outcome, Peer, Phase, Refusal, RegisterError, Sent, Slice, TransferError,
};
use std::task::Poll;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

fn cut_short() -> Outcome {
    Outcome::Failed(TransferError::Refused(Refusal::Cancelled))
}

fn late(peer: &Peer<peerage::transport::memory::Memory>, sent: Sent) -> Option<Outcome> {
    Some(Outcome::Failed(TransferError::Deadline { peer: peer.name().clone(), sent }))
}

fn is_ours_again(world: &World, local: &Slice) -> bool {
    world.table.deregister(local.region()).is_ok()
}

/// fails if: c3 (the answer waits beyond the deadline, or says `Quiesced` while the transport holds the page)
#[test]
fn case_c3_a_cancel_resolves_by_its_deadline_and_pages_come_back_only_once_quiesced() {
    let world = world();
    let peer = world.connected("p");
    let hold = world.memory.steps().hold(Step::Complete, "p");
    let (local, grant, transfer) = write(&world, &peer);
    hold.wait_reached(1);
    let mut cancel = transfer.cancel(world.after(SECOND));
    world.advance(SECOND / 2);
    assert_eq!((poll_once(&mut cancel), transfer.try_outcome()), (Poll::Pending, None));
    world.advance(SECOND / 2);
    assert_eq!(poll_once(&mut cancel), Poll::Ready(Cancelled::NotQuiesced));
    assert_eq!(transfer.try_outcome(), Some(Outcome::Unknown));
    assert!(!transfer.is_quiescent() && !is_ours_again(&world, &local));
    let mut again = transfer.cancel(world.after(HOUR));
    assert_eq!(poll_once(&mut again), Poll::Pending);
    hold.release();
    assert_eq!(block_on(again), Cancelled::Quiesced(Outcome::Unknown), "it has ended once");
    assert!(transfer.is_quiescent() && is_ours_again(&world, &local));
    assert_eq!((peer.phase(), grant.running()), (Phase::Ready, 0), "nothing else was touched");
}

/// fails if: c3-told (the transport is not asked, or a completed transfer is called cancelled)
#[test]
fn case_c3_a_transfer_that_is_cut_short_or_had_completed_says_so_by_its_one_outcome() {
    let world = world();
    let peer = world.connected("p");
    for step in [Step::Post, Step::Chunk] {
        let hold = world.memory.steps().hold(step, "p");
        let (local, grant, transfer) = write(&world, &peer);
        hold.wait_reached(1);
        assert_eq!(block_on(transfer.cancel(world.after(HOUR))), Cancelled::Quiesced(cut_short()), "{step:?}");
        assert_eq!(transfer.try_outcome(), Some(cut_short()));
        assert!(transfer.is_quiescent() && is_ours_again(&world, &local));
        assert_eq!(grant.running(), 0, "the owner of the page knows");
        hold.release();
        world.settle();
        assert_eq!(grant.page().to_vec(), [0; PAGE], "nothing lands after that");
    }
    let (_local, _grant, transfer) = write(&world, &peer);
    assert_eq!(transfer.wait(world.after(HOUR)), Some(Outcome::Done));
    assert_eq!(block_on(transfer.cancel(world.after(HOUR))), Cancelled::Quiesced(Outcome::Done));
}

#[test]
fn dropping_the_future_takes_back_neither_the_cancel_nor_its_deadline() {
    // fails if: what was dropped is not cancelled, or never ended.
    let world = world();
    let peer = world.connected("p");
    let hold = world.memory.steps().hold(Step::Post, "p");
    let (_local, _grant, transfer) = write(&world, &peer);
    hold.wait_reached(1);
    drop(transfer.cancel(world.after(HOUR)));
    assert_eq!(transfer.wait(world.after(HOUR)), Some(cut_short()));
    drop(hold);
    let hold = world.memory.steps().hold(Step::Complete, "p");
    let (_local, _grant, transfer) = write(&world, &peer);
    hold.wait_reached(1);
    drop(transfer.cancel(world.after(SECOND)));
    world.advance(SECOND);
    assert_eq!(transfer.try_outcome(), Some(Outcome::Unknown));
}

#[test]
fn a_transfer_is_given_up_also_over_a_connection_that_drains_and_one_that_is_closed_is_over() {
    // fails if: only the current generation's transfers can be cancelled.
    for capabilities in [Capabilities::NATIVE_CLOSE, Capabilities::NATIVE_CLOSE.with(Capabilities::CLOSE_QUIESCES)] {
        let world = world_of(capabilities, |builder| builder);
        let peer = world.connected("p");
        let lease = peer.lease().unwrap();
        let hold = world.memory.steps().hold(Step::Chunk, "p");
        let [(_, _lent, first), (_, _too, second)] = [(); 2].map(|()| write(&world, &peer));
        hold.wait_reached(2);
        peer.report(peer.generation(), &broken());
        world.settle();
        assert_eq!(block_on(first.cancel(world.after(HOUR))), Cancelled::Quiesced(cut_short()));
        assert_eq!((world.closes("p"), second.try_outcome()), (0, None));
        drop((lease, hold));
        eventually("it is closed", || world.closes("p") == 1);
        let outcome = second.wait(world.after(HOUR)).unwrap();
        assert_eq!(block_on(second.cancel(world.after(HOUR))), Cancelled::Quiesced(outcome));
    }
}

#[test]
fn a_transfer_whose_connection_is_being_closed_is_not_asked_for_and_keeps_no_bay() {
    // fails if: a visit that was refused ends, and is counted out of the connection after it.
    let world = world();
    let peer = world.connected("p");
    let [completes, closes] = [Step::Complete, Step::Close].map(|step| world.memory.steps().hold(step, "p"));
    let (_local, _grant, transfer) = write(&world, &peer);
    completes.wait_reached(1);
    peer.report(peer.generation(), &broken());
    closes.wait_reached(1);
    assert_eq!(transfer.cancel(world.clock.now()).wait(), Ok(Cancelled::NotQuiesced));
    assert!(world.memory.log().iter().all(|call| call.step != Step::Cancel));
    drop((completes, closes));
    eventually("the close gives its page back", || transfer.is_quiescent());
    for _ in 0..3 {
        world.reconnect(&peer);
        peer.report(peer.generation(), &broken());
        eventually("it is closed in its turn", || world.memory.counts("p").open == 0);
    }
}

#[test]
fn a_transport_that_panics_when_it_is_told_loses_its_connection_and_the_transfer_its_hope() {
    // fails if: the panic comes to the caller, or leaves the connection in its bay for ever.
    let world = world();
    let peer = world.connected("p");
    let hold = world.memory.steps().hold(Step::Complete, "p");
    let (_local, _grant, transfer) = write(&world, &peer);
    hold.wait_reached(1);
    world.memory.steps().panic_next(Step::Cancel, "p");
    let generation = peer.generation();
    let cancel = transfer.cancel(world.after(HOUR));
    assert_ne!((peer.phase(), peer.generation()), (Phase::Ready, generation));
    eventually("it is closed", || world.closes("p") == 1);
    assert!(matches!(block_on(cancel), Cancelled::Quiesced(_)));
}

/// fails if: h2-deadline (the deadline passes unnoticed, the answer lies about what was sent, or the owner of the page is not told)
#[test]
fn case_h2_at_its_own_deadline_a_transfer_fails_says_whether_anything_was_sent_and_the_peer_is_told() {
    let world = world();
    let peer = world.connected("p");
    for (step, sent) in [(Step::Post, Sent::No), (Step::Chunk, Sent::Maybe)] {
        let hold = world.memory.steps().hold(step, "p");
        let (local, grant) = ready_to_write(&world);
        let transfer = peer.lease().unwrap().write_until(&local, grant.remote(), world.after(SECOND)).unwrap();
        hold.wait_reached(1);
        world.advance(SECOND / 2);
        assert_eq!(transfer.try_outcome(), None);
        world.advance(SECOND / 2);
        assert_eq!(transfer.try_outcome(), late(&peer, sent));
        eventually("the peer is told, and answers", || transfer.is_quiescent());
        assert_eq!((grant.running(), peer.status().quarantined), (0, 0));
        hold.release();
        world.settle();
        assert_eq!(grant.page().to_vec(), [0; PAGE]);
        assert_eq!((transfer.try_outcome(), peer.phase()), (late(&peer, sent), Phase::Ready));
    }
}

/// fails if: c4 (the deadline gives the page back by itself)
#[test]
fn case_c4_a_page_whose_transfer_was_late_is_withheld_until_it_is_quiescent() {
    let world = world();
    let peer = world.connected("p");
    let hold = world.memory.steps().hold(Step::Complete, "p");
    let local = page_of(0);
    world.table.register(local.region()).unwrap();
    let grant = lend(&world.fabric.node("p"), &page_of(1), Access::Read);
    let read = peer.lease().unwrap().read_until(&local, grant.remote(), world.after(SECOND)).unwrap();
    hold.wait_reached(1);
    world.advance(SECOND);
    assert_eq!(read.try_outcome(), late(&peer, Sent::Maybe));
    assert!(!read.is_quiescent());
    let status = peer.status();
    assert_eq!((status.transfers, status.quarantined, status.quarantined_bytes), (0, 1, PAGE as u64));
    let refused = world.table.deregister(local.region());
    assert!(matches!(refused, Err(RegisterError::InUse { transfers: 1, grants: 0, .. })), "{refused:?}");
    hold.release();
    eventually("it is quiescent", || read.is_quiescent());
    assert_eq!(read.try_outcome(), late(&peer, Sent::Maybe), "late is late");
    assert_eq!((peer.status().quarantined, peer.status().quarantined_bytes), (0, 0));
    assert!(is_ours_again(&world, &local));
}

#[test]
fn deadlines_are_each_transfers_own_and_over_with_it() {
    // fails if: the first deadline is the only one looked at, or one outlives its transfer.
    let world = world();
    let peer = world.connected("p");
    let lease = peer.lease().unwrap();
    let hold = world.memory.steps().hold(Step::Complete, "p");
    let (local, grant) = ready_to_write(&world);
    let late_by = |seconds| lease.write_until(&local, grant.remote(), world.after(seconds * SECOND)).unwrap();
    let transfers = [4, 1, 3, 2].map(late_by);
    let ended = || transfers.each_ref().map(|transfer| transfer.try_outcome().is_some());
    hold.wait_reached(4);
    world.advance(2 * SECOND);
    assert_eq!(ended(), [false, true, false, true]);
    hold.release();
    assert_eq!(transfers[0].wait(world.after(HOUR)), Some(Outcome::Done));
    assert_eq!(transfers[2].wait(world.after(HOUR)), Some(Outcome::Done));
    world.advance(HOUR);
    assert_eq!(transfers[0].try_outcome(), Some(Outcome::Done));
}

/// fails if: h2-deadline (the drain deadline ends a transfer only for its caller)
#[test]
fn case_h2_at_the_drain_deadline_the_peer_is_told_and_the_page_comes_back_without_a_close() {
    let world = world_of(Capabilities::NATIVE_CLOSE, |builder| builder.drain_deadline(SECOND));
    let peer = world.connected("p");
    let lease = peer.lease().unwrap();
    let hold = world.memory.steps().hold(Step::Chunk, "p");
    let (_local, grant, transfer) = write(&world, &peer);
    hold.wait_reached(1);
    peer.report(peer.generation(), &MemoryError::peer_broken("by hand"));
    world.settle();
    assert_eq!(grant.running(), 1);
    world.advance(SECOND);
    assert_eq!(transfer.try_outcome(), Some(Outcome::Unknown));
    eventually("the peer is told, and answers", || transfer.is_quiescent() && grant.running() == 0);
    assert_eq!(world.closes("p"), 0, "there is a lease");
    drop(lease);
}
