//! Who waits while what it waits for comes.
//!
//! 1. A waiter looks at the outcome and leaves its waker, or goes to sleep, in one section of the cell's mutex; the outcome
//!    comes in another. So one of the two sees the other. A lost wake-up is a deadlock, which loom reports.
//! 2. Each future has a place of its own, and the waker of its last poll is in it; dropping one empties that place.
//! 3. Who joins a removal either finds it over or is on the list that its end takes, in one section of the slot's mutex.

use crate::explore;
use crate::thread;
use crate::wire::{Wire, World};
use loom::sync::{Condvar, Mutex};
use peerage::{Capabilities, Generation, Ready, Removed};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// A task's waker; `sleep` returns once it has been woken.
struct Bell {
    rung: Mutex<bool>,
    heard: Condvar,
}

impl Bell {
    fn new() -> Arc<Self> {
        Arc::new(Bell { rung: Mutex::new(false), heard: Condvar::new() })
    }

    fn sleep(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.heard.wait(rung).unwrap();
        }
        *rung = false;
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        *self.rung.lock().unwrap() = true;
        self.heard.notify_one();
    }
}

fn poll<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

fn block_on<F: Future + Unpin>(mut future: F) -> F::Output {
    let bell = Bell::new();
    let waker = Waker::from(bell.clone());
    loop {
        match poll(&mut future, &waker) {
            Poll::Ready(outcome) => return outcome,
            Poll::Pending => bell.sleep(),
        }
    }
}

/// A peer whose attempt another thread runs, and futures that wait for it.
fn with_waiters<const N: usize>(model: impl Fn(&World, [Ready<Wire>; N]) -> Generation + Sync + Send + 'static) {
    explore(3, move || {
        let world = World::connecting();
        let attempt = world.peer.generation();
        let waiters = [(); N].map(|()| world.peer.ready());
        let connecting = thread::spawn(world.table.attempt().expect("elected"));
        assert_eq!(model(&world, waiters), attempt);
        connecting.join().unwrap();
        world.end();
    });
}

#[test]
fn a_future_is_woken_by_the_outcome_it_waits_for() {
    with_waiters(|_, [waiter]| block_on(waiter).expect("it connects"));
}

#[test]
fn a_future_that_moves_to_another_task_is_woken_there() {
    with_waiters(|_, [mut waiter]| match poll(&mut waiter, Waker::noop()) {
        Poll::Ready(outcome) => outcome.expect("it connects"),
        Poll::Pending => block_on(waiter).expect("it connects"),
    });
}

#[test]
fn a_future_that_is_dropped_meanwhile_takes_no_other_with_it() {
    with_waiters(|_, [mut dropped, waiter]| {
        let _ = poll(&mut dropped, Waker::noop());
        let elsewhere = thread::spawn(move || drop(dropped));
        let outcome = block_on(waiter);
        elsewhere.join().unwrap();
        outcome.expect("it connects")
    });
}

#[test]
fn a_thread_is_woken_by_the_outcome_it_waits_for() {
    with_waiters(|world, []| world.peer.wait_ready(Instant::now() + Duration::from_secs(60)).expect("it connects"));
}

/// A peer is removed twice while the driver brings the removal to its end.
#[test]
fn every_remover_learns_the_end() {
    explore(2, || {
        let (world, _) = World::ready(Capabilities::NONE, 1);
        let far = Instant::now() + Duration::from_secs(60);
        let other = {
            let world = world.clone();
            thread::spawn(move || world.peer.remove(far))
        };
        let here = world.peer.remove(far);
        world.table.run();
        let there = other.join().unwrap();
        world.table.run();
        for mut removal in [here, there] {
            assert_eq!(poll(&mut removal, Waker::noop()), Poll::Ready(Removed::Removed), "a remover was forgotten");
        }
        world.end();
    });
}
