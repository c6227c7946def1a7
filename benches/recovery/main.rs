//! What the table adds to a reconnect: `cargo bench --bench recovery`. With `-- --check` exit status 1 when the bound is
//! broken, with `-- --json FILE` a line for each number.
//!
//! The transport's connect takes a millisecond and notes when it began and ended. From a time before the election (the
//! report of the failure, or the first request for a connection: the election itself shows nothing outside) to the first
//! accepted lease, minus the connect call, is an upper bound of what the election and everything after it add.

#[path = "../common/lines.rs"]
mod lines;
#[path = "../common/wait.rs"]
mod wait;
#[path = "../common/wire.rs"]
mod wire;

use hdrhistogram::Histogram;
use lines::Lines;
use peerage::{Backoff, PeerTable};
use serde_json::json;
use std::error::Error;
use std::hint::spin_loop;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use wait::wait;
use wire::{Anywhere, Wire};

type Peer = peerage::Peer<Wire>;
type Table = PeerTable<Wire>;

const CONNECT: Duration = Duration::from_millis(1);
const TIMES: usize = 400;
const BOUND_US: f64 = 500.0;

/// One recovery, measured.
type Once<'a> = dyn FnMut() -> Result<Times, Box<dyn Error>> + 'a;

/// The last connect: when it began and when it ended.
type Call = Arc<Mutex<Option<(Instant, Instant)>>>;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut lines = Lines::of("recovery")?;
    let call = Call::default();
    let table = table(call.clone())?;
    println!("us beside the connect call, {} times each", TIMES / lines.hurry);
    println!("| | p50 | p90 | p99 | max | of p50: until connect | after connect |\n|---|---|---|---|---|---|---|");
    let peer = table.insert("reported", Anywhere)?;
    wait(&peer)?;
    let report = || {
        let broken = std::io::Error::other("cable pulled");
        peer.report(peer.generation(), &broken);
    };
    let mut nth = 0;
    let mut new = || -> Result<Peer, Box<dyn Error>> {
        nth += 1;
        Ok(table.insert(format!("new-{nth}").as_str(), Anywhere)?)
    };
    let cases: [(&str, &mut Once<'_>); 3] = [
        ("reported, one waits in wait_ready", &mut || {
            let start = Instant::now();
            report();
            lease(&peer)?;
            Times::since(start, &call)
        }),
        ("reported, one asks for a lease again and again", &mut || {
            let start = Instant::now();
            report();
            while peer.lease().is_err() {
                spin_loop();
            }
            Times::since(start, &call)
        }),
        ("a new peer, one waits in wait_ready", &mut || {
            let peer = new()?;
            let start = Instant::now();
            lease(&peer)?;
            Times::since(start, &call)
        }),
    ];
    for (name, once) in cases {
        let made = (0..TIMES / lines.hurry).map(|_| once()).collect::<Result<Vec<_>, _>>()?;
        show(&mut lines, name, &made)?;
    }
    Ok(lines.end())
}

fn table(call: Call) -> Result<Table, Box<dyn Error>> {
    let connecting = move |_: &_| {
        let began = Instant::now();
        thread::sleep(CONNECT);
        *call.lock().expect("nobody panics") = Some((began, Instant::now()));
    };
    let at_once = Backoff { base: Duration::ZERO, ..Backoff::default() };
    Ok(PeerTable::builder(Wire::new(connecting)).backoff(at_once).breaker(None).build()?)
}

/// Until a lease is accepted.
fn lease(peer: &Peer) -> Result<(), Box<dyn Error>> {
    wait(peer)?;
    peer.lease()?.touch();
    Ok(())
}

/// One recovery, without its connect call.
struct Times {
    until_connect: Duration,
    after_connect: Duration,
}

impl Times {
    /// Ends now.
    fn since(start: Instant, call: &Call) -> Result<Self, Box<dyn Error>> {
        let end = Instant::now();
        let (began, ended) = call.lock().expect("nobody panics").take().ok_or("nobody connected")?;
        Ok(Times { until_connect: began - start, after_connect: end - ended })
    }

    fn overhead(&self) -> Duration {
        self.until_connect + self.after_connect
    }
}

fn show(lines: &mut Lines, name: &str, made: &[Times]) -> Result<(), Box<dyn Error>> {
    let histogram = |pick: fn(&Times) -> Duration| -> Result<Histogram<u64>, Box<dyn Error>> {
        let mut histogram = Histogram::new_with_bounds(1, 60_000_000_000, 3)?;
        made.iter().for_each(|times| histogram.saturating_record(pick(times).as_nanos() as u64));
        Ok(histogram)
    };
    let at = |histogram: &Histogram<u64>, quantile| histogram.value_at_quantile(quantile) as f64 / 1000.0;
    let overhead = histogram(Times::overhead)?;
    let [p50, p90, p99, max] = [0.5, 0.9, 0.99, 1.0].map(|quantile| at(&overhead, quantile));
    let until = at(&histogram(|times| times.until_connect)?, 0.5);
    let after = at(&histogram(|times| times.after_connect)?, 0.5);
    println!("| {name} | {p50:.0} | {p90:.0} | {p99:.0} | {max:.0} | {until:.0} | {after:.0} |");
    lines.put(
        name,
        json!({
            "value": p50, "unit": "us", "p90": p90, "p99": p99, "max": max, "until_connect": until,
            "after_connect": after, "times": made.len(),
        }),
    )?;
    lines.bound(&format!("{name}, median us beside the connect"), Some(p50), ..=BOUND_US)
}
