//! The table as one would write it if nothing ever happened at the same time: no atomics, no threads, no queue. It says
//! what every operation answers, and how everything stands once all that was started has come to rest.
//!
//! Numbers that the table chooses (generations, jittered delays) are learned from it, within bounds: a [`Gen`] is new or
//! the same, a [`Retry`] lies in a window. Everything else is exact.
//!
//! One operation is [`Model::apply`]: the operation itself, then [`Model::settle`], which makes every step that is due until
//! none is. A later feature of the table adds its operation in `act`, its steps in `follow`, and what is seen of it in
//! `look`.

mod act;
mod follow;
mod look;

use crate::model::op::{CloseEnd, ConnectEnd, NAMES, STEPS, Setup};
use peerage::{Cancelled, Outcome, PeerName, Phase, Reason, Reported, Sent, TransferError};
use std::collections::VecDeque;
use std::time::Duration;

/// Since the table was built, on its clock.
pub(crate) type Time = Duration;

pub(crate) const CONNECT_TIMEOUT: Time = Duration::from_secs(3);
pub(crate) const DRAIN_DEADLINE: Time = Duration::from_secs(1);
pub(crate) const CLOSE_TIMEOUT: Time = Duration::from_secs(2);
pub(crate) const BASE: Time = Duration::from_millis(50);
pub(crate) const CAP: Time = Duration::from_secs(1);
pub(crate) const MIN_STABLE: Time = Duration::from_millis(300);
pub(crate) const BUSY: Time = Duration::from_millis(70);
pub(crate) const MAX_PEERS: usize = 5;
/// The native codes of the errors that the world makes.
pub(crate) const NOTIFY_CODE: i64 = 104;
pub(crate) const NATIVE_CODE: i64 = 7;
pub(crate) const LATE_CODE: i64 = 9;

/// A generation whose number the table chooses: greater than every one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Gen(pub usize);

/// When the next attempt may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retry {
    At(Time),
    /// Jittered: from `from`, for less than `window`. Learned before the next operation.
    Within {
        from: Time,
        window: Time,
    },
}

impl Retry {
    fn is_after(self, now: Time) -> bool {
        match self {
            Retry::At(at) => at > now,
            Retry::Within { .. } => true,
        }
    }
}

/// How waiting for a peer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Ready(Gen),
    Failed(Gen),
    Reported(Gen),
    TimedOut(Gen),
    Panicked,
    WrongIncarnation,
    BackingOff(Time),
    Busy,
    Undrained { leases: u64, transfers: u64 },
    WaitingForPredecessor,
    Removed,
    ShutDown,
}

/// How a removal ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gone {
    Removed,
    Leaked,
    StillBusy { leases: u64, oldest: Time, connecting: bool },
}

/// What a shutdown could not take back; peers by their number in [`Op`](crate::model::op::Op)'s names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Leftovers {
    pub(crate) leases: Vec<(usize, u64)>,
    pub(crate) connects: Vec<usize>,
    pub(crate) transfers: Vec<(usize, u64)>,
    pub(crate) leaked: u64,
    pub(crate) registered: bool,
}

/// What an operation answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// There was nothing to do it to.
    Skipped,
    Done,
    /// A handle of this peer.
    Handle(usize),
    Leased(Gen),
    NotReady(Refusal),
    Reported(Vec<(Gen, Reported)>),
    Updated(&'static str),
    Error(&'static str),
    InUse {
        transfers: usize,
        grants: usize,
    },
}

/// Why a lease is not granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) phase: Phase,
    /// `None`: no peer is meant.
    pub(crate) generation: Option<Gen>,
    pub(crate) reason: Reason,
    pub(crate) retry_at: Option<Time>,
    /// Another reason that is as true: a removed peer's place may be free.
    pub(crate) or: Option<Reason>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) node: usize,
    pub(crate) incarnation: Option<u64>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Peer {
    pub(crate) name: usize,
    pub(crate) address: Address,
    pub(crate) phase: Phase,
    pub(crate) generation: Gen,
    pub(crate) since: Time,
    pub(crate) reason: Reason,
    pub(crate) attempts: u64,
    pub(crate) failures: u32,
    pub(crate) retry_at: Option<Retry>,
    pub(crate) has_error: bool,
    pub(crate) incarnation: Option<u64>,
    /// Every generation it ever stood at.
    pub(crate) had: Vec<Gen>,
    wanted: Option<Gen>,
    /// When its last attempt began.
    began: Time,
    ready_since: Option<Time>,
    connect: Option<Connect>,
    predecessor: Option<Predecessor>,
    removal: Option<Removal>,
}

/// The peer that had its name before and is in its way.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Predecessor {
    peer: usize,
    overdue: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Connect {
    link: usize,
    /// The test holds its ticket.
    by_hand: bool,
    deadline: Time,
    /// Its attempt has not run into its deadline.
    young: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Removal {
    since: Time,
    shutdown: bool,
    leaked: bool,
}

/// One native connect and what it made.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Link {
    pub(crate) peer: usize,
    pub(crate) generation: Gen,
    pub(crate) node: usize,
    /// The incarnation that its address named.
    named: Option<u64>,
    /// Its native connect was called.
    begun: bool,
    made: bool,
    /// Nothing gets through.
    dead: bool,
    /// The table has let go of it.
    ended: bool,
    leases: u64,
    bay: Option<usize>,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Ticket,
    Connecting,
    Live,
    Draining {
        since: Time,
        overdue: bool,
    },
    Closing {
        since: Time,
        overdue: bool,
        /// When its transfers end for their callers.
        ends_at: Option<Time>,
    },
    /// It came too late, or was the wrong one: no bay ever held it.
    ClosingLate,
    /// Closed, with transfers that still hold their pages.
    Quiescing {
        ends_at: Option<Time>,
    },
    Over,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Transfer {
    pub(crate) link: usize,
    deadline: Option<Timer>,
    pub(crate) outcome: Option<Outcome>,
    pub(crate) quiescent: bool,
}

/// By time, and in the order in which they were set.
type Timer = (Time, usize);

/// Somebody who gave a transfer up.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cancelling {
    transfer: usize,
    deadline: Timer,
    pub(crate) answer: Option<Cancelled>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Grant {
    pub(crate) peer: usize,
    pub(crate) quiesced: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Waiter {
    pub(crate) peer: usize,
    pub(crate) outcome: Option<Ended>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Remover {
    pub(crate) peer: usize,
    pub(crate) deadline: Time,
    pub(crate) outcome: Option<Gone>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Shutdown {
    pub(crate) deadline: Time,
    pub(crate) outcome: Option<Leftovers>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    Free,
    Live(usize),
    Leaving(usize),
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Node {
    alive: bool,
    incarnation: u64,
}

/// What a test does to the native calls of one name, and what they did.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Native {
    /// How many calls came to the hold, if there is one.
    pub(crate) connect_held: Option<usize>,
    pub(crate) close_held: Option<usize>,
    complete_held: bool,
    connects: VecDeque<ConnectEnd>,
    closes: VecDeque<CloseEnd>,
    /// Calls that passed during this operation.
    passed: [usize; 2],
    pub(crate) counts: Counts,
}

impl Native {
    pub(crate) fn is_held(&self) -> bool {
        self.connect_held.is_some() || self.close_held.is_some() || self.complete_held
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) begun: u64,
    pub(crate) ok: u64,
    pub(crate) failed: u64,
    pub(crate) connecting: u64,
    pub(crate) open: u64,
    pub(crate) closes: u64,
    pub(crate) leaked: u64,
    pub(crate) dropped: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Model {
    setup: Setup,
    pub(crate) now: Time,
    pub(crate) peers: Vec<Peer>,
    names: [Entry; NAMES],
    nodes: [Node; NAMES],
    pub(crate) native: [Native; NAMES],
    pub(crate) links: Vec<Link>,
    /// The peer of each.
    pub(crate) handles: Vec<usize>,
    /// The link of each.
    pub(crate) leases: Vec<usize>,
    /// The link of each.
    pub(crate) tickets: Vec<usize>,
    pub(crate) waiters: Vec<Waiter>,
    pub(crate) removers: Vec<Remover>,
    pub(crate) transfers: Vec<Transfer>,
    pub(crate) cancels: Vec<Cancelling>,
    timers: usize,
    pub(crate) grants: Vec<Grant>,
    pub(crate) shutdowns: Vec<Shutdown>,
    shut_down: bool,
    registered: bool,
    generations: usize,
    pub(crate) elections: u64,
    /// The least and the most: a report to a peer that is gone may find nobody to count it.
    pub(crate) stale_reports: [u64; 2],
    pub(crate) leaked: u64,
    /// What this operation does depends on the order in which threads run.
    pub(crate) ambiguous: bool,
}

impl Model {
    /// An empty table, with one region registered, over nodes of these incarnations that all live.
    pub(crate) fn new(setup: Setup, incarnations: [u64; NAMES]) -> Self {
        Model {
            setup,
            now: Time::ZERO,
            peers: Vec::new(),
            names: [Entry::Free; NAMES],
            nodes: incarnations.map(|incarnation| Node { alive: true, incarnation }),
            native: Default::default(),
            links: Vec::new(),
            handles: Vec::new(),
            leases: Vec::new(),
            tickets: Vec::new(),
            waiters: Vec::new(),
            removers: Vec::new(),
            transfers: Vec::new(),
            cancels: Vec::new(),
            timers: 0,
            grants: Vec::new(),
            shutdowns: Vec::new(),
            shut_down: false,
            registered: true,
            generations: 0,
            elections: 0,
            stale_reports: [0; 2],
            leaked: 0,
            ambiguous: false,
        }
    }
}

/// The time that a number of an operation stands for.
pub(crate) fn step(number: u8) -> Time {
    Duration::from_millis(STEPS[usize::from(number) % STEPS.len()])
}
