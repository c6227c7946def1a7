//! Promise 9. No retry behind the caller's back: a failed send fails its request, a report never connects, and a later
//! `lease()` or `ready()` asks for one reconnect, if the backoff allows. Backoff grows with jitter, and forgives.

use crate::common::*;
use peerage::transport::memory::{MemoryError, Step};
use peerage::{Backoff, DataPlane, ErrorClass, Phase, ReadyError};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
const NANOSECOND: Duration = Duration::from_nanos(1);

#[test]
fn a_send_that_failed_is_not_sent_again_by_the_next_connection() {
    let world = world();
    let peer = world.connected("p");
    world.memory.steps().fail_next(Step::Notify, "p", 1, broken());
    assert!(peer.lease().unwrap().notify(b"lost").is_err());
    world.reconnect(&peer);
    world.settle();
    let sent = world.memory.log().into_iter().filter(|call| call.step == Step::Notify);
    assert_eq!(sent.count(), 1);
    assert_eq!(world.fabric.node("p").inbox().try_recv(), None);
}

#[test]
fn nobody_who_does_not_ask_connects() {
    let world = world();
    let (idle, reported) = (world.peer("idle"), world.connected("p"));
    reported.report(reported.generation(), &broken());
    world.advance(HOUR);
    world.advance(HOUR);
    assert_eq!((idle.phase(), world.connects("idle")), (Phase::Idle, 0));
    assert_eq!((reported.phase(), world.connects("p")), (Phase::Failed, 1));
}

#[test]
fn a_lease_after_a_report_asks_for_one_reconnect_which_starts_when_the_backoff_is_over_not_before() {
    let world = world();
    let peer = world.connected("p");
    peer.report(peer.generation(), &broken());
    world.settle();
    let retry_at = peer.lease().unwrap_err().retry_at.expect("when to try again");
    let wait = retry_at - world.clock.now();
    assert!(wait > NANOSECOND);
    world.advance(wait - NANOSECOND);
    assert!(peer.lease().is_err());
    assert_eq!((peer.phase(), world.connects("p")), (Phase::Failed, 1), "a nanosecond too early");
    world.advance(NANOSECOND);
    eventually("it is ready", || peer.phase() == Phase::Ready);
    assert_eq!(world.connects("p"), 2);
}

#[test]
fn who_waits_is_told_when_the_backoff_ends_and_does_not_sleep_through_it() {
    let world = world();
    let peer = world.connected("p");
    peer.report(peer.generation(), &broken());
    world.settle(); // the driver may have seen the failure before the report's words
    for waited in [block_on(peer.ready()), peer.wait_ready(world.after(HOUR))] {
        match waited {
            Err(ReadyError::BackingOff { peer: name, retry_at, last_error }) => {
                assert_eq!((name.as_str(), &*last_error), ("p", "cable pulled"));
                assert_eq!(Some(retry_at), record_of(&peer).retry_at);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(world.connects("p"), 1);
    let retry_at = record_of(&peer).retry_at.unwrap();
    world.clock.advance(retry_at - world.clock.now());
    block_on(peer.ready()).unwrap();
}

#[test]
fn the_backoff_doubles_its_window_up_to_the_cap_and_draws_a_time_within_it() {
    let backoff = Backoff { base: Duration::from_secs(1), cap: Duration::from_secs(8), min_stable: HOUR };
    let world = world_with(|builder| builder.backoff(backoff.clone()).breaker(None));
    let peer = world.peer("p");
    world.memory.steps().fail_next(Step::Connect, "p", 64, broken());
    let mut waits = Vec::new();
    for failures in 1..=40_u32 {
        assert!(matches!(block_on(peer.ready()), Err(ReadyError::Failed { .. })));
        world.settle();
        let record = record_of(&peer);
        assert_eq!((record.failures, record.attempts), (failures, u64::from(failures)));
        let wait = record.retry_at.unwrap() - world.clock.now();
        let window = backoff.cap.min(backoff.base * 2_u32.saturating_pow(failures - 1));
        assert!(wait < window, "{wait:?} of {window:?} after {failures} failures");
        waits.push(wait);
        world.clock.advance(wait);
    }
    let wide = waits.iter().filter(|wait| **wait > backoff.cap / 2).count();
    assert!((5..35).contains(&wide), "jitter is spread over the window: {waits:?}");
}

#[test]
fn a_generation_that_was_stable_forgives_the_failures_before_it_and_a_short_one_does_not() {
    let world = world_with(|builder| builder.backoff(Backoff { min_stable: HOUR, ..Backoff::default() }));
    let peer = world.peer("p");
    world.memory.steps().fail_next(Step::Connect, "p", 3, broken());
    for _ in 0..3 {
        assert!(block_on(peer.ready()).is_err());
        world.wait_out_backoff(&peer);
    }
    block_on(peer.ready()).unwrap();
    world.advance(HOUR - NANOSECOND);
    peer.report(peer.generation(), &broken());
    world.settle();
    assert_eq!(record_of(&peer).failures, 4);
    world.reconnect(&peer);
    world.advance(HOUR);
    peer.report(peer.generation(), &broken());
    world.settle();
    assert_eq!(record_of(&peer).failures, 1);
}

#[test]
fn a_fault_of_this_process_puts_everybody_off_and_counts_against_nobody() {
    let world = world();
    let (p, q) = (world.peer("p"), world.peer("q"));
    world.memory.steps().fail_next(Step::Connect, "p", 1, MemoryError::new(ErrorClass::Local, "no descriptors"));
    assert!(matches!(block_on(p.ready()), Err(ReadyError::Failed { .. })));
    world.settle();
    assert_eq!(record_of(&p).failures, 0);
    let retry_at = match block_on(q.ready()) {
        Err(ReadyError::BackingOff { retry_at, .. }) => retry_at,
        other => panic!("{other:?}"),
    };
    world.clock.advance(retry_at - world.clock.now());
    block_on(q.ready()).unwrap();
    block_on(p.ready()).unwrap();
}

#[test]
fn a_peer_that_says_when_to_come_again_is_asked_then_and_not_blamed() {
    let world = world();
    let (peer, retry_after) = (world.peer("p"), Duration::from_secs(7));
    world.memory.steps().fail_next(Step::Connect, "p", 1, MemoryError::new(ErrorClass::Busy { retry_after }, "full"));
    assert!(block_on(peer.ready()).is_err());
    world.settle();
    let record = record_of(&peer);
    assert_eq!((record.failures, record.retry_at), (0, Some(world.after(retry_after))));
    world.clock.advance(retry_after);
    block_on(peer.ready()).unwrap();
}

fn a_peer_that_does_not_live_fails_with_its_name_and_connects_once_it_does<F: Fleet>() {
    let mut fleet = F::of(&["p"]);
    fleet.stop("p");
    let table = table_of(&fleet);
    let peer = insert(&fleet, &table, "p");
    let error = block_on(peer.ready()).unwrap_err();
    assert!(matches!(error, ReadyError::Failed { .. }), "{error:?}");
    assert!(error.to_string().contains("\"p\""), "{error}");
    assert!(peer.lease().is_err());
    fleet.start("p");
    ready_again(&peer);
    peer.lease().unwrap().notify(b"hello").unwrap();
    assert_eq!(fleet.remote("p").inbox().recv(far()).unwrap().bytes, b"hello");
}

with_transports!(a_peer_that_does_not_live_fails_with_its_name_and_connects_once_it_does);

#[test]
fn who_joined_an_attempt_that_failed_has_not_asked_for_another() {
    let world = world();
    let peer = world.peer("p");
    let hold = world.memory.steps().hold(Step::Connect, "p");
    let mut first = peer.ready();
    assert!(poll_once(&mut first).is_pending());
    hold.wait_reached(1);
    let mut joined = peer.ready();
    assert!(poll_once(&mut joined).is_pending());
    assert!(peer.lease().is_err());
    world.memory.steps().fail_next(Step::Connect, "p", 1, broken());
    hold.release();
    assert!(block_on(first).is_err() && block_on(joined).is_err());
    world.settle();
    world.advance(HOUR);
    assert_eq!((peer.phase(), world.connects("p")), (Phase::Failed, 1));
}
