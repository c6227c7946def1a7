//! The end of a table: stop admitting, drain or quarantine, close, take registrations back, say what was left.
//!
//! `begin` stops admission and starts every peer's removal; the driver waits until none is live or the deadline passes;
//! `submit_report` then ends the transport and takes back, on an ending thread, each registration that nothing uses any more. If the native side
//! hangs there, the driver answers in its place. What is still in use is neither disconnected nor deregistered, it is
//! reported. Every part may run again.

use crate::name::PeerName;
use crate::region::RegionId;
use crate::registration;
use crate::shared::{Shared, ShutdownRequest};
use crate::slow::locked;
use crate::state::Phase;
use crate::sync::{Ordering, came_through};
use crate::table::ShutdownReport;
use crate::transport::{CloseReason, Transport};
use crate::wait::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the transport of a table that was dropped has to say goodbye.
const UNASKED: Duration = Duration::from_secs(1);

/// Ends the names, revokes what is lent, starts every removal. Waits for nothing but slots' mutexes, which nobody holds
/// for long.
pub(crate) fn begin<T: Transport>(shared: &Shared<T>) {
    for slot in shared.names.shut_down() {
        let _ = locked(&slot, |lane| lane.begin_removal(CloseReason::Shutdown, None));
    }
    let lent: Vec<_> = shared.lent.lock().values().cloned().collect();
    lent.iter().for_each(|grant| grant.revoke());
}

/// The last handle of the table is gone: the same, without anybody who waits, and without blocking who dropped it.
pub(crate) fn abandon<T: Transport>(shared: &Arc<Shared<T>>) {
    let request = ShutdownRequest { deadline: None, cell: Arc::new(Cell::new()), submitted: None };
    let home = shared.clone();
    shared.end_later(Box::new(move || {
        begin(&home);
        home.shutdown.lock().push(request);
        home.abandoned.store(true, Ordering::Release);
        home.queue.wake();
    }));
}

/// Ends one shutdown on an ending thread.
pub(crate) fn submit_report<T: Transport>(
    shared: &Arc<Shared<T>>,
    cell: Arc<Cell<ShutdownReport>>,
    deadline: Option<Instant>,
) {
    let home = shared.clone();
    // Nobody waits for the end of a table that was dropped.
    let deadline = deadline.unwrap_or_else(|| shared.clock.now() + UNASKED);
    shared.end_later(Box::new(move || {
        came_through(|| home.transport.end(deadline));
        registration::deregister_all(&home);
        cell.resolve(report(&home));
    }));
}

/// What is left, now. Waits for nothing.
pub(crate) fn report<T: Transport>(shared: &Shared<T>) -> ShutdownReport {
    let mut report = ShutdownReport::default();
    for slot in shared.slab.lives() {
        let Some(name) = slot.try_name().filter(|_| slot.word().phase() != Phase::Removed) else { continue };
        let leases: u64 = (0..2).map(|bay| slot.gates().users(bay)).sum();
        let transfers: u64 = (0..2).map(|bay| slot.bay(bay).transfers()).sum();
        let some = |count: u64| (count > 0).then(|| (name.clone(), count));
        report.leaked_leases.extend(some(leases));
        report.quarantined.extend(some(transfers));
        report.stuck_connects.extend(slot.connecting.load(Ordering::Relaxed).then(|| name.clone()));
    }
    let [.., leaked] = shared.counters.read();
    report.leaked_connections = leaked;
    report.still_registered = shared.registered.load().keys().copied().collect::<Vec<RegionId>>();
    report.leaked_leases.sort_by(by_name);
    report.quarantined.sort_by(by_name);
    report
}

fn by_name(a: &(PeerName, u64), b: &(PeerName, u64)) -> std::cmp::Ordering {
    a.0.cmp(&b.0)
}
