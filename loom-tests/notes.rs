//! Where the winner of a report leaves its error. The rules are at the head of src/note.rs.

use crate::explore;
use crate::thread;
use crate::wire::{Broken, World};
use peerage::__internal::last_error;
use peerage::{Capabilities, Reported};

/// Two generations are reported; the note of the first may come after the second has failed.
#[test]
fn each_generation_gets_its_own_error() {
    explore(3, || {
        let (world, first) = World::ready(Capabilities::NONE, 1);
        let next = {
            let world = world.clone();
            thread::spawn(move || {
                world.ask();
                world.table.run();
                let second = world.peer.generation();
                second != first && world.peer.report(second, &Broken("second")) == Reported::Failed
            })
        };
        let _ = world.peer.report(first, &Broken("first"));
        let failed = next.join().unwrap();
        if failed {
            assert_eq!(last_error(&world.peer).as_deref(), Some("second"), "another generation's error, or none");
        }
        world.end();
    });
}
