//! Promise 8, second half. Pages we lend for remote writing are grants: a revocation resolves only when no write under it
//! can land any more.

use crate::common::*;
use peerage::transport::memory::Step;
use peerage::{
    Access, DataPlane, GrantError, Outcome, Peer, PeerTable, Refusal, Region, RegisterError, Slice, Transfer,
};
use peerage::{TransferError, Transport};
use std::time::Duration;

fn page() -> Slice {
    Region::zeroed(10_000).slice(0..10_000).unwrap()
}

/// `here` lends a page to `p`, and `p` has a table of its own in which `here` is a peer.
struct Lending {
    world: World,
    to: Peer<peerage::transport::memory::Memory>,
    writer: PeerTable<peerage::transport::memory::Memory>,
    back: Peer<peerage::transport::memory::Memory>,
    ones: Slice,
}

fn lending() -> Lending {
    let world = world();
    let to = world.connected("p");
    let writer = PeerTable::builder(world.fabric.node("p")).clock(world.clock.clone()).build().unwrap();
    let back = writer.insert("here", world.memory.address()).unwrap();
    block_on(back.ready()).unwrap();
    let ones = page();
    ones.write(0, &[1; 10_000]).unwrap();
    writer.register(ones.region()).unwrap();
    Lending { world, to, writer, back, ones }
}

impl Lending {
    fn lend(&self) -> peerage::Grant {
        let page = page();
        self.world.table.register(page.region()).unwrap();
        self.world.table.grant(&self.to, &page, Access::Write).unwrap()
    }

    fn write(&self, grant: &peerage::Grant) -> Transfer {
        self.back.lease().unwrap().write(&self.ones, grant.remote()).unwrap()
    }
}

fn after_a_revocation_has_resolved_no_write_lands<F: Fleet>() {
    let fleet = F::of(&["p"]);
    let table = table_of(&fleet);
    let peer = insert(&fleet, &table, "p");
    peer.wait_ready(far()).unwrap();
    let p = fleet.remote("p");
    const LONG: usize = 1 << 20; // so that the revocation comes while it is written
    let [ones, theirs] = [(); 2].map(|()| Region::zeroed(LONG).slice(0..LONG).unwrap());
    ones.write(0, &vec![1; LONG]).unwrap();
    table.register(ones.region()).unwrap();
    for _ in 0..8 {
        let grant = p.grants().lend(&"here".try_into().unwrap(), &theirs, Access::Write);
        let transfer = peer.lease().unwrap().write(&ones, grant.remote()).unwrap();
        assert!(grant.revoke().wait(far()));
        theirs.write(0, &vec![9; LONG]).unwrap();
        let outcome = transfer.wait(far()).unwrap();
        assert!(theirs.to_vec().iter().all(|byte| *byte == 9), "{outcome:?}");
    }
}

with_transports!(after_a_revocation_has_resolved_no_write_lands);

#[test]
fn a_write_that_comes_after_the_revocation_is_refused_and_does_not_land() {
    let lending = lending();
    let grant = lending.lend();
    let hold = lending.writer.transport().steps().hold(Step::Post, "here");
    let late = lending.write(&grant);
    block_on(grant.revoke());
    assert!(grant.is_quiesced());
    hold.release();
    assert_eq!(block_on(late), Outcome::Failed(TransferError::Refused(Refusal::NoSuchGrant)));
    assert_eq!(grant.page().to_vec(), [0; 10_000]);
}

#[test]
fn a_grant_belongs_to_the_first_connection_that_presents_it_and_ends_with_it() {
    let lending = lending();
    let (bound, unbound) = (lending.lend(), lending.lend());
    assert_eq!(block_on(lending.write(&bound)), Outcome::Done);
    lending.back.report(lending.back.generation(), &broken());
    eventually("its connection is closed", || bound.is_quiesced());
    assert!(!unbound.is_quiesced(), "nobody has presented it");
    lending.world.reconnect(&lending.back);
    let refused = Outcome::Failed(TransferError::Refused(Refusal::NoSuchGrant));
    assert_eq!(block_on(lending.write(&bound)), refused);
    assert_eq!(block_on(lending.write(&unbound)), Outcome::Done);
}

#[test]
fn a_reconnect_of_our_own_side_does_not_touch_what_we_lent() {
    let lending = lending();
    let grant = lending.lend();
    lending.to.report(lending.to.generation(), &broken());
    lending.world.reconnect(&lending.to);
    assert!(!grant.is_quiesced());
    assert_eq!(block_on(lending.write(&grant)), Outcome::Done);
}

#[test]
fn dropping_a_grant_revokes_it() {
    let lending = lending();
    let grant = lending.lend();
    let (remote, page) = (grant.remote(), grant.page().clone());
    drop(grant);
    let late = lending.back.lease().unwrap().write(&lending.ones, remote).unwrap();
    assert_eq!(block_on(late), Outcome::Failed(TransferError::Refused(Refusal::NoSuchGrant)));
    assert_eq!(page.to_vec(), [0; 10_000]);
}

#[test]
fn a_page_that_is_lent_is_visible_and_its_region_in_use_until_the_revocation() {
    let lending = lending();
    let grant = lending.lend();
    let (table, region) = (&lending.world.table, grant.page().region().clone());
    assert_eq!(lending.to.status().grants, 1);
    assert!(matches!(table.deregister(&region), Err(RegisterError::InUse { transfers: 0, grants: 1, .. })));
    block_on(grant.revoke());
    assert_eq!(lending.to.status().grants, 0);
    table.deregister(&region).unwrap();
}

#[test]
fn a_page_that_is_not_registered_is_not_lent_and_none_is_after_shutdown() {
    let world = world();
    let (peer, page) = (world.connected("p"), page());
    match world.table.grant(&peer, &page, Access::Write) {
        Err(GrantError::NotRegistered { peer, region }) => {
            assert_eq!((peer.as_str(), region), ("p", page.region().id()));
        }
        other => panic!("{other:?}"),
    }
    assert!(world.memory.grants().is_empty());
    world.table.register(page.region()).unwrap();
    block_on(world.table.shutdown(world.after(Duration::from_secs(1))));
    assert!(matches!(world.table.grant(&peer, &page, Access::Write), Err(GrantError::ShutDown { .. })));
    assert!(world.memory.grants().is_empty() && peer.status().grants == 0);
    assert!(matches!(world.table.register(page.region()), Err(RegisterError::ShutDown { .. })));
    assert_eq!(world.memory.local_name().unwrap().as_str(), "here");
}
