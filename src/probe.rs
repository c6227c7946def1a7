//! Asking a peer whether it is alive: for a caller, and for heartbeats.

use crate::error::WouldDeadlock;
use crate::gate::stripe_of_thread;
use crate::lease::Lease;
use crate::peer::Peer;
use crate::shared::Shared;
use crate::slot::SlotRef;
use crate::state::Generation;
use crate::sync::caught;
use crate::transport::{Capabilities, Liveness, ProbeContext, Transport};
use crate::wait::{AfterFork, Cell, Pending};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Instant;

impl<T: Transport> Peer<T> {
    /// Asks the peer whether it is alive, on a probing thread and inside the current generation, which stays open as long as
    /// the native call takes. Changes nothing and connects nothing: the caller decides whether to
    /// [`report`](Self::report). Resolves at `deadline` (by the table's clock) at the latest, with `Dead` if the peer was asked and has not
    /// answered; at once with `Unknown` if it is not Ready, if the transport can't probe, if `max_stuck` probes run
    /// already, or in a forked child.
    pub fn probe(&self, deadline: Instant) -> Probe {
        let cell = Arc::new(Cell::new());
        let home = self.slot().home();
        let is_ready = self.slot().word().bay().is_some() && self.slot().is_here();
        let can = is_ready && home.capabilities.contains(Capabilities::PROBE);
        if !can || !home.probe_begins() {
            cell.resolve(Liveness::Unknown);
        } else {
            let (peer, answer, job) = (self.clone(), cell.clone(), home.next_job());
            home.probes.lock().push(ProbeRequest { deadline, job, cell: cell.clone() });
            // Looked at after the push: either the driver's end has seen the request, or this sees that it died.
            if home.driver_died() {
                cell.resolve(Liveness::Unknown);
            }
            let job_of_a_prober = move || {
                if answer.peek().is_none() {
                    answer.resolve(ask(peer.slot(), |_| Some(deadline)));
                }
                peer.slot().home().probe_ended();
            };
            home.probers.submit(job, Box::new(job_of_a_prober));
            home.queue.wake();
        }
        Probe(Pending::new(cell))
    }
}

/// A future of a probe's answer.
#[derive(Debug)]
pub struct Probe(Pending<Liveness>);

impl Probe {
    /// Blocks this thread for the answer.
    ///
    /// # Errors
    /// [`WouldDeadlock`] on a thread of a table.
    pub fn wait(self) -> Result<Liveness, WouldDeadlock> {
        self.0.wait()
    }
}

impl Future for Probe {
    type Output = Liveness;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Liveness> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl AfterFork for Liveness {
    fn after_fork() -> Self {
        Liveness::Unknown
    }
}

/// Somebody waits for a peer's answer.
pub(crate) struct ProbeRequest {
    pub(crate) deadline: Instant,
    pub(crate) job: u64,
    pub(crate) cell: Arc<Cell<Liveness>>,
}

/// Asks whoever is connected now, until when `until` says, given its generation; not at all if that says nothing. Blocks as
/// long as the native call does, inside a lease. Asks for no connect.
pub(crate) fn ask<T: Transport>(slot: &SlotRef<T>, until: impl FnOnce(Generation) -> Option<Instant>) -> Liveness {
    let Ok(entered) = slot.enter_to_probe(stripe_of_thread()) else { return Liveness::Unknown };
    let lease = Lease::of(slot, entered);
    let generation = lease.generation();
    let Some(deadline) = until(generation) else { return Liveness::Unknown };
    let cx = ProbeContext { name: slot.name(), generation, deadline };
    let transport = &slot.home().transport;
    caught(|| transport.probe(&cx, lease.connection())).unwrap_or(Liveness::Unknown)
}

impl<T: Transport> Shared<T> {
    /// Whether one more probe may run; if so it does, until [`probe_ended`](Self::probe_ended).
    pub(crate) fn probe_begins(&self) -> bool {
        let fits = |running: usize| (running < self.config.max_stuck.max(1)).then(|| running + 1);
        // ord! AcqRel and Acquire are more than the bound needs, which any order of read-modify-writes keeps. It publishes
        //      nothing: an answer goes through its cell.
        self.probes_running.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).is_ok()
    }

    pub(crate) fn probe_ended(&self) {
        self.probes_running.fetch_sub(1, Ordering::AcqRel);
    }
}
