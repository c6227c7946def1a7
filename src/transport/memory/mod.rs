//! The `Memory` transport: a network inside one process, for tests of tables and of what is built on them.
//!
//! A [`Fabric`] holds nodes, each a process as far as its peers can tell. Messages, writes and reads really move between
//! them. A test holds, delays, fails or panics any step of any peer ([`Steps`]), kills and restarts nodes, lets native
//! errors come when it likes, and reads afterwards what was called in which order ([`Call`]), how many connections there
//! were at once ([`PeerCounts`]) and what should never have been done ([`Misuse`]).
//!
//! ```no_run
//! use peerage::transport::memory::{Fabric, MemoryAddress, MemoryError, Step};
//! use peerage::PeerTable;
//! use std::time::{Duration, Instant};
//!
//! let fabric = Fabric::new();
//! fabric.node("prefill-0");
//! fabric.node("prefill-1");
//! let memory = fabric.node("decode");
//! let table = PeerTable::builder(memory.clone()).build()?;
//! let healthy = table.insert("prefill-0", MemoryAddress::new("prefill-0"))?;
//! let slow = table.insert("prefill-1", MemoryAddress::new("prefill-1"))?;
//!
//! let deadline = Instant::now() + Duration::from_secs(10);
//! healthy.wait_ready(deadline)?;
//! let hold = memory.steps().hold(Step::Connect, "prefill-1"); // a black hole
//! assert!(slow.lease().is_err());                             // asks for a connect
//! hold.wait_reached(1);                                       // which is stuck now
//! healthy.lease()?.notify(b"still here")?;                    // and nobody else minds
//! hold.release();
//!
//! slow.wait_ready(deadline)?;
//! memory.break_connection("prefill-1", MemoryError::peer_broken("cable pulled")).wait();
//! assert!(slow.lease().is_err());
//! assert_eq!(memory.total_counts().duplicate_connects, 0);
//! assert!(memory.misuses().is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What is deterministic: a message that is not held is in its receiver's inbox when `notify` returns, and its receiver
//! may be woken on the sender's thread. Transfers move and complete on the fabric's thread, native errors come from it, and
//! both can be waited for. There are no random numbers but those of incarnations and grant ids.
//!
//! A child of `fork` has no thread that carries anything: there, dropping what was made before does nothing, and calling it
//! directly may wait for ever. Through the table it is not called.

mod address;
mod error;
mod fabric;
mod link;
mod log;
mod steps;
mod yard;

pub use address::MemoryAddress;
pub use error::MemoryError;
pub use fabric::{Fabric, NodeBuilder, Reports};
pub use log::{Call, Ending, Misuse, MisuseKind};
pub use steps::{CloseAnswer, Hold, Step, Steps};

use super::counting::{Ended, PeerCounts};
use super::{
    Capabilities, CloseContext, CloseReason, Closed, ConnectContext, Connected, DataPlane, ErrorClass, Liveness,
    ProbeContext, Transport, TransportError,
};
use crate::grant::GrantBook;
use crate::inbox::Inbox;
use crate::name::{Incarnation, PeerName};
use crate::region::Region;
use crate::state::Generation;
use crate::transfer::{Post, TransferId};
use fabric::{Life, Node};
use link::{Entered, Link};
use std::fmt;
use std::sync::Arc;
use steps::{Act, Look, Pass};

/// One node of a [`Fabric`] as a transport. Clones are the same node: give one to the table and keep one for the test.
#[derive(Clone)]
pub struct Memory {
    life: Arc<Life>,
    node: Arc<Node>,
}

impl Memory {
    fn new(life: Arc<Life>, node: Arc<Node>) -> Self {
        Memory { life, node }
    }

    /// How others reach this node, in any of its lives.
    pub fn address(&self) -> MemoryAddress {
        MemoryAddress::new(self.node.name.as_str())
    }

    /// The boot id of this node's present or last life.
    pub fn incarnation(&self) -> Incarnation {
        self.node.incarnation()
    }

    /// Interferes with what this node does to its peers.
    pub fn steps(&self) -> &Steps {
        &self.node.steps
    }

    /// Breaks every connection this node has to `peer`, and every attempt that runs, also before it is published: nothing
    /// gets through any more, and the fabric's thread reports `error` for each. Returns when nothing is copied over them any
    /// more. No node dies by it: the next connect works.
    pub fn break_connection(&self, peer: &str, error: MemoryError) -> Reports {
        let links = self.links(peer).filter(|link| !link.has_ended());
        self.life.core.break_links(links, |_| error.clone())
    }

    /// Reports `error` for one generation from the fabric's thread, and touches nothing: an error that comes too late for an
    /// old connection, or out of nowhere for one that is well.
    ///
    /// # Panics
    /// If this node never tried to connect to `peer` with that generation.
    pub fn report_late(&self, peer: &str, generation: Generation, error: MemoryError) -> Reports {
        let link = self.links(peer).find(|link| link.generation == generation);
        let link = link.unwrap_or_else(|| panic!("{generation} of \"{peer}\" never reached the transport"));
        self.life.core.report(&link, error)
    }

    /// What was called, in the order in which it began; the last 65,536 calls.
    pub fn log(&self) -> Vec<Call> {
        self.node.log.calls()
    }

    /// What no table may ever do. Empty, or the table is broken.
    pub fn misuses(&self) -> Vec<Misuse> {
        self.node.log.misuses()
    }

    /// The counts of one peer, by its name in the table; all zero before its first connect.
    pub fn counts(&self, peer: &str) -> PeerCounts {
        self.node.tallies.peer(peer).unwrap_or_default()
    }

    /// The counts of all peers together.
    pub fn total_counts(&self) -> PeerCounts {
        self.node.tallies.total()
    }

    fn links(&self, peer: &str) -> impl Iterator<Item = Arc<Link>> {
        let of = |link: &Arc<Link>| Arc::ptr_eq(&link.from, &self.node) && link.peer.as_str() == peer;
        let links: Vec<_> = self.life.core.links().into_iter().filter(of).collect();
        links.into_iter()
    }

    fn try_connect(&self, cx: &ConnectContext, to: &MemoryAddress) -> Result<Connected<MemoryConnection>, MemoryError> {
        let (node, peer) = (&self.node, cx.name());
        let attempt = node.tallies.begin(peer);
        let connection = MemoryConnection { link: self.life.core.link(node, cx) };
        let over = || cx.is_cancelled() || self.life.core.clock.now() >= cx.deadline();
        let waited = node.steps.wait(Step::Connect, peer.as_str(), over);
        let no_answer = || MemoryError::NoAnswer { peer: peer.clone() };
        waited.map_err(|()| no_answer())?;
        self.act(Step::Connect, peer)?;
        node.living().ok_or_else(no_answer)?;
        let target = self.life.core.node(&to.node);
        let incarnation = target.and_then(|target| connection.link.open(&target, attempt));
        match incarnation {
            Some(_) => Ok(Connected { connection, incarnation }),
            None => Err(MemoryError::Refused { peer: peer.clone(), node: to.node.clone() }),
        }
    }

    /// Fails or panics if a test has asked for it.
    fn act(&self, step: Step, peer: &PeerName) -> Result<(), MemoryError> {
        match self.node.steps.next_act(step, peer.as_str()) {
            Some(Act::Fail(error)) => Err(error),
            Some(Act::Panic) => panic!("a test asked {step:?} of \"{peer}\" to panic"),
            Some(Act::Close(_)) | None => Ok(()),
        }
    }

    fn try_disconnect(&self, cx: &CloseContext, connection: MemoryConnection) -> Closed<MemoryConnection> {
        let link = connection.link.clone();
        link.begin_close();
        let over = || self.life.core.clock.now() >= cx.deadline;
        if self.node.steps.wait(Step::Close, link.peer.as_str(), over).is_err() {
            link.end(Ended::Leaked);
            return Closed::Leaked("the close did not end before its deadline");
        }
        let native = self.node.settings.capabilities.contains(Capabilities::NATIVE_CLOSE);
        let leaked = match self.node.steps.next_act(Step::Close, link.peer.as_str()) {
            Some(Act::Close(CloseAnswer::Retry)) => return Closed::Retry(connection),
            Some(Act::Close(CloseAnswer::AlreadyGone)) => {
                link.close();
                return Closed::AlreadyGone;
            }
            Some(Act::Close(CloseAnswer::Leaked(why))) => why,
            Some(Act::Fail(MemoryError::Asked { message, .. })) => message,
            Some(Act::Fail(_)) => "the close failed",
            Some(Act::Panic) => panic!("a test asked Close of \"{}\" to panic", link.peer),
            None if !native => "there is no native close",
            None => {
                link.close();
                return Closed::Released;
            }
        };
        link.end(Ended::Leaked);
        Closed::Leaked(leaked)
    }

    fn try_probe(&self, cx: &ProbeContext, link: &Arc<Link>) -> (Liveness, Ending) {
        let Ok(_call) = link.enter() else { return (Liveness::Dead, Ending::Failed) };
        let over = || self.life.core.clock.now() >= cx.deadline;
        if self.node.steps.wait(Step::Probe, link.peer.as_str(), over).is_err() {
            return (Liveness::Dead, Ending::Failed);
        }
        match self.act(Step::Probe, &link.peer) {
            Err(error) if error.class() == ErrorClass::PeerBroken => (Liveness::Dead, Ending::Failed),
            Err(_) => (Liveness::Unknown, Ending::Failed),
            Ok(()) if !self.node.settings.capabilities.contains(Capabilities::PROBE) => {
                (Liveness::Unknown, Ending::Done)
            }
            Ok(()) if link.is_alive() => (Liveness::Alive, Ending::Done),
            Ok(()) => (Liveness::Dead, Ending::Done),
        }
    }

    fn send(
        &self,
        step: Step,
        link: &Arc<Link>,
        send: impl FnOnce() -> Result<(), MemoryError>,
    ) -> Result<(), MemoryError> {
        let logged = self.node.log.begin(step, &link.peer, link.generation);
        let sent = link.enter().and_then(|_call| {
            self.act(step, &link.peer)?;
            send()
        });
        logged.end(if sent.is_ok() { Ending::Done } else { Ending::Failed });
        sent
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("name", &self.node.name).finish_non_exhaustive()
    }
}

impl Transport for Memory {
    type Address = MemoryAddress;
    type Connection = MemoryConnection;
    type Error = MemoryError;

    fn local_name(&self) -> Option<&PeerName> {
        Some(&self.node.name)
    }

    /// Breaks the connections of others to this node; they are told by the fabric's thread.
    fn new_incarnation(&self) -> Option<Incarnation> {
        Some(self.life.core.renew(&self.node))
    }

    fn capabilities(&self) -> Capabilities {
        self.node.settings.capabilities
    }

    fn connect(&self, cx: &ConnectContext, to: &MemoryAddress) -> Result<Connected<MemoryConnection>, MemoryError> {
        let logged = self.node.log.begin(Step::Connect, cx.name(), cx.generation());
        let connected = self.try_connect(cx, to);
        logged.end(if connected.is_ok() { Ending::Done } else { Ending::Failed });
        connected
    }

    fn disconnect(
        &self,
        cx: &CloseContext,
        connection: MemoryConnection,
        _why: CloseReason,
    ) -> Closed<MemoryConnection> {
        let (peer, generation) = (connection.link.peer.clone(), connection.link.generation);
        let logged = self.node.log.begin(Step::Close, &peer, generation);
        let closed = self.try_disconnect(cx, connection);
        logged.end(match closed {
            Closed::Released => Ending::Done,
            Closed::AlreadyGone => Ending::AlreadyGone,
            Closed::Leaked(_) => Ending::Leaked,
            Closed::Retry(_) => Ending::Retry,
        });
        closed
    }

    fn probe(&self, cx: &ProbeContext, connection: &MemoryConnection) -> Liveness {
        let link = &connection.link;
        let logged = self.node.log.begin(Step::Probe, &link.peer, link.generation);
        let (liveness, ending) = self.try_probe(cx, link);
        logged.end(ending);
        liveness
    }
}

impl DataPlane for Memory {
    fn max_notification(&self) -> usize {
        self.node.settings.max_notification
    }

    fn notify(&self, connection: &MemoryConnection, message: &[u8]) -> Result<(), MemoryError> {
        let (link, max) = (&connection.link, self.node.settings.max_notification);
        self.send(Step::Notify, link, || {
            if message.len() > max {
                return Err(MemoryError::TooLong { peer: link.peer.clone(), len: message.len(), max });
            }
            link.notify(message)
        })
    }

    fn inbox(&self) -> &Inbox {
        &self.node.inbox
    }

    fn register(&self, region: &Region) -> Result<(), MemoryError> {
        self.node.register(region);
        Ok(())
    }

    fn deregister(&self, region: &Region) -> Result<(), MemoryError> {
        self.node.deregister(region)
    }

    fn post(&self, connection: &MemoryConnection, post: Post) -> Result<(), MemoryError> {
        let link = &connection.link;
        self.send(Step::Post, link, || link.post(post))
    }

    /// A transfer whose bytes have not all moved ends as cancelled, also while a test holds it back; one whose have is left
    /// alone.
    fn cancel(&self, connection: &MemoryConnection, transfer: TransferId) {
        // A call on the connection like any other: misuse, if it is being closed.
        let link = &connection.link;
        let logged = self.node.log.begin(Step::Cancel, &link.peer, link.generation);
        let told = link.enter().is_ok_and(|_call| {
            let asked = self.act(Step::Cancel, &link.peer);
            let free = self.node.steps.look(Step::Cancel, link.peer.as_str(), &mut Pass::default());
            let told = asked.is_ok() && matches!(free, Look::Go);
            if told {
                link.cancel(transfer);
            }
            told
        });
        logged.end(if told { Ending::Done } else { Ending::Failed });
    }

    fn grants(&self) -> &GrantBook {
        &self.node.grants
    }
}

/// One connection of a [`Memory`]. Dropped without a close, it is closed by the drop and counted so.
pub struct MemoryConnection {
    link: Arc<Link>,
}

impl MemoryConnection {
    /// The generation it was made for.
    pub fn generation(&self) -> Generation {
        self.link.generation
    }

    /// Begins what stands for a native call of the user's own, to be made inside a lease. If the connection's close has
    /// begun, or begins before the call ends, that is a [`Misuse`]. Never waits. It borrows nothing, so that a test can also
    /// do wrong.
    pub fn native_call(&self) -> NativeCall {
        NativeCall { _entered: self.link.enter().ok() }
    }
}

impl Drop for MemoryConnection {
    fn drop(&mut self) {
        self.link.dropped();
    }
}

impl fmt::Debug for MemoryConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryConnection({}, {})", self.link.peer, self.link.generation)
    }
}

/// A native call that runs until this is dropped.
#[must_use = "the call ends when this is dropped"]
pub struct NativeCall {
    _entered: Option<Entered>,
}

impl fmt::Debug for NativeCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NativeCall")
    }
}

#[cfg(all(test, not(peerage_loom)))]
mod tests {
    use super::*;
    use crate::name::PeerId;
    use crate::transport::context::ReportSink;
    use crate::transport::{Reported, Reporter};
    use std::sync::atomic::AtomicBool;
    use std::sync::{Mutex, mpsc};
    use std::thread;
    use std::time::{Duration, Instant};

    /// A table that writes down what it is told, and by which thread.
    #[derive(Default)]
    struct Told(Mutex<Vec<(Generation, String, String)>>);

    impl ReportSink for Told {
        fn report(&self, _: PeerId, generation: Generation, error: &dyn TransportError) -> Reported {
            let thread = thread::current().name().unwrap_or_default().to_owned();
            self.0.lock().unwrap().push((generation, error.to_string(), thread));
            Reported::Failed
        }

        fn leaked(&self, _: PeerId, _: &'static str) {}
    }

    fn context(told: &Arc<Told>, generation: u64, cancelled: &Arc<AtomicBool>) -> ConnectContext {
        let reporter = Reporter::new(told.clone(), PeerId::from_bits(1), Generation(generation));
        let deadline = Instant::now() + Duration::from_secs(3600);
        ConnectContext::new(PeerName::new("p").unwrap(), deadline, cancelled.clone(), reporter)
    }

    #[test]
    fn the_table_is_told_by_the_fabrics_thread_what_the_test_asked_for() {
        let fabric = Fabric::new();
        let (d, p) = (fabric.node("d"), fabric.node("p"));
        let told = Arc::new(Told::default());
        let _old = d.connect(&context(&told, 1, &Arc::default()), &p.address()).unwrap();
        d.steps().fail_next(Step::NativeError, "p", 1, MemoryError::peer_broken("instead"));
        d.break_connection("p", MemoryError::peer_broken("replaced")).wait();
        let _new = d.connect(&context(&told, 2, &Arc::default()), &p.address()).unwrap();
        let late = d.report_late("p", Generation(1), MemoryError::peer_broken("late"));
        assert_eq!(late.wait(), [(Generation(1), Reported::Failed)]);
        fabric.kill("p").wait();
        let told = told.0.lock().unwrap();
        let expected = [(1, "instead"), (1, "late"), (2, "the connection g2 to \"p\" is broken")];
        let all: Vec<_> = told.iter().map(|(generation, error, _)| (generation.0, error.as_str())).collect();
        assert_eq!(all, expected);
        assert!(told.iter().all(|(.., thread)| thread == "peerage-memory"), "{told:?}");
    }

    #[test]
    fn a_cancelled_connect_is_let_go_by_a_hold_that_minds_it_and_kept_by_a_black_hole() {
        let fabric = Fabric::new();
        let (d, p) = (fabric.node("d"), fabric.node("p"));
        let connect = || {
            let (d, address) = (d.clone(), p.address());
            let cx = context(&Arc::default(), 1, &Arc::new(AtomicBool::new(true)));
            let (tell, told) = mpsc::channel();
            thread::spawn(move || tell.send(d.connect(&cx, &address).map(|_| ())));
            told
        };
        let deaf = d.steps().hold(Step::Connect, "p");
        let told = connect();
        deaf.wait_reached(1);
        deaf.release();
        assert_eq!(told.recv_timeout(Duration::from_secs(30)), Ok(Ok(())));

        let _minds = d.steps().hold_until_cancelled(Step::Connect, "p");
        let no_answer = MemoryError::NoAnswer { peer: PeerName::new("p").unwrap() };
        assert_eq!(connect().recv_timeout(Duration::from_secs(30)), Ok(Err(no_answer)));
    }
}
