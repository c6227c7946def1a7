//! Why bytes are not of this protocol.

use super::VERSION;
use crate::state::Generation;

/// Why bytes are not of this protocol. The connection they came over is of no more use.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Something else talks on this port.
    #[error("does not speak the peerage protocol")]
    Magic,
    /// Run the same version of the library on both sides.
    #[error("speaks protocol version {theirs}, this process speaks {VERSION}")]
    Version {
        /// The version that was named.
        theirs: u16,
    },
    /// A nonce or a token is neither there nor not there.
    #[error("{flag} is neither 0 nor 1")]
    Flag {
        /// What was sent.
        flag: u8,
    },
    /// A name in a handshake is not one.
    #[error("a name in the handshake is not valid")]
    Name,
    /// An answer has a code this version does not know.
    #[error("unknown handshake code {code}")]
    Verdict {
        /// The code.
        code: u8,
    },
    /// The frame belongs to another connection.
    #[error("a frame of {theirs} on the connection of {ours}")]
    Generation {
        /// The frame's.
        theirs: Generation,
        /// The connection's.
        ours: Generation,
    },
    /// The body is longer or shorter than its kind allows.
    #[error("a frame of kind {kind} with {len} bytes, {min} to {max} are allowed")]
    Length {
        /// The frame's kind.
        kind: u8,
        /// What its header claims.
        len: u32,
        /// The least.
        min: usize,
        /// The most.
        max: usize,
    },
    /// An ack has a code this version does not know.
    #[error("unknown refusal {code}")]
    Refusal {
        /// The code.
        code: u8,
    },
}
