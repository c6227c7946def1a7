//! The data path under the table: what a transport must do, may do, and promises.
//!
//! A [`Transport`] only connects and disconnects; the table decides when. A [`DataPlane`] also moves bytes. A user whose
//! data path is elsewhere (a NIXL agent in Python, HCCL) implements [`Transport`] alone and makes their own calls on
//! [`Lease::connection`](crate::Lease::connection), inside a lease.
//!
//! Connections are directed: a table opens its own, and what others open to this process is its transport's business. Where the
//! native side has one connection for both directions, [`crossed()`] decides between two that were dialled at once.

mod context;
mod counting;
mod crossed;
#[cfg(any(feature = "ucx", feature = "nixl"))]
mod exit;
#[cfg(feature = "tcp")]
pub mod frame;
#[cfg(any(feature = "tcp", feature = "nixl"))]
mod limits;
pub mod memory;
#[cfg(feature = "nixl")]
pub mod nixl;
mod stages;
#[cfg(feature = "tcp")]
pub mod tcp;
#[cfg(feature = "ucx")]
pub mod ucx;

#[cfg(all(feature = "ucx", target_endian = "big"))]
compile_error!("the feature `ucx` is for little-endian machines: it has been run on no other");
#[cfg(all(feature = "nixl", not(all(unix, target_endian = "little"))))]
compile_error!("the feature `nixl` is for little-endian machines with a Unix: there is no NIXL for others");

pub(crate) use context::ReportSink;
pub use context::{CloseContext, CloseReason, ConnectContext, ProbeContext, Reported, Reporter};
pub use counting::{Counted, Counting, PeerCounts};
pub use crossed::{Crossed, End, crossed};
pub use stages::{Staged, Stages};

use crate::grant::GrantBook;
use crate::inbox::Inbox;
use crate::name::{Incarnation, PeerName};
use crate::region::Region;
use crate::transfer::{Post, TransferId};
use std::fmt;
use std::time::{Duration, Instant};

/// Where a peer is. `Clone`, `Eq` and `Drop` may run on threads of the table, never while it holds a lock.
pub trait Address: Clone + Eq + fmt::Display + Send + Sync + 'static {
    /// The boot id this address was published with, if it names one. An attempt that meets another is undone with
    /// [`ReadyError::WrongIncarnation`](crate::ReadyError::WrongIncarnation).
    fn incarnation(&self) -> Option<Incarnation> {
        None
    }

    /// The boot id of the engine this process is a rank of, if the address names one: the same in all addresses that one
    /// start of the engine published. What [`PeerTable::insert_group`](crate::PeerTable::insert_group) checks.
    fn engine(&self) -> Option<Incarnation> {
        None
    }
}

/// An error of a transport. Its class decides what the table does; the rest is for people.
pub trait TransportError: std::error::Error + Send + Sync + 'static {
    /// Who is at fault, and whether anything may have been sent.
    fn class(&self) -> ErrorClass;
    /// The native library's own code, if there is one.
    fn native_code(&self) -> Option<i64> {
        None
    }
    /// Whether it says that the peer's process is gone, not only the way to it: a refused or a reset connection. The other
    /// ranks of its engine may be gone with it and are asked at once. A guess costs a probe.
    fn process_is_gone(&self) -> bool {
        false
    }
}

/// What an error means for the peer.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// The connection is of no more use; nothing more will get through. The table reports this generation.
    PeerBroken,
    /// Not now: a full queue or a limit. Nothing was sent, the peer is well, try again after this long.
    Busy {
        /// How long to wait before the next try.
        retry_after: Duration,
    },
    /// A fault on this side (no descriptors left, a bad argument). Nothing was sent; it never counts against a peer.
    Local,
    /// Something may have been sent, and nobody can tell. The connection is of no more use.
    OutcomeUnknown,
    /// The peer speaks another protocol or configuration. Trying again does not help until one side changes.
    Incompatible,
}

impl ErrorClass {
    /// Whether the generation it happened on is of no more use.
    pub(crate) fn breaks_the_connection(self) -> bool {
        matches!(self, ErrorClass::PeerBroken | ErrorClass::OutcomeUnknown | ErrorClass::Incompatible)
    }
}

/// What a transport can do. What is not in the set is never assumed.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Capabilities(u32);

impl Capabilities {
    /// Nothing beyond connect and disconnect.
    pub const NONE: Self = Capabilities(0);
    /// A new connection to a name may be opened while the old one is still draining. Without it the old one is closed first.
    pub const OVERLAP: Self = Capabilities(1);
    /// After `disconnect` returned, no transfer of that connection touches local memory any more.
    pub const CLOSE_QUIESCES: Self = Capabilities(1 << 1);
    /// There is a native close at all. The table does not ask for this one; it is for people and wrappers. A transport without
    /// it answers [`Closed::Leaked`] to every `disconnect`, which is counted; `Memory` does.
    pub const NATIVE_CLOSE: Self = Capabilities(1 << 2);
    /// `probe` tells alive from dead.
    pub const PROBE: Self = Capabilities(1 << 3);
    /// A connection goes on when its peer's address changes and the process behind it is the same. Without it the old one
    /// is retired first.
    pub const UPDATES_IN_PLACE: Self = Capabilities(1 << 4);

    const NAMES: [(Self, &'static str); 5] = [
        (Self::OVERLAP, "OVERLAP"),
        (Self::CLOSE_QUIESCES, "CLOSE_QUIESCES"),
        (Self::NATIVE_CLOSE, "NATIVE_CLOSE"),
        (Self::PROBE, "PROBE"),
        (Self::UPDATES_IN_PLACE, "UPDATES_IN_PLACE"),
    ];

    /// Both sets together.
    pub const fn with(self, more: Self) -> Self {
        Capabilities(self.0 | more.0)
    }

    /// This set less `fewer`.
    pub const fn without(self, fewer: Self) -> Self {
        Capabilities(self.0 & !fewer.0)
    }

    /// Whether all of `asked` is in this set.
    pub const fn contains(self, asked: Self) -> bool {
        self.0 & asked.0 == asked.0
    }
}

impl fmt::Debug for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = Self::NAMES.iter().filter(|(flag, _)| self.contains(*flag));
        f.write_str(&set.map(|(_, name)| *name).collect::<Vec<_>>().join(" | "))
    }
}

/// What `connect` made.
#[derive(Debug)]
pub struct Connected<C> {
    /// The live connection, all its parts.
    pub connection: C,
    /// The boot id the peer answered with, if the transport learns it.
    pub incarnation: Option<Incarnation>,
}

/// What became of a connection given to `disconnect`.
#[non_exhaustive]
#[derive(Debug)]
pub enum Closed<C> {
    /// The native side has taken everything back.
    Released,
    /// The native side had removed it already; nothing was left to do.
    AlreadyGone,
    /// The native side could not take it back; why. Counted, never silent.
    Leaked(&'static str),
    /// Not yet: call again with what is left.
    Retry(C),
}

/// Whether a connected peer answers.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// It answered.
    Alive,
    /// The connection is broken, or it did not answer before the probe's deadline.
    Dead,
    /// The transport cannot tell.
    Unknown,
}

/// Makes and ends connections. Without [`OVERLAP`](Capabilities::OVERLAP) no two of `connect` and `disconnect` run at once for
/// one peer; with it one `connect` may run beside closes of older connections. The table never calls one peer's while it holds
/// anything another peer waits for. Every call is caught: a panic is a failed attempt, or a leak that is counted.
///
/// The transport is dropped by whoever lets go of the table last. That may be a native thread of its own, inside
/// [`Reporter::report`], or when it completes or drops a [`Completion`](crate::Completion) or a held
/// [`Loan`](crate::Loan). So a `Drop` that joins native threads must leave out the one it runs on.
pub trait Transport: Send + Sync + 'static {
    /// Where a peer is.
    type Address: Address;
    /// One live native connection, all its parts. Used from many threads at once, inside leases. Its `Drop` runs on a
    /// closing thread, never on a sender's.
    type Connection: Send + Sync + 'static;
    /// Why a call failed.
    type Error: TransportError;

    /// The name this process is known by. A table refuses to insert it. `None`: the transport has no names.
    fn local_name(&self) -> Option<&PeerName> {
        None
    }

    /// Takes another boot id, introduces this process with it to whoever it connects to or is connected to by from here on, and
    /// ends the connections that others have opened, so that they come again. Answers the new one; `None`: this transport has
    /// none. Called by [`PeerTable::new_incarnation`](crate::PeerTable::new_incarnation), on its caller's thread. May block.
    fn new_incarnation(&self) -> Option<Incarnation> {
        None
    }

    /// What this transport can do. Must not change while a table uses it.
    fn capabilities(&self) -> Capabilities;

    /// Opens one connection. May block, up to [`ConnectContext::deadline`], on a connecting thread; should return soon
    /// after [`ConnectContext::is_cancelled`] turns true. Leaves nothing behind when it fails; where a connection is made of
    /// several parts, [`Stages`] sees to that.
    ///
    /// # Errors
    /// The attempt ends as failed for all who wait for it. The error's class decides what comes next:
    /// - [`ErrorClass::PeerBroken`], [`ErrorClass::OutcomeUnknown`], [`ErrorClass::Incompatible`]: a failed attempt of this
    ///   peer, which backs off.
    /// - [`ErrorClass::Busy`]: the peer is well, the next attempt may begin after `retry_after`.
    /// - [`ErrorClass::Local`]: this process is out of something. It counts against no peer, and **all** peers' attempts
    ///   wait a while; so an error that one peer's address or state can bring about must never have this class.
    fn connect(&self, cx: &ConnectContext, to: &Self::Address) -> Result<Connected<Self::Connection>, Self::Error>;

    /// Closes one connection. May block, on a closing thread. No lease of it is left, and no call; with `CLOSE_QUIESCES` transfers may
    /// be, and must be over when this returns.
    ///
    /// There is no error: what can't be taken back is [`Closed::Leaked`] and counted, what needs more time is
    /// [`Closed::Retry`], with all that is left, and the table calls again.
    fn disconnect(&self, cx: &CloseContext, connection: Self::Connection, why: CloseReason)
    -> Closed<Self::Connection>;

    /// Asks a connected peer whether it is alive. May block up to the probe's deadline, on a probing thread, under a lease.
    /// The answer goes to the caller of [`Peer::probe`](crate::Peer::probe), who decides, or ends or prolongs the silence that
    /// a [heartbeat](crate::Heartbeat) counts.
    fn probe(&self, cx: &ProbeContext, connection: &Self::Connection) -> Liveness {
        let _ = (cx, connection);
        Liveness::Unknown
    }

    /// The table has shut down: its connections are closed, or the shutdown's deadline has passed, and none will be opened.
    /// What this transport does for others, like serving connections that they opened, ends here; they should be told. Called
    /// once per shutdown, before registrations are taken back, on a thread that may block until `deadline`; one that has
    /// passed means: without waiting.
    fn end(&self, deadline: Instant) {
        let _ = deadline;
    }
}

/// Moves bytes over connections. The transport's own threads are enough for progress; who waits may add to it
/// ([`Completion::helped_by`](crate::Completion::helped_by)). `notify` and `post` never wait: a full
/// outbound queue is an error of class [`ErrorClass::Busy`] with nothing sent.
pub trait DataPlane: Transport {
    /// The most bytes one notification may carry.
    fn max_notification(&self) -> usize;

    /// Sends one message: at most once, in order per connection. `Ok` means accepted, not delivered; a receiver may drop what
    /// comes over one connection once a newer one of the same sender has come.
    ///
    /// # Errors
    /// The table hands the error to the caller and never sends again by itself. Of class [`ErrorClass::PeerBroken`],
    /// [`ErrorClass::OutcomeUnknown`] or [`ErrorClass::Incompatible`], it also reports the lease's generation. Of class
    /// [`ErrorClass::Busy`] (no room) or [`ErrorClass::Local`] (longer than
    /// [`max_notification`](Self::max_notification), say), nothing may have been sent, and the connection goes on.
    fn notify(&self, connection: &Self::Connection, message: &[u8]) -> Result<(), Self::Error>;

    /// Messages from everybody who connected to us, also from peers the table does not hold.
    fn inbox(&self) -> &Inbox;

    /// Makes a region known, so that its slices can be posted and lent. Registering twice is one registration. May block.
    ///
    /// # Errors
    /// The region is not registered, and nothing of an attempt is left behind. The caller gets the error; it counts against
    /// no peer.
    fn register(&self, region: &Region) -> Result<(), Self::Error>;

    /// Takes a registration back. The caller has seen to it that no transfer and no grant uses the region. May block.
    ///
    /// # Errors
    /// The region was not registered, or the native side did not let go of it. It counts as still registered then: the
    /// caller gets the error, a shutdown's report names the region.
    fn deregister(&self, region: &Region) -> Result<(), Self::Error>;

    /// Starts a read or a write. `Ok`: `post.completion` is completed, by this call, from a thread of the transport, or by
    /// who waits for it, when the transport no longer touches `post.local`. Never waits. A transport that can should say how far it
    /// is, by [`Completion::waits`](crate::Completion::waits), [`begins`](crate::Completion::begins) and
    /// [`progress`](crate::Completion::progress): without it a late transfer may always have been sent, and none is stalled.
    ///
    /// # Errors
    /// Nothing was sent, nothing touches `post.local`, and `post` was dropped, its completion unused. The table treats the
    /// error as one of [`notify`](Self::notify).
    fn post(&self, connection: &Self::Connection, post: Post) -> Result<(), Self::Error>;

    /// Gives up a transfer that was posted on this connection and whose completion has not come: the peer is told, so that
    /// neither side moves more of it than is under way. It changes nothing about the end: `completion` is completed when
    /// nothing touches the local pages any more, soon if the peer answers, with
    /// [`Refusal::Cancelled`](crate::Refusal::Cancelled) or with whatever came first. One that is over, or unknown, is left
    /// alone. Never waits; does nothing where the transport can't.
    ///
    /// The connection is open, and not closed before this returns, but it may be draining, and there may be no lease of it.
    fn cancel(&self, connection: &Self::Connection, transfer: TransferId) {
        let _ = (connection, transfer);
    }

    /// The pages lent to peers: what an inbound read or write is checked against.
    ///
    /// A grant is quiesced, and its page used again, when it is revoked and nothing that the book knows of is under way. It
    /// knows of copies that this process makes, by [`Loan::write`](crate::Loan::write) and [`Loan::read`](crate::Loan::read).
    /// A transport whose peers read or write our memory by themselves (one-sided RDMA) must tell it of each such access:
    /// 1. When a connection asks for access, [`present`](GrantBook::present) the grant and
    ///    [`hold`](crate::Loan::hold) the loan, *before* the peer is given the key or the go-ahead.
    /// 2. Drop what `hold` gave when the peer has acknowledged that its access is over, all of it landed; or once the
    ///    native side has proven that the connection carries nothing more (closed, key invalidated). An error, a timeout
    ///    or a revoke is no such proof.
    /// 3. Call [`inbound_closed`](GrantBook::inbound_closed) when the connection is closed, and not earlier.
    ///
    /// Until then `revoke()` does not resolve and the page stays in quarantine.
    fn grants(&self) -> &GrantBook;
}
