//! Our permission for a peer to read or write one of our pages.
//!
//! A grant binds to the first inbound connection that presents its id; any other is refused. Every chunk copied under it
//! enters the grant's gate first, so after [`Grant::revoke`] nothing more lands, and `Quiesced` waits for the one copy that
//! may be running, never for a writer stopped in the middle of a frame. When the bound connection closes, the grant is
//! quiesced too.
//!
//! ```text
//! gate: [CLOSED:1 | copies:63]   enter: CAS +1 while open   leave: -1, the last of a closed gate resolves `quiesced`
//! ```

use crate::clock::Clock;
use crate::error::OutOfRegion;
use crate::fork::Process;
use crate::name::PeerName;
use crate::quarantine::{Kept, Quarantine};
use crate::region::{RegionId, Slice};
use crate::sync::{Arc, AtomicU64, Mutex, Ordering};
use crate::transfer::RemoteSlice;
use crate::wait::{Cell, Wait};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll};
use std::time::Instant;

const CLOSED: u64 = 1 << 63;

/// How many regions that are gone are remembered.
const REMEMBERED: usize = 1024;

/// What the borrower may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Write the page.
    Write,
    /// Read the page.
    Read,
}

/// Why a remote read or write was refused by the owner of the page. The numbers are those on the wire and never reused.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum Refusal {
    /// No grant has this id; it may have been revoked.
    #[error("no such grant, or revoked")]
    NoSuchGrant = 1,
    /// The grant names another peer.
    #[error("the page was lent to another peer")]
    NotYours = 2,
    /// Another connection presented the grant first.
    #[error("the page is bound to another connection")]
    BoundElsewhere = 3,
    /// Not inside the page lent.
    #[error("outside the page lent")]
    OutOfBounds = 4,
    /// Lent for the other direction.
    #[error("not lent for this")]
    WrongAccess = 5,
    /// The same transfer number is already running on this connection.
    #[error("this transfer is already running")]
    DuplicateTransfer = 6,
    /// The grant was revoked while the transfer ran.
    #[error("revoked while it ran")]
    Revoked = 7,
    /// The borrower gave the transfer up; what it had moved by then stays.
    #[error("cancelled by the borrower")]
    Cancelled = 8,
    /// The page's region is not registered any more: its owner has given the memory back. Ask for a page of another one. An
    /// owner remembers the last 1024 such regions; of an older one it says [`NoSuchGrant`](Self::NoSuchGrant).
    #[error("the region is not registered any more")]
    RegionGone = 9,
}

impl Refusal {
    /// The refusal with this number, if there is one.
    pub fn from_code(code: u8) -> Option<Self> {
        [
            Self::NoSuchGrant,
            Self::NotYours,
            Self::BoundElsewhere,
            Self::OutOfBounds,
            Self::WrongAccess,
            Self::DuplicateTransfer,
            Self::Revoked,
            Self::Cancelled,
            Self::RegionGone,
        ]
        .into_iter()
        .find(|refusal| *refusal as u8 == code)
    }
}

/// A page lent to a peer. Dropping it revokes it; the page itself stays allocated until nothing can land in it. In a forked
/// child nothing lands in the child's copy of the page: there it is quiesced, and revoking or dropping it does nothing.
#[must_use = "dropping a grant revokes it"]
pub struct Grant {
    core: Arc<Core>,
    clock: Clock,
}

impl Grant {
    /// What to send to the borrower.
    pub fn remote(&self) -> RemoteSlice {
        let page = &self.core.page;
        RemoteSlice {
            grant: self.core.id,
            region: page.region().id().0,
            offset: page.offset() as u64,
            len: page.len() as u64,
        }
    }

    /// The page.
    pub fn page(&self) -> &Slice {
        &self.core.page
    }

    /// Who may use it.
    pub fn to(&self) -> &PeerName {
        &self.core.to
    }

    /// Takes the page back. Nothing is admitted under it after this returns; [`Revoked`] resolves when no write under it
    /// can land any more. Calling it again gives the same answer.
    pub fn revoke(&self) -> Revoked {
        self.core.revoke();
        Revoked { wait: Wait::new(self.core.quiesced.clone()), clock: self.clock.clone() }
    }

    /// How many reads and writes of the borrower are under way, as far as this side was told: each counts from the moment it
    /// was admitted to its one end here, whole, refused, given up, or cut off with its connection. A moment's answer.
    /// Wait-free.
    pub fn running(&self) -> usize {
        self.core.running.load(Ordering::Relaxed)
    }

    /// Whether nothing can land in the page any more.
    pub fn is_quiesced(&self) -> bool {
        !self.core.quiesced.is_here() || self.core.quiesced.peek().is_some()
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.core.revoke();
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant")
            .field("to", &self.core.to)
            .field("page", &self.remote())
            .field("access", &self.core.access)
            .field("quiesced", &self.is_quiesced())
            .finish_non_exhaustive()
    }
}

/// A future: no write under the grant can land any more.
#[derive(Debug)]
pub struct Revoked {
    wait: Wait<()>,
    clock: Clock,
}

impl Revoked {
    /// Blocks this thread; `false` if the deadline (by the book's clock, the table's) passes first, and the page stays in quarantine.
    #[must_use = "a page that is not quiesced must not be used again"]
    pub fn wait(&self, deadline: Instant) -> bool {
        let cell = self.wait.cell();
        !cell.is_here() || cell.wait_until(deadline, &self.clock).is_some()
    }
}

impl Future for Revoked {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if !self.wait.cell().is_here() {
            return Poll::Ready(());
        }
        Pin::new(&mut self.wait).poll(cx)
    }
}

/// An inbound connection as a grant knows it: unique in this process.
pub(crate) type InboundId = u64;

pub(crate) struct Core {
    id: u128,
    to: PeerName,
    page: Slice,
    access: Access,
    gate: AtomicU64,
    bound: Mutex<Option<InboundId>>,
    quiesced: Arc<Cell<()>>,
    book: std::sync::Weak<Lent>,
    /// Counts the grant out of its peer.
    on_quiesced: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// Where the page counts from the revocation to quiescence. Set before anybody can revoke it.
    quarantine: OnceLock<std::sync::Arc<Quarantine>>,
    /// Loans. Publishes nothing.
    running: AtomicUsize,
}

impl Core {
    pub(crate) fn id(&self) -> u128 {
        self.id
    }

    pub(crate) fn page(&self) -> &Slice {
        &self.page
    }

    /// Has the page counted there while it is revoked and not quiesced. Before anybody else has the grant.
    pub(crate) fn quarantined_in(&self, quarantine: std::sync::Arc<Quarantine>) {
        let _ = self.quarantine.set(quarantine);
    }

    pub(crate) fn revoke(&self) {
        if !self.quiesced.is_here() {
            return;
        }
        // Counted before it is closed: whoever leaves last counts it out.
        let quarantine = self.quarantine.get();
        quarantine.inspect(|quarantine| quarantine.enter(Kept::Grant, self.page.len()));
        // ord! AcqRel: Acquire for the copies of all who left before (a page handed back shows them), from the Release in
        //      `leave`. The Release is more than it needs: whoever leaves last and finishes gets the page's end, not ours.
        //      An RMW, so that it undoes no entry and no leave.
        //      model: lending::quiesced_comes_after_every_write   fails if: revoke-collects-nothing,
        //      revoke-by-load-and-store
        //      model: lending::a_grant_quiesces_once_whoever_ends_it   fails if: revoke-finishes-nothing
        let before = self.gate.fetch_or(CLOSED, Ordering::AcqRel);
        if before & CLOSED == 0 {
            if let Some(book) = self.book.upgrade() {
                let gone = book.grants.lock().remove(&self.id);
                drop(gone);
            }
            if before == 0 {
                self.finish();
            }
        } else if let Some(quarantine) = quarantine {
            quarantine.leave(Kept::Grant, self.page.len()); // who revoked it first has counted it
        }
    }

    /// Runs `f` at quiescence, or now if that is past.
    pub(crate) fn on_quiesced(&self, f: impl FnOnce() + Send + 'static) {
        *self.on_quiesced.lock() = Some(Box::new(f));
        if self.quiesced.peek().is_some() {
            self.run_hook();
        }
    }

    fn enter(&self) -> bool {
        // ord! Relaxed look, also on failure: a guess that the CAS proves or corrects. CLOSED is never taken back, so a look
        //      that shows it is final, and nothing is read on the strength of it: the caller is refused.
        //      model: lending::quiesced_comes_after_every_write   fails if: copy-enters-a-revoked-grant
        let mut seen = self.gate.load(Ordering::Relaxed);
        while seen & CLOSED == 0 {
            // ord! Acquire: keeps the copy behind the entry. It collects nothing: a gate never reopens, and what was lent came
            //      through the book's mutex. That no copy is missed does not rest on it: entry and close are on one word,
            //      so either the close counts this entry or the entry sees the close; and an entry of any order carries
            //      on the Release of those who left before.
            //      model: lending::quiesced_comes_after_every_write   fails if: copy-enters-a-revoked-grant
            match self.gate.compare_exchange_weak(seen, seen + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    fn leave(&self) {
        // ord! AcqRel: Release for this copy, to whoever finishes: `revoke` or the last to leave. Acquire for that last one:
        //      the copies of all who left before it.
        //      model: lending::quiesced_comes_after_every_write   fails if: copy-hands-nothing-on, last-copy-collects-nothing,
        //      first-copy-to-leave-finishes
        if self.gate.fetch_sub(1, Ordering::AcqRel) == CLOSED | 1 {
            self.finish();
        }
    }

    fn finish(&self) {
        if !self.quiesced.is_here() {
            return;
        }
        if let Some(quarantine) = self.quarantine.get() {
            quarantine.leave(Kept::Grant, self.page.len());
        }
        self.quiesced.resolve(());
        self.run_hook();
    }

    fn run_hook(&self) {
        let hook = self.on_quiesced.lock().take();
        if let Some(hook) = hook {
            hook();
        }
    }
}

struct Lent {
    process: Process,
    grants: Mutex<HashMap<u128, Arc<Core>>>,
    /// The last regions that were deregistered.
    gone: Mutex<VecDeque<RegionId>>,
}

/// All grants a transport has lent: the owner's side of every remote read and write. In a forked child it is empty, and what
/// is lent there nobody can present.
#[derive(Clone)]
pub struct GrantBook {
    lent: Arc<Lent>,
    clock: Clock,
}

impl GrantBook {
    /// An empty one.
    pub fn new(clock: Clock) -> Self {
        let (process, grants, gone) = (Process::this(), Mutex::new(HashMap::new()), Mutex::new(VecDeque::new()));
        GrantBook { lent: Arc::new(Lent { process, grants, gone }), clock }
    }

    /// Lends `page` to the peer called `to`. The id is 128 random bits: who was not told it can't guess it.
    ///
    /// # Panics
    /// If the operating system gives no random bytes, which it does once booted.
    pub fn lend(&self, to: &PeerName, page: &Slice, access: Access) -> Grant {
        let mut id = [0; 16];
        getrandom::fill(&mut id).expect("the operating system gives random bytes");
        let core = Arc::new(Core {
            id: u128::from_le_bytes(id),
            to: to.clone(),
            page: page.clone(),
            access,
            gate: AtomicU64::new(0),
            bound: Mutex::new(None),
            quiesced: Arc::new(Cell::new()),
            book: std::sync::Arc::downgrade(&self.lent),
            on_quiesced: Mutex::new(None),
            quarantine: OnceLock::new(),
            running: AtomicUsize::new(0),
        });
        if self.lent.process.is_this() {
            self.lent.grants.lock().insert(core.id, core.clone());
        }
        Grant { core, clock: self.clock.clone() }
    }

    /// Checks what an inbound connection presents, and binds the grant to it. `by` is the name the connection gave itself,
    /// `inbound` its number: unique in this process, never used again. Never waits.
    ///
    /// # Errors
    /// Why it is refused; the transport tells the borrower. Nothing is bound then, and the grant goes on for who may use it:
    /// - [`Refusal::NoSuchGrant`]: the id is wrong, or the grant was revoked. The borrower gives up this page.
    /// - [`Refusal::RegionGone`]: the same, and its region was deregistered.
    /// - [`Refusal::NotYours`]: it was lent to another name than `by`.
    /// - [`Refusal::WrongAccess`]: it was lent for reading and is to be written, or the other way round.
    /// - [`Refusal::OutOfBounds`]: another region, or not inside the page.
    /// - [`Refusal::BoundElsewhere`]: another connection presented it first. After a reconnect, ask for a new grant.
    pub fn present(&self, by: &PeerName, inbound: u64, remote: RemoteSlice, access: Access) -> Result<Loan, Refusal> {
        if !self.lent.process.is_this() {
            return Err(Refusal::NoSuchGrant);
        }
        let core = self.lent.grants.lock().get(&remote.grant).cloned();
        let core = core.ok_or_else(|| match self.lent.gone.lock().contains(&RegionId(remote.region)) {
            true => Refusal::RegionGone,
            false => Refusal::NoSuchGrant,
        })?;
        if core.to != *by {
            return Err(Refusal::NotYours);
        }
        if core.access != access {
            return Err(Refusal::WrongAccess);
        }
        let page = &core.page;
        let at = remote.offset.checked_sub(page.offset() as u64).ok_or(Refusal::OutOfBounds)?;
        let end = at.checked_add(remote.len).ok_or(Refusal::OutOfBounds)?;
        if remote.region != page.region().id().0 || end > page.len() as u64 {
            return Err(Refusal::OutOfBounds);
        }
        let part = page.slice(at as usize..end as usize).map_err(|OutOfRegion { .. }| Refusal::OutOfBounds)?;
        let mut bound = core.bound.lock();
        if *bound.get_or_insert(inbound) != inbound {
            return Err(Refusal::BoundElsewhere);
        }
        drop(bound);
        core.running.fetch_add(1, Ordering::Relaxed);
        Ok(Loan { core, part })
    }

    /// A region was deregistered: who presents a page of it is told so.
    pub(crate) fn region_is_gone(&self, region: RegionId) {
        let mut gone = self.lent.gone.lock();
        if gone.len() == REMEMBERED {
            gone.pop_front();
        }
        gone.push_back(region);
    }

    /// A region is registered, perhaps again.
    pub(crate) fn region_is_known(&self, region: RegionId) {
        self.lent.gone.lock().retain(|gone| *gone != region);
    }

    /// An inbound connection is closed and copies nothing more: the grants bound to it are revoked, and quiesced once no
    /// copy runs and no [`HeldLoan`] of them is left. A transport calls it after the last write that could come over the
    /// connection, never before.
    pub fn inbound_closed(&self, inbound: u64) {
        if !self.lent.process.is_this() {
            return;
        }
        let bound: Vec<_> =
            self.lent.grants.lock().values().filter(|core| *core.bound.lock() == Some(inbound)).cloned().collect();
        bound.iter().for_each(|core| core.revoke());
    }

    /// How many are lent and not revoked.
    pub fn len(&self) -> usize {
        if self.lent.process.is_this() { self.lent.grants.lock().len() } else { 0 }
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Debug for GrantBook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrantBook").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// A grant as its borrower's connection uses it: a checked part of the page, asked again for every chunk. It stands for one
/// read or write of the borrower: dropped, that has ended here.
pub struct Loan {
    core: Arc<Core>,
    part: Slice,
}

impl Loan {
    /// Bytes of the part.
    pub fn len(&self) -> usize {
        self.part.len()
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.part.is_empty()
    }

    /// The part, for a native library that its borrower accesses it through.
    #[cfg(any(feature = "ucx", feature = "nixl"))]
    pub(crate) fn part(&self) -> &Slice {
        &self.part
    }

    /// The whole page that was lent.
    #[cfg(feature = "nixl")]
    pub(crate) fn page(&self) -> &Slice {
        &self.core.page
    }

    /// Whether its owner wants the page back. A moment's answer: what is admitted is decided by [`hold`](Self::hold).
    #[cfg(feature = "nixl")]
    pub(crate) fn is_revoked(&self) -> bool {
        self.core.gate.load(Ordering::Relaxed) & CLOSED != 0
    }

    /// Copies one chunk into the page, `at` counted from the start of the part. Never waits.
    ///
    /// # Errors
    /// Nothing was copied. [`Refusal::Revoked`]: the grant is revoked, drop the rest of the transfer;
    /// [`Refusal::OutOfBounds`]: the chunk does not fit into the part.
    pub fn write(&self, at: usize, chunk: &[u8]) -> Result<(), Refusal> {
        self.copy(|part| part.write(at, chunk))
    }

    /// Copies one chunk out of the page, `at` counted from the start of the part. Never waits.
    ///
    /// # Errors
    /// Nothing was copied. [`Refusal::Revoked`]: the grant is revoked, drop the rest of the transfer;
    /// [`Refusal::OutOfBounds`]: the chunk does not fit into the part.
    pub fn read(&self, at: usize, chunk: &mut [u8]) -> Result<(), Refusal> {
        self.copy(|part| part.read(at, chunk))
    }

    /// Keeps the page from quiescing until what is given back is dropped: for a transport whose peers write by themselves,
    /// where no call of [`write`](Self::write) marks the moment. Take it before the borrower may begin; drop it when the
    /// borrower has acknowledged that it writes no more, or when its connection is closed. Revoking goes on to refuse
    /// everything new meanwhile. Never waits.
    ///
    /// # Errors
    /// [`Refusal::Revoked`]: the grant is revoked. The borrower must not begin.
    pub fn hold(&self) -> Result<HeldLoan, Refusal> {
        if self.core.enter() { Ok(HeldLoan { core: self.core.clone() }) } else { Err(Refusal::Revoked) }
    }

    fn copy(&self, copy: impl FnOnce(&Slice) -> Result<(), OutOfRegion>) -> Result<(), Refusal> {
        let _held = self.hold()?;
        copy(&self.part).map_err(|OutOfRegion { .. }| Refusal::OutOfBounds)
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.core.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Loan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loan").field("part", &self.part).finish_non_exhaustive()
    }
}

/// A remote access that may be running: its grant is not quiesced before this is dropped. Made by [`Loan::hold`].
///
/// One that is forgotten keeps the page in quarantine for ever, which is the safe side.
#[must_use = "dropping it lets the page be used again"]
pub struct HeldLoan {
    core: Arc<Core>,
}

impl Drop for HeldLoan {
    fn drop(&mut self) {
        self.core.leave();
    }
}

impl fmt::Debug for HeldLoan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldLoan").field("page", &self.core.page).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(peerage_loom)))]
mod tests {
    use super::*;
    use crate::region::Region;

    fn name(name: &str) -> PeerName {
        PeerName::new(name).unwrap()
    }

    fn lent() -> (GrantBook, Grant) {
        let book = GrantBook::new(Clock::system());
        let grant = book.lend(&name("p"), &Region::zeroed(100).slice(10..20).unwrap(), Access::Write);
        (book, grant)
    }

    #[test]
    fn a_grant_binds_to_the_first_connection_that_presents_it() {
        let (book, grant) = lent();
        let remote = grant.remote();
        assert!(book.present(&name("p"), 1, remote, Access::Write).is_ok());
        assert!(book.present(&name("p"), 1, remote, Access::Write).is_ok());
        assert_eq!(book.present(&name("p"), 2, remote, Access::Write).unwrap_err(), Refusal::BoundElsewhere);
        assert_eq!(book.present(&name("q"), 1, remote, Access::Write).unwrap_err(), Refusal::NotYours);
        assert_eq!(book.present(&name("p"), 1, remote, Access::Read).unwrap_err(), Refusal::WrongAccess);
        let forged = RemoteSlice { grant: remote.grant ^ 1, ..remote };
        assert_eq!(book.present(&name("p"), 1, forged, Access::Write).unwrap_err(), Refusal::NoSuchGrant);
    }

    #[test]
    fn bounds_are_those_of_the_page_also_when_sums_overflow() {
        let (book, grant) = lent();
        let remote = grant.remote();
        for bad in [
            RemoteSlice { len: 11, ..remote },
            RemoteSlice { offset: 9, ..remote },
            RemoteSlice { offset: 19, len: 2, ..remote },
            RemoteSlice { offset: u64::MAX, len: 2, ..remote },
            RemoteSlice { offset: 12, len: u64::MAX, ..remote },
            RemoteSlice { region: remote.region + 1, ..remote },
        ] {
            assert_eq!(book.present(&name("p"), 1, bad, Access::Write).unwrap_err(), Refusal::OutOfBounds, "{bad:?}");
        }
        let loan = book.present(&name("p"), 1, remote, Access::Write).unwrap();
        assert_eq!(loan.write(8, &[0; 3]), Err(Refusal::OutOfBounds));
    }

    #[test]
    fn nothing_lands_after_revoke_and_quiesced_waits_for_the_copy_that_runs() {
        let (book, grant) = lent();
        let loan = book.present(&name("p"), 1, grant.remote(), Access::Write).unwrap();
        loan.write(0, &[1; 4]).unwrap();
        let copied = loan.copy(|part| {
            grant.revoke();
            assert!(!grant.is_quiesced(), "a copy is running");
            part.write(4, &[2; 4])
        });
        assert_eq!(copied, Ok(()));
        assert!(grant.is_quiesced());
        assert_eq!(loan.write(0, &[9; 4]), Err(Refusal::Revoked));
        assert_eq!(grant.page().to_vec(), [1, 1, 1, 1, 2, 2, 2, 2, 0, 0]);
        assert!(book.is_empty());
    }

    #[test]
    fn a_closed_connection_quiesces_what_is_bound_to_it_and_nothing_else() {
        let (book, grant) = lent();
        let other = book.lend(&name("p"), grant.page(), Access::Write);
        book.present(&name("p"), 1, grant.remote(), Access::Write).unwrap();
        book.inbound_closed(1);
        assert!(grant.is_quiesced());
        assert!(!other.is_quiesced());
    }

    #[test]
    fn a_write_that_nobody_here_copies_keeps_the_page_from_quiescing_until_its_hold_ends() {
        let (book, grant) = lent();
        let loan = book.present(&name("p"), 1, grant.remote(), Access::Write).unwrap();
        let (first, second) = (loan.hold().unwrap(), loan.hold().unwrap());
        drop(loan);
        let revoked = grant.revoke();
        assert_eq!(book.present(&name("p"), 1, grant.remote(), Access::Write).unwrap_err(), Refusal::NoSuchGrant);
        drop(first);
        book.inbound_closed(1);
        assert!(!grant.is_quiesced(), "one writer has not acknowledged");
        drop(second);
        assert!(grant.is_quiesced() && revoked.wait(Instant::now()));
    }

    #[test]
    fn what_is_revoked_is_not_held() {
        let (book, grant) = lent();
        let loan = book.present(&name("p"), 1, grant.remote(), Access::Write).unwrap();
        drop(grant);
        assert_eq!(loan.hold().unwrap_err(), Refusal::Revoked);
    }

    #[test]
    fn quiescence_waits_for_every_copy_and_shows_them_all() {
        for _ in 0..200 {
            let (book, grant) = lent();
            let loan = book.present(&name("p"), 1, grant.remote(), Access::Write).unwrap();
            std::thread::scope(|scope| {
                let loan = &loan;
                let copies: Vec<_> = (0..4).map(|at| scope.spawn(move || loan.write(at, &[7]).is_ok())).collect();
                assert!(grant.revoke().wait(Instant::now() + std::time::Duration::from_secs(30)));
                let seen = grant.page().to_vec();
                for (at, copy) in copies.into_iter().enumerate() {
                    assert_eq!(
                        seen[at] == 7,
                        copy.join().unwrap(),
                        "what was copied is there at quiescence, nothing lands after it"
                    );
                }
            });
        }
    }

    #[test]
    fn a_waiter_for_quiescence_gets_it_or_its_deadline() {
        let (book, grant) = lent();
        let held = book.present(&name("p"), 1, grant.remote(), Access::Write).unwrap().hold().unwrap();
        let mut revoked = grant.revoke();
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(!revoked.wait(Instant::now()));
        assert_eq!(Pin::new(&mut revoked).poll(&mut cx), Poll::Pending);
        drop(held);
        assert!(revoked.wait(Instant::now()));
        assert_eq!(Pin::new(&mut revoked).poll(&mut cx), Poll::Ready(()));
    }

    #[test]
    fn what_is_to_run_at_quiescence_runs_once_then_or_at_once_when_that_is_past() {
        let (_book, grant) = lent();
        let (tell, told) = std::sync::mpsc::channel();
        let hook = |said| {
            let tell = tell.clone();
            move || tell.send(said).unwrap()
        };
        grant.core().on_quiesced(hook("then"));
        assert!(told.try_recv().is_err(), "it is not quiesced yet");
        grant.revoke();
        grant.revoke();
        assert_eq!(told.try_iter().collect::<Vec<_>>(), ["then"]);
        grant.core().on_quiesced(hook("at once"));
        assert_eq!(told.try_iter().collect::<Vec<_>>(), ["at once"]);
    }

    #[test]
    fn a_part_of_a_page_may_be_presented_and_read() {
        let book = GrantBook::new(Clock::system());
        let page = Region::zeroed(100).slice(10..20).unwrap();
        page.write(0, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]).unwrap();
        let grant = book.lend(&name("p"), &page, Access::Read);
        let present =
            |at, len| book.present(&name("p"), 1, grant.remote().slice(at, len).unwrap(), Access::Read).unwrap();
        let loan = present(2, 5);
        assert_eq!((loan.len(), loan.is_empty(), present(10, 0).is_empty()), (5, false, true));
        let mut bytes = [0; 4];
        loan.read(1, &mut bytes).unwrap();
        assert_eq!(bytes, [3, 4, 5, 6]);
        assert_eq!(loan.read(2, &mut bytes), Err(Refusal::OutOfBounds));
    }

    #[test]
    fn a_book_counts_what_is_lent_and_not_revoked() {
        let (book, grant) = lent();
        let other = book.lend(&name("p"), grant.page(), Access::Write);
        assert_eq!((book.len(), book.is_empty()), (2, false));
        assert_ne!(grant.core().id(), other.core().id());
        assert_eq!(grant.core().id(), grant.remote().grant);
        other.revoke();
        assert_eq!((book.len(), book.is_empty()), (1, false));
        drop(grant);
        assert_eq!((book.len(), book.is_empty()), (0, true));
    }

    #[test]
    fn a_read_or_write_runs_from_its_admission_to_the_end_of_its_loan() {
        // fails if: an end is counted twice, or not at all.
        let (book, grant) = lent();
        let loans = [(); 3].map(|()| book.present(&name("p"), 1, grant.remote(), Access::Write).unwrap());
        book.present(&name("p"), 2, grant.remote(), Access::Write).unwrap_err();
        assert_eq!(grant.running(), 3);
        grant.revoke();
        assert_eq!(grant.running(), 3, "nobody was told yet");
        loans.into_iter().for_each(drop);
        assert_eq!(grant.running(), 0);
    }

    #[test]
    fn a_page_is_in_quarantine_from_its_revocation_until_no_copy_runs() {
        // fails if: a second revocation counts again, or the last copy does not count out.
        let quarantine = std::sync::Arc::new(Quarantine::default());
        let kept = || (quarantine.counts().grants, quarantine.counts().bytes);
        let (book, grant) = lent();
        grant.core().quarantined_in(quarantine.clone());
        let held = book.present(&name("p"), 1, grant.remote(), Access::Write).unwrap().hold().unwrap();
        assert_eq!(kept(), (0, 0));
        grant.revoke();
        grant.revoke();
        book.inbound_closed(1);
        assert_eq!(kept(), (1, 10));
        drop(held);
        assert_eq!(kept(), (0, 0));
        drop(grant);
        assert_eq!(kept(), (0, 0));
    }

    #[test]
    fn the_last_regions_that_are_gone_are_told_from_wrong_ids() {
        let (book, grant) = lent();
        let gone = RemoteSlice { grant: 1, ..grant.remote() };
        let said = |remote| book.present(&name("p"), 1, remote, Access::Write).unwrap_err();
        assert_eq!(said(gone), Refusal::NoSuchGrant);
        book.region_is_gone(RegionId(gone.region));
        assert_eq!(said(gone), Refusal::RegionGone);
        (0..REMEMBERED as u64 - 1).for_each(|other| book.region_is_gone(RegionId(u64::MAX - other)));
        assert_eq!(said(gone), Refusal::RegionGone);
        book.region_is_known(RegionId(gone.region));
        assert_eq!(said(gone), Refusal::NoSuchGrant);
        book.region_is_gone(RegionId(gone.region));
        (0..REMEMBERED as u64).for_each(|other| book.region_is_gone(RegionId(u64::MAX - other)));
        assert_eq!(said(gone), Refusal::NoSuchGrant, "forgotten");
    }

    #[test]
    fn debug_says_what_is_lent_to_whom_and_leaves_the_secret_out() {
        let (book, grant) = lent();
        let (page, remote) = (grant.page().clone(), grant.remote());
        let loan = book.present(&name("p"), 1, remote, Access::Write).unwrap();
        assert_eq!(
            format!("{grant:?}"),
            format!("Grant {{ to: \"p\", page: {remote:?}, access: Write, quiesced: false, .. }}")
        );
        assert_eq!(format!("{book:?}"), "GrantBook { len: 1, .. }");
        assert_eq!(format!("{loan:?}"), format!("Loan {{ part: {page:?}, .. }}"));
        assert_eq!(format!("{:?}", loan.hold().unwrap()), format!("HeldLoan {{ page: {page:?}, .. }}"));
    }

    #[test]
    fn every_refusal_has_its_number() {
        for code in 0..=u8::MAX {
            assert_eq!(Refusal::from_code(code).map(|refusal| refusal as u8), (1..=9).contains(&code).then_some(code));
        }
    }
}
