//! What users of systems like this were bitten by, as tests: one file per group, and every name begins with the case's id.
//! `tests/CASES.md` lists the cases; `ci/cases.sh` finds the test of each, here and in the other targets.
//!
//! Over `Memory`, with its steps held and its time moved by the test; over `Tcp` where a case is about sockets. Each test
//! says what makes it fail: a patch in `mutants/`, which `ci/cases.sh --mutants` applies to the source.

#[allow(dead_code, unused_imports)]
#[path = "../spec/common/mod.rs"]
mod common;
mod pages;
#[allow(dead_code)]
#[cfg(all(feature = "tcp", not(peerage_loom)))]
#[path = "../tcp/support.rs"]
mod support;

mod a;
mod b;
mod c;
mod d;
mod e;
mod f;
mod g;
mod h;
mod i;
mod j;
mod k;
mod l;
