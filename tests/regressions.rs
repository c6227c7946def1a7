//! What once took down a deployment (LightLLM #1470): two threads saw one peer absent after a transient disconnect, both
//! added it, and the native library aborted. One test per fault found there.

use peerage::transport::memory::{Fabric, Memory, MemoryAddress, MemoryError, Step};
use peerage::{
    Access, Backoff, Capabilities, DataPlane, NotifyError, Outcome, Peer, PeerTable, Phase, ReadyError, Region,
    RegisterError, Reported,
};
use std::collections::HashSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// One connection per name, and a close that stops no transfer: the native library's own rules.
const NATIVE: Capabilities = Capabilities::NATIVE_CLOSE;

struct World {
    memory: Memory,
    p: Memory,
    table: PeerTable<Memory>,
    peer: Peer<Memory>,
}

fn world() -> World {
    let fabric = Fabric::new();
    let p = fabric.node("p");
    let memory = fabric.builder("here").capabilities(NATIVE).build();
    let short = Duration::from_millis(1);
    let backoff = Backoff { base: short, cap: short, ..Backoff::default() };
    let table = PeerTable::builder(memory.clone()).backoff(backoff).breaker(None).build().unwrap();
    let peer = table.insert("p", MemoryAddress::new("p")).unwrap();
    World { memory, p, table, peer }
}

fn far() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

/// Waits through backoffs until the peer is ready.
fn ready(peer: &Peer<Memory>) -> peerage::Generation {
    loop {
        match peer.wait_ready(far()) {
            Ok(generation) => return generation,
            Err(ReadyError::BackingOff { .. } | ReadyError::Reported { .. }) => thread::sleep(Duration::from_millis(1)),
            Err(error) => panic!("{error}"),
        }
    }
}

fn disconnect() -> MemoryError {
    MemoryError::peer_broken("NIXL_ERR_REMOTE_DISCONNECT").with_native_code(-12)
}

#[test]
fn two_threads_that_both_see_a_peer_absent_add_it_once() {
    let world = world();
    let World { memory, peer, .. } = &world;
    let both = Barrier::new(3);
    let add = || {
        assert!(peer.lease().is_err(), "absent");
        both.wait();
        ready(peer)
    };
    let hold = memory.steps().hold(Step::Connect, "p");
    let [one, two] = thread::scope(|scope| {
        let adders = [scope.spawn(add), scope.spawn(add)];
        both.wait();
        hold.wait_reached(1);
        hold.release();
        adders.map(|adder| adder.join().unwrap())
    });
    assert_eq!(one, two);
    assert_eq!(memory.counts("p").connects_begun, 1);
}

#[test]
fn a_failed_send_and_its_removal_do_not_interleave_with_another_add_or_send() {
    let world = world();
    let World { memory, p, peer, .. } = &world;
    ready(peer);
    let failed = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..300 {
                    if round % 25 == 0 {
                        memory.steps().fail_next(Step::Notify, "p", 1, disconnect());
                    }
                    let Ok(lease) = peer.lease() else {
                        ready(peer);
                        continue;
                    };
                    let call = lease.native_call();
                    if let Err(NotifyError::PeerBroken { .. }) = lease.notify(b"x") {
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                    drop(call);
                    let _ = p.inbox().try_recv();
                }
            });
        }
    });
    assert_eq!(memory.misuses(), []);
    let counts = memory.counts("p");
    assert_eq!((counts.duplicate_connects, counts.connecting_max, counts.open_max), (0, 1, 1));
    let failed = failed.into_inner();
    assert!(failed > 0, "the first send of all was to fail");
    assert!((2..=failed + 1).contains(&counts.connects_begun), "one connect per failure at most: {failed}, {counts:?}");
}

#[test]
fn the_next_requests_after_a_disconnect_make_exactly_one_new_generation() {
    let world = world();
    let World { memory, peer, table, .. } = &world;
    let old = ready(peer);
    memory.break_connection("p", disconnect()).wait();
    let start = Barrier::new(8);
    let new: HashSet<_> = thread::scope(|scope| {
        let request = || {
            start.wait();
            ready(peer)
        };
        let requests: Vec<_> = (0..8).map(|_| scope.spawn(request)).collect();
        requests.into_iter().map(|request| request.join().unwrap()).collect()
    });
    assert_eq!(new.len(), 1);
    assert!(!new.contains(&old));
    assert_eq!((table.snapshot().elections, memory.counts("p").connects_begun), (2, 2));
}

#[test]
fn an_error_of_an_old_generation_can_not_remove_a_newer_one() {
    let world = world();
    let World { memory, peer, .. } = &world;
    let old = ready(peer);
    memory.break_connection("p", disconnect()).wait();
    let new = ready(peer);
    assert_eq!(memory.report_late("p", old, disconnect()).wait(), [(old, Reported::Stale)]);
    assert_eq!(peer.report(old, &disconnect()), Reported::Stale);
    assert_eq!(peer.remove_if(old, far()).unwrap_err().generation, new);
    assert_eq!((peer.phase(), peer.generation()), (Phase::Ready, new));
    peer.lease().unwrap().notify(b"still here").unwrap();
}

#[test]
fn a_shutdown_does_not_release_descriptors_while_an_operation_owns_them() {
    let world = world();
    let World { memory, p, table, peer } = &world;
    ready(peer);
    let (ours, theirs) = (Region::zeroed(64), Region::zeroed(64));
    table.register(&ours).unwrap();
    let grant = p.grants().lend(&"here".try_into().unwrap(), &theirs.slice(0..64).unwrap(), Access::Write);
    let hold = memory.steps().hold(Step::Complete, "p");
    let transfer = peer.lease().unwrap().write(&ours.slice(0..64).unwrap(), grant.remote()).unwrap();
    hold.wait_reached(1);
    let report = table.shutdown(Instant::now()).wait().unwrap();
    assert_eq!(
        (&*report.quarantined, &*report.still_registered),
        (&[("p".try_into().unwrap(), 1)][..], &[ours.id()][..])
    );
    assert_eq!(memory.counts("p").closes, 0);
    assert!(matches!(table.deregister(&ours), Err(RegisterError::InUse { transfers: 1, .. })));
    hold.release();
    assert_eq!(transfer.wait(far()), Some(Outcome::Done));
    assert!(table.shutdown(far()).wait().unwrap().is_clean());
    assert_eq!((memory.counts("p").closes, memory.misuses()), (1, vec![]));
}
