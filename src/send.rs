//! What is sent over a lease: messages and transfers. Each call answers what its transport said, and whether anything may have
//! been sent; an error of the peer reports the lease's generation and no other.

use crate::error::{NotifyError, PostError, Sent};
use crate::held::Held;
use crate::lease::Lease;
use crate::note::Note;
use crate::queue::LOOK;
use crate::region::{RegionId, Slice};
use crate::registration::Registration;
use crate::slot::SlotRef;
use crate::state::Word;
use crate::sync::{AtomicUsize, Ordering, caught, fence};
use crate::transfer::{Outcome, Post, RemoteSlice, Transfer, TransferKind};
use crate::transport::{DataPlane, ErrorClass, TransportError};
use crate::visit::At;
use std::sync::Arc;
use std::time::{Duration, Instant};

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
        if let Some(now) = self.overtaken_by() {
            return Err(self.not_notified(Refused::Stale(now)));
        }
        let transport = &self.slot().home().transport;
        let send = || match transport.max_notification() {
            max if message.len() > max => Err(max),
            _ => Ok(transport.notify(self.connection(), message)),
        };
        match caught(send) {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Err(max)) => Err(NotifyError::TooLong { peer: self.name(), len: message.len(), max }),
            Ok(Ok(Err(error))) => Err(self.not_notified(self.judge(error))),
            Err(panic) => Err(self.not_notified(self.panicked(panic))),
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
        if let Some(now) = self.overtaken_by() {
            return Err(self.not_posted(Refused::Stale(now)));
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
        // Looked at after the timer is set: either the driver's end has seen it, or this sees that it died.
        if deadline.is_some() && home.driver_died() {
            transfer.core().end(Outcome::Unknown);
        }
        match caught(|| home.transport.post(self.connection(), post)) {
            Ok(Ok(())) => Ok(transfer),
            Ok(Err(error)) => {
                transfer.core().quiesce(); // nothing was sent, so nothing touches the pages
                Err(self.not_posted(self.judge(error)))
            }
            Err(panic) => Err(self.not_posted(self.panicked(panic))),
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
        let at = At { slot: SlotRef::of(slot), word: self.word(), bay: self.bay() };
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

    /// What a transport's error means for this lease; one of the peer reports the generation.
    fn judge(&self, error: T::Error) -> Refused<T::Error> {
        let sent = match error.class() {
            ErrorClass::Busy { retry_after } => return Refused::Busy(retry_after),
            ErrorClass::Local => return Refused::Local(error),
            ErrorClass::OutcomeUnknown => Sent::Maybe,
            ErrorClass::PeerBroken | ErrorClass::Incompatible => Sent::No,
        };
        self.report_as(|| Note::of_error(self.generation(), &error));
        Refused::Broken(error, sent)
    }

    /// A transport that panicked may have sent anything: the generation is reported.
    fn panicked(&self, text: Arc<str>) -> Refused<T::Error> {
        self.report_as(|| Note::of_text(self.generation(), text.clone()));
        Refused::Panicked(text)
    }

    fn report_as(&self, note: impl FnOnce() -> Note) {
        let _ = self.slot().home().report(self.slot(), self.generation(), note);
    }

    fn not_notified(&self, refused: Refused<T::Error>) -> NotifyError<T::Error> {
        let (peer, generation) = (self.name(), self.generation());
        match refused {
            Refused::Stale(at) => {
                NotifyError::StaleGeneration { peer, have: generation, now: at.generation(), phase: at.phase() }
            }
            Refused::Busy(retry_after) => NotifyError::Busy { peer, retry_after },
            Refused::Local(source) => NotifyError::Local { peer, source },
            Refused::Broken(source, sent) => NotifyError::PeerBroken { peer, generation, source, sent },
            Refused::Panicked(message) => NotifyError::Panicked { peer, message },
        }
    }

    fn not_posted(&self, refused: Refused<T::Error>) -> PostError<T::Error> {
        let (peer, generation) = (self.name(), self.generation());
        match refused {
            Refused::Stale(at) => {
                PostError::StaleGeneration { peer, have: generation, now: at.generation(), phase: at.phase() }
            }
            Refused::Busy(retry_after) => PostError::Busy { peer, retry_after },
            Refused::Local(source) => PostError::Local { peer, source },
            Refused::Broken(source, sent) => PostError::PeerBroken { peer, generation, source, sent },
            Refused::Panicked(message) => PostError::Panicked { peer, message },
        }
    }
}

/// Why a call on the connection came to nothing, whichever it was.
enum Refused<E> {
    /// Where the peer stands instead.
    Stale(Word),
    Busy(Duration),
    Local(E),
    Broken(E, Sent),
    Panicked(Arc<str>),
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
