//! Why a text is not a name.

use crate::name::MAX_NAME;

/// Why a text is not a name.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It has no characters.
    #[error("a peer's name must not be empty")]
    Empty,
    /// It does not fit a handshake.
    #[error("a peer's name has at most {MAX_NAME} bytes, this one has {bytes}")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// It would garble logs.
    #[error("the name \"{name}\" has a control character at byte {at}")]
    Control {
        /// The name, escaped.
        name: String,
        /// Where.
        at: usize,
    },
}
