//! The lives of a slot: a place is used again and again, for one peer after the other.
//!
//! A life begins with its version, then its word, then its first counted reference, and ends with the last one. Who has no
//! reference counts itself in by the version, if the count is not zero, and looks at the version again (loom-tests/ids.rs).

use super::Slot;
use crate::queue::Node;
use crate::shared::Shared;
use crate::slow::Slow;
use crate::state::{Generation, Phase, Word};
use crate::sync::{Ordering, fence};
use crate::transport::Transport;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

impl<T: Transport> Slot<T> {
    /// Starts a life at `generation`, which has never been used. The caller claimed the place and counts as its first
    /// reference.
    pub(crate) fn begin_life(&self, home: &Arc<Shared<T>>, generation: Generation, slow: Slow<T>) -> SlotRef<T> {
        debug_assert!(std::ptr::eq(self.home, Arc::as_ptr(home)), "a slot stays in its table");
        *self.slow.lock() = Some(slow);
        std::mem::forget(home.clone()); // given back in `end_life`
        // ord! Release, version before word: who reads this life's word also reads its version. (Of a word that is Idle the
        //      order would not matter yet: it is the publisher's CAS that makes it Ready.)
        //      model: ids::a_stale_id_never_reaches_the_next_peer   fails if: version-is-kept, version-before-word
        self.version.store(self.version.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
        self.word.store(Word::new(generation, Phase::Idle).bits(), Ordering::Release);
        // ord! Release, after the version: who counts itself in by id sees this life's version, not the one before.
        //      model: ids::a_stale_id_is_no_handle_of_the_next_peer   fails if: counted-before-version
        self.references.store(1, Ordering::Release);
        SlotRef(NonNull::from(self))
    }

    /// Whether the life that `version` names, which has begun, is Removed or over. Needs no reference.
    pub(crate) fn has_ended(&self, version: u32) -> bool {
        // ord! Acquire, word before version: a word of a later life comes after that life's version, which then differs. The
        //      word that reads Removed comes after everything of its life was closed.
        //      model: successors::a_successor_connects_when_the_last_lease_of_its_predecessor_is_back
        //      fails if: successor-does-not-wait
        let word = self.word();
        self.version.load(Ordering::Acquire) != version || word.phase() == Phase::Removed
    }
}

/// A counted reference of a slot.
pub(crate) struct SlotRef<T: Transport>(NonNull<Slot<T>>);

// SAFETY: a counted pointer to a `Send + Sync` slot; the count is atomic.
unsafe impl<T: Transport> Send for SlotRef<T> {}
// SAFETY: as above.
unsafe impl<T: Transport> Sync for SlotRef<T> {}

impl<T: Transport> SlotRef<T> {
    /// Takes over a reference that was counted in: one that came with the queue's list, or of a bay.
    ///
    /// # Safety
    /// The caller owns that reference and gives it up here.
    pub(crate) unsafe fn from_counted(slot: NonNull<Slot<T>>) -> Self {
        SlotRef(slot)
    }

    /// A reference of a slot that somebody else keeps alive during the call.
    pub(crate) fn of(slot: &Slot<T>) -> Self {
        slot.count_in();
        SlotRef(NonNull::from(slot))
    }

    /// A reference of the life that `version` names, if it goes on.
    pub(crate) fn upgrade(slot: &Slot<T>, version: u32) -> Option<Self> {
        let mut count = slot.references.load(Ordering::Relaxed);
        loop {
            if count == 0 {
                return None;
            }
            // ord! Acquire: pairs with the Release in `begin_life`, so the look at the version below is of this life or later.
            //      model: ids::a_stale_id_is_no_handle_of_the_next_peer   fails if: relaxed-count-in
            match slot.references.compare_exchange_weak(count, count + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => count = now,
            }
        }
        let reference = SlotRef(NonNull::from(slot));
        // ord! Acquire is more than it needs: the count above has acquired `begin_life`, and while it is held no other
        //      life begins. So this is the version of the life that was counted in.
        //      model: ids::a_stale_id_is_no_handle_of_the_next_peer   fails if: counted-before-version
        (slot.version.load(Ordering::Acquire) == version).then_some(reference)
    }

    /// The table, counted.
    pub(crate) fn table(&self) -> Arc<Shared<T>> {
        // SAFETY: `home` came from `Arc::as_ptr`, and the life that this reference counts holds a strong one.
        unsafe {
            Arc::increment_strong_count(self.home);
            Arc::from_raw(self.home)
        }
    }

    pub(crate) fn as_ptr(&self) -> NonNull<Slot<T>> {
        self.0
    }

    pub(crate) fn is(&self, other: &SlotRef<T>) -> bool {
        self.0 == other.0
    }
}

impl<T: Transport> Clone for SlotRef<T> {
    fn clone(&self) -> Self {
        SlotRef::of(self)
    }
}

impl<T: Transport> Deref for SlotRef<T> {
    type Target = Slot<T>;
    fn deref(&self) -> &Slot<T> {
        // SAFETY: the counted reference keeps the life, and with it the table and its slab, alive.
        unsafe { self.0.as_ref() }
    }
}

impl<T: Transport> Drop for SlotRef<T> {
    fn drop(&mut self) {
        // ord! Release: this holder's use of the slot. Pairs with the fence of the last one out, which comes before the
        //      life is taken apart and its place used again; nobody else pays for an Acquire.
        //      model: ids::every_use_precedes_the_end_of_what_the_last_reference_kept   fails if: relaxed-reference,
        //      no-fence-on-the-last-reference
        if self.references.fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            // SAFETY: that was the last counted reference; nobody can count another one in from zero.
            unsafe { end_life(self.0) };
        }
    }
}

/// Gives the place back to the slab and the table's reference back to the table. In a forked child nothing ends: what the slot
/// keeps alive is forgotten with it.
///
/// # Safety
/// The caller dropped the slot's last counted reference.
#[cold]
unsafe fn end_life<T: Transport>(slot: NonNull<Slot<T>>) {
    // SAFETY: its place lives as long as the life's strong reference, which is not given up yet.
    if !unsafe { slot.as_ref() }.is_here() {
        return;
    }
    // SAFETY: the life's strong reference, given up at the end of this function, keeps the slab alive until then.
    let (home, slot) = unsafe { (Arc::from_raw(slot.as_ref().home), slot.as_ref()) };
    let life = slot.slow.lock().take();
    slot.record.clear().retire();
    home.slab.give_back(slot.id());
    drop(life);
}
