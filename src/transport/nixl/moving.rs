//! The transfers of one connection that we opened, from the peer's go to the proof that they have ended here.
//!
//! # When a page of ours is ours again
//! When NIXL says that its transfer is done, or that it has failed: each of ours is one piece, so an error is the end of the one
//! operation that NIXL's backend has made of it. What NIXL registered for it is kept all the same where the error was not the
//! death of the peer. A transfer that runs is never let go of: a peer that was stopped may go on, and NIXL sends from a page
//! that it has long released. Its page stays where it is, in quarantine if its caller has given it up, until NIXL answers.

use super::capi::Status;
use super::dialers::Dialer;
use super::link::Link;
use super::message::Go;
use super::native::{Memory, MemoryKind};
use super::remote::Remote;
use super::request::{Held, Kind, Progress, Request};
use super::{NixlError, Shared};
use crate::sync::lock;
use crate::transfer::{Completion, Outcome, Post, TransferError, TransferId, TransferKind};

#[derive(Default)]
pub(super) struct Moving(Vec<Run>);

struct Run {
    id: TransferId,
    request: Request,
    completion: Completion,
    len: u64,
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

    /// The peer lets a transfer read or write.
    pub(super) fn begin(
        &mut self,
        post: Post,
        go: &Go,
        link: &Link,
        remote: &Remote,
        dialer: &Dialer,
        shared: &Shared,
    ) -> Ended {
        let mut ended = Ended::default();
        let Post { id, kind, local, completion, .. } = post;
        let end = |completion: Completion, outcome, mut ended: Ended| {
            ended.over.push(id);
            link.ran();
            completion.complete(outcome);
            ended
        };
        if !completion.begins() {
            return end(completion, Outcome::Failed(TransferError::NotSent), ended);
        }
        if local.is_empty() {
            return end(completion, Outcome::Done, ended);
        }
        let there =
            Memory { kind: MemoryKind(go.kind), address: go.address as usize, len: local.len(), device: go.device };
        let kind = if kind == TransferKind::Write { Kind::WRITE } else { Kind::READ };
        let made = shared.ours(local.region(), dialer).and_then(|registration| {
            let here = registration.slice(local.offset()..local.offset() + local.len());
            remote.transfer(kind, &[here.ok_or(Status::INVALID_PARAM)?], &[there], None)
        });
        let mut request = match made {
            Ok(request) => request,
            Err(status) => {
                let error = link.judge_transfer(remote, status);
                let outcome = match &error {
                    NixlError::Rejected { .. } => TransferError::Local(format!("NIXL made no transfer: {status}")),
                    _ => TransferError::NotSent,
                };
                ended.says(error);
                return end(completion, Outcome::Failed(outcome), ended);
            }
        };
        let posted = request.post(remote);
        let run = Run { id, request, completion, len: local.len() as u64 };
        self.0.extend(run.look(posted, link, remote, dialer, &mut ended));
        ended
    }

    /// Asks NIXL of each how far it is.
    pub(super) fn poll(&mut self, link: &Link, remote: &Remote, dialer: &Dialer, ended: &mut Ended) {
        for mut run in std::mem::take(&mut self.0) {
            let progress = run.request.poll();
            self.0.extend(run.look(progress, link, remote, dialer, ended));
        }
    }

    /// What runs is left to itself, with all that it may touch. Answers how many there were.
    pub(super) fn leak(&mut self, dialer: &Dialer) {
        for Run { request, completion, .. } in self.0.drain(..) {
            lock(&dialer.graveyard).requests.push(request);
            drop(completion);
        }
    }
}

impl Ended {
    fn says(&mut self, error: NixlError) {
        if !matches!(error, NixlError::Rejected { .. }) {
            self.broken.get_or_insert(error);
        }
    }
}

impl Run {
    /// What is left of it after what NIXL says.
    fn look(
        self,
        progress: Result<Progress, Status>,
        link: &Link,
        remote: &Remote,
        dialer: &Dialer,
        ended: &mut Ended,
    ) -> Option<Self> {
        match progress {
            Ok(Progress::Running) => return Some(self),
            Ok(Progress::Done) => {
                let Run { id, request, completion, len } = self;
                // What is done is let go.
                if let Err(request) = request.release() {
                    lock(&dialer.graveyard).requests.push(request);
                }
                completion.progress(len);
                ended.over.push(id);
                link.ran();
                completion.complete(Outcome::Done);
            }
            Err(status) => {
                let Run { id, request, completion, .. } = self;
                let error = link.judge_transfer(remote, status);
                let is_dead = !matches!(error, NixlError::Rejected { .. });
                match request.abandon() {
                    Ok(held) if is_dead => drop(held),
                    Ok(held) => lock(&dialer.graveyard).held.push(held),
                    Err(request) => lock(&dialer.graveyard).requests.push(request),
                }
                ended.says(error);
                ended.over.push(id);
                link.ran();
                completion.complete(Outcome::Unknown);
            }
        }
        None
    }
}
