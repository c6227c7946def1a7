//! What the protocol is made of, of std or of loom: atomics, fences, mutexes, condition variables, checked cells, threads to
//! unpark. Two modules with one surface; who takes these from here does not know which.
//!
//! `std::sync` is used directly for what loom must not see: what only counts, hints or lists, what is held over nothing, and
//! what must outlive a loom run that panics (names, clocks, contexts). loom-tests/README.md lists it. Besides this file, loom
//! is named where a model needs something of its own (the stripe of a thread in gate.rs, the collector in record.rs, the
//! swap in latest.rs) and in internal.rs.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs other people's code. `Err`: what it said when it panicked, as far as it said it in text. What a panic carries is
/// their code too, when it is dropped, and may panic again.
pub(crate) fn caught<R>(theirs: impl FnOnce() -> R) -> Result<R, std::sync::Arc<str>> {
    catch_unwind(AssertUnwindSafe(theirs)).map_err(|panic| {
        let said = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
            (Some(text), _) => (*text).into(),
            (_, Some(text)) => text.as_str().into(),
            _ => "a panic without a text".into(),
        };
        if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
            std::mem::forget(another);
        }
        said
    })
}

/// The same, for whom it is enough to know whether it came to its end.
pub(crate) fn came_through(theirs: impl FnOnce()) -> bool {
    caught(theirs).is_ok()
}

pub(crate) use imp::*;

/// Locks a mutex of the standard library that guards plain data: it is valid between any two statements, so a holder that
/// panicked has broken nothing.
pub(crate) fn lock<V>(mutex: &std::sync::Mutex<V>) -> std::sync::MutexGuard<'_, V> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(not(peerage_loom))]
mod imp {
    use std::sync::PoisonError;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
    pub(crate) use std::sync::{Arc, MutexGuard};
    pub(crate) use std::thread::Thread;
    use std::time::Duration;

    /// A cell whose every access loom checks.
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) const fn new(value: T) -> Self {
            UnsafeCell(std::cell::UnsafeCell::new(value))
        }

        #[inline(always)]
        pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }

        #[inline(always)]
        pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }

    /// Memory whose use after its end a model notices; nothing at all outside of models.
    #[derive(Debug)]
    pub(crate) struct Tracked;

    impl Tracked {
        #[inline(always)]
        pub(crate) fn new() -> Self {
            Tracked
        }

        #[inline(always)]
        pub(crate) fn touch(&self) {}
    }

    /// Where a model must try every order of the threads; nothing at all outside of models.
    #[derive(Debug)]
    pub(crate) struct Crossing;

    impl Crossing {
        #[inline(always)]
        pub(crate) fn new() -> Self {
            Crossing
        }

        #[inline(always)]
        pub(crate) fn pass(&self) {}
    }

    /// A mutex that a panicking holder does not poison: what it guards is valid between any two statements, or the
    /// panic came from user code, which never runs under it.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) const fn new(value: T) -> Self {
            Mutex(std::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }

        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            match self.0.try_lock() {
                Ok(guard) => Some(guard),
                Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                Err(std::sync::TryLockError::WouldBlock) => None,
            }
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct Condvar(std::sync::Condvar);

    impl Condvar {
        pub(crate) const fn new() -> Self {
            Condvar(std::sync::Condvar::new())
        }

        pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
            self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
        }

        pub(crate) fn wait_timeout<'a, T>(&self, guard: MutexGuard<'a, T>, limit: Duration) -> MutexGuard<'a, T> {
            self.0.wait_timeout(guard, limit).unwrap_or_else(PoisonError::into_inner).0
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}

#[cfg(peerage_loom)]
mod imp {
    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::sync::MutexGuard;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
    pub(crate) use loom::thread::Thread;
    /// loom's own aborts the process when a negative model panics in its main thread.
    pub(crate) use std::sync::Arc;
    use std::time::Duration;

    #[derive(Debug)]
    pub(crate) struct Tracked(UnsafeCell<()>);

    // SAFETY: loom checks every access and fails the model on a race.
    unsafe impl Sync for Tracked {}

    impl Tracked {
        pub(crate) fn new() -> Self {
            let memory = UnsafeCell::new(());
            memory.with_mut(|_| ()); // who touches it must come after this
            Tracked(memory)
        }

        pub(crate) fn touch(&self) {
            self.0.with(|_| ());
        }
    }

    impl Drop for Tracked {
        fn drop(&mut self) {
            self.0.with_mut(|_| ());
        }
    }

    /// loom switches threads before an access that depends on the last one of the same atomic, and remembers only the last:
    /// a thread that loads a word before it changes it hides, by its own load, the loads of others before that one. Here
    /// every look depends on every other. Relaxed, and a location of its own: it orders nothing.
    #[derive(Debug)]
    pub(crate) struct Crossing(AtomicUsize);

    impl Crossing {
        pub(crate) fn new() -> Self {
            Crossing(AtomicUsize::new(0))
        }

        pub(crate) fn pass(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T: Default> Default for Mutex<T> {
        fn default() -> Self {
            Self::new(T::default())
        }
    }

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Mutex(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }

        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct Condvar(loom::sync::Condvar);

    impl Condvar {
        pub(crate) fn new() -> Self {
            Condvar(loom::sync::Condvar::new())
        }

        pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
            self.0.wait(guard).unwrap()
        }

        pub(crate) fn wait_timeout<'a, T>(&self, guard: MutexGuard<'a, T>, _limit: Duration) -> MutexGuard<'a, T> {
            self.wait(guard)
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}

#[cfg(all(test, not(peerage_loom)))]
mod tests {
    use super::*;

    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new("again"));
        }
    }

    #[test]
    fn what_panics_is_told_in_its_own_words_and_harms_nobody_when_it_is_dropped() {
        let told = |panic: Box<dyn std::any::Any + Send>| caught(|| std::panic::resume_unwind(panic)).map(drop::<u8>);
        assert_eq!(told(Box::new("as text")), Err("as text".into()));
        assert_eq!(told(Box::new("as a string".to_owned())), Err("as a string".into()));
        assert_eq!(told(Box::new(Bomb)), Err("a panic without a text".into()));
        assert_eq!(caught(|| 7), Ok(7));
    }
}
