//! The one loop that moves lanes and timers. It makes no call that may block: no connect, disconnect, probe or user's
//! destructor runs here, and it only tries a slot's mutex.

use crate::close;
use crate::lane::{self, Permit, Step};
use crate::name::PeerId;
use crate::pool::mark_table_thread;
use crate::queue::LOOK;
use crate::shared::{ProbeRequest, Shared, ShutdownRequest};
use crate::shutdown;
use crate::slot::SlotRef;
use crate::sync::lock;
use crate::ticket::Ticket;
use crate::transfer::Outcome;
use crate::transport::{Liveness, Transport};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

/// How soon a slot is tried again whose mutex was held, and a thread that the system refused.
const TRY_AGAIN: Duration = Duration::from_millis(1);

/// How long an ending thread has, after a shutdown's deadline, to take back what is not in use.
const ENDING: Duration = Duration::from_millis(50);

pub(crate) struct Driver<T: Transport> {
    shared: Arc<Shared<T>>,
    /// Peers by id, so that a timer keeps no slot alive.
    timers: BinaryHeap<Reverse<(Instant, u64)>>,
    /// Slots whose mutex was held, with the events they were told.
    deferred: Vec<(SlotRef<T>, u32)>,
    /// Slots that want to connect and found no permit, first come first served.
    line: VecDeque<SlotRef<T>>,
    shutdowns: Vec<ShutdownRequest>,
    probes: Vec<ProbeRequest>,
}

impl<T: Transport> Driver<T> {
    pub(crate) fn new(shared: Arc<Shared<T>>) -> Self {
        Driver {
            shared,
            timers: BinaryHeap::new(),
            deferred: Vec::new(),
            line: VecDeque::new(),
            shutdowns: Vec::new(),
            probes: Vec::new(),
        }
    }

    /// Runs until the table is abandoned and nothing of it is left in use.
    pub(crate) fn run(mut self) {
        mark_table_thread();
        let shared = self.shared.clone();
        if catch_unwind(AssertUnwindSafe(|| while self.turn() {})).is_err() {
            shared.driver_died.store(true, Ordering::Release);
            shutdown::driver_died(&shared, std::mem::take(&mut self.shutdowns));
        }
        shared.pools().iter().for_each(|pool| pool.close());
    }

    /// One look at everything; false when the table has ended.
    fn turn(&mut self) -> bool {
        let moved = self.look();
        let limit = self.shared.config.close_timeout;
        let closers = [&self.shared.closers, &self.shared.last_closers];
        let overdue = closers.into_iter().filter_map(|pool| pool.give_up_older_than(limit)).min();
        if moved {
            return true;
        }
        if self.has_ended() {
            return false;
        }
        self.sleep(overdue);
        true
    }

    /// Moves all that can be moved now; answers whether there was anything.
    pub(crate) fn look(&mut self) -> bool {
        let shared = self.shared.clone();
        let mut moved = false;
        for (slot, events) in shared.queue.take() {
            moved = true;
            // SAFETY: the list's counted reference, which `take` passes on.
            self.step(unsafe { SlotRef::from_counted(slot) }, events, false);
        }
        for (slot, events) in std::mem::take(&mut self.deferred) {
            self.step(slot, events, false);
        }
        moved |= self.fire_timers();
        self.serve_line();
        self.serve_shutdowns();
        self.serve_probes();
        moved
    }

    fn step(&mut self, slot: SlotRef<T>, events: u32, from_line: bool) {
        let Some(step) = lane::step(&slot, events, self.permit(from_line), from_line) else {
            self.deferred.push((slot, events));
            return;
        };
        let Step { close, bays, connect, end_transfers, still_busy, wait_for_permit, look_at } = step;
        let shared = &self.shared;
        for to_close in close.into_iter().flatten() {
            close::submit(shared, &slot, to_close);
        }
        drop(bays);
        if let Some(elected) = connect {
            shared.counters.elected();
            shared.connects.begin();
            let ticket = Ticket::new(shared.clone(), slot.clone(), elected);
            shared.connectors.submit(shared.next_job(), Box::new(move || ticket.connect())); // starved: see `sleep`
        }
        for bay in (0..2).filter(|bay| end_transfers[*bay]) {
            slot.in_flight.of_bay(bay).iter().for_each(|transfer| transfer.end(Outcome::Unknown));
        }
        for (cell, outcome) in still_busy {
            cell.resolve(outcome);
        }
        if let Some(at) = look_at {
            self.timers.push(Reverse((at, slot.id().to_bits())));
        }
        if wait_for_permit {
            self.line.push_back(slot);
        }
    }

    fn permit(&self, from_line: bool) -> Permit {
        let (config, connects) = (&self.shared.config, &self.shared.connects);
        let (permits, stuck) = (connects.permits(), connects.stuck());
        if permits >= config.max_concurrent_connects || !from_line && !self.line.is_empty() {
            Permit::Taken
        } else if permits + stuck >= config.max_concurrent_connects.saturating_add(config.max_stuck) {
            Permit::Stuck(stuck)
        } else {
            Permit::Free
        }
    }

    /// Tells every slot whose time has come, like anybody else would.
    fn fire_timers(&mut self) -> bool {
        let now = self.shared.clock.now();
        let mut fired = false;
        while let Some(Reverse((_, id))) = self.timers.pop_if_due(now) {
            if let Some(slot) = self.shared.upgrade(PeerId::from_bits(id)) {
                slot.tell(LOOK);
                fired = true;
            }
        }
        fired
    }

    fn serve_line(&mut self) {
        while !self.line.is_empty() && !matches!(self.permit(true), Permit::Taken) {
            let Some(slot) = self.line.pop_front() else { return };
            self.step(slot, 0, true);
            if let Some((slot, 0)) = self.deferred.pop_if(|(_, events)| *events == 0) {
                self.line.push_front(slot); // its mutex was held
                return;
            }
        }
    }

    /// Registrations are taken back and the report is made by an ending thread. If the native side hangs there, the report
    /// does not wait for it.
    fn serve_shutdowns(&mut self) {
        self.shutdowns.append(&mut lock(&self.shared.shutdown));
        let (now, live, shared) = (self.shared.clock.now(), self.shared.live(), &self.shared);
        self.shutdowns.retain_mut(|request| {
            let over = request.deadline.is_some_and(|at| at <= now);
            if request.submitted.is_none() && (live == 0 || over) {
                shutdown::submit_report(shared, request.cell.clone(), request.deadline);
                request.submitted = Some(now);
            }
            // From the submission: this turn may itself come late.
            let late = over && request.submitted.is_some_and(|at| at + ENDING <= now);
            if late && request.cell.peek().is_none() {
                request.cell.resolve(shutdown::report(shared));
            }
            !late && request.cell.peek().is_none() && (request.deadline.is_some() || request.submitted.is_none())
        });
    }

    /// Who asked a peer that has not answered by the deadline is told.
    fn serve_probes(&mut self) {
        self.probes.append(&mut lock(&self.shared.probes));
        let (now, probers) = (self.shared.clock.now(), &self.shared.probers);
        self.probes.retain(|probe| {
            if probe.deadline <= now && probe.cell.peek().is_none() {
                let asked = probers.is_running(probe.job);
                probe.cell.resolve(if asked { Liveness::Dead } else { Liveness::Unknown });
            }
            probe.deadline > now && probe.cell.peek().is_none()
        });
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.shared.abandoned.load(Ordering::Acquire)
            && self.shared.live() == 0
            && self.shutdowns.is_empty()
            && lock(&self.shared.shutdown).is_empty()
            && self.deferred.is_empty()
            && !self.shared.sweep()
    }

    /// `overdue`: when a close may have taken too long.
    fn sleep(&self, overdue: Option<Instant>) {
        let now = self.shared.clock.now();
        let starved = self.shared.pools().iter().any(|pool| pool.is_starved());
        let held_up = !self.line.is_empty() && !matches!(self.permit(true), Permit::Taken);
        let looked_at = self.shared.sweep();
        let soon = (!self.deferred.is_empty() || held_up || starved || looked_at).then(|| now + TRY_AGAIN);
        let timer = self.timers.peek().map(|Reverse((at, _))| *at);
        let shutdown = self.shutdowns.iter().filter_map(|request| {
            let submitted = request.submitted.map(|at| at + ENDING);
            request.deadline.map(|at| submitted.map_or(at, |submitted| at.max(submitted)))
        });
        let probe = self.probes.iter().map(|probe| probe.deadline).min();
        match [soon, timer, shutdown.min(), probe, overdue].into_iter().flatten().min() {
            None => thread::park(),
            Some(at) => {
                if let Some(left) = self.shared.clock.real_wait_until(at) {
                    thread::park_timeout(left);
                }
            }
        }
    }
}

trait PopIfDue {
    fn pop_if_due(&mut self, now: Instant) -> Option<Reverse<(Instant, u64)>>;
}

impl PopIfDue for BinaryHeap<Reverse<(Instant, u64)>> {
    fn pop_if_due(&mut self, now: Instant) -> Option<Reverse<(Instant, u64)>> {
        if self.peek()?.0.0 <= now { self.pop() } else { None }
    }
}
