//! Why an operation did not happen: one enum per operation, each saying whether anything was sent.

use crate::name::{MAX_NAME, PeerName};
use crate::region::RegionId;
use crate::state::{Generation, Phase};
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What was used is from before this process was forked: its threads and its sockets are the parent's. Nothing was done, and the
/// parent does not notice. Build a table of the child's own, with a transport of its own, or execute another program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("used after fork: its threads are the parent's; build a new table and transport in the child")]
pub struct UsedAfterFork;

/// Why a text is not a name.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It has no characters.
    #[error("a peer's name must not be empty")]
    Empty,
    /// It does not fit a handshake.
    #[error("a peer's name has at most {MAX_NAME} bytes, this one has {bytes}")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// It would garble logs.
    #[error("the name \"{name}\" has a control character at byte {at}")]
    Control {
        /// The name, escaped.
        name: String,
        /// Where.
        at: usize,
    },
}

/// A range outside its region or slice. Nothing was copied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes at {offset} are outside region {} of {region_len} bytes", region.0)]
pub struct OutOfRegion {
    /// The region.
    pub region: RegionId,
    /// Start of the range asked for.
    pub offset: usize,
    /// Its length.
    pub len: usize,
    /// The region's length.
    pub region_len: usize,
}

/// Why a table was not built.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The number of stripes is not a power of two from 1 to 64.
    #[error("stripes must be a power of two from 1 to 64, not {given}")]
    Stripes {
        /// What was asked for.
        given: usize,
    },
    /// A limit that must be at least one is zero.
    #[error("{limit} must be at least 1")]
    Zero {
        /// Which.
        limit: &'static str,
    },
    /// The operating system gave no thread. Raise its limit of threads or of memory, or build the table when others have ended.
    #[error("the table's driver thread could not be started; raise the limit of threads or of memory")]
    Thread(#[source] std::io::Error),
    /// The operating system has no memory to tell us of a `fork`.
    #[error("no handler for forks could be registered")]
    Fork(#[source] std::io::Error),
}

/// Why a peer was not inserted. The table is unchanged.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InsertError {
    /// The name is not one.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The name is our own.
    #[error("\"{name}\" is this process's own name; give every process its own")]
    OwnName {
        /// The name.
        name: PeerName,
    },
    /// The name is live with another address. Replace that by [`Peer::update`](crate::Peer::update); or, for a peer that has
    /// nothing to do with it, remove the old one: its name may be inserted again as soon as the removal has begun.
    #[error("peer \"{name}\" is live at {live}, not at {given}; update it, or remove it and insert it again")]
    NameConflict {
        /// The name.
        name: PeerName,
        /// The address the table has.
        live: String,
        /// The address that was given.
        given: String,
    },
    /// The table holds as many peers as it may.
    #[error("peer \"{name}\" not inserted: the table holds its {limit} peers; remove some or raise `max_peers`")]
    TooManyPeers {
        /// The name.
        name: PeerName,
        /// The table's limit.
        limit: usize,
    },
    /// The table is shut down, for ever. Insert it into another one.
    #[error("peer \"{name}\" not inserted: the table is shut down")]
    ShutDown {
        /// The name.
        name: PeerName,
    },
    /// This is a forked child, the table is the parent's: [`UsedAfterFork`](struct@UsedAfterFork).
    #[error("peer \"{name}\" not inserted: {}", UsedAfterFork)]
    UsedAfterFork {
        /// The name.
        name: PeerName,
    },
}

/// Why a group was not inserted. The table is unchanged.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GroupError {
    /// The group's name is not one, or a member can't be added.
    #[error(transparent)]
    Insert(#[from] InsertError),
    /// The members' addresses were published by different starts of an engine: some of them are out of date. Read them again.
    #[error("the members of \"{group}\" are not of one start of an engine: {}", list(members))]
    Mixed {
        /// The group.
        group: PeerName,
        /// All members.
        members: Vec<GroupMember>,
    },
}

/// A member of a group that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupMember {
    /// Its name.
    pub name: PeerName,
    /// The start of the engine that its address names.
    pub engine: Option<crate::Incarnation>,
    /// Its address.
    pub address: String,
}

fn list(members: &[GroupMember]) -> String {
    let line = |GroupMember { name, engine, address }: &GroupMember| match engine {
        Some(engine) => format!("{name} → {engine} → {address}"),
        None => format!("{name} → none → {address}"),
    };
    members.iter().map(line).collect::<Vec<_>>().join(", ")
}

/// Why a peer's address was not replaced. Nothing was changed.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpdateError {
    /// No peer has this name. Insert it.
    #[error("there is no peer \"{name}\" to update; insert it")]
    Unknown {
        /// The name.
        name: String,
    },
    /// The peer is being removed, or was. Insert the name again.
    #[error("peer \"{peer}\" is removed; insert it again")]
    Removed {
        /// The peer.
        peer: PeerName,
    },
    /// The table is shut down, for ever. Insert the peer into another one.
    #[error("peer \"{peer}\" not updated: the table is shut down")]
    ShutDown {
        /// The peer.
        peer: PeerName,
    },
    /// This is a forked child, the table is the parent's: [`UsedAfterFork`](struct@UsedAfterFork).
    #[error("peer \"{peer}\" not updated: {}", UsedAfterFork)]
    UsedAfterFork {
        /// The peer.
        peer: PeerName,
    },
}

/// Why a table's process did not become another incarnation. No peer was touched.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IncarnationError {
    /// The transport has no boot id of its own to replace. Build a new table over a new transport.
    #[error("the transport has no incarnation to replace; build a new table over a new transport")]
    Unsupported,
    /// The transport panicked. What it tells its peers is unknown: build a new table over a new transport.
    #[error("the transport panicked: {message}")]
    Panicked {
        /// The panic's message.
        message: Arc<str>,
    },
    /// The table is shut down.
    #[error("no new incarnation: the table is shut down")]
    ShutDown,
    /// This is a forked child, the table is the parent's.
    #[error(transparent)]
    UsedAfterFork(#[from] UsedAfterFork),
}

/// Why a lease was not granted. Nothing was sent. The lease that saw it has asked for a reconnect, if there is one to make.
/// It is small and `Copy`; whoever shows it to people adds the peer's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub struct NotReady {
    /// Where the peer stands.
    pub phase: Phase,
    /// The generation it stands at.
    pub generation: Generation,
    /// A hint: not before this will a reconnect start. Exact in [`ReadyError::BackingOff`].
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
    /// Leases or transfers of the last generation were not given back before the drain deadline.
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
    /// The old connection is still in use and this transport does not allow two. Give back failed leases before waiting.
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

/// Why a caller was not elected to connect. Nothing was changed.
#[non_exhaustive]
#[derive(Debug, Clone, thiserror::Error)]
pub enum NotElected {
    /// The peer is ready. Take a lease.
    #[error("peer \"{peer}\" is ready at {generation}")]
    Ready {
        /// The peer.
        peer: PeerName,
        /// Its generation.
        generation: Generation,
    },
    /// Somebody else connects it, or a native connect whose attempt has ended has not returned. Join with
    /// [`Peer::ready`](crate::Peer::ready).
    #[error("peer \"{peer}\": attempt {generation} is connecting")]
    Connecting {
        /// The peer.
        peer: PeerName,
        /// The attempt.
        generation: Generation,
    },
    /// No attempt may start now, for this reason: what `ready()` would have answered.
    #[error(transparent)]
    NotNow(#[from] ReadyError),
}

/// Why a connection did not become its peer's current one. It is being closed.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// The attempt had ended: it expired or was reported, or its peer got another address or was removed.
    #[error("peer \"{peer}\": attempt {generation} had ended; the peer is {phase} now")]
    Superseded {
        /// The peer.
        peer: PeerName,
        /// The attempt.
        generation: Generation,
        /// Where the peer stands.
        phase: Phase,
    },
    /// Another process answered than the address names. The attempt has failed for all who wait. Hand the address that the
    /// process publishes now to [`Peer::update`](crate::Peer::update).
    #[error("peer \"{peer}\": address names incarnation {named}, {known} answered; update the address")]
    WrongIncarnation {
        /// The peer.
        peer: PeerName,
        /// What the address names.
        named: crate::Incarnation,
        /// What answered.
        known: crate::Incarnation,
    },
    /// This is a forked child, the ticket is the parent's: [`UsedAfterFork`](struct@UsedAfterFork). The connection is neither
    /// published nor closed.
    #[error("peer \"{peer}\": {}", UsedAfterFork)]
    UsedAfterFork {
        /// The peer.
        peer: PeerName,
    },
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

/// Whether anything may have reached the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// Nothing left this process.
    No,
    /// Nobody can tell. Do not repeat blindly.
    Maybe,
}

/// Why a notification was not accepted.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum NotifyError<E: Error + 'static> {
    /// Longer than the transport carries. Nothing was sent; split it, or write it into a granted page.
    #[error("{len} bytes to \"{peer}\": a notification has at most {max}")]
    TooLong {
        /// The peer.
        peer: PeerName,
        /// What was given.
        len: usize,
        /// What fits.
        max: usize,
    },
    /// The lease's generation is no longer current. Nothing was sent; fail the request and take a new lease.
    #[error("peer \"{peer}\": the lease is of {have}, which is no longer current; the peer is {phase} at {now}")]
    StaleGeneration {
        /// The peer.
        peer: PeerName,
        /// The lease's.
        have: Generation,
        /// The peer's; the same if it has failed and not been replaced yet.
        now: Generation,
        /// Where the peer stands.
        phase: Phase,
    },
    /// The outbound queue is full. Nothing was sent; try again later.
    #[error("peer \"{peer}\" is busy; try again in {retry_after:?}")]
    Busy {
        /// The peer.
        peer: PeerName,
        /// When.
        retry_after: Duration,
    },
    /// The connection broke; its generation has been reported by this call. Fail the request.
    #[error("peer \"{peer}\": {generation} is broken")]
    PeerBroken {
        /// The peer.
        peer: PeerName,
        /// The generation.
        generation: Generation,
        /// The transport's error.
        #[source]
        source: E,
        /// Whether anything may have been sent.
        sent: Sent,
    },
    /// A fault on this side. Nothing was sent, and the peer is not to blame.
    #[error("local fault while sending to \"{peer}\"")]
    Local {
        /// The peer.
        peer: PeerName,
        /// The transport's error.
        #[source]
        source: E,
    },
    /// The transport panicked; the generation has been reported. Anything may have been sent.
    #[error("peer \"{peer}\": the transport panicked: {message}")]
    Panicked {
        /// The peer.
        peer: PeerName,
        /// The panic's message.
        message: Arc<str>,
    },
    /// This is a forked child, the lease is the parent's: [`UsedAfterFork`](struct@UsedAfterFork).
    #[error("peer \"{peer}\": {}", UsedAfterFork)]
    UsedAfterFork {
        /// The peer.
        peer: PeerName,
    },
}

impl<E: Error + 'static> NotifyError<E> {
    /// Whether anything may have been sent.
    pub fn sent(&self) -> Sent {
        match self {
            NotifyError::PeerBroken { sent, .. } => *sent,
            NotifyError::Panicked { .. } => Sent::Maybe,
            _ => Sent::No,
        }
    }
}

/// Why a transfer was not posted. Nothing was sent unless a variant says so.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum PostError<E: Error + 'static> {
    /// The local and the remote slice differ in length. Take a [`slice`](crate::Slice::slice) of one that is as long as the other.
    #[error("transfer with \"{peer}\": {local} bytes here, {remote} there; give slices of one length")]
    Length {
        /// The peer.
        peer: PeerName,
        /// Of the local slice.
        local: u64,
        /// Of the remote slice.
        remote: u64,
    },
    /// The local slice's region is not registered with this table. Register it first.
    #[error("transfer with \"{peer}\": region {} is not registered; register it first", region.0)]
    NotRegistered {
        /// The peer.
        peer: PeerName,
        /// The region.
        region: RegionId,
    },
    /// The peer has as many transfers in flight or in quarantine as it may. Wait for some, or raise `max_transfers_per_peer`.
    #[error(
        "peer \"{peer}\" has its {limit} transfers in flight or in quarantine; wait for some or raise `max_transfers_per_peer`"
    )]
    TooManyTransfers {
        /// The peer.
        peer: PeerName,
        /// The table's limit per peer.
        limit: usize,
    },
    /// The peer keeps as many bytes of ours in quarantine as it may: pages of transfers that have ended and of grants that
    /// were revoked, which it may still touch. Report its generation, or remove the peer: the close of its connections gives
    /// them back.
    #[error(
        "peer \"{peer}\" keeps {bytes} bytes in quarantine, of at most {limit}: report its generation, or remove it"
    )]
    Quarantined {
        /// The peer.
        peer: PeerName,
        /// What it keeps.
        bytes: u64,
        /// The table's limit per peer.
        limit: u64,
    },
    /// The lease's generation is no longer current; fail the request and take a new lease.
    #[error("peer \"{peer}\": the lease is of {have}, which is no longer current; the peer is {phase} at {now}")]
    StaleGeneration {
        /// The peer.
        peer: PeerName,
        /// The lease's.
        have: Generation,
        /// The peer's; the same if it has failed and not been replaced yet.
        now: Generation,
        /// Where the peer stands.
        phase: Phase,
    },
    /// The outbound queue is full; try again later.
    #[error("peer \"{peer}\" is busy; try again in {retry_after:?}")]
    Busy {
        /// The peer.
        peer: PeerName,
        /// When.
        retry_after: Duration,
    },
    /// The connection broke; its generation has been reported by this call.
    #[error("peer \"{peer}\": {generation} is broken")]
    PeerBroken {
        /// The peer.
        peer: PeerName,
        /// The generation.
        generation: Generation,
        /// The transport's error.
        #[source]
        source: E,
        /// Whether anything may have been sent.
        sent: Sent,
    },
    /// A fault on this side; the peer is not to blame.
    #[error("local fault while posting to \"{peer}\"")]
    Local {
        /// The peer.
        peer: PeerName,
        /// The transport's error.
        #[source]
        source: E,
    },
    /// The transport panicked; the generation has been reported. Anything may have been sent.
    #[error("peer \"{peer}\": the transport panicked: {message}")]
    Panicked {
        /// The peer.
        peer: PeerName,
        /// The panic's message.
        message: Arc<str>,
    },
    /// This is a forked child, the lease is the parent's: [`UsedAfterFork`](struct@UsedAfterFork).
    #[error("peer \"{peer}\": {}", UsedAfterFork)]
    UsedAfterFork {
        /// The peer.
        peer: PeerName,
    },
}

impl<E: Error + 'static> PostError<E> {
    /// Whether anything may have been sent.
    pub fn sent(&self) -> Sent {
        match self {
            PostError::PeerBroken { sent, .. } => *sent,
            PostError::Panicked { .. } => Sent::Maybe,
            _ => Sent::No,
        }
    }
}

/// Why a region was not registered or deregistered.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum RegisterError<E: Error + 'static> {
    /// The table is shut down, for ever. Register with another table.
    #[error("region {} not registered: the table is shut down", region.0)]
    ShutDown {
        /// The region.
        region: RegionId,
    },
    /// Transfers or grants still use it. Wait for them, revoke them.
    #[error("region {} is in use by {transfers} transfers and {grants} grants", region.0)]
    InUse {
        /// The region.
        region: RegionId,
        /// Transfers that are not quiescent.
        transfers: usize,
        /// Grants that are not quiesced.
        grants: usize,
    },
    /// It is not registered here, or no longer: there is nothing to take back.
    #[error("region {} is not registered, there is nothing to take back", region.0)]
    NotRegistered {
        /// The region.
        region: RegionId,
    },
    /// The transport panicked, a bug of it; the region is listed as it was before. Call again, or go on without it.
    #[error("region {}: the transport panicked: {message}", region.0)]
    Panicked {
        /// The region.
        region: RegionId,
        /// The panic's message.
        message: Arc<str>,
    },
    /// The transport refused; the region is listed as it was before. `source()` says why; when that is mended, call again.
    #[error("the transport refused for region {}", region.0)]
    Transport {
        /// The region.
        region: RegionId,
        /// Why.
        #[source]
        source: E,
    },
    /// This is a forked child, the table is the parent's: [`UsedAfterFork`](struct@UsedAfterFork).
    #[error("region {}: {}", region.0, UsedAfterFork)]
    UsedAfterFork {
        /// The region.
        region: RegionId,
    },
}

/// Why a page was not lent.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    /// The page's region is not registered with this table. Register it first.
    #[error("page not lent to \"{peer}\": region {} is not registered; register it first", region.0)]
    NotRegistered {
        /// The peer.
        peer: PeerName,
        /// The region.
        region: RegionId,
    },
    /// The peer keeps as many bytes of ours in quarantine as it may: pages of grants that were revoked and of transfers that
    /// have ended, which it may still touch. Where they are of grants, the peer's own connection to us must end, as by its
    /// transport's keepalive; where they are of transfers, report its generation, or remove the peer.
    #[error("page not lent to \"{peer}\", which keeps {bytes} bytes in quarantine, of at most {limit}")]
    Quarantined {
        /// The peer.
        peer: PeerName,
        /// What it keeps.
        bytes: u64,
        /// The table's limit per peer.
        limit: u64,
    },
    /// The table is shut down, for ever. Lend it through another table.
    #[error("page not lent to \"{peer}\": the table is shut down")]
    ShutDown {
        /// The peer.
        peer: PeerName,
    },
    /// This is a forked child, the table is the parent's: [`UsedAfterFork`](struct@UsedAfterFork).
    #[error("page not lent to \"{peer}\": {}", UsedAfterFork)]
    UsedAfterFork {
        /// The peer.
        peer: PeerName,
    },
}

/// A thread of the table asked to wait for the table: it would never end. Use the future instead, or another thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("waiting on a thread of the table would never end")]
pub struct WouldDeadlock;

impl From<std::convert::Infallible> for InsertError {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}
