//! One process: a table, threads that send to all peers all the time, and one that serves what comes.

mod clerk;
mod ledger;
mod message;
mod senders;

use crate::lines::{Command, Event};
use crate::pages::Pages;
use crate::transport::{self, Net, Over, Wire};
use ledger::Ledger;
use peerage::{Backoff, Peer, PeerName, PeerTable, Removed};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::io::{BufRead, Write};
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Short, so that many faults fit into a minute.
const BACKOFF: Backoff =
    Backoff { base: Duration::from_millis(10), cap: Duration::from_millis(100), min_stable: Duration::from_secs(1) };
const REMOVE: Duration = Duration::from_secs(20);
const SHUTDOWN: Duration = Duration::from_secs(20);
const REPORT: Duration = Duration::from_millis(25);
const PAGE: usize = 16 << 10;
const PAGES: usize = 128;

/// What the test tells a process when it starts it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Setup {
    pub(crate) name: String,
    /// Where to listen; port 0 for anywhere.
    pub(crate) at: SocketAddr,
    pub(crate) accept_delay: Duration,
    /// Threads that send.
    pub(crate) threads: usize,
    pub(crate) over: Over,
}

impl std::fmt::Display for Setup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let delay = self.accept_delay.as_millis();
        write!(f, "{} {} {delay} {} {}", self.name, self.at, self.threads, self.over)
    }
}

impl FromStr for Setup {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        fn parsed<T: FromStr>(text: &str) -> Result<T, String> {
            text.parse().map_err(|_| format!("not understood: {text}"))
        }
        let words: Vec<_> = text.split(' ').collect();
        let [name, at, delay, threads, over] = words[..] else { return Err(format!("not understood: {text}")) };
        let accept_delay = Duration::from_millis(parsed(delay)?);
        Ok(Setup { name: name.into(), at: parsed(at)?, accept_delay, threads: parsed(threads)?, over: over.parse()? })
    }
}

/// Runs this process as `setup` says, and never returns.
pub(crate) fn run(setup: &str) -> ! {
    // A test that dies takes its processes with it, also those that are stopped.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    // A thread that is gone would only look like a slow one.
    std::panic::set_hook(Box::new(|panic| {
        say(&Event::Broken { why: panic.to_string() });
        std::process::exit(2);
    }));
    let Err(why) = setup.parse().and_then(|setup: Setup| setup.over.serve(&setup));
    say(&Event::Broken { why });
    std::process::exit(2);
}

pub(crate) fn serve<W: Wire>(setup: &Setup) -> Result<Infallible, String> {
    Worker::<W>::start(setup)?.obey()
}

struct Mate<W: Wire> {
    peer: Peer<Net<W>>,
    /// A request may take so long; then its connection is reported.
    answer_within: Duration,
}

struct Worker<W: Wire> {
    table: PeerTable<Net<W>>,
    /// Those we send to.
    mates: Mutex<Vec<Mate<W>>>,
    ledger: Mutex<Ledger>,
    /// Lent to others.
    lent: Pages,
    /// Written from.
    own: Pages,
    requests: Mutex<clerk::Requests<W>>,
    threads: usize,
    rest: AtomicBool,
    /// Threads that begin nothing new.
    resting: AtomicUsize,
}

impl<W: Wire> Clone for Mate<W> {
    fn clone(&self) -> Self {
        Mate { peer: self.peer.clone(), answer_within: self.answer_within }
    }
}

impl<W: Wire> Worker<W> {
    fn start(setup: &Setup) -> Result<Arc<Self>, String> {
        let net = transport::listen::<W>(&name(&setup.name)?, setup.at, setup.accept_delay)?;
        let up = Event::Up { at: net.inner().listens_at(), incarnation: net.inner().boot() };
        let table = PeerTable::builder(net).connect_timeout(CONNECT_TIMEOUT).backoff(BACKOFF).breaker(None).build();
        let worker = Arc::new(Worker {
            table: table.map_err(|error| error.to_string())?,
            mates: Mutex::default(),
            ledger: Mutex::default(),
            lent: Pages::new(PAGES, PAGE),
            own: Pages::new(PAGES, PAGE),
            requests: Mutex::default(),
            threads: setup.threads,
            rest: AtomicBool::new(false),
            resting: AtomicUsize::new(0),
        });
        for region in [worker.lent.region(), worker.own.region()] {
            worker.table.register(region).map_err(|error| error.to_string())?;
        }
        for thread in 0..setup.threads {
            let worker = worker.clone();
            thread::spawn(move || senders::send_for_ever(&worker, thread as u64));
        }
        let clerk = worker.clone();
        thread::spawn(move || clerk::serve_for_ever(&clerk));
        say(&up);
        let reporter = worker.clone();
        thread::spawn(move || {
            loop {
                thread::sleep(REPORT);
                say(&Event::Table(reporter.to_json()));
            }
        });
        Ok(worker)
    }

    /// Does what the test says until it says no more.
    fn obey(self: Arc<Self>) -> ! {
        for line in std::io::stdin().lock().lines() {
            let Ok(Ok(command)) = line.map(|line| line.parse()) else { break };
            match command {
                Command::Insert { peer, at, answer_within_ms } => {
                    let inserted = self.table.insert(peer.as_str(), at.into());
                    let peer = inserted.unwrap_or_else(|error| panic!("{error}"));
                    let answer_within = Duration::from_millis(answer_within_ms);
                    lock(&self.mates).push(Mate { peer, answer_within });
                }
                Command::Remove { peer } => self.remove(peer),
                Command::Cut { peer } => self.table.transport().inner().cut(&name(&peer).expect("a peer's name")),
                Command::Rest => self.rest.store(true, Relaxed),
                Command::Quit => {
                    let left = match self.table.shutdown(Instant::now() + SHUTDOWN).wait() {
                        Ok(report) if report.is_clean() => String::new(),
                        left => format!("{left:?}"),
                    };
                    say(&Event::Bye { left });
                    std::process::exit(0);
                }
            }
        }
        // The test is gone.
        std::process::exit(2);
    }

    fn remove(&self, peer: String) {
        let mut mates = lock(&self.mates);
        let Some(at) = mates.iter().position(|mate| mate.peer.name().as_str() == peer) else { return };
        let mate = mates.swap_remove(at);
        drop(mates);
        let removal = mate.peer.remove(Instant::now() + REMOVE);
        thread::spawn(move || {
            let how = match removal.wait() {
                Ok(Removed::Removed) => String::new(),
                other => format!("{other:?}"),
            };
            say(&Event::Removed { peer, how });
        });
    }

    fn to_json(&self) -> Value {
        // Read first: what is begun after this is not called at rest.
        let resting = self.resting.load(Relaxed) == self.threads;
        let mut table = lock(&self.ledger).to_json();
        let snapshot = self.table.snapshot();
        let peers = snapshot.peers.iter().map(|peer| {
            let record = peer.record.as_ref();
            json!({
                "peer": peer.name.as_str(), "phase": peer.phase.to_string(), "generation": peer.generation.0,
                "incarnation": record.and_then(|record| record.incarnation).map(|it| it.to_string()),
                "generations": record.map(|record| record.attempts),
                "leases": peer.leases + peer.draining, "transfers": peer.transfers + peer.quarantined,
                "grants": peer.grants, "connecting": peer.connecting,
                "error": record.and_then(|record| record.last_error.as_deref()),
                "age_ms": record.map(|record| record.since.elapsed().as_millis() as u64),
            })
        });
        table["peers"] = peers.collect();
        table["resting"] = json!(resting);
        table["duplicates"] = json!(self.table.transport().total().duplicate_connects);
        table
    }
}

fn name(name: &str) -> Result<PeerName, String> {
    PeerName::new(name).map_err(|error| error.to_string())
}

/// Tells the test. Without one there is nothing left to do.
fn say(event: &Event) {
    let mut out = std::io::stdout().lock();
    // The harness may have left a line unfinished.
    let written = match event {
        Event::Up { .. } | Event::Broken { .. } => writeln!(out, "\n{event}"),
        _ => writeln!(out, "{event}"),
    };
    if written.and_then(|()| out.flush()).is_err() {
        std::process::exit(2);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_setup_survives_the_way_to_its_process() {
    let at = SocketAddr::from(([127, 0, 0, 1], 0));
    let setup = Setup { name: "a".into(), at, accept_delay: Duration::from_millis(3), threads: 2, over: Over::Tcp };
    #[cfg(feature = "ucx")]
    let setup = Setup { over: Over::Ucx, ..setup };
    assert_eq!(setup.to_string().parse(), Ok(setup));
    assert!("a b".parse::<Setup>().is_err() && "a 127.0.0.1:0 0 1 pigeon".parse::<Setup>().is_err());
}
