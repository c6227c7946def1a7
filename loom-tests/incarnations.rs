//! This process becomes another one while its peers are connected, reported and removed.
//!
//! 1. The transport changes first, then each peer's generation is retired: no connection goes on that introduced the process
//!    as it was.
//! 2. After the call nobody is admitted on a generation that was retired. It asks for one connect by itself, and who waits
//!    gets the outcome of that.
//! 3. A generation that somebody reported is left to the report, a life that ends meanwhile to its end.
//!
//! No model inserts meanwhile: that is a call of the table, of which the caller lets none run.

use crate::explore;
use crate::thread;
use crate::wire::{Here, World};
use peerage::__internal::{Joined, join};
use peerage::{Capabilities, Incarnation, Phase};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn becomes_another(world: &World) -> Incarnation {
    world.table.table().new_incarnation().expect("the transport can")
}

/// The driver comes to a peer that was asked for, elects and connects.
#[test]
fn who_connects_meanwhile_does_so_as_the_new_process() {
    explore(2, || {
        let world = Arc::new(World::new(Capabilities::NONE, 1));
        world.ask();
        let driver = {
            let world = world.clone();
            thread::spawn(move || world.table.run())
        };
        let new = becomes_another(&world);
        driver.join().unwrap();
        world.table.run();
        assert_eq!(world.introduced(), Some(new), "connected as the former process");
        assert_eq!((world.log.open_connections(), world.log.most_open()), (1, 1));
        world.end();
    });
}

/// An attempt that may have introduced the former process is published.
#[test]
fn an_attempt_of_the_former_process_is_given_up() {
    explore(2, || {
        let world = World::connecting();
        let attempt = world.peer.generation();
        let Joined::Waiting(waiting) = join(&world.peer) else { panic!("an attempt runs") };
        let connecting = thread::spawn(world.table.attempt().expect("elected"));
        let new = becomes_another(&world);
        assert_ne!(world.send(), Some(attempt), "admitted on a generation that was retired");
        connecting.join().unwrap();
        world.table.run();
        let outcome = waiting.peek().expect("it has ended").expect("no attempt fails");
        assert!(outcome == attempt || outcome == world.peer.generation());
        assert_eq!((world.peer.phase(), world.introduced()), (Phase::Ready, Some(new)));
        assert_eq!((world.log.open_connections(), world.log.most_open()), (1, 1));
        world.end();
    });
}

/// Somebody sends, then reports.
#[test]
fn a_connection_of_the_former_process_is_retired_or_reported() {
    explore(2, || {
        let (world, old) = World::ready(Capabilities::NONE, 1);
        let reporting = {
            let world = world.clone();
            thread::spawn(move || {
                world.send();
                world.report(old)
            })
        };
        let new = becomes_another(&world);
        assert_ne!(world.send(), Some(old), "admitted on a generation that was retired");
        if reporting.join().unwrap() {
            world.ask();
        }
        world.table.run();
        assert_eq!((world.peer.phase(), world.introduced()), (Phase::Ready, Some(new)));
        assert_eq!((world.log.open_connections(), world.log.most_open()), (1, 1));
        world.end();
    });
}

/// A peer is removed and its last reference dropped.
#[test]
fn a_life_that_ends_meanwhile_is_left_to_its_end() {
    explore(2, || {
        let (world, _) = World::ready(Capabilities::NONE, 1);
        let leaving = world.table.table().insert("q", Here).expect("inserted");
        drop(leaving.remove(Instant::now() + Duration::from_secs(60)));
        let driver = {
            let world = world.clone();
            thread::spawn(move || {
                drop(leaving);
                world.table.run();
            })
        };
        let new = becomes_another(&world);
        driver.join().unwrap();
        world.table.run();
        assert_eq!(world.introduced(), Some(new));
        assert!(world.table.table().peer("q").is_none());
        world.end();
    });
}
