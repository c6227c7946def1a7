//! Waiting: on any runtime or thread, for the outcome of one attempt; a waiter that goes away cancels nothing.

use crate::common::*;
use peerage::transport::memory::Step;
use peerage::{Capabilities, Phase, ReadyError, Removed, Transport};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

fn a_peer_is_awaited_on_any_runtime_and_on_none<F: Fleet>() {
    let fleet = F::of(&["a", "b", "c", "d"]);
    let table = table_of(&fleet);
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| insert(&fleet, &table, name));
    let current = tokio::runtime::Builder::new_current_thread().build().unwrap();
    current.block_on(a.ready()).unwrap();
    let many = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    many.block_on(async { tokio::spawn(async move { b.ready().await }).await.unwrap() }).unwrap();
    block_on(c.ready()).unwrap();
    d.wait_ready(far()).unwrap();
}

with_transports!(a_peer_is_awaited_on_any_runtime_and_on_none);

#[test]
fn a_connect_that_was_asked_for_happens_also_when_nobody_waits_any_more() {
    let world = world();
    let peer = world.peer("p");
    let mut only = peer.ready();
    assert!(poll_once(&mut only).is_pending() || peer.phase() == Phase::Ready);
    drop(only);
    eventually("it is ready", || peer.phase() == Phase::Ready);
}

#[test]
fn a_task_that_is_aborted_while_it_waits_or_holds_a_lease_leaves_nothing_behind() {
    let world = world();
    let (p, q) = (world.peer("p"), world.connected("q"));
    let hold = world.memory.steps().hold(Step::Connect, "p");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let (waiting, holding) = (p.clone(), q.clone());
    let waiter = runtime.spawn(async move { waiting.ready().await });
    let holder = runtime.spawn(async move {
        let _lease = holding.lease().unwrap();
        std::future::pending::<()>().await
    });
    hold.wait_reached(1);
    eventually("the lease is held", || q.status().leases == 1);
    waiter.abort();
    holder.abort();
    eventually("the lease is given back", || q.status().leases == 0);
    hold.release();
    block_on(p.ready()).unwrap();
}

#[test]
fn a_thread_waits_no_longer_than_its_own_deadline_and_the_attempt_goes_on() {
    let world = world();
    let peer = world.peer("p");
    let hold = world.memory.steps().hold(Step::Connect, "p");
    let deadline = world.after(Duration::from_secs(1));
    let waiter = {
        let peer = peer.clone();
        thread::spawn(move || peer.wait_ready(deadline))
    };
    hold.wait_reached(1);
    world.clock.advance(Duration::from_secs(1));
    let waited = waiter.join().unwrap();
    assert!(matches!(&waited, Err(ReadyError::Deadline { peer }) if peer.as_str() == "p"), "{waited:?}");
    hold.release();
    block_on(peer.ready()).unwrap();
    assert_eq!(world.connects("p"), 1);
}

#[test]
fn who_keeps_a_failed_lease_and_waits_is_told_what_is_not_given_back() {
    let world = world_of(peerage::Capabilities::NATIVE_CLOSE, |builder| builder.drain_deadline(Duration::from_secs(5)));
    let peer = world.connected("p");
    let leases = [peer.lease().unwrap(), peer.lease().unwrap()];
    peer.report(leases[0].generation(), &broken());
    world.wait_out_backoff(&peer);
    let mut waiter = peer.ready();
    assert!(poll_once(&mut waiter).is_pending());
    world.advance(Duration::from_secs(5));
    for waited in [block_on(waiter), block_on(peer.ready())] {
        match waited {
            Err(ReadyError::Undrained { peer, leases: 2, transfers: 0, oldest, closing: false }) => {
                assert!(peer.as_str() == "p" && oldest >= Duration::from_secs(5));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(peer.lease().unwrap_err().reason, peerage::Reason::Undrained);
    drop(leases);
    eventually("it connects once they are given back", || peer.phase() == Phase::Ready);
}

#[test]
fn who_waits_behind_a_close_that_hangs_is_told_where_the_native_side_has_one_slot_per_name() {
    let all = world().memory.capabilities();
    let world = world_of(all.without(Capabilities::OVERLAP), |builder| builder.close_timeout(HOUR));
    let peer = world.connected("p");
    let hold = world.memory.steps().hold(Step::Close, "p");
    peer.report(peer.generation(), &broken());
    hold.wait_reached(1);
    world.wait_out_backoff(&peer);
    let mut waiter = peer.ready();
    assert!(poll_once(&mut waiter).is_pending());
    world.advance(HOUR);
    assert!(matches!(block_on(waiter), Err(ReadyError::Undrained { leases: 0, .. })));
    assert_eq!((peer.phase(), world.connects("p")), (Phase::Failed, 1));
    hold.release();
    eventually("it is closed", || world.closes("p") == 1);
    world.reconnect(&peer);
}

#[test]
fn who_waits_for_a_peer_that_is_removed_is_told_at_once() {
    let world = world();
    let peer = world.peer("p");
    let hold = world.memory.steps().hold(Step::Connect, "p");
    let mut waiter = peer.ready();
    assert!(poll_once(&mut waiter).is_pending());
    hold.wait_reached(1);
    let removal = peer.remove(world.after(PATIENCE));
    assert!(matches!(block_on(waiter), Err(ReadyError::Removed { .. })));
    assert!(matches!(block_on(peer.ready()), Err(ReadyError::Removed { .. })));
    hold.release();
    assert_eq!(block_on(removal), Removed::Removed);
    assert!(matches!(peer.wait_ready(world.after(PATIENCE)), Err(ReadyError::Removed { .. })));
}

#[test]
fn a_waiter_whose_waker_panics_harms_nobody_else() {
    struct Bomb;
    impl Wake for Bomb {
        fn wake(self: Arc<Self>) {
            panic!("a waker that panics");
        }
    }
    let world = world_with(|builder| builder.connect_timeout(Duration::from_secs(5)));
    let (peer, waker) = (world.peer("p"), Waker::from(Arc::new(Bomb)));
    let hold = world.memory.steps().hold(Step::Connect, "p");
    let (mut bad, mut good) = (peer.ready(), peer.ready());
    assert!(Pin::new(&mut bad).poll(&mut Context::from_waker(&waker)).is_pending());
    let good = thread::scope(|scope| {
        assert!(poll_once(&mut good).is_pending());
        hold.wait_reached(1);
        let good = scope.spawn(move || block_on(good));
        world.clock.advance(Duration::from_secs(5)); // the driver wakes them
        good.join().unwrap()
    });
    assert!(matches!(good, Err(ReadyError::TimedOut { .. })), "{good:?}");
    hold.release();
    block_on(world.peer("q").ready()).unwrap();
}
