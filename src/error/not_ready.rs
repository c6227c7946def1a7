//! Why a lease was not granted.

use super::UsedAfterFork;
use crate::state::{Generation, Phase};
use std::fmt;
use std::time::Instant;

/// Why a lease was not granted. Nothing was sent. The lease that saw it has asked for a reconnect, if there is one to make.
/// It is small and `Copy`; whoever shows it to people adds the peer's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub struct NotReady {
    /// Where the peer stands.
    pub phase: Phase,
    /// The generation it stands at.
    pub generation: Generation,
    /// A hint: not before this will a reconnect start. Exact in [`ReadyError::BackingOff`](crate::ReadyError::BackingOff).
    pub retry_at: Option<Instant>,
    /// Why, as far as known without a lock. The text is in [`Peer::record`](crate::Peer::record).
    pub reason: Reason,
}

impl fmt::Display for NotReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason {
            Reason::Unknown
            | Reason::Removed
            | Reason::FailedTooLong
            | Reason::IdleTooLong
            | Reason::ShutDown
            | Reason::UsedAfterFork => write!(f, "not ready: {}", self.reason),
            reason => write!(f, "not ready: {} at {}, {reason}", self.phase, self.generation),
        }
    }
}

/// Why a peer is where it is.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Nobody has asked for a connection yet; this call has.
    NotAsked,
    /// The first attempt, or the next one, is running.
    Connecting,
    /// It is ready.
    Ready,
    /// The peer was reported broken; the native code, if any.
    Broken(Option<i64>),
    /// The last attempt failed; the native code, if any.
    ConnectFailed(Option<i64>),
    /// The last attempt did not end before its deadline.
    TimedOut,
    /// The peer answered with another incarnation than its address names.
    WrongIncarnation,
    /// The peer speaks another protocol.
    Incompatible,
    /// It has not answered a heartbeat for so long that it counts as dead.
    Unresponsive,
    /// Its address was replaced by one that may be another process: the old generation is retired, and no failure counted.
    Replaced,
    /// This process took another boot id: the old generation is retired, and no failure counted. See
    /// [`PeerTable::new_incarnation`](crate::PeerTable::new_incarnation).
    NewIncarnation,
    /// Leases or transfers of the last generation were not given back before the drain deadline, or its native close takes longer.
    Undrained,
    /// The peer that had its name before is not removed yet, and in its way.
    WaitingForPredecessor,
    /// It is being removed, or was.
    Removed,
    /// The table removed it by itself: it had no connection for as long as `remove_failed_after`.
    FailedTooLong,
    /// The table removed it by itself: nobody used it for as long as `idle_ttl`.
    IdleTooLong,
    /// The table is shut down.
    ShutDown,
    /// No peer has this name or id.
    Unknown,
    /// A transition is under way; the word says it, the record does not yet.
    Unsettled,
    /// The table's driver thread died; nothing will reconnect.
    DriverDied,
    /// This is a forked child, the table is the parent's: [`UsedAfterFork`](struct@UsedAfterFork). The phase is the peer's at
    /// the fork.
    UsedAfterFork,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = |f: &mut fmt::Formatter<'_>, what: &str, code: &Option<i64>| match code {
            Some(code) => write!(f, "{what} (native code {code})"),
            None => f.write_str(what),
        };
        match self {
            Reason::NotAsked => f.write_str("not connected yet"),
            Reason::Connecting => f.write_str("connecting"),
            Reason::Ready => f.write_str("ready"),
            Reason::Broken(native) => code(f, "connection broken", native),
            Reason::ConnectFailed(native) => code(f, "connect failed", native),
            Reason::TimedOut => f.write_str("connect timed out"),
            Reason::WrongIncarnation => f.write_str("another incarnation answered"),
            Reason::Incompatible => f.write_str("incompatible protocol"),
            Reason::Unresponsive => f.write_str("no heartbeat answered"),
            Reason::Replaced => f.write_str("address replaced"),
            Reason::NewIncarnation => f.write_str("this process took another incarnation"),
            Reason::Undrained => f.write_str("old connection not drained"),
            Reason::WaitingForPredecessor => f.write_str("waits for the name's former peer to be removed"),
            Reason::Removed => f.write_str("removed"),
            Reason::FailedTooLong => f.write_str("removed: it had failed for too long"),
            Reason::IdleTooLong => f.write_str("removed: nobody used it for too long"),
            Reason::ShutDown => f.write_str("table shut down"),
            Reason::Unknown => f.write_str("no such peer"),
            Reason::Unsettled => f.write_str("changing"),
            Reason::DriverDied => f.write_str("the table's driver died"),
            Reason::UsedAfterFork => fmt::Display::fmt(&UsedAfterFork, f),
        }
    }
}
