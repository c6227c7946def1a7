//! The one loop that moves lanes and timers. It makes no call that may block: no connect, disconnect, probe or user's
//! destructor runs here, and it only tries a slot's mutex.

use crate::cancel::Cancelled;
use crate::close;
use crate::connects::Line;
use crate::in_flight::Due;
use crate::lane::{self, Look, Permits, Step};
use crate::name::PeerId;
use crate::pool::mark_table_thread;
use crate::probe::ProbeRequest;
use crate::queue::LOOK;
use crate::shared::Shared;
use crate::shutdown::{self, ShutdownRequest};
use crate::slot::SlotRef;
use crate::slow;
use crate::ticket::Ticket;
use crate::transfer::{self, Outcome};
use crate::transport::{Liveness, Transport};
use std::collections::{BTreeSet, VecDeque};
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
    /// One per peer, by id, so that a timer keeps no slot alive.
    timers: BTreeSet<(Instant, u64)>,
    /// Slots whose mutex was held, with the events they were told.
    deferred: Vec<(SlotRef<T>, u32)>,
    /// Slots that want to connect and found no permit, first come first served in each [`Line`].
    lines: [VecDeque<SlotRef<T>>; 2],
    shutdowns: Vec<ShutdownRequest>,
    probes: Vec<ProbeRequest>,
}

impl<T: Transport> Driver<T> {
    pub(crate) fn new(shared: Arc<Shared<T>>) -> Self {
        Driver {
            shared,
            timers: BTreeSet::new(),
            deferred: Vec::new(),
            lines: [VecDeque::new(), VecDeque::new()],
            shutdowns: Vec::new(),
            probes: Vec::new(),
        }
    }

    /// Runs until the table is abandoned and nothing of it is left in use.
    pub(crate) fn run(mut self) {
        mark_table_thread();
        let shared = self.shared.clone();
        if catch_unwind(AssertUnwindSafe(|| while self.turn() {})).is_err() {
            self.died();
        } else {
            // Somebody may still be between a change and its news: that must keep neither the slot nor the table.
            for (slot, _) in shared.queue.end() {
                // SAFETY: the list's counted reference.
                drop(unsafe { SlotRef::from_counted(slot) });
            }
        }
        shared.pools().iter().for_each(|pool| pool.close());
    }

    /// Nothing moves any more: whoever waits is told, and whoever comes to wait.
    pub(crate) fn died(&mut self) {
        crate::death::tell_who_waits(
            &self.shared,
            std::mem::take(&mut self.shutdowns),
            std::mem::take(&mut self.probes),
        );
    }

    /// One look at everything; false when the table has ended.
    fn turn(&mut self) -> bool {
        let moved = self.look();
        let limit = self.shared.config.close_timeout;
        let closers = [&self.shared.closers, &self.shared.last_closers];
        let closes = closers.into_iter().filter_map(|pool| pool.give_up_older_than(limit));
        let heartbeat = self.shared.config.heartbeat.as_ref();
        let beats = heartbeat.and_then(|beat| self.shared.beaters.give_up_older_than(beat.dead_after));
        let overdue = closes.chain(beats).min();
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
        self.serve_line(Line::Ordinary);
        self.serve_line(Line::TimedOut);
        self.serve_shutdowns();
        self.serve_probes();
        moved
    }

    fn step(&mut self, slot: SlotRef<T>, events: u32, from_line: bool) {
        self.end_what_is_due(&slot);
        let lines = [0, 1].map(|line| !self.lines[line].is_empty());
        let Some(step) = lane::step(&slot, events, Permits { lines, from_line }) else {
            self.deferred.push((slot, events));
            return;
        };
        let Step { close, bays, connect, forsaken, probe, end_transfers, still_busy, wait_for_permit, look } = step;
        let shared = &self.shared;
        for to_close in close.into_iter().flatten() {
            close::submit(shared, &slot, to_close);
        }
        drop(bays);
        if forsaken {
            shared.leaves(&slot.name(), &slot);
        }
        if let Some(elected) = connect {
            shared.counters.elected();
            let ticket = Ticket::new(shared.clone(), slot.clone(), elected);
            shared.connectors.submit(shared.next_job(), Box::new(move || ticket.connect())); // starved: see `sleep`
        }
        if let Some(generation) = probe {
            let slot = slot.clone();
            let ask = move || slow::probe(&slot, generation);
            shared.beaters.submit(shared.next_job(), Box::new(ask)); // starved: see `sleep`
        }
        for bay in (0..2).filter(|bay| end_transfers[*bay]) {
            let transfers = slot.in_flight.of_bay(bay);
            transfers.iter().for_each(|transfer| transfer.end(Outcome::Unknown));
            give_up(shared, transfers);
        }
        for (cell, outcome) in still_busy {
            cell.resolve(outcome);
        }
        if let Some(Look { at, instead_of }) = look {
            let id = slot.id().to_bits();
            instead_of.map(|old| self.timers.remove(&(old, id)));
            self.timers.insert((at, id));
        }
        if let Some(line) = wait_for_permit {
            self.lines[line as usize].push_back(slot);
        }
    }

    /// Transfers whose own deadlines have passed, and those that were given up and are not quiescent in time.
    fn end_what_is_due(&self, slot: &SlotRef<T>) {
        let (now, config) = (self.shared.clock.now(), &self.shared.config);
        let mut given_up = Vec::new();
        for due in slot.in_flight.look(now, config.stalled_after) {
            match due {
                Due::Transfer(transfer) => {
                    transfer.expire(slot.name());
                    given_up.push(transfer);
                }
                Due::Cancel(transfer, cell) => {
                    transfer.end(Outcome::Unknown);
                    cell.resolve(Cancelled::NotQuiesced);
                }
            }
        }
        give_up(&self.shared, given_up);
    }

    /// Tells every slot whose time has come, like anybody else would.
    fn fire_timers(&mut self) -> bool {
        let now = self.shared.clock.now();
        let mut fired = false;
        while let Some((_, id)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.pop_first();
            if let Some(slot) = self.shared.upgrade(PeerId::from_bits(id)) {
                slot.tell(LOOK);
                fired = true;
            }
        }
        fired
    }

    fn serve_line(&mut self, line: Line) {
        while self.is_next(line) {
            let Some(slot) = self.lines[line as usize].pop_front() else { return };
            self.step(slot, 0, true);
            if let Some((slot, 0)) = self.deferred.pop_if(|(_, events)| *events == 0) {
                self.lines[line as usize].push_front(slot); // its mutex was held
                return;
            }
        }
    }

    /// Whether somebody stands in line and need not.
    fn is_next(&self, line: Line) -> bool {
        !self.lines[line as usize].is_empty()
            && self.shared.connects.has_room(line, &self.shared.config, self.shared.clock.now())
    }

    /// Registrations are taken back and the report is made by an ending thread. If the native side hangs there, the report
    /// does not wait for it.
    fn serve_shutdowns(&mut self) {
        self.shutdowns.append(&mut self.shared.shutdown.lock());
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
        self.probes.append(&mut self.shared.probes.lock());
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
        // ord! Acquire: see `shutdown::abandon`. First of all: what is looked at below only falls once the table is abandoned.
        self.shared.abandoned.load(Ordering::Acquire)
            && self.shared.live() == 0
            && self.shutdowns.is_empty()
            && self.shared.shutdown.lock().is_empty()
            && self.deferred.is_empty()
            && !self.shared.sweep()
    }

    /// `overdue`: when a close may have taken too long.
    fn sleep(&self, overdue: Option<Instant>) {
        let now = self.shared.clock.now();
        let starved = self.shared.pools().iter().any(|pool| pool.is_starved());
        let held_up = [Line::Ordinary, Line::TimedOut].into_iter().any(|line| self.is_next(line));
        let stand_in_line = self.lines.iter().any(|line| !line.is_empty());
        let paused_until = self.shared.connects.paused_until(now).filter(|_| stand_in_line && !held_up);
        let looked_at = self.shared.sweep();
        let soon = (!self.deferred.is_empty() || held_up || starved || looked_at).then(|| now + TRY_AGAIN);
        let timer = self.timers.first().map(|(at, _)| *at);
        let shutdown = self.shutdowns.iter().filter_map(|request| {
            let submitted = request.submitted.map(|at| at + ENDING);
            request.deadline.map(|at| submitted.map_or(at, |submitted| at.max(submitted)))
        });
        let probe = self.probes.iter().map(|probe| probe.deadline).min();
        match [soon, timer, paused_until, shutdown.min(), probe, overdue].into_iter().flatten().min() {
            None => thread::park(),
            Some(at) => {
                if let Some(left) = self.shared.clock.real_wait_until(at) {
                    thread::park_timeout(left);
                }
            }
        }
    }
}

/// The peers are told of transfers that have ended for their callers, by a closing thread: it is the transport's code.
fn give_up<T: Transport>(shared: &Shared<T>, transfers: Vec<Arc<transfer::Core>>) {
    if !transfers.is_empty() {
        let tell = move || {
            for transfer in transfers {
                transfer.reach().iter().for_each(|reach| reach.cancel(transfer.id()));
            }
        };
        shared.close_later(shared.next_job(), Box::new(tell));
    }
}

#[cfg(all(test, not(peerage_loom)))]
mod tests {
    use super::*;
    use crate::builder::Config;
    use crate::clock::Clock;
    use crate::state::Phase;
    use crate::table::PeerTable;
    use crate::transport::memory::{Fabric, MemoryAddress, MemoryError};

    #[test]
    fn a_peer_that_fails_again_and_again_has_one_timer() {
        let clock = Clock::manual();
        let fabric = Fabric::with_clock(clock.clone());
        let _remote = fabric.node("p");
        let config = Config { connect_timeout: Duration::from_secs(3600), breaker: None, ..Config::default() };
        let shared = Shared::new(fabric.node("here"), config, clock.clone(), 7);
        shared.queue.driven_by(thread::current());
        let mut driver = Driver::new(shared.clone());
        let table = PeerTable::new(shared);
        let peer = table.insert("p", MemoryAddress::new("p")).unwrap();
        for _ in 0..50 {
            assert!(peer.lease().is_err());
            while peer.phase() != Phase::Ready {
                driver.look();
                thread::yield_now();
            }
            peer.report(peer.generation(), &MemoryError::peer_broken("again"));
            while driver.look() || !driver.deferred.is_empty() {}
            assert!(driver.timers.len() <= 1, "{:?}", driver.timers);
            clock.advance(Duration::from_secs(5));
        }
        drop((peer, table));
        driver.run();
    }
}

/// The driver dies of a check that only debug builds make.
#[cfg(all(test, not(peerage_loom), debug_assertions))]
mod death {
    use super::*;
    use crate::error::{ReadyError, Reason};
    use crate::grant::Access;
    use crate::queue::DRAINED;
    use crate::region::Region;
    use crate::removal::Removed;
    use crate::table::PeerTable;
    use crate::transport::DataPlane;
    use crate::transport::memory::{Fabric, MemoryAddress, Step as Steps};

    #[test]
    fn when_the_driver_dies_who_waits_and_who_comes_to_wait_is_told() {
        let fabric = Fabric::new();
        fabric.node("p");
        let memory = fabric.node("here");
        let table = PeerTable::builder(memory.clone()).build().unwrap();
        let peer = table.insert("p", MemoryAddress::new("p")).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let hold = memory.steps().hold(Steps::Connect, "p");
        let early = {
            let peer = peer.clone();
            thread::spawn(move || peer.wait_ready(deadline))
        };
        hold.wait_reached(1);
        peer.slot().tell(DRAINED); // of a bay that is not closing
        assert!(matches!(early.join().unwrap(), Err(ReadyError::DriverDied { .. })));
        assert!(matches!(peer.wait_ready(deadline), Err(ReadyError::DriverDied { .. })));
        assert_eq!(peer.lease().unwrap_err().reason, Reason::DriverDied);
        assert_eq!(peer.remove(deadline).wait(), Ok(Removed::DriverDied));
        let report = table.shutdown(deadline).wait().unwrap();
        assert_eq!(report.stuck_connects, [peer.name().clone()]);
        hold.release();
    }

    #[test]
    fn when_the_driver_dies_transfers_end_that_wait_for_their_deadlines_and_who_gives_one_up_is_told() {
        // fails if: nobody answers in the driver's place.
        let fabric = Fabric::new();
        let (p, memory) = (fabric.node("p"), fabric.node("here"));
        let table = PeerTable::builder(memory.clone()).build().unwrap();
        let peer = table.insert("p", MemoryAddress::new("p")).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        peer.wait_ready(deadline).unwrap();
        let hold = memory.steps().hold(Steps::Complete, "p");
        let [local, theirs] = [(); 2].map(|()| Region::zeroed(8).slice(0..8).unwrap());
        table.register(local.region()).unwrap();
        let grant = p.grants().lend(&"here".try_into().unwrap(), &theirs, Access::Write);
        let lease = peer.lease().unwrap();
        let late = lease.write_until(&local, grant.remote(), deadline).unwrap();
        let given_up = lease.write(&local, grant.remote()).unwrap();
        hold.wait_reached(2);
        let early = given_up.cancel(deadline);
        peer.slot().tell(DRAINED); // of a bay that is not closing
        assert_eq!(late.wait(deadline), Some(Outcome::Unknown));
        let later = lease.write_until(&local, grant.remote(), deadline).unwrap();
        assert_eq!(later.wait(deadline), Some(Outcome::Unknown));
        let told = |cancel: crate::cancel::Cancel| {
            let (tell, told) = std::sync::mpsc::channel();
            thread::spawn(move || tell.send(cancel.wait()));
            told.recv_timeout(Duration::from_secs(60)).expect("nobody answers")
        };
        assert_eq!(told(early), Ok(Cancelled::NotQuiesced));
        assert_eq!(told(given_up.cancel(deadline)), Ok(Cancelled::NotQuiesced));
        assert_eq!(given_up.try_outcome(), Some(Outcome::Unknown));
        hold.release();
        drop(lease);
    }
}
