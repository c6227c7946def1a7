//! Why a peer's address was not replaced.

use super::UsedAfterFork;
use crate::name::PeerName;

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
