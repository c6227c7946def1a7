//! The transfers of one connection that we opened, from the peer's go to the proof that they have ended here.
//!
//! NIXL moves bytes when it is asked how far it is, so the thread asks; whoever waits for a transfer asks for its own
//! ([`Help`](crate::Help)). Both hold the lock of [`Link::moving`] meanwhile, which nobody waits for but the thread.
//!
//! # When a page of ours is ours again
//! When NIXL says that its transfer is done, or that it has failed: each of ours is one piece, so an error is the end of the one
//! operation that NIXL's backend has made of it. What NIXL registered for it is kept all the same where the error was not the
//! death of the peer. A transfer that runs is never let go of: a peer that was stopped may go on, and NIXL sends from a page
//! that it has long released. Its page stays where it is, in quarantine if its caller has given it up, until NIXL answers.

use super::capi::Status;
use super::dialers::Dialer;
use super::error::NixlError;
use super::link::Link;
use super::native::Memory;
use super::remote::Remote;
use super::request::{Held, Kind, Progress, Request};
use super::shared::Shared;
use crate::sync::lock;
use crate::transfer::{Completion, Outcome, Post, TransferError, TransferId, TransferKind};
use std::sync::Arc;

#[derive(Default)]
pub(super) struct Moving {
    runs: Vec<Run>,
    /// Of those that who waits has found done. The thread drops it: memory may be taken back with it, which may take long.
    spent: Vec<Held>,
}

/// A transfer that NIXL has.
pub(super) struct Run {
    id: TransferId,
    request: Request,
    completion: Completion,
    len: u64,
    permission: Permission,
}

/// What a transfer accesses its page by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Permission {
    /// A go of its own.
    Own,
    /// One that lasts, by its grant.
    Standing(u128),
}

/// What the native side may still touch, or has not given back. Never dropped: nobody says when it may be.
#[derive(Default)]
pub(super) struct Graveyard {
    held: Vec<Held>,
    requests: Vec<Request>,
}

impl Graveyard {
    pub(super) fn len(&self) -> usize {
        self.held.len() + self.requests.len()
    }

    /// Asks NIXL again to let go of what it did not let go of.
    pub(super) fn dig_up(&mut self) {
        for request in std::mem::take(&mut self.requests) {
            match request.abandon() {
                Ok(held) => self.held.push(held),
                Err(request) => self.requests.push(request),
            }
        }
    }
}

impl Drop for Graveyard {
    fn drop(&mut self) {
        self.held.drain(..).for_each(std::mem::forget);
        self.requests.drain(..).for_each(std::mem::forget);
    }
}

/// What a transfer goes over.
pub(super) struct Way<'a> {
    pub(super) link: &'a Arc<Link>,
    pub(super) remote: &'a Remote,
    pub(super) dialer: &'a Dialer,
    pub(super) shared: &'a Shared,
}

/// An error if it is the peer's.
#[derive(Default)]
pub(super) struct Broken(pub(super) Option<NixlError>);

/// The end of one, for its caller. Told under no lock: it wakes other people's code.
#[must_use]
pub(super) struct Over {
    completion: Completion,
    outcome: Outcome,
    len: u64,
}

impl Over {
    pub(super) fn tell(self) {
        if self.outcome == Outcome::Done {
            self.completion.progress(self.len);
        }
        self.completion.complete(self.outcome);
    }
}

/// What NIXL has said of one transfer.
pub(super) enum Asked {
    Runs,
    Over(Over),
    /// It is not among them, or the thread has to look at it.
    Other,
}

impl Moving {
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The one that has run for longest.
    pub(super) fn oldest(&self) -> Option<TransferId> {
        self.runs.first().map(|run| run.id)
    }

    /// Those that were begun.
    pub(super) fn take_over(&mut self, begun: Vec<Run>) {
        self.runs.extend(begun);
    }

    pub(super) fn take_spent(&mut self) -> Vec<Held> {
        std::mem::take(&mut self.spent)
    }

    /// Asks NIXL of each how far it is. Answers which have ended.
    pub(super) fn poll(&mut self, way: &Way<'_>, broken: &mut Broken) -> Vec<Over> {
        let mut ended = Vec::new();
        for mut run in std::mem::take(&mut self.runs) {
            let progress = run.request.poll();
            match run.look(progress, way, broken) {
                Ok(run) => self.runs.push(run),
                Err(over) => ended.push(over),
            }
        }
        ended
    }

    /// Asks NIXL how far this one is, for who waits for it.
    pub(super) fn ask(&mut self, transfer: TransferId, link: &Link) -> Asked {
        let Some(at) = self.runs.iter().position(|run| run.id == transfer) else { return Asked::Other };
        match self.runs[at].request.poll() {
            Ok(Progress::Running) => Asked::Runs,
            Ok(Progress::Done) => {
                let Run { id, request, completion, len, permission } = self.runs.remove(at);
                // One that NIXL does not let go of is leaked, and counted.
                self.spent.extend(request.abandon());
                link.ran(id, permission);
                Asked::Over(Over { completion, outcome: Outcome::Done, len })
            }
            // Of an error NIXL says the same again.
            Err(_) => Asked::Other,
        }
    }

    /// What runs is left to itself, with all that it may touch. What is given back ends as unknown when it is dropped.
    pub(super) fn leak(&mut self, dialer: &Dialer) -> Vec<Completion> {
        let mut graveyard = lock(&dialer.graveyard);
        let leak = |run: Run| {
            graveyard.requests.push(run.request);
            run.completion
        };
        self.runs.drain(..).map(leak).collect()
    }
}

/// The peer lets a transfer read or write, there.
pub(super) fn begin(post: Post, there: Memory, permission: Permission, way: &Way<'_>) -> Broken {
    let (link, mut broken) = (way.link, Broken::default());
    if post.local.is_empty() {
        link.ran(post.id, permission);
        let done = if post.completion.begins() { Outcome::Done } else { Outcome::Failed(TransferError::NotSent) };
        post.completion.complete(done);
        return broken;
    }
    let request = match make(&post, there, way) {
        Ok(request) => request,
        Err(status) => {
            let error = link.judge_transfer(way.remote, status);
            let outcome = match &error {
                NixlError::Rejected { .. } => TransferError::Local(format!("NIXL made no transfer: {status}")),
                _ => TransferError::NotSent,
            };
            broken.says(error);
            link.ran(post.id, permission);
            post.completion.complete(Outcome::Failed(outcome));
            return broken;
        }
    };
    if let Some((run, posted)) = start(post, request, permission, way) {
        match run.look(posted, way, &mut broken) {
            Ok(run) => link.begun(run),
            Err(over) => over.tell(),
        }
    }
    broken
}

/// The transfer, not begun.
fn make(post: &Post, there: Memory, way: &Way<'_>) -> Result<Request, Status> {
    let local = &post.local;
    let kind = if post.kind == TransferKind::Write { Kind::WRITE } else { Kind::READ };
    let here = way.shared.ours(local.region(), way.dialer)?.slice(local.offset()..local.offset() + local.len());
    way.remote.transfer(kind, &[here.ok_or(Status::INVALID_PARAM)?], &[there], None)
}

/// Begins it, unless it was given up before: then it ends, and nothing of it is sent.
fn start(
    post: Post,
    mut request: Request,
    permission: Permission,
    way: &Way<'_>,
) -> Option<(Run, Result<Progress, Status>)> {
    let Post { id, local, completion, .. } = post;
    if !completion.begins() {
        way.link.ran(id, permission);
        completion.complete(Outcome::Failed(TransferError::NotSent));
        return None;
    }
    let posted = request.post(way.remote);
    if posted == Ok(Progress::Running) {
        let link = Arc::downgrade(way.link);
        completion.helped_by(link);
    }
    Some((Run { id, request, completion, len: local.len() as u64, permission }, posted))
}

/// What became of a transfer that its poster begins.
pub(super) enum Begun {
    /// It has ended.
    Ended,
    /// Whoever looks next sees to it.
    Runs(Run),
    /// NIXL made none: the thread finds out why.
    Not(Post),
}

/// Begins a transfer under a permission that lasts.
pub(super) fn begin_here(post: Post, there: Memory, way: &Way<'_>) -> Begun {
    let permission = Permission::Standing(post.remote.grant);
    let inside = way.dialer.senders.enter();
    let Ok(request) = make(&post, there, way) else { return Begun::Not(post) };
    let started = start(post, request, permission, way);
    drop(inside);
    match started {
        Some((run, Ok(Progress::Done))) => run.finish(way.link).tell(),
        // Of an error NIXL says the same again.
        Some((run, _)) => return Begun::Runs(run),
        None => {}
    }
    Begun::Ended
}

impl Broken {
    fn says(&mut self, error: NixlError) {
        if !matches!(error, NixlError::Rejected { .. }) {
            self.0.get_or_insert(error);
        }
    }
}

impl Run {
    /// It is done, and let go.
    fn finish(self, link: &Link) -> Over {
        let Run { id, request, completion, len, permission } = self;
        // If it were not done, it would be leaked and counted.
        drop(request.release());
        link.ran(id, permission);
        Over { completion, outcome: Outcome::Done, len }
    }

    /// What becomes of it after what NIXL says.
    fn look(self, progress: Result<Progress, Status>, way: &Way<'_>, broken: &mut Broken) -> Result<Self, Over> {
        let status = match progress {
            Ok(Progress::Running) => return Ok(self),
            Ok(Progress::Done) => return Err(self.finish(way.link)),
            Err(status) => status,
        };
        let Run { id, request, completion, len, permission } = self;
        let error = way.link.judge_transfer(way.remote, status);
        let is_dead = !matches!(error, NixlError::Rejected { .. });
        match request.abandon() {
            Ok(held) if is_dead => drop(held),
            Ok(held) => lock(&way.dialer.graveyard).held.push(held),
            Err(request) => lock(&way.dialer.graveyard).requests.push(request),
        }
        broken.says(error);
        way.link.ran(id, permission);
        Err(Over { completion, outcome: Outcome::Unknown, len })
    }
}
