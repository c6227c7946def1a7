//! A transport whose connections notice a use that does not come before their close, and what all models start from.

use crate::thread;
use loom::cell::UnsafeCell;
use peerage::__internal::{Model, enter, use_stripe};
use peerage::{
    Address, Capabilities, Clock, CloseContext, CloseReason, Closed, Completion, ConnectContext, Connected, DataPlane,
    ErrorClass, Generation, GrantBook, Heartbeat, Inbox, Incarnation, Lease, Liveness, Peer, PeerName, Phase, Post,
    ProbeContext, Region, RemoteSlice, Reported, TransferId, Transport, TransportError,
};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// What the transport did. Counted by atomics that loom does not see, so counting orders nothing in a model.
pub(crate) struct Log {
    pub(crate) opened: AtomicUsize,
    pub(crate) closed: AtomicUsize,
    most_open: AtomicUsize,
    /// From here on every attempt fails.
    pub(crate) fails: AtomicBool,
    /// A native thread of each attempt reports it while it connects.
    pub(crate) reports_early: AtomicBool,
    /// Those threads, and what their reports did.
    pub(crate) natives: Mutex<Vec<thread::JoinHandle<Reported>>>,
    /// The generation that answers a probe; the others are silent.
    pub(crate) alive: AtomicU64,
    /// Each generation that was asked, once per native call.
    probed: Mutex<Vec<Generation>>,
    /// Of those, how many came to an answer: the table catches what a failed check panics with.
    answered: AtomicUsize,
    /// As whom connects introduce us.
    process: AtomicU64,
    /// Posted and not completed.
    pub(crate) posted: Mutex<Vec<Completion>>,
    registered: AtomicBool,
    /// The local pages: used by each transfer, written when their registration is taken back. loom reports a use that is not
    /// ordered before that.
    pub(crate) pages: UnsafeCell<()>,
}

// SAFETY: every access of `pages` is checked by loom, which fails the model on a race.
unsafe impl Sync for Log {}

impl Log {
    fn new() -> Self {
        Log {
            opened: AtomicUsize::new(0),
            closed: AtomicUsize::new(0),
            most_open: AtomicUsize::new(0),
            fails: AtomicBool::new(false),
            reports_early: AtomicBool::new(false),
            natives: Mutex::default(),
            alive: AtomicU64::new(0),
            probed: Mutex::default(),
            answered: AtomicUsize::new(0),
            process: AtomicU64::new(0),
            posted: Mutex::default(),
            registered: AtomicBool::new(false),
            pages: UnsafeCell::new(()),
        }
    }

    pub(crate) fn is_registered(&self) -> bool {
        self.registered.load(SeqCst)
    }

    pub(crate) fn open_connections(&self) -> usize {
        self.opened.load(SeqCst) - self.closed.load(SeqCst)
    }

    pub(crate) fn was_probed(&self, generation: Generation) -> bool {
        self.probed.lock().unwrap().contains(&generation)
    }

    /// The most connections that were open at once.
    pub(crate) fn most_open(&self) -> usize {
        self.most_open.load(SeqCst)
    }
}

pub(crate) struct Wire {
    capabilities: Capabilities,
    log: Arc<Log>,
    /// Seen by loom, so that it tries connects that overlap; relaxed, so that it orders nothing.
    connecting: loom::sync::atomic::AtomicUsize,
    inbox: Inbox,
    grants: GrantBook,
}

/// One native connection.
pub(crate) struct Connection {
    to: PeerName,
    generation: Generation,
    introduced: Incarnation,
    /// Read by each use, written by the close: loom reports a use that is not ordered before it.
    memory: UnsafeCell<()>,
    log: Arc<Log>,
}

// SAFETY: every access of `memory` is checked by loom, which fails the model on a race.
unsafe impl Sync for Connection {}

impl Drop for Connection {
    fn drop(&mut self) {
        self.memory.with_mut(|_| ());
        self.log.closed.fetch_add(1, SeqCst);
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Where {
    Here,
    There,
    /// Elsewhere, and known to be the same process.
    Moved,
}

pub(crate) use Where::{Here, Moved, There};

const PROCESS: Incarnation = Incarnation(1);

impl fmt::Display for Where {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl Address for Where {
    fn incarnation(&self) -> Option<Incarnation> {
        (*self == Moved).then_some(PROCESS)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Broken(pub(crate) &'static str);

impl TransportError for Broken {
    fn class(&self) -> ErrorClass {
        ErrorClass::PeerBroken
    }
}

impl Transport for Wire {
    type Address = Where;
    type Connection = Connection;
    type Error = Broken;

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn connect(&self, cx: &ConnectContext, _to: &Where) -> Result<Connected<Connection>, Broken> {
        use loom::sync::atomic::Ordering::Relaxed;
        assert_eq!(self.connecting.fetch_add(1, Relaxed), 0, "two native connects of one peer at once");
        self.connecting.fetch_sub(1, Relaxed);
        if self.log.reports_early.load(SeqCst) {
            let reporter = cx.reporter().clone();
            self.log.natives.lock().unwrap().push(thread::spawn(move || reporter.report(&Broken("early"))));
        }
        if self.log.fails.load(SeqCst) {
            return Err(Broken("refused"));
        }
        self.log.opened.fetch_add(1, SeqCst);
        self.log.most_open.fetch_max(self.log.open_connections(), SeqCst);
        let (to, log) = (cx.name().clone(), self.log.clone());
        let introduced = Incarnation(log.process.load(SeqCst));
        let connection = Connection { to, generation: cx.generation(), introduced, memory: UnsafeCell::new(()), log };
        let named = self.capabilities.contains(Capabilities::UPDATES_IN_PLACE);
        Ok(Connected { connection, incarnation: named.then_some(PROCESS) })
    }

    fn disconnect(&self, _cx: &CloseContext, connection: Connection, _why: CloseReason) -> Closed<Connection> {
        drop(connection);
        Closed::Released
    }

    fn probe(&self, cx: &ProbeContext, connection: &Connection) -> Liveness {
        self.log.probed.lock().unwrap().push(cx.generation);
        connection.memory.with(|_| ());
        self.log.answered.fetch_add(1, SeqCst);
        match self.log.alive.load(SeqCst) == cx.generation.0 {
            true => Liveness::Alive,
            false => Liveness::Dead,
        }
    }

    fn new_incarnation(&self) -> Option<Incarnation> {
        Some(Incarnation(self.log.process.fetch_add(1, SeqCst) + 1))
    }
}

impl DataPlane for Wire {
    fn max_notification(&self) -> usize {
        0
    }

    fn notify(&self, _connection: &Connection, _message: &[u8]) -> Result<(), Broken> {
        Ok(())
    }

    fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    fn register(&self, _region: &Region) -> Result<(), Broken> {
        self.log.registered.store(true, SeqCst);
        Ok(())
    }

    fn deregister(&self, _region: &Region) -> Result<(), Broken> {
        assert!(self.log.posted.lock().unwrap().is_empty(), "deregistered under a transfer");
        self.log.pages.with_mut(|_| ());
        self.log.registered.store(false, SeqCst);
        Ok(())
    }

    fn post(&self, connection: &Connection, post: Post) -> Result<(), Broken> {
        assert!(self.log.is_registered(), "posted from a region that is not registered");
        connection.memory.with(|_| ());
        self.log.pages.with(|_| ());
        self.log.posted.lock().unwrap().push(post.completion);
        Ok(())
    }

    fn cancel(&self, connection: &Connection, _transfer: TransferId) {
        connection.memory.with(|_| ());
    }

    fn grants(&self) -> &GrantBook {
        &self.grants
    }
}

/// A table with one peer, shared by the threads of a model.
pub(crate) struct World {
    pub(crate) table: Model<Wire>,
    pub(crate) peer: Peer<Wire>,
    pub(crate) log: Arc<Log>,
}

impl World {
    /// The peer is Idle. Without `OVERLAP` its next connection is made in the same bay.
    pub(crate) fn new(capabilities: Capabilities, stripes: usize) -> Self {
        Self::with_heartbeat(capabilities, stripes, None)
    }

    /// The same where the table asks whether its peers are alive.
    pub(crate) fn with_heartbeat(capabilities: Capabilities, stripes: usize, heartbeat: Option<Heartbeat>) -> Self {
        let log = Arc::new(Log::new());
        let wire = Wire {
            capabilities,
            log: log.clone(),
            connecting: loom::sync::atomic::AtomicUsize::new(0),
            inbox: Inbox::new(Clock::manual()),
            grants: GrantBook::new(Clock::manual()),
        };
        let table = Model::with_heartbeat(wire, stripes, heartbeat);
        let peer = table.table().insert("p", Here).expect("inserted");
        World { table, peer, log }
    }

    /// The peer is Ready; answers its generation too.
    pub(crate) fn ready(capabilities: Capabilities, stripes: usize) -> (Arc<Self>, Generation) {
        Self::new(capabilities, stripes).into_ready()
    }

    pub(crate) fn into_ready(self) -> (Arc<Self>, Generation) {
        self.ask();
        self.table.run();
        let generation = self.peer.generation();
        (Arc::new(self), generation)
    }

    /// An attempt of the peer has been elected; who runs it connects.
    pub(crate) fn connecting() -> Arc<Self> {
        let world = Self::new(Capabilities::NONE, 1);
        world.ask();
        while world.table.look() {}
        assert_eq!(world.peer.phase(), Phase::Connecting);
        Arc::new(world)
    }

    /// The peer has failed once, and every attempt does.
    pub(crate) fn failed() -> (Arc<Self>, Generation) {
        let world = Self::new(Capabilities::NONE, 1);
        world.log.fails.store(true, SeqCst);
        world.ask();
        world.table.run();
        let generation = world.peer.generation();
        (Arc::new(world), generation)
    }

    /// A lease that is refused asks for a connect.
    pub(crate) fn ask(&self) {
        drop(self.peer.lease());
    }

    /// One lease, one use, one leave. Answers the generation used. A refused one asks for nothing: wanted.rs.
    pub(crate) fn send(&self) -> Option<Generation> {
        enter(&self.peer).map(|lease| use_lease(&lease, "p"))
    }

    /// As whom the peer's current connection has introduced us.
    pub(crate) fn introduced(&self) -> Option<Incarnation> {
        enter(&self.peer).map(|lease| lease.connection().introduced)
    }

    /// A thread that sends once, on `stripe`.
    pub(crate) fn sender(self: &Arc<Self>, stripe: u32) -> thread::JoinHandle<Option<Generation>> {
        let world = self.clone();
        thread::spawn(move || {
            use_stripe(stripe);
            world.send()
        })
    }

    pub(crate) fn report(&self, generation: Generation) -> bool {
        self.peer.report(generation, &Broken("reported")) == peerage::Reported::Failed
    }

    /// Ends the table: all must be drained, closed and counted back.
    pub(crate) fn end(self: Arc<Self>) {
        let Some(World { table, peer, log }) = Arc::into_inner(self) else { panic!("a thread is not over") };
        drop(peer);
        table.end();
        let probed = log.probed.lock().unwrap().len();
        assert_eq!(log.answered.load(SeqCst), probed, "a connection was closed under a probe");
        assert_eq!(log.open_connections(), 0, "a connection was lost");
    }
}

/// A page of the peer's.
pub(crate) fn remote() -> RemoteSlice {
    RemoteSlice { grant: 1, region: 1, offset: 0, len: 1 }
}

/// Uses the lease's connection; answers its generation.
pub(crate) fn use_lease(lease: &Lease<Wire>, peer: &str) -> Generation {
    let connection = lease.connection();
    connection.memory.with(|_| ());
    assert_eq!(connection.generation, lease.generation(), "used another generation's connection");
    assert_eq!(connection.to.as_str(), peer, "a message for one peer went to another");
    lease.generation()
}
