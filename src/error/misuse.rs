//! What a caller can do wrong wherever it is: use a table of before a `fork`, or wait for one on its own threads.

/// What was used is from before this process was forked: its threads and its sockets are the parent's. Nothing was done, and the
/// parent does not notice. Build a table of the child's own, with a transport of its own, or execute another program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("used after fork: its threads are the parent's; build a new table and transport in the child")]
pub struct UsedAfterFork;

/// A thread of the table asked to wait for the table: it would never end. Use the future instead, or another thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("waiting on a thread of the table would never end")]
pub struct WouldDeadlock;
