//! Why a transfer was not posted.

use super::{Sent, UsedAfterFork};
use crate::name::PeerName;
use crate::region::RegionId;
use crate::state::{Generation, Phase};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

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
