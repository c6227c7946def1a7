//! The end of a driver by a panic, which is a bug of this crate: nothing moves any more, so whoever waits is told, and whoever
//! comes to wait.
//!
//! The death is marked first; then a walk takes those who have joined a peer, a removal, the list of shutdowns or that of
//! probes, and who waits for the deadline of a transfer or of a cancel.
//! Who joins later looks at the mark after the joining.

use crate::cancel::Cancelled;
use crate::error::ReadyError;
use crate::in_flight::Due;
use crate::probe::ProbeRequest;
use crate::removal::Removed;
use crate::shared::Shared;
use crate::shutdown::{self, ShutdownRequest};
use crate::slow::locked;
use crate::sync::{Ordering, fence};
use crate::transfer::Outcome;
use crate::transport::{Liveness, Transport};
use std::sync::Arc;

/// Nothing moves any more: whoever waits is told, with whom the driver had waiting already. Who comes later asks
/// [`Shared::driver_died`].
pub(crate) fn tell_who_waits<T: Transport>(
    shared: &Arc<Shared<T>>,
    shutdowns: Vec<ShutdownRequest>,
    probes: Vec<ProbeRequest>,
) {
    shared.mark_driver_dead();
    for slot in shared.slab.lives() {
        let waiting = locked(&slot, |lane| {
            let peer = lane.slow.name.clone();
            lane.end_attempt(Err(ReadyError::DriverDied { peer }));
            lane.slow.removal.as_mut().map(|removal| std::mem::take(&mut removal.waiting)).unwrap_or_default()
        });
        for (_, cell) in waiting {
            cell.resolve(Removed::DriverDied);
        }
        for due in slot.in_flight.take_timers() {
            let (Due::Transfer(transfer) | Due::Cancel(transfer, _)) = &due;
            transfer.end(Outcome::Unknown);
            if let Due::Cancel(_, cell) = due {
                cell.resolve(Cancelled::NotQuiesced);
            }
        }
    }
    let late = std::mem::take(&mut *shared.shutdown.lock());
    for request in shutdowns.into_iter().chain(late) {
        shutdown::submit_report(shared, request.cell, request.deadline);
    }
    let late = std::mem::take(&mut *shared.probes.lock());
    for probe in probes.into_iter().chain(late) {
        probe.cell.resolve(Liveness::Unknown);
    }
}

impl<T: Transport> Shared<T> {
    /// Before its waiters are told.
    pub(crate) fn mark_driver_dead(&self) {
        // ord! Release: the fence below orders it; by itself, for who joined nothing, it publishes nothing, and Relaxed would do.
        self.driver_died.store(true, Ordering::Release);
        // ord! SeqCst fence between the mark and the walk over the peers; an insert begins a life, and who joins it fences
        //      and looks at the mark: the walk comes upon the life, or the joiner sees the mark. Two locations, so no pair of
        //      acquire and release does.
        //      model: death::who_inserts_a_peer_and_waits_for_it_is_told   fails if: no-fence-at-the-death
        fence(Ordering::SeqCst);
    }

    /// Whether the driver died, for who has just joined what only the driver ends: its end has seen the joiner, or the
    /// joiner is told here.
    pub(crate) fn driver_died(&self) -> bool {
        // ord! SeqCst fence between the joining and the look: see `mark_driver_dead`. Where a peer, the list of shutdowns or
        //      that of probes was joined before, its mutex does the same.
        //      model: death::who_inserts_a_peer_and_waits_for_it_is_told   fails if: no-fence-after-the-joining
        fence(Ordering::SeqCst);
        self.is_driver_dead()
    }

    /// The same for who joined nothing: an answer of a moment.
    pub(crate) fn is_driver_dead(&self) -> bool {
        // ord! Acquire is more than it needs: nothing is read on the strength of it. Who joined something fences before.
        self.driver_died.load(Ordering::Acquire)
    }
}
