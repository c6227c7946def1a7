//! The driver's end by a panic: nothing moves any more, and nobody may wait for it.
//!
//! The driver marks its death, then tells whoever waits; who comes to wait joins, then looks at the mark. Of the two one
//! sees the other.

use crate::explore;
use crate::thread;
use crate::wire::{Here, Wire, World};
use peerage::__internal::{Joined, join};
use peerage::{Capabilities, Liveness, Peer, ReadyError, Removed};
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

fn far() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// The driver dies on a thread of its own while `wait` comes to wait; what that answers is there afterwards.
fn beside_the_death<W>(capabilities: Capabilities, wait: impl Fn(&World) -> W, told: impl Fn(W)) {
    let (world, _) = World::ready(capabilities, 1);
    let driver = {
        let world = world.clone();
        thread::spawn(move || world.table.driver_dies())
    };
    let waiting = wait(&world);
    driver.join().unwrap();
    told(waiting);
    world.table.run(); // so that the model ends; nobody does that in earnest
    world.end();
}

fn answer<F: Future + Unpin>(mut future: F) -> F::Output
where
    F::Output: Debug,
{
    match Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("it waits for a driver that is dead"),
    }
}

fn is_told(peer: &Joined) -> bool {
    let outcome = match peer {
        Joined::Ended(ended) => Some(ended.clone()),
        Joined::Waiting(waiting) => waiting.peek(),
    };
    matches!(outcome, Some(Err(ReadyError::DriverDied { .. })))
}

#[test]
fn who_waits_for_a_peer_is_told() {
    explore(3, || {
        let world = Arc::new(World::new(Capabilities::NONE, 1));
        let driver = {
            let world = world.clone();
            thread::spawn(move || world.table.driver_dies())
        };
        let joined = join(&world.peer);
        driver.join().unwrap();
        assert!(is_told(&joined), "waits for a driver that is dead");
        world.table.run();
        world.end();
    });
}

/// The walk over the peers may miss a life that has only just begun, here in a place that was used before.
#[test]
fn who_inserts_a_peer_and_waits_for_it_is_told() {
    explore(2, || {
        let world = Arc::new(World::new(Capabilities::NONE, 1));
        let before = world.table.table().insert("q", Here).expect("inserted");
        drop(before.remove(far()));
        drop(before);
        world.table.run();
        let driver = {
            let world = world.clone();
            thread::spawn(move || world.table.driver_dies())
        };
        let peer: Peer<Wire> = world.table.table().insert("q", Here).expect("inserted");
        let joined = join(&peer);
        drop(peer);
        driver.join().unwrap();
        assert!(is_told(&joined), "waits for a driver that is dead");
        world.table.run();
        world.end();
    });
}

#[test]
fn who_removes_a_peer_is_told() {
    explore(3, || {
        beside_the_death(
            Capabilities::NONE,
            |world| world.peer.remove(far()),
            |removal| assert_eq!(answer(removal), Removed::DriverDied),
        );
    });
}

/// The end is made by another thread than the driver, once the driver has passed it on.
#[test]
fn who_ends_the_table_gets_its_report() {
    explore(2, || {
        let (world, _) = World::ready(Capabilities::NONE, 1);
        let driver = {
            let world = world.clone();
            thread::spawn(move || world.table.driver_dies())
        };
        let shutdown = world.table.table().shutdown(far());
        driver.join().unwrap();
        while world.table.close_one() {}
        let _ = answer(shutdown);
        world.table.run();
        world.end();
    });
}

/// The native side has not answered, and will not.
#[test]
fn who_asks_a_peer_is_told() {
    explore(3, || {
        beside_the_death(
            Capabilities::PROBE,
            |world| world.peer.probe(far()),
            |probe| assert_eq!(answer(probe), Liveness::Unknown),
        );
    });
}
