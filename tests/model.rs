//! Generated state-machine tests: random sequences of everything that can be done to a table, over the `Memory` transport
//! with a clock that only the test moves, against a table as one would write it if nothing ever happened at the same time
//! (`model/sequential.rs`). Interleavings come from holding the transport's steps: connects, closes and completions are
//! held and released by operations of their own, with anything in between.
//!
//! The laws, each checked after every operation:
//!
//! 1.  One connect. A peer has at most one native connect running, and every election makes exactly one.
//! 2.  Generations. A new one is greater than every one before it and is nobody else's; a peer's never falls.
//! 3.  Staleness. A report or a conditional removal that names another generation changes nothing and says so.
//! 4.  Closing. A connection is closed exactly once, after its last lease, without a call in it, and not under a
//!     transfer unless the close quiesces.
//! 5.  Admission. A lease is granted at Ready only, of the current generation only: not after a report, a removal or a
//!     shutdown has returned, not of a removed peer's id even when its place has another peer.
//! 6.  Explanation. `NotReady`, records and snapshots tell the model's phase, generation, reason, time and counts.
//! 7.  Asking. A report never connects. A lease or `ready()` at a failed generation asks for one reconnect, which starts
//!     when the backoff allows and not before.
//! 8.  Waiting. Everybody who waits for an attempt gets that attempt's outcome; nobody sleeps through a backoff; who waits
//!     for a place that is not given back is told at the drain deadline.
//! 9.  Backoff. A failure of the peer widens the window, a stable generation forgives, other failures wait as long as they
//!     say and count nothing.
//! 10. Attempts end: at their deadline, by a report, by a removal. What comes too late, or from another incarnation than
//!     the address names, is closed and never seen; until then its peer does not connect again.
//! 11. Removal. It ends as Removed or Leaked when nothing of the peer is left, and as StillBusy at the caller's deadline.
//! 12. Transfers. Each ends once, as Done or Unknown, as the model says; its pages are held until it is quiescent.
//! 13. Grants. Nothing is admitted under a revoked one; it ends with the connection it is bound to; shutdown revokes all.
//! 14. Registrations. A region in use is not taken back, by nobody.
//! 15. Updates. An address that may be another process retires the generation and forgets the backoff, counts no failure,
//!     and who waits goes on waiting; one that is the same process keeps the connection where the transport can.
//! 16. Tickets. A user's ticket is an attempt like any other: one at a time, ended once, undone when it comes too late.
//! 17. Names used again. Where a second connection would be in the way, a new peer connects when the one before is Removed,
//!     and who waits for longer than the drain deadline is told.
//! 18. Shutdown. It ends at its deadline at the latest, and its report is what the model has left.
//!
//! A sequence that fails is shrunk and printed as a test to paste below. `PEERAGE_MODEL_CASES=20000` runs as many
//! sequences; `PEERAGE_MODEL_OPS=300` makes them as long.

#[path = "model/mod.rs"]
mod model;

use model::op::{self, Op, Setup};
use model::world;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use std::fmt;

/// Sequences unless the environment says otherwise.
const CASES: u32 = 256;
/// The longest sequence unless the environment says otherwise.
const OPS: usize = 120;

#[derive(Clone)]
struct Case {
    setup: Setup,
    ops: Vec<Op>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&op::code(self.setup, &self.ops))
    }
}

fn cases(longest: usize) -> impl Strategy<Value = Case> {
    let ops = vec(any::<[u8; op::BYTES]>().prop_map(Op::of), 1..=longest);
    (any::<(bool, bool)>(), ops).prop_map(|((overlap, quiesces), ops)| Case { setup: Setup { overlap, quiesces }, ops })
}

fn from_environment<N: std::str::FromStr>(name: &str, default: N) -> N {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => default,
    }
}

fn replay(setup: Setup, ops: &[Op]) {
    if let Err(error) = world::run(setup, ops) {
        panic!("{error}");
    }
}

#[test]
fn the_table_behaves_like_its_sequential_model() {
    let cases_wanted = from_environment("PEERAGE_MODEL_CASES", CASES);
    let config =
        Config { cases: cases_wanted, failure_persistence: None, max_shrink_time: 30_000, ..Config::default() };
    let longest = from_environment("PEERAGE_MODEL_OPS", OPS);
    let run = TestRunner::new(config)
        .run(&cases(longest), |case| world::run(case.setup, &case.ops).map_err(TestCaseError::fail));
    if let Err(error) = run {
        panic!("{error}");
    }
    let seen = world::seen();
    println!("{} operations", seen.values().sum::<u64>());
    seen.iter().for_each(|(what, times)| println!("{times:8} {what}"));
}

// Sequences that failed once.

const OVERLAP: Setup = Setup { overlap: true, quiesces: true };

#[test]
fn who_waits_for_a_running_attempt_is_not_told_of_an_old_connection_that_does_not_drain() {
    use op::{At, Op::*, Which::*};
    replay(
        OVERLAP,
        &[
            Insert { name: 0, address: 0 },
            Ready { handle: 0 },
            Lease { handle: 0, elsewhere: false },
            Report { handle: 0, which: Current },
            Advance { by: 2 },
            Hold { at: At::Connect, name: 0 },
            Ready { handle: 0 },
            Advance { by: 4 },
        ],
    );
}

#[test]
fn waiting_for_an_attempt_does_not_ask_for_the_one_after_it() {
    use op::{At, Op::*, Which::*};
    replay(
        OVERLAP,
        &[
            Insert { name: 0, address: 0 },
            Hold { at: At::Connect, name: 0 },
            Ready { handle: 0 },
            Ready { handle: 0 },
            Report { handle: 0, which: Current },
            Release { at: At::Connect, name: 0 },
            Advance { by: 2 },
        ],
    );
}

#[test]
fn two_shutdowns_that_end_at_once_both_report_what_is_left() {
    use op::{At, Op::*};
    replay(
        Setup { overlap: false, quiesces: true },
        &[
            Insert { name: 0, address: 0 },
            Hold { at: At::Connect, name: 0 },
            Ready { handle: 0 },
            Advance { by: 5 },
            Shutdown { within: 5 },
            Shutdown { within: 5 },
            Release { at: At::Connect, name: 0 },
        ],
    );
}

#[test]
fn a_shutdown_whose_deadline_is_long_over_takes_back_what_is_not_used_before_it_reports() {
    use op::Op::*;
    replay(
        Setup { overlap: false, quiesces: false },
        &[
            Insert { name: 0, address: 0 },
            Ready { handle: 0 },
            Lease { handle: 0, elsewhere: false },
            Shutdown { within: 0 },
            Advance { by: 5 },
        ],
    );
}

#[test]
fn a_close_that_hangs_keeps_the_pages_of_a_transfer_and_not_its_caller() {
    use op::{At, Op::*, Which::*};
    replay(
        OVERLAP,
        &[
            Insert { name: 0, address: 0 },
            Lease { handle: 0, elsewhere: false },
            Lease { handle: 0, elsewhere: false },
            Hold { at: At::Complete, name: 0 },
            Hold { at: At::Close, name: 0 },
            Write { lease: 0 },
            Report { handle: 0, which: Current },
            DropLease { lease: 0, elsewhere: false },
            Advance { by: 4 },
            Deregister,
            Release { at: At::Complete, name: 0 },
            Deregister,
        ],
    );
}
