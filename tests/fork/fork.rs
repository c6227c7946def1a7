//! `fork`, the way a program would call it, and what became of the child.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// How long a child may take before its alarm ends it, in seconds: only one that hangs needs as long.
const ALARM: u32 = 60;

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn far() -> Instant {
    Instant::now() + PATIENCE
}

pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let give_up = far();
    while !holds() {
        assert!(Instant::now() < give_up, "not after {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A child that has not been waited for.
#[must_use]
pub(crate) struct Child(libc::pid_t);

impl Child {
    /// Returns when it has ended well.
    pub(crate) fn join(self) {
        let mut status = 0;
        // SAFETY: `status` is written to, and lives.
        let waited = unsafe { libc::waitpid(self.0, &mut status, 0) };
        assert_eq!(waited, self.0);
        if libc::WIFSIGNALED(status) {
            panic!("the child was ended by signal {}: it hung, or worse", libc::WTERMSIG(status));
        }
        assert_eq!(libc::WEXITSTATUS(status), 0, "the child failed: see above");
    }
}

/// `None`: this is the child.
pub(crate) fn fork() -> Option<Child> {
    // SAFETY: the child has one thread, whatever locks others held. It calls only what must stand that, which is what is tested,
    //         and the standard library's allocator, which the C library makes whole in the child.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: no preconditions.
            unsafe { libc::alarm(ALARM) };
            None
        }
        child => {
            assert!(child > 0, "no process: {}", std::io::Error::last_os_error());
            Some(Child(child))
        }
    }
}

/// A child's whole life, which ends as a program does, with its thread's locals and all.
pub(crate) fn live(life: impl FnOnce()) -> ! {
    let lived = catch_unwind(AssertUnwindSafe(life));
    std::process::exit(if lived.is_ok() { 0 } else { 1 });
}
