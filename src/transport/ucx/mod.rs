//! UCX: the system's libucp, over whatever it finds to move bytes: InfiniBand, TCP; UCX 1.13 takes no shared memory for
//! connections whose errors it is to tell, which is all of these. Needs the feature `ucx`.
//!
//! | file | idea |
//! |---|---|
//! | `native` | libucp in safe words: context, worker, listener, mapped memory |
//! | `endpoint` | one endpoint, and what is under way on it |
//! | `mailbox` | what the thread is told |
//! | `thread` | the one thread: progress, and everything that opens or closes; in `thread/handshake` who is let in, in `thread/transfers` its part in transfers |
//! | `link` | one connection that we opened, as its senders see it |
//! | `inbound` | one connection that somebody opened to us |
//! | `message` | what is sent |
//! | `moving` | transfers whose bytes are messages |
//! | `outgoing`, `pieces` | pages on their way as messages, and what of one has come |
//! | `builder` | settings |
//! | `error` | what may go wrong |
//!
//! # Who may call what
//! There is one context and one worker in multi-thread mode. **Senders** call libucp themselves, on their own threads, to send
//! on an endpoint that they borrow from their connection. **Everything else is done by one thread**, `peerage-ucx`: it makes
//! progress, opens and closes endpoints, reads, writes and sends pages. When nothing has moved for 20 us it sleeps on the
//! worker's event descriptor and on a bell that is rung for it. **Callbacks** run inside libucp, on any thread that has
//! called it, under its lock; they copy and put an event in the thread's mailbox, and nothing else. libucp's lock is one for
//! all peers of the transport, and held for as long as a call takes, never while it waits for a peer. `register` and `deregister` map memory on the caller's
//! thread, and a connection that outlives its transport is closed by whoever drops it.
//!
//! # What keeps what alive
//! An endpoint, the listener and a close under way hold the worker; the worker and mapped memory hold the context. What waits
//! in the mailbox holds neither: the thread gives it back before it lets the worker go. An operation
//! under way owns what libucp may touch for it: the bytes of a message, our page and its mapping, the key to the peer's.
//! A page that libucp sends to a peer, or that a peer accesses by itself, is held under its grant.
//!
//! # How pages move
//! Whoever wants to read or write one asks its owner. Its bytes are messages of this transport then, which the owner's thread
//! copies under the grant, each time asked anew. With [`one_sided`](UcxBuilder::one_sided) the asker is given the page's key and
//! puts or gets; libucp must not emulate that, see [limitations](crate::docs::limitations).
//!
//! # Who closes
//! The thread, by force, once it has the last reference of an endpoint. Its user's is in the connection, which the table gives
//! to `disconnect` when no lease and no call is left; libucp crashes where a send meets a close, and here that can't be
//! written. What was sent before gets through first, if the peer takes it within a second. A close is over when libucp says
//! so and every operation of the endpoint has ended, each of them once. Inbound endpoints are closed once their error
//! callback came, or when a goodbye is over.
//!
//! # What it does not do
//! **UCX trusts the network.** Nobody is authenticated, and a peer that speaks UCX's own protocol falsely may do anything.
//! So only loopback addresses are bound and dialled until [`trust_network`](UcxBuilder::trust_network) is said. That is about the
//! handshake: the lanes that carry data listen on every device that `UCX_NET_DEVICES` allows.
//!
//! **One per process**: with several workers in a process libucs 1.13.1 may abort it. See
//! [limitations](crate::docs::limitations).
//!
//! A process that was stopped, or that the network swallows, raises no error: [probes](crate::Heartbeat) find it. With
//! `one_sided`, when this process ends an inbound connection while the dialer writes to a page that was lent over it, the dialer
//! may still write until it notices, over a device by which processes write each other's memory (`cma`); where the dialer closes
//! or dies there is no such gap.
//!
//! There is no shared secret, no keepalive of its own, and a transfer that has begun can't be called back: it ends when its
//! bytes have moved, or with its connection.

mod builder;
mod endpoint;
mod error;
mod inbound;
mod link;
mod mailbox;
mod message;
mod moving;
mod native;
mod outgoing;
mod pieces;
mod thread;

pub use super::tcp::{InboundKey, TcpAddress as UcxAddress};
pub use builder::UcxBuilder;
pub use error::{UcxBindError, UcxError};
pub use link::UcxConnection;
pub use native::Status;

use crate::builder::FOREVER;
use crate::clock::Clock;
use crate::error::UsedAfterFork;
use crate::fork::{Own, Process};
use crate::grant::GrantBook;
use crate::inbox::Inbox;
use crate::name::{Incarnation, PeerName};
use crate::region::{Region, RegionId};
use crate::sync::lock;
use crate::transfer::{Post, TransferId};
use crate::transport::exit::{self, Door};
use crate::transport::frame::{Farewell, Hello};
use crate::transport::tcp::{what_is_lacking, what_the_resolver_lacked};
use crate::transport::{
    Capabilities, CloseContext, CloseReason, Closed, ConnectContext, Connected, DataPlane, Liveness, ProbeContext,
    Transport,
};
use builder::Settings;
use inbound::Registry;
use link::{Dial, Link};
use mailbox::{Ending, Event, Mailbox};
use native::{Context, Mapped};
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thread::LINGER;

/// What a connection takes here, measured with UCX 1.13.1 over TCP: a handshake's socket, and one for each way of its data. The first
/// may still be had where the others can't.
const DESCRIPTORS: usize = 3;
/// How often a connecting thread looks whether it was cancelled.
const LOOK: Duration = Duration::from_millis(25);

/// A transport over libucp: listens for the processes that connect to us, and connects to others.
///
/// It is served by one thread of its own, `peerage-ucx`. Dropping it closes every connection by force, within a second, and
/// waits for the thread, unless it runs on it. A connection that somebody still holds says goodbye then, and is closed when it is
/// dropped.
///
/// In a child of `fork` it is the parent's: what may fail answers [`UcxError::UsedAfterFork`], lists are empty, and dropping it
/// or a connection of it does not call libucp.
pub struct Ucx {
    shared: Arc<Shared>,
    local_addr: SocketAddr,
    address: UcxAddress,
    thread: Own<Option<JoinHandle<()>>>,
}

/// What the thread and callers share.
struct Shared {
    process: Process,
    name: PeerName,
    incarnation: AtomicU64,
    settings: Settings,
    clock: Clock,
    inbox: Inbox,
    grants: GrantBook,
    counts: Counts,
    registry: Registry,
    registered: Mutex<HashMap<RegionId, Arc<Mapped>>>,
    mailbox: Arc<Mailbox>,
    context: Arc<Context>,
    door: Arc<Door>,
}

impl Shared {
    fn check_process(&self) -> Result<(), UsedAfterFork> {
        if self.process.is_this() { Ok(()) } else { Err(UsedAfterFork) }
    }

    fn incarnation(&self) -> Incarnation {
        Incarnation(self.incarnation.load(Ordering::Acquire))
    }

    fn registered(&self, region: RegionId) -> Option<Arc<Mapped>> {
        lock(&self.registered).get(&region).cloned()
    }

    /// Its mapping, or one for the moment if it was lent without being registered.
    fn mapped(&self, region: &Region) -> Result<Arc<Mapped>, Status> {
        self.registered(region.id()).map_or_else(|| self.context.map(region).map(Arc::new), Ok)
    }
}

#[derive(Debug, Default)]
struct Counts {
    accepted: AtomicU64,
    refused: AtomicU64,
    misbehaved: AtomicU64,
    goodbyes: AtomicU64,
    lost: AtomicU64,
    duplicates: AtomicU64,
    outdated: AtomicU64,
}

impl Counts {
    fn add(count: &AtomicU64) {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// What became of those who connected to us, since the transport was made.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InboundCounts {
    /// Handshakes that ended well.
    pub accepted: u64,
    /// Handshakes we refused: another version or name, a duplicate, no place.
    pub refused: u64,
    /// Connections dropped because of what came over them.
    pub misbehaved: u64,
    /// Open connections whose dialers said goodbye: they removed us, or shut down.
    pub goodbyes: u64,
    /// Inbound connections that libucp called broken; after a goodbye only where that was not over yet.
    pub lost: u64,
    /// Messages dropped because they had come before.
    pub duplicates: u64,
    /// Messages dropped because their sender had connected again, with a newer generation, before they came.
    pub outdated: u64,
}

impl Ucx {
    /// Listens on a loopback address, with defaults for everything else. Port 0 lets the operating system choose; the
    /// choice is in [`local_addr`](Self::local_addr). May resolve a host name, which blocks.
    ///
    /// # Errors
    /// Those of [`UcxBuilder::bind`].
    pub fn bind(address: impl ToSocketAddrs) -> Result<Self, UcxBindError> {
        Self::builder().bind(address)
    }

    /// Settings, each with a default.
    pub fn builder() -> UcxBuilder {
        UcxBuilder::default()
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// The address for peers to dial: where it listens.
    pub fn address(&self) -> &UcxAddress {
        &self.address
    }

    /// Its boot id: random for each `Ucx`, and for each [new incarnation](crate::PeerTable::new_incarnation).
    pub fn incarnation(&self) -> Incarnation {
        self.shared.incarnation()
    }

    /// The connections that others have opened to us, and for how long they have been open. Does not wait for any of them.
    pub fn inbound(&self) -> Vec<(InboundKey, Duration)> {
        if self.shared.process.is_this() { self.shared.registry.list() } else { Vec::new() }
    }

    /// What became of those who connected.
    pub fn inbound_counts(&self) -> InboundCounts {
        let counts = &self.shared.counts;
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        InboundCounts {
            accepted: count(&counts.accepted),
            refused: count(&counts.refused),
            misbehaved: count(&counts.misbehaved),
            goodbyes: count(&counts.goodbyes),
            lost: count(&counts.lost),
            duplicates: count(&counts.duplicates),
            outdated: count(&counts.outdated),
        }
    }

    /// Closes one inbound connection, and tells its dialer first; `false` if there is none with this key. Does not wait: it is
    /// gone from [`inbound`](Self::inbound) when it is closed, and what was lent over it is quiesced then.
    pub fn drop_inbound(&self, key: &InboundKey) -> bool {
        self.end_inbound(key, Farewell::Removed)
    }

    /// The same by force, without a word, as a crash of this process would. For fault injection.
    pub fn cut_inbound(&self, key: &InboundKey) -> bool {
        self.end_inbound(key, Farewell::Failed)
    }

    /// Cuts every inbound connection of one name, like [`cut_inbound`](Self::cut_inbound). Answers how many.
    pub fn cut_inbound_of(&self, name: &PeerName) -> usize {
        self.inbound().iter().filter(|(key, _)| key.name == *name && self.cut_inbound(key)).count()
    }

    fn end_inbound(&self, key: &InboundKey, farewell: Farewell) -> bool {
        let is_open = self.shared.process.is_this() && self.shared.registry.has(key);
        if is_open {
            self.shared.mailbox.put(Event::EndInbound(Some(key.clone()), farewell, Instant::now() + LINGER));
        }
        is_open
    }

    /// One attempt, on the thread; this one waits for it.
    fn dial(
        &self,
        cx: &ConnectContext,
        address: Arc<str>,
        to: SocketAddr,
    ) -> Result<Connected<UcxConnection>, UcxError> {
        let (shared, peer) = (&self.shared, cx.name().clone());
        let reporter = cx.reporter().clone();
        let link =
            Arc::new(Link::new(peer.clone(), address.clone(), cx.generation(), reporter, shared.settings.one_sided));
        let (done, outcome) = mpsc::sync_channel(1);
        let hello = Hello {
            name: shared.name.clone(),
            incarnation: shared.incarnation(),
            generation: cx.generation(),
            target: peer.clone(),
            nonce: None,
        };
        shared.mailbox.put(Event::Dial(Box::new(Dial { link: link.clone(), to, hello, done })));
        let error = loop {
            let Some(left) = shared.clock.real_wait_until(cx.deadline()) else {
                break UcxError::TimedOut { peer, address };
            };
            if cx.is_cancelled() {
                break UcxError::Cancelled { peer, address };
            }
            match outcome.recv_timeout(left.min(LOOK)) {
                Ok(Ok(connected)) => return Ok(connected),
                Ok(Err(error)) => break error,
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return Err(UcxError::TransportGone { peer, address }),
            }
        };
        // libucp has no status of its own for it, and waits where only its own end can't be opened: every peer would be blamed.
        let is_ambiguous = matches!(error, UcxError::Unreachable { .. } | UcxError::TimedOut { .. });
        let error = match is_ambiguous.then(|| what_is_lacking(DESCRIPTORS)).flatten() {
            Some(source) => UcxError::NoDescriptor { peer: link.peer.clone(), address: link.address.clone(), source },
            None => error,
        };
        // What was made just in time is closed when it is dropped.
        drop(outcome);
        link.give_up(&shared.mailbox);
        Err(error)
    }
}

impl Transport for Ucx {
    type Address = UcxAddress;
    type Connection = UcxConnection;
    type Error = UcxError;

    fn local_name(&self) -> Option<&PeerName> {
        Some(&self.shared.name)
    }

    /// Says goodbye to everybody who is connected to us, and does not wait for them.
    fn new_incarnation(&self) -> Option<Incarnation> {
        self.shared.check_process().ok()?;
        let new = Incarnation::random();
        // Before the inbound connections are looked through: who comes later is answered with it.
        self.shared.incarnation.store(new.0, Ordering::Release);
        self.shared.mailbox.put(Event::EndInbound(None, Farewell::Removed, Instant::now() + LINGER));
        Some(new)
    }

    fn capabilities(&self) -> Capabilities {
        let always = Capabilities::CLOSE_QUIESCES
            .with(Capabilities::NATIVE_CLOSE)
            .with(Capabilities::PROBE)
            .with(Capabilities::UPDATES_IN_PLACE);
        if self.shared.settings.overlap { always.with(Capabilities::OVERLAP) } else { always }
    }

    fn connect(&self, cx: &ConnectContext, to: &UcxAddress) -> Result<Connected<UcxConnection>, UcxError> {
        self.shared.check_process()?;
        let (peer, address): (PeerName, Arc<str>) = (cx.name().clone(), to.to_string().into());
        let mut last = None;
        let all = to.host_port().to_socket_addrs();
        for to in all.map_err(|source| unresolvable(&peer, &address, source))? {
            if !to.ip().to_canonical().is_loopback() && !self.shared.settings.trust_network {
                return Err(UcxError::NotLoopback { peer, address });
            }
            match self.dial(cx, address.clone(), to) {
                Err(error @ UcxError::Unreachable { .. }) => last = Some(error),
                other => return other,
            }
        }
        Err(last.unwrap_or_else(|| unresolvable(&peer, &address, io::ErrorKind::NotFound.into())))
    }

    /// Tells the peer why, and waits for it to have what was sent, for a second at most, then closes by force. A connection
    /// that failed is not waited for.
    fn disconnect(&self, cx: &CloseContext, mut connection: UcxConnection, why: CloseReason) -> Closed<UcxConnection> {
        if !self.shared.process.is_this() {
            return Closed::Leaked("it is the parent's");
        }
        let ending = match why {
            CloseReason::Shutdown => Ending::Goodbye(Farewell::Shutdown),
            CloseReason::Failed => Ending::Now,
            _ => Ending::Goodbye(Farewell::Removed),
        };
        match connection.disconnect(ending, cx.deadline, &self.shared.clock) {
            true => Closed::Released,
            false => Closed::Retry(connection),
        }
    }

    /// Sends a small message and waits for its answer, which the peer's own thread gives. Nothing else finds a peer that is
    /// stopped, or that the network swallows: libucp raises no error for either.
    fn probe(&self, cx: &ProbeContext, connection: &UcxConnection) -> Liveness {
        connection.probe(cx.deadline, &self.shared.clock)
    }

    /// Lets nobody in any more, says goodbye to everybody who is connected to us, and waits until they have left. Who has
    /// not by the deadline is cut off. Then the inbox is closed: who waits for a message is told that none will come.
    fn end(&self, deadline: Instant) {
        let Shared { process, mailbox, registry, inbox, clock, .. } = &*self.shared;
        if !process.is_this() {
            return;
        }
        mailbox.put(Event::Refuse);
        mailbox.put(Event::EndInbound(None, Farewell::Shutdown, Instant::now() + FOREVER));
        registry.wait_until_empty(|| clock.real_wait_until(deadline));
        mailbox.put(Event::EndInbound(None, Farewell::Failed, Instant::now()));
        inbox.close();
    }
}

fn unresolvable(peer: &PeerName, address: &Arc<str>, source: io::Error) -> UcxError {
    let (peer, address) = (peer.clone(), address.clone());
    match what_the_resolver_lacked() {
        Some(source) => UcxError::NoDescriptor { peer, address, source },
        None => UcxError::Unresolvable { peer, address, source },
    }
}

impl DataPlane for Ucx {
    fn max_notification(&self) -> usize {
        self.shared.settings.max_notification
    }

    fn notify(&self, connection: &UcxConnection, message: &[u8]) -> Result<(), UcxError> {
        connection.notify(message)
    }

    fn inbox(&self) -> &Inbox {
        &self.shared.inbox
    }

    fn register(&self, region: &Region) -> Result<(), UcxError> {
        self.shared.check_process()?;
        if self.shared.registered(region.id()).is_some() {
            return Ok(());
        }
        let mapped = self.shared.context.map(region);
        let mapped = mapped.map_err(|status| UcxError::Register { region: region.id(), status })?;
        // Two that register at once map it twice, and the second goes again.
        lock(&self.shared.registered).entry(region.id()).or_insert(Arc::new(mapped));
        Ok(())
    }

    fn deregister(&self, region: &Region) -> Result<(), UcxError> {
        self.shared.check_process()?;
        let mapped = lock(&self.shared.registered).remove(&region.id());
        mapped.map(drop).ok_or(UcxError::NotRegistered { region: region.id() })
    }

    fn post(&self, connection: &UcxConnection, post: Post) -> Result<(), UcxError> {
        connection.post(post)
    }

    /// Only what the peer has not let begin: libucp can't call a read or a write back.
    fn cancel(&self, connection: &UcxConnection, transfer: TransferId) {
        connection.cancel(transfer);
    }

    fn grants(&self) -> &GrantBook {
        &self.shared.grants
    }
}

impl Drop for Ucx {
    fn drop(&mut self) {
        if !self.shared.process.is_this() || exit::has_begun() {
            // Everything native of it is the parent's, or no longer there to be closed.
            std::mem::forget(self.shared.clone());
            return;
        }
        self.shared.mailbox.put(Event::Stop);
        if let Some(thread) = self.thread.take().filter(|thread| thread.thread().id() != std::thread::current().id()) {
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Ucx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ucx")
            .field("name", &self.shared.name)
            .field("incarnation", &self.incarnation())
            .field("local_addr", &self.local_addr)
            .finish_non_exhaustive()
    }
}
