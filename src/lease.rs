//! The right to use one generation's connection.

use crate::cancel::Cancelled;
use crate::error::{NotReady, NotifyError, PostError, Sent};
use crate::gate::stripe_of_thread;
use crate::name::{PeerId, PeerName};
use crate::note::Note;
use crate::queue::LOOK;
use crate::region::{RegionId, Slice};
use crate::registration::Registration;
use crate::slot::{Entered, Slot, SlotRef};
use crate::slow::locked;
use crate::state::{Generation, Word};
use crate::sync::{AtomicUsize, Ordering, caught, fence};
use crate::transfer::{self, Post, Reach, RemoteSlice, Transfer, TransferHome, TransferId, TransferKind};
use crate::transport::{DataPlane, ErrorClass, Reported, Transport, TransportError};
use crate::wait::Cell;
use std::error::Error;
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Instant;

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
        self.slot().word() == self.entered.word
    }

    /// Reports this lease's generation as broken; see [`Peer::report`](crate::Peer::report). Never waits.
    /// Whatever the error is, the generation fails: not for busy or local errors.
    pub fn report(&self, error: &dyn Error) -> Reported {
        let generation = self.generation();
        let note = || Note::of_text(generation, error.to_string().into());
        self.slot().home().report(self.slot(), generation, note)
    }

    fn report_native(&self, error: &T::Error) {
        let _ = self.slot().home().report(self.slot(), self.generation(), || Note::of_error(self.generation(), error));
    }

    #[inline(always)]
    fn slot(&self) -> &Slot<T> {
        // SAFETY: while this lease is inside, its bay holds a counted reference of the slot.
        unsafe { self.slot.as_ref() }
    }

    #[inline(always)]
    fn bay(&self) -> usize {
        self.entered.bay()
    }
}

impl<T: DataPlane> Lease<T> {
    /// Sends one message: at most once, in order per connection. `Ok` means accepted, not delivered. Never waits. An error
    /// of the peer reports exactly this generation by itself.
    ///
    /// # Errors
    /// [`NotifyError`], which says whether anything may have been sent.
    pub fn notify(&self, message: &[u8]) -> Result<(), NotifyError<T::Error>> {
        if !self.slot().is_here() {
            return Err(NotifyError::UsedAfterFork { peer: self.name() });
        }
        let transport = &self.slot().home().transport;
        let now = self.slot().word();
        if now != self.entered.word {
            return Err(NotifyError::StaleGeneration {
                peer: self.name(),
                have: self.generation(),
                now: now.generation(),
                phase: now.phase(),
            });
        }
        let send = || match transport.max_notification() {
            max if message.len() > max => Err(max),
            _ => Ok(transport.notify(self.connection(), message)),
        };
        match caught(send) {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Err(max)) => Err(NotifyError::TooLong { peer: self.name(), len: message.len(), max }),
            Ok(Ok(Err(source))) => Err(match self.judge(&source) {
                Verdict::Busy(retry_after) => NotifyError::Busy { peer: self.name(), retry_after },
                Verdict::Local => NotifyError::Local { peer: self.name(), source },
                Verdict::Broken(sent) => {
                    NotifyError::PeerBroken { peer: self.name(), generation: self.generation(), source, sent }
                }
            }),
            Err(panic) => Err(NotifyError::Panicked { peer: self.name(), message: self.panicked(panic) }),
        }
    }

    /// Starts a write of `local` into the peer's page `remote`. The connection stays open until the transfer is quiescent,
    /// also if this lease is dropped. Never waits.
    ///
    /// # Errors
    /// [`PostError`]; nothing was sent unless the variant says so.
    pub fn write(&self, local: &Slice, remote: RemoteSlice) -> Result<Transfer, PostError<T::Error>> {
        self.post(TransferKind::Write, local, remote, None)
    }

    /// As [`write`](Self::write), but one that is not over at `deadline` (by the table's clock) is given up: it ends as
    /// [`TransferError::Deadline`](crate::TransferError::Deadline), which says whether anything may have been sent, the peer is
    /// told, and its pages are in quarantine until [`Transfer::is_quiescent`]. May wake the driver.
    ///
    /// # Errors
    /// [`PostError`]; nothing was sent unless the variant says so.
    pub fn write_until(
        &self,
        local: &Slice,
        remote: RemoteSlice,
        deadline: Instant,
    ) -> Result<Transfer, PostError<T::Error>> {
        self.post(TransferKind::Write, local, remote, Some(deadline))
    }

    /// Starts a read of the peer's page `remote` into `local`; otherwise as [`write`](Self::write).
    ///
    /// # Errors
    /// [`PostError`]; nothing was sent unless the variant says so.
    pub fn read(&self, local: &Slice, remote: RemoteSlice) -> Result<Transfer, PostError<T::Error>> {
        self.post(TransferKind::Read, local, remote, None)
    }

    /// As [`read`](Self::read), with a deadline as of [`write_until`](Self::write_until).
    ///
    /// # Errors
    /// [`PostError`]; nothing was sent unless the variant says so.
    pub fn read_until(
        &self,
        local: &Slice,
        remote: RemoteSlice,
        deadline: Instant,
    ) -> Result<Transfer, PostError<T::Error>> {
        self.post(TransferKind::Read, local, remote, Some(deadline))
    }

    fn post(
        &self,
        kind: TransferKind,
        local: &Slice,
        remote: RemoteSlice,
        deadline: Option<Instant>,
    ) -> Result<Transfer, PostError<T::Error>> {
        let (slot, home) = (self.slot(), self.slot().home());
        if !slot.is_here() {
            return Err(PostError::UsedAfterFork { peer: self.name() });
        }
        if local.len() as u64 != remote.len {
            let (local, remote) = (local.len() as u64, remote.len);
            return Err(PostError::Length { peer: self.name(), local, remote });
        }
        let now = slot.word();
        if now != self.entered.word {
            let (have, phase, now) = (self.generation(), now.phase(), now.generation());
            return Err(PostError::StaleGeneration { peer: self.name(), have, now, phase });
        }
        let region = local.region().id();
        let Some(of_region) = home.registered.look().get(&region).map(|known| known.transfers.clone()) else {
            return Err(PostError::NotRegistered { peer: self.name(), region });
        };
        let limit = home.config.max_quarantined_bytes;
        if let Some(bytes) = slot.in_flight.quarantine.is_full(limit) {
            return Err(PostError::Quarantined { peer: self.name(), bytes, limit });
        }
        let held = self.hold(region, of_region, local.len())?;
        let (post, transfer) = Post::new(kind, local.clone(), remote, Some(Box::new(held)), home.clock.clone());
        if slot.in_flight.add(self.bay(), transfer.core(), deadline, home.config.stalled_after.is_some()) {
            slot.tell(LOOK);
        }
        match caught(|| home.transport.post(self.connection(), post)) {
            Ok(Ok(())) => Ok(transfer),
            Ok(Err(source)) => {
                transfer.core().quiesce(); // nothing was sent, so nothing touches the pages
                Err(match self.judge(&source) {
                    Verdict::Busy(retry_after) => PostError::Busy { peer: self.name(), retry_after },
                    Verdict::Local => PostError::Local { peer: self.name(), source },
                    Verdict::Broken(sent) => {
                        PostError::PeerBroken { peer: self.name(), generation: self.generation(), source, sent }
                    }
                })
            }
            Err(panic) => Err(PostError::Panicked { peer: self.name(), message: self.panicked(panic) }),
        }
    }

    /// Counts a transfer in, at the peer and at the registration that was found under this count.
    fn hold(
        &self,
        region: RegionId,
        of_region: Arc<AtomicUsize>,
        bytes: usize,
    ) -> Result<Held<T>, PostError<T::Error>> {
        let (slot, home) = (self.slot(), self.slot().home());
        let limit = home.config.max_transfers_per_peer;
        let at = At { slot: SlotRef::of(slot), word: self.entered.word, bay: self.bay() };
        let Some(held) = Held::count(at, of_region, bytes, limit) else {
            return Err(PostError::TooManyTransfers { peer: self.name(), limit });
        };
        // ord! SeqCst fence between the count and the list; `registration::unlist` changes the list, fences and looks at the
        //      count: one of the two sees the other. Two locations, so no pair of acquire and release does.
        //      model: registering::a_post_is_refused_or_keeps_its_region   fails if: no-fence-in-post, no-fence-in-unlist
        fence(Ordering::SeqCst);
        // The same registration: a deregistration looks at its own count, not at that of one before.
        let listed = |known: &Registration| Arc::ptr_eq(&known.transfers, &held.of_region);
        if !home.registered.look().get(&region).is_some_and(listed) {
            held.uncount();
            return Err(PostError::NotRegistered { peer: self.name(), region });
        }
        Ok(held)
    }

    /// What an error means for this lease; one of the peer reports the generation.
    fn judge(&self, error: &T::Error) -> Verdict {
        let sent = match error.class() {
            ErrorClass::Busy { retry_after } => return Verdict::Busy(retry_after),
            ErrorClass::Local => return Verdict::Local,
            ErrorClass::OutcomeUnknown => Sent::Maybe,
            ErrorClass::PeerBroken | ErrorClass::Incompatible => Sent::No,
        };
        self.report_native(error);
        Verdict::Broken(sent)
    }

    /// A transport that panicked may have sent anything: the generation is reported.
    fn panicked(&self, text: Arc<str>) -> Arc<str> {
        let generation = self.generation();
        let note = || Note::of_text(generation, text.clone());
        let _ = self.slot().home().report(self.slot(), generation, note);
        text
    }
}

enum Verdict {
    Busy(std::time::Duration),
    Local,
    Broken(Sent),
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

/// The connection a transfer was posted on.
struct At<T: Transport> {
    slot: SlotRef<T>,
    word: Word,
    bay: usize,
}

impl<T: Transport> Clone for At<T> {
    fn clone(&self) -> Self {
        At { slot: self.slot.clone(), word: self.word, bay: self.bay }
    }
}

impl<T: DataPlane> Reach for At<T> {
    fn answer_at(&self, deadline: Instant, transfer: &Arc<transfer::Core>, cell: &Arc<Cell<Cancelled>>) {
        if self.slot.in_flight.answer_at(deadline, transfer, cell) {
            self.slot.tell(LOOK);
        }
        // Looked at after the timer is set: either the driver's end has seen it, or this sees that it died.
        if self.slot.home().driver_died() {
            cell.resolve(Cancelled::NotQuiesced);
        }
    }

    fn cancel(&self, transfer: TransferId) {
        let generation = self.word.generation();
        let Some(_visit) = Visit::begin(self, generation) else { return };
        // SAFETY: the connection of this generation is in the bay: the lane, which takes it out, has agreed to the visit, and
        // waits for its end. It was put in before the transfer was posted.
        let connection = unsafe { self.slot.bay(self.bay).connection() };
        if let Err(text) = caught(|| self.slot.home().transport.cancel(connection, transfer)) {
            let note = || Note::of_text(generation, text);
            let _ = self.slot.home().report(&self.slot, generation, note);
        }
    }
}

/// A call on a connection by somebody who has no lease of it: its lane does not take it out meanwhile.
struct Visit<'a, T: Transport>(&'a At<T>);

impl<'a, T: Transport> Visit<'a, T> {
    /// `None`: the connection is being closed, or is.
    fn begin(at: &'a At<T>, generation: Generation) -> Option<Self> {
        locked(&at.slot, |lane| lane.visit(at.bay, generation)).then(|| Visit(at))
    }
}

impl<T: Transport> Drop for Visit<'_, T> {
    fn drop(&mut self) {
        locked(&self.0.slot, |lane| lane.visit_ends(self.0.bay));
    }
}

/// Where a transfer of a table is counted until it is quiescent.
struct Held<T: Transport> {
    at: At<T>,
    of_region: Arc<AtomicUsize>,
    bytes: usize,
}

impl<T: Transport> Held<T> {
    /// `None`: the peer has as many as it may.
    fn count(at: At<T>, of_region: Arc<AtomicUsize>, bytes: usize, limit: usize) -> Option<Self> {
        if !at.slot.in_flight.count_in(limit) {
            return None;
        }
        at.slot.bay(at.bay).transfer_posted();
        // ord! The fence in `post` orders this addition against the list; by itself it orders nothing, and Relaxed would do.
        //      model: registering::a_post_is_refused_or_keeps_its_region   fails if: no-fence-in-post
        of_region.fetch_add(1, Ordering::AcqRel);
        Some(Held { at, of_region, bytes })
    }

    fn uncount(&self) {
        let At { slot, word, bay } = &self.at;
        slot.in_flight.count_out();
        // ord! Release: the transfer's last touch of its pages comes before a deregistration that reads zero: pairs with the
        //      Acquire in `registration::unlist`, for all who left before too: each subtraction continues their releases. So the
        //      Acquire here is more than it needs.
        //      model: registering::the_last_touch_of_a_page_comes_before_its_deregistration   fails if: relaxed-uncount
        self.of_region.fetch_sub(1, Ordering::AcqRel);
        if slot.bay(*bay).transfer_quiescent() && slot.word() != *word {
            slot.tell(LOOK); // the lane may wait for this
        }
    }
}

impl<T: DataPlane> TransferHome for Held<T> {
    fn quarantined(&self) {
        self.at.slot.in_flight.quarantined(self.bytes);
    }

    fn quiescent(self: Box<Self>, transfer: TransferId, was_quarantined: bool) {
        self.at.slot.in_flight.remove(transfer, was_quarantined.then_some(self.bytes));
        self.uncount();
    }

    fn reach(&self) -> Box<dyn Reach> {
        Box::new(self.at.clone())
    }
}

#[cfg(all(test, not(peerage_loom)))]
mod tests {
    use super::*;
    use crate::region::Region;
    use crate::table::PeerTable;
    use crate::transport::memory::{Fabric, MemoryAddress};
    use std::time::{Duration, Instant};

    #[test]
    fn a_transfer_counted_at_an_earlier_registration_of_its_region_is_refused() {
        let fabric = Fabric::new();
        fabric.node("p");
        let table = PeerTable::builder(fabric.node("here")).build().unwrap();
        let peer = table.insert("p", MemoryAddress::new("p")).unwrap();
        peer.wait_ready(Instant::now() + Duration::from_secs(30)).unwrap();
        let (lease, region) = (peer.lease().unwrap(), Region::zeroed(8));
        let count = || lease.slot().home().registered.look().get(&region.id()).unwrap().transfers.clone();
        table.register(&region).unwrap();
        let earlier = count();
        table.deregister(&region).unwrap();
        table.register(&region).unwrap();
        let refused = lease.hold(region.id(), earlier.clone(), 8);
        assert!(matches!(refused.err(), Some(PostError::NotRegistered { .. })));
        assert_eq!(earlier.load(Ordering::Relaxed), 0);
        let held = lease.hold(region.id(), count(), 8).ok().unwrap();
        assert!(table.deregister(&region).is_err(), "it is in use");
        held.uncount();
        table.deregister(&region).unwrap();
    }
}
