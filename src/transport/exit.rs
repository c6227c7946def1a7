//! The end of the process. A native library takes itself down in `exit`, while other threads run, and aborts the process if it is
//! called then. libucp 1.13.1: `ucp_worker.c`, "failed to modify … event handler". NIXL 1.5.1: `ucs_async_remove_handler`, in one
//! of ten processes that ended just as their last transport was dropped on another thread.
//!
//! `exit` runs what was registered last first, and our handler is registered once the library is loaded. From there on it keeps
//! whoever goes through a [`Door`] out, and waits until those that are inside have come out: the time of a call. Senders go through
//! none: what they call has no part in what is taken down. Threads of the library's own can't be kept out.

use crate::fork::Process;
use crate::sync::lock;
use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, TryLockError, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// How long `exit` waits for those that do not come out: a connect may take as long as the network wants.
const PATIENCE: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_micros(100);

static HAS_BEGUN: AtomicBool = AtomicBool::new(false);
static DOORS: Mutex<Vec<Weak<Door>>> = Mutex::new(Vec::new());

thread_local! {
    /// How many doors this thread is behind: somebody's waker, which it has called there, may call `exit`.
    static HERE: Cell<usize> = const { Cell::new(0) };
}

/// Whether our handler is registered after what one native library has registered.
pub(super) type Registered = OnceLock<bool>;

/// To be called when the library is loaded, with all that it brings.
///
/// # Errors
/// The system has no memory for the handler.
pub(super) fn watch(registered: &'static Registered) -> io::Result<()> {
    // SAFETY: the handler touches statics of this library only, and is code that lives as long as the library. Ends if: a library
    //         linked with this one is unloaded; the C library then calls its handlers and takes them out.
    let is_registered = *registered.get_or_init(|| unsafe { libc::atexit(at_exit) } == 0);
    if is_registered { Ok(()) } else { Err(io::ErrorKind::OutOfMemory.into()) }
}

/// What calls go through into a native library.
pub(super) struct Door {
    process: Process,
    inside: AtomicUsize,
}

/// Somebody is inside: `exit` waits.
pub(super) struct Inside<'a>(&'a Door);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        count_here(-1);
        self.0.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Door {
    pub(super) fn new() -> Arc<Door> {
        let door = Arc::new(Door { process: Process::this(), inside: AtomicUsize::new(0) });
        let mut doors = lock(&DOORS);
        doors.retain(|door| door.strong_count() > 0);
        doors.push(Arc::downgrade(&door));
        door
    }

    /// `None`: the process exits, and the library must not be called.
    pub(super) fn enter(&self) -> Option<Inside<'_>> {
        // ord! SeqCst: who enters adds, then looks; the handler sets, then looks. One of them sees the other.
        self.inside.fetch_add(1, Ordering::SeqCst);
        count_here(1);
        let inside = Inside(self);
        (!has_begun()).then_some(inside)
    }

    /// As [`enter`](Self::enter). Does not return once the process exits.
    pub(super) fn enter_or_sleep(&self) -> Inside<'_> {
        loop {
            match self.enter() {
                Some(inside) => return inside,
                None => thread::park(),
            }
        }
    }
}

/// Whether the process exits: no thread of a transport does anything more.
pub(super) fn has_begun() -> bool {
    HAS_BEGUN.load(Ordering::SeqCst)
}

fn count_here(by: isize) {
    // Where the thread is about to end, nothing of it calls `exit`.
    let _ = HERE.try_with(|here| here.set(here.get().wrapping_add_signed(by)));
}

extern "C" fn at_exit() {
    HAS_BEGUN.store(true, Ordering::SeqCst);
    let end = Instant::now() + PATIENCE;
    let doors = patiently(&DOORS, end).map(|doors| doors.clone()).unwrap_or_default();
    let mut doors: Vec<_> = doors.iter().filter_map(Weak::upgrade).collect();
    // A child of `fork` has none of the threads that are counted.
    doors.retain(|door| door.process.is_this());
    let inside = || doors.iter().map(|door| door.inside.load(Ordering::SeqCst)).sum::<usize>();
    let here = HERE.try_with(Cell::get).unwrap_or(0);
    while inside() > here && Instant::now() < end {
        thread::sleep(LOOK);
    }
}

/// Its guard, if that is to be had by then.
fn patiently<V>(mutex: &Mutex<V>, end: Instant) -> Option<MutexGuard<'_, V>> {
    loop {
        match mutex.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if Instant::now() < end => thread::sleep(LOOK),
            Err(TryLockError::WouldBlock) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::sync::atomic::AtomicBool;

    const EXITS: &str = "PEERAGE_TEST_EXITS_BEHIND_A_DOOR";
    const CODE: i32 = 3;
    static HAS_LEFT: AtomicBool = AtomicBool::new(false);
    static OTHER: OnceLock<Arc<Door>> = OnceLock::new();

    /// Runs after our own handler.
    extern "C" fn looks() {
        assert!(HAS_LEFT.load(Ordering::SeqCst), "it was not waited for");
        assert!(OTHER.get().unwrap().enter().is_none(), "it is let in");
    }

    /// fails if: `exit` does not wait for who is inside, or lets in who comes later.
    #[test]
    fn exit_waits_for_who_is_inside_and_lets_nobody_in() {
        static REGISTERED: Registered = Registered::new();
        const TEST: &str = "transport::exit::tests::exit_waits_for_who_is_inside_and_lets_nobody_in";
        if std::env::var(EXITS).is_err() {
            let mut this = Command::new(std::env::current_exe().unwrap());
            let ended = this.args(["--exact", TEST, "--nocapture"]).env(EXITS, "").status().unwrap();
            return assert_eq!(ended.code(), Some(CODE), "{ended}");
        }
        // SAFETY: it is code of this program, and a panic in it aborts.
        assert_eq!(unsafe { libc::atexit(looks) }, 0);
        watch(&REGISTERED).unwrap();
        OTHER.set(Door::new()).ok().unwrap();
        let (door, (enters, entered)) = (Door::new(), std::sync::mpsc::channel());
        thread::spawn(move || {
            let inside = door.enter();
            enters.send(inside.is_some()).unwrap();
            while !has_begun() {
                thread::sleep(LOOK);
            }
            thread::sleep(100 * LOOK);
            HAS_LEFT.store(true, Ordering::SeqCst);
            drop(inside);
        });
        assert!(entered.recv().unwrap());
        std::process::exit(CODE);
    }
}
