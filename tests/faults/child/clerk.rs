//! Pages that are lent, written and taken back, both sides of it, and whatever else comes in. One thread, which never waits.
//!
//! A page that comes back is checked, kept for a while, and checked again: a write that comes too late would show. One that
//! was not written is filled with what nobody else writes, and checked the same way.

use super::message::Message;
use super::{Mate, Worker, lock};
use crate::pages::Page;
use crate::transport::{Net, Wire};
use peerage::{Access, Generation, Grant, Notification, Outcome, Peer, Phase, PostError, RemoteSlice, Transfer};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const TICK: Duration = Duration::from_millis(2);
/// How long a page is kept before it is checked again.
const HOLD: Duration = Duration::from_millis(20);
/// Pages one peer may have: more would be taken from the others.
const MOST: usize = 16;
/// How long a page that we are asked to write, or the news of it, waits for its owner to be Ready.
const ASKED: Duration = Duration::from_secs(60);
/// Messages taken before the rest is looked at.
const BATCH: usize = 256;

#[derive(Debug, thiserror::Error)]
#[error("a request was not answered in time")]
struct TimedOut;

/// What is lent, by number.
pub(super) struct Requests<W: Wire> {
    last: u64,
    open: BTreeMap<u64, Request<W>>,
}

struct Request<W: Wire> {
    mate: Peer<Net<W>>,
    generation: Generation,
    page: Page,
    grant: Grant,
    block: u64,
    until: Instant,
    stage: Stage,
}

enum Stage {
    Lent,
    /// Revoked; whether it was written, or why not.
    Ended(Result<(), String>),
    /// Nothing can land in it; it is looked at again then.
    Held(Result<(), String>, Instant),
}

impl<W: Wire> Default for Requests<W> {
    fn default() -> Self {
        Requests { last: 0, open: BTreeMap::new() }
    }
}

/// Somebody's page that we are to write.
struct Asked {
    by: String,
    since: Instant,
    request: u64,
    block: u64,
    page: RemoteSlice,
}

/// A page we write.
struct Posted {
    by: String,
    since: Instant,
    request: u64,
    block: u64,
    transfer: Transfer,
    own: Option<Page>,
    outcome: Option<Outcome>,
    /// Its owner knows, or can't be told.
    told: bool,
}

/// Asks a peer to write one of our pages.
pub(super) fn lend<W: Wire>(worker: &Worker<W>, Mate { peer: mate, answer_within }: &Mate<W>) {
    let name = mate.name().as_str();
    let lease = match mate.lease() {
        Ok(lease) => lease,
        Err(not_ready) => return lock(&worker.ledger).of(name).error(not_ready),
    };
    let mut requests = lock(&worker.requests);
    if requests.open.values().filter(|open| open.mate.name() == mate.name()).count() >= MOST {
        return;
    }
    let Some(page) = worker.lent.take(1).map(|pages| pages[0]) else { return };
    worker.lent.poison(page);
    let grant = worker.table.grant(mate, &worker.lent.slice(page), Access::Write);
    let grant = grant.unwrap_or_else(|error| panic!("{error}"));
    requests.last += 1;
    let (request, block) = (requests.last, u64::from(std::process::id()));
    let ask = Message::Lend { request, block, page: grant.remote() }.to_bytes();
    let (generation, until) = (lease.generation(), Instant::now() + *answer_within);
    let open = Request { mate: mate.clone(), generation, page, grant, block, until, stage: Stage::Lent };
    // Before the message, which may be answered before this thread goes on.
    requests.open.insert(request, open);
    lock(&worker.ledger).of(name).begun += 1;
    drop(requests);
    if let Err(error) = lease.notify(&ask)
        && let Some(open) = lock(&worker.requests).open.get_mut(&request)
    {
        open.end(Err(error.to_string()));
    }
}

pub(super) fn serve_for_ever<W: Wire>(worker: &Worker<W>) {
    let inbox = worker.table.inbox();
    let (mut asked, mut posted) = (Vec::new(), Vec::new());
    while !inbox.is_closed() {
        let mut next = inbox.recv(Instant::now() + TICK);
        for _ in 0..BATCH {
            let Some(message) = next else { break };
            take(worker, &message, &mut asked);
            next = inbox.try_recv();
        }
        if let Some(message) = next {
            take(worker, &message, &mut asked);
        }
        asked.retain(|asked| !write(worker, asked, &mut posted));
        posted.retain_mut(|posted| !settle(worker, posted));
        lock(&worker.requests).open.retain(|request, open| !open.step(worker, *request));
    }
}

fn take<W: Wire>(worker: &Worker<W>, message: &Notification, asked: &mut Vec<Asked>) {
    let from = message.from.as_str();
    match Message::from_bytes(&message.bytes) {
        Some(Message::Note { thread, nth }) => {
            let incarnation = message.incarnation.map(|it| it.to_string()).unwrap_or_default();
            let generation = message.generation.map_or(0, |generation| generation.0);
            lock(&worker.ledger).note(from, &incarnation, generation, thread, nth);
        }
        Some(Message::Lend { request, block, page }) => {
            asked.push(Asked { by: from.into(), since: Instant::now(), request, block, page });
        }
        Some(Message::Over { request, block, written }) => {
            // One that was asked for in an earlier life is not ours.
            if let Some(open) = lock(&worker.requests).open.get_mut(&request)
                && open.mate.name() == &message.from
                && open.block == block
                && matches!(open.stage, Stage::Lent)
            {
                open.end(if written { Ok(()) } else { Err("it could not be written".into()) });
            }
        }
        None => panic!("\"{from}\" sent {} bytes that are no message", message.bytes.len()),
    }
}

/// Begins to write; `false`: to be tried again, as its owner may not be Ready yet.
fn write<W: Wire>(worker: &Worker<W>, asked: &Asked, posted: &mut Vec<Posted>) -> bool {
    let late = asked.since.elapsed() > ASKED;
    let Some(lease) = worker.table.lease(&asked.by).ok() else { return late };
    let Some(own) = worker.own.take(1).map(|pages| pages[0]) else { return late };
    worker.own.write_content(own, asked.request, asked.block);
    match lease.write(&worker.own.slice(own), asked.page) {
        Ok(transfer) => {
            lock(&worker.ledger).of(&asked.by).posted += 1;
            posted.push(Posted {
                by: asked.by.clone(),
                since: Instant::now(),
                request: asked.request,
                block: asked.block,
                transfer,
                own: Some(own),
                outcome: None,
                told: false,
            });
            true
        }
        Err(error) => {
            worker.own.give_back([own]);
            if !matches!(error, PostError::Busy { .. }) {
                lock(&worker.ledger).of(&asked.by).error(error);
            }
            late
        }
    }
}

/// Whether it has ended, its page is ours again, and its owner knows, or can't be told.
fn settle<W: Wire>(worker: &Worker<W>, posted: &mut Posted) -> bool {
    let Some(outcome) = posted.transfer.try_outcome() else { return false };
    match &posted.outcome {
        None => {
            let mut ledger = lock(&worker.ledger);
            let tally = ledger.of(&posted.by);
            tally.ended += 1;
            if outcome != Outcome::Done {
                tally.error(format!("a transfer ended as {outcome:?}"));
            }
        }
        Some(before) if *before != outcome => lock(&worker.ledger).of(&posted.by).ended_twice += 1,
        Some(_) => {}
    }
    if !posted.told {
        let (request, block, written) = (posted.request, posted.block, outcome == Outcome::Done);
        let over = Message::Over { request, block, written }.to_bytes();
        let told = worker.table.lease(&posted.by).is_ok_and(|lease| lease.notify(&over).is_ok());
        posted.told = told || posted.since.elapsed() > ASKED;
    }
    posted.outcome = Some(outcome);
    if posted.transfer.is_quiescent() {
        worker.own.give_back(posted.own.take());
    }
    posted.told && posted.own.is_none()
}

impl<W: Wire> Request<W> {
    fn end(&mut self, how: Result<(), String>) {
        self.grant.revoke();
        self.stage = Stage::Ended(how);
    }

    /// One step further; whether it is over.
    fn step(&mut self, worker: &Worker<W>, request: u64) -> bool {
        let name = self.mate.name().as_str();
        match &self.stage {
            Stage::Lent if self.grant.is_quiesced() => self.end(Err("its writer's connection ended".into())),
            Stage::Lent if self.mate.generation() != self.generation || self.mate.phase() != Phase::Ready => {
                self.end(Err("the connection it was asked over ended".into()));
            }
            Stage::Lent if self.until <= Instant::now() => {
                self.mate.report(self.generation, &TimedOut);
                self.end(Err(TimedOut.to_string()));
            }
            Stage::Ended(how) if self.grant.is_quiesced() => {
                let mut how = how.clone();
                match how {
                    Ok(()) if !worker.lent.holds(self.page, request, self.block) => how = self.corrupt(worker),
                    Ok(()) => {}
                    Err(_) => worker.lent.write_content(self.page, request, !self.block),
                }
                self.stage = Stage::Held(how, Instant::now() + HOLD);
            }
            Stage::Held(how, until) if *until <= Instant::now() => {
                let mut how = how.clone();
                let block = if how.is_ok() { self.block } else { !self.block };
                if !worker.lent.holds(self.page, request, block) {
                    how = self.corrupt(worker);
                }
                let mut ledger = lock(&worker.ledger);
                let tally = ledger.of(name);
                match how {
                    Ok(()) => tally.answered += 1,
                    Err(why) => {
                        tally.failed += 1;
                        tally.error(why);
                    }
                }
                worker.lent.give_back([self.page]);
                return true;
            }
            _ => {}
        }
        false
    }

    fn corrupt(&self, worker: &Worker<W>) -> Result<(), String> {
        lock(&worker.ledger).of(self.mate.name().as_str()).corrupt += 1;
        Err(format!("page {} has a wrong byte", self.page))
    }
}
