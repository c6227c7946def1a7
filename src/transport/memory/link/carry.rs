//! What the fabric's thread does for one link: reports, delivers, copies, completes, settles.

use super::{Link, Next, Posted, Report};
use crate::grant::{Access, Loan, Refusal};
use crate::sync::came_through;
use crate::transfer::{Outcome, Post, TransferError, TransferKind};
use crate::transport::memory::Step;
use crate::transport::memory::fabric::Node;
use crate::transport::memory::log::Ending;
use crate::transport::memory::steps::{Act, Look, Pass};
use crate::transport::{ErrorClass, TransportError};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Bytes copied between two looks at a grant.
const CHUNK: usize = 4096;

fn refused(refusal: Refusal) -> Outcome {
    Outcome::Failed(TransferError::Refused(refusal))
}

impl Link {
    pub(in super::super) fn advance(&self) -> Next {
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
            let pushed = source.try_push(note);
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
        if self.lock().cancelled.remove(&posted.post.id) && posted.outcome.is_none() {
            posted.moving = None;
            posted.outcome = Some(refused(Refusal::Cancelled));
            posted.pass = Pass::default();
        }
        if posted.outcome.is_none() {
            let (dead, to) = {
                let state = self.lock();
                (state.dead, state.to.as_ref().map(|to| to.node.clone()))
            };
            posted.outcome = match to.filter(|_| !dead) {
                None if posted.moving.is_some() => Some(Outcome::Unknown),
                None => Some(Outcome::Failed(TransferError::NotSent)),
                Some(to) => match self.copy(&to, posted) {
                    Ok(outcome) => Some(outcome),
                    Err(wait) => return wait,
                },
            };
            posted.moving = None;
            posted.pass = Pass::default();
        }
        let look = self.from.steps.look(Step::Complete, self.peer.as_str(), &mut posted.pass);
        let state = self.lock();
        if state.dead && posted.outcome == Some(Outcome::Done) {
            posted.outcome = Some(Outcome::Unknown);
        }
        if state.flush { Look::Go } else { look }
    }

    /// `Err`: it waits, with some or none of its bytes moved.
    fn copy(&self, to: &Node, posted: &mut Posted) -> Result<Outcome, Look> {
        let Posted { post, pass, moving, .. } = posted;
        let (loan, at) = match moving {
            Some(moving) => moving,
            None => {
                self.pass(Step::Post, pass)?;
                if !post.completion.begins() {
                    return Ok(Outcome::Failed(TransferError::NotSent));
                }
                match self.present(to, post) {
                    Ok(loan) => moving.insert((loan, 0)),
                    Err(refusal) => return Ok(refused(refusal)),
                }
            }
        };
        while *at < loan.len() {
            self.pass(Step::Chunk, pass)?;
            let mut bytes = [0; CHUNK];
            let chunk = &mut bytes[..CHUNK.min(loan.len() - *at)];
            let copied = match post.kind {
                TransferKind::Write => post.local.read(*at, chunk).map(|()| loan.write(*at, chunk)),
                TransferKind::Read => match loan.read(*at, chunk) {
                    Ok(()) => post.local.write(*at, chunk).map(Ok),
                    refused => Ok(refused),
                },
            };
            match copied {
                Ok(Ok(())) => {}
                Ok(Err(refusal)) => return Ok(refused(refusal)),
                Err(error) => return Ok(Outcome::Failed(TransferError::Local(error.to_string()))),
            }
            *at += chunk.len();
            post.completion.progress(*at as u64);
        }
        Ok(Outcome::Done)
    }

    fn pass(&self, step: Step, pass: &mut Pass) -> Result<(), Look> {
        match self.from.steps.look(step, self.peer.as_str(), pass) {
            Look::Go => {
                *pass = Pass::default();
                Ok(())
            }
            wait => Err(wait),
        }
    }

    fn present(&self, to: &Node, post: &Post) -> Result<Loan, Refusal> {
        let access = match post.kind {
            TransferKind::Write => Access::Write,
            TransferKind::Read => Access::Read,
        };
        match to.grants.present(&self.from.name, self.id, post.remote, access) {
            Ok(loan) if loan.len() == post.local.len() => Ok(loan),
            Ok(_) => Err(Refusal::OutOfBounds),
            Err(refusal) => Err(refusal),
        }
    }

    fn complete(&self, Posted { post, outcome, .. }: Posted) {
        let Post { local, completion, .. } = post;
        let logged = self.from.log.begin(Step::Complete, &self.peer, self.generation);
        let outcome = outcome.expect("a transfer that may complete has an outcome");
        let act = self.from.steps.next_act(Step::Complete, self.peer.as_str());
        self.from.release_region(local.region());
        drop(local);
        // Before the completion: whoever hears of it may close the connection at once.
        let mut state = self.lock();
        state.transfers -= 1;
        if state.transfers == 0 {
            state.cancelled.clear();
        }
        drop(state);
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
            came_through(|| to.node.grants.inbound_closed(self.id));
        }
        self.lock().settled = true;
        self.less.notify_all();
    }
}
