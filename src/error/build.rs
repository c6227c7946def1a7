//! Why a table was not built.

/// Why a table was not built.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The number of stripes is not a power of two from 1 to 64.
    #[error("stripes must be a power of two from 1 to 64, not {given}")]
    Stripes {
        /// What was asked for.
        given: usize,
    },
    /// A limit that must be at least one is zero.
    #[error("{limit} must be at least 1")]
    Zero {
        /// Which.
        limit: &'static str,
    },
    /// The operating system gave no thread. Raise its limit of threads or of memory, or build the table when others have ended.
    #[error("the table's driver thread could not be started; raise the limit of threads or of memory")]
    Thread(#[source] std::io::Error),
    /// The operating system has no memory to tell us of a `fork`.
    #[error("no handler for forks could be registered")]
    Fork(#[source] std::io::Error),
}
