//! K: threads, and futures that are dropped. (Everything at once, from many threads: `tests/stress.rs`.)

use crate::common::*;
use peerage::transport::memory::{Memory, Step};
use peerage::{Peer, Phase, Ready, Removed};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(5);

/// A waiter that was polled once, and whether it has been woken since.
struct Waiter(Ready<Memory>, Arc<Woken>);

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

impl Waiter {
    fn of(peer: &Peer<Memory>) -> Self {
        let (mut ready, woken) = (peer.ready(), Arc::<Woken>::default());
        let waker = Waker::from(woken.clone());
        assert!(Pin::new(&mut ready).poll(&mut Context::from_waker(&waker)).is_pending());
        Waiter(ready, woken)
    }

    fn finishes(mut self) {
        eventually("it is woken", || self.1.0.load(Ordering::Acquire));
        assert!(matches!(poll_once(&mut self.0), Poll::Ready(Ok(_))));
    }
}

/// Of sixteen who wait for one connect the first, who asked for it, is dropped: the others finish, and nothing is left over,
/// wherever it was.
///
/// fails if: k6 (a future that is dropped takes the later ones with it)
#[test]
fn case_k6_dropping_a_waiter_at_any_await_point_cancels_nothing_and_the_others_finish() {
    for point in ["before it is polled", "before the connect", "while it connects", "after the outcome"] {
        let world = world();
        let peer = world.peer("p");
        let hold = world.memory.steps().hold(Step::Connect, "p");
        let unpolled = peer.ready();
        let (first, others) = (Waiter::of(&peer), [(); 15].map(|()| Waiter::of(&peer)));
        let mut hold = Some(hold);
        match point {
            "before it is polled" => drop(unpolled),
            "before the connect" => drop(first), // it asked for the connect
            "while it connects" => {
                hold.iter().for_each(|hold| hold.wait_reached(1));
                drop(first);
            }
            _ => {
                hold = None;
                eventually("it is ready", || peer.phase() == Phase::Ready);
                drop(first);
            }
        }
        drop(hold);
        others.into_iter().for_each(Waiter::finishes);
        assert_eq!(world.connects("p"), 1, "dropped {point}");
        assert_eq!(block_on(peer.remove(world.after(TIMEOUT))), Removed::Removed);
        assert_eq!((world.memory.counts("p").open, world.table.snapshot().peers.len()), (0, 0));
    }
}

/// All permits are held by connects that do not return, and nothing else happens: time alone frees them.
///
/// fails if: k7 (an attempt that timed out keeps its permit)
#[test]
fn case_k7_a_black_holed_connect_gives_up_its_permit_at_its_deadline() {
    let world = world_with(|builder| builder.max_concurrent_connects(1).connect_timeout(TIMEOUT));
    let hold = world.memory.steps().hold(Step::Connect, "p");
    let (p, q) = (world.peer("p"), world.peer("q"));
    assert!(p.lease().is_err());
    hold.wait_reached(1);
    let mut waiter = q.ready();
    assert!(poll_once(&mut waiter).is_pending());
    world.settle();
    assert_eq!((q.phase(), world.connects("q")), (Phase::Idle, 0), "it waits in line");
    world.advance(TIMEOUT);
    block_on(waiter).unwrap();
    assert_eq!((p.phase(), world.table.snapshot().stuck_connects), (Phase::Failed, 1));
    hold.release();
    eventually("the stuck one has returned", || world.table.snapshot().stuck_connects == 0);
}
