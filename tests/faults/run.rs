//! One run of a plan: its processes, what they say, and what is done to them.

use crate::child::Setup;
use crate::judge;
use crate::lines::{Command, Event};
use crate::plan::{Act, Direction, Plan, Row, SURVIVOR, Sign, Step, When, Where};
use crate::process::{News, Process, Source};
use crate::proxy::Proxy;
use crate::transport::Over;
use rustix::process::{Pid, WaitId, WaitIdOptions, WaitIdStatus, waitid};
use serde_json::Value;
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// How long anything may take. Nothing is timed by it: it only ends what would never end.
const NEVER: Duration = Duration::from_secs(90);
/// Requests that must be answered over each connection before anything is broken, and again at the end.
const PROOF: u64 = 5;
/// Threads that send in the survivor, and in each other process.
const SENDERS: [usize; 2] = [3, 1];

pub(crate) struct Run<'a> {
    plan: &'a Plan,
    over: Over,
    nodes: Vec<Node>,
    /// The ways that can be muted, by who dials and who is dialled.
    ways: HashMap<(usize, usize), Proxy>,
    news: (Sender<News<Event>>, Receiver<News<Event>>),
    /// What is done now, for whoever reads why it failed.
    doing: String,
}

/// One process through all its lives.
pub(crate) struct Node {
    pub(crate) name: String,
    at: SocketAddr,
    life: u32,
    process: Option<Process<Command>>,
    pub(crate) up: bool,
    pub(crate) incarnation: String,
    /// What it said last.
    pub(crate) table: Value,
    /// What it said last before anything was broken.
    pub(crate) before: Value,
    /// What it said last when the step before was over.
    base: Value,
    /// Those it has in its table.
    peers: Vec<usize>,
    removed: Vec<(String, String)>,
    left: Option<String>,
}

impl<'a> Run<'a> {
    /// Starts all processes, and waits until all send to each other.
    pub(crate) fn start(plan: &'a Plan, over: Over) -> Self {
        let survivor = plan.survivor();
        let all = 0..plan.processes.len();
        let mut run =
            Run { plan, over, nodes: vec![], ways: HashMap::new(), news: channel(), doing: "starting".into() };
        for (nth, node) in plan.processes.iter().enumerate() {
            let others = all.clone().filter(|other| *other != nth && (nth == survivor || *other == survivor));
            run.nodes.push(Node {
                name: node.name.clone(),
                at: (Ipv4Addr::LOCALHOST, 0).into(),
                life: 0,
                process: None,
                up: false,
                incarnation: String::new(),
                table: Value::Null,
                before: Value::Null,
                base: Value::Null,
                peers: others.collect(),
                removed: vec![],
                left: None,
            });
        }
        all.clone().for_each(|nth| run.spawn(nth));
        run.wait("all listen", |run| run.nodes.iter().all(|node| node.up));
        all.clone().for_each(|nth| run.introduce(nth));
        run.wait("all send to each other", |run| {
            run.links().all(|(at, peer)| run.nodes[at].tally(run.name(peer), "answered") >= PROOF)
        });
        run.nodes.iter_mut().for_each(|node| node.before = node.table.clone());
        run.keep_base();
        run
    }

    /// Does one step when it is due.
    pub(crate) fn step(&mut self, step: &Step) {
        self.doing = format!("{step:?}");
        if let Some(when) = &step.when {
            self.wait("the step's `when`", |run| run.is(when));
        }
        self.listen_for(step.after);
        self.act(&step.act);
        self.keep_base();
    }

    /// Waits until the end is as expected, lets all processes end, and prints what was found.
    pub(crate) fn finish(mut self, expect: &[Row]) {
        self.doing = "finishing".into();
        self.wait("all that are to be Ready are, and send to each other", |run| {
            judge::ready(expect).all(|(at, peer)| run.is(&When { at, peer, sign: Sign::Answered(PROOF) }))
        });
        self.living().for_each(|nth| self.tell(nth, Command::Rest));
        self.wait("all senders rest", |run| run.living().all(|nth| run.nodes[nth].table["resting"] == true));
        let deadline = Instant::now() + NEVER / 3;
        let mut problems = judge::problems(&self.nodes, expect);
        while !problems.is_empty() && Instant::now() < deadline {
            self.listen_for(Duration::from_millis(20));
            problems = judge::problems(&self.nodes, expect);
        }
        if !problems.is_empty() {
            self.fail(&problems.join("\n"));
        }
        judge::print(&self.nodes, expect);
        self.living().for_each(|nth| self.tell(nth, Command::Quit));
        self.wait("all have shut down", |run| run.living().all(|nth| run.nodes[nth].left.is_some()));
        for nth in self.living() {
            let left = self.nodes[nth].left.as_deref().unwrap_or_default();
            assert_eq!(left, "", "{}: shut down, but not clean", self.nodes[nth].name);
        }
        self.wait("all have ended", |run| run.living().all(|nth| run.nodes[nth].ended().is_some()));
        for nth in self.living() {
            let (name, ended) = (&self.nodes[nth].name, self.nodes[nth].ended());
            assert!(ended.is_some_and(|it| it.exit_status() == Some(0)), "{name}: shut down, but ended with {ended:?}");
        }
    }

    pub(crate) fn survivor(&self) -> &Node {
        &self.nodes[self.plan.survivor()]
    }

    /// Waits for what must come.
    pub(crate) fn wait(&mut self, what: &str, is: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + NEVER;
        while !is(self) {
            if Instant::now() >= deadline {
                self.fail(&format!("never: {what}"));
            }
            self.listen_for(Duration::from_millis(5));
        }
    }

    /// Takes in what processes say for so long.
    pub(crate) fn listen_for(&mut self, long: Duration) {
        let until = Instant::now() + long;
        loop {
            while let Ok((source, event)) = self.news.1.try_recv() {
                self.hear(source, event);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            if let Ok((source, event)) = self.news.1.recv_timeout(left) {
                self.hear(source, event);
            }
        }
    }

    fn hear(&mut self, source: Source, event: Option<Event>) {
        let node = &mut self.nodes[source.child];
        if node.life != source.life {
            return;
        }
        match event {
            Some(Event::Up { at, incarnation }) => {
                (node.at, node.incarnation, node.up) = (at, incarnation, true);
            }
            Some(Event::Table(table)) => node.table = table,
            Some(Event::Removed { peer, how }) => node.removed.push((peer, how)),
            Some(Event::Bye { left }) => node.left = Some(left),
            Some(Event::Broken { why }) => {
                let why = format!("{}: {why}", node.name);
                self.fail(&why);
            }
            Some(Event::Chatter) => {}
            None if node.process.is_some() && node.left.is_none() => {
                let why = format!("{} ended by itself", node.name);
                self.fail(&why);
            }
            None => {}
        }
    }

    fn fail(&self, why: &str) -> ! {
        let tables = self.nodes.iter().map(|node| format!("{} {} {}\n", node.name, node.incarnation, node.table));
        panic!("{why}\nwhile {}\n{}", self.doing, tables.collect::<String>());
    }

    fn act(&mut self, act: &Act) {
        match act {
            Act::Kill(who) => {
                for nth in who {
                    self.nodes[*nth].up = false;
                    self.nodes[*nth].life += 1;
                }
                // Signals first, then the waits for their ends.
                let gone: Vec<_> = who.iter().map(|nth| self.nodes[*nth].process.take()).collect();
                gone.iter().flatten().for_each(Process::stop);
                drop(gone);
            }
            Act::Stop(who) => who.iter().flat_map(|nth| &self.nodes[*nth].process).for_each(Process::stop),
            Act::Continue(who) => who.iter().flat_map(|nth| &self.nodes[*nth].process).for_each(Process::resume),
            Act::Cut(who) => {
                for nth in who {
                    for other in self.neighbours(*nth) {
                        self.tell(*nth, Command::Cut { peer: self.name(other).into() });
                        self.tell(other, Command::Cut { peer: self.name(*nth).into() });
                    }
                }
            }
            Act::Mute(who, Direction { to, from }) => {
                for ((dialer, dialled), way) in &self.ways {
                    if who.contains(dialled) {
                        way.mute(*to, *from);
                    } else if who.contains(dialer) {
                        way.mute(*from, *to);
                    }
                }
            }
            Act::Restart(who, at) => {
                for nth in who {
                    if *at == Where::Another {
                        self.nodes[*nth].at.set_port(0);
                        self.ways.retain(|(_, dialled), _| dialled != nth);
                    }
                    self.spawn(*nth);
                }
                self.wait("it listens", |run| who.iter().all(|nth| run.nodes[*nth].up));
                who.iter().for_each(|nth| self.introduce(*nth));
            }
            Act::Remove(who) => {
                let survivor = self.plan.survivor();
                for nth in who {
                    self.nodes[survivor].peers.retain(|peer| peer != nth);
                    self.tell(survivor, Command::Remove { peer: self.name(*nth).into() });
                }
                let gone =
                    |run: &Self, nth: &usize| run.survivor().removed.iter().any(|(peer, _)| peer == run.name(*nth));
                self.wait("it is removed", |run| who.iter().all(|nth| gone(run, nth)));
                for (peer, how) in self.nodes[survivor].removed.drain(..) {
                    assert_eq!(how, "", "{peer} is removed, but not clean");
                }
            }
            Act::Insert(who) => {
                let survivor = self.plan.survivor();
                for nth in who {
                    self.nodes[survivor].peers.push(*nth);
                    self.insert(survivor, *nth);
                }
            }
            Act::Wait => {}
        }
    }

    fn spawn(&mut self, nth: usize) {
        let news = self.news.0.clone();
        let plan = &self.plan.processes[nth];
        let node = &mut self.nodes[nth];
        node.life += 1;
        (node.table, node.left) = (Value::Null, None);
        let threads = SENDERS[usize::from(node.name != SURVIVOR)];
        let (at, accept_delay, over) = (node.at, plan.accept_delay, self.over);
        let setup = Setup { name: node.name.clone(), at, accept_delay, threads, over };
        let mut program = std::process::Command::new(std::env::current_exe().unwrap());
        program.args(["--exact", "a_process_of_a_plan", "--ignored", "--nocapture", "--test-threads", "1"]);
        program.env(crate::CHILD, setup.to_string());
        node.process = Some(Process::start(&mut program, Source { child: nth, life: node.life }, news).unwrap());
    }

    /// Tells a process that has come up of its peers.
    fn introduce(&mut self, nth: usize) {
        for ((_, dialled), way) in &self.ways {
            if *dialled == nth {
                way.lead_to(self.nodes[nth].at);
            }
        }
        for peer in self.nodes[nth].peers.clone() {
            self.insert(nth, peer);
        }
    }

    fn insert(&mut self, at: usize, peer: usize) {
        let to = self.nodes[peer].at;
        let muted = self.plan.processes[at].muted || self.plan.processes[peer].muted;
        let way = || self.ways.entry((at, peer)).or_insert_with(|| Proxy::start(to).unwrap()).at();
        let to = if muted { Some(way) } else { None }.map_or(to, |mut way| way());
        let answer_within_ms = self.plan.processes[peer].answer_within.as_millis() as u64;
        self.tell(at, Command::Insert { peer: self.name(peer).into(), at: to, answer_within_ms });
    }

    fn is(&self, when: &When) -> bool {
        let (node, peer) = (&self.nodes[when.at], &self.nodes[when.peer]);
        let Some(row) = node.row(&peer.name) else { return false };
        let number = |field: &str| row[field].as_u64().unwrap_or(0);
        match when.sign {
            Sign::Phase(phase) => row["phase"] == phase,
            Sign::Transfers(least) => number("transfers") >= least,
            Sign::Generations(least) => number("generations") >= least,
            Sign::Connecting => row["connecting"] == true,
            Sign::Answered(more) => {
                let base = node.base["tallies"][&peer.name]["answered"].as_u64().unwrap_or(0);
                row["incarnation"] == peer.incarnation.as_str() && node.tally(&peer.name, "answered") >= base + more
            }
        }
    }

    fn keep_base(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.base = node.table.clone());
    }

    fn links(&self) -> impl Iterator<Item = (usize, usize)> {
        self.nodes.iter().enumerate().flat_map(|(at, node)| node.peers.iter().map(move |peer| (at, *peer)))
    }

    fn neighbours(&self, nth: usize) -> Vec<usize> {
        self.links().filter(|(at, _)| *at == nth).map(|(_, peer)| peer).collect()
    }

    fn living(&self) -> impl Iterator<Item = usize> {
        self.nodes.iter().enumerate().filter(|(_, node)| node.up).map(|(nth, _)| nth)
    }

    fn tell(&self, nth: usize, command: Command) {
        if let Some(process) = &self.nodes[nth].process {
            process.tell(command);
        }
    }

    fn name(&self, nth: usize) -> &str {
        &self.nodes[nth].name
    }
}

impl Node {
    pub(crate) fn pid(&self) -> u32 {
        self.process.as_ref().expect("it lives").pid()
    }

    /// `None`: it runs. Its process is not waited for, so its id stays its own.
    fn ended(&self) -> Option<WaitIdStatus> {
        let pid = Pid::from_raw(self.pid() as i32).expect("a process's id is not 0");
        let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(pid), how).expect("it is our child")
    }

    /// What it says of a peer that it has.
    pub(crate) fn row(&self, peer: &str) -> Option<&Value> {
        row_of(&self.table, peer)
    }

    pub(crate) fn tally(&self, peer: &str, what: &str) -> u64 {
        self.table["tallies"][peer][what].as_u64().unwrap_or(0)
    }
}

/// The line about a peer that is not on its way out.
pub(crate) fn row_of<'a>(table: &'a Value, peer: &str) -> Option<&'a Value> {
    let rows = table["peers"].as_array()?;
    rows.iter().find(|row| row["peer"] == peer && row["phase"] != "Removing")
}
