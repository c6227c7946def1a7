//! How a slot reaches the driver: one Treiber list of slots, taken whole.
//!
//! 1. `events` is the queued flag: the RMW that takes it from 0 to non-zero pushes the slot, nobody else does.
//! 2. The push takes one counted reference of the slot; whoever takes the list owns it.
//! 3. The driver reads `next`, then clears `events` by a swap (an RMW: it must read what it clears), then looks.
//! 4. Nothing but that swap clears `events`: a timer sets a bit and pushes like everybody else.
//! 5. Whoever finds the list empty unparks; after its push it touches nothing that the slot keeps alive, so it clones the
//!    driver's handle before. The driver parks only after an empty take.
//! 6. A driver that ends ends the list: what is told afterwards is told to nobody and keeps nothing alive.
//!
//! Each rule dropped is a mutant of loom-tests/queue.rs. No allocation, no lock.

use crate::sync::{AtomicPtr, AtomicU32, Ordering, Thread, Tracked, UnsafeCell};
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

/// The generation was reported.
pub(crate) const REPORTED: u32 = 1;
/// Somebody asks for a connection.
pub(crate) const WANTED: u32 = 1 << 1;
/// Bay 0 is drained; bay 1 is the next bit.
pub(crate) const DRAINED: u32 = 1 << 2;
/// A time has come, a native call has returned, a removal was asked for: look.
pub(crate) const LOOK: u32 = 1 << 4;

/// Another rank of its engine is gone: ask at once whether it is alive.
pub(crate) const ASK: u32 = 1 << 5;

/// The part of a slot that the queue uses.
pub(crate) struct Link<N> {
    events: AtomicU32,
    next: UnsafeCell<*mut N>,
}

impl<N> Link<N> {
    pub(crate) fn new() -> Self {
        Link { events: AtomicU32::new(0), next: UnsafeCell::new(ptr::null_mut()) }
    }
}

// SAFETY: `next` is written only by the one thread that took `events` from zero, before its push, and read only by the
// taker, after it; the list's head orders the two. Ends if: somebody pushes without winning `events`.
unsafe impl<N: Sync> Sync for Link<N> {}
// SAFETY: a link owns nothing.
unsafe impl<N: Send> Send for Link<N> {}

/// What can be queued.
///
/// # Safety
/// `link` always answers the same link, and `count_in` adds one counted reference that keeps the node alive until the
/// taker gives it back.
pub(crate) unsafe trait Node: Sized {
    fn link(&self) -> &Link<Self>;
    fn count_in(&self);

    /// Gives back a reference that was counted in.
    ///
    /// # Safety
    /// The caller owns that reference.
    unsafe fn count_out(node: NonNull<Self>);
}

pub(crate) struct Queue<N> {
    head: AtomicPtr<N>,
    driver: OnceLock<Thread>,
    memory: Tracked,
}

impl<N: Node> Queue<N> {
    pub(crate) fn new() -> Self {
        Queue { head: AtomicPtr::new(ptr::null_mut()), driver: OnceLock::new(), memory: Tracked::new() }
    }

    /// Names the thread to wake. Once, before anybody tells anything.
    pub(crate) fn driven_by(&self, driver: Thread) {
        assert!(self.driver.set(driver).is_ok(), "a queue has one driver");
    }

    /// Sets `events` and queues the node unless it is queued.
    ///
    /// # Safety
    /// Until this call has set `events`, the caller keeps `node` alive: by a counted reference, or by the DRAINED bit it is
    /// about to set, whose bay gives its reference back only when the driver has taken the bit.
    pub(crate) unsafe fn tell(&self, node: NonNull<N>, events: u32) {
        // Before the push: after it, node and queue may be gone.
        //      model: queue::the_last_one_out_touches_nothing_of_a_table_that_is_gone   fails if: unpark-through-the-slot
        let driver = self.driver().cloned();
        // SAFETY: the caller keeps the node alive until this RMW.
        let link = unsafe { node.as_ref() }.link();
        // ord! AcqRel: Release publishes what is told; Acquire so that of two tellers the one that pushes comes second.
        //      model: queue::news_told_while_the_slot_is_queued_or_processed_is_seen   fails if: relaxed-tell
        if link.events.fetch_or(events, Ordering::AcqRel) != 0 {
            return;
        }
        // SAFETY: this call took `events` from zero. Nothing clears it before the node is taken from the list, so neither a
        // bit set here nor the reference behind it has been consumed, and no other thread touches `next`.
        //         Ends if: anything but a take clears `events`.
        let pushed = unsafe {
            node.as_ref().count_in();
            self.push(node, link)
        };
        let Some(was_empty) = pushed else {
            // SAFETY: counted in above, and not pushed. `events` stays set: nobody comes here again.
            unsafe { N::count_out(node) };
            return;
        };
        if let Some(driver) = driver.filter(|_| was_empty) {
            driver.unpark();
        }
    }

    fn driver(&self) -> Option<&Thread> {
        self.memory.touch();
        self.driver.get()
    }

    /// Answers whether the list was empty; `None`: it has ended.
    ///
    /// # Safety
    /// The caller took the node's `events` from zero and has counted a reference in for the list.
    unsafe fn push(&self, node: NonNull<N>, link: &Link<N>) -> Option<bool> {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            if head == ended() {
                return None;
            }
            // SAFETY: see the caller's duty: nobody else touches `next` now.
            link.next.with_mut(|next| unsafe { *next = head });
            // ord! Release: publishes `next`. Pairs with the Acquire in `take`.
            //      model: queue::news_told_while_the_slot_is_queued_or_processed_is_seen   fails if: relaxed-push
            match self.head.compare_exchange_weak(head, node.as_ptr(), Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return Some(head.is_null()),
                Err(now) => head = now,
            }
        }
    }

    /// Takes the whole list. The driver's alone.
    pub(crate) fn take(&self) -> Taken<N> {
        // ord! Acquire: the `next` of every node in the list.
        //      model: queue::news_told_while_the_slot_is_queued_or_processed_is_seen   fails if: relaxed-take
        Taken { next: self.head.swap(ptr::null_mut(), Ordering::Acquire) }
    }

    /// Takes the whole list, and nothing is pushed any more. The driver's last.
    pub(crate) fn end(&self) -> Taken<N> {
        // ord! Acquire: as in `take`.
        Taken { next: self.head.swap(ended(), Ordering::Acquire) }
    }

    /// Wakes the driver for something that is not a slot's.
    pub(crate) fn wake(&self) {
        if let Some(driver) = self.driver() {
            driver.unpark();
        }
    }
}

/// The head of a list that has ended; no node is there.
fn ended<N>() -> *mut N {
    ptr::dangling_mut()
}

/// A taken list: nodes with what was told about each. The receiver owns the counted reference of each.
pub(crate) struct Taken<N> {
    next: *mut N,
}

impl<N: Node> Iterator for Taken<N> {
    type Item = (NonNull<N>, u32);

    fn next(&mut self) -> Option<Self::Item> {
        let node = NonNull::new(self.next)?;
        // SAFETY: the list holds a counted reference of each of its nodes, which passes to the receiver here.
        let link = unsafe { node.as_ref() }.link();
        // SAFETY: the node is in our list, so nobody writes `next` until `events` is cleared below.
        //         Ends if: read after the swap; the node may then be pushed again.
        self.next = link.next.with(|next| unsafe { *next });
        // ord! AcqRel swap: Acquire for the news behind the bits. An RMW, never a store: a store may clear a bit it has not
        //      read, which lost wake-ups on x86.
        //      model: queue::news_told_while_the_slot_is_queued_or_processed_is_seen   fails if: clear-by-store,
        //      relaxed-clear, clear-after-look
        Some((node, link.events.swap(0, Ordering::AcqRel)))
    }
}

impl<N> std::fmt::Debug for Queue<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(peerage_loom)))]
mod tests {
    use super::*;
    use crate::sync::AtomicU64;
    use std::thread;

    const ROUNDS: u64 = 500;
    const TELLERS: usize = 3;

    struct Place {
        link: Link<Place>,
        counted: AtomicU32,
        /// Of one teller each, for the taker: written before it is told.
        news: [UnsafeCell<u64>; TELLERS],
        /// The news that the taker has read.
        read: [AtomicU64; TELLERS],
    }

    // SAFETY: a teller writes its news when the last one is read, and tells it; the taker reads what it was told.
    unsafe impl Sync for Place {}

    // SAFETY: one link; the places outlive the threads of the test.
    unsafe impl Node for Place {
        fn link(&self) -> &Link<Self> {
            &self.link
        }

        fn count_in(&self) {
            self.counted.fetch_add(1, Ordering::Relaxed);
        }

        unsafe fn count_out(node: NonNull<Self>) {
            // SAFETY: as above.
            unsafe { node.as_ref() }.counted.fetch_sub(1, Ordering::Relaxed);
        }
    }

    impl Place {
        fn new() -> Self {
            Place {
                link: Link::new(),
                counted: AtomicU32::new(0),
                news: [const { UnsafeCell::new(0) }; TELLERS],
                read: [const { AtomicU64::new(0) }; TELLERS],
            }
        }

        fn write(&self, teller: usize, round: u64) {
            while self.read[teller].load(Ordering::Acquire) != round - 1 {
                thread::yield_now();
            }
            // SAFETY: the taker has read the last news and touches this again when it is told.
            self.news[teller].with_mut(|news| unsafe { *news = round });
        }

        fn take(&self, events: u32) {
            self.counted.fetch_sub(1, Ordering::Relaxed);
            for teller in (0..TELLERS).filter(|teller| events & 1 << teller != 0) {
                // SAFETY: told, and not yet answered.
                let news = self.news[teller].with(|news| unsafe { *news });
                assert_eq!(news, self.read[teller].load(Ordering::Relaxed) + 1, "told once, with what was written");
                self.read[teller].store(news, Ordering::Release);
            }
        }
    }

    /// For ThreadSanitizer (`ci/sanitizers.sh thread`) more than for what it asserts.
    #[test]
    fn what_many_threads_tell_is_taken_once_and_brings_what_they_wrote_before() {
        let queue = Queue::new();
        let places = [Place::new(), Place::new()];
        thread::scope(|scope| {
            let (queue, places) = (&queue, &places);
            let tell = |teller| {
                move || {
                    for (round, place) in (1..=ROUNDS).flat_map(|round| places.iter().map(move |place| (round, place)))
                    {
                        place.write(teller, round);
                        // SAFETY: the places outlive the threads.
                        unsafe { queue.tell(NonNull::from(place), 1 << teller) };
                    }
                }
            };
            let tellers: Vec<_> = (0..TELLERS).map(|teller| scope.spawn(tell(teller))).collect();
            let over = |place: &Place| place.read.iter().all(|read| read.load(Ordering::Relaxed) == ROUNDS);
            while !places.iter().all(over) {
                // SAFETY: as above.
                queue.take().for_each(|(place, events)| unsafe { place.as_ref() }.take(events));
                thread::yield_now();
            }
            tellers.into_iter().for_each(|teller| teller.join().unwrap());
        });
        assert!(queue.take().next().is_none());
        assert_eq!(places.map(|place| place.counted.load(Ordering::Relaxed)), [0; 2]);
    }

    #[test]
    fn what_is_told_after_the_end_keeps_nothing_alive() {
        let (before, after) = (Place::new(), Place::new());
        let queue = Queue::new();
        let tell = |place: &Place, events| {
            // SAFETY: the place outlives the queue.
            unsafe { queue.tell(NonNull::from(place), events) };
        };
        tell(&before, REPORTED);
        assert_eq!(queue.end().map(|(_, events)| events).collect::<Vec<_>>(), [REPORTED]);
        for events in [WANTED, LOOK] {
            tell(&after, events);
            assert_eq!(after.counted.load(Ordering::Relaxed), 0);
        }
        assert_eq!(before.counted.load(Ordering::Relaxed), 1, "the taker's to give back");
    }
}
