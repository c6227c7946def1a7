//! Models of the table's protocols, run under every schedule by loom. One file per protocol, one test per rule. What each
//! must be failed by is in `mutants`; `ci/loom.sh --mutants` applies them one by one to the real code.
#![cfg(peerage_loom)]

mod attempts;
mod bays;
mod closing;
mod death;
mod heartbeats;
mod ids;
mod incarnations;
mod lending;
mod names;
mod notes;
mod outcome;
mod queue;
mod records;
mod registering;
mod shutting_down;
mod successors;
mod thread;
mod tickets;
mod updates;
mod waiting;
mod wanted;
mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Runs `model` under every schedule with at most `preemptions` involuntary switches.
fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    let schedules = Arc::new(AtomicUsize::new(0));
    let counted = schedules.clone();
    builder.check(move || {
        counted.fetch_add(1, Relaxed);
        model();
    });
    println!("{}: {} schedules", std::thread::current().name().unwrap_or("model"), schedules.load(Relaxed));
}
