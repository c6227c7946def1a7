//! Real sockets between processes, of one machine or, with a shared secret, of several.
//!
//! | file | idea |
//! |---|---|
//! | `alive` | whether the other side is still there |
//! | `builder` | settings, and the listening socket |
//! | `address` | where a peer is |
//! | `dial` | opening a connection |
//! | `connection` | one connection we opened, as senders see it: its queue |
//! | `outbound` | the task that serves its socket |
//! | `accept` | strangers, and our side of the handshake |
//! | `inbound` | the connections others opened, listed |
//! | `serve` | one connection others opened |
//! | `wire` | bytes from a socket into the codec of [`frame`](super::frame) |
//! | `secret` | proofs of a shared secret |
//! | `runtime` | the threads that serve sockets |
//! | `error` | what may go wrong |
//!
//! Connections are directed: what we send goes over the one we opened, what we receive comes over those that others
//! opened. Whatever comes in is taken for hostile: it costs its sender the connection, and nobody else anything.
//!
//! Without a [`secret`](TcpBuilder::secret) nobody is authenticated: a name is a claim, and only loopback addresses can be
//! bound and dialled. With one, both sides of every connection prove in the handshake that they know it, each for its own
//! name and boot and for this connection only; a proof that was overheard is of no use again. **What follows the handshake
//! is not protected**: it is neither encrypted nor authenticated, so who sits between two machines can read, change or take
//! over an open connection. Use it in a network you trust to deliver, or inside a tunnel. A secret is one for all: any
//! process that knows it can take any name.

mod accept;
mod address;
mod alive;
mod builder;
mod connection;
mod dial;
mod error;
mod inbound;
mod outbound;
mod runtime;
mod secret;
mod serve;
mod wire;

pub use address::{AddressError, TcpAddress};
pub use builder::TcpBuilder;
pub use connection::TcpConnection;
pub use error::{BindError, Misbehaviour, TcpError};
#[cfg(feature = "ucx")]
pub(super) use error::{what_is_lacking, what_the_resolver_lacked};
use inbound::Stop;
pub use inbound::{Inbound, InboundKey};

use crate::clock::Clock;
use crate::error::UsedAfterFork;
use crate::fork::{Own, Process};
use crate::grant::GrantBook;
use crate::inbox::Inbox;
use crate::name::{Incarnation, PeerName};
use crate::region::{Region, RegionId};
use crate::sync::lock;
use crate::transfer::{Post, TransferId};
use crate::transport::{
    Capabilities, CloseContext, CloseReason, Closed, ConnectContext, Connected, DataPlane, Liveness, ProbeContext,
    Transport, frame::Farewell,
};
use builder::Settings;
use runtime::Threads;
use std::collections::HashSet;
use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// A transport over TCP sockets: listens for the processes that connect to us, and connects to others.
///
/// Sockets are served by two threads of its own, `peerage-tcp-0` and `peerage-tcp-1`, unless it was given a runtime; host
/// names are resolved on further, short-lived ones. Dropping it closes every connection and ends the threads; it does not
/// wait for them, so it may be dropped inside async code, and there is no time for goodbyes: its peers see connections that
/// break off. Shut the table down to part from them properly.
///
/// In a child of `fork` it is the parent's: what may fail answers [`TcpError::UsedAfterFork`], lists are empty, and dropping it or a
/// connection of it touches no socket. The child holds copies of the sockets' descriptors until it ends or executes another
/// program: what the parent closes without a goodbye meanwhile, or when it dies, its peers notice late, by their keepalive.
pub struct Tcp {
    shared: Arc<Shared>,
    local_addr: SocketAddr,
    address: TcpAddress,
    /// Dropping it ends every task.
    gone: Own<watch::Sender<()>>,
    threads: Own<Threads>,
}

/// What tasks and callers share.
struct Shared {
    /// The only one whose threads serve its sockets.
    process: Process,
    name: PeerName,
    incarnation: AtomicU64,
    settings: Settings,
    clock: Clock,
    inbox: Inbox,
    grants: GrantBook,
    inbound: Arc<inbound::Registry>,
    strangers: accept::Strangers,
    counts: Counts,
    registered: Mutex<HashSet<RegionId>>,
    /// Nobody is let in any more, and who is in is said goodbye to.
    closing: watch::Sender<bool>,
}

impl Shared {
    fn is_here(&self) -> bool {
        self.process.is_this()
    }

    fn incarnation(&self) -> Incarnation {
        Incarnation(self.incarnation.load(Ordering::Acquire))
    }

    fn check_process(&self) -> Result<(), UsedAfterFork> {
        if self.is_here() { Ok(()) } else { Err(UsedAfterFork) }
    }
}

#[derive(Debug, Default)]
struct Counts {
    accepted: AtomicU64,
    refused: AtomicU64,
    unproven: AtomicU64,
    timed_out: AtomicU64,
    evicted: AtomicU64,
    misbehaved: AtomicU64,
    goodbyes: AtomicU64,
    lost: AtomicU64,
    silent: AtomicU64,
    duplicates: AtomicU64,
    outdated: AtomicU64,
    cancelled: AtomicU64,
    late_data: AtomicU64,
    unknown_frames: Arc<AtomicU64>,
    accept_errors: AtomicU64,
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
    /// Handshakes we refused: no hello, another version or name, a duplicate, no place, no proof.
    pub refused: u64,
    /// Of these, those of dialers who did not know our secret.
    pub unproven: u64,
    /// Handshakes that were not over before `handshake_timeout`.
    pub timed_out: u64,
    /// Sockets whose dialers had not said hello, or not proven the secret, when newer ones needed their place.
    pub evicted: u64,
    /// Open connections dropped because of what came over them.
    pub misbehaved: u64,
    /// Open connections whose dialers said goodbye: they removed us, or shut down.
    pub goodbyes: u64,
    /// Open connections that ended without a goodbye: the dialer died, or the way to it broke.
    pub lost: u64,
    /// Open connections dropped because nothing came over them for the keepalive's dead timeout.
    pub silent: u64,
    /// Messages dropped because they, or later ones of the same connection, had come before.
    pub duplicates: u64,
    /// Messages dropped because their sender had connected again, with a newer generation, before they came.
    pub outdated: u64,
    /// Transfers that their dialers gave up.
    pub cancelled: u64,
    /// Frames of data dropped because their transfer had been given up.
    pub late_data: u64,
    /// Frames skipped because this version does not know their kind, on connections in both directions.
    pub unknown_frames: u64,
    /// Accepts that failed on this side; with no descriptors left, one for each rest of the accept loop.
    pub accept_errors: u64,
}

impl Tcp {
    /// Listens on a loopback address, with defaults for everything else. Port 0 lets the operating system choose; the
    /// choice is in [`local_addr`](Self::local_addr). May resolve a host name, which blocks.
    ///
    /// # Errors
    /// Those of [`TcpBuilder::bind`], without those about settings.
    pub fn bind(address: impl ToSocketAddrs) -> Result<Self, BindError> {
        Self::builder().bind(address)
    }

    /// Settings, each with a default.
    pub fn builder() -> TcpBuilder {
        TcpBuilder::default()
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// The address for peers to dial: what was [advertised](TcpBuilder::advertise), or else where it listens. To publish
    /// one that is good for this boot only, add the boot id: `tcp.address().clone().with_incarnation(tcp.incarnation())`.
    pub fn address(&self) -> &TcpAddress {
        &self.address
    }

    /// Its boot id: random for each `Tcp`, and for each [new incarnation](crate::PeerTable::new_incarnation).
    pub fn incarnation(&self) -> Incarnation {
        self.shared.incarnation()
    }

    /// The connections that others have opened to us. Does not wait for any of them.
    pub fn inbound(&self) -> Vec<Inbound> {
        if self.shared.is_here() { self.shared.inbound.list() } else { Vec::new() }
    }

    /// What became of those who connected.
    pub fn inbound_counts(&self) -> InboundCounts {
        let counts = &self.shared.counts;
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        InboundCounts {
            accepted: count(&counts.accepted),
            refused: count(&counts.refused),
            unproven: count(&counts.unproven),
            timed_out: count(&counts.timed_out),
            evicted: count(&counts.evicted),
            misbehaved: count(&counts.misbehaved),
            goodbyes: count(&counts.goodbyes),
            lost: count(&counts.lost),
            silent: count(&counts.silent),
            duplicates: count(&counts.duplicates),
            outdated: count(&counts.outdated),
            cancelled: count(&counts.cancelled),
            late_data: count(&counts.late_data),
            unknown_frames: count(&counts.unknown_frames),
            accept_errors: count(&counts.accept_errors),
        }
    }

    /// Closes one inbound connection, and tells its dialer; `false` if there is none with this key. Does not wait: it is gone from
    /// [`inbound`](Self::inbound) when it is closed, and what was lent over it is quiesced then.
    pub fn drop_inbound(&self, key: &InboundKey) -> bool {
        self.shared.is_here() && self.shared.inbound.stop(key, Stop::Goodbye)
    }

    /// Like [`drop_inbound`](Self::drop_inbound), but by RST, as a crash of the way between two machines would. For fault
    /// injection.
    pub fn cut_inbound(&self, key: &InboundKey) -> bool {
        self.shared.is_here() && self.shared.inbound.stop(key, Stop::Reset)
    }

    /// Cuts every inbound connection of one name, like [`cut_inbound`](Self::cut_inbound). Answers how many.
    pub fn cut_inbound_of(&self, name: &PeerName) -> usize {
        if !self.shared.is_here() {
            return 0;
        }
        self.shared.inbound.stop_all(|key| key.name == *name, Stop::Reset)
    }
}

impl Transport for Tcp {
    type Address = TcpAddress;
    type Connection = TcpConnection;
    type Error = TcpError;

    fn local_name(&self) -> Option<&PeerName> {
        Some(&self.shared.name)
    }

    /// Says goodbye to everybody who is connected to us, and does not wait for them.
    fn new_incarnation(&self) -> Option<Incarnation> {
        if !self.shared.is_here() {
            return None;
        }
        let new = Incarnation::random();
        // ord! Release is more than it needs. It comes before the inbound connections are looked through, and who connects is
        //      listed before it is answered: the look comes upon the connection, or the lock of the list's shard, which the
        //      look gave back before, shows it the new id. No model sees sockets.
        self.shared.incarnation.store(new.0, Ordering::Release);
        self.shared.inbound.stop_all(|_| true, Stop::Goodbye);
        Some(new)
    }

    fn capabilities(&self) -> Capabilities {
        let always = Capabilities::CLOSE_QUIESCES
            .with(Capabilities::NATIVE_CLOSE)
            .with(Capabilities::PROBE)
            .with(Capabilities::UPDATES_IN_PLACE);
        if self.shared.settings.overlap { always.with(Capabilities::OVERLAP) } else { always }
    }

    fn connect(&self, cx: &ConnectContext, to: &TcpAddress) -> Result<Connected<TcpConnection>, TcpError> {
        self.shared.check_process()?;
        dial::connect(cx, to, &self.shared, self.threads.handle(), self.gone.subscribe())
    }

    /// Tells the peer why, and waits for it to take the message: at a shutdown until the deadline, at a removal for a
    /// second in which nothing moves. A connection that failed is not waited for.
    fn disconnect(&self, cx: &CloseContext, connection: TcpConnection, why: CloseReason) -> Closed<TcpConnection> {
        if !self.shared.is_here() {
            return Closed::Leaked("it is the parent's");
        }
        let farewell = match why {
            CloseReason::Shutdown => Farewell::Shutdown,
            CloseReason::Failed => Farewell::Failed,
            _ => Farewell::Removed,
        };
        match connection.link().disconnect(farewell, cx.deadline, &self.shared.clock) {
            true => Closed::Released,
            false => Closed::Retry(connection),
        }
    }

    /// Lets nobody in any more, says goodbye to everybody who is connected to us, and waits until they have taken it. Who has
    /// not by the deadline is cut off. Then the inbox is closed: who waits for a message is told that none will come.
    fn end(&self, deadline: Instant) {
        let Shared { closing, inbound, inbox, clock, .. } = &*self.shared;
        if !self.shared.is_here() {
            return;
        }
        closing.send_replace(true);
        inbound.wait_until_empty(|| clock.real_wait_until(deadline));
        inbound.stop_all(|_| true, Stop::Reset);
        inbox.close();
    }

    /// Sends a ping and waits for its pong. It travels with everything else on the connection, so `Dead` at the deadline
    /// also means: the peer reads no further because messages of ours fill our share of its inbox (its `inbox_capacity`),
    /// or has not yet read what we sent before. Choose a deadline that allows for the queue.
    fn probe(&self, cx: &ProbeContext, connection: &TcpConnection) -> Liveness {
        connection.link().probe(cx.deadline, &self.shared.clock)
    }
}

impl DataPlane for Tcp {
    fn max_notification(&self) -> usize {
        self.shared.settings.max_notification
    }

    fn notify(&self, connection: &TcpConnection, message: &[u8]) -> Result<(), TcpError> {
        connection.link().notify(message)
    }

    fn inbox(&self) -> &Inbox {
        &self.shared.inbox
    }

    fn register(&self, region: &Region) -> Result<(), TcpError> {
        self.shared.check_process()?;
        self.registered().insert(region.id());
        Ok(())
    }

    fn deregister(&self, region: &Region) -> Result<(), TcpError> {
        self.shared.check_process()?;
        match self.registered().remove(&region.id()) {
            true => Ok(()),
            false => Err(TcpError::NotRegistered { region: region.id() }),
        }
    }

    fn post(&self, connection: &TcpConnection, post: Post) -> Result<(), TcpError> {
        connection.link().post(post)
    }

    /// What is sent of a write by then stays in the peer's page. The completion waits for the peer's answer; a peer that
    /// never gives it is found by the keepalive or by whoever uses the connection.
    fn cancel(&self, connection: &TcpConnection, transfer: TransferId) {
        connection.link().cancel(transfer);
    }

    fn grants(&self) -> &GrantBook {
        &self.shared.grants
    }
}

impl Tcp {
    fn registered(&self) -> std::sync::MutexGuard<'_, HashSet<RegionId>> {
        lock(&self.shared.registered)
    }
}

impl Drop for Tcp {
    fn drop(&mut self) {
        self.shared.inbox.close();
    }
}

impl fmt::Debug for Tcp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tcp")
            .field("name", &self.shared.name)
            .field("incarnation", &self.shared.incarnation())
            .field("local_addr", &self.local_addr)
            .finish_non_exhaustive()
    }
}

/// Makes the close of a socket an RST: what is under way is lost on both sides.
fn reset_on_close(stream: &TcpStream) {
    // Without it the close is an ordinary one; there is nobody to tell.
    let _ = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO));
}
