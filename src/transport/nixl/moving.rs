//! The transfers of one connection that we opened, from the peer's go to the proof that they have ended here.
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

#[derive(Default)]
pub(super) struct Moving(Vec<Run>);

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
    pub(super) link: &'a Link,
    pub(super) remote: &'a Remote,
    pub(super) dialer: &'a Dialer,
    pub(super) shared: &'a Shared,
}

/// Transfers that are over here, and an error if it is the peer's.
#[derive(Default)]
pub(super) struct Ended {
    pub(super) over: Vec<TransferId>,
    pub(super) broken: Option<NixlError>,
}

impl Moving {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The peer lets a transfer read or write, there.
    pub(super) fn begin(&mut self, post: Post, there: Memory, permission: Permission, way: &Way<'_>) -> Ended {
        let (link, mut ended) = (way.link, Ended::default());
        if post.local.is_empty() {
            ended.ends(post.id, permission, link);
            let done = if post.completion.begins() { Outcome::Done } else { Outcome::Failed(TransferError::NotSent) };
            post.completion.complete(done);
            return ended;
        }
        let request = match make(&post, there, way) {
            Ok(request) => request,
            Err(status) => {
                let error = link.judge_transfer(way.remote, status);
                let outcome = match &error {
                    NixlError::Rejected { .. } => TransferError::Local(format!("NIXL made no transfer: {status}")),
                    _ => TransferError::NotSent,
                };
                ended.says(error);
                ended.ends(post.id, permission, link);
                post.completion.complete(Outcome::Failed(outcome));
                return ended;
            }
        };
        match start(post, request, permission, way.remote) {
            Ok((run, posted)) => self.0.extend(run.look(posted, way, &mut ended)),
            Err((id, completion)) => {
                ended.ends(id, permission, link);
                completion.complete(Outcome::Failed(TransferError::NotSent));
            }
        }
        ended
    }

    /// One that was begun elsewhere.
    pub(super) fn take_over(&mut self, run: Run) {
        self.0.push(run);
    }

    /// Asks NIXL of each how far it is. Answers whether one has ended.
    pub(super) fn poll(&mut self, way: &Way<'_>, ended: &mut Ended) -> bool {
        let before = self.0.len();
        for mut run in std::mem::take(&mut self.0) {
            let progress = run.request.poll();
            self.0.extend(run.look(progress, way, ended));
        }
        self.0.len() < before
    }

    /// What runs is left to itself, with all that it may touch. Answers how many there were.
    pub(super) fn leak(&mut self, dialer: &Dialer) {
        self.0.drain(..).for_each(|run| run.leak(dialer));
    }
}

/// The transfer, not begun.
fn make(post: &Post, there: Memory, way: &Way<'_>) -> Result<Request, Status> {
    let local = &post.local;
    let kind = if post.kind == TransferKind::Write { Kind::WRITE } else { Kind::READ };
    let here = way.shared.ours(local.region(), way.dialer)?.slice(local.offset()..local.offset() + local.len());
    way.remote.transfer(kind, &[here.ok_or(Status::INVALID_PARAM)?], &[there], None)
}

type Started = (Run, Result<Progress, Status>);

/// Begins it. `Err`: it was given up before, and nothing of it is sent.
fn start(
    post: Post,
    mut request: Request,
    permission: Permission,
    remote: &Remote,
) -> Result<Started, (TransferId, Completion)> {
    let Post { id, local, completion, .. } = post;
    if !completion.begins() {
        return Err((id, completion));
    }
    let posted = request.post(remote);
    Ok((Run { id, request, completion, len: local.len() as u64, permission }, posted))
}

/// What became of a transfer that its poster begins.
pub(super) enum Begun {
    /// It has ended.
    Ended,
    /// The thread sees to it.
    Runs(Run),
    /// NIXL made none: the thread finds out why.
    Not(Post),
}

/// Begins a transfer under a permission that lasts.
pub(super) fn begin_here(post: Post, there: Memory, way: &Way<'_>) -> Begun {
    let permission = Permission::Standing(post.remote.grant);
    let Ok(request) = make(&post, there, way) else { return Begun::Not(post) };
    match start(post, request, permission, way.remote) {
        Ok((run, Ok(Progress::Done))) => run.finish(way),
        // Of an error NIXL says the same again.
        Ok((run, _)) => return Begun::Runs(run),
        Err((_, completion)) => {
            way.link.ran(permission);
            completion.complete(Outcome::Failed(TransferError::NotSent));
        }
    }
    Begun::Ended
}

impl Ended {
    fn ends(&mut self, id: TransferId, permission: Permission, link: &Link) {
        if permission == Permission::Own {
            self.over.push(id);
        }
        link.ran(permission);
    }

    fn says(&mut self, error: NixlError) {
        if !matches!(error, NixlError::Rejected { .. }) {
            self.broken.get_or_insert(error);
        }
    }
}

impl Run {
    /// What is done is let go.
    fn finish(self, way: &Way<'_>) {
        let Run { request, completion, len, permission, .. } = self;
        if let Err(request) = request.release() {
            lock(&way.dialer.graveyard).requests.push(request);
        }
        completion.progress(len);
        way.link.ran(permission);
        completion.complete(Outcome::Done);
    }

    /// It is left to itself, with all that it may touch.
    pub(super) fn leak(self, dialer: &Dialer) {
        lock(&dialer.graveyard).requests.push(self.request);
        drop(self.completion);
    }

    /// What is left of it after what NIXL says.
    fn look(self, progress: Result<Progress, Status>, way: &Way<'_>, ended: &mut Ended) -> Option<Self> {
        match progress {
            Ok(Progress::Running) => return Some(self),
            Ok(Progress::Done) => {
                if self.permission == Permission::Own {
                    ended.over.push(self.id);
                }
                self.finish(way);
            }
            Err(status) => {
                let Run { id, request, completion, permission, .. } = self;
                let error = way.link.judge_transfer(way.remote, status);
                let is_dead = !matches!(error, NixlError::Rejected { .. });
                match request.abandon() {
                    Ok(held) if is_dead => drop(held),
                    Ok(held) => lock(&way.dialer.graveyard).held.push(held),
                    Err(request) => lock(&way.dialer.graveyard).requests.push(request),
                }
                ended.says(error);
                ended.ends(id, permission, way.link);
                completion.complete(Outcome::Unknown);
            }
        }
        None
    }
}
