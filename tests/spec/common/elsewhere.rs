//! A test with several `Ucx` or `Nixl` in a process of its own: libucs of UCX 1.13.1 does not bear several workers in one well
//! (docs::limitations), least of all those of tests that have ended.

use std::io::Write;
use std::process::Command;

const ELSEWHERE: &str = "PEERAGE_TEST_ELSEWHERE";
/// Where libucs then aborts a process by itself, now and then: it takes one worker's event handler, or one worker's entry in its
/// tree of objects, for another's. Such a run says nothing, and is made again.
const NOT_OURS: [&str; 2] = ["async.c:643 ", "vfs_obj.c:365 "];
const RUNS: usize = 5;

/// `false`: this is the process for it. `true`: another one has run it.
pub(crate) fn elsewhere(test: &str) -> bool {
    if std::env::var(ELSEWHERE).as_deref() == Ok(test) {
        return false;
    }
    for run in 1.. {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture", "--test-threads", "1"]);
        if cfg!(feature = "nixl") && std::env::var_os("UCX_MODULES").is_none() {
            // Of two libucs in a process, NIXL's and the system's, one would crash it at its end, in libnl.
            command.env("UCX_MODULES", "^ib");
        }
        let ended = command.env(ELSEWHERE, test).output().unwrap();
        let said = [ended.stdout, ended.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
        if ended.status.success() {
            for line in said.lines().filter(|line| line.contains("SKIPPED")) {
                // Not by `println`, which is only seen where a test fails.
                let _ = writeln!(std::io::stderr(), "{line}");
            }
            return true;
        }
        assert!(run < RUNS && NOT_OURS.iter().any(|place| said.contains(place)), "{test}: {}\n{said}", ended.status);
        println!("{test}: libucs aborted it, as it may with several workers in a process; it is run again");
    }
    unreachable!("a run ends the loop")
}
