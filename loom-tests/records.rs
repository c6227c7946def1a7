//! The full state of a peer beside its word. The rules are at the head of src/record.rs.

use crate::thread;
use crate::wire::World;
use peerage::__internal::{Joined, join, record_alone, record_of, with_records};
use peerage::{Capabilities, Phase};
use std::sync::Arc;

/// A reader reads while records are replaced and the old ones given to the collector. The reader is the main thread, so
/// one switch is enough to interrupt it anywhere.
#[test]
fn readers_get_the_words_record_and_it_outlives_them() {
    explore(1, || {
        let world = Arc::new(World::new(Capabilities::NONE, 1));
        let driver = {
            let world = world.clone();
            thread::spawn(move || {
                world.ask();
                world.table.run();
            })
        };
        let (stands, record) = record_of(&world.peer);
        if let Some(record) = record {
            assert_eq!((record.phase, record.generation), stands, "answered another state's record");
        }
        driver.join().unwrap();
        world.end();
    });
}

/// A report beats the publish: nobody reads a record that says Ready of a generation that never was.
#[test]
fn a_record_is_never_ahead_of_the_word() {
    explore(1, || {
        let world = Arc::new(World::new(Capabilities::NONE, 1));
        world.ask();
        while world.table.look() {}
        let attempt = world.peer.generation();
        let Joined::Waiting(waiting) = join(&world.peer) else { panic!("it is connecting") };
        let reader = {
            let world = world.clone();
            thread::spawn(move || {
                world.report(attempt);
                record_alone(&world.peer).is_some_and(|record| record.phase == Phase::Ready)
            })
        };
        assert!(world.table.connect_one());
        let says_ready = reader.join().unwrap();
        let was_ready = waiting.peek().is_some_and(|outcome| outcome.is_ok());
        assert!(was_ready || !says_ready, "the record announces a generation that was never Ready");
        world.end();
    });
}

fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    with_records(|| crate::explore(preemptions, model));
}
