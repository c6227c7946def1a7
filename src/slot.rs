//! The place of one peer, and everything that is done to it without a lock.
//!
//! **Lease**: load the word; Ready(g, bay)? enter the bay's gate; read the word again: unchanged? Then the connection in
//! the bay is generation g's and stays there until the lease leaves. If the gate was closed or the word has changed, leave
//! and look again; only a newer Ready is worth another try.
//!
//! **Report(g)**: CAS Ready(g, ·) or Connecting(g) to Failed(g), at most two rounds, then one note and one push. The only
//! change of the word without the mutex. After it returns nobody is admitted on g: whoever enters later reads the word
//! again and finds it changed.
//!
//! **Asking**: a lease that reads Idle(g) or Failed(g) raises `wanted` to g; only the RMW that raised it pushes. `wanted` is
//! a generation, not a bit, and nobody clears it: a newer failure makes it stale (loom-tests/wanted.rs).
//!
//! | field | written by | read by |
//! |---|---|---|
//! | word | reports: bare CAS; all else under `slow` | everybody |
//! | version | the start of a life | look-up by id |
//! | process | nobody | whoever enters: fork.rs |
//! | wanted | leases, `ready()` | the lane |
//! | gates | leases (enter, leave); the lane and `publish` (open, close): gate.rs | everybody |
//! | bays | see bay.rs | |
//! | link | who has news; the driver: queue.rs | the driver |
//! | references | handles, queue, bays | |
//! | record | transitions, under `slow`: record.rs | everybody |
//! | notes | who wins a report: note.rs | who settles |
//! | in_flight, grants | who posts or lends; who ends a transfer or a grant; counts for listing | limits, listing, the lane |
//! | connecting | election, return of the native connect, both under `slow` | `Shared::leaves`; listing |
//! | suspect | heartbeats, under `slow` | `is_suspect` |
//! | asked | refused leases, `ready()`, inserts; the lane takes it | the lane |
//! | slow | the lane, tickets, `ready()`, removers: slow/ | |

mod life;

pub(crate) use life::SlotRef;

use crate::bay::Bay;
use crate::fork::Process;
use crate::gate::{Gates, Leases};
use crate::in_flight::InFlight;
use crate::name::{PeerId, PeerName};
use crate::note::{Note, Notes};
use crate::queue::{DRAINED, Link, Node, REPORTED, WANTED};
use crate::record::{Record, RecordCell};
use crate::shared::Shared;
use crate::slow::Slow;
use crate::state::{Generation, Phase, Word};
use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, Crossing, Mutex, Ordering};
use crate::transport::Transport;
use crossbeam_utils::CachePadded;
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::AtomicBool;

// In this order, because the first cache line is read by every lease and hardly ever written: by transitions, and by the
// first who asks after each failure (`wanted`). What handles, transfers and refused leases write comes after the bays.
#[repr(C, align(128))]
pub(crate) struct Slot<T: Transport> {
    word: AtomicU64,
    looks: Crossing,
    version: AtomicU32,
    index: u32,
    wanted: AtomicU64,
    /// The table this slot is a part of. Valid while the slot is counted: each life holds one strong reference.
    home: *const Shared<T>,
    /// On the word's line: a lease finds its stripe while it still waits for the word.
    gates: Gates,
    /// The only one that may use the slot.
    process: Process,
    bays: [Bay<T::Connection>; 2],
    link: CachePadded<Link<Slot<T>>>,
    references: AtomicUsize,
    pub(crate) record: RecordCell,
    pub(crate) notes: Notes,
    pub(crate) in_flight: InFlight,
    pub(crate) grants: AtomicU64,
    /// A native connect runs, or the close of one that came too late; for listing.
    pub(crate) connecting: AtomicBool,
    /// The Ready generation has not answered for a heartbeat's interval. Written under `slow`.
    pub(crate) suspect: AtomicBool,
    /// Somebody asked for the peer and got no lease, since the lane last looked. Publishes nothing.
    asked: AtomicBool,
    /// `None` between lives.
    pub(crate) slow: Mutex<Option<Slow<T>>>,
}

// SAFETY: 1. every field but `home` is `Send + Sync` by itself. 2. `home` is only read, and points to a `Shared<T>`, which
// is `Send + Sync`, kept alive by the life's strong reference. Ends if: `home` is used on a slot that is not counted.
unsafe impl<T: Transport> Send for Slot<T> {}
// SAFETY: as above.
unsafe impl<T: Transport> Sync for Slot<T> {}

// SAFETY: `link` answers one field; `count_in` adds a counted reference, given back by the taker's `SlotRef`.
unsafe impl<T: Transport> Node for Slot<T> {
    fn link(&self) -> &Link<Self> {
        &self.link
    }

    fn count_in(&self) {
        self.references.fetch_add(1, Ordering::Relaxed);
    }

    unsafe fn count_out(slot: NonNull<Self>) {
        // SAFETY: the caller owns the reference and gives it up.
        drop(unsafe { SlotRef::from_counted(slot) });
    }
}

impl<T: Transport> Slot<T> {
    /// A place without a life.
    pub(crate) fn new(index: u32, stripes: usize, home: *const Shared<T>) -> Self {
        Slot {
            word: AtomicU64::new(Word::new(Generation(0), Phase::Removed).bits()),
            version: AtomicU32::new(0),
            looks: Crossing::new(),
            index,
            wanted: AtomicU64::new(0),
            home,
            gates: Gates::closed(stripes),
            process: Process::this(),
            bays: [Bay::empty(), Bay::empty()],
            link: CachePadded::new(Link::new()),
            references: AtomicUsize::new(0),
            record: RecordCell::empty(),
            notes: Notes::new(),
            in_flight: InFlight::default(),
            grants: AtomicU64::new(0),
            connecting: AtomicBool::new(false),
            suspect: AtomicBool::new(false),
            asked: AtomicBool::new(false),
            slow: Mutex::new(None),
        }
    }

    /// Whether this process made the slot. In a child of it nobody may take a lock of the table or wait for its threads.
    #[inline(always)]
    pub(crate) fn is_here(&self) -> bool {
        self.process.is_this()
    }

    pub(crate) fn id(&self) -> PeerId {
        PeerId { index: self.index, version: self.version.load(Ordering::Acquire) }
    }

    pub(crate) fn word(&self) -> Word {
        self.looks.pass();
        Word::from_bits(self.word.load(Ordering::Acquire))
    }

    pub(crate) fn bay(&self, bay: usize) -> &Bay<T::Connection> {
        &self.bays[bay]
    }

    /// Those of the bays, by their number.
    pub(crate) fn gates(&self) -> &Gates {
        &self.gates
    }

    /// Whether the peer is Ready and has not answered for a heartbeat's interval, or a transfer of that generation stands
    /// still.
    pub(crate) fn is_suspect(&self) -> bool {
        // The word first: what an older generation was suspected of was cleared, under the mutex, before the CAS that made
        // this one Ready. Its bay was used by no older transfer any more.
        let suspect = |bay| self.suspect.load(Ordering::Relaxed) || self.in_flight.stalled(bay) > 0;
        self.word().bay().is_some_and(suspect)
    }

    /// The peer's name, without a lock. The caller keeps the slot alive.
    pub(crate) fn name(&self) -> PeerName {
        self.try_name().expect("an inserted peer has a record")
    }

    /// `None` in a slot whose life has only just begun.
    pub(crate) fn try_name(&self) -> Option<PeerName> {
        self.record.read(|record| record.map(|record| record.name.clone()))
    }

    /// The record, if it is about `word`.
    pub(crate) fn record_of(&self, word: Word) -> Option<Record> {
        self.record.read(|record| record.filter(|record| record.is_of(word)).cloned())
    }

    /// Changes the word; the caller holds the slot's mutex, and the CAS is against a report.
    pub(crate) fn change_word(&self, from: Word, to: Word) -> Result<(), Word> {
        // ord! AcqRel: publishes what the holder of the mutex did before, to who reads the word without it.
        //      model: bays::every_use_precedes_the_close_one_stripe   fails if: relaxed-change
        self.word
            .compare_exchange(from.bits(), to.bits(), Ordering::AcqRel, Ordering::Acquire)
            .map(drop)
            .map_err(Word::from_bits)
    }

    /// Enters the current generation's bay. `Err`: the word that was not Ready.
    #[inline(always)]
    pub(crate) fn enter(&self, stripe: u32) -> Result<Entered, Word> {
        self.enter_if(stripe, true, || true)
    }

    /// The same for who asks whether the peer is alive, which is no use of it.
    pub(crate) fn enter_to_probe(&self, stripe: u32) -> Result<Entered, Word> {
        self.enter_if(stripe, false, || true)
    }

    /// The same by id: `None` if the slot is in another life.
    #[inline(always)]
    pub(crate) fn enter_by_id(&self, version: u32, stripe: u32) -> Option<Result<Entered, Word>> {
        let mut same_life = true;
        let entered = self.enter_if(stripe, true, || {
            // ord! Acquire, after the word: see `begin_life`.
            //      model: ids::a_stale_id_never_reaches_the_next_peer   fails if: version-before-word
            same_life = self.version.load(Ordering::Acquire) == version;
            same_life
        });
        same_life.then_some(entered)
    }

    /// `wanted_life` is asked between the first look at a word and its use. In a forked child nobody is admitted.
    #[inline(always)]
    fn enter_if(&self, stripe: u32, is_use: bool, mut wanted_life: impl FnMut() -> bool) -> Result<Entered, Word> {
        if !self.is_here() {
            return Err(self.word());
        }
        // ord! Acquire: pairs with the publisher's CAS. model: bays::every_use_precedes_the_close_one_stripe
        //      fails if: relaxed-word
        let mut seen = self.word();
        loop {
            if !wanted_life() {
                return Err(seen);
            }
            let Some(bay) = seen.bay() else { return Err(seen) };
            if let Some(place) = self.gates.enter(bay, stripe) {
                let entered = Entered { word: seen, counted: NonNull::from(place.leases(bay)) };
                // The second look: a gate that was reopened may have admitted us to a later generation. Relaxed would do,
                // because the entering CAS acquired the reopening.
                //      model: bays::every_use_precedes_the_close_one_stripe   fails if: no-second-look
                let now = self.word();
                if now == seen {
                    if is_use {
                        place.mark();
                    }
                    return Ok(entered);
                }
                self.leave_at_once(entered);
                seen = now;
            } else {
                let now = self.word();
                debug_assert_ne!(now, seen, "a closed stripe under a word that still reads Ready");
                seen = now;
            }
        }
    }

    /// Off the path of who is admitted.
    #[cold]
    fn leave_at_once(&self, entered: Entered) {
        // SAFETY: called once, by who entered this slot just now, and who has it by a handle or out of a borrowed table.
        unsafe { Slot::leave(NonNull::from(self), entered) };
    }

    /// Leaves the bay that was entered.
    ///
    /// # Safety
    /// The caller entered this slot, was answered `entered`, and leaves for the first time. Unless it holds a counted
    /// reference or borrows the table, whose slab keeps every place, it must not use the slot afterwards.
    #[inline(always)]
    pub(crate) unsafe fn leave(slot: NonNull<Self>, entered: Entered) {
        // SAFETY: the bay is not drained while the caller is inside, and holds a reference of the slot until it is; the
        // count is a part of the slot's gates. It is an atomic and borrowed alone, so it may be freed as soon as it fell.
        // Ends if: gates give up their stripes before the slab is gone.
        if unsafe { entered.counted.as_ref() }.leave() {
            // SAFETY: the last one out of a stripe; the bay keeps its reference until the driver takes the bit that is set
            // here, or by the last one out of another stripe, who waits for `left` to be counted down here.
            unsafe { Slot::last_out(slot, entered.bay()) };
        }
    }

    /// # Safety
    /// The caller was the last one out of a CLOSED stripe of `bay`.
    #[cold]
    unsafe fn last_out(slot: NonNull<Self>, bay: usize) {
        // SAFETY: the caller's.
        if unsafe { slot.as_ref() }.gates.last_out(bay) {
            // SAFETY: the gate is drained; the bay keeps its reference until the driver takes the bit set here.
            unsafe { Slot::drained(slot, bay) };
        }
    }

    /// # Safety
    /// The caller was told by the gate that the bay is drained.
    #[cold]
    unsafe fn drained(slot: NonNull<Self>, bay: usize) {
        // SAFETY: see the caller's duty; `home` lives as long as the slot is counted.
        unsafe { (*slot.as_ref().home).queue.tell(slot, DRAINED << bay) };
    }

    /// Leaves a mark that somebody has use for the peer who got no lease of it.
    pub(crate) fn mark_asked(&self) {
        if !self.asked.load(Ordering::Relaxed) {
            self.asked.store(true, Ordering::Relaxed);
        }
    }

    /// Whether anybody took a lease or asked for one since this was last called.
    pub(crate) fn take_marks(&self) -> bool {
        let asked = self.asked.swap(false, Ordering::Relaxed);
        self.gates.take_marks() || asked
    }

    /// Asks for one reconnect after the failure of `generation`. The caller keeps the slot alive. Never waits.
    pub(crate) fn ask(&self, generation: Generation) {
        // ord! AcqRel is more than the raise needs: the push that follows publishes it, and the lane reads it after its swap.
        //      What it may not be is a bit.
        //      model: wanted::a_wanted_generation_loses_no_request   fails if: wanted-is-a-bit-cleared-after-the-attempt
        if self.wanted.load(Ordering::Relaxed) < generation.0
            && self.wanted.fetch_max(generation.0, Ordering::AcqRel) < generation.0
        {
            self.tell(WANTED);
        }
    }

    /// Raises `wanted` for a caller that pushes by itself.
    pub(crate) fn want(&self, generation: Generation) {
        // ord! AcqRel: as in `ask`. The caller's push comes after it, and publishes it.
        //      model: outcome::a_waiter_gets_the_first_outcome_after_its_question   fails if: join-then-ask-in-two-sections
        self.wanted.fetch_max(generation.0, Ordering::AcqRel);
    }

    pub(crate) fn is_wanted(&self, generation: Generation) -> bool {
        // ord! Acquire is more than it needs: which raise must be seen is settled by the push after it, whose bits the lane
        //      has swapped before it looks here.
        //      model: wanted::a_wanted_generation_loses_no_request   fails if: wanted-is-a-bit-cleared-after-the-attempt
        self.wanted.load(Ordering::Acquire) == generation.0
    }

    /// Fails `generation` if it is the current one. After this returns nobody is admitted on it, whatever the answer.
    pub(crate) fn report(&self, generation: Generation, note: impl FnOnce() -> Note) -> bool {
        let mut seen = self.word();
        while let Some(failed) = seen.reported(generation) {
            // At most two rounds: Connecting(g) may become Ready(g) once.
            match self.change_word(seen, failed) {
                Ok(()) => {
                    // Told also if the note, which formats the user's error, panics.
                    let _told = TellOnDrop(self);
                    self.notes.push(note());
                    return true;
                }
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Tells the driver. The caller keeps the slot alive, by a counted reference or a lease.
    pub(crate) fn tell(&self, events: u32) {
        // SAFETY: `&self` of a counted slot, see above.
        unsafe { self.home().queue.tell(NonNull::from(self), events) };
    }

    /// The table.
    pub(crate) fn home(&self) -> &Shared<T> {
        // SAFETY: a slot is used only while it is counted or one of its bays is open, hence counted; each life holds a
        // strong reference of its table. Ends if: somebody keeps a `&Slot` beyond its reference.
        unsafe { &*self.home }
    }
}

impl<T: Transport> fmt::Debug for Slot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("id", &self.id()).field("word", &self.word()).finish_non_exhaustive()
    }
}

struct TellOnDrop<'a, T: Transport>(&'a Slot<T>);

impl<T: Transport> Drop for TellOnDrop<'_, T> {
    fn drop(&mut self) {
        self.0.tell(REPORTED);
    }
}

/// What an entrant was admitted by and where it is counted, until it leaves.
#[derive(Clone, Copy)]
pub(crate) struct Entered {
    pub(crate) word: Word,
    counted: NonNull<Leases>,
}

impl Entered {
    #[inline(always)]
    pub(crate) fn bay(self) -> usize {
        match self.word.bay() {
            Some(bay) => bay,
            None => unreachable!("only a Ready word admits"),
        }
    }
}

#[cfg(all(test, not(peerage_loom)))]
mod tests {
    use super::*;
    use crate::transport::memory::Memory;
    use std::mem::offset_of;

    #[test]
    fn what_every_lease_reads_shares_no_cache_line_with_what_handles_and_transfers_write() {
        let read = [
            offset_of!(Slot<Memory>, word),
            offset_of!(Slot<Memory>, version),
            offset_of!(Slot<Memory>, home),
            offset_of!(Slot<Memory>, gates),
            offset_of!(Slot<Memory>, process),
        ];
        assert_eq!(read.map(|field| field / 128), [0; 5]);
        for written in [
            offset_of!(Slot<Memory>, link),
            offset_of!(Slot<Memory>, references),
            offset_of!(Slot<Memory>, in_flight),
            offset_of!(Slot<Memory>, grants),
            offset_of!(Slot<Memory>, slow),
        ] {
            assert!(written > offset_of!(Slot<Memory>, bays), "it would stop every sender");
        }
    }
}
