//! What `register` and `deregister` answered is true of the native side, also when both run at once.

use crate::common::*;
use peerage::transport::memory::{Fabric, Memory, MemoryAddress, MemoryConnection, MemoryError, Step};
use peerage::{
    Access, Capabilities, CloseContext, CloseReason, Closed, ConnectContext, Connected, DataPlane, GrantBook, Inbox,
    Outcome, PeerTable, Post, Region, RegionId, Transport,
};
use std::collections::HashSet;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// How long a wrong answer has time to come.
const A_MOMENT: Duration = Duration::from_millis(50);

/// `Memory`, whose native deregistration tells that it has begun and waits until it is let go.
struct Held {
    inner: Memory,
    begun: Sender<()>,
    go: Mutex<Receiver<()>>,
    native: Arc<Mutex<HashSet<RegionId>>>,
}

impl Transport for Held {
    type Address = MemoryAddress;
    type Connection = MemoryConnection;
    type Error = MemoryError;

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn connect(&self, cx: &ConnectContext, to: &MemoryAddress) -> Result<Connected<MemoryConnection>, MemoryError> {
        self.inner.connect(cx, to)
    }

    fn disconnect(&self, cx: &CloseContext, old: MemoryConnection, why: CloseReason) -> Closed<MemoryConnection> {
        self.inner.disconnect(cx, old, why)
    }
}

impl DataPlane for Held {
    fn max_notification(&self) -> usize {
        self.inner.max_notification()
    }

    fn notify(&self, connection: &MemoryConnection, message: &[u8]) -> Result<(), MemoryError> {
        self.inner.notify(connection, message)
    }

    fn inbox(&self) -> &Inbox {
        self.inner.inbox()
    }

    fn register(&self, region: &Region) -> Result<(), MemoryError> {
        self.native.lock().unwrap().insert(region.id());
        self.inner.register(region)
    }

    fn deregister(&self, region: &Region) -> Result<(), MemoryError> {
        self.begun.send(()).unwrap();
        let _ = self.go.lock().unwrap().recv();
        self.native.lock().unwrap().remove(&region.id());
        self.inner.deregister(region)
    }

    fn post(&self, connection: &MemoryConnection, post: Post) -> Result<(), MemoryError> {
        self.inner.post(connection, post)
    }

    fn grants(&self) -> &GrantBook {
        self.inner.grants()
    }
}

#[test]
fn a_post_beside_a_deregistration_is_refused_or_keeps_the_region() {
    let world = world();
    let peer = world.connected("p");
    let remote = world.fabric.node("p");
    let theirs = Region::zeroed(64).slice(0..64).unwrap();
    remote.register(theirs.region()).unwrap();
    for round in 0..3_000 {
        let grant = remote.grants().lend(&"here".try_into().unwrap(), &theirs, Access::Write);
        let ours = Region::zeroed(64).slice(0..64).unwrap();
        world.table.register(ours.region()).unwrap();
        let hold = world.memory.steps().hold(Step::Post, "p");
        let lease = peer.lease().unwrap();
        let started = AtomicU32::new(0);
        let start = || {
            started.fetch_add(1, Ordering::SeqCst);
            while started.load(Ordering::SeqCst) < 2 {
                spin_loop();
            }
        };
        let (posted, deregistered) = thread::scope(|scope| {
            let posting = scope.spawn(|| {
                start();
                (0..round % 32).for_each(|_| spin_loop());
                lease.write(&ours, grant.remote())
            });
            start();
            let deregistered = world.table.deregister(ours.region());
            (posting.join().unwrap(), deregistered)
        });
        hold.release();
        assert!(posted.is_err() || deregistered.is_err(), "posted from a region that is deregistered");
        if let Ok(transfer) = posted {
            assert_eq!(block_on(transfer), Outcome::Done);
        }
    }
}

#[test]
fn a_region_that_is_registered_while_it_is_deregistered_is_registered_natively_in_the_end() {
    let fabric = Fabric::new();
    let (begun, has_begun) = channel();
    let (go, gone) = channel();
    let native = Arc::<Mutex<HashSet<_>>>::default();
    let held = Held { inner: fabric.node("here"), begun, go: Mutex::new(gone), native: native.clone() };
    let table = PeerTable::builder(held).build().unwrap();
    let peer = table.insert("p", MemoryAddress::new("p")).unwrap();
    let region = Region::zeroed(64);
    table.register(&region).unwrap();
    thread::scope(|scope| {
        let deregistration = scope.spawn(|| table.deregister(&region));
        has_begun.recv().unwrap();
        let (answer, answered) = channel();
        let (table, region) = (&table, &region);
        scope.spawn(move || answer.send(table.register(region)).unwrap());
        let early = answered.recv_timeout(A_MOMENT);
        go.send(()).unwrap();
        deregistration.join().unwrap().unwrap();
        early.or_else(|_| answered.recv_timeout(PATIENCE)).unwrap().unwrap();
    });
    assert!(table.grant(&peer, &region.slice(0..8).unwrap(), Access::Write).is_ok());
    assert!(native.lock().unwrap().contains(&region.id()));
    drop(go); // what ends the table deregisters too
}
