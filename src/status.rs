//! What is seen of a table without a lock: one line for each peer, and the table's counters.

use crate::name::{PeerId, PeerName};
use crate::peer::Peer;
use crate::quarantine;
use crate::record::Record;
use crate::slot::{Slot, SlotRef};
use crate::state::{Generation, Phase};
use crate::table::PeerTable;
use crate::transport::Transport;
use std::sync::atomic::Ordering;
use std::time::Instant;

impl<T: Transport> PeerTable<T> {
    /// Every peer's state, those being removed included, and those whose insert has not returned yet, from any thread and
    /// without waiting for any of them, also during a hang. Each peer's phase, generation and record are of one moment, its
    /// counts of the next; the list is not of one moment.
    pub fn snapshot(&self) -> Snapshot {
        let shared = self.shared();
        let [elections, elections_without_connect, reports, stale_reports, leaked] = shared.counters.read();
        let slots = shared.slab.lives();
        let kept: quarantine::Counts = shared.slab.places().map(|slot| slot.in_flight.quarantine.counts()).sum();
        Snapshot {
            peers: slots.filter_map(|slot| PeerStatus::of(&slot)).collect(),
            stuck_connects: shared.connects.stuck() as u64,
            stuck_closes: shared.stuck_closes() as u64,
            quarantined: kept.transfers,
            quarantined_grants: kept.grants,
            quarantined_bytes: kept.bytes,
            leaked,
            elections,
            elections_without_connect,
            reports,
            stale_reports,
        }
    }
}

impl<T: Transport> Peer<T> {
    /// The peer's line of [`PeerTable::snapshot`](crate::PeerTable::snapshot). Without a lock.
    pub fn status(&self) -> PeerStatus {
        PeerStatus::of_slot(self.slot(), self.name().clone())
    }
}

/// Every peer's state, and the table's counters since it was built.
#[non_exhaustive]
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// One entry per peer that is not Removed.
    pub peers: Vec<PeerStatus>,
    /// Native connects that run beyond their attempt's deadline, now.
    pub stuck_connects: u64,
    /// Native closes that have taken longer than `close_timeout` and go on, now.
    pub stuck_closes: u64,
    /// Transfers that ended for their callers and still hold their pages, of all peers, also those that are removed.
    pub quarantined: u64,
    /// Grants that were revoked and are not quiesced, likewise.
    pub quarantined_grants: u64,
    /// Bytes of both.
    pub quarantined_bytes: u64,
    /// Connections, and stages of connections, that the native side did not take back, since the table was built.
    pub leaked: u64,
    /// Elections won: each drew one generation for one attempt.
    pub elections: u64,
    /// Elections whose attempt ended before its native connect was called.
    pub elections_without_connect: u64,
    /// Reports that failed the generation they named.
    pub reports: u64,
    /// Reports that named a generation which was not current.
    pub stale_reports: u64,
}

/// One peer's line of a snapshot.
#[non_exhaustive]
#[derive(Debug, Clone)]
pub struct PeerStatus {
    /// Its name.
    pub name: PeerName,
    /// Its id.
    pub id: PeerId,
    /// Where it stands.
    pub phase: Phase,
    /// At which generation.
    pub generation: Generation,
    /// Whether it is Ready and has not answered for a heartbeat's interval, or a transfer of this generation is stalled.
    pub suspect: bool,
    /// The record of exactly this phase and generation; `None` while it changes.
    pub record: Option<Record>,
    /// Leases of the current generation.
    pub leases: u64,
    /// Leases of an older generation that have not been given back.
    pub draining: u64,
    /// Transfers in flight.
    pub transfers: u64,
    /// Transfers that ended for their caller and still hold their pages.
    pub quarantined: u64,
    /// Of both, those of which no byte moves.
    pub stalled: u64,
    /// Grants that are not quiesced.
    pub grants: u64,
    /// Of these, those that were revoked.
    pub quarantined_grants: u64,
    /// Bytes of the transfers and grants that are in quarantine.
    pub quarantined_bytes: u64,
    /// Whether a native connect, or the close of one that came too late, has not returned.
    pub connecting: bool,
    /// When this was seen, by the table's clock.
    pub at: Instant,
}

impl PeerStatus {
    /// `None` if the slot is Removed.
    pub(crate) fn of<T: Transport>(slot: &SlotRef<T>) -> Option<Self> {
        let name = slot.try_name()?;
        let status = Self::of_slot(slot, name);
        (status.phase != Phase::Removed).then_some(status)
    }

    fn of_slot<T: Transport>(slot: &Slot<T>, name: PeerName) -> Self {
        let word = slot.word();
        let users = |bay: usize| slot.gates().users(bay);
        let all = users(0) + users(1);
        let leases = word.bay().map_or(0, users);
        let (transfers, quarantined) = slot.in_flight.counts();
        let kept = slot.in_flight.quarantine.counts();
        PeerStatus {
            name,
            id: slot.id(),
            phase: word.phase(),
            generation: word.generation(),
            suspect: slot.is_suspect(),
            record: slot.record_of(word),
            leases,
            draining: all.saturating_sub(leases),
            transfers: transfers as u64,
            quarantined: quarantined as u64,
            stalled: (0..2).map(|bay| slot.in_flight.stalled(bay) as u64).sum(),
            grants: slot.grants.load(Ordering::Relaxed),
            quarantined_grants: kept.grants,
            quarantined_bytes: kept.bytes,
            connecting: slot.connecting.load(Ordering::Relaxed),
            at: slot.home().clock.now(),
        }
    }
}
