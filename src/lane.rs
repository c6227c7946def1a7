//! The slow path of one slot, one step at a time: shut → drained → disconnect → connect → publish.
//!
//! A lane is a state machine, not a thread. [`step`] looks at everything that may have become due, changes what it may
//! change, and answers what must be done without the mutex: connections to close, an attempt to start, transfers to end, the
//! time of the next look. Waiting (for a drain, a backoff, a permit) holds no thread and is not Connecting.

use crate::connects::{CountsAs, Line};
use crate::queue::{ASK, DRAINED, REPORTED};
use crate::removal::Removed;
use crate::slot::{Slot, SlotRef};
use crate::slow::{BayState, Closing, Elected, Locked, MayElect, Quiescing, ToClose, try_locked};
use crate::state::Generation;
use crate::sync::Arc;
use crate::transport::{Capabilities, Transport};
use crate::wait::Cell;
use std::time::{Duration, Instant};

/// How long after the native side said "not yet" it is asked again to close.
pub(crate) const CLOSE_AGAIN: Duration = Duration::from_millis(20);

/// What the driver offers to a slot that wants to connect. A slot that stood in line has left it when its turn comes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Permits {
    /// Whether somebody stands in each line: then the others wait behind.
    pub(crate) lines: [bool; 2],
    /// The slot is the first of its line.
    pub(crate) from_line: bool,
}

/// What is left to do after one step.
pub(crate) struct Step<T: Transport> {
    pub(crate) close: [Option<ToClose<T::Connection>>; 2],
    /// References of bays whose connection was taken.
    pub(crate) bays: [Option<SlotRef<T>>; 2],
    pub(crate) connect: Option<Elected<T::Address>>,
    /// The table removes the peer by itself: its name is to be given free.
    pub(crate) forsaken: bool,
    /// The Ready generation to be asked whether it is alive.
    pub(crate) probe: Option<Generation>,
    /// Bays whose transfers end as Unknown for their callers.
    pub(crate) end_transfers: [bool; 2],
    pub(crate) still_busy: Vec<(Arc<Cell<Removed>>, Removed)>,
    /// The slot wants a permit and there is none: where it waits.
    pub(crate) wait_for_permit: Option<Line>,
    pub(crate) look: Option<Look>,
}

/// Set a timer for a time, in place of the slot's timer for another time, if that has not fired.
pub(crate) struct Look {
    pub(crate) at: Instant,
    pub(crate) instead_of: Option<Instant>,
}

/// One step; `None` if somebody holds the mutex. Makes no call that may block.
pub(crate) fn step<T: Transport>(slot: &Slot<T>, events: u32, permits: Permits) -> Option<Step<T>> {
    try_locked(slot, |lane| {
        lane.slow.in_line &= !permits.from_line;
        let mut step = Step {
            close: [None, None],
            bays: [None, None],
            connect: None,
            forsaken: false,
            probe: None,
            end_transfers: [false; 2],
            still_busy: Vec::new(),
            wait_for_permit: None,
            look: None,
        };
        take_drained(lane, events);
        lane.settle(None);
        if events & REPORTED != 0 {
            lane.join_note();
        }
        step.forsaken = lane.remove_forsaken();
        lane.expire();
        if events & ASK != 0 {
            lane.beat_now();
        }
        step.probe = lane.beat();
        lane.look_at_predecessor();
        for bay in 0..2 {
            look_at_bay(lane, bay, &mut step);
        }
        lane.finish_removal();
        answer_removers(lane, &mut step);
        connect(lane, permits, &mut step);
        step.look = next_look(lane);
        step
    })
}

fn take_drained<T: Transport>(lane: &mut Locked<'_, T>, events: u32) {
    for bay in 0..2 {
        if events & DRAINED << bay != 0 {
            match &mut lane.slow.bays[bay] {
                BayState::Draining(draining) => draining.drained = true,
                _ => debug_assert!(false, "a bay drains once, after it was shut"),
            }
        }
    }
}

fn look_at_bay<T: Transport>(lane: &mut Locked<'_, T>, bay: usize, step: &mut Step<T>) {
    let home = lane.slot.home();
    match &mut lane.slow.bays[bay] {
        BayState::Draining(draining) => {
            let closes_over_transfers = home.capabilities.contains(Capabilities::CLOSE_QUIESCES);
            let visited = lane.slow.visitors[bay] > 0;
            if !visited && draining.drained && (closes_over_transfers || lane.slot.bay(bay).transfers_by_lane() == 0) {
                let (generation, why, job) = (draining.generation, draining.why, home.next_job());
                let busy = lane.slot.bay(bay).transfers() > 0;
                let transfers_end_at = busy.then(|| draining.since + home.config.drain_deadline);
                // SAFETY: `drained` was set from the DRAINED bit of this bay's present gate; nobody visits; the mutex is held.
                let connection = unsafe { lane.slot.bay(bay).take() };
                lane.slow.bays[bay] = BayState::Closing(Closing {
                    generation,
                    since: lane.now,
                    why,
                    again: None,
                    transfers_end_at,
                    overdue: false,
                });
                // SAFETY: the reference that `publish` counted in for this bay, given up once, with its connection.
                step.bays[bay] = Some(unsafe { SlotRef::from_counted(lane.slot.into()) });
                let name = lane.slow.name.clone();
                step.close[bay] = Some(ToClose { name, generation, bay: Some(bay), connection, why, job });
            } else if !draining.overdue && lane.now >= draining.since + home.config.drain_deadline {
                draining.overdue = true;
                step.end_transfers[bay] = true;
                lane.tell_undrained();
            }
        }
        BayState::Closing(closing) => {
            step.end_transfers[bay] = closing.transfers_end_at.take_if(|at| *at <= lane.now).is_some();
            let late = !closing.overdue && lane.now >= closing.since + home.config.close_timeout;
            closing.overdue |= late;
            if let Some((connection, _)) = closing.again.take_if(|(_, at)| *at <= lane.now) {
                let (generation, why, job) = (closing.generation, closing.why, home.next_job());
                let name = lane.slow.name.clone();
                step.close[bay] = Some(ToClose { name, generation, bay: Some(bay), connection, why, job });
            }
            if late {
                lane.tell_undrained();
            }
        }
        BayState::Quiescing(quiescing) => {
            let late = quiescing.transfers_end_at.take_if(|at| *at <= lane.now).is_some();
            step.end_transfers[bay] = late;
            if lane.slot.bay(bay).transfers_by_lane() == 0 {
                lane.slow.bays[bay] = BayState::Free;
            } else if late {
                lane.tell_undrained();
            }
        }
        BayState::Free | BayState::Reserved(_) | BayState::Live(_) => {}
    }
}

fn answer_removers<T: Transport>(lane: &mut Locked<'_, T>, step: &mut Step<T>) {
    let connecting = lane.slow.connect.is_some();
    let (now, slot) = (lane.now, lane.slot);
    let Some(removal) = &mut lane.slow.removal else { return };
    let leases = (0..2).map(|bay| slot.gates().users(bay)).sum();
    let transfers = (0..2).map(|bay| slot.bay(bay).transfers()).sum();
    let closing = lane.slow.bays.iter().any(|state| matches!(state, BayState::Closing(_)));
    let oldest = now.duration_since(removal.since);
    removal.waiting.retain(|(deadline, cell)| {
        let over = *deadline <= now;
        if over {
            step.still_busy.push((cell.clone(), Removed::StillBusy { leases, transfers, oldest, connecting, closing }));
        }
        !over
    });
}

fn connect<T: Transport>(lane: &mut Locked<'_, T>, permits: Permits, step: &mut Step<T>) {
    if lane.may_elect() != MayElect::Now {
        return;
    }
    let (home, line) = (lane.slot.home(), lane.line());
    let in_turn = permits.from_line || !permits.lines[line as usize];
    let room = in_turn && home.connects.has_room(line, &home.config, lane.now);
    if room && home.connects.are_stuck(&home.config) {
        let retry_after = home.config.backoff.cap.min(home.config.connect_timeout);
        lane.answer_busy(home.connects.stuck(), retry_after);
    } else if room && home.connects.try_begin(line, &home.config, lane.now) {
        step.connect = lane.elect(true);
        if step.connect.is_none() {
            home.connects.returned(CountsAs::Permit(line));
        }
    } else {
        step.wait_for_permit = (!lane.slow.in_line).then_some(line);
        lane.slow.in_line = true;
    }
}

/// The earliest time at which something becomes due, unless a timer is set for no later.
fn next_look<T: Transport>(lane: &mut Locked<'_, T>) -> Option<Look> {
    let config = &lane.slot.home().config;
    let slow = &*lane.slow;
    let bays = slow.bays.iter().filter_map(|state| match state {
        BayState::Draining(draining) if !draining.overdue => Some(draining.since + config.drain_deadline),
        BayState::Closing(Closing { since, again, transfers_end_at, overdue, .. }) => {
            let late = (!overdue).then(|| *since + config.close_timeout);
            [late, again.as_ref().map(|(_, at)| *at), *transfers_end_at].into_iter().flatten().min()
        }
        BayState::Quiescing(quiescing) => quiescing.transfers_end_at,
        _ => None,
    });
    let attempt = slow.connect.as_ref().filter(|connect| connect.is_young()).map(|connect| connect.deadline);
    let election = match lane.may_elect() {
        MayElect::At(at) => Some(at),
        _ => None,
    };
    let removers = slow.removal.iter().flat_map(|removal| removal.waiting.iter().map(|(deadline, _)| *deadline));
    let predecessor = lane.predecessor_deadline();
    let beat = lane.beat_look().into_iter().chain(lane.forsaken_look()).chain(lane.slot.in_flight.next_look());
    let next = bays.chain(attempt).chain(beat).chain(election).chain(predecessor).chain(removers).min()?;
    if slow.timer.is_some_and(|set| set > lane.now && set <= next) {
        return None;
    }
    let instead_of = lane.slow.timer.replace(next);
    Some(Look { at: next, instead_of })
}

/// How a close ended, as its closing thread tells the lane.
pub(crate) enum CloseEnded<C> {
    Closed,
    Leaked(&'static str),
    Again(C),
}

impl<T: Transport> Locked<'_, T> {
    /// The connection of `bay` is closed, or is to be closed again. Answers a connection that is to be forgotten.
    pub(crate) fn closed(&mut self, bay: usize, ended: CloseEnded<T::Connection>) -> Option<T::Connection> {
        self.look_after_this();
        let patience = self.slot.home().config.drain_deadline;
        let BayState::Closing(closing) = &mut self.slow.bays[bay] else {
            debug_assert!(false, "a close ends once");
            return None;
        };
        let (leaked, forget) = match ended {
            CloseEnded::Closed => (None, None),
            CloseEnded::Leaked(why) => (Some(why), None),
            CloseEnded::Again(connection) if self.now >= closing.since + patience => {
                (Some("the native side refused to close it until the drain deadline"), Some(connection))
            }
            CloseEnded::Again(connection) => {
                closing.again = Some((connection, self.now + CLOSE_AGAIN));
                return None;
            }
        };
        let Closing { since, transfers_end_at, .. } = *closing;
        self.slow.bays[bay] = BayState::Quiescing(Quiescing { since, transfers_end_at });
        self.leaked(leaked);
        forget
    }

    /// Counts a connection that the native side did not take back.
    pub(crate) fn leaked(&mut self, why: Option<&'static str>) {
        let Some(why) = why else { return };
        self.slot.home().counters.leaked();
        if let Some(removal) = &mut self.slow.removal {
            removal.leaked = Some(why);
        }
    }
}
