//! Runs the tests inside the parts of `examples/pd_failover`: `cargo test` builds an example, and either runs it as a
//! program, as `tests/pd_failover.rs` needs it, or runs the tests in it, never both.

// What only the example's `main` calls.
#![allow(dead_code)]

#[path = "../examples/pd_failover/args.rs"]
mod args;
#[path = "../examples/pd_failover/bound.rs"]
mod bound;
#[path = "../examples/pd_failover/child/mod.rs"]
mod child;
#[path = "../examples/pd_failover/faults.rs"]
mod faults;
#[path = "../examples/pd_failover/finding.rs"]
mod finding;
#[path = "../examples/pd_failover/latency.rs"]
mod latency;
#[path = "../examples/pd_failover/ledger.rs"]
mod ledger;
#[path = "../examples/pd_failover/lines.rs"]
mod lines;
#[path = "../examples/pd_failover/measure.rs"]
mod measure;
#[path = "../examples/pd_failover/modes/mod.rs"]
mod modes;
#[path = "../examples/pd_failover/pages.rs"]
mod pages;
#[path = "../examples/pd_failover/parent/mod.rs"]
mod parent;
#[path = "../examples/pd_failover/random.rs"]
mod random;
#[path = "../examples/pd_failover/report.rs"]
mod report;
#[path = "../examples/pd_failover/scenario.rs"]
mod scenario;
#[path = "../examples/pd_failover/trace.rs"]
mod trace;
#[path = "../examples/pd_failover/wire.rs"]
mod wire;
