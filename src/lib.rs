//! The lifecycle of remote peers, for processes that move KV cache between machines.
//!
//! One [`PeerTable`] holds the peers of a process. Any thread or task takes a [`Lease`] of any peer at any time, in
//! nanoseconds and without waiting, and uses the peer's connection while it holds the lease. When a peer dies, exactly one
//! owner reconnects it; everybody else fails fast ([`Peer::lease`]) or waits by choice ([`Peer::ready`]); the old
//! connection is closed once, after its last lease, on a thread that sends nothing; and no other peer notices.
//!
//! # The problem
//!
//! A dictionary of peers, shared by threads, works until a peer restarts. Then two threads find it gone and both add it;
//! an error of the old connection removes the new one; a handle is released under a running transfer. A lock around
//! everything repairs that and makes each slow connect everybody's problem.
//!
//! # What is done instead
//!
//! Each attempt to connect has a [`Generation`], drawn from one counter of the table. A peer's state is one atomic word of
//! generation and phase; a lease is admitted by that word and counted in the gate of the one place that holds the
//! generation's connection. Whoever reports an error names the generation, so what comes late changes nothing. Only
//! connecting, closing and removing take a slow path, one peer at a time each.
//!
//! ```
//! use peerage::PeerTable;
//! use peerage::transport::memory::{Fabric, MemoryAddress};
//! use std::time::{Duration, Instant};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let fabric = Fabric::new();                                    // in-process; `Tcp` has real sockets
//! let table = PeerTable::builder(fabric.node("decode-0")).build()?;
//! let _other = PeerTable::builder(fabric.node("prefill-0")).build()?;
//!
//! let prefill = table.insert("prefill-0", MemoryAddress::new("prefill-0"))?;
//! prefill.wait_ready(Instant::now() + Duration::from_secs(10))?; // or `prefill.ready().await?`
//! let lease = prefill.lease()?;
//! lease.notify(b"pages ready")?;
//! let generation = lease.generation();
//! drop(lease);
//!
//! let broken = std::io::Error::other("its socket was reset");
//! prefill.report(generation, &broken);                           // this generation and no other
//! assert!(prefill.lease().is_err());                             // and that asked for one reconnect
//! # Ok(()) }
//! ```
//!
//! # Before using it
//!
//! Read [`docs::guarantees`] for what each operation promises and what "lock-free" covers, and [`docs::limitations`] for
//! what it does not do. [`docs::policy`] justifies every default, [`docs::performance`] says what costs what, [`docs::why`] why it is made like this,
//! [`docs::internals`] why it is right. [`docs::glossary`] has the words.

mod bay;
mod builder;
mod cancel;
mod clock;
mod close;
mod connects;
mod counters;
mod death;
pub mod docs;
mod driver;
mod error;
mod events;
mod fork;
mod gate;
mod grant;
mod held;
mod help;
mod history;
mod in_flight;
mod inbox;
mod insert;
#[cfg(peerage_loom)]
mod internal;
#[cfg(any(feature = "serde", feature = "tracing", feature = "metrics"))]
mod label;
mod lane;
mod latest;
mod lease;
mod local_faults;
#[cfg(feature = "metrics")]
pub mod metrics;
mod name;
mod names;
mod note;
mod observe;
mod peer;
mod policy;
mod pool;
mod probe;
mod quarantine;
mod queue;
mod ready;
mod record;
mod refusal;
mod region;
mod registration;
mod removal;
mod report;
mod restored;
mod send;
#[cfg(feature = "serde")]
mod serialize;
mod shared;
mod show;
mod shutdown;
mod slab;
mod slot;
mod slow;
mod state;
mod status;
mod sync;
mod table;
mod ticket;
#[cfg(feature = "tracing")]
mod trace;
mod transfer;
pub mod transport;
mod update;
mod visit;
mod wait;

pub use builder::Builder;
pub use cancel::{Cancel, Cancelled};
pub use clock::Clock;
pub use error::*;
pub use events::{Change, Event, Events};
pub use grant::{Access, Grant, GrantBook, HeldLoan, Loan, Refusal, Revoked};
pub use help::Help;
pub use history::Transition;
pub use inbox::{Inbox, Notification, Source};
pub use lease::Lease;
pub use name::{Incarnation, MAX_NAME, PeerId, PeerName};
pub use peer::Peer;
pub use policy::{Backoff, Breaker, Heartbeat};
pub use probe::Probe;
pub use ready::Ready;
pub use record::Record;
pub use region::{Region, RegionId, Slice};
pub use removal::{Removal, Removed};
pub use shutdown::{Shutdown, ShutdownReport};
pub use state::{Generation, Phase};
pub use status::{PeerStatus, Snapshot};
pub use table::PeerTable;
pub use ticket::Ticket;
pub use transfer::{Completion, Outcome, Post, RemoteSlice, Transfer, TransferError, TransferId, TransferKind};
pub use transport::{
    Address, Capabilities, CloseContext, CloseReason, Closed, ConnectContext, Connected, DataPlane, ErrorClass,
    Liveness, ProbeContext, Reported, Reporter, Transport, TransportError,
};
pub use update::Updated;

/// The README's example is compiled and run.
#[cfg(all(doctest, feature = "tcp"))]
#[doc = include_str!("../README.md")]
pub struct Readme;

/// What the models in `loom-tests` need of the private code.
#[cfg(peerage_loom)]
#[doc(hidden)]
pub mod __internal {
    pub use crate::internal::*;
}
