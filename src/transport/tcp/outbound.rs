//! One connection that we opened: its queue, and the one task that serves its socket.
//!
//! Senders append to the queue under a short lock of this connection alone, and wake the task if it sleeps. The task sends
//! and receives in two halves that never run at the same time as its end: when it ends, for whatever reason, both halves
//! are gone, and only then the transfers that were not over are ended. So nothing touches a local page after that.

use super::error::{Misbehaviour, TcpError};
use super::wire::{FrameReader, WireError};
use crate::clock::Clock;
use crate::name::PeerName;
use crate::region::Slice;
use crate::state::Generation;
use crate::transfer::{Completion, Outcome, Post, TransferError, TransferId, TransferKind};
use crate::transport::frame::{CHUNK, Codec, Direction, Frame};
use crate::transport::{Liveness, Reporter};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};

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
        self.link.ask_to_end(Ending::Disconnect);
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
    pub(super) peer: PeerName,
    pub(super) address: Arc<str>,
    pub(super) generation: Generation,
    pub(super) peer_addr: SocketAddr,
    pub(super) max_notification: usize,
    pub(super) queue_limit: usize,
    pub(super) codec: Codec,
    queue: Mutex<Queue>,
    /// There is something to send.
    work: Notify,
    /// `queue.ending` is set.
    end: Notify,
    ended: Condvar,
}

#[derive(Default)]
struct Queue {
    /// Encoded notifications and pings, in order.
    notes: Vec<u8>,
    /// Bytes taken out of `notes` whose write is not over.
    notes_in_flight: usize,
    /// Transfers of which nothing was sent.
    waiting: VecDeque<Post>,
    /// Transfers of which something may have been sent.
    running: HashMap<TransferId, Running>,
    pings: HashMap<u64, mpsc::SyncSender<()>>,
    next_ping: u64,
    /// The task sleeps until `work`.
    idle: bool,
    ending: Option<Ending>,
    over: Option<Over>,
}

struct Running {
    completion: Completion,
    kind: TransferKind,
    local: Slice,
    /// Bytes of a write that are in frames, bytes of a read that have arrived.
    at: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Disconnect,
    Cut,
}

/// The connection takes nothing more.
struct Over {
    why: Option<Arc<TcpError>>,
    /// The task's last act is done.
    quiesced: bool,
}

impl Link {
    pub(super) fn new(
        peer: PeerName,
        address: Arc<str>,
        generation: Generation,
        peer_addr: SocketAddr,
        max_notification: usize,
        queue_limit: usize,
    ) -> Self {
        Link {
            peer,
            address,
            generation,
            peer_addr,
            max_notification,
            queue_limit,
            codec: Codec::new(generation, max_notification),
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
        on.spawn(serve(Last { link: link.clone(), reporter, why: None }, stream, gone));
        TcpConnection { link }
    }

    pub(super) fn notify(&self, message: &[u8]) -> Result<(), TcpError> {
        if message.len() > self.max_notification {
            let (peer, max) = (self.peer.clone(), self.max_notification);
            return Err(TcpError::TooLong { peer, len: message.len(), max });
        }
        let mut queue = self.admit(message.len())?;
        self.codec.encode(&Frame::Notify(message), &mut queue.notes);
        self.wake(queue);
        Ok(())
    }

    pub(super) fn post(&self, post: Post) -> Result<(), TcpError> {
        let (local, remote) = (post.local.len() as u64, post.remote.len);
        if local != remote {
            return Err(TcpError::Length { peer: self.peer.clone(), local, remote });
        }
        let mut queue = self.admit(TRANSFER_COST)?;
        queue.waiting.push_back(post);
        self.wake(queue);
        Ok(())
    }

    pub(super) fn probe(&self, deadline: Instant, clock: &Clock) -> Liveness {
        let (pong, answer) = mpsc::sync_channel(1);
        let nonce = {
            let mut queue = self.lock();
            if queue.over.is_some() {
                return Liveness::Dead;
            }
            queue.next_ping += 1;
            let nonce = queue.next_ping;
            queue.pings.insert(nonce, pong);
            self.codec.encode(&Frame::Ping(nonce), &mut queue.notes);
            self.wake(queue);
            nonce
        };
        while let Some(left) = clock.real_wait_until(deadline) {
            match answer.recv_timeout(left) {
                Ok(()) => return Liveness::Alive,
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return Liveness::Dead,
            }
        }
        self.lock().pings.remove(&nonce);
        Liveness::Dead
    }

    /// Ends the connection and waits until nothing touches a local page any more; `false` if the deadline passes first.
    pub(super) fn disconnect(&self, deadline: Instant, clock: &Clock) -> bool {
        self.ask_to_end(Ending::Disconnect);
        let mut queue = self.lock();
        while !queue.over.as_ref().is_some_and(|over| over.quiesced) {
            let Some(left) = clock.real_wait_until(deadline) else { return false };
            queue = self.ended.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    fn ask_to_end(&self, how: Ending) {
        let mut queue = self.lock();
        if how == Ending::Cut || queue.ending.is_none() {
            queue.ending = Some(how);
        }
        drop(queue);
        self.end.notify_one();
    }

    /// The queue, if it is open and has room.
    fn admit(&self, bytes: usize) -> Result<MutexGuard<'_, Queue>, TcpError> {
        let queue = self.lock();
        if queue.over.is_some() || queue.ending.is_some() {
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

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn broken(&self, error: WireError) -> TcpError {
        let (peer, address) = (self.peer.clone(), self.address.clone());
        match error {
            WireError::Io(source) => TcpError::Broken { peer, address, source },
            WireError::Peer(source) => TcpError::Misbehaved { peer, address, source },
            WireError::End => TcpError::ClosedByPeer { peer, address },
        }
    }
}

/// The task of one connection. `last` was made before everything else here, so it is dropped after everything else, also
/// when the task panics or its runtime ends.
async fn serve(mut last: Last, mut stream: TcpStream, mut gone: watch::Receiver<()>) {
    let link = last.link.clone();
    let (mut from, mut to) = stream.split();
    let why = tokio::select! {
        error = receive(&link, &mut from) => Some(link.broken(error)),
        error = send(&link, &mut to) => Some(link.broken(error)),
        ending = ending(&link) => match ending {
            Ending::Disconnect => None,
            Ending::Cut => Some(TcpError::Cut { peer: link.peer.clone(), address: link.address.clone() }),
        },
        _ = gone.changed() => Some(last.transport_gone()),
    };
    if matches!(why, Some(TcpError::Cut { .. })) {
        super::reset_on_close(&stream);
    }
    drop(stream);
    last.why = Some(why.map(Arc::new));
}

async fn ending(link: &Link) -> Ending {
    loop {
        if let Some(ending) = link.lock().ending {
            return ending;
        }
        link.end.notified().await;
    }
}

/// What is being cut into chunks.
struct Stream {
    transfer: TransferId,
    local: Slice,
    at: usize,
}

async fn send(link: &Link, to: &mut (impl AsyncWrite + Unpin)) -> WireError {
    let (mut out, mut stream) = (Vec::new(), None);
    loop {
        out.clear();
        if !fill(link, &mut out, &mut stream) {
            link.work.notified().await;
            continue;
        }
        if let Err(error) = to.write_all(&out).await {
            return error.into();
        }
        link.lock().notes_in_flight = 0;
    }
}

/// Puts all notifications there are and at most one chunk into `out`, so that neither waits long for the other.
/// `false`: there was nothing.
fn fill(link: &Link, out: &mut Vec<u8>, stream: &mut Option<Stream>) -> bool {
    let mut queue = link.lock();
    std::mem::swap(out, &mut queue.notes);
    queue.notes_in_flight = out.len();
    while stream.is_none() && out.len() < queue.notes_in_flight + CHUNK {
        let Some(post) = queue.waiting.pop_front() else { break };
        *stream = begin(link, &mut queue, post, out);
    }
    if let Some(Stream { transfer, local, at }) = stream {
        let len = CHUNK.min(local.len() - *at);
        link.codec.begin_data(Direction::Write, *transfer, len, out);
        if let Some(running) = queue.running.get_mut(transfer) {
            running.at = *at + len;
        }
        drop(queue);
        let start = out.len();
        out.resize(start + len, 0);
        local.read(*at, &mut out[start..]).expect("a chunk is cut inside its slice");
        *at += len;
        if *at == local.len() {
            *stream = None;
        }
        return true;
    }
    queue.idle = out.is_empty();
    !queue.idle
}

/// The first frame of a transfer. Gives back a write that has bytes to follow.
fn begin(link: &Link, queue: &mut Queue, post: Post, out: &mut Vec<u8>) -> Option<Stream> {
    let Post { id: transfer, kind, local, remote: page, completion } = post;
    let frame = match kind {
        TransferKind::Write => Frame::Write { transfer, page },
        TransferKind::Read => Frame::Read { transfer, page },
    };
    link.codec.encode(&frame, out);
    let stream =
        (kind == TransferKind::Write && !local.is_empty()).then(|| Stream { transfer, local: local.clone(), at: 0 });
    queue.running.insert(transfer, Running { completion, kind, local, at: 0 });
    stream
}

async fn receive(link: &Link, from: &mut (impl AsyncRead + Unpin)) -> WireError {
    let mut frames = FrameReader::new(link.codec);
    loop {
        let taken = match frames.next(from).await {
            Ok((frame, _)) => take(link, frame),
            Err(error) => return error,
        };
        if let Err(misbehaviour) = taken {
            return misbehaviour.into();
        }
    }
}

fn take(link: &Link, frame: Frame<'_>) -> Result<(), Misbehaviour> {
    match frame {
        Frame::Ack { transfer, refusal } => {
            let mut queue = link.lock();
            let running = queue.running.get(&transfer).ok_or(Misbehaviour::NoSuchTransfer { transfer })?;
            // A write that is still being cut into chunks still reads its pages; a read may be refused half way.
            let whole = running.at == running.local.len();
            if !whole && (running.kind == TransferKind::Write || refusal.is_none()) {
                return Err(Misbehaviour::WrongLength { transfer });
            }
            let over = queue.running.remove(&transfer);
            drop(queue);
            let outcome = refusal.map_or(Outcome::Done, |refusal| Outcome::Failed(TransferError::Refused(refusal)));
            if let Some(running) = over {
                running.completion.complete(outcome);
            }
        }
        Frame::ReadData { transfer, bytes } => {
            let mut queue = link.lock();
            let running = queue.running.get_mut(&transfer).filter(|running| running.kind == TransferKind::Read);
            let running = running.ok_or(Misbehaviour::NoSuchTransfer { transfer })?;
            let (local, at) = (running.local.clone(), running.at);
            if bytes.len() > local.len() - at {
                return Err(Misbehaviour::WrongLength { transfer });
            }
            running.at += bytes.len();
            drop(queue);
            local.write(at, bytes).map_err(|_| Misbehaviour::WrongLength { transfer })?;
        }
        Frame::Pong(nonce) => {
            let waiting = link.lock().pings.remove(&nonce);
            if let Some(pong) = waiting {
                let _ = pong.try_send(());
            }
        }
        _ => return Err(Misbehaviour::WrongSide),
    }
    Ok(())
}

/// Ends what the connection leaves behind.
struct Last {
    link: Arc<Link>,
    reporter: Reporter,
    /// `None`: the task did not come to its end by itself.
    why: Option<Option<Arc<TcpError>>>,
}

impl Last {
    fn transport_gone(&self) -> TcpError {
        TcpError::TransportGone { peer: self.link.peer.clone(), address: self.link.address.clone() }
    }
}

impl Drop for Last {
    fn drop(&mut self) {
        let why = self.why.take().unwrap_or_else(|| Some(Arc::new(self.transport_gone())));
        let mut queue = self.link.lock();
        queue.over = Some(Over { why: why.clone(), quiesced: false });
        let waiting = std::mem::take(&mut queue.waiting);
        let running = std::mem::take(&mut queue.running);
        let pings = std::mem::take(&mut queue.pings);
        drop(queue);
        let _quiesced = Quiesced(&self.link);
        if let Some(error) = why {
            self.reporter.report(&*error);
        }
        drop(pings);
        for post in waiting {
            post.completion.complete(Outcome::Failed(TransferError::NotSent));
        }
        for (_, running) in running {
            running.completion.complete(Outcome::Unknown);
        }
    }
}

/// Says that the connection's end is over, also when somebody's waker panics on the way.
struct Quiesced<'a>(&'a Link);

impl Drop for Quiesced<'_> {
    fn drop(&mut self) {
        if let Some(over) = &mut self.0.lock().over {
            over.quiesced = true;
        }
        self.0.ended.notify_all();
    }
}
