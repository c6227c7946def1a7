//! The end of the process. libucs takes itself down in `exit`, while other threads run, and libucp aborts the process if it is
//! called then (UCX 1.13.1: `ucp_worker.c`, "failed to modify … event handler").
//!
//! `exit` runs what was registered last first, and our handler is registered later than what was loaded with the program. It
//! keeps every transport's thread out of libucp from there on, and waits until those that are inside have come out: the time of
//! a call. A thread that is kept out sleeps until the process is gone. Senders are not kept out: what they call has no part in
//! events, which is what libucs has taken down. libucs's own thread can't be kept out either.

use crate::fork::Process;
use crate::sync::lock;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, TryLockError, Weak};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// How long `exit` waits for one that does not come out: its thread was stopped inside, or closes a whole transport.
const PATIENCE: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_micros(100);

static HAS_BEGUN: AtomicBool = AtomicBool::new(false);
static DOORS: Mutex<Vec<Weak<Door>>> = Mutex::new(Vec::new());

/// What one thread goes through into libucp.
pub(super) struct Door {
    process: Process,
    /// Who goes through it: only ever one.
    thread: OnceLock<ThreadId>,
    inside: Mutex<()>,
}

impl Door {
    /// # Errors
    /// The system has no memory for the handler.
    pub(super) fn new() -> io::Result<Arc<Door>> {
        static REGISTERED: OnceLock<i32> = OnceLock::new();
        // SAFETY: the handler touches statics of this library only, and is code that lives as long as the library. Ends if: a
        //         library linked with this one is unloaded; the C library then calls its handlers and takes them out.
        if *REGISTERED.get_or_init(|| unsafe { libc::atexit(at_exit) }) != 0 {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let door = Arc::new(Door { process: Process::this(), thread: OnceLock::new(), inside: Mutex::new(()) });
        let mut doors = lock(&DOORS);
        doors.retain(|door| door.strong_count() > 0);
        doors.push(Arc::downgrade(&door));
        Ok(door)
    }

    /// Goes in until the guard is dropped. Does not return once the process exits.
    pub(super) fn enter(&self) -> MutexGuard<'_, ()> {
        self.thread.get_or_init(|| thread::current().id());
        let mut inside = lock(&self.inside);
        // ord! Relaxed: the mutex orders it. The handler sets it before it takes the mutex: who takes that later sees it, and
        //      for who took it earlier the handler waits.
        while HAS_BEGUN.load(Ordering::Relaxed) {
            drop(inside);
            thread::park();
            inside = lock(&self.inside);
        }
        inside
    }
}

/// Whether the process exits: no thread of a transport does anything more.
pub(super) fn has_begun() -> bool {
    HAS_BEGUN.load(Ordering::Relaxed)
}

extern "C" fn at_exit() {
    HAS_BEGUN.store(true, Ordering::Relaxed);
    let end = Instant::now() + PATIENCE;
    let doors = patiently(&DOORS, end).map(|doors| doors.clone()).unwrap_or_default();
    for door in doors.iter().filter_map(Weak::upgrade) {
        // A child of `fork` has none of these threads, and their mutexes as they were.
        let is_ours = door.process.is_this();
        // Somebody's waker, which the thread has called, may call `exit`.
        let is_this = door.thread.get() == Some(&thread::current().id());
        if is_ours && !is_this {
            drop(patiently(&door.inside, end));
        }
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
