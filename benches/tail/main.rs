//! What a peer that reconnects does to sends to other peers: `cargo bench --bench tail`. With `-- --check` exit status 1 when
//! a bound is broken, with `-- --json FILE` a line for each number.
//!
//! Open loop: one send is due every [`INTERVAL`], to a healthy peer chosen at random, and its latency is counted from when it
//! was due. So a send that waits makes those after it late too, as it would make the requests of a server late. Every
//! [`PERIOD`] another peer loses its connection and gets a new one, whose connect takes [`CONNECT`].
//!
//! The sender has a core of its own. All else is on another core: who reconnects, and the table's threads.
//!
//! Rounds are short and come in pairs, one quiet and one reconnecting, because a machine has good and bad seconds: the
//! ratio of two p99 is taken within a pair, and compared with the same ratio of a floor that shares nothing.

mod contestants;
#[path = "../common/cores.rs"]
mod cores;
#[path = "../common/lines.rs"]
mod lines;
#[path = "../common/median.rs"]
mod median;
#[path = "../common/ready.rs"]
mod ready;
mod round;
#[path = "../common/wait.rs"]
mod wait;
#[path = "../common/wire.rs"]
mod wire;

use contestants::{Contestant, FLOOR, GLOBAL_LOCK, PEERAGE};
use hdrhistogram::Histogram;
use lines::Lines;
use median::median;
use round::Round;
use serde_json::json;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

const INTERVAL: Duration = Duration::from_micros(2);
const CONNECT: Duration = Duration::from_millis(5);
const PERIOD: Duration = Duration::from_millis(20);
const HALF_A_CONNECT: Duration = Duration::from_micros(2_500);

const PAIRS: usize = 48;
/// Of contestants whose ratio nobody asks for.
const FEWER_PAIRS: usize = 8;

const SLOW_SHARE: f64 = 0.001;
const SLOW_SHARE_OF_LOCK: f64 = 0.1;
const RATIO: f64 = 1.2;

/// What became of one contestant.
struct Seen<'a> {
    contestant: &'a Contestant,
    quiet: Histogram<u64>,
    reconnecting: Histogram<u64>,
    /// p99 reconnecting in p99 quiet, by pair.
    ratios: Vec<f64>,
}

impl<'a> Seen<'a> {
    fn nothing(contestant: &'a Contestant) -> Result<Self, Box<dyn Error>> {
        let (quiet, reconnecting) = (round::empty()?, round::empty()?);
        Ok(Seen { contestant, quiet, reconnecting, ratios: Vec::new() })
    }

    /// One pair; every other one begins with the reconnects.
    fn pair(&mut self, cores: [usize; 2]) -> Result<(), Box<dyn Error>> {
        let mut p99 = [0.0; 2];
        let order = if self.ratios.len().is_multiple_of(2) { [false, true] } else { [true, false] };
        for reconnecting in order {
            let made = Round { contestant: self.contestant, reconnecting, cores }.run()?;
            p99[usize::from(reconnecting)] = made.value_at_quantile(0.99) as f64;
            if reconnecting { &mut self.reconnecting } else { &mut self.quiet }.add(made)?;
        }
        self.ratios.push(p99[1] / p99[0]);
        Ok(())
    }

    fn ratio(&self) -> Option<f64> {
        median(self.ratios.iter().copied())
    }
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut lines = Lines::of("tail")?;
    let cores = cores::cores()?;
    let &[sender, others, ..] = &cores[..] else { return Err("this takes two cores".into()) };
    cores::pin(others)?; // and with it every thread that is started from here
    let contestants = contestants::all()?;
    let mut all = contestants.iter().map(Seen::nothing).collect::<Result<Vec<_>, _>>()?;
    for pair in 0..PAIRS / lines.hurry {
        for seen in &mut all {
            let in_all = [FLOOR, PEERAGE].contains(&seen.contestant.name);
            if in_all || pair < FEWER_PAIRS / lines.hurry {
                seen.pair([sender, others])?;
            }
        }
    }
    show(&mut lines, &all)?;
    judge(&mut lines, &all)?;
    Ok(lines.end())
}

fn show(lines: &mut Lines, all: &[Seen<'_>]) -> Result<(), Box<dyn Error>> {
    println!("us from when a send was due, one every {INTERVAL:?}; slow: later than {HALF_A_CONNECT:?}");
    println!("| | meanwhile | p50 | p99 | p99.9 | p99.99 | max | slow | p99 ratio, median of pairs |");
    println!("|---|---|---|---|---|---|---|---|---|");
    for seen in all {
        for (meanwhile, made) in [("quiet", &seen.quiet), ("reconnecting", &seen.reconnecting)] {
            let reconnecting = meanwhile == "reconnecting";
            let at = |quantile| made.value_at_quantile(quantile) as f64 / 1000.0;
            let [p50, p99, p999, p9999, max] = [0.5, 0.99, 0.999, 0.9999, 1.0].map(at);
            let slow = slow_share(made);
            let ratio = seen.ratio().filter(|_| reconnecting);
            let name = seen.contestant.name;
            print!("| {name} | {meanwhile} | {p50:.2} | {p99:.2} | {p999:.1} | {p9999:.1} | {max:.0} ");
            let shown = ratio.map_or(String::new(), |ratio| format!("{ratio:.2} of {}", seen.ratios.len()));
            println!("| {:.3} % | {shown} |", 100.0 * slow);
            let distribution: Vec<_> = QUANTILES.iter().map(|quantile| json!([quantile, at(*quantile)])).collect();
            lines.put(
                name,
                json!({
                    "meanwhile": meanwhile, "sends": made.len(), "p50": p50, "p99": p99, "p999": p999, "p9999": p9999,
                    "max": max, "value": slow, "unit": "share slower than half a connect", "distribution": distribution,
                    "p99_ratio": ratio, "pairs": seen.ratios.len(),
                }),
            )?;
        }
    }
    Ok(())
}

/// The points of a plot of the distribution.
const QUANTILES: [f64; 17] =
    [0.1, 0.25, 0.5, 0.75, 0.8, 0.85, 0.9, 0.925, 0.95, 0.975, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9999, 1.0];

fn slow_share(made: &Histogram<u64>) -> f64 {
    let slow = made.count_between(HALF_A_CONNECT.as_nanos() as u64, u64::MAX);
    slow as f64 / made.len() as f64
}

fn judge(lines: &mut Lines, all: &[Seen<'_>]) -> Result<(), Box<dyn Error>> {
    let of = |name| all.iter().find(|seen| seen.contestant.name == name).expect("a contestant");
    let slow = |name| Some(slow_share(&of(name).reconnecting));
    let what = |name| format!("{name}, share of healthy sends later than half a connect");
    lines.bound(&what(PEERAGE), slow(PEERAGE), ..=SLOW_SHARE)?;
    lines.bound(&what(GLOBAL_LOCK), slow(GLOBAL_LOCK), SLOW_SHARE_OF_LOCK..)?;
    let floor = of(FLOOR).ratio().unwrap_or(1.0);
    let limit = RATIO * floor.max(1.0);
    println!("       the floor's p99, reconnecting in quiet: {floor:.4}");
    let what = format!("{PEERAGE}, p99 reconnecting in quiet, median of {} pairs", of(PEERAGE).ratios.len());
    lines.bound(&what, of(PEERAGE).ratio(), ..=limit)
}
