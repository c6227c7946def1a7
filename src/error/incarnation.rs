//! Why a process did not become another incarnation.

use super::UsedAfterFork;
use std::sync::Arc;

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
