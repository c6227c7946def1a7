//! A name inserted again where a second connection would be in the way of the first. The rule is at the head of
//! src/names.rs: the new peer connects when the one before is Removed, and is told by it.

use crate::explore;
use crate::thread;
use crate::wire::{Here, Wire, World};
use peerage::{Capabilities, Peer, Phase};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn remove(peer: &Peer<Wire>) {
    drop(peer.remove(Instant::now() + Duration::from_secs(60)));
}

/// The name's next peer, which has been asked to connect.
fn successor(world: &World) -> Peer<Wire> {
    let successor = world.table.table().insert("p", Here).expect("a name that is leaving may be used again");
    drop(successor.lease());
    successor
}

fn connects_alone(world: Arc<World>, successor: Peer<Wire>) {
    world.table.run();
    assert_eq!(successor.phase(), Phase::Ready, "nobody told it");
    assert_eq!(world.log.most_open(), 1, "two connections of one name");
    drop(successor);
    world.end();
}

#[test]
fn a_successor_connects_when_the_last_lease_of_its_predecessor_is_back() {
    explore(2, || {
        let (world, _) = World::ready(Capabilities::NONE, 1);
        let lease = world.peer.lease().unwrap();
        remove(&world.peer);
        let leaving = thread::spawn(move || drop(lease));
        let successor = successor(&world);
        world.table.run();
        leaving.join().unwrap();
        connects_alone(world, successor);
    });
}

#[test]
fn a_successor_inserted_beside_the_end_of_its_predecessor_connects() {
    explore(2, || {
        let (world, _) = World::ready(Capabilities::NONE, 1);
        remove(&world.peer);
        let inserting = {
            let world = world.clone();
            thread::spawn(move || successor(&world))
        };
        world.table.run();
        let successor = inserting.join().unwrap();
        connects_alone(world, successor);
    });
}

#[test]
fn a_successor_removed_first_hands_its_predecessor_on() {
    explore(2, || {
        let (world, _) = World::ready(Capabilities::NONE, 1);
        let lease = world.peer.lease().unwrap();
        remove(&world.peer);
        let between = successor(&world);
        let leaving = thread::spawn(move || drop(lease));
        remove(&between);
        drop(between);
        let last = successor(&world);
        world.table.run();
        leaving.join().unwrap();
        connects_alone(world, last);
    });
}
