//! The prefill side: makes the blocks that a decode process asks for and writes them into its pages.

use super::{LOOK, REQUEST_TIMEOUT, Setup, look_at_all, say};
use crate::lines::Event;
use crate::modes::{Link, PeerIndex, Peers, Refused};
use crate::pages::{Page, Pages};
use crate::wire::Message;
use peerage::{DataPlane, Outcome, RemoteSlice, Transfer};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// Pages one worker writes at a time.
const BATCH: usize = 32;
/// How long a worker waits for a decode process that is just being reconnected.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long it pauses at most: time for the parent to stop this process.
const PAUSE: Duration = Duration::from_secs(2);
/// Who has slept for this much too long was stopped.
const STOPPED: Duration = Duration::from_secs(1);
/// The fewest pages of a request that is worth pausing in.
const PAUSE_IN: usize = 16;

pub(crate) struct Prefill {
    peers: Arc<dyn Peers>,
    names: Vec<String>,
    pages: Pages,
    pause_in_write: AtomicBool,
}

impl Prefill {
    pub(crate) fn start(setup: &Setup, peers: Arc<dyn Peers>) -> Result<Arc<Self>, String> {
        let prefill = Arc::new(Prefill {
            peers,
            names: setup.peers.iter().map(|(name, _)| name.clone()).collect(),
            pages: Pages::new(setup.threads * BATCH, setup.page_bytes),
            pause_in_write: AtomicBool::new(false),
        });
        prefill.peers.register(prefill.pages.region()).map_err(|error| error.to_string())?;
        for _ in 0..setup.threads {
            let prefill = prefill.clone();
            thread::spawn(move || prefill.work());
        }
        Ok(prefill)
    }

    /// The next worker that is in the middle of a request says so and pauses there.
    pub(crate) fn pause_in_write(&self) {
        self.pause_in_write.store(true, Relaxed);
    }

    fn work(&self) {
        let inbox = self.peers.net().inbox().clone();
        let mut looked = Instant::now();
        while !inbox.is_closed() {
            if let Some(message) = inbox.recv(Instant::now() + LOOK)
                && let Some(Message::Ready { request, blocks }) = Message::from_bytes(&message.bytes)
                && let Some(from) = self.names.iter().position(|name| name == message.from.as_str())
            {
                self.serve(from, request, &blocks);
            }
            if looked.elapsed() >= LOOK {
                look_at_all(&*self.peers, self.names.len());
                looked = Instant::now();
            }
        }
    }

    fn serve(&self, decode: PeerIndex, request: u64, blocks: &[(u64, RemoteSlice)]) {
        let now = Instant::now();
        // Without a way to it there is no way to tell it either; the request ends there when its time is over.
        let Ok(link) = self.peers.link_within(decode, now + PATIENCE) else { return };
        let deadline = now + REQUEST_TIMEOUT;
        let written = blocks.chunks(BATCH).try_for_each(|batch| self.write(&*link, request, batch, deadline));
        let answer = match written {
            Ok(()) => Message::Done { request },
            Err(why) => Message::Failed { request, why },
        };
        // If this is lost, the request ends there when its time is over.
        let _ = link.notify(&answer.to_bytes());
    }

    /// Writes some blocks over one link, and waits until all are there.
    fn write(
        &self,
        link: &dyn Link,
        request: u64,
        blocks: &[(u64, RemoteSlice)],
        deadline: Instant,
    ) -> Result<(), String> {
        let pages = self.take_pages(blocks.len(), deadline)?;
        let mut posted = Vec::with_capacity(pages.len());
        let mut problem = Ok(());
        for (nth, (page, (block, remote))) in pages.iter().zip(blocks).enumerate() {
            if nth * 2 >= blocks.len() && blocks.len() >= PAUSE_IN && self.pause_in_write.swap(false, Relaxed) {
                say(&Event::InWrite);
                pause_until_stopped();
            }
            self.pages.write_content(*page, request, *block);
            match self.post(link, *page, *remote, deadline) {
                Ok(transfer) => posted.push(transfer),
                Err(error) => {
                    problem = Err(error.to_string());
                    break;
                }
            }
        }
        self.pages.give_back(pages[posted.len()..].iter().copied());
        for (page, transfer) in pages.into_iter().zip(posted) {
            let outcome = transfer.wait(deadline);
            if problem.is_ok() && outcome != Some(Outcome::Done) {
                problem = Err(match outcome {
                    Some(Outcome::Failed(error)) => error.to_string(),
                    Some(_) => "nobody knows what was written".into(),
                    None => "not written in time".into(),
                });
            }
            // Not `Done` may mean that the transport still reads the page.
            if transfer.is_quiescent() {
                self.pages.give_back([page]);
            } else {
                self.pages.give_back_when(page, move || transfer.is_quiescent());
            }
        }
        problem
    }

    /// Posts one page; waits while the outbound queue is full, as the queue asks its callers to.
    fn post(&self, link: &dyn Link, page: Page, remote: RemoteSlice, deadline: Instant) -> Result<Transfer, Refused> {
        loop {
            match link.write(&self.pages.slice(page), remote) {
                Err(Refused::Busy(retry_after)) if Instant::now() < deadline => thread::sleep(retry_after),
                result => return result,
            }
        }
    }

    /// All are there unless some are in quarantine.
    fn take_pages(&self, n: usize, deadline: Instant) -> Result<Vec<Page>, String> {
        loop {
            match self.pages.take(n) {
                Some(pages) => return Ok(pages),
                None if Instant::now() < deadline => thread::sleep(Duration::from_millis(1)),
                None => return Err("no pages".into()),
            }
        }
    }
}

/// Returns when this process runs again after a stop, or when nobody stops it.
fn pause_until_stopped() {
    let begun = Instant::now();
    let mut last = begun;
    while begun.elapsed() < PAUSE && last.elapsed() < STOPPED {
        last = Instant::now();
        thread::sleep(Duration::from_millis(5));
    }
}
