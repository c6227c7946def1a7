//! Names and their end. The rule is at the head of src/names.rs: shutdown is a state of the snapshot that inserts replace.

use crate::explore;
use crate::thread;
use crate::wire::{Here, World};
use peerage::{Capabilities, Phase};
use std::sync::Arc;
use std::time::Instant;

/// A peer is inserted while the table shuts down: it is refused, or removed like the others.
#[test]
fn no_insert_slips_in_after_the_shutdown() {
    explore(2, || {
        let world = Arc::new(World::new(Capabilities::NONE, 1));
        let inserter = {
            let world = world.clone();
            thread::spawn(move || world.table.table().insert("q", Here).ok())
        };
        drop(world.table.table().shutdown(Instant::now()));
        let inserted = inserter.join().unwrap();
        world.table.run();
        if let Some(late) = inserted {
            assert_eq!(late.phase(), Phase::Removed, "inserted after the shutdown's walk");
        }
        world.end();
    });
}

/// Two threads insert one name: one slot, and both get it.
#[test]
fn one_name_is_one_slot() {
    explore(2, || {
        let world = Arc::new(World::new(Capabilities::NONE, 1));
        let other = {
            let world = world.clone();
            thread::spawn(move || world.table.table().insert("q", Here).unwrap().id())
        };
        let here = world.table.table().insert("q", Here).unwrap().id();
        assert_eq!(other.join().unwrap(), here);
        world.end();
    });
}
