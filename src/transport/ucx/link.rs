//! One connection that we opened, as its senders and the thread of the transport share it.
//!
//! Senders call libucp themselves, on the endpoint that their connection holds. What is here is the book they keep: how much
//! is under way, which transfers wait for the peer's go. Its lock is a connection's own and held over no call of libucp.

use super::endpoint::Endpoint;
use super::error::UcxError;
use super::mailbox::{Ending, Event, Mailbox};
use super::message::{Ask, Head, Kind};
use super::native::Status;
use crate::clock::Clock;
use crate::error::UsedAfterFork;
use crate::fork::Process;
use crate::name::PeerName;
use crate::state::Generation;
use crate::sync::lock;
use crate::transfer::{Outcome, Post, TransferError, TransferId};
use crate::transport::frame::{Farewell, Hello};
use crate::transport::{Connected, Liveness, Reporter};
use peerage_ucx_sys::UCS_ERR_NO_MEMORY;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How many messages the peer may not have taken yet, and how many bytes of them.
pub(super) const WINDOW: (usize, usize) = (1024, 4 << 20);
/// After how many of them at the latest it says that it has taken them. Who has less under way may always send.
pub(super) const TAKEN_EVERY: (usize, usize) = (WINDOW.0 / 8, WINDOW.1 / 8);
/// Transfers that may run at once.
pub(super) const TRANSFERS: usize = 32;
/// Those that may wait for their turn.
const WAITING: usize = 16 * 1024;
/// How long a close by force is waited for: of what is not over at its deadline, and of an attempt that has failed.
const UNDO: Duration = Duration::from_secs(1);

/// One live connection to a peer. Closed by [`disconnect`](crate::Transport::disconnect), or when dropped.
pub struct UcxConnection {
    link: Arc<Link>,
    /// `None`: it was given to the thread to be closed.
    endpoint: Option<Arc<Endpoint>>,
    max_notification: usize,
    mailbox: Arc<Mailbox>,
}

impl UcxConnection {
    pub(super) fn new(
        link: Arc<Link>,
        endpoint: Arc<Endpoint>,
        max_notification: usize,
        mailbox: Arc<Mailbox>,
    ) -> Self {
        UcxConnection { link, endpoint: Some(endpoint), max_notification, mailbox }
    }

    /// The most bytes of one notification: the lesser of what both sides take.
    pub fn max_notification(&self) -> usize {
        self.max_notification
    }

    fn endpoint(&self) -> Result<&Endpoint, UcxError> {
        if !self.link.process.is_this() {
            return Err(UsedAfterFork.into());
        }
        self.endpoint.as_deref().ok_or_else(|| self.link.ended(&None))
    }

    pub(super) fn notify(&self, message: &[u8]) -> Result<(), UcxError> {
        let (endpoint, link, max) = (self.endpoint()?, &self.link, self.max_notification());
        if message.len() > max {
            return Err(UcxError::TooLong { peer: link.peer.clone(), len: message.len(), max });
        }
        let sequence = {
            let mut book = link.open_book()?;
            let (messages, bytes) = (book.untaken.len(), book.untaken_bytes);
            if messages >= WINDOW.0 || bytes > TAKEN_EVERY.1 && bytes + message.len() > WINDOW.1 {
                return Err(UcxError::QueueFull { peer: link.peer.clone() });
            }
            book.untaken.push_back(message.len());
            book.untaken_bytes += message.len();
            book.sequence += 1;
            book.sequence
        };
        let head = Head::new(Kind::Notify, link.generation, sequence);
        endpoint.send(head, message).map_err(|status| link.broken(status))
    }

    pub(super) fn post(&self, post: Post) -> Result<(), UcxError> {
        let (endpoint, link) = (self.endpoint()?, &self.link);
        let (local, remote) = (post.local.len() as u64, post.remote.len);
        if local != remote {
            return Err(UcxError::Length { peer: link.peer.clone(), local, remote });
        }
        let (id, ask) = (post.id, ask_of(&post, link.one_sided));
        let mut book = link.open_book()?;
        if book.waiting.len() >= WAITING {
            return Err(UcxError::QueueFull { peer: link.peer.clone() });
        }
        post.completion.waits();
        if !book.has_turn() || !book.waiting.is_empty() {
            book.waiting.push_back(post);
            return Ok(());
        }
        book.asked.insert(id, post);
        drop(book);
        let mut body = Vec::new();
        ask.encode(&mut body);
        match endpoint.send(Head::new(Kind::Ask, link.generation, 0), &body) {
            Ok(()) => Ok(()),
            // Unless the thread has ended it meanwhile, with everything else that was not sent.
            Err(status) => link.book().asked.remove(&id).map_or(Ok(()), |_unused| Err(link.broken(status))),
        }
    }

    pub(super) fn cancel(&self, transfer: TransferId) {
        if !self.link.process.is_this() {
            return;
        }
        let mut book = self.link.book();
        let at = book.waiting.iter().position(|post| post.id == transfer);
        // Of a read that was asked for bytes may come: they are dropped, as nobody knows them. A write waits for us.
        let post = at.and_then(|at| book.waiting.remove(at)).or_else(|| {
            let post = book.asked.remove(&transfer)?;
            book.given_up.insert(transfer);
            Some(post)
        });
        drop(book);
        if let Some(post) = post {
            post.completion.complete(Outcome::Failed(TransferError::NotSent));
        }
    }

    pub(super) fn probe(&self, deadline: Instant, clock: &Clock) -> Liveness {
        let Ok(endpoint) = self.endpoint() else { return Liveness::Unknown };
        let (pong, answer) = mpsc::sync_channel(1);
        let nonce = {
            let mut book = self.link.book();
            if book.over.is_some() {
                return Liveness::Dead;
            }
            book.pings += 1;
            let nonce = book.pings;
            book.probes.push((nonce, pong));
            nonce
        };
        if let Err(status) = endpoint.send(Head::new(Kind::Ping, self.link.generation, nonce), &[]) {
            self.link.book().probes.retain(|(of, _)| *of != nonce);
            return if status.0 == UCS_ERR_NO_MEMORY { Liveness::Unknown } else { Liveness::Dead };
        }
        while let Some(left) = clock.real_wait_until(deadline) {
            match answer.recv_timeout(left) {
                Ok(()) => return Liveness::Alive,
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return Liveness::Dead,
            }
        }
        self.link.book().probes.retain(|(of, _)| *of != nonce);
        Liveness::Dead
    }

    /// Closes it and waits for that. What is not over at the deadline is ended by force. `false`: not even that worked.
    pub(super) fn disconnect(&mut self, ending: Ending, deadline: Instant, clock: &Clock) -> bool {
        self.give_back(ending);
        if self.link.wait_closed(|| clock.real_wait_until(deadline)) {
            return true;
        }
        self.link.give_up(&self.mailbox)
    }

    fn give_back(&mut self, ending: Ending) {
        if let Some(endpoint) = self.endpoint.take() {
            self.mailbox.put(Event::Close(self.link.clone(), endpoint, ending));
        }
    }
}

impl Drop for UcxConnection {
    fn drop(&mut self) {
        if self.link.process.is_this() {
            self.give_back(Ending::Goodbye(Farewell::Other));
        } else {
            std::mem::forget(self.endpoint.take());
        }
    }
}

impl fmt::Debug for UcxConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UcxConnection")
            .field("peer", &self.link.peer)
            .field("address", &self.link.address)
            .field("generation", &self.link.generation)
            .finish_non_exhaustive()
    }
}

/// One attempt to connect, for the thread.
pub(super) struct Dial {
    pub(super) link: Arc<Link>,
    pub(super) to: SocketAddr,
    pub(super) hello: Hello,
    pub(super) done: mpsc::SyncSender<Result<Connected<UcxConnection>, UcxError>>,
}

/// What senders and the thread share.
pub(super) struct Link {
    process: Process,
    pub(super) peer: PeerName,
    pub(super) address: Arc<str>,
    pub(super) generation: Generation,
    pub(super) reporter: Reporter,
    /// It reads and writes pages by itself.
    pub(super) one_sided: bool,
    book: Mutex<Book>,
    changed: Condvar,
}

#[derive(Default)]
struct Book {
    /// The number of the last message.
    sequence: u64,
    /// The lengths of those that the peer has not said to have taken.
    untaken: VecDeque<usize>,
    untaken_bytes: usize,
    /// Transfers that wait for their turn.
    waiting: VecDeque<Post>,
    /// Those that the peer was asked for.
    asked: HashMap<TransferId, Post>,
    /// Those given up since: for the peer they run until it has answered.
    given_up: HashSet<TransferId>,
    /// How many read or write.
    running: usize,
    probes: Vec<(u64, mpsc::SyncSender<()>)>,
    pings: u64,
    over: Option<Option<Arc<UcxError>>>,
    closed: bool,
}

impl Book {
    fn has_turn(&self) -> bool {
        self.asked.len() + self.given_up.len() + self.running < TRANSFERS
    }
}

/// What the peer is asked for this transfer.
fn ask_of(post: &Post, one_sided: bool) -> Ask {
    Ask { kind: post.kind, one_sided, transfer: post.id, page: post.remote }
}

impl Link {
    pub(super) fn new(
        peer: PeerName,
        address: Arc<str>,
        generation: Generation,
        reporter: Reporter,
        one_sided: bool,
    ) -> Self {
        Link {
            process: Process::this(),
            peer,
            address,
            generation,
            reporter,
            one_sided,
            book: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    pub(super) fn broken(&self, status: Status) -> UcxError {
        UcxError::Broken { peer: self.peer.clone(), address: self.address.clone(), status }
    }

    pub(super) fn misbehaved(&self) -> UcxError {
        UcxError::Misbehaved { peer: self.peer.clone(), address: self.address.clone() }
    }

    fn ended(&self, why: &Option<Arc<UcxError>>) -> UcxError {
        UcxError::Ended { peer: self.peer.clone(), generation: self.generation, source: why.clone() }
    }

    fn open_book(&self) -> Result<MutexGuard<'_, Book>, UcxError> {
        let book = self.book();
        match &book.over {
            None => Ok(book),
            Some(why) => Err(self.ended(why)),
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        lock(&self.book)
    }

    /// The number of the last message, for a goodbye.
    pub(super) fn last_sequence(&self) -> u64 {
        self.book().sequence
    }

    /// The peer has taken all messages up to this one.
    pub(super) fn taken(&self, last: u64) {
        let mut book = self.book();
        while book.sequence - (book.untaken.len() as u64) < last
            && let Some(len) = book.untaken.pop_front()
        {
            book.untaken_bytes -= len;
        }
    }

    pub(super) fn pong(&self, nonce: u64) {
        let mut book = self.book();
        if let Some(at) = book.probes.iter().position(|(of, _)| *of == nonce) {
            let _ = book.probes.swap_remove(at).1.try_send(());
        }
    }

    /// The peer lets it read or write, or refuses. `None`: it was given up.
    pub(super) fn answered(&self, transfer: TransferId, runs: bool) -> Option<Post> {
        let mut book = self.book();
        book.given_up.remove(&transfer);
        let post = book.asked.remove(&transfer)?;
        book.running += usize::from(runs);
        Some(post)
    }

    /// One that ran has ended.
    pub(super) fn ran(&self) {
        self.book().running -= 1;
    }

    pub(super) fn running(&self) -> usize {
        self.book().running
    }

    /// The transfers whose turn it is, for one message.
    pub(super) fn turns(&self) -> Vec<u8> {
        let (mut book, mut asks) = (self.book(), Vec::new());
        while book.over.is_none()
            && book.has_turn()
            && let Some(post) = book.waiting.pop_front()
        {
            ask_of(&post, self.one_sided).encode(&mut asks);
            book.asked.insert(post.id, post);
        }
        asks
    }

    /// Nothing more is taken. Transfers of which nothing was sent end; what runs goes on until it is closed. Answers whether
    /// this was the first end.
    pub(super) fn end(&self, why: Option<Arc<UcxError>>) -> bool {
        let mut book = self.book();
        if book.over.is_some() {
            return false;
        }
        book.over = Some(why);
        let waiting = std::mem::take(&mut book.waiting);
        let asked = std::mem::take(&mut book.asked);
        let probes = std::mem::take(&mut book.probes);
        drop(book);
        drop(probes);
        for post in waiting.into_iter().chain(asked.into_values()) {
            post.completion.complete(Outcome::Failed(TransferError::NotSent));
        }
        true
    }

    pub(super) fn closed(&self) {
        self.book().closed = true;
        self.changed.notify_all();
    }

    /// Has it closed by force, and waits for that. `false`: it is not closed yet.
    pub(super) fn give_up(self: &Arc<Self>, mailbox: &Mailbox) -> bool {
        mailbox.put(Event::GiveUp(self.clone()));
        let end = Instant::now() + UNDO;
        self.wait_closed(|| end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()))
    }

    fn wait_closed(&self, left: impl Fn() -> Option<Duration>) -> bool {
        let mut book = self.book();
        while !book.closed {
            let Some(left) = left() else { return false };
            book = self.changed.wait_timeout(book, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}
