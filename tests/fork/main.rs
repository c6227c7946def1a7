//! What a forked child may do with its parent's table: nothing, and it is told so at once. What it does to the parent: nothing.
//!
//! A program without a test harness, so that it forks with no other threads than the library's and those a test starts. These
//! hold whatever they hold at the fork, so the tests fork many times; a child that waits for one of them is ended by its
//! alarm. What a child panics with is on its standard error.
#![cfg_attr(not(all(unix, feature = "tcp", not(peerage_loom))), allow(unused, missing_docs))]

#[cfg(all(unix, feature = "tcp", not(peerage_loom)))]
mod fork;
#[cfg(all(unix, feature = "tcp", not(peerage_loom)))]
mod parts;
#[cfg(all(unix, feature = "tcp", not(peerage_loom)))]
mod rules;

fn main() {
    #[cfg(all(unix, feature = "tcp", not(peerage_loom)))]
    for (name, rule) in rules::ALL {
        println!("rule {name}");
        rule();
    }
}
