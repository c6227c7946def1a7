//! One connection as the fabric sees it: what was accepted and not yet delivered, who reports it, how it dies.
//!
//! A link is *dead* when nothing gets through any more (killed, broken, closed) and *ended* when its dialer has let go of it
//! (closed, leaked, dropped). Only the fabric's thread copies bytes and completes transfers, so a dead link that this thread
//! has looked at copies nothing more: it is *settled*, and the grants bound to it are quiesced.

mod carry;
mod report;

pub(super) use report::{Answers, Report};

use super::fabric::Node;
use super::log::MisuseKind;
use super::steps::{Look, Pass};
use super::yard::Yard;
use super::{MemoryError, Step};
use crate::fork::Process;
use crate::grant::Loan;
use crate::inbox::{Notification, Source};
use crate::name::{Incarnation, PeerName};
use crate::state::Generation;
use crate::sync::lock;
use crate::transfer::{Outcome, Post, TransferId};
use crate::transport::counting::{Attempt, Ended, Open};
use crate::transport::{Capabilities, ConnectContext, Reporter};
use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

pub(super) struct Link {
    /// Where the fabric's thread is.
    process: Process,
    /// What the target's grants know it by: unique in this process.
    id: u64,
    pub(super) peer: PeerName,
    pub(super) generation: Generation,
    pub(super) from: Arc<Node>,
    from_incarnation: Incarnation,
    reporter: Reporter,
    yard: Arc<Yard>,
    state: Mutex<State>,
    /// A transfer has ended, or the link is settled.
    less: Condvar,
}

#[derive(Default)]
struct State {
    /// The other end, once there is one.
    to: Option<Inbound>,
    dead: bool,
    settled: bool,
    ended: bool,
    /// Its close has begun; calls are misuse.
    closing: bool,
    /// Its transfers complete even if they are held.
    flush: bool,
    /// Dead as soon as its transfers are over.
    dies_idle: bool,
    /// In the yard.
    queued: bool,
    /// A message is on its way outside the lock.
    delivering: bool,
    calls: u64,
    messages: VecDeque<(Pass, Notification)>,
    posts: VecDeque<Posted>,
    /// Given up by their dialer. They may be out of `posts` at the moment.
    cancelled: HashSet<TransferId>,
    /// Transfers whose completion has not been called.
    transfers: usize,
    /// Transfers whose completion has not returned.
    completing: usize,
    reports: VecDeque<Report>,
    open: Option<Open>,
}

struct Inbound {
    node: Arc<Node>,
    source: Arc<Source>,
}

struct Posted {
    post: Post,
    pass: Pass,
    /// Once it was admitted by the owner of the page: what it may use of it, and how many bytes have moved.
    moving: Option<(Loan, usize)>,
    /// There once its bytes have moved, or will not.
    outcome: Option<Outcome>,
}

/// What the yard's thread is to do about a link next.
pub(super) enum Next {
    Nothing,
    /// Look again when something has changed.
    Changed,
    /// Look again soon: its messages wait for room.
    Room,
    At(Instant),
}

impl Next {
    fn sooner(self, other: Next) -> Next {
        match (self, other) {
            (Next::At(a), Next::At(b)) => Next::At(a.min(b)),
            (Next::Room, _) | (_, Next::Room) => Next::Room,
            (Next::At(at), _) | (_, Next::At(at)) => Next::At(at),
            (Next::Changed, _) | (_, Next::Changed) => Next::Changed,
            (Next::Nothing, Next::Nothing) => Next::Nothing,
        }
    }
}

impl Look {
    fn next(&self) -> Next {
        match self {
            Look::Until(due) => Next::At(*due),
            _ => Next::Nothing,
        }
    }
}

impl Link {
    pub(super) fn new(from: &Arc<Node>, yard: &Arc<Yard>, cx: &ConnectContext) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Link {
            process: Process::this(),
            id: NEXT.fetch_add(1, Relaxed),
            peer: cx.name().clone(),
            generation: cx.generation(),
            from: from.clone(),
            from_incarnation: from.incarnation(),
            reporter: cx.reporter().clone(),
            yard: yard.clone(),
            state: Mutex::default(),
            less: Condvar::new(),
        }
    }

    /// Connects the link to a node that lives; `None` if it does not. One that was broken before stays dead.
    pub(super) fn open(&self, node: &Arc<Node>, attempt: Attempt) -> Option<Incarnation> {
        let mut state = self.lock();
        let incarnation = node.living()?;
        if !state.dead {
            let source = Arc::new(node.inbox.source(node.settings.capacity));
            state.to = Some(Inbound { node: node.clone(), source });
        }
        state.open = Some(attempt.made());
        Some(incarnation)
    }

    /// Whether it is an end of this node and still of use.
    pub(super) fn touches(&self, node: &Arc<Node>) -> bool {
        let state = self.lock();
        let to = state.to.as_ref().is_some_and(|to| Arc::ptr_eq(&to.node, node));
        !state.dead && (to || Arc::ptr_eq(&self.from, node))
    }

    pub(super) fn has_ended(&self) -> bool {
        self.lock().ended
    }

    pub(super) fn is_alive(&self) -> bool {
        !self.lock().dead
    }

    /// Begins a call on the connection.
    pub(super) fn enter(self: &Arc<Self>) -> Result<Entered, MemoryError> {
        let mut state = self.lock();
        if state.closing || state.ended {
            drop(state);
            self.misuse(MisuseKind::UsedAfterClose);
            return Err(self.broken());
        }
        state.calls += 1;
        Ok(Entered { link: self.clone() })
    }

    pub(super) fn notify(self: &Arc<Self>, message: &[u8]) -> Result<(), MemoryError> {
        let from = self.from.name.clone();
        let note = Notification::new(from, Some(self.from_incarnation), Some(self.generation), message.to_vec());
        let mut state = self.lock();
        if let Some(open) = &state.open {
            open.notified();
        }
        let Some(source) = state.to.as_ref().filter(|_| !state.dead).map(|to| to.source.clone()) else {
            return Err(self.broken());
        };
        let mut pass = Pass::default();
        let first = state.messages.is_empty() && !state.delivering;
        let free = matches!(self.from.steps.look(Step::Notify, self.peer.as_str(), &mut pass), Look::Go);
        if first && free {
            // The receiver's waker is other people's code: not under our lock.
            state.delivering = true;
            drop(state);
            let pushed = source.try_push(note);
            let mut state = self.lock();
            state.delivering = false;
            let more = !state.messages.is_empty();
            drop(state);
            if more {
                self.attend();
            }
            return pushed.map_err(|_| self.full());
        }
        if state.messages.len() >= self.from.settings.capacity {
            return Err(self.full());
        }
        state.messages.push_back((pass, note));
        drop(state);
        self.attend();
        Ok(())
    }

    pub(super) fn post(self: &Arc<Self>, post: Post) -> Result<(), MemoryError> {
        let mut state = self.lock();
        if let Some(open) = &state.open {
            open.posted();
        }
        if state.dead || state.to.is_none() {
            return Err(self.broken());
        }
        if state.transfers >= self.from.settings.capacity {
            return Err(self.full());
        }
        self.from.use_region(post.local.region())?;
        post.completion.waits();
        let mut pass = Pass::default();
        let _ = self.from.steps.look(Step::Post, self.peer.as_str(), &mut pass);
        state.transfers += 1;
        state.completing += 1;
        state.posts.push_back(Posted { post, pass, moving: None, outcome: None });
        drop(state);
        self.attend();
        Ok(())
    }

    pub(super) fn cancel(self: &Arc<Self>, transfer: TransferId) {
        let mut state = self.lock();
        if state.transfers > 0 {
            state.cancelled.insert(transfer);
            drop(state);
            self.attend();
        }
    }

    /// Nothing gets through any more. Its reporter is called from the fabric's thread.
    pub(super) fn break_now(self: &Arc<Self>, report: Report) {
        let mut state = self.lock();
        state.dead = true;
        state.reports.push_back(report);
        drop(state);
        self.attend();
    }

    /// Calls its reporter, from the fabric's thread, whatever the state of the link.
    pub(super) fn report(self: &Arc<Self>, report: Report) {
        self.lock().reports.push_back(report);
        self.attend();
    }

    /// The close begins: no call may run, and none may begin.
    pub(super) fn begin_close(&self) {
        let mut state = self.lock();
        let (in_use, first) = (state.calls > 0, !state.closing);
        state.closing = true;
        let posted = state.transfers > 0 && !self.quiesces();
        drop(state);
        if in_use {
            self.misuse(MisuseKind::ClosedInUse);
        }
        if posted && first {
            self.misuse(MisuseKind::ClosedUnderTransfer);
        }
    }

    /// Closes it natively and, if this close quiesces, waits for its transfers.
    pub(super) fn close(self: &Arc<Self>) {
        let mut state = self.lock();
        if self.quiesces() {
            (state.dead, state.flush) = (true, true);
        } else {
            state.dies_idle = true;
        }
        drop(state);
        self.attend();
        if self.quiesces() {
            self.wait_until(|state| state.settled && state.completing == 0);
        } else {
            self.wait_until(|state| state.settled || state.transfers > 0);
        }
        self.end(Ended::Closed);
    }

    /// Whoever drops a connection closes it, without waiting; not in a forked child.
    pub(super) fn dropped(self: &Arc<Self>) {
        if self.process.is_this() && !self.has_ended() {
            self.cut();
            self.end(Ended::Dropped);
        }
    }

    /// Dead, and its transfers complete at once.
    pub(super) fn cut(self: &Arc<Self>) {
        let mut state = self.lock();
        (state.dead, state.flush) = (true, true);
        drop(state);
        self.attend();
    }

    /// The dialer has let go of it.
    pub(super) fn end(&self, how: Ended) {
        let mut state = self.lock();
        state.ended = true;
        let open = state.open.take();
        drop(state);
        if let Some(open) = open {
            open.end(how);
        }
    }

    /// Waits until a dead link copies nothing more.
    pub(super) fn wait_settled(&self) {
        self.wait_until(|state| state.settled);
    }

    fn wait_until(&self, done: impl Fn(&State) -> bool) {
        if self.yard.is_current() {
            return;
        }
        let mut state = self.lock();
        while !done(&state) {
            state = self.less.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn attend(self: &Arc<Self>) {
        let queued = std::mem::replace(&mut self.lock().queued, true);
        if queued { self.yard.stir() } else { self.yard.attend(self) }
    }

    fn quiesces(&self) -> bool {
        self.from.settings.capabilities.contains(Capabilities::CLOSE_QUIESCES)
    }

    fn misuse(&self, kind: MisuseKind) {
        self.from.log.misuse(Some((&self.peer, self.generation)), kind);
    }

    fn broken(&self) -> MemoryError {
        MemoryError::Broken { peer: self.peer.clone(), generation: self.generation }
    }

    fn full(&self) -> MemoryError {
        MemoryError::Full { peer: self.peer.clone(), capacity: self.from.settings.capacity }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// A call on a connection that runs.
pub(super) struct Entered {
    link: Arc<Link>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.link.lock().calls -= 1;
    }
}
