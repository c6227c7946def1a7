//! The `Ucx` transport against `ucx_perftest`, and what a peer that reconnects does to sends to others over it:
//! `cargo bench --features ucx --bench ucx`. With `-- --check` exit status 1 when a bound is broken, with `-- --json FILE` a
//! line for each number. Needs Debian's `ucx-utils`.
//!
//! Like with like: two processes, each kept on a core of its own, a worker in multi-thread mode, endpoints with error handling,
//! the same `UCX_TLS`, both sleeping or both polling, the same sizes. Over the table an echo is sent by the waker of the
//! inbox, which runs on the transport's thread, as `ucx_perftest` answers where it makes progress; a put is a write of a page,
//! asked for and acknowledged each, and `ucx_perftest` flushes once at its end. Measured in turn, in pairs; ratios within a pair.
//!
//! Two things differ. `ucx_perftest` sleeps as soon as nothing moves, the transport's thread some microseconds later. And a
//! table has a connection for each way, where `ucx_perftest` has one for both: what that costs bare sockets is measured
//! within each pair that polls, and the ratio without it is told beside the other.

#[path = "../common/cores.rs"]
mod cores;
mod drive;
mod head_of_line;
#[path = "../common/lines.rs"]
mod lines;
#[path = "../common/median.rs"]
mod median;
mod perftest;
mod process;
mod serve;
mod sockets;

use lines::Lines;
use median::median;
use process::Setting;
use serde_json::json;
use std::error::Error;
use std::process::ExitCode;

const PAIRS: usize = 20;
const NOTIFICATION: f64 = 1.15;
const PUT: f64 = 0.95;

/// What is measured: its size in bytes, and how often in a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Case {
    /// Half a round trip, in microseconds.
    Notification { bytes: usize, times: usize },
    /// MiB per second.
    Put { bytes: usize, times: usize },
}

const CASES: [Case; 3] = [
    Case::Notification { bytes: 64, times: 10_000 },
    Case::Put { bytes: 64 << 10, times: 6_000 },
    Case::Put { bytes: 1 << 20, times: 400 },
];

impl Case {
    fn name(self) -> String {
        match self {
            Case::Notification { bytes, .. } => format!("notification of {bytes} bytes, there and back, half"),
            Case::Put { bytes, .. } => format!("put of {} KiB", bytes >> 10),
        }
    }

    fn unit(self) -> &'static str {
        if matches!(self, Case::Notification { .. }) { "us" } else { "MiB/s" }
    }
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    if process::is_a_role()? {
        return Ok(ExitCode::SUCCESS);
    }
    let mut lines = Lines::of("ucx")?;
    let cores = cores::cores()?;
    let &[one, other, ..] = &cores[..] else { return Err("this takes two cores".into()) };
    perftest::is_here()?;
    for (transports, tls) in [("tcp", Some("tcp")), ("default", None)] {
        for polling in [false, true] {
            let setting = Setting { tls, polling, cores: [one, other] };
            for case in CASES {
                compare(&mut lines, transports, &setting, case)?;
            }
        }
    }
    head_of_line::measure(&mut lines, [one, other])?;
    Ok(lines.end())
}

fn compare(lines: &mut Lines, transports: &str, setting: &Setting, case: Case) -> Result<(), Box<dyn Error>> {
    let (mut ours, mut theirs, mut ways) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 0..PAIRS / lines.hurry {
        // Every other pair begins with the other one.
        if pair % 2 == 0 {
            ours.push(drive::run(setting, case)?);
            theirs.push(perftest::run(setting, case)?);
        } else {
            theirs.push(perftest::run(setting, case)?);
            ours.push(drive::run(setting, case)?);
        }
        if let (Case::Notification { times, .. }, true) = (case, setting.polling) {
            ways.push(sockets::run(2, setting.cores, times)? - sockets::run(1, setting.cores, times)?);
        }
    }
    let without = median(ours.iter().zip(&theirs).zip(&ways).map(|((ours, theirs), ways)| (ours - ways) / theirs));
    let ways = median(ways);
    let ratio = median(ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs));
    let waits = if setting.polling { "polling" } else { "sleeping" };
    let what = format!("{}, UCX_TLS {transports}, {waits}", case.name());
    let (ours, theirs) = (median(ours), median(theirs));
    lines.put(
        &what,
        json!({
            "value": ours, "perftest": theirs, "ratio": ratio, "unit": case.unit(), "pairs": PAIRS / lines.hurry,
            "second_connection": ways, "ratio_without": without,
        }),
    )?;
    println!("       {what}: {:.2} in {:.2} {}", ours.unwrap_or(0.0), theirs.unwrap_or(0.0), case.unit());
    if let (Some(ways), Some(without)) = (ways, without) {
        println!("       a second connection costs bare sockets {ways:.2} us of that; without it {without:.2} x");
    }
    let bound = format!("{what}, in ucx_perftest's");
    match case {
        Case::Notification { .. } => lines.bound(&bound, ratio, ..=NOTIFICATION),
        Case::Put { .. } => lines.bound(&bound, ratio, PUT..),
    }
}
