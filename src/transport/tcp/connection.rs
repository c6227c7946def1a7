//! One connection that we opened, as its senders see it: a queue.
//!
//! Senders append to the queue under a short lock of this connection alone, and wake the task of `outbound` if it sleeps.
//! They never wait for the socket.

use super::alive::{Keepalive, Pulse};
use super::builder::Settings;
use super::error::TcpError;
use super::outbound;
use crate::clock::Clock;
use crate::error::UsedAfterFork;
use crate::fork::Process;
use crate::name::PeerName;
use crate::region::Slice;
use crate::state::Generation;
use crate::sync::lock;
use crate::transfer::{Completion, Outcome, Post, TransferError, TransferId, TransferKind};
use crate::transport::frame::{Codec, Farewell, Frame, HEADER};
use crate::transport::{Liveness, Reporter};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};

/// Bytes of a notification beside its message.
const NOTE_COST: usize = HEADER + 8;
/// How long a close at its deadline waits for the task to have dropped its socket: it has nothing else to do by then.
const UNDO: Duration = Duration::from_secs(1);
/// What a transfer that waits for its turn counts in the queue, in bytes: its place, not its pages.
const TRANSFER_COST: usize = 256;

/// One live connection to a peer. Closed by [`disconnect`](crate::Transport::disconnect), or when dropped.
pub struct TcpConnection {
    link: Arc<Link>,
}

impl TcpConnection {
    /// Breaks the connection at once by RST, as a crash of the way between two machines would. For fault injection: the
    /// generation is reported as broken, transfers that may have been sent end as `Unknown`. Never waits.
    pub fn cut(&self) {
        self.link.ask_to_end(Ending::Cut);
    }

    /// The peer's socket address.
    pub fn peer_addr(&self) -> SocketAddr {
        self.link.peer_addr
    }

    /// The most bytes of one notification: the lesser of what both sides take.
    pub fn max_notification(&self) -> usize {
        self.link.max_notification
    }

    pub(super) fn link(&self) -> &Arc<Link> {
        &self.link
    }
}

impl Drop for TcpConnection {
    fn drop(&mut self) {
        self.link.ask_to_end(Ending::Goodbye(Farewell::Other));
    }
}

impl fmt::Debug for TcpConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let link = &self.link;
        f.debug_struct("TcpConnection")
            .field("peer", &link.peer)
            .field("peer_addr", &link.peer_addr)
            .field("generation", &link.generation)
            .finish_non_exhaustive()
    }
}

/// What senders and the task share.
pub(super) struct Link {
    /// The only one that may touch the queue and the socket.
    process: Process,
    pub(super) peer: PeerName,
    pub(super) address: Arc<str>,
    pub(super) generation: Generation,
    pub(super) peer_addr: SocketAddr,
    pub(super) max_notification: usize,
    queue_limit: usize,
    pub(super) keepalive: Option<Keepalive>,
    pub(super) pulse: Pulse,
    pub(super) codec: Codec,
    pub(super) unknown_frames: Arc<AtomicU64>,
    queue: Mutex<Queue>,
    /// There is something to send.
    pub(super) work: Notify,
    /// `queue.ending` is set.
    pub(super) end: Notify,
    pub(super) ended: Condvar,
}

#[derive(Default)]
pub(super) struct Queue {
    /// Encoded notifications and pings, in order.
    pub(super) notes: Vec<u8>,
    /// Bytes taken out of `notes` whose write is not over.
    pub(super) notes_in_flight: usize,
    /// Transfers of which nothing was sent.
    pub(super) waiting: VecDeque<Post>,
    /// Transfers of which something may have been sent.
    pub(super) running: HashMap<TransferId, Running>,
    /// Of these, those that were given up since the task last looked.
    pub(super) cancels: Vec<TransferId>,
    pub(super) probes: Vec<Probe>,
    probes_begun: u64,
    /// The number of the last notification.
    sequence: u64,
    /// The number of the last ping.
    pings: u64,
    /// The last ping is in `notes`. A further probe waits for its pong too: nothing has been asked yet, so a peer that takes
    /// nothing has one ping waiting for it, however often it is probed.
    pub(super) ping_waits: bool,
    /// The last ping of the peer that is not answered. One answer does for all before it.
    pub(super) pong_for: Option<u64>,
    /// The task sleeps until `work`.
    pub(super) idle: bool,
    pub(super) ending: Option<Ending>,
    pub(super) over: Option<Over>,
}

impl Queue {
    fn is_closed(&self) -> bool {
        self.over.is_some() || self.ending.is_some()
    }
}

/// A thread that waits for a pong.
pub(super) struct Probe {
    id: u64,
    pub(super) ping: u64,
    pub(super) pong: mpsc::SyncSender<()>,
}

pub(super) struct Running {
    pub(super) completion: Completion,
    pub(super) kind: TransferKind,
    pub(super) local: Slice,
    /// Bytes of a write that are in frames, bytes of a read that have arrived.
    pub(super) at: usize,
    pub(super) cancelled: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// As a disconnect should: with a last word to the peer.
    Goodbye(Farewell),
    /// By RST.
    Cut,
    /// The time for a goodbye is over.
    Now,
}

/// The connection takes nothing more.
pub(super) struct Over {
    pub(super) why: Option<Arc<TcpError>>,
    /// The socket is closed and nothing of the connection runs: no local page is touched any more.
    pub(super) closed: bool,
}

impl Link {
    pub(super) fn new(
        peer: PeerName,
        address: Arc<str>,
        generation: Generation,
        peer_addr: SocketAddr,
        max_notification: usize,
        settings: &Settings,
        unknown_frames: Arc<AtomicU64>,
    ) -> Self {
        Link {
            process: Process::this(),
            peer,
            address,
            generation,
            peer_addr,
            max_notification,
            queue_limit: settings.outbound_queue,
            keepalive: settings.keepalive,
            pulse: Pulse::default(),
            codec: Codec::new(generation, max_notification),
            unknown_frames,
            queue: Mutex::default(),
            work: Notify::new(),
            end: Notify::new(),
            ended: Condvar::new(),
        }
    }

    /// Starts the task that serves `stream`.
    pub(super) fn start(
        self,
        stream: TcpStream,
        reporter: Reporter,
        gone: watch::Receiver<()>,
        on: &Handle,
    ) -> TcpConnection {
        let link = Arc::new(self);
        on.spawn(outbound::serve(link.clone(), stream, reporter, gone));
        TcpConnection { link }
    }

    pub(super) fn notify(&self, message: &[u8]) -> Result<(), TcpError> {
        if message.len() > self.max_notification {
            let (peer, max) = (self.peer.clone(), self.max_notification);
            return Err(TcpError::TooLong { peer, len: message.len(), max });
        }
        let mut queue = self.admit(NOTE_COST + message.len())?;
        queue.sequence += 1;
        let sequence = queue.sequence;
        self.codec.encode(&Frame::Notify { sequence, message }, &mut queue.notes);
        self.wake(queue);
        Ok(())
    }

    pub(super) fn post(&self, post: Post) -> Result<(), TcpError> {
        let (local, remote) = (post.local.len() as u64, post.remote.len);
        if local != remote {
            return Err(TcpError::Length { peer: self.peer.clone(), local, remote });
        }
        let mut queue = self.admit(TRANSFER_COST)?;
        post.completion.waits();
        queue.waiting.push_back(post);
        self.wake(queue);
        Ok(())
    }

    pub(super) fn cancel(&self, transfer: TransferId) {
        if !self.process.is_this() {
            return;
        }
        let mut queue = self.lock();
        if let Some(at) = queue.waiting.iter().position(|post| post.id == transfer) {
            let post = queue.waiting.remove(at);
            drop(queue);
            if let Some(post) = post {
                post.completion.complete(Outcome::Failed(TransferError::NotSent));
            }
            return;
        }
        let running = queue.running.get_mut(&transfer);
        if running.is_some_and(|running| !std::mem::replace(&mut running.cancelled, true)) {
            queue.cancels.push(transfer);
            self.wake(queue);
        }
    }

    pub(super) fn probe(&self, deadline: Instant, clock: &Clock) -> Liveness {
        if !self.process.is_this() {
            return Liveness::Unknown;
        }
        let (pong, answer) = mpsc::sync_channel(1);
        let id = {
            let mut queue = self.lock();
            if queue.is_closed() {
                return Liveness::Dead;
            }
            self.queue_ping(&mut queue);
            queue.probes_begun += 1;
            let (id, ping) = (queue.probes_begun, queue.pings);
            queue.probes.push(Probe { id, ping, pong });
            self.wake(queue);
            id
        };
        while let Some(left) = clock.real_wait_until(deadline) {
            match answer.recv_timeout(left) {
                Ok(()) => return Liveness::Alive,
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return Liveness::Dead,
            }
        }
        self.lock().probes.retain(|probe| probe.id != id);
        Liveness::Dead
    }

    /// For the keepalive: there is no need to wait for its answer.
    pub(super) fn ping(&self) {
        let mut queue = self.lock();
        self.queue_ping(&mut queue);
        self.wake(queue);
    }

    pub(super) fn answer(&self, ping: u64) {
        let mut queue = self.lock();
        queue.pong_for = Some(ping);
        self.wake(queue);
    }

    pub(super) fn silent(&self) -> TcpError {
        let dead_timeout = self.keepalive.map(|keepalive| keepalive.dead_timeout).unwrap_or_default();
        TcpError::Silent { peer: self.peer.clone(), address: self.address.clone(), dead_timeout }
    }

    fn queue_ping(&self, queue: &mut Queue) {
        if !std::mem::replace(&mut queue.ping_waits, true) {
            queue.pings += 1;
            let ping = Frame::Ping(queue.pings);
            self.codec.encode(&ping, &mut queue.notes);
        }
    }

    /// Ends the connection, and waits until the peer has been told and the socket is closed. What is not over at the
    /// deadline is given up. `false`: not even that worked.
    pub(super) fn disconnect(&self, farewell: Farewell, deadline: Instant, clock: &Clock) -> bool {
        self.ask_to_end(Ending::Goodbye(farewell));
        if self.wait_closed(|| clock.real_wait_until(deadline)) {
            return true;
        }
        self.ask_to_end(Ending::Now);
        let end = Instant::now() + UNDO;
        self.wait_closed(|| end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()))
    }

    fn wait_closed(&self, left: impl Fn() -> Option<Duration>) -> bool {
        let mut queue = self.lock();
        while !queue.over.as_ref().is_some_and(|over| over.closed) {
            let Some(left) = left() else { return false };
            queue = self.ended.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    fn ask_to_end(&self, how: Ending) {
        if !self.process.is_this() {
            return;
        }
        let mut queue = self.lock();
        if !matches!(how, Ending::Goodbye(_)) || queue.ending.is_none() {
            queue.ending = Some(how);
        }
        drop(queue);
        self.end.notify_one();
    }

    /// The queue, if it is open and has room.
    fn admit(&self, bytes: usize) -> Result<MutexGuard<'_, Queue>, TcpError> {
        if !self.process.is_this() {
            return Err(UsedAfterFork.into());
        }
        let queue = self.lock();
        if queue.is_closed() {
            let source = queue.over.as_ref().and_then(|over| over.why.clone());
            return Err(TcpError::Ended { peer: self.peer.clone(), generation: self.generation, source });
        }
        let used = queue.notes.len() + queue.notes_in_flight + queue.waiting.len() * TRANSFER_COST;
        if used > 0 && used.saturating_add(bytes) > self.queue_limit {
            return Err(TcpError::QueueFull { peer: self.peer.clone(), limit: self.queue_limit });
        }
        Ok(queue)
    }

    fn wake(&self, mut queue: MutexGuard<'_, Queue>) {
        let sleeps = std::mem::take(&mut queue.idle);
        drop(queue);
        if sleeps {
            self.work.notify_one();
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }
}
