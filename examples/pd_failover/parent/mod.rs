//! The parent: starts the processes, hands out requests when they are due, breaks processes when the schedule says so,
//! and keeps the book.
//!
//! It is one loop over what children say and what is due; nothing in it waits for one child.

mod breaking;
mod mute;
mod process;
// Of a way, tests/faults asks for more.
#[allow(dead_code)]
mod proxy;
mod seen;

use crate::args::Args;
use crate::child::{Role, Setup};
use crate::faults::{self, Fault, Kind};
use crate::latency::Latencies;
use crate::ledger::Ledger;
use crate::lines::{Command, Counts, Event};
use crate::measure;
use crate::modes::Mode;
use crate::report::{Report, Span};
use crate::trace::{BLOCK_TOKENS, Request, Requests, TraceError};
use mute::Mute;
use process::{News, Process, Source};
use proxy::Proxy;
use seen::{Fate, Seen};
use std::io::{IsTerminal, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// How long the processes may take to start, and to be all Ready again at the end.
const SETTLE: Duration = Duration::from_secs(30);
/// All peers are Ready and idle for this long before descriptors and memory are read.
const IDLE: Duration = Duration::from_secs(2);
/// How much longer than asked for a run may take until its faults are over.
const OVERTIME: Duration = Duration::from_secs(60);
/// How long after the last request the last answer may come: a time-out, and what it takes to say so.
const LAST_ANSWERS: Duration = Duration::from_secs(10);
/// How long the processes may take to end.
const QUIT: Duration = Duration::from_secs(8);
const PROGRESS: Duration = Duration::from_millis(250);
/// What one token takes to decode, in the trace's time. Pages are in use for that long.
const TOKEN: Duration = Duration::from_millis(40);
/// The longest that pages are in use, in the replay's time.
const MAX_HOLD: Duration = Duration::from_secs(1);

/// Why a run could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error("{what}: {error}")]
    Io { what: &'static str, error: std::io::Error },
    #[error("{name}: {why}")]
    Child { name: String, why: String },
    #[error("at the {when} of the run not all processes found each other within {SETTLE:?}; missing: {missing}")]
    NotSettled { when: &'static str, missing: String },
    #[error("broken on purpose and not back {OVERTIME:?} after the run should have ended: {broken}")]
    NotMended { broken: String },
}

/// Makes one run in one mode.
pub(crate) fn run(args: &Args, mode: Mode) -> Result<Report, RunError> {
    let mut requests = Requests::open(args.trace.as_deref(), args.seed)?;
    let first = requests.next()?;

    let began = Instant::now();
    let processor = measure::processor_seconds();
    let mut run = Run::start(args, mode)?;
    run.settle("start")?;
    let at_start = run.residue();

    run.probe(true);
    run.replay(first, &mut requests)?;
    run.probe(false);

    run.settle("end")?;
    let at_end = run.residue();
    let wall = began.elapsed();
    run.quit();
    let processor = processor.and_then(|before| Some(measure::processor_seconds()? - before));
    Ok(run.report(wall, processor, &at_start, &at_end))
}

/// One child process under its name and port, through all its lives.
struct Child {
    setup: Setup,
    life: u32,
    process: Option<Process<Command>>,
    /// Says nothing yet, or is dead.
    up: bool,
    /// Where it said that it is, the last time.
    address: Option<String>,
    settled: bool,
    said_bye: bool,
    /// All that its last life has said is known, and that it says no more.
    heard_out: bool,
    counts: Counts,
    /// Of its earlier lives.
    past: Counts,
}

impl Child {
    fn sends_to(&self, other: &Child) -> bool {
        self.setup.peers.iter().any(|(name, _)| *name == other.setup.name)
    }
}

struct Run<'a> {
    args: &'a Args,
    mode: Mode,
    children: Vec<Child>,
    ledger: Ledger,
    latencies: Latencies,
    leaked: Vec<String>,
    probing: bool,
    news: (Sender<News<Event>>, Receiver<News<Event>>),
    breaking: breaking::Breaking,
    /// Ways to and from those that a black hole will swallow.
    ways: Vec<Proxy>,
    seen: Seen,
    /// Decode processes that have not been told where a prefill is now.
    untold: Vec<Untold>,
    progress: Progress,
}

struct Untold {
    decode: usize,
    prefill: usize,
    address: String,
}

/// What a process held when it was idle.
struct Residue {
    of: Source,
    descriptors: Option<u64>,
    resident_kb: Option<u64>,
}

impl<'a> Run<'a> {
    fn start(args: &'a Args, mode: Mode) -> Result<Self, RunError> {
        let mut setups = setups(args, mode)?;
        let faults = match args.scenario {
            Some(scenario) => scenario.faults(args),
            None => faults::schedule(args.seed, args.duration, args.prefill, args.decode),
        };
        let ways = lay_ways(&mut setups, &faults)?;
        let mut run = Run {
            args,
            mode,
            children: Vec::new(),
            ledger: Ledger::default(),
            latencies: Latencies::default(),
            leaked: Vec::new(),
            probing: false,
            news: channel(),
            breaking: breaking::Breaking::new(faults),
            ways,
            seen: Seen::default(),
            untold: Vec::new(),
            progress: Progress::new(),
        };
        for setup in setups {
            run.children.push(Child {
                setup,
                life: 0,
                process: None,
                up: false,
                address: None,
                settled: false,
                said_bye: false,
                heard_out: true,
                counts: Counts::default(),
                past: Counts::default(),
            });
            run.spawn(run.children.len() - 1)?;
        }
        Ok(run)
    }

    /// Starts a child, or starts it again under the same name and port.
    fn spawn(&mut self, child: usize) -> Result<(), RunError> {
        let news = self.news.0.clone();
        let it = &mut self.children[child];
        it.life += 1;
        it.heard_out = false;
        let process = std::env::current_exe().and_then(|program| {
            let mut program = std::process::Command::new(program);
            program.arg("--child").args(it.setup.to_args());
            if it.setup.transport.is_published() && std::env::var_os("UCX_LOG_FILE").is_none() {
                // UCX in NIXL would say what it has to say among the child's events.
                program.env("UCX_LOG_FILE", "stderr");
            }
            Process::start(&mut program, Source { child, life: it.life }, news)
        });
        it.process =
            Some(process.map_err(|error| RunError::Io { what: "a child process could not be started", error })?);
        Ok(())
    }

    /// Kills a child. What it had open has failed with it.
    fn kill(&mut self, child: usize) {
        self.children[child].process = None;
        self.children[child].up = false;
    }

    /// Takes in what children say until `until`, or until there is nothing to wait for.
    fn listen(&mut self, until: Instant, enough: impl Fn(&Self) -> bool) -> Result<(), RunError> {
        loop {
            while let Ok((source, event)) = self.news.1.try_recv() {
                self.hear(source, event)?;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || enough(self) {
                return Ok(());
            }
            if let Ok((source, event)) = self.news.1.recv_timeout(left) {
                self.hear(source, event)?;
            }
        }
    }

    fn hear(&mut self, source: Source, event: Option<Event>) -> Result<(), RunError> {
        let now = Instant::now();
        let child = source.child;
        let living = self.children[child].life == source.life;
        match event {
            Some(Event::Up { address }) if living => {
                self.children[child].up = true;
                // Whatever broke the one before is over.
                self.ledger.mended(child, now);
                self.children[child].address = Some(address.clone());
                let has_moved = self.breaking.has_moved(child);
                self.say_where(child, &address, has_moved);
                if has_moved {
                    self.untold.retain(|untold| untold.prefill != child);
                    let tell = |decode| Untold { decode, prefill: child, address: address.clone() };
                    self.untold.extend(self.decodes().map(tell).collect::<Vec<_>>());
                }
                self.tell(child, Command::Probe(self.probing));
            }
            Some(Event::Settled) if living => self.children[child].settled = true,
            Some(Event::InWrite) if living => self.stop(child, now),
            Some(Event::Ended { request, prefill, end, why }) => {
                let prefill = prefill.and_then(|name| self.named(&name));
                self.ledger.ended(request, prefill, end, &why, now);
            }
            Some(Event::Counts(counts)) => self.children[child].counts = counts,
            Some(Event::Latencies(column, histogram)) => {
                self.latencies.column(column).add_all(&histogram);
            }
            Some(Event::Saw { peer, view }) => {
                if let Some(peer) = self.named(&peer) {
                    let excused = self.ledger.faults_of(peer).any(|(_, excuses)| excuses);
                    let fate = Fate { silent_since: self.breaking.silent_since(peer), excused };
                    self.seen.saw(child, peer, view, &fate, now);
                    self.resume_if_seen(peer, now)?;
                }
            }
            Some(Event::Dialed(dial)) => {
                if let Some(to) = self.named(&dial.to) {
                    self.seen.dialed(child, to, dial);
                }
            }
            Some(Event::HasCut { begun, ended }) => self.seen.has_cut(child, begun, ended),
            Some(Event::Flapped { flap, .. }) => self.seen.flapped(flap),
            Some(Event::GroupAsked { asked, .. }) => self.seen.group_asked(asked),
            Some(Event::Tally(of, n)) => self.seen.tally(of, n),
            Some(Event::Bye { leaked }) => {
                self.children[child].said_bye = true;
                if !leaked.is_empty() {
                    self.leaked.push(format!("{}: {leaked}", self.children[child].setup.name));
                }
            }
            Some(Event::Broken(why)) => return Err(self.broken(child, why)),
            Some(_) => {}
            None => {
                // All it had said has been heard, so what is still open will never be answered.
                self.ledger.owner_died(child, now);
                let it = &mut self.children[child];
                it.heard_out = true;
                it.past.add(std::mem::take(&mut it.counts));
                if living && it.process.is_some() && !it.said_bye {
                    return Err(self.broken(child, "it ended by itself".into()));
                }
            }
        }
        Ok(())
    }

    /// Where nobody knows that before: tells those that send to it where it is, unless requests will say so, and itself where
    /// they are.
    fn say_where(&self, child: usize, address: &str, has_moved: bool) {
        if !self.args.transport.is_published() {
            return;
        }
        let at = |of: &Child, address: &str| Command::At { peer: of.setup.name.clone(), address: address.into() };
        let it = &self.children[child];
        for (nth, other) in self.children.iter().enumerate().filter(|(_, other)| other.sends_to(it)) {
            if !has_moved {
                self.tell(nth, at(it, address));
            }
            if let Some(address) = &other.address {
                self.tell(child, at(other, address));
            }
        }
    }

    fn broken(&self, child: usize, why: String) -> RunError {
        RunError::Child { name: self.children[child].setup.name.clone(), why }
    }

    fn named(&self, name: &str) -> Option<usize> {
        self.children.iter().position(|child| child.setup.name == name)
    }

    fn decodes(&self) -> impl Iterator<Item = usize> {
        self.children.iter().enumerate().filter(|(_, child)| child.setup.role == Role::Decode).map(|(nth, _)| nth)
    }

    fn tell(&self, child: usize, command: Command) {
        if let Some(process) = &self.children[child].process {
            process.tell(command);
        }
    }

    fn tell_all(&self, command: impl Fn(&Child) -> Option<Command>) {
        for (nth, child) in self.children.iter().enumerate() {
            if let Some(command) = command(child) {
                self.tell(nth, command);
            }
        }
    }

    /// Measures latency from now on, or no longer.
    fn probe(&mut self, on: bool) {
        self.probing = on;
        self.tell_all(|_| Some(Command::Probe(on)));
    }

    /// Waits until every process has all its peers Ready, and then a while more, idle.
    fn settle(&mut self, when: &'static str) -> Result<(), RunError> {
        self.progress.show(&format!("settling at the {when}"));
        self.children.iter_mut().for_each(|child| child.settled = false);
        let deadline = Instant::now() + SETTLE;
        self.listen(deadline, |run| run.children.iter().all(|child| child.up))?;
        self.tell_all(|_| Some(Command::Settle));
        self.listen(deadline, |run| run.children.iter().all(|child| child.settled))?;
        let missing: Vec<_> = self.children.iter().filter(|child| !child.settled).collect();
        if !missing.is_empty() {
            let missing = missing.iter().map(|child| child.setup.name.as_str()).collect::<Vec<_>>().join(", ");
            return Err(RunError::NotSettled { when, missing });
        }
        self.listen(Instant::now() + IDLE, |_| false)
    }

    /// Hands out requests as they are due, and breaks what is to be broken, until both are over.
    fn replay(&mut self, first: Request, requests: &mut Requests) -> Result<(), RunError> {
        let start = Instant::now();
        let due = |request: &Request| start + request.at.saturating_sub(first.at).div_f64(self.args.speedup);
        let mut next = (due(&first), first.clone());
        let mut number = 0;
        self.breaking.start(start);
        loop {
            let now = Instant::now();
            self.break_what_is_due(now)?;
            let over = self.breaking.is_over() && self.untold.is_empty() && self.ledger.nothing_more_recovers(now);
            if over && now >= start + self.args.duration {
                break;
            }
            if now >= start + self.args.duration + OVERTIME {
                return Err(RunError::NotMended { broken: self.broken_now().join(", ") });
            }
            while next.0 <= now {
                self.hand_out(number, &next.1, now);
                number += 1;
                let request = requests.next()?;
                next = (due(&request), request);
            }
            let look = now + Duration::from_millis(50);
            let until = next.0.min(look).min(self.breaking.next_due().unwrap_or(look));
            self.listen(until, |_| false)?;
            self.show_progress(start);
        }
        self.listen(Instant::now() + LAST_ANSWERS, |run| run.ledger.open_requests() == 0)
    }

    /// Decode processes take turns.
    fn hand_out(&mut self, number: u64, request: &Request, now: Instant) {
        let decodes = || self.decodes().filter(|decode| self.children[*decode].up);
        let n = decodes().count();
        if n == 0 {
            return self.ledger.not_handed(number, now);
        }
        let decode = decodes().nth(number as usize % n).expect("one of them");
        let hold = TOKEN.mul_f64(request.output_tokens as f64 / self.args.speedup).min(MAX_HOLD);
        self.ledger.handed(number, decode, now);
        let hold_ms = hold.as_millis() as u64;
        let untold = self.untold.iter().position(|untold| untold.decode == decode);
        let to = untold.map(|at| {
            let Untold { prefill, address, .. } = self.untold.swap_remove(at);
            self.ledger.is_first(number);
            (self.children[prefill].setup.name.clone(), address)
        });
        self.tell(decode, Command::Start { request: number, hold_ms, blocks: request.blocks.clone(), to });
    }

    /// The names of those that are broken on purpose.
    fn broken_now(&self) -> Vec<&str> {
        let children = self.children.iter().enumerate().filter(|(child, _)| self.ledger.is_broken(*child));
        children.map(|(_, child)| child.setup.name.as_str()).collect()
    }

    fn show_progress(&mut self, start: Instant) {
        if self.progress.is_due() {
            let seconds = start.elapsed().as_secs_f64();
            let (requests, open) = self.ledger.progress();
            let broken = self.broken_now().join(" ");
            self.progress.show(&format!("{seconds:5.1} s  {requests} requests, {open} open  broken: {broken}"));
        }
    }

    fn residue(&self) -> Vec<Residue> {
        let living = self.children.iter().enumerate().filter_map(|(child, it)| {
            let pid = it.process.as_ref()?.pid();
            let of = Source { child, life: it.life };
            Some(Residue { of, descriptors: measure::descriptors(pid), resident_kb: measure::resident_kb(pid) })
        });
        living.collect()
    }

    /// Lets every process count, shut down and end.
    fn quit(&mut self) {
        self.progress.show("shutting down");
        self.seen.end();
        self.tell_all(|_| Some(Command::Quit));
        // A child that fails now has said its counts; how it ended shows below.
        let _ = self.listen(Instant::now() + QUIT, |run| run.children.iter().all(|child| child.said_bye));
        for child in 0..self.children.len() {
            if !self.children[child].said_bye {
                self.leaked.push(format!("{}: did not shut down", self.children[child].setup.name));
            }
            self.kill(child);
        }
        self.progress.clear();
    }

    /// How often a decode process looked at a prefill that was stopped for a moment, and at one that was silent until it was
    /// given up.
    fn looks(&self, prefills: &[usize]) -> [u64; 2] {
        let silent = prefills.iter().flat_map(|prefill| self.ledger.faults_of(*prefill));
        let silent: Vec<_> = silent.filter(|(kind, _)| matches!(kind, Kind::Stop | Kind::Blackhole)).collect();
        let excuse = |excuses| silent.iter().filter(|fault| fault.1 == excuses).count();
        [excuse(false), excuse(true)].map(|faults| (faults * self.args.decode) as u64)
    }

    fn report(self, wall: Duration, processor: Option<f64>, at_start: &[Residue], at_end: &[Residue]) -> Report {
        let of = |role| move |(at, child): (usize, &Child)| (child.setup.role == role).then_some(at);
        let prefills: Vec<_> = self.children.iter().enumerate().filter_map(of(Role::Prefill)).collect();
        let mut counts = Counts::default();
        for child in &self.children {
            counts.add(child.past);
            counts.add(child.counts);
        }
        // The worst of those that lived through the whole run.
        let worst = |pick: fn(&Residue) -> Option<u64>| {
            let spans = at_start.iter().filter_map(|before| {
                let after = at_end.iter().find(|after| after.of == before.of)?;
                Some(Span { start: pick(before)?, end: pick(after)? })
            });
            spans.max_by_key(|span| span.end as i64 - span.start as i64)
        };
        let totals = self.ledger.totals(&prefills, Instant::now());
        let looks = self.looks(&prefills);
        let findings = self.args.scenario.map(|scenario| self.seen.findings(scenario, &totals, looks));
        Report {
            mode: self.mode,
            args: self.args.clone(),
            totals,
            counts,
            findings: findings.unwrap_or_default(),
            latencies: self.latencies,
            fds: worst(|residue| residue.descriptors),
            rss_kb: worst(|residue| residue.resident_kb),
            leaked: self.leaked,
            wall,
            processor,
        }
    }
}

/// Puts a way that can be muted between every two processes one of which is to be swallowed.
fn lay_ways(setups: &mut [Setup], faults: &[Fault]) -> Result<Vec<Proxy>, RunError> {
    let swallowed =
        faults.iter().filter(|fault| fault.kind == Kind::Blackhole).filter_map(|fault| match fault.target {
            faults::Target::Prefill(nth) => setups.get(nth).map(|setup| setup.name.clone()),
            faults::Target::Decode(_) => None,
        });
    let swallowed: Vec<_> = swallowed.collect();
    let mut ways = Vec::new();
    for Setup { name, peers, .. } in setups {
        for (_, address) in peers.iter_mut().filter(|(peer, _)| swallowed.contains(peer) || swallowed.contains(name)) {
            let way = Proxy::start(*address);
            let way = way.map_err(|error| RunError::Io { what: "no way could be laid to a process", error })?;
            *address = way.at();
            ways.push(way);
        }
    }
    Ok(ways)
}

/// Who there is, where, and who sends to whom.
fn setups(args: &Args, mode: Mode) -> Result<Vec<Setup>, RunError> {
    let prefills = (0..args.prefill).map(|nth| (Role::Prefill, format!("prefill-{nth}")));
    let decodes = (0..args.decode).map(|nth| (Role::Decode, format!("decode-{nth}")));
    let victim = args.compare.then(|| (Role::Victim, "victim-0".to_owned()));
    let all: Vec<_> = prefills.chain(decodes).chain(victim).collect();
    let ports = free_ports(all.len()).map_err(|error| RunError::Io { what: "no free ports", error })?;
    let all: Vec<(Role, String, SocketAddr)> =
        all.into_iter().zip(ports).map(|((role, name), port)| (role, name, port)).collect();
    let setup = |(role, name, listen): &(Role, String, SocketAddr)| Setup {
        role: *role,
        name: name.clone(),
        listen: *listen,
        peers: all
            .iter()
            .filter(|other| (*role == Role::Decode) != (other.0 == Role::Decode))
            .map(|(_, name, address)| (name.clone(), *address))
            .collect(),
        mode,
        transport: args.transport,
        scenario: args.scenario,
        threads: args.threads,
        page_bytes: args.kv_bytes_per_token * BLOCK_TOKENS as usize,
        connect_delay: args.connect_delay,
        // Compared are lifecycles, not backoffs: the one that is cut again and again is dialled again at once.
        constant_retry: match args.scenario {
            Some(scenario) => scenario.constant_retry(),
            None => args.compare.then_some(Duration::from_millis(2)),
        },
        probe_every: Duration::from_micros(if args.compare { 250 } else { 1000 }),
        revoke: args.revoke,
    };
    Ok(all.iter().map(setup).collect())
}

/// Loopback ports that nobody uses now. They stay the children's for the whole run, from one life to the next.
fn free_ports(n: usize) -> std::io::Result<Vec<SocketAddr>> {
    let bound: Vec<_> = (0..n).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    bound.iter().map(TcpListener::local_addr).collect()
}

/// One line that is written over again and again, if somebody looks.
struct Progress {
    terminal: bool,
    shown: Option<Instant>,
}

impl Progress {
    fn new() -> Self {
        Progress { terminal: std::io::stderr().is_terminal(), shown: None }
    }

    fn is_due(&self) -> bool {
        self.terminal && self.shown.is_none_or(|shown| shown.elapsed() >= PROGRESS)
    }

    fn show(&mut self, text: &str) {
        if self.terminal {
            self.shown = Some(Instant::now());
            let _ = write!(std::io::stderr(), "\r\x1b[K{text}");
        }
    }

    fn clear(&self) {
        if self.terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
