//! The end of a table: stop admitting, drain or quarantine, close, take registrations back, say what was left.
//!
//! `begin` stops admission and starts every peer's removal; the driver waits until none is live or the deadline passes;
//! `submit_report` then ends the transport and takes back, on an ending thread, each registration that nothing uses any more. If the native side
//! hangs there, the driver answers in its place. What is still in use is neither disconnected nor deregistered, it is
//! reported. Every part may run again.

use crate::error::WouldDeadlock;
use crate::name::PeerName;
use crate::pool::Job;
use crate::region::RegionId;
use crate::registration;
use crate::shared::Shared;
use crate::slow::locked;
use crate::state::Phase;
use crate::sync::{Ordering, came_through};
use crate::table::PeerTable;
use crate::transport::{CloseReason, Transport};
use crate::wait::{AfterFork, Cell, Pending};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// How long the transport of a table that was dropped has to say goodbye.
const UNASKED: Duration = Duration::from_secs(1);

impl<T: Transport> PeerTable<T> {
    /// Ends the table: no insert, lease or grant from here on; leases and transfers may finish until `deadline`;
    /// connections are closed, then regions that nothing uses are deregistered. The future resolves by then, by the table's
    /// clock (50 ms later if the native side hangs while it deregisters), and says what was left. May be called again, by
    /// anybody; dropping the future cancels nothing. Takes the mutex of each peer in turn; never waits for a native call.
    pub fn shutdown(&self, deadline: Instant) -> Shutdown {
        let shared = self.shared();
        let cell = Arc::new(Cell::new());
        if !shared.is_here() {
            cell.resolve(ShutdownReport::after_fork());
            return Shutdown(Pending::new(cell));
        }
        begin(shared);
        let request = ShutdownRequest { deadline: Some(deadline), cell: cell.clone(), submitted: None };
        shared.shutdown.lock().push(request);
        shared.queue.wake();
        // Looked at after the push: either the driver's end has seen the request, or this sees that it died.
        if shared.driver_died() {
            submit_report(shared, cell.clone(), Some(deadline));
        }
        Shutdown(Pending::new(cell))
    }
}

/// A future of what a shutdown could not take back.
#[derive(Debug)]
pub struct Shutdown(Pending<ShutdownReport>);

impl Shutdown {
    /// Blocks this thread until the shutdown's deadline at the latest, or 50 ms longer where a native deregistration hangs.
    ///
    /// # Errors
    /// [`WouldDeadlock`] on a thread of a table; the shutdown goes on.
    pub fn wait(self) -> Result<ShutdownReport, WouldDeadlock> {
        self.0.wait()
    }
}

impl Future for Shutdown {
    type Output = ShutdownReport;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<ShutdownReport> {
        Pin::new(&mut self.0).poll(cx)
    }
}

/// What a shutdown could not take back.
#[non_exhaustive]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShutdownReport {
    /// Peers with leases that were not given back, and how many.
    pub leaked_leases: Vec<(PeerName, u64)>,
    /// Peers whose native connect has not returned.
    pub stuck_connects: Vec<PeerName>,
    /// Connections, and stages of connections, that the native side did not take back, since the table was built.
    pub leaked_connections: u64,
    /// Peers with transfers that are not quiescent, and how many.
    pub quarantined: Vec<(PeerName, u64)>,
    /// Regions that are still in use, or that the transport did not take back.
    pub still_registered: Vec<RegionId>,
    /// This is a forked child, the table is the parent's: [`UsedAfterFork`](crate::UsedAfterFork). Nothing was ended.
    pub used_after_fork: bool,
}

impl AfterFork for ShutdownReport {
    fn after_fork() -> Self {
        ShutdownReport { used_after_fork: true, ..ShutdownReport::default() }
    }
}

impl ShutdownReport {
    /// Whether nothing was left.
    pub fn is_clean(&self) -> bool {
        *self == ShutdownReport::default()
    }
}

/// Somebody waits for the table to end.
pub(crate) struct ShutdownRequest {
    /// `None`: when nothing is left.
    pub(crate) deadline: Option<Instant>,
    pub(crate) cell: Arc<Cell<ShutdownReport>>,
    /// When the job that takes registrations back and reports was submitted.
    pub(crate) submitted: Option<Instant>,
}

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
        // ord! Release: who sees the table abandoned sees its request in the list. Pairs with the Acquire in
        //      `Driver::has_ended`, which looks at the list after this; the list's mutex orders the two as well, so Relaxed
        //      would do, and no mutant of it fails a model.
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
        // A moment's answer: the flag is written under the slot's mutex and publishes nothing.
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

impl<T: Transport> Shared<T> {
    /// Hands a job to the thread that ends tables.
    pub(crate) fn end_later(&self, job: Job) {
        if !self.enders.submit(self.next_job(), job) {
            self.queue.wake();
        }
    }
}
