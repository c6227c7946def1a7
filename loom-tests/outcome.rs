//! Which outcome a waiter gets.
//!
//! 1. A slot always has exactly one unresolved outcome cell: of the attempt that runs or, if none runs, of the next one.
//! 2. `ready()` reads the word, joins the cell and asks for a connect in one section. So it never gets an outcome older
//!    than its question, and never sleeps unasked.

use crate::explore;
use crate::thread;
use crate::wire::World;
use loom::sync::{Condvar, Mutex};
use peerage::__internal::{Joined, join, stands};
use peerage::{Generation, Phase, ReadyError};
use std::sync::Arc;

/// Wakes the thread that plays the driver: whether something was told, and whether the model is over.
#[derive(Default)]
struct Bell {
    rung: Mutex<(bool, bool)>,
    heard: Condvar,
}

impl Bell {
    fn ring(&self, over: bool) {
        *self.rung.lock().unwrap() = (true, over);
        self.heard.notify_one();
    }

    /// Answers whether the model is over.
    fn hear(&self) -> bool {
        let mut rung = self.rung.lock().unwrap();
        while !rung.0 {
            rung = self.heard.wait(rung).unwrap();
        }
        rung.0 = false;
        rung.1
    }
}

fn ended(outcome: &Result<Generation, ReadyError>) -> Generation {
    match outcome {
        Err(ReadyError::Failed { generation, .. }) => *generation,
        other => panic!("every attempt fails: {other:?}"),
    }
}

/// Every attempt fails; one was asked for already when the waiter comes.
#[test]
fn a_waiter_gets_the_first_outcome_after_its_question() {
    explore(2, || {
        let (world, _) = World::failed();
        world.ask();
        let bell = Arc::new(Bell::default());
        let lane = {
            let (world, bell) = (world.clone(), bell.clone());
            thread::spawn(move || {
                loop {
                    world.table.run();
                    if bell.hear() {
                        return;
                    }
                }
            })
        };
        let (phase, generation) = stands(&world.peer);
        let outcome = match join(&world.peer) {
            Joined::Ended(ended) => panic!("no backoff, no removal: {ended:?}"),
            Joined::Waiting(waiting) => {
                bell.ring(false);
                waiting.wait()
            }
        };
        let first_after = generation.0 + u64::from(phase == Phase::Failed);
        assert!(ended(&outcome).0 >= first_after, "that generation had ended before the question");
        bell.ring(true);
        lane.join().unwrap();
        world.end();
    });
}
