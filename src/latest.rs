//! One value that many read and few replace. The only file that names arc-swap: its open soundness report (arc-swap #210)
//! makes it a dependency to be able to take out.
//!
//! A replaced value is kept until nobody but us holds it, and dropped by whoever replaces the next one or by the driver:
//! a reader who looked while it was replaced would otherwise drop it, and with it whatever it holds, on a sender's thread.

use crate::sync::lock;
use imp::Swap;
use std::sync::{Arc, Mutex};

pub(crate) struct Latest<V> {
    current: Swap<V>,
    replaced: Mutex<Vec<Arc<V>>>,
}

impl<V> Latest<V> {
    pub(crate) fn new(value: V) -> Self {
        Latest { current: Swap::new(value), replaced: Mutex::new(Vec::new()) }
    }

    /// For a short look: the guard must not cross a wait.
    #[inline(always)]
    pub(crate) fn look(&self) -> imp::Look<V> {
        self.current.look()
    }

    pub(crate) fn load(&self) -> Arc<V> {
        self.current.load()
    }

    /// Replaces the value by what `f` makes of it, as often as somebody else is first; answers the value before. `f` may
    /// refuse.
    pub(crate) fn update<E>(&self, mut f: impl FnMut(&V) -> Result<V, E>) -> Result<Arc<V>, E> {
        loop {
            let seen = self.load();
            let new = Arc::new(f(&seen)?);
            if self.current.replace(&seen, new) {
                self.lock().push(seen.clone());
                self.sweep();
                return Ok(seen);
            }
        }
    }

    /// Drops what was replaced and is not looked at any more; answers whether something is left.
    pub(crate) fn sweep(&self) -> bool {
        let mut replaced = self.lock();
        // A count of one is ours, and nobody can find the value to count it up again.
        let (gone, held) = std::mem::take(&mut *replaced).into_iter().partition(|old| Arc::strong_count(old) == 1);
        *replaced = held;
        let left = !replaced.is_empty();
        drop(replaced);
        drop::<Vec<_>>(gone);
        left
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<V>>> {
        lock(&self.replaced)
    }
}

#[cfg(not(peerage_loom))]
mod imp {
    use arc_swap::{ArcSwap, Guard};
    use std::sync::Arc;

    pub(super) type Look<V> = Guard<Arc<V>>;

    pub(super) struct Swap<V>(ArcSwap<V>);

    impl<V> Swap<V> {
        pub(super) fn new(value: V) -> Self {
            Swap(ArcSwap::from_pointee(value))
        }

        #[inline(always)]
        pub(super) fn look(&self) -> Look<V> {
            self.0.load()
        }

        pub(super) fn load(&self) -> Arc<V> {
            self.0.load_full()
        }

        /// Puts `new` in place of `seen`; false if somebody else was first.
        pub(super) fn replace(&self, seen: &Arc<V>, new: Arc<V>) -> bool {
            Arc::ptr_eq(&self.0.compare_and_swap(seen, new), seen)
        }
    }
}

/// loom does not see into arc-swap. Models take it for granted that a value lives while it is looked at, and that a look is
/// an acquiring load and a replacement an acquiring and releasing CAS; no more, so a look may be of what was replaced already.
#[cfg(peerage_loom)]
mod imp {
    use crate::sync::{AtomicUsize, Ordering, lock};
    use std::sync::{Arc, Mutex, Weak};

    pub(crate) struct Look<V>(Arc<V>);

    impl<V> std::ops::Deref for Look<V> {
        type Target = Arc<V>;
        fn deref(&self) -> &Arc<V> {
            &self.0
        }
    }

    pub(super) struct Swap<V> {
        /// Which of `values` is the current one.
        at: AtomicUsize,
        values: Mutex<Values<V>>,
    }

    struct Values<V> {
        current: Arc<V>,
        all: Vec<Weak<V>>,
    }

    impl<V> Swap<V> {
        pub(super) fn new(value: V) -> Self {
            let current = Arc::new(value);
            let all = vec![Arc::downgrade(&current)];
            Swap { at: AtomicUsize::new(0), values: Mutex::new(Values { current, all }) }
        }

        pub(super) fn look(&self) -> Look<V> {
            Look(self.load())
        }

        pub(super) fn load(&self) -> Arc<V> {
            let at = self.at.load(Ordering::Acquire);
            if let Some(value) = lock(&self.values).all[at].upgrade() {
                return value;
            }
            let at = self.at.fetch_add(0, Ordering::AcqRel);
            lock(&self.values).all[at].upgrade().expect("the current value lives")
        }

        pub(super) fn replace(&self, seen: &Arc<V>, new: Arc<V>) -> bool {
            let mut values = lock(&self.values);
            let from =
                values.all.iter().position(|value| value.as_ptr() == Arc::as_ptr(seen)).expect("it was looked up");
            let to = values.all.len();
            values.all.push(Arc::downgrade(&new));
            drop(values);
            let first = self.at.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok();
            let old = first.then(|| std::mem::replace(&mut lock(&self.values).current, new));
            drop(old);
            first
        }
    }
}

#[cfg(all(test, not(peerage_loom)))]
mod tests {
    use super::*;

    /// Tells which thread dropped it.
    struct Held(std::sync::mpsc::Sender<std::thread::ThreadId>);

    impl Drop for Held {
        fn drop(&mut self) {
            self.0.send(std::thread::current().id()).unwrap();
        }
    }

    #[test]
    fn who_looks_never_drops_what_was_replaced_meanwhile() {
        let (dropped, by) = std::sync::mpsc::channel();
        let latest = Latest::new(Held(dropped.clone()));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let look = latest.look();
                drop(latest.update::<()>(|_| Ok(Held(dropped.clone()))));
                drop(look);
            });
        });
        by.try_recv().unwrap_err();
        assert!(!latest.sweep(), "nobody looks any more");
        assert_eq!(by.try_recv(), Ok(std::thread::current().id()));
    }
}
