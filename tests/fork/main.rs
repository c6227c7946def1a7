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

/// `--list` and `--exact NAME...` as of a harness; anything else is ignored.
fn main() {
    #[cfg(all(unix, feature = "tcp", not(peerage_loom)))]
    {
        let args: Vec<String> = std::env::args().skip(1).collect();
        let given = |option: &str| args.iter().any(|arg| arg == option);
        for (name, rule) in rules::ALL {
            if given("--list") {
                println!("{name}: test");
            } else if !given("--exact") || given(name) {
                println!("rule {name}");
                rule();
            }
        }
    }
}
