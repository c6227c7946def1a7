//! What the table tells a transport with each call, and how a native thread tells the table of an error.

use super::TransportError;
use crate::name::{PeerId, PeerName};
use crate::state::Generation;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Where reports go: the table behind a [`Reporter`], without its types.
pub(crate) trait ReportSink: Send + Sync {
    fn report(&self, peer: PeerId, generation: Generation, error: &dyn TransportError) -> Reported;

    /// A part of a connection that did not come about was not taken back.
    fn leaked(&self, peer: PeerId, why: &'static str);
}

/// What a report did.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reported {
    /// The generation was current and is Failed now, by this call.
    Failed,
    /// The generation was not current, or had failed already: nothing changed.
    Stale,
    /// The error is not the peer's fault (busy, local): nothing changed.
    NotThePeer,
    /// This is a forked child, the table is the parent's: nothing changed.
    UsedAfterFork,
}

/// Reports one generation as broken, from any thread, also a native one. Never blocks, holds nothing alive.
#[derive(Clone)]
pub struct Reporter {
    sink: Option<Arc<dyn ReportSink>>,
    peer: PeerId,
    generation: Generation,
}

impl Reporter {
    pub(crate) fn new(sink: Arc<dyn ReportSink>, peer: PeerId, generation: Generation) -> Self {
        Reporter { sink: Some(sink), peer, generation }
    }

    /// The only generation this reporter can report.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Reports the generation, also before it is published: then its attempt fails. After this returns no new send is
    /// admitted on it, unless the answer is [`Reported::NotThePeer`].
    pub fn report(&self, error: &dyn TransportError) -> Reported {
        match &self.sink {
            Some(sink) => sink.report(self.peer, self.generation, error),
            None => Reported::Stale,
        }
    }
}

impl Reporter {
    /// Counts a part of a connection that did not come about, and is left over.
    pub(super) fn leaked(&self, why: &'static str) {
        if let Some(sink) = &self.sink {
            sink.leaked(self.peer, why);
        }
    }
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reporter")
            .field("peer", &self.peer)
            .field("generation", &self.generation)
            .finish_non_exhaustive()
    }
}

/// One attempt, as `connect` sees it.
#[derive(Debug, Clone)]
pub struct ConnectContext {
    name: PeerName,
    generation: Generation,
    deadline: Instant,
    cancelled: Arc<AtomicBool>,
    reporter: Reporter,
}

impl ConnectContext {
    pub(crate) fn new(name: PeerName, deadline: Instant, cancelled: Arc<AtomicBool>, reporter: Reporter) -> Self {
        ConnectContext { name, generation: reporter.generation, deadline, cancelled, reporter }
    }

    /// A context without a table, for calling a transport directly: in its own tests, or in a baseline to compare with.
    /// Its reports go nowhere and it is never cancelled.
    pub fn standalone(name: PeerName, generation: Generation, deadline: Instant) -> Self {
        let reporter = Reporter { sink: None, peer: PeerId::from_bits(0), generation };
        Self::new(name, deadline, Arc::default(), reporter)
    }

    /// The peer's name in the table.
    pub fn name(&self) -> &PeerName {
        &self.name
    }

    /// The generation this attempt will have.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// When the attempt ends as failed, whether or not `connect` has returned.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Whether nobody wants this connection any more: its attempt expired or was reported, its peer got another address or is
    /// being removed, or this process took another boot id.
    pub fn is_cancelled(&self) -> bool {
        // ord! Acquire: pairs with the Release in `slow::attempt::Connect::cancel`. In no model, for nothing of ours rests on it.
        self.cancelled.load(Ordering::Acquire)
    }

    /// For errors that come later, or earlier than `connect` returns, from a native thread.
    pub fn reporter(&self) -> &Reporter {
        &self.reporter
    }
}

/// One close, as `disconnect` sees it.
#[derive(Debug, Clone)]
pub struct CloseContext {
    /// The peer's name in the table.
    pub name: PeerName,
    /// The generation that ends.
    pub generation: Generation,
    /// When the close counts as overdue and gives up its place; it may still finish later.
    pub deadline: Instant,
}

/// Why a connection is closed.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// Its generation was reported, or answered no heartbeat.
    Failed,
    /// Its peer is being removed.
    Removed,
    /// It came too late: its attempt had expired, was reported, or was given up with its address, its peer or our boot id.
    Superseded,
    /// The peer answered with another incarnation than its address names.
    WrongIncarnation,
    /// Its peer has another address now, which may be another process.
    Replaced,
    /// This process has another boot id now: see [`PeerTable::new_incarnation`](crate::PeerTable::new_incarnation).
    NewIncarnation,
    /// The table shuts down.
    Shutdown,
}

/// One probe.
#[derive(Debug, Clone)]
pub struct ProbeContext {
    /// The peer's name in the table.
    pub name: PeerName,
    /// The generation that is asked.
    pub generation: Generation,
    /// When the answer counts as missing.
    pub deadline: Instant,
}
