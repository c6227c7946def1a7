//! What the table promises, as tests: one file per promise, and every test's name is a rule.
//!
//! Where time matters it is virtual: a manual clock over the `Memory` transport. What holds over every transport is tested
//! over every one.

mod common;

mod bad_input;
mod beating;
mod breaking;
mod closing;
mod electing;
mod ends;
mod exact_removal;
mod extremes;
mod following;
mod forsaken;
mod giving_up;
mod going_away;
mod gone;
mod grants;
mod grouping;
mod half_inserted;
mod half_made;
mod histories;
mod ids;
mod incarnations;
mod isolation;
mod one_connect;
mod pacing;
mod panics;
mod probing;
mod quarantine;
mod reentrancy;
mod registering;
mod removing;
mod restored;
mod retries;
mod sending;
mod showing;
mod shutting_down;
mod staged;
mod stalling;
mod transfers;
mod updating;
mod visibility;
mod waiting;
