//! Real processes that are killed, stopped, cut, muted and restarted as plans say, while they send to each other; and the
//! table that must be true afterwards. `plan.rs` says what a plan may have, `plans/` has them.
//!
//! | file | idea |
//! |---|---|
//! | `plan`, `field` | reading a plan; where one is wrong |
//! | `run`, `proxy` | starting processes, breaking them, waiting for signs |
//! | `judge` | what is wrong with what they say at the end |
//! | `soak` | one plan's steps again and again, and what is left of them |
//! | `child` | one process: the traffic, and its ledger |
//! | `transport` | the transport they talk over: the one place that names it |
//! | `lines` | what is said between the test and its processes |
#![cfg(all(target_os = "linux", not(peerage_loom)))]

mod child;
mod field;
mod judge;
mod lines;
mod plan;
mod run;
mod soak;
mod transport;

// What the failover example has too. Some of it only the example asks for.
#[allow(dead_code)]
#[path = "../../examples/pd_failover/measure.rs"]
mod measure;
#[path = "../../examples/pd_failover/pages.rs"]
mod pages;
#[path = "../../examples/pd_failover/parent/process.rs"]
mod process;
#[path = "../../examples/pd_failover/parent/proxy.rs"]
mod proxy;
#[allow(dead_code)]
#[path = "../../examples/pd_failover/random.rs"]
mod random;

use plan::Plan;
use run::Run;

/// Set in the processes of a plan: what each of them is.
const CHILD: &str = "PEERAGE_FAULTS_CHILD";

#[test]
#[ignore = "what the other tests start as their processes"]
fn a_process_of_a_plan() {
    if let Ok(setup) = std::env::var(CHILD) {
        child::run(&setup);
    }
}

fn walk_through(plan: &str) {
    let file = format!("{}/tests/faults/plans/{plan}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
    let plan = Plan::parse(&file, &text).unwrap_or_else(|error| panic!("{error}"));
    let mut run = Run::start(&plan);
    for step in &plan.steps {
        run.step(step);
    }
    run.finish(&plan.expect);
}

/// A test for each plan, and one that no plan is without.
macro_rules! plans {
    ($($plan:ident)*) => {
        $(#[test] fn $plan() { walk_through(stringify!($plan)); })*

        #[test]
        fn every_plan_is_walked_through() {
            let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/faults/plans")).unwrap();
            let mut names: Vec<_> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            assert_eq!(names, [$(concat!(stringify!($plan), ".json")),*]);
        }
    };
}

plans! {
    cut
    flapping_connection
    flapping_process
    kill_and_restart
    kill_both_ends
    kill_during_connect
    kill_for_good
    kill_the_owner_of_a_page_in_a_transfer
    kill_the_writer_in_a_transfer
    kill_two_at_once
    mute_both_ways
    mute_what_it_hears
    mute_what_it_says
    remove_and_insert
    remove_while_stopped
    restart_at_another_address
    restart_while_muted
    stop_briefly
    stop_past_the_deadline
    stop_the_survivor
}
