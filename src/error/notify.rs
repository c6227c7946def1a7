//! Why a notification was not accepted, and whether anything was sent.

use super::UsedAfterFork;
use crate::name::PeerName;
use crate::state::{Generation, Phase};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

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

/// Whether anything may have reached the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// Nothing left this process.
    No,
    /// Nobody can tell. Do not repeat blindly.
    Maybe,
}
