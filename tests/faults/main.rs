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
//! | `transport` | the transports they talk over: the one place that has to do with one of them |
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
use transport::Over;

/// Set in the processes of a plan: what each of them is.
const CHILD: &str = "PEERAGE_FAULTS_CHILD";

#[test]
#[ignore = "what the other tests start as their processes"]
fn a_process_of_a_plan() {
    if let Ok(setup) = std::env::var(CHILD) {
        child::run(&setup);
    }
}

fn walk_through(plan: &str, over: Over) {
    let file = format!("{}/tests/faults/plans/{plan}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
    let plan = Plan::parse(&file, &text).unwrap_or_else(|error| panic!("{error}"));
    let mut run = Run::start(&plan, over);
    for step in &plan.steps {
        run.step(step);
    }
    run.finish(&plan.expect);
}

/// What a plan mutes is a way that connections are dialled over. Those of `Ucx` say hello over it and tell each other where to
/// send the rest, which goes from process to process: with both directions muted, thousands of requests are answered. Plans in
/// which data must not get through say `over_tcp_only`; a network that swallows data of `Ucx` is in `ci/ucx_hosts.sh`, a writer
/// that is killed in a transfer in `tests/ucx/writers.rs`. A plan in which only hellos must not get through is meant for both.
#[cfg(feature = "ucx")]
macro_rules! over_ucx {
    ($plan:ident) => {
        #[test]
        fn $plan() {
            super::walk_through(stringify!($plan), super::Over::Ucx);
        }
    };
    ($plan:ident over_tcp_only) => {
        #[test]
        #[ignore = "SKIPPED: what a plan mutes, UCX's data goes around; ci/ucx_hosts.sh mutes a network"]
        fn $plan() {
            super::walk_through(stringify!($plan), super::Over::Ucx);
        }
    };
}

/// A test for each plan over each transport, and one that no plan is without.
macro_rules! plans {
    ($($plan:ident $(($only:ident))?,)*) => {
        $(#[test] fn $plan() { walk_through(stringify!($plan), Over::Tcp); })*

        #[cfg(feature = "ucx")]
        mod over_ucx {
            $(over_ucx! { $plan $($only)? })*
        }

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
    cut,
    flapping_connection,
    flapping_process,
    kill_and_restart,
    kill_both_ends,
    kill_during_connect,
    kill_for_good,
    kill_the_owner_of_a_page_in_a_transfer (over_tcp_only),
    kill_the_writer_in_a_transfer (over_tcp_only),
    kill_two_at_once,
    mute_both_ways (over_tcp_only),
    mute_what_it_hears (over_tcp_only),
    mute_what_it_says (over_tcp_only),
    remove_and_insert,
    remove_while_stopped,
    restart_at_another_address,
    restart_while_muted,
    stop_briefly,
    stop_past_the_deadline,
    stop_the_survivor,
}
