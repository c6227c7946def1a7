//! What is in quarantine is visible, and a peer that keeps too much of ours gets nothing more until it has given some back.

use crate::common::*;
use peerage::transport::memory::{Hold, Memory, Step};
use peerage::{Access, Cancelled, DataPlane, Grant, GrantError, Peer, PostError};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const LIMIT: u64 = PAGE as u64 + 1;

fn limited() -> World {
    world_with(|builder| builder.max_quarantined_bytes(LIMIT))
}

/// Gives two writes up whose answers do not come.
fn abandon_two(world: &World, peer: &Peer<Memory>) -> Hold {
    let hold = world.memory.steps().hold(Step::Complete, "p");
    let transfers = [(); 2].map(|()| write(world, peer));
    hold.wait_reached(2);
    for (.., transfer) in transfers {
        assert_eq!(transfer.cancel(world.clock.now()).wait(), Ok(Cancelled::NotQuiesced));
    }
    hold
}

fn lend_to(world: &World, peer: &Peer<Memory>) -> Result<Grant, GrantError> {
    let page = page_of(0);
    world.table.register(page.region()).unwrap();
    world.table.grant(peer, &page, Access::Write)
}

/// fails if: c4-bound (there is no bound, or it is not the peer's own)
#[test]
fn case_c4_a_peer_that_keeps_as_much_as_it_may_is_refused_by_name_and_nobody_else() {
    let world = limited();
    let (peer, other) = (world.connected("p"), world.connected("other"));
    let hold = abandon_two(&world, &peer);
    let kept = 2 * PAGE as u64;
    assert_eq!((peer.status().quarantined, peer.status().quarantined_bytes), (2, kept));
    let (local, grant) = ready_to_write(&world);
    match peer.lease().unwrap().write(&local, grant.remote()).unwrap_err() {
        PostError::Quarantined { peer, bytes, limit: LIMIT } => assert_eq!((peer.as_str(), bytes), ("p", kept)),
        error => panic!("{error:?}"),
    }
    match lend_to(&world, &peer).unwrap_err() {
        GrantError::Quarantined { peer, bytes, limit: LIMIT } => assert_eq!((peer.as_str(), bytes), ("p", kept)),
        error => panic!("{error:?}"),
    }
    assert!(other.lease().unwrap().write(&local, grant.remote()).is_ok() && lend_to(&world, &other).is_ok());
    let snapshot = world.table.snapshot();
    assert_eq!((snapshot.quarantined, snapshot.quarantined_grants, snapshot.quarantined_bytes), (2, 0, kept));
    hold.release();
    eventually("it has given them back", || peer.status().quarantined_bytes == 0);
    assert!(peer.lease().unwrap().write(&local, grant.remote()).is_ok() && lend_to(&world, &peer).is_ok());
}

#[test]
fn what_the_error_advises_helps() {
    // fails if: the close of the generation does not give the pages back.
    let world = limited();
    let peer = world.connected("p");
    let _hold = abandon_two(&world, &peer);
    peer.report(peer.generation(), &broken());
    eventually("they are ours again", || peer.status().quarantined_bytes == 0);
    world.reconnect(&peer);
    let (local, grant) = ready_to_write(&world);
    assert!(peer.lease().unwrap().write(&local, grant.remote()).is_ok());
}

#[test]
fn a_grant_is_in_quarantine_from_its_revocation_until_no_write_can_land() {
    // fails if: a revoked grant is not counted, or counted for ever.
    let world = limited();
    let peer = world.connected("p");
    let present = |grant: &Grant| world.memory.grants().present(peer.name(), 1, grant.remote(), Access::Write).unwrap();
    let grants = [(); 2].map(|()| lend_to(&world, &peer).unwrap());
    let held = grants.each_ref().map(|grant| present(grant).hold().unwrap());
    let status = peer.status();
    assert_eq!((status.grants, status.quarantined_grants, status.quarantined_bytes), (2, 0, 0));
    let revoked = grants.each_ref().map(|grant| grant.revoke());
    let status = peer.status();
    assert_eq!((status.grants, status.quarantined_grants, status.quarantined_bytes), (2, 2, 2 * PAGE as u64));
    assert!(matches!(lend_to(&world, &peer), Err(GrantError::Quarantined { .. })));
    assert_eq!(block_on(peer.remove(world.after(SECOND))), peerage::Removed::Removed);
    let snapshot = world.table.snapshot();
    assert_eq!((snapshot.peers.len(), snapshot.quarantined_grants), (0, 2), "also of a peer that is gone");
    drop(held);
    assert!(revoked.iter().all(|revoked| revoked.wait(world.clock.now())));
    assert_eq!((world.table.snapshot().quarantined_grants, world.table.snapshot().quarantined_bytes), (0, 0));
    assert_eq!(world.memory.grants().len(), 0);
}
