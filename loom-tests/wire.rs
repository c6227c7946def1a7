//! A transport whose connections notice a use that does not come before their close, and what all models start from.

use loom::cell::UnsafeCell;
use loom::thread;
use peerage::__internal::{Model, enter, use_stripe};
use peerage::{
    Address, Capabilities, Clock, CloseContext, CloseReason, Closed, Completion, ConnectContext, Connected, DataPlane,
    ErrorClass, Generation, GrantBook, Inbox, Lease, Peer, PeerName, Post, Region, Transport, TransportError,
};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// What the transport did. Counted by atomics that loom does not see, so counting orders nothing in a model.
#[derive(Default)]
pub(crate) struct Log {
    pub(crate) opened: AtomicUsize,
    pub(crate) closed: AtomicUsize,
    /// From here on every attempt fails.
    pub(crate) fails: AtomicBool,
    /// Posted and not completed.
    pub(crate) posted: Mutex<Vec<Completion>>,
}

impl Log {
    pub(crate) fn open_connections(&self) -> usize {
        self.opened.load(SeqCst) - self.closed.load(SeqCst)
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

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Here;

impl fmt::Display for Here {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("here")
    }
}

impl Address for Here {}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Broken(pub(crate) &'static str);

impl TransportError for Broken {
    fn class(&self) -> ErrorClass {
        ErrorClass::PeerBroken
    }
}

impl Transport for Wire {
    type Address = Here;
    type Connection = Connection;
    type Error = Broken;

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn connect(&self, cx: &ConnectContext, _to: &Here) -> Result<Connected<Connection>, Broken> {
        use loom::sync::atomic::Ordering::Relaxed;
        assert_eq!(self.connecting.fetch_add(1, Relaxed), 0, "two native connects of one peer at once");
        self.connecting.fetch_sub(1, Relaxed);
        if self.log.fails.load(SeqCst) {
            return Err(Broken("refused"));
        }
        self.log.opened.fetch_add(1, SeqCst);
        let (to, log) = (cx.name().clone(), self.log.clone());
        let connection = Connection { to, generation: cx.generation(), memory: UnsafeCell::new(()), log };
        Ok(Connected { connection, incarnation: None })
    }

    fn disconnect(&self, _cx: &CloseContext, connection: Connection, _why: CloseReason) -> Closed<Connection> {
        drop(connection);
        Closed::Released
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
        Ok(())
    }

    fn deregister(&self, _region: &Region) -> Result<(), Broken> {
        Ok(())
    }

    fn post(&self, connection: &Connection, post: Post) -> Result<(), Broken> {
        connection.memory.with(|_| ());
        self.log.posted.lock().unwrap().push(post.completion);
        Ok(())
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
        let log = Arc::new(Log::default());
        let wire = Wire {
            capabilities,
            log: log.clone(),
            connecting: loom::sync::atomic::AtomicUsize::new(0),
            inbox: Inbox::new(Clock::manual()),
            grants: GrantBook::new(Clock::manual()),
        };
        let table = Model::new(wire, stripes);
        let peer = table.table().insert("p", Here).expect("inserted");
        World { table, peer, log }
    }

    /// The peer is Ready; answers its generation too.
    pub(crate) fn ready(capabilities: Capabilities, stripes: usize) -> (Arc<Self>, Generation) {
        let world = Self::new(capabilities, stripes);
        world.ask();
        world.table.run();
        let generation = world.peer.generation();
        (Arc::new(world), generation)
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
        assert_eq!(log.open_connections(), 0, "a connection was lost");
    }
}

/// Uses the lease's connection; answers its generation.
pub(crate) fn use_lease(lease: &Lease<Wire>, peer: &str) -> Generation {
    let connection = lease.connection();
    connection.memory.with(|_| ());
    assert_eq!(connection.generation, lease.generation(), "used another generation's connection");
    assert_eq!(connection.to.as_str(), peer, "a message for one peer went to another");
    lease.generation()
}
