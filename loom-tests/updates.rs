//! Another address, while the peer is used, reported and connected.
//!
//! 1. After an update has answered that it retired a generation, nobody is admitted on it and its attempt is never Ready.
//! 2. It asks for one connect by itself. Who waits for an attempt that is given up gets the outcome of the next one.
//! 3. An update that keeps the connection hides no report: the generation fails, and the peer connects again.
//! 4. What a retired generation made is closed before the next connect.

use crate::explore;
use crate::thread;
use crate::wire::{Moved, There, World};
use peerage::__internal::{Joined, join};
use peerage::{Capabilities, Phase, Updated};

/// Whoever comes first fails the generation; the other one finds it failed.
#[test]
fn an_update_retires_a_generation_that_somebody_reports() {
    explore(2, || {
        let (world, old) = World::ready(Capabilities::NONE, 1);
        let reporting = {
            let world = world.clone();
            thread::spawn(move || world.report(old))
        };
        let updated = world.peer.update(There).expect("it stays in the table");
        assert_ne!(world.send(), Some(old), "admitted on a generation that was retired");
        let reported = reporting.join().unwrap();
        assert_eq!(updated, if reported { Updated::Stored } else { Updated::Retired(old) });
        if reported {
            world.ask();
        }
        world.table.run();
        assert_eq!((world.peer.phase(), world.peer.generation() > old), (Phase::Ready, true));
        assert_eq!((world.log.open_connections(), world.log.most_open()), (1, 1));
        world.end();
    });
}

/// The attempt at the old address is published while the address is replaced.
#[test]
fn who_waits_gets_the_outcome_of_the_attempt_that_was_not_given_up() {
    explore(2, || {
        let world = World::connecting();
        let attempt = world.peer.generation();
        let Joined::Waiting(waiting) = join(&world.peer) else { panic!("an attempt runs") };
        let connecting = thread::spawn(world.table.attempt().expect("elected"));
        assert_eq!(world.peer.update(There), Ok(Updated::Retired(attempt)));
        assert_ne!(world.send(), Some(attempt), "admitted on a generation that was retired");
        connecting.join().unwrap();
        world.table.run();
        let outcome = waiting.peek().expect("it has ended").expect("no attempt fails");
        assert!(outcome == attempt || outcome == world.peer.generation());
        assert_eq!((world.peer.phase(), world.peer.generation() > attempt), (Phase::Ready, true));
        assert_eq!((world.log.open_connections(), world.log.most_open()), (1, 1));
        world.end();
    });
}

/// The report comes while the address of the same process is replaced.
#[test]
fn an_update_in_place_hides_no_report() {
    explore(2, || {
        let (world, old) = World::ready(Capabilities::UPDATES_IN_PLACE, 1);
        let reporting = {
            let world = world.clone();
            thread::spawn(move || world.report(old))
        };
        let updated = world.peer.update(Moved).expect("it stays in the table");
        assert!(matches!(updated, Updated::Kept(_) | Updated::Stored), "{updated:?}");
        assert!(reporting.join().unwrap(), "no update retired it");
        world.table.run();
        world.ask();
        world.table.run();
        assert_eq!((world.peer.phase(), world.peer.generation() > old), (Phase::Ready, true));
        assert_eq!((world.log.open_connections(), world.log.most_open()), (1, 1));
        world.end();
    });
}
