//! References to pages that are not lent any more: they fail by name on both sides, and success is never reported.

use crate::common::*;
use peerage::transport::memory::{Fabric, MemoryAddress};
#[cfg(feature = "tcp")]
use peerage::transport::tcp::{Tcp, TcpAddress};
use peerage::{
    Access, DataPlane, Grant, Outcome, Peer, PeerTable, Refusal, RemoteSlice, Slice, TransferError, Updated,
};

/// An owner of pages, and who writes into them, each with a table.
struct Pair<T: DataPlane> {
    owner: PeerTable<T>,
    writer: PeerTable<T>,
    to_owner: Peer<T>,
    to_writer: Peer<T>,
    ones: Slice,
}

impl<T: DataPlane> Pair<T> {
    fn new(owner: T, at: T::Address, writer: T, writer_at: T::Address) -> Self {
        let [owner, writer] = [owner, writer].map(|transport| PeerTable::builder(transport).build().unwrap());
        let to_owner = writer.insert("owner", at).unwrap();
        let to_writer = owner.insert("writer", writer_at).unwrap();
        to_owner.wait_ready(far()).unwrap();
        let ones = page_of(1);
        writer.register(ones.region()).unwrap();
        Pair { owner, writer, to_owner, to_writer, ones }
    }

    fn lend(&self, access: Access) -> Grant {
        let page = page_of(0);
        self.owner.register(page.region()).unwrap();
        self.owner.grant(&self.to_writer, &page, access).unwrap()
    }

    fn write(&self, remote: RemoteSlice) -> Outcome {
        self.to_owner.lease().unwrap().write(&self.ones, remote).unwrap().wait(far()).unwrap()
    }

    fn read(&self, remote: RemoteSlice) -> Outcome {
        self.to_owner.lease().unwrap().read(&self.ones, remote).unwrap().wait(far()).unwrap()
    }

    /// What the owner's own side says of it.
    fn said_here(&self, remote: RemoteSlice, access: Access) -> Refusal {
        self.owner.transport().grants().present(self.to_writer.name(), u64::MAX, remote, access).unwrap_err()
    }
}

fn in_memory() -> (Pair<peerage::transport::memory::Memory>, MemoryAddress) {
    let fabric = Fabric::new();
    let (owner, writer) = (fabric.node("owner"), fabric.node("writer"));
    let same_life = owner.address().with_incarnation(owner.incarnation());
    let (at, writer_at) = (owner.address(), writer.address());
    (Pair::new(owner, at, writer, writer_at), same_life)
}

#[cfg(feature = "tcp")]
fn over_tcp() -> (Pair<Tcp>, TcpAddress) {
    let tcp = |name: &str| Tcp::builder().name(name.try_into().unwrap()).bind("127.0.0.1:0").unwrap();
    let (owner, writer) = (tcp("owner"), tcp("writer"));
    let same_life = owner.address().clone().with_incarnation(owner.incarnation());
    let (at, writer_at) = (owner.address().clone(), writer.address().clone());
    (Pair::new(owner, at, writer, writer_at), same_life)
}

fn refused(refusal: Refusal) -> Outcome {
    Outcome::Failed(TransferError::Refused(refusal))
}

/// The peer publishes new metadata in the same life, after it took one region out and another in.
fn an_update_keeps_the_connection_and_what_names_a_removed_region_is_gone<T: DataPlane>(
    (pair, same_life): (Pair<T>, T::Address),
) {
    let generation = pair.to_owner.generation();
    let old = pair.lend(Access::Write);
    let (remote, region) = (old.remote(), old.page().region().clone());
    assert_eq!(pair.write(remote), Outcome::Done);
    old.page().write(0, &[9; PAGE]).unwrap();
    drop(old);
    pair.owner.deregister(&region).unwrap();
    let new = pair.lend(Access::Write);
    assert_eq!(pair.to_owner.update(same_life).unwrap(), Updated::Kept(generation));
    assert_eq!(pair.write(remote), refused(Refusal::RegionGone));
    assert_eq!(pair.said_here(remote, Access::Write), Refusal::RegionGone);
    assert_eq!(region.slice(0..PAGE).unwrap().to_vec(), [9; PAGE]);
    assert_eq!(pair.write(new.remote()), Outcome::Done);
    assert_eq!(pair.to_owner.generation(), generation, "a refusal is an answer");
    pair.owner.register(&region).unwrap();
    assert_eq!(pair.write(remote), refused(Refusal::NoSuchGrant), "the region is back, the loan is not");
}

/// Every way in which a loan ends, and what is said of it afterwards.
fn a_loan_that_has_ended_is_an_error_on_both_sides<T: DataPlane>((pair, _): (Pair<T>, T::Address)) {
    for access in [Access::Write, Access::Read] {
        let reach = |remote| match access {
            Access::Write => pair.write(remote),
            Access::Read => pair.read(remote),
        };
        let [revoked, dropped, shut, used] = [(); 4].map(|()| pair.lend(access));
        let (region, gone) = (shut.page().region().clone(), shut.remote());
        let ended = [revoked.remote(), dropped.remote(), used.remote()];
        assert!(revoked.revoke().wait(far()));
        drop((dropped, shut));
        pair.owner.deregister(&region).unwrap();
        assert_eq!(reach(used.remote()), Outcome::Done);
        pair.to_owner.report(pair.to_owner.generation(), &broken());
        eventually("the connection it was bound to has ended", || used.is_quiesced());
        ready_again(&pair.to_owner);
        for (remote, refusal) in
            ended.map(|remote| (remote, Refusal::NoSuchGrant)).into_iter().chain([(gone, Refusal::RegionGone)])
        {
            assert_eq!(reach(remote), refused(refusal));
            assert_eq!(pair.said_here(remote, access), refusal);
        }
    }
    assert_eq!(pair.writer.snapshot().quarantined, 0);
}

/// fails if: b11 (the update takes the connection down, or a page of a removed region is a page like any other)
#[test]
fn case_b11_in_memory() {
    an_update_keeps_the_connection_and_what_names_a_removed_region_is_gone(in_memory());
}

/// fails if: b11 (as in memory; or the refusal has no number on the wire)
#[test]
#[cfg(feature = "tcp")]
fn case_b11_over_tcp() {
    an_update_keeps_the_connection_and_what_names_a_removed_region_is_gone(over_tcp());
}

/// fails if: c5 (a loan that has ended is used, or its use reported as done)
#[test]
fn case_c5_in_memory() {
    a_loan_that_has_ended_is_an_error_on_both_sides(in_memory());
}

/// fails if: c5 (as in memory)
#[test]
#[cfg(feature = "tcp")]
fn case_c5_over_tcp() {
    a_loan_that_has_ended_is_an_error_on_both_sides(over_tcp());
}
