//! Lifecycle of remote peers for processes that move KV cache.
#![deny(unsafe_op_in_unsafe_fn)]
#![warn(missing_docs, missing_debug_implementations, unreachable_pub)]

mod bay;
mod builder;
mod clock;
mod close;
mod driver;
mod error;
mod gate;
mod grant;
mod inbox;
mod lane;
mod lease;
mod name;
mod names;
mod note;
mod peer;
mod policy;
mod pool;
mod queue;
mod record;
mod region;
mod shared;
mod shutdown;
mod slab;
mod slot;
mod slow;
mod snapshot;
mod state;
mod sync;
mod table;
mod ticket;
mod transfer;
pub mod transport;
mod wait;

pub use builder::Builder;
pub use clock::Clock;
pub use error::*;
pub use grant::{Access, Grant, GrantBook, Loan, Refusal, Revoked};
pub use inbox::{Inbox, Notification, Source};
pub use lease::Lease;
pub use name::{Incarnation, MAX_NAME, PeerId, PeerName};
pub use peer::{Peer, PeerStatus, Probe, Ready, Record, Removal, Removed};
pub use policy::Backoff;
pub use region::{Region, RegionId, Slice};
pub use state::{Generation, Phase};
pub use table::{PeerTable, Shutdown, ShutdownReport, Snapshot};
pub use transfer::{Completion, Outcome, Post, RemoteSlice, Transfer, TransferError, TransferId, TransferKind};
pub use transport::{
    Address, Capabilities, CloseContext, CloseReason, Closed, ConnectContext, Connected, DataPlane, ErrorClass,
    Liveness, ProbeContext, Reported, Reporter, Transport, TransportError,
};
