//! Which process this is. `fork` gives a child a copy of the memory and none of the threads that work on it: mutexes they held
//! stay locked for ever, nobody ends what is waited for, and the sockets are the parent's too.
//!
//! What must not be used in a child remembers the process that made it:
//! 1. Whoever is called asks [`Process::is_this`] before it takes a lock, waits, or touches a socket: one relaxed load.
//! 2. What is dropped in a child is forgotten, where its end would take a lock, join a thread or close something.
//! 3. What only reads memory goes on: it answers how things stood at the fork.
//!
//! The child counts the fork before `fork` returns in it, in a handler that does nothing else. A table that the child builds
//! is its own. A process made without the C library's `fork` (a bare `clone`) is not noticed; what only executes another
//! program (`vfork`, `posix_spawn`) needs no notice.

use crossbeam_utils::CachePadded;
use std::io;
#[cfg(any(feature = "tcp", feature = "nixl"))]
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU32, Ordering};

/// How many forks led to this process since one of its line began to watch. Every sender reads it and nobody writes it, so it
/// shares its cache line with nothing.
static FORKS: CachePadded<AtomicU32> = CachePadded::new(AtomicU32::new(0));

/// One process of a line of forks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    #[inline(always)]
    pub(crate) fn this() -> Self {
        // Relaxed: the child's only thread has counted before its `fork` returned, and starts all others.
        Process(FORKS.load(Ordering::Relaxed))
    }

    /// Whether this is the process that runs; otherwise it is an ancestor, and its threads are not here.
    #[inline(always)]
    pub(crate) fn is_this(self) -> bool {
        self == Process::this()
    }
}

/// From here on forks are noticed. Called before there is anything that a child must not use.
///
/// # Errors
/// The system has no memory for the handler.
pub(crate) fn watch() -> io::Result<()> {
    #[cfg(unix)]
    {
        static REGISTERED: std::sync::OnceLock<i32> = std::sync::OnceLock::new();
        // SAFETY: the handler only adds to an atomic of this library, which may be done in a signal handler too, and is code
        //         that lives as long as the library. Ends if: a library linked with this one is unloaded; the C library
        //         then takes its handlers out.
        match REGISTERED.get_or_init(|| unsafe { libc::pthread_atfork(None, None, Some(in_child)) }) {
            0 => {}
            code => return Err(io::Error::from_raw_os_error(*code)),
        }
    }
    Ok(())
}

#[cfg(unix)]
unsafe extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// What only the process that made it drops; in a child it is forgotten.
#[cfg(any(feature = "tcp", feature = "nixl"))]
#[derive(Debug)]
pub(crate) struct Own<V> {
    value: ManuallyDrop<V>,
    process: Process,
}

#[cfg(any(feature = "tcp", feature = "nixl"))]
impl<V> Own<V> {
    pub(crate) fn new(value: V) -> Self {
        Own { value: ManuallyDrop::new(value), process: Process::this() }
    }
}

#[cfg(any(feature = "tcp", feature = "nixl"))]
impl<V> std::ops::Deref for Own<V> {
    type Target = V;
    fn deref(&self) -> &V {
        &self.value
    }
}

#[cfg(any(feature = "ucx", feature = "nixl"))]
impl<V> std::ops::DerefMut for Own<V> {
    fn deref_mut(&mut self) -> &mut V {
        &mut self.value
    }
}

#[cfg(any(feature = "tcp", feature = "nixl"))]
impl<V> Drop for Own<V> {
    fn drop(&mut self) {
        if self.process.is_this() {
            // SAFETY: dropped once, here, and not used after.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}

#[cfg(all(test, feature = "tcp"))]
mod tests {
    use super::*;
    use std::rc::Rc;

    /// fails if: a child ends what is its parent's, or the parent does not end its own.
    #[test]
    fn only_the_process_that_made_it_drops_it() {
        let held = Rc::new(());
        drop(Own::new(held.clone()));
        assert_eq!(Rc::strong_count(&held), 1);
        let parent = Process(u32::MAX);
        assert!(!parent.is_this() && Process::this().is_this());
        drop(Own { value: ManuallyDrop::new(held.clone()), process: parent });
        assert_eq!(Rc::strong_count(&held), 2);
    }
}
