//! What a peer that reconnects does to sends to other peers, over real endpoints: the method of the benchmark `tail`.
//!
//! Open loop: a notification is due every [`INTERVAL`], to one of [`HEALTHY`] peers in turn, and its latency counts from when
//! it was due until the call is back; one that is refused counts as slow. Every [`PERIOD`] one more peer loses its connection
//! and gets a new one, whose connect takes [`CONNECT`] longer than libucp's own. The sender has a core; the threads of the
//! transport and of the table, and the processes that receive, share the other. Each way to hold the peers is a process.

use crate::cores;
use crate::lines::Lines;
use crate::median::median;
use crate::process::{Role, Setting, wait_for_the_end};
use crate::serve::LONG;
use peerage::transport::ucx::{Ucx, UcxAddress, UcxConnection, UcxError};
use peerage::{
    Backoff, Capabilities, CloseContext, CloseReason, Closed, ConnectContext, Connected, DataPlane, Generation,
    PeerName, PeerTable, ReadyError, Transport,
};
use serde_json::json;
use std::error::Error;
use std::hint::spin_loop;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const HEALTHY: usize = 3;
const INTERVAL: Duration = Duration::from_micros(100);
const CONNECT: Duration = Duration::from_millis(20);
const PERIOD: Duration = Duration::from_millis(50);
const ROUND: Duration = Duration::from_millis(500);
const PAIRS: usize = 20;
const MESSAGE: [u8; 64] = [7; 64];

const WAYS: [(&str, &str); 2] = [("table", "peerage"), ("lock", "global lock, held through connect")];
const SLOW_SHARE: f64 = 0.001;
const SLOW_SHARE_OF_LOCK: f64 = 0.1;

pub(crate) fn measure(lines: &mut Lines, [sender, others]: [usize; 2]) -> Result<(), Box<dyn Error>> {
    let setting = Setting { tls: None, polling: false, cores: [others, sender] };
    let receive = |peer| Role::start(&setting, &format!("receive {peer} {others}"));
    let mut receivers = (0..=HEALTHY).map(receive).collect::<Result<Vec<_>, _>>()?;
    let to = receivers.iter_mut().map(Role::address).collect::<Result<Vec<_>, _>>()?;
    let to = to.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(",");
    let mut made: [[Vec<Made>; 2]; WAYS.len()] = Default::default();
    for _ in 0..PAIRS / lines.hurry {
        for ((way, _), made) in WAYS.iter().zip(&mut made) {
            let mut role = Role::start(&setting, &format!("send {way} {sender} {others} {to}"))?;
            for made in made {
                made.push(Made::read(&role.says("round ")?)?);
            }
        }
    }
    println!("us from when a notification was due, one every {INTERVAL:?}; slow: later than {:?}", CONNECT / 2);
    for ((_, way), made) in WAYS.iter().zip(&made) {
        for (meanwhile, made) in ["quiet", "reconnecting"].iter().zip(made) {
            let (p50, p99) = (median(made.iter().map(|made| made.p50)), median(made.iter().map(|made| made.p99)));
            let max = made.iter().map(|made| made.max).fold(0.0, f64::max);
            let (slow, sends) = (slow_share(made), made.iter().map(|made| made.sends).sum::<u64>());
            let [p50_us, p99_us] = [p50, p99].map(|value| value.unwrap_or(f64::NAN));
            println!(
                "       {way}, {meanwhile}: p50 {p50_us:.1} p99 {p99_us:.1} max {max:.0}, slow {:.3} %",
                100.0 * slow
            );
            let unit = "share slower than half a connect";
            let line = json!({ "meanwhile": meanwhile, "sends": sends, "p50": p50, "p99": p99, "max": max, "value": slow, "unit": unit });
            lines.put(&format!("head of line, {way}"), line)?;
        }
    }
    let [[_, table], [_, lock]] = &made;
    let what = |way| format!("over Ucx, {way}, share of healthy sends later than half a connect");
    lines.bound(&what(WAYS[0].1), Some(slow_share(table)), ..=SLOW_SHARE)?;
    lines.bound(&what(WAYS[1].1), Some(slow_share(lock)), SLOW_SHARE_OF_LOCK..)
}

/// One round.
#[derive(Debug)]
struct Made {
    sends: u64,
    slow: u64,
    p50: f64,
    p99: f64,
    max: f64,
}

impl Made {
    fn read(line: &str) -> Result<Self, Box<dyn Error>> {
        let numbers = line.split(' ').map(str::parse).collect::<Result<Vec<f64>, _>>()?;
        let [sends, slow, p50, p99, max] = numbers[..] else { return Err(format!("no round: {line}").into()) };
        Ok(Made { sends: sends as u64, slow: slow as u64, p50, p99, max })
    }

    fn say(mut latencies: Vec<Duration>) {
        latencies.sort_unstable();
        let slow = latencies.iter().filter(|latency| **latency > CONNECT / 2).count();
        let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e6;
        println!("round {} {slow} {} {} {}", latencies.len(), at(0.5), at(0.99), at(1.0));
    }
}

fn slow_share(made: &[Made]) -> f64 {
    let all = |of: fn(&Made) -> u64| made.iter().map(of).sum::<u64>() as f64;
    all(|made| made.slow) / all(|made| made.sends)
}

fn called(peer: usize) -> PeerName {
    PeerName::new(&format!("receiver-{peer}")).expect("a short one")
}

/// A process that takes what it is sent.
pub(crate) fn receive(peer: usize, core: usize) -> Result<(), Box<dyn Error>> {
    cores::pin(core)?;
    let ucx: &Ucx = Box::leak(Box::new(Ucx::builder().name(called(peer)).bind("127.0.0.1:0")?));
    println!("listens at {}", ucx.local_addr());
    thread::spawn(|| while ucx.inbox().recv(Instant::now() + LONG).is_some() || !ucx.inbox().is_closed() {});
    wait_for_the_end()
}

/// The process that sends: a round while nothing happens, and one while a peer reconnects.
pub(crate) fn send(way: &str, sender: usize, others: usize, to: &str) -> Result<(), Box<dyn Error>> {
    cores::pin(others)?; // and with it every thread that is started from here
    let to = to.split(',').map(str::parse).collect::<Result<Vec<SocketAddr>, _>>()?;
    let ucx = Slow(Ucx::builder().name(PeerName::new("sender")?).bind("127.0.0.1:0")?);
    if way == "table" {
        let table = Table::new(ucx, &to)?;
        rounds(sender, &|peer| table.send(peer), &|| table.reconnect())
    } else {
        let locked = Locked::new(ucx, &to)?;
        rounds(sender, &|peer| locked.send(peer), &|| locked.reconnect())
    }
}

type Sends<'a> = &'a (dyn Fn(usize) -> bool + Sync);
type Reconnects<'a> = &'a (dyn Fn() + Sync);

fn rounds(sender: usize, send: Sends<'_>, reconnect: Reconnects<'_>) -> Result<(), Box<dyn Error>> {
    for reconnecting in [false, true] {
        let (over, start) = (AtomicBool::new(false), Instant::now() + PERIOD);
        let latencies = thread::scope(|scope| {
            scope.spawn(|| {
                let mut next = start;
                while reconnecting && !over.load(Ordering::Relaxed) {
                    thread::sleep(next.saturating_duration_since(Instant::now()));
                    reconnect();
                    next += PERIOD;
                }
            });
            let round = scope.spawn(|| {
                let latencies = cores::pin(sender).map(|()| round(start, send));
                over.store(true, Ordering::Relaxed);
                latencies
            });
            round.join().expect("no way panics")
        })?;
        Made::say(latencies);
    }
    Ok(())
}

fn round(start: Instant, send: Sends<'_>) -> Vec<Duration> {
    let mut latencies = Vec::new();
    let (mut due, mut peer) = (start, 0);
    while due < start + ROUND {
        while Instant::now() < due {
            spin_loop();
        }
        peer = 1 + peer % HEALTHY;
        latencies.push(if send(peer) { due.elapsed() } else { CONNECT });
        due += INTERVAL;
    }
    latencies
}

/// Peer 0 reconnects, the others are sent to.
struct Table {
    table: PeerTable<Slow>,
    peers: Vec<peerage::Peer<Slow>>,
}

impl Table {
    fn new(ucx: Slow, to: &[SocketAddr]) -> Result<Self, Box<dyn Error>> {
        let at_once = Backoff { base: Duration::ZERO, ..Backoff::default() };
        let table = PeerTable::builder(ucx).backoff(at_once).breaker(None).build()?;
        let named = to.iter().enumerate().map(|(peer, to)| table.insert(called(peer), (*to).into()));
        let peers = named.collect::<Result<Vec<_>, _>>()?;
        let table = Table { table, peers };
        (0..table.peers.len()).try_for_each(|peer| table.wait(peer))?;
        Ok(table)
    }

    fn wait(&self, peer: usize) -> Result<(), Box<dyn Error>> {
        loop {
            match self.peers[peer].wait_ready(Instant::now() + LONG) {
                Ok(_) => return Ok(()),
                Err(ReadyError::BackingOff { .. }) => thread::yield_now(),
                Err(other) => return Err(other.into()),
            }
        }
    }

    fn send(&self, peer: usize) -> bool {
        let Ok(lease) = self.peers[peer].lease() else { return false };
        self.table.transport().0.notify(lease.connection(), &MESSAGE).is_ok()
    }

    fn reconnect(&self) {
        let broken = std::io::Error::other("cable pulled");
        self.peers[0].report(self.peers[0].generation(), &broken);
        self.wait(0).expect("it is back in a moment");
    }
}

/// A map that is locked for whatever is done with it.
struct Locked {
    ucx: Slow,
    to: Vec<SocketAddr>,
    open: Mutex<Vec<UcxConnection>>,
}

impl Locked {
    fn new(ucx: Slow, to: &[SocketAddr]) -> Result<Self, Box<dyn Error>> {
        let locked = Locked { ucx, to: to.to_vec(), open: Mutex::default() };
        let open = (0..to.len()).map(|peer| locked.connect(peer)).collect::<Result<Vec<_>, _>>()?;
        *locked.open.lock().expect("nobody panics") = open;
        Ok(locked)
    }

    fn connect(&self, peer: usize) -> Result<UcxConnection, Box<dyn Error>> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let generation = Generation(NEXT.fetch_add(1, Ordering::Relaxed));
        let context = ConnectContext::standalone(called(peer), generation, Instant::now() + LONG);
        Ok(self.ucx.connect(&context, &self.to[peer].into())?.connection)
    }

    fn send(&self, peer: usize) -> bool {
        let open = self.open.lock().expect("nobody panics");
        self.ucx.0.notify(&open[peer], &MESSAGE).is_ok()
    }

    fn reconnect(&self) {
        let mut open = self.open.lock().expect("nobody panics");
        open[0] = self.connect(0).expect("it listens");
    }
}

/// A transport that takes its time to connect.
struct Slow(Ucx);

impl Transport for Slow {
    type Address = UcxAddress;
    type Connection = UcxConnection;
    type Error = UcxError;

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn connect(&self, context: &ConnectContext, to: &UcxAddress) -> Result<Connected<UcxConnection>, UcxError> {
        thread::sleep(CONNECT);
        self.0.connect(context, to)
    }

    fn disconnect(&self, context: &CloseContext, it: UcxConnection, why: CloseReason) -> Closed<UcxConnection> {
        self.0.disconnect(context, it, why)
    }
}
