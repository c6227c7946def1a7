//! Why waiting for a peer ended without it being ready.

use super::UsedAfterFork;
use crate::name::PeerName;
use crate::state::Generation;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Why waiting for a peer ended without it being ready. Nothing was sent.
#[non_exhaustive]
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReadyError {
    /// The attempt failed. `source()` is the transport's error. Everybody who waited for this attempt gets it.
    #[error("peer \"{peer}\": attempt {generation} failed: {error}")]
    Failed {
        /// The peer.
        peer: PeerName,
        /// The attempt.
        generation: Generation,
        /// The transport's error.
        #[source]
        error: SharedError,
    },
    /// The attempt, or the generation it made, was reported broken before this waiter saw it.
    #[error("peer \"{peer}\": {generation} was reported broken: {error}")]
    Reported {
        /// The peer.
        peer: PeerName,
        /// The generation.
        generation: Generation,
        /// The reporter's error as text; empty if it had not arrived yet.
        error: Arc<str>,
    },
    /// The attempt did not end before `connect_timeout`. A black-holed peer, or a timeout too short.
    #[error("peer \"{peer}\": attempt {generation} timed out after {after:?}")]
    TimedOut {
        /// The peer.
        peer: PeerName,
        /// The attempt.
        generation: Generation,
        /// How long it ran.
        after: Duration,
    },
    /// The transport's connect panicked: a bug of the transport. It counts as a failed attempt; the peer backs off and may be
    /// asked for again.
    #[error("peer \"{peer}\": the transport panicked while connecting: {message}")]
    Panicked {
        /// The peer.
        peer: PeerName,
        /// The panic's message.
        message: Arc<str>,
    },
    /// Another process answers at the peer's address than the one the address was published for. Look up the address that
    /// the process publishes now, and hand it to [`Peer::update`](crate::Peer::update).
    #[error("peer \"{peer}\": address names incarnation {named}, {known} answered; update the address")]
    WrongIncarnation {
        /// The peer.
        peer: PeerName,
        /// What the address names.
        named: crate::Incarnation,
        /// What answered.
        known: crate::Incarnation,
    },
    /// The next attempt may not start before `retry_at`. This call did not sleep; ask again then.
    #[error("peer \"{peer}\" backs off after: {last_error}")]
    BackingOff {
        /// The peer.
        peer: PeerName,
        /// When the next attempt may start: exact.
        retry_at: Instant,
        /// The last failure as text.
        last_error: Arc<str>,
    },
    /// The old connection is still in use, or its close still runs, and there is no room for another. Give back failed leases before waiting.
    #[error(
        "peer \"{peer}\": the old connection is not closed after {oldest:?}: {leases} leases, {transfers} transfers, native close running: {closing}; give failed leases back before waiting"
    )]
    Undrained {
        /// The peer.
        peer: PeerName,
        /// Leases not given back.
        leases: u64,
        /// Transfers not quiescent.
        transfers: u64,
        /// How long ago the old connection stopped admitting: the oldest lease is at least this old.
        oldest: Duration,
        /// Whether it is the native close that does not return.
        closing: bool,
    },
    /// The peer that had this name before is not removed yet, and a second connection would be in its way: the transport has
    /// one slot per name, or a native connect of the old peer has not returned. Give back its leases; the snapshot lists it.
    #[error("peer \"{peer}\": after {waited:?} the peer that had this name before is still being removed")]
    WaitingForPredecessor {
        /// The peer.
        peer: PeerName,
        /// How long ago this one was inserted.
        waited: Duration,
    },
    /// Not now, and no fault of the peer: no attempt was made for this caller, and none is counted.
    #[error("peer \"{peer}\" is busy: {cause}; try again in {retry_after:?}")]
    Busy {
        /// The peer.
        peer: PeerName,
        /// With what.
        cause: BusyCause,
        /// When to try again.
        retry_after: Duration,
    },
    /// The peer is being removed, or was. Insert the name again, if it is still wanted.
    #[error("peer \"{peer}\" is removed")]
    Removed {
        /// The peer.
        peer: PeerName,
    },
    /// The table is shut down, for ever. Insert the peer into another one.
    #[error("peer \"{peer}\": the table is shut down")]
    ShutDown {
        /// The peer.
        peer: PeerName,
    },
    /// The caller's own deadline passed; the attempt goes on.
    #[error("peer \"{peer}\" was not ready before the caller's deadline")]
    Deadline {
        /// The peer.
        peer: PeerName,
    },
    /// A thread of the table would wait for itself. Use the non-waiting form inside transport calls.
    #[error("peer \"{peer}\": waiting on a thread of the table would never end")]
    WouldDeadlock {
        /// The peer.
        peer: PeerName,
    },
    /// The table's driver thread died; nothing will reconnect. Build a new table and report the bug.
    #[error("peer \"{peer}\": the table's driver died")]
    DriverDied {
        /// The peer.
        peer: PeerName,
    },
    /// This is a forked child, the table is the parent's: [`UsedAfterFork`](struct@UsedAfterFork).
    #[error("peer \"{peer}\": {}", UsedAfterFork)]
    UsedAfterFork {
        /// The peer.
        peer: PeerName,
    },
}

impl ReadyError {
    /// The peer that was waited for.
    pub fn peer(&self) -> &PeerName {
        match self {
            ReadyError::Failed { peer, .. }
            | ReadyError::Reported { peer, .. }
            | ReadyError::TimedOut { peer, .. }
            | ReadyError::Panicked { peer, .. }
            | ReadyError::WrongIncarnation { peer, .. }
            | ReadyError::BackingOff { peer, .. }
            | ReadyError::Undrained { peer, .. }
            | ReadyError::WaitingForPredecessor { peer, .. }
            | ReadyError::Busy { peer, .. }
            | ReadyError::Removed { peer }
            | ReadyError::ShutDown { peer }
            | ReadyError::Deadline { peer }
            | ReadyError::WouldDeadlock { peer }
            | ReadyError::DriverDied { peer }
            | ReadyError::UsedAfterFork { peer } => peer,
        }
    }
}

/// Why a caller can't wait for a peer.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BusyCause {
    /// Native connects hang beyond their deadline: this peer's own, or so many (this number, in the table) that no thread
    /// is left. Look at `stuck_connects` in the snapshot, or raise `max_stuck`.
    StuckConnects(usize),
    /// As many callers wait for this peer as may: this number. Raise `max_waiters_per_peer`, or shed load.
    Waiters(usize),
    /// The limit of connects per second is reached; `retry_after` is exact. For [`Peer::try_elect`](crate::Peer::try_elect)
    /// only.
    ConnectsPerSecond,
    /// All permits to connect are held: this number. For [`Peer::try_elect`](crate::Peer::try_elect) only; who waits stands
    /// in line.
    Permits(usize),
}

impl fmt::Display for BusyCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BusyCause::StuckConnects(stuck) => write!(f, "{stuck} native connects do not return"),
            BusyCause::Waiters(limit) => write!(f, "{limit} callers wait for it"),
            BusyCause::ConnectsPerSecond => f.write_str("the limit of connects per second is reached"),
            BusyCause::Permits(limit) => write!(f, "all {limit} permits to connect are held"),
        }
    }
}

/// An error shared by everybody who waited for the same attempt.
#[derive(Clone)]
pub struct SharedError(pub(crate) Arc<dyn Error + Send + Sync>);

impl SharedError {
    /// The transport's error, to downcast.
    pub fn inner(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.0
    }
}

impl fmt::Debug for SharedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for SharedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl Error for SharedError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}
