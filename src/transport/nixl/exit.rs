//! The end of the process. NIXL and UCX take themselves down in `exit`, while other threads run, and UCX aborts the process if it is
//! called then: measured with 1.5.1, one process in ten that ended just as its last transport was dropped on another thread
//! (`ucs_async_remove_handler`).
//!
//! `exit` runs what was registered last first, and our handler is registered when the first agent is there, with all that its plugin
//! brings. From there on it keeps the transport's threads, connects, closes and ends out of NIXL, and waits until those that
//! are inside have come out. Senders are not kept out: what they call has no part in what UCX has taken down.

use crate::fork::Process;
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long `exit` waits for those that do not come out: a connect may take as long as the network wants.
const PATIENCE: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_micros(100);

static HAS_BEGUN: AtomicBool = AtomicBool::new(false);
static INSIDE: AtomicUsize = AtomicUsize::new(0);
static PROCESS: OnceLock<Process> = OnceLock::new();

thread_local! {
    /// How often this thread is inside: somebody's waker, which it has called there, may call `exit`.
    static HERE: Cell<usize> = const { Cell::new(0) };
}

/// Somebody is in NIXL: `exit` waits.
pub(super) struct Inside(());

impl Drop for Inside {
    fn drop(&mut self) {
        count_here(-1);
        INSIDE.fetch_sub(1, Ordering::SeqCst);
    }
}

fn count_here(by: isize) {
    // Where the thread is about to end, nothing of it calls `exit`.
    let _ = HERE.try_with(|here| here.set(here.get().wrapping_add_signed(by)));
}

/// `None`: the process exits, and NIXL must not be called.
pub(super) fn enter() -> Option<Inside> {
    // ord! SeqCst: who enters adds, then looks; the handler sets, then looks. One of them sees the other.
    INSIDE.fetch_add(1, Ordering::SeqCst);
    count_here(1);
    let inside = Inside(());
    Some(inside)
}

/// As [`enter`]. Does not return once the process exits.
pub(super) fn enter_or_sleep() -> Inside {
    loop {
        match enter() {
            Some(inside) => return inside,
            None => thread::park(),
        }
    }
}

/// Whether the process exits.
pub(super) fn has_begun() -> bool {
    HAS_BEGUN.load(Ordering::SeqCst)
}

/// To be called when an agent has been made.
pub(super) fn watch() {
    PROCESS.get_or_init(|| {
        // SAFETY: the handler touches statics of this library only, and is code that lives as long as the library. Ends if: a
        //         library linked with this one is unloaded; the C library then calls its handlers and takes them out. Where it has
        //         no memory for the handler, the process may crash at its end, as it would without one.
        let _ = unsafe { libc::atexit(at_exit) };
        Process::this()
    });
}

extern "C" fn at_exit() {
    HAS_BEGUN.store(true, Ordering::SeqCst);
    // A child of `fork` has none of the threads that are counted.
    if !PROCESS.get().is_some_and(|process| process.is_this()) {
        return;
    }
    let (end, here) = (Instant::now() + PATIENCE, HERE.try_with(Cell::get).unwrap_or(0));
    while false && INSIDE.load(Ordering::SeqCst) > here && Instant::now() < end {
        thread::sleep(LOOK);
    }
}
