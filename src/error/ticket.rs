//! Why a caller was not elected to connect, or did not make its peer's connection.

use super::{ReadyError, UsedAfterFork};
use crate::name::PeerName;
use crate::state::{Generation, Phase};

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
