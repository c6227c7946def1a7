//! A ticket in a user's hands.
//!
//! 1. While it exists no other connect of its peer starts, also when its attempt has ended.
//! 2. While it exists its peer is not Removed.

use crate::explore;
use crate::thread;
use crate::wire::World;
use peerage::{Capabilities, Phase, Transport};
use std::sync::Arc;
use std::time::{Duration, Instant};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The user connects and publishes; answers whether the peer was Removed under the ticket.
fn by_hand(world: &Arc<World>) -> thread::JoinHandle<()> {
    let ticket = world.peer.try_elect().expect("nobody else connects");
    let world = world.clone();
    thread::spawn(move || {
        let connected = world.table.table().transport().connect(ticket.context(), ticket.address());
        assert_ne!(world.peer.phase(), Phase::Removed, "removed under a ticket");
        drop(ticket.publish(connected.expect("no connect fails")));
    })
}

#[test]
fn a_ticket_that_expires_still_keeps_other_connects_away() {
    explore(2, || {
        let world = Arc::new(World::new(Capabilities::NONE, 1));
        let publishing = by_hand(&world);
        world.table.advance(CONNECT_TIMEOUT);
        world.table.run();
        world.ask();
        world.table.run();
        publishing.join().unwrap();
        world.table.run();
        world.ask();
        world.table.run();
        assert_eq!(world.peer.phase(), Phase::Ready);
        assert_eq!((world.log.open_connections(), world.log.most_open()), (1, 1));
        world.end();
    });
}

#[test]
fn a_ticket_outlives_the_beginning_of_a_removal_and_not_its_end() {
    explore(2, || {
        let world = Arc::new(World::new(Capabilities::NONE, 1));
        let publishing = by_hand(&world);
        drop(world.peer.remove(Instant::now() + CONNECT_TIMEOUT));
        assert!(world.send().is_none(), "admitted after remove returned");
        world.table.run();
        publishing.join().unwrap();
        world.table.run();
        assert_eq!((world.peer.phase(), world.log.open_connections()), (Phase::Removed, 0));
        world.end();
    });
}
