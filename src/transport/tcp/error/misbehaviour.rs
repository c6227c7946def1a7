//! What a peer did that no peer may do.

use crate::transfer::TransferId;
use crate::transport::frame::FrameError;

/// What a peer did that no peer may do. Its connection is dropped.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Misbehaviour {
    /// Its bytes are not frames.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// It ended in the middle of a frame.
    #[error("the connection ended in the middle of a frame")]
    Truncated,
    /// It does not know the shared secret.
    #[error("did not prove that it knows the shared secret")]
    Unproven,
    /// A frame that its side never sends.
    #[error("a frame that this side never sends")]
    WrongSide,
    /// A frame about a transfer that does not run, or not in this direction.
    #[error("transfer {} does not run", transfer.0)]
    NoSuchTransfer {
        /// The transfer.
        transfer: TransferId,
    },
    /// A transfer was called over before its bytes had come through, or more came than it has.
    #[error("transfer {} has another length than it said", transfer.0)]
    WrongLength {
        /// The transfer.
        transfer: TransferId,
    },
    /// More transfers at once than one connection may run.
    #[error("more than {limit} transfers at once")]
    TooManyTransfers {
        /// The most.
        limit: usize,
    },
}
