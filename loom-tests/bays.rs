//! Users and their connection: lease, use, leave, report, close, reopen in the same bay, by the real driver and lane.
//!
//! 1. Enter is a CAS on an open stripe, then the word is read again. The last one out of a closed gate is told.
//! 2. A connection is closed after every use of it, and opened before every use of it.
//! 3. After a report returned, nobody is admitted on its generation.
//! 4. The lane learns "drained" only from the DRAINED bit, never from `left` or the stripes.

use crate::explore;
use crate::thread;
use crate::wire::{World, use_lease};
use peerage::__internal::use_stripe;
use peerage::Capabilities;

/// Two senders on one stripe while the generation is reported, closed and replaced.
#[test]
fn every_use_precedes_the_close_one_stripe() {
    explore(2, || {
        let (world, first) = World::ready(Capabilities::NONE, 1);
        let senders = [0, 0].map(|stripe| world.sender(stripe));
        world.report(first);
        assert_ne!(world.send(), Some(first), "admitted after the report returned");
        world.ask();
        world.table.run();
        for sender in senders {
            sender.join().unwrap();
        }
        world.end();
    });
}

/// One sender per stripe.
#[test]
fn every_use_precedes_the_close_two_stripes() {
    explore(2, || {
        let (world, first) = World::ready(Capabilities::NONE, 2);
        let senders = [0, 1].map(|stripe| world.sender(stripe));
        world.report(first);
        world.ask();
        world.table.run();
        for sender in senders {
            sender.join().unwrap();
        }
        world.end();
    });
}

/// A late entrant of the first generation may be the last one out of the second.
#[test]
fn a_late_entrant_may_drain_the_next_generation() {
    explore(3, || {
        let (world, first) = World::ready(Capabilities::NONE, 1);
        let sender = world.sender(0);
        world.report(first);
        world.ask();
        world.table.run();
        world.report(world.peer.generation());
        world.table.run();
        sender.join().unwrap();
        world.end();
    });
}

/// Two leases taken before the report are used and left while the lane closes and disconnects.
fn held_leases(stripes: [u32; 2]) {
    explore(3, move || {
        let (world, first) = World::ready(Capabilities::NONE, 2);
        let holders = stripes.map(|stripe| {
            use_stripe(stripe);
            let lease = world.peer.lease().unwrap();
            thread::spawn(move || {
                use_lease(&lease, "p");
            })
        });
        world.report(first);
        world.table.run();
        for holder in holders {
            holder.join().unwrap();
        }
        world.end();
    });
}

#[test]
fn every_held_lease_precedes_the_close() {
    held_leases([0, 0]);
}

#[test]
fn every_held_lease_precedes_the_close_two_stripes() {
    held_leases([0, 1]);
}

/// The last leaver has left its stripe and not told yet when the lane looks.
#[test]
fn a_bay_is_drained_when_its_bit_comes_from_the_queue() {
    explore(2, || {
        let (world, first) = World::ready(Capabilities::NONE, 1);
        let sender = world.sender(0);
        world.report(first);
        world.ask();
        world.table.run();
        sender.join().unwrap();
        world.table.run();
        assert!(world.send().is_some_and(|now| now != first), "closed, and not opened again");
        world.end();
    });
}

/// A lease is left on another thread than it was taken on.
#[test]
fn a_lease_leaves_on_the_stripe_it_entered() {
    explore(2, || {
        let (world, first) = World::ready(Capabilities::NONE, 2);
        let lease = world.peer.lease().unwrap();
        let holder = thread::spawn(move || {
            use_stripe(1);
            use_lease(&lease, "p");
        });
        world.report(first);
        world.table.run();
        holder.join().unwrap();
        world.end();
    });
}
