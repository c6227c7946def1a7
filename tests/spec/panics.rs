//! A transport may panic at any step: the caller gets a typed error or a count, and the peer recovers.

use crate::common::*;
use peerage::transport::memory::{Fabric, Memory, MemoryAddress, MemoryConnection, MemoryError, Step};
use peerage::{
    Access, Capabilities, CloseContext, CloseReason, Closed, ConnectContext, Connected, DataPlane, GrantBook, Inbox,
    Incarnation, IncarnationError, Liveness, NotifyError, Outcome, PeerName, PeerTable, Phase, Post, PostError,
    ReadyError, Region, RegisterError, Removed, Sent, Transport,
};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

#[test]
fn a_connect_that_panics_is_a_failed_attempt_and_the_next_one_succeeds() {
    let world = world();
    let peer = world.peer("p");
    world.memory.steps().panic_next(Step::Connect, "p");
    match block_on(peer.ready()) {
        Err(ReadyError::Panicked { peer, message }) => {
            assert!(peer.as_str() == "p" && message.contains("Connect"), "{message}");
        }
        other => panic!("{other:?}"),
    }
    world.settle();
    assert_eq!(peer.record().unwrap().failures, 1);
    world.reconnect(&peer);
    assert_eq!(world.table.snapshot().stuck_connects, 0);
}

#[test]
fn a_report_whose_text_panics_fails_its_generation_all_the_same_and_the_connection_is_closed() {
    let world = world();
    let peer = world.connected("p");
    let report = || peer.report(peer.generation(), &NoText);
    assert!(catch_unwind(AssertUnwindSafe(report)).is_err(), "its caller sees the panic");
    assert_eq!(peer.phase(), Phase::Failed);
    eventually("it is closed", || world.closes("p") == 1);
    world.reconnect(&peer);
}

#[derive(Debug)]
struct NoText;

impl fmt::Display for NoText {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("a test asked Display to panic")
    }
}

impl std::error::Error for NoText {}

#[test]
fn a_close_that_panics_is_a_leak_that_is_counted_and_the_peer_connects_again() {
    let world = world();
    let peer = world.connected("p");
    world.memory.steps().panic_next(Step::Close, "p");
    peer.report(peer.generation(), &broken());
    world.reconnect(&peer);
    eventually("it is counted", || world.table.snapshot().leaked == 1);
    world.memory.steps().panic_next(Step::Close, "p");
    assert!(matches!(block_on(peer.remove(world.after(PATIENCE))), Removed::Leaked(_)));
    assert_eq!(world.table.snapshot().leaked, 2);
}

#[test]
fn a_notify_that_panics_fails_its_sender_reports_the_generation_and_may_have_sent_anything() {
    let world = world();
    let peer = world.connected("p");
    let generation = peer.generation();
    world.memory.steps().panic_next(Step::Notify, "p");
    let error = peer.lease().unwrap().notify(b"x").unwrap_err();
    assert!(matches!(&error, NotifyError::Panicked { peer, .. } if peer.as_str() == "p"), "{error:?}");
    assert_eq!((error.sent(), peer.phase(), peer.generation()), (Sent::Maybe, Phase::Failed, generation));
    world.reconnect(&peer);
    peer.lease().unwrap().notify(b"y").unwrap();
    assert_eq!(peer.status().leases, 0);
}

#[test]
fn a_post_that_panics_fails_its_caller_and_keeps_the_page_until_the_connection_is_closed() {
    let world = world_of(Capabilities::NATIVE_CLOSE.with(Capabilities::CLOSE_QUIESCES), |builder| builder);
    let peer = world.connected("p");
    let (region, p) = (Region::zeroed(8), world.fabric.node("p"));
    world.table.register(&region).unwrap();
    let theirs = Region::zeroed(8);
    let grant = p.grants().lend(&"here".try_into().unwrap(), &theirs.slice(0..8).unwrap(), Access::Write);
    world.memory.steps().panic_next(Step::Post, "p");
    let lease = peer.lease().unwrap();
    let error = lease.write(&region.slice(0..8).unwrap(), grant.remote()).unwrap_err();
    assert!(matches!(error, PostError::Panicked { .. }) && error.sent() == Sent::Maybe, "{error:?}");
    assert_eq!((peer.phase(), peer.status().quarantined), (Phase::Failed, 1));
    assert!(world.table.deregister(&region).is_err(), "the transport may still touch it");
    drop(lease);
    eventually("the close gives it back", || peer.status().quarantined == 0);
    world.reconnect(&peer);
    let again = peer.lease().unwrap().write(&region.slice(0..8).unwrap(), grant.remote()).unwrap();
    assert_eq!(block_on(again), Outcome::Done);
}

#[test]
fn a_probe_that_panics_can_not_tell_and_gives_its_lease_back() {
    let world = world();
    let peer = world.connected("p");
    world.memory.steps().panic_next(Step::Probe, "p");
    assert_eq!(block_on(peer.probe(world.after(PATIENCE))), Liveness::Unknown);
    eventually("the lease is back", || peer.status().leases == 0);
    assert_eq!(block_on(peer.probe(world.after(PATIENCE))), Liveness::Alive);
}

/// `Memory`, whose calls about the whole process panic as long as they are told to.
struct Moody(Memory, Arc<AtomicBool>);

impl Moody {
    fn mood(&self, call: &str) {
        assert!(!self.1.load(Ordering::Relaxed), "a test asked {call} to panic");
    }
}

impl Transport for Moody {
    type Address = MemoryAddress;
    type Connection = MemoryConnection;
    type Error = MemoryError;

    fn local_name(&self) -> Option<&PeerName> {
        self.0.local_name()
    }
    fn new_incarnation(&self) -> Option<Incarnation> {
        self.mood("new_incarnation");
        self.0.new_incarnation()
    }
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }
    fn connect(&self, cx: &ConnectContext, to: &MemoryAddress) -> Result<Connected<MemoryConnection>, MemoryError> {
        self.0.connect(cx, to)
    }
    fn disconnect(&self, cx: &CloseContext, c: MemoryConnection, why: CloseReason) -> Closed<MemoryConnection> {
        self.0.disconnect(cx, c, why)
    }
    fn end(&self, _: Instant) {
        self.mood("end");
    }
}

impl DataPlane for Moody {
    fn max_notification(&self) -> usize {
        self.0.max_notification()
    }
    fn notify(&self, connection: &MemoryConnection, message: &[u8]) -> Result<(), MemoryError> {
        self.0.notify(connection, message)
    }
    fn inbox(&self) -> &Inbox {
        self.0.inbox()
    }
    fn register(&self, region: &Region) -> Result<(), MemoryError> {
        self.mood("register");
        self.0.register(region)
    }
    fn deregister(&self, region: &Region) -> Result<(), MemoryError> {
        self.mood("deregister");
        self.0.deregister(region)
    }
    fn post(&self, connection: &MemoryConnection, post: Post) -> Result<(), MemoryError> {
        self.0.post(connection, post)
    }
    fn grants(&self) -> &GrantBook {
        self.0.grants()
    }
}

/// fails if: a call about the whole process lets a panic through to its caller, or ends the thread that makes it.
#[test]
fn calls_about_the_whole_process_that_panic_are_told_and_leave_things_as_they_were() {
    let (fabric, moody) = (Fabric::new(), Arc::new(AtomicBool::new(true)));
    fabric.node("p");
    let table = PeerTable::builder(Moody(fabric.node("here"), moody.clone())).build().unwrap();
    let peer = table.insert("p", MemoryAddress::new("p")).unwrap();
    let generation = block_on(peer.ready()).unwrap();
    let region = Region::zeroed(8);
    assert!(
        matches!(table.register(&region), Err(RegisterError::Panicked { message, .. }) if message.contains("register"))
    );
    assert!(matches!(table.new_incarnation(), Err(IncarnationError::Panicked { .. })));
    assert_eq!((peer.phase(), peer.generation()), (Phase::Ready, generation));
    assert!(matches!(table.deregister(&region), Err(RegisterError::NotRegistered { .. })), "it is not listed");

    moody.store(false, Ordering::Relaxed);
    table.register(&region).unwrap();
    moody.store(true, Ordering::Relaxed);
    assert!(matches!(table.deregister(&region), Err(RegisterError::Panicked { .. })));
    let report = table.shutdown(far()).wait().unwrap();
    assert_eq!(report.still_registered, [region.id()], "neither end nor deregister keeps the report from coming");
}
