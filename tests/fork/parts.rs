//! One of everything that a table gives out, made in the parent and used up in the child.

use crate::fork::far;
use peerage::{
    Access, DataPlane, Events, Generation, Grant, GrantError, Inbox, InsertError, Lease, Liveness, NotElected,
    NotReady, NotifyError, Outcome, Peer, PeerId, PeerName, PeerTable, PostError, PublishError, Ready, ReadyError,
    Reason, Region, RegisterError, Removal, Removed, Reported, Revoked, Shutdown, Slice, Ticket, Transfer, UpdateError,
};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

pub(crate) struct Parts<T: DataPlane> {
    pub(crate) table: PeerTable<T>,
    /// Ready.
    pub(crate) peer: Peer<T>,
    pub(crate) lease: Lease<T>,
    /// Connecting, and never ready.
    pub(crate) slow: Peer<T>,
    pub(crate) waiter: Ready<T>,
    pub(crate) removal: Removal,
    pub(crate) ticket: Ticket<T>,
    pub(crate) transfer: Transfer,
    pub(crate) region: Region,
    pub(crate) grant: Grant,
    pub(crate) revoked: Revoked,
    pub(crate) events: Events,
    pub(crate) inbox: Inbox,
}

pub(crate) fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// What the parent has to give: a peer that is ready, one that hangs in its connect, one that is to be removed and one that nobody
/// connects, all in the table.
pub(crate) struct Names {
    pub(crate) ready: &'static str,
    pub(crate) slow: &'static str,
    pub(crate) leaving: &'static str,
    pub(crate) idle: &'static str,
}

impl<T: DataPlane> Parts<T> {
    /// `post` starts a transfer over the ready peer's lease.
    pub(crate) fn of(table: &PeerTable<T>, names: &Names, post: impl FnOnce(&Lease<T>, &Slice) -> Transfer) -> Self {
        let (peer, slow) = (table.peer(names.ready).unwrap(), table.peer(names.slow).unwrap());
        let mut waiter = slow.ready();
        assert!(poll_once(&mut waiter).is_pending());
        let leaving = table.peer(names.leaving).unwrap();
        let _still = leaving.lease().map(std::mem::forget); // its removal has something to wait for
        let mut removal = leaving.remove(far() + 10 * crate::fork::PATIENCE);
        assert!(poll_once(&mut removal).is_pending());
        let ticket = table.peer(names.idle).unwrap().try_elect().unwrap();
        let region = Region::zeroed(64);
        table.register(&region).unwrap();
        let lease = peer.lease().unwrap();
        let transfer = post(&lease, &region.slice(0..8).unwrap());
        let grant = table.grant(&peer, &region.slice(8..16).unwrap(), Access::Write).unwrap();
        let revoked = table.grant(&peer, &region.slice(16..24).unwrap(), Access::Write).unwrap().revoke();
        let (events, inbox) = (table.events(), table.inbox());
        Parts {
            table: table.clone(),
            peer,
            lease,
            slow,
            waiter,
            removal,
            ticket,
            transfer,
            region,
            grant,
            revoked,
            events,
            inbox,
        }
    }
}

fn refused(answer: Result<impl Sized, NotReady>) {
    assert_eq!(answer.err().expect("refused").reason, Reason::UsedAfterFork);
}

fn not_ready(answer: Result<Generation, ReadyError>, of: &str) {
    let error = answer.expect_err("not ready");
    assert!(matches!(&error, ReadyError::UsedAfterFork { peer } if peer.as_str() == of), "{error:?}");
    assert!(error.to_string().contains("after fork"));
}

/// Calls everything and drops everything. `address` is any.
pub(crate) fn use_up<T: DataPlane>(mut parts: Parts<T>, address: &T::Address, remote: peerage::RemoteSlice) {
    leases(&parts, remote);
    peers(&mut parts, address);
    tables(&parts, address);
    pages(&mut parts);
    assert!(parts.events.try_recv().is_none() && parts.events.recv(far()).is_none() && parts.events.is_ended());
    assert!(parts.table.events().is_ended());
    assert!(parts.inbox.recv(far()).is_none() && parts.inbox.try_recv().is_none() && parts.inbox.is_closed());
    let Parts { table, peer, lease, slow, waiter, removal, ticket, transfer, region, grant, revoked, events, inbox } =
        parts;
    assert_eq!(removal.wait(), Ok(Removed::UsedAfterFork));
    drop((waiter, transfer, lease, ticket, grant, revoked, events, inbox));
    drop((table, slow, region));
    refused(peer.lease());
    drop(peer);
}

fn leases<T: DataPlane>(parts: &Parts<T>, remote: peerage::RemoteSlice) {
    let Parts { table, peer, lease, region, .. } = parts;
    refused(peer.lease());
    refused(table.lease(peer.name().as_str()));
    refused(table.lease("nobody"));
    refused(table.lease_by_id(peer.id()));
    refused(table.lease_by_id(PeerId::from_bits(u64::MAX)));
    assert!(matches!(lease.notify(b"x"), Err(NotifyError::UsedAfterFork { .. })));
    let local = region.slice(0..8).unwrap();
    assert!(matches!(lease.write(&local, remote), Err(PostError::UsedAfterFork { .. })));
    assert!(matches!(lease.read(&local, remote), Err(PostError::UsedAfterFork { .. })));
    assert_eq!(lease.report(&std::fmt::Error), Reported::UsedAfterFork);
    assert_eq!((lease.name(), lease.generation()), (peer.name().clone(), peer.generation()));
}

fn peers<T: DataPlane>(parts: &mut Parts<T>, address: &T::Address) {
    let Parts { peer, slow, waiter, .. } = parts;
    let (ready, hangs) = (peer.name().as_str(), slow.name().as_str());
    not_ready(peer.wait_ready(far()), ready);
    not_ready(slow.wait_ready(far()), hangs);
    for (future, of) in [(&mut peer.ready(), ready), (waiter, hangs)] {
        let Poll::Ready(answer) = poll_once(future) else { panic!("it would wait for ever") };
        not_ready(answer, of);
    }
    assert_eq!(peer.report(peer.generation(), &std::fmt::Error), Reported::UsedAfterFork);
    assert_eq!(peer.remove(far()).wait(), Ok(Removed::UsedAfterFork));
    refused(peer.remove_if(peer.generation(), far()));
    assert_eq!(peer.probe(far()).wait(), Ok(Liveness::Unknown));
    assert!(matches!(peer.update(address.clone()), Err(UpdateError::UsedAfterFork { .. })));
    let elected = slow.try_elect().map(drop);
    assert!(matches!(elected, Err(NotElected::NotNow(ReadyError::UsedAfterFork { .. }))), "{elected:?}");
    // What only reads answers how it stood at the fork.
    let at = peer.status();
    assert_eq!((peer.phase(), peer.generation(), at.leases > 0), (at.phase, at.generation, true));
    assert!(peer.record().is_some() && peer.history().is_empty() && peer.to_string().starts_with(ready));
}

fn tables<T: DataPlane>(parts: &Parts<T>, address: &T::Address) {
    let Parts { table, peer, region, .. } = parts;
    let name = || PeerName::new("new").unwrap();
    assert!(matches!(table.insert("new", address.clone()), Err(InsertError::UsedAfterFork { .. })));
    let many = table.insert_many([(name(), address.clone())]);
    assert!(matches!(many, Err(InsertError::UsedAfterFork { .. })));
    assert!(table.insert_group("group", [(name(), address.clone())]).is_err());
    assert!(matches!(table.update(peer.name().as_str(), address.clone()), Err(UpdateError::UsedAfterFork { .. })));
    assert!(matches!(table.register(&Region::zeroed(8)), Err(RegisterError::UsedAfterFork { .. })));
    assert!(matches!(table.deregister(region), Err(RegisterError::UsedAfterFork { .. })));
    let lent = table.grant(peer, &region.slice(0..8).unwrap(), Access::Read).map(drop);
    assert!(matches!(lent, Err(GrantError::UsedAfterFork { .. })));
    assert!(table.snapshot().peers.len() >= 3 && table.peer(peer.name().as_str()).is_some());
    let ended: Shutdown = table.shutdown(far());
    let report = ended.wait().unwrap();
    assert!(report.used_after_fork && !report.is_clean());
}

fn pages<T: DataPlane>(parts: &mut Parts<T>) {
    let Parts { transfer, grant, revoked, .. } = parts;
    assert_eq!((transfer.try_outcome(), transfer.wait(far())), (Some(Outcome::Unknown), Some(Outcome::Unknown)));
    assert_eq!(poll_once(transfer), Poll::Ready(Outcome::Unknown));
    // Nobody writes into the child's copy of a page.
    assert!(grant.revoke().wait(far()) && grant.is_quiesced());
    assert!(revoked.wait(far()) && poll_once(revoked).is_ready());
}

/// A ticket that is published in the child is the parent's attempt all the same.
pub(crate) fn publish<T: DataPlane>(ticket: Ticket<T>, connection: T::Connection) {
    let connected = peerage::Connected { connection, incarnation: None };
    assert!(matches!(ticket.publish(connected), Err(PublishError::UsedAfterFork { .. })));
}
