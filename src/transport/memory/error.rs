//! What goes wrong in memory, by itself or because a test asked for it.

use crate::name::PeerName;
use crate::region::RegionId;
use crate::state::Generation;
use crate::transport::{ErrorClass, TransportError};
use std::sync::Arc;
use std::time::Duration;

/// Why a call on a [`Memory`](super::Memory) failed.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// No node of this name lives in the fabric. Make it, or revive it.
    #[error("connect to \"{peer}\" refused: no node \"{node}\" lives in the fabric")]
    Refused {
        /// The peer.
        peer: PeerName,
        /// The node its address names.
        node: Arc<str>,
    },
    /// A held connect gave up, because it was cancelled or its deadline passed; or this node itself is killed.
    #[error("no answer from \"{peer}\"")]
    NoAnswer {
        /// The peer.
        peer: PeerName,
    },
    /// The connection is dead: killed, broken by the test, or closed.
    #[error("the connection {generation} to \"{peer}\" is broken")]
    Broken {
        /// The peer.
        peer: PeerName,
        /// The connection's generation.
        generation: Generation,
    },
    /// The connection holds as many messages or transfers as it may. Nothing was sent; try again later.
    #[error("the connection to \"{peer}\" has its {capacity} messages or transfers waiting")]
    Full {
        /// The peer.
        peer: PeerName,
        /// The limit.
        capacity: usize,
    },
    /// Longer than a notification may be. Nothing was sent; split it.
    #[error("{len} bytes to \"{peer}\": a notification has at most {max}")]
    TooLong {
        /// The peer.
        peer: PeerName,
        /// What was given.
        len: usize,
        /// What fits.
        max: usize,
    },
    /// The region is not registered with this node. Register it first.
    #[error("region {} is not registered", region.0)]
    NotRegistered {
        /// The region.
        region: RegionId,
    },
    /// A test asked for this error.
    #[error("{message}")]
    Asked {
        /// What the table is to make of it.
        class: ErrorClass,
        /// The test's own words; the reason when a close leaks.
        message: &'static str,
        /// The code a native library would have given.
        native_code: Option<i64>,
    },
}

impl MemoryError {
    /// An error for a test to ask for.
    pub fn new(class: ErrorClass, message: &'static str) -> Self {
        MemoryError::Asked { class, message, native_code: None }
    }

    /// The error of a dead peer, for a test to ask for.
    pub fn peer_broken(message: &'static str) -> Self {
        Self::new(ErrorClass::PeerBroken, message)
    }

    /// The same error with a native code, if it is one that a test made.
    pub fn with_native_code(mut self, code: i64) -> Self {
        if let MemoryError::Asked { native_code, .. } = &mut self {
            *native_code = Some(code);
        }
        self
    }
}

impl TransportError for MemoryError {
    fn class(&self) -> ErrorClass {
        match self {
            MemoryError::Refused { .. } | MemoryError::NoAnswer { .. } | MemoryError::Broken { .. } => {
                ErrorClass::PeerBroken
            }
            MemoryError::Full { .. } => ErrorClass::Busy { retry_after: Duration::from_millis(1) },
            MemoryError::TooLong { .. } | MemoryError::NotRegistered { .. } => ErrorClass::Local,
            MemoryError::Asked { class, .. } => *class,
        }
    }

    fn process_is_gone(&self) -> bool {
        matches!(self, MemoryError::Refused { .. } | MemoryError::Broken { .. })
    }

    fn native_code(&self) -> Option<i64> {
        match self {
            MemoryError::Asked { native_code, .. } => *native_code,
            _ => None,
        }
    }
}
