//! The rundown counter of a bay: who is inside, and whether anybody may still enter.
//!
//! ```text
//! stripe: [CLOSED:1 | leases:63]     one cache line each; a lease leaves on the stripe it entered, from any thread
//! left:   stripes that are not yet CLOSED with nobody inside
//! ```
//!
//! - Permission and count share one word, so entering needs no second location to agree: a CAS that adds one while the
//!   stripe is not CLOSED. Every entry precedes CLOSED in the stripe's order or does not happen.
//! - After CLOSED the count only falls, so exactly one RMW brings a stripe to CLOSED with nobody inside. It counts the
//!   stripe out of `left`; who brings `left` to zero has drained the gate, and is told so.
//! - A gate is opened again only by whoever was told, and only after that.
//!
//! Flag and count in two words, add-then-undo, and leaving on another stripe each lose (loom-tests/bays.rs).

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};
use crossbeam_utils::CachePadded;
use std::ops::Deref;
use std::sync::atomic::AtomicBool;

const CLOSED: u64 = 1 << 63;

pub(crate) struct Gate {
    stripes: Box<[Stripe]>,
    /// Not padded: only a closing touches it.
    left: AtomicU32,
}

/// Where a lease is counted. It remembers this place, so that leaving looks up nothing.
pub(crate) struct Stripe(CachePadded<Count>);

/// One cache line.
struct Count {
    leases: AtomicU64,
    // A hint beside the count, on the line that the entrant has just written, so that it costs one store. Relaxed, and no
    // atomic that loom sees: nothing is freed because of it. Whoever decides that a peer is idle removes it like any other,
    // and the count keeps the connection open for a lease whose mark was not seen yet. No mark is lost: it is taken by a
    // swap, and one that comes later stays for the next look.
    used: AtomicBool,
}

impl Count {
    fn closed() -> Self {
        Count { leases: AtomicU64::new(CLOSED), used: AtomicBool::new(false) }
    }
}

impl Deref for Count {
    type Target = AtomicU64;
    #[inline(always)]
    fn deref(&self) -> &AtomicU64 {
        &self.leases
    }
}

impl Stripe {
    /// Leaves a mark that the bay was used.
    #[inline(always)]
    pub(crate) fn mark(&self) {
        self.0.used.store(true, Ordering::Relaxed);
    }
}

impl Gate {
    /// A closed gate with nobody inside. `stripes` is a power of two.
    pub(crate) fn closed(stripes: usize) -> Self {
        debug_assert!(stripes.is_power_of_two(), "a stripe is chosen by mask");
        Gate {
            stripes: (0..stripes).map(|_| Stripe(CachePadded::new(Count::closed()))).collect(),
            left: AtomicU32::new(0),
        }
    }

    /// Enters unless CLOSED, on the stripe of any number; what it answers must be given to `leave`.
    #[inline(always)]
    pub(crate) fn enter(&self, stripe: u32) -> Option<&Stripe> {
        let entered = &self.stripes[stripe as usize & (self.stripes.len() - 1)];
        let stripe: &AtomicU64 = &entered.0;
        // ord! Acquire on every look: a CLOSED stripe must bring the word that moved on before it, else "retry while the
        //      word reads Ready" never ends. Pairs with the AcqRel close.
        //      model: bays::every_use_precedes_the_close_one_stripe   fails if: relaxed-look
        let mut seen = stripe.load(Ordering::Acquire);
        while seen & CLOSED == 0 {
            // ord! Acquire on success: the connection that the reopening published. Needed even after an Acquire look: the
            //      same count recurs in a later generation. Pairs with the Release in `open`.
            //      model: bays::every_use_precedes_the_close_one_stripe   fails if: relaxed-enter
            match stripe.compare_exchange_weak(seen, seen + 1, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(entered),
                Err(now) => seen = now,
            }
        }
        None
    }

    /// Leaves the stripe that was entered. True: this was the last one out of a closed gate; the caller signals DRAINED.
    /// Otherwise the caller must not touch the slot again: its memory may be somebody else's.
    #[inline(always)]
    #[must_use]
    pub(crate) fn leave(&self, entered: &Stripe) -> bool {
        // ord! Release: this lease's use of the connection comes before the close. Pairs with the fence below and with the
        //      Acquire half of `close`.
        //      model: bays::every_use_precedes_the_close_one_stripe   fails if: relaxed-leave
        if entered.0.fetch_sub(1, Ordering::Release) != CLOSED | 1 {
            return false;
        }
        self.last_out()
    }

    #[cold]
    fn last_out(&self) -> bool {
        // ord! Acquire: the uses of all who left this stripe before, handed on by the RMW on `left`.
        //      model: bays::every_held_lease_precedes_the_close   fails if: no-fence-on-last
        fence(Ordering::Acquire);
        self.stripe_drained()
    }

    /// Admits nobody from here on. True: nobody was inside; the caller signals DRAINED. Idempotent; under the slot's mutex.
    #[must_use]
    pub(crate) fn close(&self) -> bool {
        let mut drained = false;
        for Stripe(stripe) in &self.stripes {
            // ord! AcqRel: Acquire for the uses of those who left an empty stripe; Release so that who finds it CLOSED
            //      finds the word moved on.
            //      model: bays::every_use_precedes_the_close_one_stripe   fails if: close-acquire, close-release
            if stripe.load(Ordering::Relaxed) & CLOSED == 0 && stripe.fetch_or(CLOSED, Ordering::AcqRel) == 0 {
                drained |= self.stripe_drained();
            }
        }
        drained
    }

    fn stripe_drained(&self) -> bool {
        // ord! AcqRel: collects every stripe's uses for the one that reaches zero.
        //      model: bays::every_held_lease_precedes_the_close_two_stripes   fails if: relaxed-left
        self.left.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Admits again. Only after the gate was drained and the new connection is in its bay.
    pub(crate) fn open(&self) {
        debug_assert!(self.is_closed() && self.users() == 0, "a gate opens only after it drained");
        self.left.store(self.stripes.len() as u32, Ordering::Relaxed);
        for Stripe(stripe) in &self.stripes {
            // ord! Release: publishes the new connection and `left` to who enters.
            //      model: bays::every_use_precedes_the_close_one_stripe   fails if: relaxed-reopen
            stripe.store(0, Ordering::Release);
        }
    }

    /// How many are inside; a moment's answer, for people and reports.
    pub(crate) fn users(&self) -> u64 {
        self.stripes.iter().map(|Stripe(stripe)| stripe.load(Ordering::Relaxed) & !CLOSED).sum()
    }

    /// Whether a mark was left since this was last asked.
    pub(crate) fn take_marks(&self) -> bool {
        let taken = |stripe: &Stripe| {
            let used = &stripe.0.used;
            used.load(Ordering::Relaxed) && used.swap(false, Ordering::Relaxed)
        };
        self.stripes.iter().filter(|stripe| taken(stripe)).count() > 0
    }

    fn is_closed(&self) -> bool {
        self.stripes.iter().all(|Stripe(stripe)| stripe.load(Ordering::Relaxed) & CLOSED != 0)
    }
}

/// The stripe of this thread: threads are numbered as they first ask, so the first S of them never share one.
#[cfg(not(peerage_loom))]
#[inline(always)]
pub(crate) fn stripe_of_thread() -> u32 {
    use std::cell::Cell;

    const UNSET: u32 = u32::MAX;
    thread_local! { static STRIPE: Cell<u32> = const { Cell::new(UNSET) } }

    #[cold]
    fn assign() -> u32 {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let stripe = NEXT.fetch_add(1, Ordering::Relaxed) & !(1 << 31);
        STRIPE.set(stripe);
        stripe
    }

    match STRIPE.get() {
        UNSET => assign(),
        stripe => stripe,
    }
}

#[cfg(peerage_loom)]
loom::thread_local! {
    /// Models name their stripes themselves.
    pub(crate) static STRIPE: std::cell::Cell<u32> = std::cell::Cell::new(0);
}

#[cfg(peerage_loom)]
pub(crate) fn stripe_of_thread() -> u32 {
    STRIPE.with(std::cell::Cell::get)
}

#[cfg(all(test, not(peerage_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_closed_gate_admits_nobody_and_the_last_one_out_is_told() {
        let gate = Gate::closed(4);
        assert!(gate.enter(0).is_none());
        gate.open();
        let [first, second, other] = [0, 0, 7].map(|stripe| gate.enter(stripe).expect("the gate is open"));
        assert_eq!(gate.users(), 3);
        assert!(!gate.leave(first));
        assert!(!gate.close());
        assert!(!gate.close(), "closing again changes nothing");
        assert!(gate.enter(1).is_none());
        assert!(!gate.leave(other), "one is still inside");
        assert!(gate.leave(second));
        gate.open();
        assert!(gate.close(), "nobody inside: the closer is told");
    }

    #[test]
    fn a_mark_is_taken_once() {
        let gate = Gate::closed(4);
        gate.open();
        assert!(!gate.take_marks());
        for stripe in [0, 0, 3] {
            gate.enter(stripe).expect("the gate is open").mark();
        }
        assert!(gate.take_marks() && !gate.take_marks());
    }

    #[test]
    fn threads_have_stripes_of_their_own() {
        let mine = stripe_of_thread();
        assert_eq!(mine, stripe_of_thread());
        let theirs = std::thread::spawn(stripe_of_thread).join().unwrap();
        assert_ne!(mine, theirs);
    }
}
