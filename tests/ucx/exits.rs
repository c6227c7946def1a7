//! A process that exits while its transport works, and does not shut it down.

use crate::support::*;
use peerage::transport::ucx::Ucx;
use std::path::PathBuf;

const EXITS: &str = "PEERAGE_TEST_EXITS";
const CODE: i32 = 3;

/// What runs in `exit` after the transport's own handler, and before libucs is taken down.
extern "C" fn looks() {
    let sleeps = |task: PathBuf| {
        // Its name is its own doing, so it may come later.
        let is_it = std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim() == "peerage-ucx");
        is_it && std::fs::read_to_string(task.join("stat")).is_ok_and(|stat| stat.contains(") S "))
    };
    eventually("it sleeps", || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        tasks.map(|task| task.path()).any(sleeps)
    });
}

/// One that never sleeps by itself. Where it went on, libucp aborted one process in 200 that was dialled while it exited.
///
/// fails if: it calls libucp in `exit`.
#[test]
fn the_thread_is_kept_out_of_libucp_once_the_process_exits() {
    const TEST: &str = "exits::the_thread_is_kept_out_of_libucp_once_the_process_exits";
    if std::env::var(EXITS).is_err() {
        let ended = this_binary(TEST).env(EXITS, "").status().unwrap();
        return assert_eq!(ended.code(), Some(CODE), "{ended}");
    }
    // SAFETY: it is code of this program, and a panic in it aborts.
    assert_eq!(unsafe { libc::atexit(looks) }, 0);
    let _ucx = Ucx::builder().polling(true).bind("127.0.0.1:0").unwrap();
    std::process::exit(CODE);
}
