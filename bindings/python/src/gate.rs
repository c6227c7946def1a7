//! Who may be attached to the interpreter, and until when.
//!
//! Threads of a table, and Python's own where they come back from a wait of ours, pass this gate before they attach. The
//! interpreter's exit closes it, and goes on when nobody is inside any more; so no thread attaches after finalisation has
//! begun. A thread of the table that finds it closed goes without Python; one of Python's own stays where it is, as
//! CPython itself would have it do.

use pyo3::Python;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// `[fork: 32 | inside: 31 | closed: 1]`. A child of `fork` has none of the threads that were inside, so it begins anew under
/// another number.
static STATE: AtomicU64 = AtomicU64::new(0);
const CLOSED: u64 = 1;
const ONE: u64 = 2;
const INSIDE: u64 = (1 << 32) - ONE;
const FORK: u64 = 1 << 32;

/// The thread that ends the interpreter: it alone goes on running Python.
static LAST: OnceLock<ThreadId> = OnceLock::new();

/// The right to attach, or to be attached.
pub(crate) struct Inside {
    fork: u64,
}

impl Drop for Inside {
    fn drop(&mut self) {
        let leave = |state: u64| (state / FORK == self.fork).then(|| state - ONE);
        let _ = STATE.fetch_update(Ordering::Release, Ordering::Relaxed, leave);
    }
}

fn enter() -> Option<Inside> {
    let enter = |state: u64| (state & CLOSED == 0).then(|| state + ONE);
    let before = STATE.fetch_update(Ordering::Acquire, Ordering::Relaxed, enter).ok()?;
    Some(Inside { fork: before / FORK })
}

/// Runs `f` attached, on a thread that Python does not know. `None`: the interpreter is ending, or has ended.
pub(crate) fn attach<R>(f: impl FnOnce(Python<'_>) -> R) -> Option<R> {
    let _inside = enter()?;
    Python::try_attach(f)
}

/// Runs `f` without the GIL.
pub(crate) fn detached<R: Send>(py: Python<'_>, f: impl Send + FnOnce() -> R) -> R {
    let (result, _inside) = py.detach(|| {
        let result = f();
        (result, come_back())
    });
    result
}

fn come_back() -> Option<Inside> {
    let inside = enter();
    if inside.is_none() && LAST.get() != Some(&thread::current().id()) {
        loop {
            thread::park();
        }
    }
    inside
}

/// Called once by the thread that ends the interpreter.
pub(crate) fn close() {
    let _ = LAST.set(thread::current().id());
    STATE.fetch_or(CLOSED, Ordering::AcqRel);
}

/// Whether nobody is inside, at `deadline` at the latest.
pub(crate) fn is_empty_by(deadline: Instant) -> bool {
    loop {
        if STATE.load(Ordering::Acquire) & INSIDE == 0 {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// This is a child of `fork` now.
pub(crate) fn forked() {
    STATE.store((STATE.load(Ordering::Relaxed) / FORK + 1) * FORK, Ordering::Relaxed);
}

/// Which process this is, of a line of forks.
pub(crate) fn process() -> u64 {
    STATE.load(Ordering::Relaxed) / FORK
}
