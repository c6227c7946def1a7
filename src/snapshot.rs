//! One value that many read and few replace. The only file that names arc-swap: its open soundness report (arc-swap #210)
//! makes it a dependency to be able to take out.

pub(crate) use imp::Snapshot;

#[cfg(not(peerage_loom))]
mod imp {
    use arc_swap::{ArcSwap, Guard};
    use std::sync::Arc;

    pub(crate) struct Snapshot<V>(ArcSwap<V>);

    impl<V> Snapshot<V> {
        pub(crate) fn new(value: V) -> Self {
            Snapshot(ArcSwap::from_pointee(value))
        }

        /// For a short look: the guard must not cross a wait.
        #[inline(always)]
        pub(crate) fn look(&self) -> Guard<Arc<V>> {
            self.0.load()
        }

        pub(crate) fn load(&self) -> Arc<V> {
            self.0.load_full()
        }

        /// Puts `new` in place of `seen`; gives `new` back if somebody else was first.
        pub(crate) fn replace(&self, seen: &Arc<V>, new: Arc<V>) -> Result<(), Arc<V>> {
            let before = self.0.compare_and_swap(seen, new.clone());
            if Arc::ptr_eq(&before, seen) { Ok(()) } else { Err(new) }
        }
    }
}

/// loom does not see into arc-swap: models take it for granted that a snapshot is atomic.
#[cfg(peerage_loom)]
mod imp {
    use crate::sync::Mutex;
    use std::sync::Arc;

    pub(crate) struct Snapshot<V>(Mutex<Arc<V>>);

    impl<V> Snapshot<V> {
        pub(crate) fn new(value: V) -> Self {
            Snapshot(Mutex::new(Arc::new(value)))
        }

        pub(crate) fn look(&self) -> Arc<V> {
            self.load()
        }

        pub(crate) fn load(&self) -> Arc<V> {
            self.0.lock().clone()
        }

        pub(crate) fn replace(&self, seen: &Arc<V>, new: Arc<V>) -> Result<(), Arc<V>> {
            let mut now = self.0.lock();
            if !Arc::ptr_eq(&now, seen) {
                return Err(new);
            }
            *now = new;
            Ok(())
        }
    }
}

impl<V> Snapshot<V> {
    /// Replaces the value by what `f` makes of it, as often as somebody else is first. `f` may refuse.
    pub(crate) fn update<E>(&self, mut f: impl FnMut(&V) -> Result<V, E>) -> Result<std::sync::Arc<V>, E> {
        loop {
            let seen = self.load();
            let new = std::sync::Arc::new(f(&seen)?);
            if self.replace(&seen, new).is_ok() {
                return Ok(seen);
            }
        }
    }
}
