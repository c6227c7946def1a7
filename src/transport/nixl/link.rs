//! One connection that we opened, as its senders and the thread of its agent share it; below, "the thread".
//!
//! Senders call NIXL themselves, to notify, and to begin transfers whose page they may access. What is here is the book they
//! keep: how much is under way, which transfers wait for the peer's go. NIXL accepts messages for a stopped peer without limit, so
//! the limits are here. The book's lock is a connection's own and held over no call of NIXL. That of `moving` is, but no sender
//! waits for it: the thread does, and who waits for a transfer tries it.

use super::address::NixlAddress;
use super::capi::Status;
use super::dialers::Dialer;
use super::error::NixlError;
use super::helping::Helped;
use super::long_calls::LongCalls;
use super::mailbox::{Ending, Mailbox, OfOurs};
use super::message::{Answer, Ask, Farewell, Go, Head, Kind};
use super::moving::{Begun, Moving, Permission, Run, Way, begin_here};
use super::native::Memory;
use super::remote::Remote;
use super::shared::Shared;
use super::standing::Standing;
use crate::clock::Clock;
use crate::error::UsedAfterFork;
use crate::fork::Process;
use crate::name::PeerName;
use crate::state::Generation;
use crate::sync::lock;
use crate::transfer::{Outcome, Post, TransferError, TransferId};
use crate::transport::exit::Door;
use crate::transport::{Closed, ConnectContext, Liveness, Reporter};
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
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
/// Pings that may be unanswered. No more are numbered: the answer to an earlier one says the same.
const PINGS: u64 = 64;
/// How long an end is waited for that may not wait for the peer: the thread, which another peer's load may hold up.
const UNDO: Duration = Duration::from_secs(5);

/// One live connection to a peer. Ended by [`disconnect`](crate::Transport::disconnect), or when dropped.
pub struct NixlConnection {
    link: Arc<Link>,
    /// `None`: it was removed.
    remote: Option<Arc<Remote>>,
    max_notification: usize,
    dialer: Arc<Dialer>,
}

impl NixlConnection {
    pub(super) fn new(link: Arc<Link>, remote: Arc<Remote>, max_notification: usize, dialer: Arc<Dialer>) -> Self {
        NixlConnection { link, remote: Some(remote), max_notification, dialer }
    }

    /// The most bytes of one notification: the lesser of what both sides take.
    pub fn max_notification(&self) -> usize {
        self.max_notification
    }

    fn remote(&self) -> Result<&Remote, NixlError> {
        if !self.link.process.is_this() {
            return Err(UsedAfterFork.into());
        }
        self.remote.as_deref().ok_or_else(|| self.link.ended(&None))
    }

    pub(super) fn notify(&self, message: &[u8]) -> Result<(), NixlError> {
        let (remote, link, max) = (self.remote()?, &self.link, self.max_notification);
        if message.len() > max {
            return Err(NixlError::TooLong { peer: link.peer.clone(), len: message.len(), max });
        }
        let sequence = {
            let mut book = link.open_book()?;
            let (messages, bytes) = (book.untaken.len(), book.untaken_bytes);
            if messages >= WINDOW.0 || bytes > TAKEN_EVERY.1 && bytes + message.len() > WINDOW.1 {
                return Err(NixlError::QueueFull { peer: link.peer.clone() });
            }
            book.untaken.push_back(message.len());
            book.untaken_bytes += message.len();
            book.sequence += 1;
            book.sequence
        };
        let Err(status) = remote.notify(&Head::new(Kind::Notify, link.generation, sequence).with(message)) else {
            return Ok(());
        };
        let error = link.judge(remote, status);
        if matches!(error, NixlError::Rejected { .. }) {
            // The peer must not wait for it.
            let skip = Head::new(Kind::Skip, link.generation, sequence).with(&[]);
            remote.notify(&skip).map_err(|status| link.broken(status))?;
        }
        Err(error)
    }

    /// Begins it, where a permission for its page lasts; else asks for one.
    pub(super) fn post(&self, mut post: Post, shared: &Shared) -> Result<(), NixlError> {
        let (remote, link) = (self.remote()?, &self.link);
        let (local, there) = (post.local.len() as u64, post.remote.len);
        if local != there {
            return Err(NixlError::Length { peer: link.peer.clone(), local, remote: there });
        }
        if let Some(there) = link.stands(&post)? {
            let way = Way { link, remote, dialer: &self.dialer, shared };
            match begin_here(post, there, &way) {
                Begun::Ended => return Ok(()),
                Begun::Runs(run) => {
                    link.begun(run);
                    if !link.helped.is_left() {
                        self.dialer.mailbox.put(OfOurs::Waits);
                    }
                    return Ok(());
                }
                Begun::Not(back) => {
                    link.ran(back.id, Permission::Standing(back.remote.grant));
                    post = back;
                }
            }
        }
        let (id, ask) = (post.id, ask_of(&post));
        let mut book = link.open_book()?;
        if book.waiting.len() >= WAITING {
            return Err(NixlError::QueueFull { peer: link.peer.clone() });
        }
        post.completion.waits();
        if !book.has_turn() || !book.waiting.is_empty() {
            book.waiting.push_back(post);
            let is_first = book.waiting.len() == 1;
            drop(book);
            if is_first {
                // It may have left what runs to who waits.
                self.dialer.mailbox.put(OfOurs::Waits);
            }
            return Ok(());
        }
        book.asked.insert(id, post);
        drop(book);
        let mut body = Vec::new();
        ask.encode(&mut body);
        match remote.notify(&Head::new(Kind::Ask, link.generation, 0).with(&body)) {
            Ok(()) => {
                self.dialer.mailbox.put(OfOurs::Waits);
                Ok(())
            }
            Err(status) => {
                let unsent = link.book().asked.remove(&id);
                // Unless the thread has ended it meanwhile, with everything else that was not sent.
                unsent.map_or(Ok(()), |_unused| Err(link.judge(remote, status)))
            }
        }
    }

    pub(super) fn cancel(&self, transfer: TransferId) {
        if !self.link.process.is_this() {
            return;
        }
        let mut book = self.link.book();
        let at = book.waiting.iter().position(|post| post.id == transfer);
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
        let Ok(remote) = self.remote() else { return Liveness::Unknown };
        let (pong, answer) = mpsc::sync_channel(1);
        let (id, ping) = {
            let mut book = self.link.book();
            if book.over.is_some() {
                return Liveness::Dead;
            }
            let ping = book.next_ping();
            book.probed += 1;
            let (id, from) = (book.probed, ping.unwrap_or(book.ponged + 1));
            book.probes.push(Probe { id, from, pong });
            (id, ping)
        };
        let forget = || self.link.book().probes.retain(|probe| probe.id != id);
        if let Some(nonce) = ping
            && let Err(status) = remote.notify(&Head::new(Kind::Ping, self.link.generation, nonce).with(&[]))
        {
            forget();
            let is_ours = matches!(self.link.judge(remote, status), NixlError::Rejected { .. });
            return if is_ours { Liveness::Unknown } else { Liveness::Dead };
        }
        while let Some(left) = clock.real_wait_until(deadline) {
            match answer.recv_timeout(left) {
                Ok(()) => return Liveness::Alive,
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return Liveness::Dead,
            }
        }
        forget();
        Liveness::Dead
    }

    /// Requests, then the peer: the thread ends the first, this one removes the second.
    pub(super) fn disconnect(mut self, ending: Ending, deadline: Instant, clock: &Clock) -> Closed<Self> {
        if !self.link.end_and_wait(&self.dialer.mailbox, ending, || clock.real_wait_until(deadline)) {
            return Closed::Retry(self);
        }
        let Some(remote) = self.remote.take() else { return Closed::AlreadyGone };
        match remove(remote) {
            None => Closed::Released,
            Some(remote) => {
                self.remote = Some(remote);
                Closed::Retry(self)
            }
        }
    }
}

/// Takes a peer out of NIXL, by its last owner. Gives it back if NIXL does not let go of it, or if it has another owner.
pub(super) fn remove(remote: Arc<Remote>) -> Option<Arc<Remote>> {
    match Arc::try_unwrap(remote) {
        Ok(remote) => remote.remove().err().map(Arc::new),
        Err(remote) => Some(remote),
    }
}

impl Drop for NixlConnection {
    fn drop(&mut self) {
        if !self.link.process.is_this() {
            return std::mem::forget(self.remote.take());
        }
        if self.remote.is_some() {
            self.dialer.mailbox.put(OfOurs::Close(self.link.clone(), Ending::Goodbye(Farewell::Other)));
        }
    }
}

impl fmt::Debug for NixlConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NixlConnection")
            .field("peer", &self.link.peer)
            .field("address", &self.link.address)
            .field("generation", &self.link.generation)
            .finish_non_exhaustive()
    }
}

/// One attempt to connect, for the thread.
pub(super) struct Dial {
    pub(super) link: Arc<Link>,
    pub(super) remote: Arc<Remote>,
    pub(super) keys: u64,
    pub(super) done: mpsc::SyncSender<Result<Answer, NixlError>>,
}

/// What senders and the thread share.
pub(super) struct Link {
    process: Process,
    pub(super) peer: PeerName,
    pub(super) address: Arc<str>,
    pub(super) generation: Generation,
    pub(super) reporter: Reporter,
    pub(super) door: Arc<Door>,
    pub(super) long_calls: Arc<LongCalls>,
    /// The thread's.
    pub(super) mailbox: Arc<Mailbox<OfOurs>>,
    /// What NIXL has. Held while NIXL is asked of it.
    pub(super) moving: Mutex<Moving>,
    pub(super) helped: Helped,
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
    /// Of these, those that nobody has looked at since they were begun.
    begun: Vec<Run>,
    /// Those that are over, for the owner of their pages, which asked for each.
    over_here: Vec<TransferId>,
    standing: Standing,
    /// Asks whose page is wanted back before the go for it was looked at: it is for one transfer.
    recalled: HashSet<TransferId>,
    /// Who waits for a sign of life.
    probes: Vec<Probe>,
    probed: u64,
    pings: u64,
    /// The last ping that was answered.
    ponged: u64,
    over: Option<Option<Arc<NixlError>>>,
    /// The thread has nothing of it any more.
    done: bool,
}

/// What the thread has to do for a connection.
#[derive(Default)]
pub(super) struct Due {
    /// To ask for, in one message.
    pub(super) asks: Vec<u8>,
    pub(super) begin: Vec<(Post, Memory)>,
    /// To give back, by what asked for it.
    pub(super) over: Vec<TransferId>,
}

struct Probe {
    id: u64,
    /// The first ping whose answer counts.
    from: u64,
    pong: mpsc::SyncSender<()>,
}

impl Book {
    /// The number of a ping that may be sent; `None`: enough are unanswered.
    fn next_ping(&mut self) -> Option<u64> {
        (self.pings - self.ponged < PINGS).then(|| {
            self.pings += 1;
            self.pings
        })
    }

    fn waits(&self) -> bool {
        self.over.is_none() && !(self.asked.is_empty() && self.given_up.is_empty() && self.probes.is_empty())
    }

    fn has_turn(&self) -> bool {
        self.asked.len() + self.given_up.len() + self.running < TRANSFERS
    }
}

/// What the peer is asked for this transfer.
fn ask_of(post: &Post) -> Ask {
    Ask { kind: post.kind, transfer: post.id, page: post.remote }
}

impl Link {
    pub(super) fn new(
        cx: &ConnectContext,
        address: &NixlAddress,
        door: Arc<Door>,
        long_calls: Arc<LongCalls>,
        mailbox: Arc<Mailbox<OfOurs>>,
    ) -> Self {
        Link {
            process: Process::this(),
            peer: cx.name().clone(),
            address: address.to_string().into(),
            generation: cx.generation(),
            reporter: cx.reporter().clone(),
            door,
            long_calls,
            mailbox,
            moving: Mutex::default(),
            helped: Helped::default(),
            book: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// What an error of a call to this peer means: see [`error`](super::error).
    pub(super) fn judge(&self, remote: &Remote, status: Status) -> NixlError {
        let is_ours = match status {
            Status::NOT_FOUND => false,
            Status::INVALID_PARAM => true,
            _ => self.ping(remote).is_ok(),
        };
        if is_ours { NixlError::Rejected { peer: self.peer.clone(), status } } else { self.broken(status) }
    }

    /// The same for a transfer: what is not found may be memory.
    pub(super) fn judge_transfer(&self, remote: &Remote, status: Status) -> NixlError {
        match status {
            Status::NOT_FOUND if self.ping(remote).is_ok() => NixlError::Rejected { peer: self.peer.clone(), status },
            status => self.judge(remote, status),
        }
    }

    /// Asks for a sign of life; by the last number once more where enough are unanswered, as only a call finds a death. `Err`: it
    /// can't be asked.
    pub(super) fn ping(&self, remote: &Remote) -> Result<(), Status> {
        let nonce = {
            let mut book = self.book();
            book.next_ping().unwrap_or(book.pings)
        };
        remote.notify(&Head::new(Kind::Ping, self.generation, nonce).with(&[]))
    }

    pub(super) fn broken(&self, status: Status) -> NixlError {
        NixlError::Broken { peer: self.peer.clone(), address: self.address.clone(), status }
    }

    pub(super) fn misbehaved(&self) -> NixlError {
        NixlError::Misbehaved { peer: self.peer.clone(), address: self.address.clone() }
    }

    fn ended(&self, why: &Option<Arc<NixlError>>) -> NixlError {
        NixlError::Ended { peer: self.peer.clone(), generation: self.generation, source: why.clone() }
    }

    fn open_book(&self) -> Result<MutexGuard<'_, Book>, NixlError> {
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

    /// A ping was answered: whoever waits for a sign of life has one.
    pub(super) fn pong(&self, nonce: u64) {
        let mut book = self.book();
        if nonce > book.ponged && nonce <= book.pings {
            book.ponged = nonce;
            book.probes.retain(|probe| {
                let is_answered = probe.from <= nonce;
                if is_answered {
                    let _ = probe.pong.try_send(());
                }
                !is_answered
            });
        }
    }

    /// Whether the peer owes us anything: then its death must be noticed here, as nobody else may call. Who finds the window full
    /// calls nothing.
    pub(super) fn is_owed(&self) -> bool {
        let book = self.book();
        let is_untaken = book.untaken.len() >= TAKEN_EVERY.0 || book.untaken_bytes >= TAKEN_EVERY.1;
        book.waits() || is_untaken && book.over.is_none()
    }

    /// The peer refuses it. `None`: it was given up.
    pub(super) fn refused(&self, transfer: TransferId) -> Option<Post> {
        let mut book = self.book();
        book.given_up.remove(&transfer);
        book.recalled.remove(&transfer);
        book.asked.remove(&transfer)
    }

    /// The peer lets it read or write, once or from here on. `None`: it was given up, and nothing was moved.
    pub(super) fn allowed(&self, go: &Go) -> Option<(Post, Permission)> {
        let mut book = self.book();
        book.given_up.remove(&go.transfer);
        let is_recalled = book.recalled.remove(&go.transfer);
        let Some(post) = book.asked.remove(&go.transfer) else {
            book.over_here.push(go.transfer);
            return None;
        };
        book.running += 1;
        let lasts = !is_recalled && book.over.is_none() && book.standing.open(&post.remote, post.kind, go);
        let permission = if lasts { Permission::Standing(post.remote.grant) } else { Permission::Own };
        Some((post, permission))
    }

    /// Where its page is, if it may be begun at once. It counts as one that runs from here on.
    fn stands(&self, post: &Post) -> Result<Option<Memory>, NixlError> {
        let mut book = self.open_book()?;
        if post.local.is_empty() || !book.has_turn() || !book.waiting.is_empty() {
            return Ok(None);
        }
        let there = book.standing.enter(&post.remote, post.kind);
        book.running += usize::from(there.is_some());
        Ok(there)
    }

    /// One that ran has ended.
    pub(super) fn ran(&self, transfer: TransferId, permission: Permission) {
        let mut book = self.book();
        book.running -= 1;
        match permission {
            Permission::Standing(grant) => book.standing.leave(grant),
            Permission::Own => book.over_here.push(transfer),
        }
    }

    /// It was begun; whoever looks next sees to it.
    pub(super) fn begun(&self, run: Run) {
        let mut book = self.book();
        if book.done {
            drop(book);
            // With all that it may touch, nobody will look.
            return drop(run);
        }
        book.begun.push(run);
    }

    /// Those that were begun since the last look.
    pub(super) fn take_begun(&self) -> Vec<Run> {
        std::mem::take(&mut self.book().begun)
    }

    /// Whether one reads or writes, here or on its way to the thread.
    pub(super) fn is_running(&self) -> bool {
        self.book().running > 0
    }

    /// Whether some wait for their turn, which comes when others end.
    pub(super) fn is_crowded(&self) -> bool {
        !self.book().waiting.is_empty()
    }

    /// The peer wants its page back.
    pub(super) fn recalled(&self, ask: TransferId) {
        let mut book = self.book();
        if book.asked.contains_key(&ask) {
            book.recalled.insert(ask);
        }
        book.standing.recall(ask);
    }

    /// What is due: transfers whose turn it is, and pages that go back.
    pub(super) fn due(&self, now: Instant) -> Due {
        let (mut book, mut due) = (self.book(), Due::default());
        while book.over.is_none()
            && book.has_turn()
            && let Some(post) = book.waiting.pop_front()
        {
            if !post.local.is_empty()
                && let Some(there) = book.standing.enter(&post.remote, post.kind)
            {
                book.running += 1;
                due.begin.push((post, there));
            } else {
                ask_of(&post).encode(&mut due.asks);
                book.asked.insert(post.id, post);
            }
        }
        due.over = book.standing.returns(now);
        due.over.append(&mut book.over_here);
        due
    }

    /// Nothing more is taken. Transfers of which nothing was sent end; what runs goes on. Answers whether this was the first end.
    pub(super) fn end(&self, why: Option<Arc<NixlError>>) -> bool {
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

    /// The thread has nothing of it any more.
    pub(super) fn done(&self) {
        let mut book = self.book();
        book.done = true;
        let begun = std::mem::take(&mut book.begun);
        drop(book);
        drop(begun);
        self.changed.notify_all();
    }

    /// Has the thread end it, and waits for that: for the peer until `left` says that the time is over, and a second more
    /// without it. `false`: a transfer has not ended.
    pub(super) fn end_and_wait(
        self: &Arc<Self>,
        mailbox: &Mailbox<OfOurs>,
        ending: Ending,
        left: impl Fn() -> Option<Duration>,
    ) -> bool {
        mailbox.put(OfOurs::Close(self.clone(), ending));
        if ending != Ending::Now && self.wait_done(left) {
            return true;
        }
        mailbox.put(OfOurs::Close(self.clone(), Ending::Now));
        let end = Instant::now() + UNDO;
        self.wait_done(|| end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()))
    }

    fn wait_done(&self, left: impl Fn() -> Option<Duration>) -> bool {
        let mut book = self.book();
        while !book.done {
            let Some(left) = left() else { return false };
            book = self.changed.wait_timeout(book, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

#[cfg(all(test, not(peerage_loom)))]
mod tests {
    use super::*;
    use crate::help::Help;
    use crate::name::Incarnation;
    use crate::region::Region;
    use crate::transfer::{RemoteSlice, TransferKind};
    use crate::transport::nixl::helping::Left;

    fn link() -> Link {
        let peer = PeerName::new("peer").unwrap();
        let cx = ConnectContext::standalone(peer.clone(), Generation(1), Instant::now());
        let address = NixlAddress::new(peer, Incarnation(1), 0, Vec::new(), Vec::new());
        Link::new(&cx, &address, Door::new(), Arc::default(), Arc::new(Mailbox::new()))
    }

    fn post() -> Post {
        let there = RemoteSlice { grant: 7, region: 1, offset: 0, len: 8 };
        Post::standalone(TransferKind::Write, Region::zeroed(8).slice(0..8).unwrap(), there).0
    }

    /// What a go is good for, where its page was wanted back before or not.
    fn permission(is_recalled: bool) -> Permission {
        let (link, post) = (link(), post());
        let id = post.id;
        link.book().asked.insert(id, post);
        if is_recalled {
            link.recalled(id);
        }
        let go = Go { transfer: id, keys: 0, kind: 0, device: 0, address: 64, from: 0, to: 8, metadata: Vec::new() };
        link.allowed(&go).unwrap().1
    }

    /// NIXL promises no order, and a go may wait for its keys.
    ///
    /// fails if: a recall that comes before its go is forgotten.
    #[test]
    fn a_go_lasts_unless_its_page_was_recalled_before() {
        assert_eq!(permission(false), Permission::Standing(7));
        assert_eq!(permission(true), Permission::Own);
    }

    /// fails if: who waits gets in the line of a load, which outlasts its deadline.
    #[test]
    fn who_waits_does_not_wait_for_a_long_call() {
        let (link, transfer) = (link(), TransferId(1));
        let long_call = link.long_calls.begin();
        assert!(link.help(transfer), "it may be of use later");
        drop(long_call);
        assert!(!link.help(transfer), "it is not under way");
    }

    /// fails if: those that wait for their turn get it when the thread happens to look.
    #[test]
    fn nobody_takes_turns_with_the_thread_while_others_wait_for_theirs() {
        let (link, mut left, now) = (link(), Left::default(), Instant::now());
        let mut leaves = || left.leave_to_who_waits(&link.helped, link.is_crowded(), now);
        leaves();
        link.help(TransferId(1));
        assert!(leaves());
        link.book().waiting.push_back(post());
        assert!(!leaves() && !link.helped.is_left(), "the thread sees to all");
        let long_call = link.long_calls.begin();
        assert!(!link.help(TransferId(1)), "who waits sleeps");
        drop(long_call);
        link.book().waiting.clear();
        assert!(leaves());
    }

    /// fails if: the thread goes on to leave a transfer to who sleeps by now.
    #[test]
    fn the_thread_takes_over_at_once_from_who_stops() {
        let (link, mut left, now) = (link(), Left::default(), Instant::now());
        let mut leaves = || left.leave_to_who_waits(&link.helped, false, now);
        leaves();
        link.help(TransferId(1));
        assert!(leaves());
        link.stop(TransferId(1));
        assert!(!leaves() && !link.helped.is_left());
        assert_eq!(link.mailbox.take().len(), 1, "it is woken");
    }
}
