//! A process that exits while its transports work, and does not shut them down.

use crate::support::*;
use peerage::DataPlane;
use peerage::transport::nixl::Nixl;
use std::path::PathBuf;

const EXITS: &str = "PEERAGE_TEST_EXITS";
const CODE: i32 = 3;

/// What runs in `exit` after the transport's own handler.
extern "C" fn looks() {
    let sleeps = |task: PathBuf| {
        // Its name is its own doing, so it may come later.
        let is_it = std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim() == "peerage-nixl");
        is_it && std::fs::read_to_string(task.join("stat")).is_ok_and(|stat| stat.contains(") S "))
    };
    eventually("it sleeps", || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        tasks.map(|task| task.path()).any(sleeps)
    });
}

/// One that never sleeps by itself.
///
/// fails if: it calls NIXL in `exit`.
#[test]
fn the_thread_is_kept_out_of_nixl_once_the_process_exits() {
    alone(the_thread_is_kept_out_of_nixl_once_the_process_exits, || {
        let ended = this_binary("exits::exits").env(EXITS, "looks").status().unwrap();
        assert_eq!(ended.code(), Some(CODE), "{ended}");
    });
}

/// Where nobody was kept out, one in ten died whose last owner of a transport was another thread.
#[test]
fn a_process_may_exit_while_its_transports_work_or_are_dropped() {
    alone(a_process_may_exit_while_its_transports_work_or_are_dropped, || {
        for how in ["works", "drops", "sends"].repeat(4) {
            let ended = this_binary("exits::exits").env(EXITS, how).status().unwrap();
            assert_eq!(ended.code(), Some(CODE), "{how}: {ended}");
        }
    });
}

/// The body of such a process.
#[test]
#[ignore = "is run by the tests that start such a process"]
fn exits() {
    let how = std::env::var(EXITS).expect("how");
    if how == "looks" {
        // SAFETY: it is code of this program, and a panic in it aborts.
        assert_eq!(unsafe { libc::atexit(looks) }, 0);
        let _nixl = Nixl::builder().polling(true).build().unwrap();
        std::process::exit(CODE);
    }
    let (a, b) = (nixl("a"), nixl("b"));
    let connection = dial(&a, &b);
    a.notify(&connection, b"x").unwrap();
    match how.as_str() {
        "works" => {}
        "drops" => drop(std::thread::spawn(move || drop((connection, a, b)))),
        _ => drop(std::thread::spawn(move || {
            loop {
                let _ = a.notify(&connection, b"x");
                drop(b.inbox().try_recv());
            }
        })),
    }
    std::process::exit(CODE);
}
