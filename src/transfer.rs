//! A read or a write we posted, from its post to the moment its pages are ours again.
//!
//! A transfer ends once, as `Done`, `Failed` or `Unknown`, by one RMW on its own state; that never touches the connection.
//! It is *quiescent* when the transport no longer touches its local pages. The two may be apart: `Unknown` ends the
//! caller's wait, while the pages stay in quarantine until the connection is proven closed. Until then the transfer's
//! bay counts it (not a lease), so the bay is not used again.

use crate::clock::Clock;
use crate::grant::Refusal;
use crate::region::Slice;
use crate::sync::{Arc, AtomicU32, Mutex, MutexGuard, Ordering};
use crate::wait::{Cell, Wait};
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::task::{Context, Poll};
use std::time::Instant;

const ENDED: u32 = 1;
const QUIESCENT: u32 = 2;
/// Quiescent, and counted out of its peer and its region.
const COUNTED_OUT: u32 = 4;

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
    /// It did not happen, or not whole; the peer said so, or nothing was sent.
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
            ended: Arc::new(Cell::new()),
            home: Mutex::new(home),
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
}

pub(crate) struct Core {
    id: TransferId,
    /// Held until quiescence even if the user has dropped the region.
    local: Slice,
    state: AtomicU32,
    ended: Arc<Cell<Outcome>>,
    /// Taken at quiescence; `state` changes under this lock, so the home is told in order.
    home: Mutex<Option<Box<dyn TransferHome>>>,
}

impl Core {
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
        let leaves = if new & QUIESCENT != 0 { home.take() } else { None };
        if let Some(home) = home.as_ref().filter(|_| new & ENDED != 0) {
            home.quarantined();
        }
        drop(home);
        // Counted out before its caller is told, who may deregister the region at once.
        if let Some(home) = leaves {
            home.quiescent(self.id, before & ENDED != 0);
        }
        if new & QUIESCENT != 0 {
            self.state.fetch_or(COUNTED_OUT, Ordering::AcqRel);
        }
        if let Some(outcome) = outcome.filter(|_| new & ENDED != 0) {
            self.ended.resolve(outcome);
        }
    }

    fn is_quiescent(&self) -> bool {
        self.state.load(Ordering::Acquire) & COUNTED_OUT != 0
    }
}

/// A transport's duty to end one transfer. Dropped without [`complete`](Self::complete) (a panic, a lost thread), the
/// transfer ends as `Unknown` and its pages stay in quarantine until its connection is proven closed.
pub struct Completion {
    core: Option<Arc<Core>>,
}

impl Completion {
    /// Ends the transfer. The caller states that the local pages are no longer touched, whatever the outcome.
    pub fn complete(mut self, outcome: Outcome) {
        if let Some(core) = self.core.take() {
            core.advance(ENDED | QUIESCENT, Some(outcome));
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

    /// Blocks this thread until the outcome is there; `None` if the deadline passes first, and the transfer goes on.
    pub fn wait(&self, deadline: Instant) -> Option<Outcome> {
        if !self.core.ended.is_here() {
            return Some(Outcome::Unknown);
        }
        self.core.ended.wait(Some(deadline), &self.clock)
    }

    /// Whether the local pages may be reused. Always so after `Done`; after `Unknown` only once the connection is closed.
    pub fn is_quiescent(&self) -> bool {
        self.core.is_quiescent()
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

/// The transfers of one peer that are not quiescent, for the drain deadline, for a close that quiesces, and for listing.
#[derive(Default)]
pub(crate) struct InFlight {
    map: Mutex<HashMap<TransferId, (usize, Arc<Core>)>>,
    all: AtomicUsize,
    quarantined: AtomicUsize,
}

impl InFlight {
    /// Counts one more in, unless there are `limit`.
    pub(crate) fn count_in(&self, limit: usize) -> bool {
        let fits = |all: usize| (all < limit).then(|| all + 1);
        self.all.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    pub(crate) fn count_out(&self) {
        self.all.fetch_sub(1, Ordering::Relaxed);
    }

    /// Lists one that was counted in.
    pub(crate) fn add(&self, bay: usize, core: &Arc<Core>) {
        self.lock().insert(core.id, (bay, core.clone()));
    }

    pub(crate) fn quarantined(&self) {
        self.quarantined.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn remove(&self, id: TransferId, was_quarantined: bool) {
        let gone = self.lock().remove(&id);
        drop(gone);
        if was_quarantined {
            self.quarantined.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Those of one bay, the oldest first.
    pub(crate) fn of_bay(&self, bay: usize) -> Vec<Arc<Core>> {
        let mut of_bay: Vec<_> =
            self.lock().values().filter(|(of, _)| *of == bay).map(|(_, core)| core.clone()).collect();
        of_bay.sort_by_key(|core| core.id);
        of_bay
    }

    /// How many run, and how many have ended for their caller but hold their pages. A moment's answer, without a lock.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let quarantined = self.quarantined.load(Ordering::Relaxed);
        (self.all.load(Ordering::Relaxed).saturating_sub(quarantined), quarantined)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TransferId, (usize, Arc<Core>)>> {
        self.map.lock()
    }
}

impl fmt::Debug for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InFlight").field(&self.counts()).finish()
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
    struct Home(Sender<Told>);

    impl TransferHome for Home {
        fn quarantined(&self) {
            let _ = self.0.send(Quarantined);
        }
        fn quiescent(self: Box<Self>, _: TransferId, was_quarantined: bool) {
            let _ = self.0.send(Quiescent { was_quarantined });
        }
    }

    fn post_at_home() -> (Post, Transfer, Receiver<Told>) {
        let (tell, told) = channel();
        let (post, transfer) = post_of(Some(Box::new(Home(tell))));
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
    fn no_more_are_counted_in_than_the_limit_until_one_is_counted_out() {
        let in_flight = InFlight::default();
        assert!(!in_flight.count_in(0));
        assert!(in_flight.count_in(2) && in_flight.count_in(2));
        assert!(!in_flight.count_in(2) && !in_flight.count_in(1));
        assert_eq!(in_flight.counts(), (2, 0));
        in_flight.count_out();
        assert!(in_flight.count_in(2));
    }

    #[test]
    fn what_is_in_quarantine_is_counted_apart_until_it_is_removed() {
        let in_flight = InFlight::default();
        let ids = [(); 3].map(|()| {
            assert!(in_flight.count_in(usize::MAX));
            post().1.id()
        });
        in_flight.quarantined();
        in_flight.quarantined();
        assert_eq!(in_flight.counts(), (1, 2));
        assert_eq!(format!("{in_flight:?}"), "InFlight((1, 2))");
        in_flight.remove(ids[0], true);
        in_flight.remove(ids[2], false);
        assert_eq!(in_flight.counts().1, 1);
    }

    #[test]
    fn the_transfers_of_a_bay_are_listed_the_oldest_first_until_they_are_removed() {
        let in_flight = InFlight::default();
        let cores = [(); 9].map(|()| post().1.core().clone());
        cores.iter().enumerate().for_each(|(at, core)| in_flight.add(at % 2, core));
        let listed = |bay| in_flight.of_bay(bay).iter().map(|core| core.id).collect::<Vec<_>>();
        assert_eq!(listed(0), [0, 2, 4, 6, 8].map(|at: usize| cores[at].id));
        assert_eq!(listed(1), [1, 3, 5, 7].map(|at: usize| cores[at].id));
        in_flight.remove(cores[3].id, false);
        assert_eq!(listed(1), [1, 5, 7].map(|at: usize| cores[at].id));
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
