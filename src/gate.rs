//! The rundown counters of a slot's two bays: who is inside, and whether anybody may still enter.
//!
//! ```text
//! stripe: [CLOSED:1 | leases:63] × 2   a cache line, one count for each bay; a lease leaves on the stripe it entered, from
//!                                      any thread
//! left:   × 2                          stripes that are not yet CLOSED with nobody inside
//! ```
//!
//! The gates of the two bays have nothing to do with each other; they share lines because a thread that enters one has
//! left the other, or soon will, and so that who enters finds its line before it knows which bay.
//!
//! - Permission and count share one word, so entering needs no second location to agree: a CAS that adds one while the
//!   stripe is not CLOSED. Every entry precedes CLOSED in the stripe's order or does not happen.
//! - After CLOSED the count only falls, so exactly one RMW brings a stripe to CLOSED with nobody inside. It counts the
//!   stripe out of `left`; who brings `left` to zero has drained the gate, and is told so.
//! - A gate is opened again only by whoever was told, and only after that.
//!
//! Add-then-undo and leaving on another stripe lose in loom-tests/bays.rs. So would flag and count in two words, which is no edit
//! of this file and has no mutant: docs/internals.rs, "Not like this".

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};
use crossbeam_utils::CachePadded;
use std::sync::atomic::AtomicBool;

const CLOSED: u64 = 1 << 63;

pub(crate) struct Gates {
    stripes: Box<[Stripe]>,
    /// Not padded: only a closing touches it.
    left: [AtomicU32; 2],
}

/// Where leases are counted.
pub(crate) struct Stripe(CachePadded<Counts>);

/// Those in one bay, of one stripe. A lease remembers where it was counted, so that leaving looks up nothing.
pub(crate) struct Leases(AtomicU64);

/// One cache line.
struct Counts {
    leases: [Leases; 2],
    // A hint beside the counts, on the line that the entrant has just written, so that it costs one store. Relaxed, and no
    // atomic that loom sees: nothing is freed because of it. Whoever decides that a peer is idle removes it like any other,
    // and the count keeps the connection open for a lease whose mark was not seen yet. No mark is lost: it is taken by a
    // swap, and one that comes later stays for the next look.
    used: AtomicBool,
}

impl Stripe {
    fn closed() -> Self {
        let leases = [CLOSED; 2].map(|closed| Leases(AtomicU64::new(closed)));
        Stripe(CachePadded::new(Counts { leases, used: AtomicBool::new(false) }))
    }

    /// Of one bay.
    #[inline(always)]
    pub(crate) fn leases(&self, bay: usize) -> &Leases {
        &self.0.leases[bay]
    }

    /// Leaves a mark that the peer was used.
    #[inline(always)]
    pub(crate) fn mark(&self) {
        self.0.used.store(true, Ordering::Relaxed);
    }
}

impl Leases {
    /// Leaves. True: the stripe is CLOSED and this was the last one out of it; the caller goes on with [`Gates::last_out`].
    /// Otherwise it must not touch the slot again: its memory may be somebody else's, or nobody's.
    #[inline(always)]
    #[must_use]
    pub(crate) fn leave(&self) -> bool {
        // ord! Release: this lease's use of the connection comes before the close. Pairs with the fence in `last_out` and
        //      with the Acquire half of `close`.
        //      model: bays::every_use_precedes_the_close_one_stripe   fails if: relaxed-leave
        self.0.fetch_sub(1, Ordering::Release) == CLOSED | 1
    }
}

impl Gates {
    /// Two closed gates with nobody inside. `stripes` is a power of two.
    pub(crate) fn closed(stripes: usize) -> Self {
        debug_assert!(stripes.is_power_of_two(), "a stripe is chosen by mask");
        Gates { stripes: (0..stripes).map(|_| Stripe::closed()).collect(), left: [0; 2].map(AtomicU32::new) }
    }

    /// Enters `bay` unless CLOSED, on the stripe of any number; who is answered must leave its count of that bay.
    #[inline(always)]
    pub(crate) fn enter(&self, bay: usize, stripe: u32) -> Option<&Stripe> {
        let entered = &self.stripes[stripe as usize & (self.stripes.len() - 1)];
        let stripe = &entered.leases(bay).0;
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

    /// After the last one left a CLOSED stripe of `bay`. True: nobody is in any of them; the caller signals DRAINED.
    #[cold]
    #[must_use]
    pub(crate) fn last_out(&self, bay: usize) -> bool {
        // ord! Acquire: the uses of all who left this stripe before, handed on by the RMW on `left`.
        //      model: bays::every_held_lease_precedes_the_close   fails if: no-fence-on-last
        fence(Ordering::Acquire);
        self.stripe_drained(bay)
    }

    /// Admits nobody to `bay` from here on. True: nobody was inside; the caller signals DRAINED. Idempotent; under the
    /// slot's mutex.
    #[must_use]
    pub(crate) fn close(&self, bay: usize) -> bool {
        let mut drained = false;
        for stripe in self.of(bay) {
            // ord! AcqRel: Acquire for the uses of those who left an empty stripe; Release so that who finds it CLOSED
            //      finds the word moved on.
            //      model: bays::every_use_precedes_the_close_one_stripe   fails if: close-acquire, close-release
            if stripe.load(Ordering::Relaxed) & CLOSED == 0 && stripe.fetch_or(CLOSED, Ordering::AcqRel) == 0 {
                drained |= self.stripe_drained(bay);
            }
        }
        drained
    }

    fn stripe_drained(&self, bay: usize) -> bool {
        // ord! AcqRel: collects every stripe's uses for the one that reaches zero.
        //      model: bays::every_held_lease_precedes_the_close_two_stripes   fails if: relaxed-left
        self.left[bay].fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Admits to `bay` again. Only after it was drained and the new connection is in it.
    pub(crate) fn open(&self, bay: usize) {
        debug_assert!(self.is_closed(bay) && self.users(bay) == 0, "a gate opens only after it drained");
        self.left[bay].store(self.stripes.len() as u32, Ordering::Relaxed);
        for stripe in self.of(bay) {
            // ord! Release: publishes the new connection and `left` to who enters.
            //      model: bays::every_use_precedes_the_close_one_stripe   fails if: relaxed-reopen
            stripe.store(0, Ordering::Release);
        }
    }

    /// How many are inside `bay`; a moment's answer, for people and reports.
    pub(crate) fn users(&self, bay: usize) -> u64 {
        self.of(bay).map(|stripe| stripe.load(Ordering::Relaxed) & !CLOSED).sum()
    }

    /// Whether a mark was left since this was last asked.
    pub(crate) fn take_marks(&self) -> bool {
        let taken = |stripe: &Stripe| {
            let used = &stripe.0.used;
            used.load(Ordering::Relaxed) && used.swap(false, Ordering::Relaxed)
        };
        self.stripes.iter().filter(|stripe| taken(stripe)).count() > 0
    }

    fn is_closed(&self, bay: usize) -> bool {
        self.of(bay).all(|stripe| stripe.load(Ordering::Relaxed) & CLOSED != 0)
    }

    fn of(&self, bay: usize) -> impl Iterator<Item = &AtomicU64> {
        self.stripes.iter().map(move |stripe| &stripe.leases(bay).0)
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

    /// As `Slot::leave` does it.
    fn leave(gates: &Gates, bay: usize, entered: &Stripe) -> bool {
        entered.leases(bay).leave() && gates.last_out(bay)
    }

    #[test]
    fn a_closed_gate_admits_nobody_and_the_last_one_out_is_told() {
        let gates = Gates::closed(4);
        assert!(gates.enter(1, 0).is_none());
        gates.open(1);
        let [first, second, other] = [0, 0, 7].map(|stripe| gates.enter(1, stripe).expect("the gate is open"));
        assert_eq!(gates.users(1), 3);
        assert!(!leave(&gates, 1, first));
        assert!(!gates.close(1));
        assert!(!gates.close(1), "closing again changes nothing");
        assert!(gates.enter(1, 1).is_none());
        assert!(!leave(&gates, 1, other), "one is still inside");
        assert!(leave(&gates, 1, second));
        gates.open(1);
        assert!(gates.close(1), "nobody inside: the closer is told");
    }

    #[test]
    fn who_is_inside_of_one_bay_keeps_nothing_of_the_other() {
        let gates = Gates::closed(1);
        (0..2).for_each(|bay| gates.open(bay));
        let old = gates.enter(0, 0).expect("the gate is open");
        assert!(!gates.close(0));
        let new = gates.enter(1, 0).expect("the gate is open");
        assert_eq!([0, 1].map(|bay| gates.users(bay)), [1, 1]);
        assert!(!leave(&gates, 1, new) && gates.close(1), "the last one of the second bay has left it");
        assert!(leave(&gates, 0, old));
    }

    #[test]
    fn a_mark_is_taken_once() {
        let gates = Gates::closed(4);
        gates.open(0);
        assert!(!gates.take_marks());
        for stripe in [0, 0, 3] {
            gates.enter(0, stripe).expect("the gate is open").mark();
        }
        assert!(gates.take_marks() && !gates.take_marks());
    }

    #[test]
    fn threads_have_stripes_of_their_own() {
        let mine = stripe_of_thread();
        assert_eq!(mine, stripe_of_thread());
        let theirs = std::thread::spawn(stripe_of_thread).join().unwrap();
        assert_ne!(mine, theirs);
    }
}
