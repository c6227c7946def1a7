//! The decode side: lends poisoned pages to a prefill process, checks what arrives, uses it, and takes a page back only
//! when no late write can land in it.

use super::jobs::Jobs;
use super::{LOOK, REQUEST_TIMEOUT, Setup, look_at_all, say};
use crate::ledger::End;
use crate::lines::Event;
use crate::modes::{Link, PeerIndex, Peers, RequestTimedOut, WireAddress};
use crate::pages::{Page, Pages};
use crate::wire::Message;
use peerage::{DataPlane, Generation, Grant};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Pages of the pool. More requests than fit wait for a page, and fail when their time is over.
const PAGES: usize = 2048;
/// How soon a request that found no pages looks again.
const NO_PAGES: Duration = Duration::from_millis(5);
/// How long a worker waits for a copy that is running when its grant is revoked.
const REVOKE: Duration = Duration::from_millis(100);

pub(crate) struct Decode {
    peers: Arc<dyn Peers>,
    names: Vec<String>,
    /// Those that take requests, and how many each has that are not answered.
    prefills: Vec<(PeerIndex, AtomicUsize)>,
    turn: AtomicUsize,
    pages: Pages,
    jobs: Jobs<Job>,
    sent: Mutex<HashMap<u64, Sent>>,
    revoke: bool,
}

enum Job {
    Start(Start),
    /// A prefill process says that it has, or has not, written all pages of a request.
    Answered(u64, Result<(), String>),
    TimedOut(u64),
    /// The request is done with its pages.
    Used(Start, PeerIndex, Vec<Page>),
}

struct Start {
    request: u64,
    since: Instant,
    hold: Duration,
    blocks: Vec<u64>,
    /// Which prefill is to take it, and where that is now.
    to: Option<(String, String)>,
}

/// A request whose pages are lent.
struct Sent {
    start: Start,
    /// Which of `prefills`.
    to: usize,
    generation: Generation,
    pages: Vec<Page>,
    grants: Vec<Grant>,
}

impl Decode {
    pub(crate) fn start(setup: &Setup, peers: Arc<dyn Peers>) -> Result<Arc<Self>, String> {
        let names: Vec<_> = setup.peers.iter().map(|(name, _)| name.clone()).collect();
        let prefills = super::prefills(&names).map(|peer| (peer, AtomicUsize::new(0))).collect();
        let decode = Arc::new(Decode {
            peers,
            names,
            prefills,
            turn: AtomicUsize::new(0),
            pages: Pages::new(PAGES, setup.page_bytes),
            jobs: Jobs::new(),
            sent: Mutex::default(),
            revoke: setup.revoke,
        });
        decode.peers.register(decode.pages.region()).map_err(|error| error.to_string())?;
        for _ in 0..setup.threads {
            let decode = decode.clone();
            thread::spawn(move || decode.work());
        }
        let listener = decode.clone();
        thread::spawn(move || listener.listen());
        Ok(decode)
    }

    /// A request came.
    pub(crate) fn begin(&self, request: u64, hold: Duration, blocks: Vec<u64>, to: Option<(String, String)>) {
        let now = Instant::now();
        self.jobs.push(now, Job::Start(Start { request, since: now, hold, blocks, to }));
    }

    fn listen(&self) {
        let inbox = self.peers.net().inbox();
        while !inbox.is_closed() {
            let Some(message) = inbox.recv(Instant::now() + Duration::from_secs(1)) else { continue };
            let job = match Message::from_bytes(&message.bytes) {
                Some(Message::Done { request }) => Job::Answered(request, Ok(())),
                Some(Message::Failed { request, why }) => Job::Answered(request, Err(why)),
                _ => continue,
            };
            self.jobs.push(Instant::now(), job);
        }
    }

    fn work(&self) {
        let mut looked = Instant::now();
        loop {
            match self.jobs.next(LOOK) {
                Some(Job::Start(start)) => self.send(start),
                Some(Job::Answered(request, answer)) => self.answered(request, answer),
                Some(Job::TimedOut(request)) => self.timed_out(request),
                Some(Job::Used(start, prefill, pages)) => self.used(&start, prefill, pages),
                None => {}
            }
            if looked.elapsed() >= LOOK {
                look_at_all(&*self.peers, self.names.len());
                looked = Instant::now();
            }
        }
    }

    /// Lends pages to the prefill with the fewest open requests, or to the one the request names, and tells it. If that
    /// fails, the request has failed: it is not sent again behind its back.
    fn send(&self, start: Start) {
        let Some(pages) = self.pages.take(start.blocks.len()) else {
            return self.wait_for_pages(start);
        };
        let chosen = match &start.to {
            Some((name, address)) => self.at(name, address, start.since + REQUEST_TIMEOUT),
            None => self.least_loaded().ok_or_else(|| "no prefill is ready".into()),
        };
        let (to, link) = match chosen {
            Ok(chosen) => chosen,
            Err(why) => {
                self.pages.give_back(pages);
                return end(start.request, start.to.as_ref().map(|(name, _)| name), End::Failed, &why);
            }
        };
        let peer = self.prefills[to].0;
        let name = &self.names[peer];
        let mut grants = Vec::with_capacity(pages.len());
        let mut blocks = Vec::with_capacity(pages.len());
        for (page, block) in pages.iter().zip(&start.blocks) {
            self.pages.poison(*page);
            match self.peers.lend(peer, &self.pages.slice(*page)) {
                Ok(grant) => {
                    blocks.push((*block, grant.remote()));
                    grants.push(grant);
                }
                Err(error) => {
                    // Nobody was told of these grants; dropping them revokes them.
                    drop(grants);
                    self.pages.give_back(pages);
                    return end(start.request, Some(name), End::Failed, &error.to_string());
                }
            }
        }
        let request = start.request;
        let ready = Message::Ready { request, blocks }.to_bytes();
        let deadline = start.since + REQUEST_TIMEOUT;
        // Before the message, which may be answered before this thread goes on.
        self.prefills[to].1.fetch_add(1, Relaxed);
        self.sent().insert(request, Sent { start, to, generation: link.generation(), pages, grants });
        if let Err(error) = link.notify(&ready) {
            drop(link);
            if let Some(sent) = self.take_sent(request) {
                self.take_back(sent.pages, sent.grants);
                end(request, Some(name), End::Failed, &error.to_string());
            }
            return;
        }
        self.jobs.push(deadline, Job::TimedOut(request));
    }

    fn wait_for_pages(&self, start: Start) {
        if start.since.elapsed() < REQUEST_TIMEOUT {
            self.jobs.push(Instant::now() + NO_PAGES, Job::Start(start));
        } else {
            end(start.request, None, End::Failed, "no pages");
        }
    }

    /// Of the prefills whose lease is granted, the one with the fewest open requests; they take turns when equal.
    fn least_loaded(&self) -> Option<(usize, Box<dyn Link + '_>)> {
        let n = self.prefills.len();
        let turn = self.turn.fetch_add(1, Relaxed);
        let mut order: Vec<_> = (0..n).map(|nth| (turn + nth) % n).collect();
        order.sort_by_key(|to| self.prefills[*to].1.load(Relaxed));
        order.into_iter().find_map(|to| Some((to, self.peers.link(self.prefills[to].0).ok()?)))
    }

    /// A prefill at the address that the request brings. Waits for it: its request has nowhere else to go.
    fn at(&self, name: &str, address: &str, deadline: Instant) -> Result<(usize, Box<dyn Link + '_>), String> {
        let address: WireAddress = address.parse()?;
        let to = self.prefills.iter().position(|(peer, _)| self.names[*peer] == name);
        let (to, table) = to.zip(self.peers.peerage()).ok_or_else(|| format!("{name} can't be told where it is"))?;
        let peer = self.prefills[to].0;
        table.update(peer, address).map_err(|error| error.to_string())?;
        Ok((to, self.peers.link_within(peer, deadline).map_err(|error| error.to_string())?))
    }

    fn answered(&self, request: u64, answer: Result<(), String>) {
        // One that has timed out is gone.
        let Some(Sent { start, to, pages, grants, .. }) = self.take_sent(request) else { return };
        let peer = self.prefills[to].0;
        match answer {
            Ok(()) => {
                // From here on nobody writes these pages, and what is checked now is what will be used.
                let Some(pages) = self.settle(pages, grants) else {
                    return end(request, Some(&self.names[peer]), End::Failed, "a page is not quiesced");
                };
                if let Err(why) = self.check(&start, &pages) {
                    self.pages.give_back(pages);
                    return end(request, Some(&self.names[peer]), End::Corrupt, &why);
                }
                self.jobs.push(Instant::now() + start.hold, Job::Used(start, peer, pages));
            }
            Err(why) => {
                self.take_back(pages, grants);
                end(request, Some(&self.names[peer]), End::Failed, &why);
            }
        }
    }

    fn timed_out(&self, request: u64) {
        let Some(Sent { to, generation, pages, grants, .. }) = self.take_sent(request) else { return };
        let peer = self.prefills[to].0;
        self.take_back(pages, grants);
        self.peers.report(peer, generation, &RequestTimedOut);
        end(request, Some(&self.names[peer]), End::Failed, "timed out");
    }

    /// Checks once more what the request has used all the time.
    fn used(&self, start: &Start, prefill: PeerIndex, pages: Vec<Page>) {
        let (how, why) = match self.check(start, &pages) {
            Ok(()) => (End::Ok, String::new()),
            Err(why) => (End::Corrupt, why),
        };
        self.pages.give_back(pages);
        end(start.request, Some(&self.names[prefill]), how, &why);
    }

    fn check(&self, start: &Start, pages: &[Page]) -> Result<(), String> {
        for (page, block) in pages.iter().zip(&start.blocks) {
            if !self.pages.holds(*page, start.request, *block) {
                return Err(format!("page {page} does not hold block {block}"));
            }
        }
        Ok(())
    }

    /// Ends the loans of pages whose writer is done. `None` if one is not quiesced: then all are given back when they are.
    fn settle(&self, pages: Vec<Page>, grants: Vec<Grant>) -> Option<Vec<Page>> {
        if !self.revoke {
            grants.into_iter().for_each(std::mem::forget);
            return Some(pages);
        }
        let deadline = Instant::now() + REVOKE;
        let quiesced: Vec<_> = grants.iter().map(|grant| grant.revoke().wait(deadline)).collect();
        if quiesced.iter().all(|quiesced| *quiesced) {
            return Some(pages);
        }
        self.take_back(pages, grants);
        None
    }

    /// Gives pages back to the pool: a page is used again only after nothing can land in it.
    fn take_back(&self, pages: Vec<Page>, grants: Vec<Grant>) {
        if !self.revoke {
            // What `--no-revoke` shows: the grants stay valid while the pages are used again.
            grants.into_iter().for_each(std::mem::forget);
            return self.pages.give_back(pages);
        }
        for (page, grant) in pages.into_iter().zip(grants) {
            grant.revoke();
            if grant.is_quiesced() {
                self.pages.give_back([page]);
            } else {
                self.pages.give_back_when(page, move || grant.is_quiesced());
            }
        }
    }

    fn take_sent(&self, request: u64) -> Option<Sent> {
        let sent = self.sent().remove(&request)?;
        self.prefills[sent.to].1.fetch_sub(1, Relaxed);
        Some(sent)
    }

    fn sent(&self) -> MutexGuard<'_, HashMap<u64, Sent>> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn end(request: u64, prefill: Option<&String>, end: End, why: &str) {
    say(&Event::Ended { request, prefill: prefill.cloned(), end, why: why.into() });
}
