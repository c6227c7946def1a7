//! Sequences of operations on a table, compared after each with the same sequential model as in `tests/model.rs`.
//!
//! Input: what the transport can do, 1 | four bytes per operation. A sequence that fails is printed as the arguments of
//! `replay` there.

#![no_main]

#[allow(dead_code)]
#[path = "../../tests/model/mod.rs"]
mod model;

use libfuzzer_sys::fuzz_target;
use model::op::{self, Op, Setup};
use model::world;

/// Longer sequences find little more and cost much.
const LONGEST: usize = 150;

fuzz_target!(|input: &[u8]| {
    let [first, rest @ ..] = input else { return };
    let setup = Setup { overlap: first & 1 != 0, quiesces: first & 2 != 0 };
    let (operations, _) = rest.as_chunks::<{ op::BYTES }>();
    let ops: Vec<_> = operations.iter().take(LONGEST).map(|bytes| Op::of(*bytes)).collect();
    if let Err(error) = world::run(setup, &ops) {
        panic!("{error}\n{}", op::code(setup, &ops));
    }
});
