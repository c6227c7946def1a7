//! How a lease on a failed peer asks for one connect.
//!
//! 1. `wanted` is a generation, not a bit: "the failure of g is to be repaired". It only grows.
//! 2. Only the RMW that raised it pushes. Nobody clears it: a newer failure makes it stale.

use crate::explore;
use crate::thread;
use crate::wire::World;
use peerage::{Generation, Phase};

/// Asks; answers the failed generation that was seen, if one was.
fn ask(world: &World) -> Option<Generation> {
    let refused = world.peer.lease().err()?;
    (refused.phase == Phase::Failed).then_some(refused.generation)
}

/// Every attempt fails; whoever saw a failure is followed by another attempt.
#[test]
fn a_wanted_generation_loses_no_request() {
    explore(2, || {
        let (world, _) = World::failed();
        let callers = [(); 2].map(|()| {
            let world = world.clone();
            thread::spawn(move || ask(&world).max(ask(&world)))
        });
        world.table.run();
        world.table.run();
        let asked = callers.map(|caller| caller.join().unwrap()).into_iter().max().flatten();
        world.table.run();
        world.table.run();
        assert!(Some(world.peer.generation()) > asked, "asked to repair {asked:?}, and the lane sleeps");
        world.end();
    });
}

/// An attempt succeeds and is reported; who read the word long before causes no connect.
#[test]
fn a_wanted_generation_causes_no_connect_by_itself() {
    explore(2, || {
        let (world, first) = World::failed();
        world.log.fails.store(false, std::sync::atomic::Ordering::SeqCst);
        let stale = {
            let world = world.clone();
            thread::spawn(move || ask(&world))
        };
        world.ask();
        world.table.run();
        let second = world.peer.generation();
        if second == first {
            stale.join().unwrap(); // the other caller raised `wanted` and has not pushed yet
            return world.end();
        }
        assert!(world.report(second));
        world.table.run();
        let asked = stale.join().unwrap();
        world.table.run();
        assert!(world.peer.generation() == second || asked == Some(second), "a connect that nobody asked for");
        world.end();
    });
}
