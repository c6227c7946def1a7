//! A read or a write we posted, from its post to the moment its pages are ours again.
//!
//! A transfer ends once, as `Done`, `Failed` or `Unknown`, by one RMW on its own state; that never touches the connection.
//! It is *quiescent* when the transport no longer touches its local pages. The two may be apart: `Unknown` ends the
//! caller's wait, while the pages stay in quarantine until the connection is proven closed. Until then the transfer's
//! bay counts it (not a lease), so the bay is not used again.
//!
//! How far it is, the transport says in one word (`moved`), which also decides whether a transfer that is given up while it
//! waits for its turn is sent or not: whoever changes the word first.

use crate::cancel::Cancelled;
use crate::clock::Clock;
use crate::error::Sent;
use crate::grant::Refusal;
use crate::help::{self, Help};
use crate::name::PeerName;
use crate::region::Slice;
use crate::sync::{Arc, AtomicU32, Mutex, Ordering};
use crate::wait::{Cell, Wait};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{OnceLock, Weak};
use std::task::{Context, Poll};
use std::time::Instant;

const ENDED: u32 = 1;
const QUIESCENT: u32 = 2;
/// Quiescent, and counted out of its peer and its region.
const COUNTED_OUT: u32 = 4;

/// The transport does not say how far a transfer is.
const UNSAID: u64 = u64::MAX;
/// Nothing of it was sent.
const WAITS: u64 = u64::MAX - 1;
/// It was given up before anything was sent, and nothing will be.
const GIVEN_UP: u64 = u64::MAX - 2;
/// The most bytes that are told apart.
const MAX_MOVED: u64 = u64::MAX - 3;

/// Tells the transfers of one process apart. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransferId(pub u64);

impl TransferId {
    fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        TransferId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Which way the bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransferKind {
    /// From our slice into the peer's page.
    Write,
    /// From the peer's page into our slice.
    Read,
}

/// A page of a remote peer, as its grant describes it. 40 bytes on the wire; [`Grant::remote`](crate::Grant::remote) makes it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RemoteSlice {
    /// The secret that proves the loan.
    pub grant: u128,
    /// The peer's region.
    pub region: u64,
    /// Where the page starts in the peer's region, in bytes.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

impl RemoteSlice {
    /// Bytes of the encoded form.
    pub const ENCODED: usize = 40;

    /// A part of it; `None` if it is not inside.
    pub fn slice(self, offset: u64, len: u64) -> Option<Self> {
        let end = offset.checked_add(len)?;
        (end <= self.len).then_some(RemoteSlice { offset: self.offset.checked_add(offset)?, len, ..self })
    }

    /// For a message to the peer that is to read or write it.
    pub fn to_bytes(self) -> [u8; Self::ENCODED] {
        let mut bytes = [0; Self::ENCODED];
        bytes[..16].copy_from_slice(&self.grant.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.region.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.offset.to_le_bytes());
        bytes[32..].copy_from_slice(&self.len.to_le_bytes());
        bytes
    }

    /// What [`to_bytes`](Self::to_bytes) made. Any bytes are safe: what names no loan is refused by its owner.
    pub fn from_bytes(bytes: &[u8; Self::ENCODED]) -> Self {
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        RemoteSlice {
            grant: u128::from_le_bytes(bytes[..16].try_into().expect("sixteen bytes")),
            region: number(16),
            offset: number(24),
            len: number(32),
        }
    }
}

impl fmt::Debug for RemoteSlice {
    /// Leaves the secret out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteSlice(region {}, {}+{})", self.region, self.offset, self.len)
    }
}

/// How a transfer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// All bytes are where they belong.
    Done,
    /// It did not happen, or not whole: the peer said so, or nothing was sent. Or its deadline passed, and
    /// [`TransferError::Deadline`] says whether anything may have been sent.
    Failed(TransferError),
    /// Nobody can tell what the far side has. The request must be failed, not repeated blindly.
    Unknown,
}

/// Why a transfer failed.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransferError {
    /// The owner of the page refused. Ask it for a new grant.
    #[error("the owner of the page refused: {0}")]
    Refused(Refusal),
    /// The connection ended before anything was sent. Fail the request; a later one may find the peer ready again.
    #[error("the connection ended before anything was sent")]
    NotSent,
    /// A fault on this side; nothing more is known to be wrong with the peer.
    #[error("local fault: {0}")]
    Local(String),
    /// Its own deadline passed; it was given up, and the peer is told. Fail the request. Its pages are in quarantine until
    /// [`Transfer::is_quiescent`]; where that lasts, the peer hangs: report its generation.
    #[error("the transfer with \"{peer}\" was not over at its deadline; {}", what_was_sent(.sent))]
    Deadline {
        /// The peer.
        peer: PeerName,
        /// Whether anything may have been sent. `No` only where the transport says when it begins.
        sent: Sent,
    },
}

fn what_was_sent(sent: &Sent) -> &'static str {
    match sent {
        Sent::No => "nothing was sent",
        Sent::Maybe => "it may have happened, whole or in part",
    }
}

/// A transfer as a transport gets it.
#[derive(Debug)]
pub struct Post {
    /// Its number, for the wire.
    pub id: TransferId,
    /// Which way.
    pub kind: TransferKind,
    /// Our pages. Not to be touched after `completion` is completed.
    pub local: Slice,
    /// The peer's page, of the same length.
    pub remote: RemoteSlice,
    /// Ends the transfer.
    pub completion: Completion,
}

impl Post {
    /// A transfer without a table, for calling a transport directly: in its own tests, or in a baseline to compare with.
    pub fn standalone(kind: TransferKind, local: Slice, remote: RemoteSlice) -> (Post, Transfer) {
        Self::new(kind, local, remote, None, Clock::system())
    }

    pub(crate) fn new(
        kind: TransferKind,
        local: Slice,
        remote: RemoteSlice,
        home: Option<Box<dyn TransferHome>>,
        clock: Clock,
    ) -> (Post, Transfer) {
        let id = TransferId::next();
        let core = Arc::new(Core {
            id,
            local: local.clone(),
            state: AtomicU32::new(0),
            moved: AtomicU64::new(UNSAID),
            stalled: AtomicBool::new(false),
            ended: Arc::new(Cell::new()),
            helper: OnceLock::new(),
            home: Mutex::new(Home { counted: home, waiting: Vec::new(), is_over: false }),
        });
        let transfer = Transfer { core: core.clone(), wait: Wait::new(core.ended.clone()), clock };
        (Post { id, kind, local, remote, completion: Completion { core: Some(core) } }, transfer)
    }
}

/// Where a transfer is counted while it is not quiescent.
pub(crate) trait TransferHome: Send {
    /// It has ended for its caller and holds its pages. At most once, before `quiescent`.
    fn quarantined(&self);
    /// It holds nothing any more.
    fn quiescent(self: Box<Self>, transfer: TransferId, was_quarantined: bool);
    /// What reaches its table, for use without a lock.
    fn reach(&self) -> Box<dyn Reach>;
}

/// What is asked of a transfer's table by who gives it up. Called under no lock.
pub(crate) trait Reach: Send {
    /// Has `cell` answered at the deadline, and the transfer ended, if it is not quiescent by then.
    fn answer_at(&self, deadline: Instant, transfer: &Arc<Core>, cell: &Arc<Cell<Cancelled>>);
    /// Asks the transport to give it up, if its connection is open.
    fn cancel(&self, transfer: TransferId);
}

struct Home {
    /// Taken at quiescence.
    counted: Option<Box<dyn TransferHome>>,
    /// Who waits for quiescence, and some who were answered at their deadlines.
    waiting: Vec<Arc<Cell<Cancelled>>>,
    /// They have been told.
    is_over: bool,
}

impl Home {
    /// Lists one who waits. Whenever there is no room, those who were answered go first: a caller that asks again and again
    /// while a peer hangs adds nothing that stays.
    fn list(&mut self, cell: &Arc<Cell<Cancelled>>) {
        if self.waiting.len() == self.waiting.capacity() {
            self.waiting.retain(|cell| cell.peek().is_none());
            self.waiting.reserve(self.waiting.len()); // the next look comes after as many more
        }
        self.waiting.push(cell.clone());
    }
}

pub(crate) struct Core {
    id: TransferId,
    /// Held until quiescence even if the user has dropped the region.
    local: Slice,
    state: AtomicU32,
    /// The bytes that have moved, or one of `UNSAID`, `WAITS`, `GIVEN_UP`. Decides by itself and publishes nothing.
    moved: AtomicU64,
    /// For showing.
    stalled: AtomicBool,
    ended: Arc<Cell<Outcome>>,
    /// Weak: a transfer that its caller keeps keeps no connection.
    helper: OnceLock<Weak<dyn Help>>,
    /// `state` changes under this lock, so the home is told in order.
    home: Mutex<Home>,
}

impl Core {
    pub(crate) fn id(&self) -> TransferId {
        self.id
    }

    /// Ends the caller's wait; the pages stay where they are.
    pub(crate) fn end(&self, outcome: Outcome) {
        self.advance(ENDED, Some(outcome));
    }

    /// Gives the pages back: the transport touches them no more.
    pub(crate) fn quiesce(&self) {
        self.advance(QUIESCENT, None);
    }

    fn advance(&self, bits: u32, outcome: Option<Outcome>) {
        if !self.ended.is_here() {
            return; // it goes on in the parent
        }
        let mut home = self.home.lock();
        // ord! AcqRel: the one RMW that decides who ends it, and who gives its pages back. The outcome itself is published by
        //      the cell's mutex.
        //      model: closing::a_transfer_ends_once   fails if: end-without-deciding
        let before = self.state.fetch_or(bits, Ordering::AcqRel);
        let new = bits & !before;
        let leaves = if new & QUIESCENT != 0 { home.counted.take() } else { None };
        if let Some(home) = home.counted.as_ref().filter(|_| new & ENDED != 0) {
            home.quarantined();
        }
        drop(home);
        // Counted out before its caller is told, who may deregister the region at once.
        if let Some(home) = leaves {
            home.quiescent(self.id, before & ENDED != 0);
        }
        if new & QUIESCENT != 0 {
            // ord! AcqRel is more than it needs: it goes on with the Release of the RMW above, which publishes the transport's
            //      last touch of the pages to who sees in `is_quiescent` that they are free. Only both relaxed fail.
            //      model: closing::pages_are_ours_again_when_a_transfer_is_quiescent   fails if: relaxed-return-of-pages
            self.state.fetch_or(COUNTED_OUT, Ordering::AcqRel);
        }
        if let Some(outcome) = outcome.filter(|_| new & ENDED != 0) {
            self.ended.resolve(outcome);
        }
        if new & QUIESCENT != 0 {
            self.tell_quiescent();
        }
    }

    /// After its outcome is there, which the answer has.
    fn tell_quiescent(&self) {
        let mut home = self.home.lock();
        home.is_over = true;
        let waiting = std::mem::take(&mut home.waiting);
        drop(home);
        for cell in waiting {
            cell.resolve(Cancelled::Quiesced(self.outcome()));
        }
    }

    fn outcome(&self) -> Outcome {
        self.ended.peek().unwrap_or(Outcome::Unknown)
    }

    /// Resolves `cell` at quiescence, or now. Answers how to reach its table, if it is still counted there.
    pub(crate) fn await_quiescence(&self, cell: &Arc<Cell<Cancelled>>) -> Option<Box<dyn Reach>> {
        if !self.ended.is_here() {
            cell.resolve(Cancelled::NotQuiesced);
            return None;
        }
        let mut home = self.home.lock();
        let reach = home.counted.as_ref().map(|home| home.reach());
        // Any order would do: whoever sets QUIESCENT holds the mutex that is held here.
        let quiesces = reach.is_some() || self.state.load(Ordering::Acquire) & QUIESCENT != 0;
        let is_over = home.is_over;
        if quiesces && !is_over {
            home.list(cell);
        }
        drop(home);
        match (is_over, quiesces) {
            (true, _) => cell.resolve(Cancelled::Quiesced(self.outcome())),
            (false, true) => return reach,
            (false, false) => cell.resolve(Cancelled::NotQuiesced),
        };
        reach
    }

    /// How to reach its table, if it is still counted there.
    pub(crate) fn reach(&self) -> Option<Box<dyn Reach>> {
        self.home.lock().counted.as_ref().map(|home| home.reach())
    }

    /// Ends it at its own deadline.
    pub(crate) fn expire(&self, peer: PeerName) {
        let unsent = match self.moved.compare_exchange(WAITS, GIVEN_UP, Relaxed, Relaxed) {
            Ok(_) => true,
            Err(now) => now == GIVEN_UP,
        };
        let sent = if unsent { Sent::No } else { Sent::Maybe };
        self.end(Outcome::Failed(TransferError::Deadline { peer, sent }));
    }

    /// How many bytes have moved. `None`: none yet, and it waits for its turn; or the transport does not say.
    pub(crate) fn moved(&self) -> Option<u64> {
        Some(self.moved.load(Relaxed)).filter(|moved| *moved <= MAX_MOVED)
    }

    pub(crate) fn set_stalled(&self, stalled: bool) {
        self.stalled.store(stalled, Relaxed);
    }

    fn is_quiescent(&self) -> bool {
        // ord! Acquire: what touched the pages last comes before their next use. Pairs with the Release in `advance`.
        //      model: closing::pages_are_ours_again_when_a_transfer_is_quiescent   fails if: relaxed-look-at-quiescence
        self.state.load(Ordering::Acquire) & COUNTED_OUT != 0
    }
}

/// A transport's duty to end one transfer. Dropped without [`complete`](Self::complete) (a panic, a lost thread), the
/// transfer ends as `Unknown` and its pages stay in quarantine until its connection is proven closed.
pub struct Completion {
    core: Option<Arc<Core>>,
}

impl Completion {
    /// Ends the transfer. The caller states that the local pages are no longer touched, whatever the outcome. From any thread;
    /// takes leaf locks, runs wakers of whoever waits, and may drop the transport: see [`Transport`](crate::Transport).
    pub fn complete(mut self, outcome: Outcome) {
        if let Some(core) = self.core.take() {
            core.advance(ENDED | QUIESCENT, Some(outcome));
        }
    }

    /// States, when the transfer is accepted, that nothing of it is sent before [`begins`](Self::begins) has said that it
    /// may. So one whose deadline passes while it waits for its turn fails with the certainty that nothing was sent. A
    /// transport that can't promise that leaves it out.
    pub fn waits(&self) {
        self.say(WAITS);
    }

    /// The first of it is about to be sent. `false`: it was given up before, and nothing may be sent; complete it as
    /// [`TransferError::NotSent`]. One compare-and-swap; never waits.
    #[must_use = "a transfer that was given up must not be sent"]
    pub fn begins(&self) -> bool {
        let begins = |moved| match moved {
            GIVEN_UP => None,
            UNSAID | WAITS => Some(0),
            begun => Some(begun),
        };
        self.core.as_ref().is_none_or(|core| core.moved.fetch_update(Relaxed, Relaxed, begins).is_ok())
    }

    /// So many bytes of it have moved so far, as far as this side can tell. One relaxed store, for every chunk. A transfer
    /// that has begun and says nothing new for [`stalled_after`](crate::Builder::stalled_after) is stalled; one that never
    /// says anything is not watched.
    pub fn progress(&self, moved: u64) {
        self.say(moved.min(MAX_MOVED));
    }

    /// Whoever waits for it, in [`Transfer::wait`], calls `helper` for about a millisecond before it sleeps, and again each time
    /// that it waits. For a transport whose native side moves bytes only when it is asked how far it is; its own threads must be
    /// enough all the same. To be said before `post` returns, or when it begins: a thread that waits by then does not look
    /// again. The first stays, a later one is dropped. Never waits.
    pub fn helped_by(&self, helper: Weak<dyn Help>) {
        if let Some(core) = &self.core {
            let _ = core.helper.set(helper);
        }
    }

    fn say(&self, moved: u64) {
        if let Some(core) = &self.core {
            core.moved.store(moved, Relaxed);
        }
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if let Some(core) = self.core.take() {
            core.end(Outcome::Unknown);
        }
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Completion").field(&self.core.as_ref().map(|core| core.id)).finish()
    }
}

/// The caller's side of a transfer: a future of its [`Outcome`]. Dropping it cancels nothing. In a forked child it is
/// [`Unknown`](Outcome::Unknown): it goes on in the parent.
#[must_use = "a transfer that nobody waits for may fail unseen"]
pub struct Transfer {
    core: Arc<Core>,
    wait: Wait<Outcome>,
    clock: Clock,
}

impl Transfer {
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Its number.
    pub fn id(&self) -> TransferId {
        self.core.id
    }

    /// Our pages.
    pub fn local(&self) -> &Slice {
        &self.core.local
    }

    /// The outcome if there is one. Never waits.
    pub fn try_outcome(&self) -> Option<Outcome> {
        if self.core.ended.is_here() { self.core.ended.peek() } else { Some(Outcome::Unknown) }
    }

    /// Blocks this thread until the outcome is there; `None` if the deadline (by the table's clock) passes first, and the transfer goes on.
    /// Where the transport lets it ([`Completion::helped_by`]), this thread moves the bytes meanwhile.
    pub fn wait(&self, deadline: Instant) -> Option<Outcome> {
        if !self.core.ended.is_here() {
            return Some(Outcome::Unknown);
        }
        if let Some(helper) = self.core.helper.get().and_then(Weak::upgrade) {
            let may_wait = || self.clock.real_wait_until(deadline).is_some();
            help::help(&*helper, self.core.id, may_wait, || self.try_outcome().is_some());
        }
        self.core.ended.wait_until(deadline, &self.clock)
    }

    /// Whether the local pages may be reused. Always so after `Done`; after `Unknown` and after its deadline only once the peer
    /// has answered or the connection is closed.
    pub fn is_quiescent(&self) -> bool {
        self.core.is_quiescent()
    }

    /// Whether it has begun and no byte of it has moved for [`stalled_after`](crate::Builder::stalled_after). A hint that
    /// comes and goes; always false where that is not set, or where the transport does not say how far a transfer is.
    /// Wait-free.
    pub fn is_stalled(&self) -> bool {
        self.core.stalled.load(Relaxed)
    }
}

impl Future for Transfer {
    type Output = Outcome;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        if !self.core.ended.is_here() {
            return Poll::Ready(Outcome::Unknown);
        }
        Pin::new(&mut self.wait).poll(cx)
    }
}

impl fmt::Debug for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transfer")
            .field("id", &self.core.id)
            .field("outcome", &self.try_outcome())
            .field("quiescent", &self.is_quiescent())
            .finish()
    }
}

#[cfg(all(test, not(peerage_loom)))]
mod tests {
    use super::*;
    use crate::region::Region;
    use std::sync::OnceLock;
    use std::sync::mpsc::{Receiver, Sender, channel};

    fn remote() -> RemoteSlice {
        RemoteSlice { grant: u128::MAX / 3, region: 1, offset: 10, len: 20 }
    }

    fn post() -> (Post, Transfer) {
        post_of(None)
    }

    fn post_of(home: Option<Box<dyn TransferHome>>) -> (Post, Transfer) {
        let local = Region::zeroed(8).slice(0..8).unwrap();
        Post::new(TransferKind::Write, local, remote(), home, Clock::system())
    }

    #[derive(Debug, PartialEq)]
    enum Told {
        Quarantined,
        Quiescent { was_quarantined: bool },
    }
    use Told::{Quarantined, Quiescent};

    /// A test that has failed listens no more.
    struct Listens(Sender<Told>);

    impl TransferHome for Listens {
        fn quarantined(&self) {
            let _ = self.0.send(Quarantined);
        }
        fn quiescent(self: Box<Self>, _: TransferId, was_quarantined: bool) {
            let _ = self.0.send(Quiescent { was_quarantined });
        }
        fn reach(&self) -> Box<dyn Reach> {
            unreachable!("nobody gives it up")
        }
    }

    fn post_at_home() -> (Post, Transfer, Receiver<Told>) {
        let (tell, told) = channel();
        let (post, transfer) = post_of(Some(Box::new(Listens(tell))));
        (post, transfer, told)
    }

    #[test]
    fn the_first_end_counts() {
        let (post, transfer) = post();
        assert_eq!(transfer.try_outcome(), None);
        transfer.core().end(Outcome::Unknown);
        assert!(!transfer.is_quiescent(), "the caller's wait is over, the transport's use is not");
        post.completion.complete(Outcome::Done);
        assert_eq!(transfer.try_outcome(), Some(Outcome::Unknown));
        assert!(transfer.is_quiescent());
    }

    #[test]
    fn a_lost_completion_is_unknown_and_keeps_the_pages() {
        let (post, transfer) = post();
        drop(post);
        assert_eq!(transfer.try_outcome(), Some(Outcome::Unknown));
        assert!(!transfer.is_quiescent());
    }

    #[test]
    fn a_transfer_that_completes_was_never_in_quarantine() {
        let (post, _transfer, told) = post_at_home();
        post.completion.complete(Outcome::Done);
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [Quiescent { was_quarantined: false }]);
    }

    #[test]
    fn its_home_is_told_once_of_quarantine_and_once_of_quiescence() {
        let (post, transfer, told) = post_at_home();
        let told = || told.try_iter().collect::<Vec<_>>();
        transfer.core().end(Outcome::Unknown);
        assert_eq!(told(), [Quarantined]);
        transfer.core().end(Outcome::Unknown);
        assert_eq!(told(), []);
        transfer.core().quiesce();
        assert_eq!(told(), [Quiescent { was_quarantined: true }]);
        transfer.core().quiesce();
        post.completion.complete(Outcome::Done);
        assert_eq!(told(), []);
    }

    #[test]
    fn pages_that_come_back_first_end_nothing_for_the_caller() {
        let (post, transfer, told) = post_at_home();
        transfer.core().quiesce();
        assert!(transfer.is_quiescent());
        assert_eq!(transfer.try_outcome(), None);
        post.completion.complete(Outcome::Done);
        assert_eq!(transfer.try_outcome(), Some(Outcome::Done));
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [Quiescent { was_quarantined: false }]);
    }

    #[test]
    fn an_end_that_comes_between_the_decision_and_its_outcome_changes_nothing() {
        struct EndsItAgain(Arc<OnceLock<Arc<Core>>>);
        impl TransferHome for EndsItAgain {
            fn quarantined(&self) {}
            fn quiescent(self: Box<Self>, _: TransferId, _: bool) {
                self.0.get().unwrap().end(Outcome::Unknown);
            }
            fn reach(&self) -> Box<dyn Reach> {
                unreachable!("nobody gives it up")
            }
        }
        let core = Arc::new(OnceLock::new());
        let (post, transfer) = post_of(Some(Box::new(EndsItAgain(core.clone()))));
        assert!(core.set(transfer.core().clone()).is_ok());
        post.completion.complete(Outcome::Done);
        assert_eq!(transfer.try_outcome(), Some(Outcome::Done));
    }

    #[test]
    fn a_waiter_gets_the_outcome_or_its_deadline() {
        let (post, transfer) = post();
        assert_eq!(transfer.wait(Instant::now()), None);
        post.completion.complete(Outcome::Done);
        assert_eq!(transfer.wait(Instant::now()), Some(Outcome::Done));
    }

    #[test]
    fn what_is_given_up_while_it_waits_is_not_sent_and_what_has_begun_may_be() {
        // fails if: the post begins although its deadline has said that nothing was sent, or the other way round.
        let peer = || PeerName::new("p").unwrap();
        let ended = |sent| Some(Outcome::Failed(TransferError::Deadline { peer: peer(), sent }));
        let (waits, transfer) = post();
        waits.completion.waits();
        transfer.core().expire(peer());
        assert_eq!((transfer.try_outcome(), waits.completion.begins()), (ended(Sent::No), false));
        assert_eq!(transfer.core().moved(), None, "nothing will move");
        let (begun, transfer) = post();
        begun.completion.waits();
        assert!(begun.completion.begins());
        transfer.core().expire(peer());
        assert_eq!((transfer.try_outcome(), begun.completion.begins()), (ended(Sent::Maybe), true));
        let (says_nothing, transfer) = post();
        transfer.core().expire(peer());
        assert_eq!((transfer.try_outcome(), says_nothing.completion.begins()), (ended(Sent::Maybe), true));
    }

    #[test]
    fn how_far_a_transfer_is_is_known_once_it_has_begun_and_only_if_its_transport_says() {
        let (post, transfer) = post();
        assert_eq!(transfer.core().moved(), None);
        post.completion.waits();
        assert_eq!(transfer.core().moved(), None);
        assert!(post.completion.begins());
        assert_eq!(transfer.core().moved(), Some(0));
        post.completion.progress(7);
        assert!(post.completion.begins(), "asked again, it goes on");
        assert_eq!(transfer.core().moved(), Some(7));
        for (said, moved) in [(u64::MAX / 2, u64::MAX / 2), (u64::MAX - 3, u64::MAX - 3), (u64::MAX, u64::MAX - 3)] {
            post.completion.progress(said);
            assert_eq!(transfer.core().moved(), Some(moved));
        }
    }

    #[test]
    fn who_gives_up_a_transfer_without_a_table_is_told_at_once_whether_it_is_quiescent() {
        let (post, transfer) = post();
        let far = Instant::now() + std::time::Duration::from_secs(3600);
        assert_eq!(transfer.cancel(far).wait(), Ok(Cancelled::NotQuiesced));
        assert_eq!(transfer.try_outcome(), None, "it goes on");
        post.completion.complete(Outcome::Done);
        assert_eq!(transfer.cancel(far).wait(), Ok(Cancelled::Quiesced(Outcome::Done)));
    }

    /// fails if: who was answered at a deadline stays listed until the transfer is quiescent.
    #[test]
    fn who_gives_up_again_and_again_leaves_nothing_behind_and_who_still_waits_is_told() {
        struct Hangs;
        impl TransferHome for Hangs {
            fn quarantined(&self) {}
            fn quiescent(self: Box<Self>, _: TransferId, _: bool) {}
            fn reach(&self) -> Box<dyn Reach> {
                Box::new(Hangs)
            }
        }
        impl Reach for Hangs {
            fn answer_at(&self, _: Instant, _: &Arc<Core>, _: &Arc<Cell<Cancelled>>) {}
            fn cancel(&self, _: TransferId) {}
        }
        let (post, transfer) = post_of(Some(Box::new(Hangs)));
        let patient = transfer.cancel(Instant::now());
        for _ in 0..1000 {
            let cell = Arc::new(Cell::new());
            assert!(transfer.core().await_quiescence(&cell).is_some());
            cell.resolve(Cancelled::NotQuiesced); // as at its deadline
        }
        assert!(transfer.core().home.lock().waiting.capacity() <= 16);
        assert!(transfer.core().reach().is_some());
        post.completion.complete(Outcome::Done);
        assert!(transfer.core().reach().is_none(), "no table counts it any more");
        assert_eq!(patient.wait(), Ok(Cancelled::Quiesced(Outcome::Done)));
        assert_eq!(transfer.cancel(Instant::now()).wait(), Ok(Cancelled::Quiesced(Outcome::Done)));
        assert!(transfer.core().home.lock().waiting.is_empty(), "who is answered at once is not listed");
    }

    /// fails if: all who wait are looked through whenever one more comes.
    #[test]
    fn who_was_answered_makes_room_when_there_is_none() {
        let mut home = Home { counted: None, waiting: Vec::with_capacity(4), is_over: false };
        let answered = Arc::new(Cell::new());
        answered.resolve(Cancelled::NotQuiesced);
        for waiting in 1..=home.waiting.capacity() {
            home.list(&answered);
            assert_eq!(home.waiting.len(), waiting);
        }
        home.list(&answered);
        assert_eq!(home.waiting.len(), 1);
    }

    #[test]
    fn it_is_pending_until_there_is_an_outcome() {
        let (post, mut transfer) = post();
        let mut poll = || Pin::new(&mut transfer).poll(&mut Context::from_waker(std::task::Waker::noop()));
        assert_eq!(poll(), Poll::Pending);
        post.completion.complete(Outcome::Done);
        assert_eq!(poll(), Poll::Ready(Outcome::Done));
    }

    #[test]
    fn an_end_at_its_deadline_says_whose_it_was_and_what_was_sent() {
        let told = |sent| TransferError::Deadline { peer: PeerName::new("p").unwrap(), sent }.to_string();
        assert!(told(Sent::No).contains("\"p\"") && told(Sent::No).contains("nothing was sent"), "{}", told(Sent::No));
        assert!(told(Sent::Maybe).contains("may have happened"), "{}", told(Sent::Maybe));
    }

    #[test]
    fn a_remote_slice_survives_the_wire_and_is_cut_only_inside() {
        assert_eq!(RemoteSlice::from_bytes(&remote().to_bytes()), remote());
        assert_eq!(remote().slice(5, 15), Some(RemoteSlice { offset: 15, len: 15, ..remote() }));
        assert_eq!(remote().slice(5, 16), None);
        assert_eq!(remote().slice(u64::MAX, 2), None);
    }

    #[test]
    fn debug_says_which_transfer_and_leaves_the_secret_out() {
        assert_eq!(format!("{:?}", remote()), "RemoteSlice(region 1, 10+20)");
        let (post, transfer) = post();
        let id = transfer.id();
        assert_eq!(format!("{:?}", post.completion), format!("Completion(Some({id:?}))"));
        assert_eq!(format!("{transfer:?}"), format!("Transfer {{ id: {id:?}, outcome: None, quiescent: false }}"));
    }
}
