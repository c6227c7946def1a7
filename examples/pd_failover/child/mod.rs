//! One real process of the run: a transport, the peers it sends to, threads that share them, and a role.

mod callers;
mod decode;
mod flap;
mod jobs;
mod prefill;
mod probe;
mod setup;
mod watch;

pub(crate) use setup::{Role, Setup};

use crate::latency::{Column, Latencies};
use crate::lines::{Command, Event, Tally};
use crate::modes::{self, Net, PeerIndex, Peers, Policy, TransportKind, Watched, Wire, WireAddress};
use crate::scenario::Scenario;
use crate::wire::Message;
use callers::Callers;
use decode::Decode;
use flap::Flaps;
use peerage::transport::Counting;
use peerage::transport::tcp::{BindError, Tcp};
use peerage::{Backoff, PeerName};
use prefill::Prefill;
use std::io::{BufRead, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long a request may take until its pages are there.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// How often a worker looks at its peers, which asks for those that are gone.
const LOOK: Duration = Duration::from_millis(10);
/// How often a little is sent to every peer.
const BEAT: Duration = Duration::from_millis(5);
const REPORT: Duration = Duration::from_millis(200);
/// How long a restarted process tries to get its port back.
const BIND: Duration = Duration::from_secs(5);
const SHUTDOWN: Duration = Duration::from_secs(3);

/// Runs this process as what the parent asks for.
pub(crate) fn run(words: impl Iterator<Item = String>) -> ExitCode {
    // A parent that dies takes its children with it, also those that are stopped.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    // A thread that is gone would only look like a slow one.
    std::panic::set_hook(Box::new(|panic| {
        say(&Event::Broken(panic.to_string()));
        std::process::exit(2);
    }));
    let result = Setup::from_args(words).and_then(|setup| Child::start(&setup));
    match result {
        Ok(child) => {
            child.serve();
            ExitCode::SUCCESS
        }
        Err(why) => {
            say(&Event::Broken(why));
            ExitCode::from(2)
        }
    }
}

struct Child {
    peers: Arc<dyn Peers>,
    names: Vec<String>,
    role: Work,
    latencies: Arc<Mutex<Latencies>>,
    probing: Arc<probe::Switch>,
    flaps: Flaps,
    callers: Option<Callers>,
    watch: Option<watch::Watch>,
}

enum Work {
    Decode(Arc<Decode>),
    Prefill(Arc<Prefill>),
}

impl Child {
    fn start(setup: &Setup) -> Result<Self, String> {
        let net = Watched::new(Counting::new(listen(setup)?));
        let address = net.inner().inner().address().map_err(|error| error.to_string())?.to_text();
        let (peers, commands) = if setup.transport.is_published() {
            say(&Event::Up { address });
            let (addresses, commands) = told_addresses(setup)?;
            (modes::open(setup.mode, net, &addresses, policy(setup))?, commands)
        } else {
            let peers = modes::open(setup.mode, net, &addresses(setup)?, policy(setup))?;
            say(&Event::Up { address });
            (peers, Vec::new())
        };

        let role = match setup.role {
            Role::Decode => Work::Decode(Decode::start(setup, peers.clone())?),
            Role::Prefill | Role::Victim => Work::Prefill(Prefill::start(setup, peers.clone())?),
        };
        let latencies = Arc::<Mutex<Latencies>>::default();
        let probing = Arc::new(probe::Switch::default());
        if setup.role == Role::Decode {
            probe::start(setup, peers.clone(), probing.clone(), latencies.clone());
        }
        if setup.role == Role::Victim {
            let peers = peers.clone();
            thread::spawn(move || be_cut_again_and_again(peers.net()));
        }
        let in_scenario = |scenario| setup.scenario == Some(scenario) && setup.role == Role::Decode;
        let child = Child {
            flaps: Flaps::new(setup, peers.clone()),
            callers: in_scenario(Scenario::Storm).then(|| Callers::start(setup, &peers)).transpose()?,
            watch: setup.scenario.map(|scenario| watch::start(scenario, setup, peers.clone())),
            peers,
            names: setup.peers.iter().map(|(name, _)| name.clone()).collect(),
            role,
            latencies,
            probing,
        };
        let (hearts, n) = (child.peers.clone(), setup.peers.len());
        thread::spawn(move || beat(&*hearts, n));
        child.report_regularly();
        commands.into_iter().for_each(|command| child.obey(command));
        Ok(child)
    }

    /// Does what the parent says until it says no more.
    fn serve(&self) {
        while let Some(command) = next_command() {
            if matches!(command, Command::Quit) {
                return self.quit();
            }
            self.obey(command);
        }
        // The parent is gone.
        std::process::exit(2);
    }

    fn obey(&self, command: Command) {
        match command {
            Command::Start { request, hold_ms, blocks, to } => {
                if let Work::Decode(decode) = &self.role {
                    decode.begin(request, Duration::from_millis(hold_ms), blocks, to);
                }
            }
            Command::Flap { peer, seed } => self.flaps.begin(&peer, seed),
            Command::Calm(peer) => self.flaps.end(&peer),
            Command::PauseInWrite => {
                if let Work::Prefill(prefill) = &self.role {
                    prefill.pause_in_write();
                }
            }
            Command::Probe(on) => self.probing.set(on),
            Command::Settle => self.settle(),
            Command::Cut(peer) => {
                let begun = unix_micros(Instant::now());
                cut(self.peers.net(), peer.as_deref());
                say(&Event::HasCut { begun, ended: unix_micros(Instant::now()) });
            }
            Command::At { peer, address } => {
                let to = self.names.iter().position(|name| *name == peer);
                if let (Some(to), Some(table), Ok(address)) = (to, self.peers.peerage(), address.parse()) {
                    // Refused, it is shut down, or gone.
                    let _ = table.update(to, address);
                }
            }
            // Who serves has ended with it.
            Command::Quit => {}
        }
    }

    fn settle(&self) {
        let peers = self.peers.clone();
        thread::spawn(move || {
            while !peers.all_ready() {
                thread::sleep(LOOK);
            }
            say(&Event::Settled);
        });
    }

    fn quit(&self) {
        self.probing.set(false);
        let deadline = Instant::now() + SHUTDOWN;
        // By now all peers are Ready and idle; if a connect runs for ever, the parent counts what it has.
        while Instant::now() < deadline {
            if let Some(counts) = self.peers.counts() {
                say(&Event::Counts(counts));
                break;
            }
            thread::sleep(LOOK);
        }
        say_latencies(&self.latencies);
        // Before the shutdown, which refuses whoever waits.
        self.callers.iter().for_each(Callers::end);
        self.watch.iter().for_each(watch::Watch::say_tallies);
        say(&Event::Tally(Tally::ConnectsAtOnce, self.peers.net().connects_at_once() as u64));
        let leaked = self.peers.shutdown(deadline);
        say(&Event::Bye { leaked });
    }

    fn report_regularly(&self) {
        let (peers, latencies) = (self.peers.clone(), self.latencies.clone());
        thread::spawn(move || {
            loop {
                thread::sleep(REPORT);
                if let Some(counts) = peers.counts() {
                    say(&Event::Counts(counts));
                }
                say_latencies(&latencies);
            }
        });
    }
}

fn listen(setup: &Setup) -> Result<Wire, String> {
    match setup.transport {
        TransportKind::Tcp => listen_tcp(setup).map(Wire::Tcp),
        #[cfg(feature = "ucx")]
        TransportKind::Ucx => Ok(Wire::Ucx(listen_ucx(setup)?)),
        #[cfg(feature = "nixl")]
        TransportKind::Nixl => Ok(Wire::Nixl(make_nixl(setup)?)),
    }
}

/// What a killed process has written lands, or never does, long before this: all is on one host.
#[cfg(feature = "nixl")]
const LANDED: Duration = Duration::from_secs(2);

#[cfg(feature = "nixl")]
fn make_nixl(setup: &Setup) -> Result<peerage::transport::nixl::Nixl, String> {
    let builder = peerage::transport::nixl::Nixl::builder().name(peer_name(&setup.name)?).settle(LANDED);
    builder.build().map_err(|error| error.to_string())
}

fn next_command() -> Option<Command> {
    let mut line = String::new();
    // Nothing is read at the end, and that is no command.
    std::io::stdin().lock().read_line(&mut line).ok()?;
    line.trim_end().parse().ok()
}

type Addresses = Vec<(PeerName, WireAddress)>;

/// Waits until the parent has said of every peer where it is. Answers what else it has said meanwhile.
fn told_addresses(setup: &Setup) -> Result<(Addresses, Vec<Command>), String> {
    let mut told: Vec<Option<WireAddress>> = vec![None; setup.peers.len()];
    let mut commands = Vec::new();
    while told.contains(&None) {
        match next_command().ok_or("the parent is gone")? {
            Command::At { peer, address } => {
                if let Some(at) = setup.peers.iter().position(|(name, _)| *name == peer) {
                    told[at] = Some(address.parse()?);
                }
            }
            command => commands.push(command),
        }
    }
    let names = setup.peers.iter().map(|(name, _)| peer_name(name));
    let all = names.zip(told.into_iter().flatten()).map(|(name, address)| Ok((name?, address)));
    Ok((all.collect::<Result<_, String>>()?, commands))
}

#[cfg(feature = "ucx")]
fn listen_ucx(setup: &Setup) -> Result<peerage::transport::ucx::Ucx, String> {
    use peerage::transport::ucx::{Ucx, UcxBindError};
    let deadline = Instant::now() + BIND;
    loop {
        let ucx = Ucx::builder()
            .name(peer_name(&setup.name)?)
            .overlap(false)
            .accept_delay(setup.connect_delay)
            .bind(setup.listen);
        match ucx {
            Err(UcxBindError::Listen { .. }) if Instant::now() < deadline => thread::sleep(Duration::from_millis(20)),
            ucx => return ucx.map_err(|error| error.to_string()),
        }
    }
}

fn listen_tcp(setup: &Setup) -> Result<Tcp, String> {
    let deadline = Instant::now() + BIND;
    loop {
        // One connection to a peer at a time, as with NIXL: that is where lifecycles differ.
        let tcp = Tcp::builder()
            .name(peer_name(&setup.name)?)
            .overlap(false)
            .accept_delay(setup.connect_delay)
            .bind(setup.listen);
        match tcp {
            Err(BindError::Listen { .. }) if Instant::now() < deadline => thread::sleep(Duration::from_millis(20)),
            tcp => return tcp.map_err(|error| error.to_string()),
        }
    }
}

fn addresses(setup: &Setup) -> Result<Addresses, String> {
    let at = |address: SocketAddr| WireAddress::Tcp(address.into());
    setup.peers.iter().map(|(name, address)| Ok((peer_name(name)?, at(*address)))).collect()
}

fn peer_name(name: &str) -> Result<PeerName, String> {
    PeerName::new(name).map_err(|error| error.to_string())
}

fn policy(setup: &Setup) -> Policy {
    let mut policy = Policy::default();
    if let Some(delay) = setup.constant_retry {
        // Every connection counts as stable, so the delay never grows. No breaker: so many failures so soon would open it.
        policy.backoff = Backoff { base: delay, cap: delay, min_stable: Duration::from_nanos(1) };
        policy.breaker = None;
    }
    if let Some(scenario) = setup.scenario {
        scenario.apply(&mut policy);
    }
    policy.group &= setup.role == Role::Decode;
    policy
}

/// Resets the connections that one peer, or every peer, has made to us.
fn cut(net: &Net, peer: Option<&str>) {
    net.inner().inner().cut(peer);
}

/// Two seconds of resets every 20 ms, two seconds of rest, and so on.
fn be_cut_again_and_again(net: &Net) {
    let start = Instant::now();
    loop {
        thread::sleep(Duration::from_millis(20));
        if start.elapsed().as_secs() / 2 % 2 == 1 {
            cut(net, None);
        }
    }
}

/// A moment of a short while ago as other processes know it.
fn unix_micros(at: Instant) -> u64 {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    unix.saturating_sub(at.elapsed()).as_micros() as u64
}

/// Tells the parent. Without a parent there is nothing left to do.
fn say(event: &Event) {
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{event}").and_then(|()| out.flush()).is_err() {
        std::process::exit(2);
    }
}

fn say_latencies(latencies: &Mutex<Latencies>) {
    let mut new = std::mem::take(&mut *latencies.lock().unwrap_or_else(PoisonError::into_inner));
    for column in [Column::Quiet, Column::Reconnecting] {
        let histogram = std::mem::take(new.column(column));
        if histogram.n() > 0 {
            say(&Event::Latencies(column, histogram));
        }
    }
}

/// Those of a decode process's peers that take requests.
fn prefills(names: &[String]) -> impl Iterator<Item = PeerIndex> {
    names.iter().enumerate().filter(|(_, name)| name.starts_with("prefill")).map(|(peer, _)| peer)
}

/// Sends a little to every peer all the time. Without a table a broken connection shows only to whoever sends over it.
fn beat(peers: &dyn Peers, n: usize) {
    let message = Message::Probe.to_bytes();
    loop {
        thread::sleep(BEAT);
        for peer in 0..n {
            if let Ok(link) = peers.link(peer) {
                let _ = link.notify(&message);
            }
        }
    }
}

/// Asks for every peer that is gone, as any thread that wants to send to it would.
fn look_at_all(peers: &dyn Peers, n: usize) {
    (0..n).for_each(|peer| drop(peers.link(peer)));
}
