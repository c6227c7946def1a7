//! The right to use one generation's connection.

use crate::error::NotReady;
use crate::gate::stripe_of_thread;
use crate::name::{PeerId, PeerName};
use crate::note::Note;
use crate::slot::{Entered, Slot, SlotRef};
use crate::state::{Generation, Word};
use crate::transport::{Reported, Transport};
use std::error::Error;
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;

/// The right to use one generation's connection, and what keeps that connection open. It may cross `.await` and threads and
/// may be held as long as needed: a report or a removal stops new leases at once and closes only after the last one is
/// dropped. Dereferences to the connection, for transports whose data path is the user's own.
///
/// Give a failed lease back before you wait for the peer to be ready again: where the transport allows one connection per
/// peer, the reconnect waits for it.
pub struct Lease<T: Transport> {
    slot: NonNull<Slot<T>>,
    entered: Entered,
}

// SAFETY: a lease is a count in a gate of a `Send + Sync` slot; leaving is an atomic on the stripe it stores, from any
// thread; the connection it gives out is `Sync`.
unsafe impl<T: Transport> Send for Lease<T> {}
// SAFETY: as above; `&Lease` gives out only `&Connection` and atomics.
unsafe impl<T: Transport> Sync for Lease<T> {}

impl<T: Transport> Lease<T> {
    #[inline(always)]
    pub(crate) fn enter(slot: &SlotRef<T>) -> Result<Self, NotReady> {
        match slot.enter(stripe_of_thread()) {
            Ok(entered) => Ok(Lease { slot: slot.as_ptr(), entered }),
            Err(word) => Err(slot.refuse(word)),
        }
    }

    /// A lease of a slot that was entered.
    #[inline(always)]
    pub(crate) fn of(slot: &Slot<T>, entered: Entered) -> Self {
        Lease { slot: NonNull::from(slot), entered }
    }

    /// The connection. It stays open while the lease lives.
    #[inline]
    pub fn connection(&self) -> &T::Connection {
        // SAFETY: this lease entered the bay, found the word unchanged, and leaves when it is dropped.
        unsafe { self.slot().bay(self.bay()).connection() }
    }

    /// The generation it is a lease of.
    #[inline]
    pub fn generation(&self) -> Generation {
        self.entered.word.generation()
    }

    /// The peer's id.
    pub fn id(&self) -> PeerId {
        self.slot().id()
    }

    /// The peer's name.
    pub fn name(&self) -> PeerName {
        self.slot().name()
    }

    /// Whether its generation is still the current one. A hint: it may change at once.
    pub fn is_current(&self) -> bool {
        self.overtaken_by().is_none()
    }

    /// Reports this lease's generation as broken; see [`Peer::report`](crate::Peer::report). Never waits.
    /// Whatever the error is, the generation fails: not for busy or local errors.
    pub fn report(&self, error: &dyn Error) -> Reported {
        let generation = self.generation();
        let note = || Note::of_text(generation, error.to_string().into());
        self.slot().home().report(self.slot(), generation, note)
    }

    /// Where the peer stands, if this lease's generation is not the current one any more.
    pub(crate) fn overtaken_by(&self) -> Option<Word> {
        Some(self.slot().word()).filter(|now| *now != self.entered.word)
    }

    /// What it was admitted by.
    pub(crate) fn word(&self) -> Word {
        self.entered.word
    }

    #[inline(always)]
    pub(crate) fn slot(&self) -> &Slot<T> {
        // SAFETY: while this lease is inside, its bay holds a counted reference of the slot.
        unsafe { self.slot.as_ref() }
    }

    #[inline(always)]
    pub(crate) fn bay(&self) -> usize {
        self.entered.bay()
    }
}

impl<T: Transport> Deref for Lease<T> {
    type Target = T::Connection;
    fn deref(&self) -> &T::Connection {
        self.connection()
    }
}

impl<T: Transport> Drop for Lease<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this lease entered this slot and was answered `entered`; it leaves once, here, and uses nothing after.
        unsafe { Slot::leave(self.slot, self.entered) };
    }
}

impl<T: Transport> fmt::Debug for Lease<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("peer", &self.id()).field("admitted", &self.entered.word).finish_non_exhaustive()
    }
}
