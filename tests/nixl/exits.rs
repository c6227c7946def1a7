//! A process that exits while its transports work, and does not shut them down.

use crate::support::*;
use peerage::DataPlane;

const EXITS: &str = "PEERAGE_TEST_EXITS";
const CODE: i32 = 3;
const RUNS: usize = 30;

/// One in ten died where the last owner of a transport was another thread.
///
/// fails if: NIXL is called in `exit`.
#[test]
fn a_process_may_exit_while_its_transports_work_or_are_dropped() {
    alone(a_process_may_exit_while_its_transports_work_or_are_dropped, || {
        for run in 0..RUNS {
            let ended = this_binary("exits::exits").env(EXITS, (run % 3).to_string()).status().unwrap();
            assert_eq!(ended.code(), Some(CODE), "run {run}: {ended}");
        }
    });
}

/// The body of such a process; nothing in any other.
#[test]
fn exits() {
    let Ok(how) = std::env::var(EXITS) else { return };
    let (a, b) = (nixl("a"), nixl("b"));
    let connection = dial(&a, &b);
    a.notify(&connection, b"x").unwrap();
    match how.as_str() {
        "0" => {}
        "1" => drop(std::thread::spawn(move || drop((connection, a, b)))),
        _ => drop(std::thread::spawn(move || {
            loop {
                let _ = a.notify(&connection, b"x");
                drop(b.inbox().try_recv());
            }
        })),
    }
    std::process::exit(CODE);
}
