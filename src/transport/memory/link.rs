//! One connection as the fabric sees it: what was accepted and not yet delivered, who reports it, how it dies.
//!
//! A link is *dead* when nothing gets through any more (killed, broken, closed) and *ended* when its dialer has let go of it
//! (closed, leaked, dropped). Only the fabric's thread copies bytes and completes transfers, so a dead link that this thread
//! has looked at copies nothing more: it is *settled*, and the grants bound to it are quiesced.

use super::fabric::Node;
use super::log::{Ending, MisuseKind};
use super::steps::{Act, Look, Pass};
use super::yard::Yard;
use super::{MemoryError, Step};
use crate::error::OutOfRegion;
use crate::grant::{Access, Refusal};
use crate::inbox::{Notification, Source};
use crate::name::{Incarnation, PeerName};
use crate::state::Generation;
use crate::transfer::{Outcome, Post, TransferError, TransferKind};
use crate::transport::counting::{Attempt, Ended, Open};
use crate::transport::{Capabilities, ConnectContext, ErrorClass, Reported, Reporter, TransportError};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Bytes copied between two looks at a grant.
const CHUNK: usize = 4096;

pub(super) struct Link {
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
            let pushed = push(&source, note);
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
        let mut pass = Pass::default();
        let _ = self.from.steps.look(Step::Post, self.peer.as_str(), &mut pass);
        state.transfers += 1;
        state.completing += 1;
        state.posts.push_back(Posted { post, pass, outcome: None });
        drop(state);
        self.attend();
        Ok(())
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

    /// Whoever drops a connection closes it, without waiting.
    pub(super) fn dropped(self: &Arc<Self>) {
        if !self.has_ended() {
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
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The fabric's thread.
impl Link {
    pub(super) fn advance(&self) -> Next {
        let next = self.report_errors().sooner(self.deliver()).sooner(self.transfer());
        self.settle();
        let mut state = self.lock();
        let idle = state.reports.is_empty() && state.messages.is_empty() && state.posts.is_empty();
        let settling = (state.dead || state.dies_idle && state.transfers == 0) && !state.settled;
        match idle && !settling {
            true => {
                state.queued = false;
                Next::Nothing
            }
            false => next.sooner(Next::Changed),
        }
    }

    fn report_errors(&self) -> Next {
        let (mut wait, mut kept) = (Next::Nothing, VecDeque::new());
        let reports = std::mem::take(&mut self.lock().reports);
        for mut report in reports {
            let look = self.from.steps.look(Step::NativeError, self.peer.as_str(), &mut report.pass);
            wait = wait.sooner(look.next());
            match look {
                Look::Go => self.report_error(report),
                _ => kept.push_back(report),
            }
        }
        let mut state = self.lock();
        kept.append(&mut state.reports);
        state.reports = kept;
        wait
    }

    fn report_error(&self, report: Report) {
        let logged = self.from.log.begin(Step::NativeError, &self.peer, self.generation);
        let act = self.from.steps.next_act(Step::NativeError, self.peer.as_str());
        let reported = catch_unwind(AssertUnwindSafe(|| match act {
            Some(Act::Fail(error)) => self.reporter.report(&error),
            Some(Act::Panic) => panic!("a test asked the native error of \"{}\" to panic", self.peer),
            _ => self.reporter.report(&report.error),
        }));
        if let Ok(reported) = reported {
            logged.end(Ending::Done);
            report.answer(self.generation, reported);
        }
    }

    fn deliver(&self) -> Next {
        loop {
            let mut state = self.lock();
            if state.dead {
                state.messages.clear();
            }
            if state.delivering {
                return Next::Nothing; // whoever delivers looks for more
            }
            let Some((pass, _)) = state.messages.front_mut() else { return Next::Nothing };
            match self.from.steps.look(Step::Notify, self.peer.as_str(), pass) {
                Look::Go => {}
                wait => return wait.next(),
            }
            let Some((pass, note)) = state.messages.pop_front() else { return Next::Nothing };
            let Some(source) = state.to.as_ref().map(|to| to.source.clone()) else { continue };
            state.delivering = true;
            drop(state);
            let pushed = push(&source, note);
            let mut state = self.lock();
            state.delivering = false;
            if let Err(note) = pushed {
                state.messages.push_front((pass, note));
                return Next::Room;
            }
        }
    }

    fn transfer(&self) -> Next {
        let (mut wait, mut kept) = (Next::Nothing, VecDeque::new());
        let posts = std::mem::take(&mut self.lock().posts);
        for mut posted in posts {
            let look = self.move_on(&mut posted);
            wait = wait.sooner(look.next());
            match look {
                Look::Go => self.complete(posted),
                _ => kept.push_back(posted),
            }
        }
        let mut state = self.lock();
        kept.append(&mut state.posts);
        state.posts = kept;
        wait
    }

    /// `Go`: it may complete.
    fn move_on(&self, posted: &mut Posted) -> Look {
        let peer = self.peer.as_str();
        if posted.outcome.is_none() {
            let (dead, to) = {
                let state = self.lock();
                (state.dead, state.to.as_ref().map(|to| to.node.clone()))
            };
            posted.outcome = match to.filter(|_| !dead) {
                None => Some(Outcome::Failed(TransferError::NotSent)),
                Some(to) => match self.from.steps.look(Step::Post, peer, &mut posted.pass) {
                    Look::Go => Some(self.copy(&to, &posted.post)),
                    wait => return wait,
                },
            };
            posted.pass = Pass::default();
        }
        let look = self.from.steps.look(Step::Complete, peer, &mut posted.pass);
        let state = self.lock();
        if state.dead && posted.outcome == Some(Outcome::Done) {
            posted.outcome = Some(Outcome::Unknown);
        }
        if state.flush { Look::Go } else { look }
    }

    fn copy(&self, to: &Node, post: &Post) -> Outcome {
        let access = match post.kind {
            TransferKind::Write => Access::Write,
            TransferKind::Read => Access::Read,
        };
        let refused = |refusal| Outcome::Failed(TransferError::Refused(refusal));
        let loan = match to.grants.present(&self.from.name, self.id, post.remote, access) {
            Ok(loan) if loan.len() == post.local.len() => loan,
            Ok(_) => return refused(Refusal::OutOfBounds),
            Err(refusal) => return refused(refusal),
        };
        let local_fault = |error: OutOfRegion| Outcome::Failed(TransferError::Local(error.to_string()));
        let mut bytes = [0; CHUNK];
        for at in (0..loan.len()).step_by(CHUNK) {
            let chunk = &mut bytes[..CHUNK.min(loan.len() - at)];
            let copied = match post.kind {
                TransferKind::Write => post.local.read(at, chunk).map(|()| loan.write(at, chunk)),
                TransferKind::Read => match loan.read(at, chunk) {
                    Ok(()) => post.local.write(at, chunk).map(Ok),
                    refused => Ok(refused),
                },
            };
            match copied {
                Ok(Ok(())) => {}
                Ok(Err(refusal)) => return refused(refusal),
                Err(error) => return local_fault(error),
            }
        }
        Outcome::Done
    }

    fn complete(&self, Posted { post, outcome, .. }: Posted) {
        let Post { local, completion, .. } = post;
        let logged = self.from.log.begin(Step::Complete, &self.peer, self.generation);
        let outcome = outcome.expect("a transfer that may complete has an outcome");
        let act = self.from.steps.next_act(Step::Complete, self.peer.as_str());
        self.from.release_region(local.region());
        drop(local);
        // Before the completion: whoever hears of it may close the connection at once.
        self.lock().transfers -= 1;
        let completed = catch_unwind(AssertUnwindSafe(|| match act {
            Some(Act::Panic) => {
                let _lost = completion;
                panic!("a test asked a completion of \"{}\" to panic", self.peer)
            }
            Some(Act::Fail(error)) if error.class() == ErrorClass::Local => {
                completion.complete(Outcome::Failed(TransferError::Local(error.to_string())));
                Ending::Failed
            }
            Some(Act::Fail(_)) => {
                completion.complete(Outcome::Unknown);
                Ending::Failed
            }
            _ => {
                let ending = if outcome == Outcome::Done { Ending::Done } else { Ending::Failed };
                completion.complete(outcome);
                ending
            }
        }));
        if let Ok(ending) = completed {
            logged.end(ending);
        }
        self.lock().completing -= 1;
        self.less.notify_all();
    }

    /// A dead link copies nothing more: only this thread copies.
    fn settle(&self) {
        let mut state = self.lock();
        state.dead |= state.dies_idle && state.transfers == 0;
        if !state.dead || state.settled {
            return;
        }
        let to = state.to.take();
        drop(state);
        if let Some(to) = to {
            let _ = catch_unwind(AssertUnwindSafe(|| to.node.grants.inbound_closed(self.id)));
        }
        self.lock().settled = true;
        self.less.notify_all();
    }
}

/// Wakes the receiver; a waker that panics is its owner's trouble, the message has arrived.
fn push(source: &Source, note: Notification) -> Result<(), Notification> {
    catch_unwind(AssertUnwindSafe(|| source.try_push(note))).unwrap_or(Ok(()))
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

/// An error on its way to a reporter.
pub(super) struct Report {
    error: MemoryError,
    pass: Pass,
    answers: Arc<Answers>,
}

/// What the reporters said, for whoever waits for it.
#[derive(Default)]
pub(super) struct Answers {
    state: Mutex<(usize, Vec<(Generation, Reported)>)>,
    fewer: Condvar,
}

impl Report {
    pub(super) fn new(error: MemoryError, answers: &Arc<Answers>) -> Self {
        answers.lock().0 += 1;
        Report { error, pass: Pass::default(), answers: answers.clone() }
    }

    fn answer(self, generation: Generation, reported: Reported) {
        self.answers.lock().1.push((generation, reported));
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        self.answers.lock().0 -= 1;
        self.answers.fewer.notify_all();
    }
}

impl Answers {
    /// All of them, or `None` at the deadline.
    pub(super) fn wait(&self, deadline: Instant) -> Option<Vec<(Generation, Reported)>> {
        let mut state = self.lock();
        while state.0 > 0 {
            let left = deadline.checked_duration_since(Instant::now())?;
            state = self.fewer.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Some(state.1.clone())
    }

    fn lock(&self) -> MutexGuard<'_, (usize, Vec<(Generation, Reported)>)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
