//! Promises 4 and 6. Reports and conditional removals name a generation: a stale one changes nothing and says so. After
//! a report returns, also when it says "stale", no new send is admitted on that generation.

use crate::common::*;
use peerage::transport::memory::{MemoryError, Step};
use peerage::{DataPlane, ErrorClass, NotifyError, Phase, ReadyError, Reported, Sent};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

fn a_report_of_an_old_generation_changes_nothing_and_says_so<F: Fleet>() {
    let fleet = F::of(&["p"]);
    let table = table_of(&fleet);
    let peer = insert(&fleet, &table, "p");
    let old = peer.wait_ready(far()).unwrap();
    assert_eq!(peer.report(old, &broken()), Reported::Failed);
    assert_eq!((peer.phase(), peer.generation()), (Phase::Failed, old));
    assert_eq!(peer.report(old, &broken()), Reported::Stale, "it has failed already");
    let new = ready_again(&peer);
    assert!(new > old);
    assert_eq!(peer.report(old, &broken()), Reported::Stale);
    assert_eq!((peer.phase(), peer.generation()), (Phase::Ready, new));
    peer.lease().unwrap().notify(b"still here").unwrap();
    assert_eq!(table.snapshot().stale_reports, 2);
}

with_transports!(a_report_of_an_old_generation_changes_nothing_and_says_so);

#[test]
fn a_native_error_that_comes_too_late_for_an_old_generation_changes_nothing() {
    let world = world();
    let peer = world.connected("p");
    let old = peer.generation();
    peer.report(old, &broken());
    let new = world.reconnect(&peer);
    let late = world.memory.report_late("p", old, broken());
    assert_eq!(late.wait(), [(old, Reported::Stale)]);
    assert_eq!((peer.phase(), peer.generation()), (Phase::Ready, new));
}

#[test]
fn a_native_error_that_comes_after_its_peer_was_removed_reaches_no_other_peer() {
    let world = world();
    let peer = world.connected("p");
    let old = peer.generation();
    block_on(peer.remove(world.after(PATIENCE)));
    drop(peer);
    let next = world.connected("q");
    let late = world.memory.report_late("p", old, broken());
    assert_eq!(late.wait(), [(old, Reported::Stale)]);
    assert_eq!(next.phase(), Phase::Ready);
}

#[test]
fn a_native_error_before_the_connection_is_published_fails_its_attempt() {
    let world = world();
    let peer = world.peer("p");
    let hold = world.memory.steps().hold(Step::Connect, "p");
    let mut waiter = peer.ready();
    assert!(poll_once(&mut waiter).is_pending());
    hold.wait_reached(1);
    let attempt = peer.generation();
    let reports = world.memory.break_connection("p", broken());
    assert_eq!(reports.wait(), [(attempt, Reported::Failed)]);
    match block_on(waiter) {
        Err(ReadyError::Reported { generation, .. }) => assert_eq!(generation, attempt),
        other => panic!("{other:?}"),
    }
    hold.release();
    assert!(world.reconnect(&peer) > attempt);
    assert_eq!(world.memory.counts("p").open, 1, "what came too late is closed");
}

#[test]
fn of_many_reports_of_one_generation_one_fails_it_and_one_failure_counts() {
    let world = world();
    let peer = world.connected("p");
    let (generation, start, failed) = (peer.generation(), Barrier::new(8), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                start.wait();
                if peer.report(generation, &broken()) == Reported::Failed {
                    failed.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    world.settle();
    assert_eq!(failed.into_inner(), 1);
    assert_eq!(peer.record().unwrap().failures, 1);
    assert_eq!(world.table.snapshot().stale_reports, 7);
}

#[test]
fn after_a_report_returns_nobody_is_admitted_on_its_generation() {
    for _ in 0..20 {
        let world = world();
        let peer = world.connected("p");
        let (generation, reported) = (peer.generation(), AtomicBool::new(false));
        let start = Barrier::new(4);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    start.wait();
                    loop {
                        let over = reported.load(Ordering::Acquire);
                        let lease = peer.lease();
                        assert!(!over || lease.is_err(), "admitted after the report had returned");
                        if over {
                            break;
                        }
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    start.wait();
                    let answer = peer.report(generation, &broken()); // one of the two is told "stale"
                    reported.store(true, Ordering::Release);
                    answer
                });
            }
        });
    }
}

#[test]
fn an_error_that_is_not_the_peers_fault_fails_nothing() {
    let world = world();
    let peer = world.connected("p");
    let generation = peer.generation();
    let retry_after = Duration::from_secs(1);
    for class in [ErrorClass::Local, ErrorClass::Busy { retry_after }] {
        let reports = world.memory.report_late("p", generation, MemoryError::new(class, "not the peer"));
        assert_eq!(reports.wait(), [(generation, Reported::NotThePeer)]);
    }
    assert!(peer.lease().is_ok());
}

#[test]
fn a_send_that_breaks_the_connection_reports_exactly_its_own_generation() {
    let world = world();
    let peer = world.connected("p");
    let (lease, other) = (peer.lease().unwrap(), peer.lease().unwrap());
    world.memory.steps().fail_next(Step::Notify, "p", 1, broken());
    match lease.notify(b"lost").unwrap_err() {
        NotifyError::PeerBroken { generation, sent: Sent::No, .. } => assert_eq!(generation, lease.generation()),
        error => panic!("{error:?}"),
    }
    assert_eq!((peer.phase(), peer.generation()), (Phase::Failed, lease.generation()));
    assert!(!lease.is_current());
    let new = world.reconnect(&peer);
    match other.notify(b"old").unwrap_err() {
        NotifyError::StaleGeneration { have, now, .. } => assert_eq!((have, now), (other.generation(), new)),
        error => panic!("{error:?}"),
    }
    assert_eq!((peer.phase(), peer.generation()), (Phase::Ready, new), "a stale send reports nothing");
    assert_eq!(world.fabric.node("p").inbox().try_recv(), None);
}

#[test]
fn a_send_whose_outcome_nobody_knows_says_so() {
    let world = world();
    let peer = world.connected("p");
    world.memory.steps().fail_next(Step::Notify, "p", 1, MemoryError::new(ErrorClass::OutcomeUnknown, "reset"));
    let error = peer.lease().unwrap().notify(b"perhaps").unwrap_err();
    assert_eq!((error.sent(), peer.phase()), (Sent::Maybe, Phase::Failed));
}

#[test]
fn a_fault_of_this_side_or_a_full_queue_reports_nothing() {
    let world = world();
    let peer = world.connected("p");
    let retry_after = Duration::from_secs(3);
    world.memory.steps().fail_next(Step::Notify, "p", 1, MemoryError::new(ErrorClass::Local, "no memory"));
    world.memory.steps().fail_next(Step::Notify, "p", 1, MemoryError::new(ErrorClass::Busy { retry_after }, "full"));
    let lease = peer.lease().unwrap();
    assert!(matches!(lease.notify(b"a"), Err(NotifyError::Local { .. })));
    assert!(matches!(lease.notify(b"a"), Err(NotifyError::Busy { retry_after: after, .. }) if after == retry_after));
    lease.notify(b"a").unwrap();
    assert_eq!(peer.phase(), Phase::Ready);
}
