//! Prefill/decode disaggregation over real processes that are killed, stopped, cut and muted while requests run.
//!
//! ```text
//! cargo run --release --example pd_failover              # a table, exit status 0 if all is well
//! cargo run --release --example pd_failover -- --help
//! ```
//!
//! The parent starts this program again as its children, hands them requests and breaks them; children talk to each other
//! over `Tcp`, or over the transport that `--transport` names. A request goes the way it goes in a serving system:
//!
//! ```text
//! decode                                             prefill
//!   takes free pages, poisons them, lends them
//!   `Ready` with the grants of its pages ──────────▶   makes each block, writes it into its page
//!   checks every byte, revokes  ◀────────── `Done`
//!   uses the pages, checks again, gives them back
//! ```
//!
//! | file | idea |
//! |---|---|
//! | `modes/peerage` | **how a program uses this library**; `modes` has today's lifecycles beside it |
//! | `child/decode`, `child/prefill` | the two sides of a request |
//! | `scenario`, `child/watch`, `parent/seen` | runs that show one thing each; what the processes see meanwhile; what is made of it |
//! | `child/callers`, `child/flap`, `parent/proxy` | many callers, errors of live peers, a way that drops all bytes |
//! | `bound`, `finding` | how often a backoff lets a peer be dialed; a number and what it may be |
//! | `child/probe`, `modes/watched` | latency of sends to healthy peers, and whether others reconnected meanwhile |
//! | `pages`, `wire` | a pool of lent pages and their content; the messages |
//! | `parent`, `parent/breaking` | requests out, answers in; faults |
//! | `trace`, `faults` | what is replayed, and what is broken when |
//! | `ledger`, `report` | every request has one end; what a run has shown |

mod args;
mod bound;
mod child;
mod faults;
mod finding;
mod latency;
mod ledger;
mod lines;
mod measure;
mod modes;
mod pages;
mod parent;
mod random;
mod report;
mod scenario;
mod trace;
mod wire;

use args::{Args, Asked};
use modes::Mode;
use report::Report;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let words = std::env::args_os().skip(1).map(|word| word.into_string());
    let words: Vec<_> = match words.collect::<Result<_, _>>() {
        Ok(words) => words,
        Err(word) => {
            complain(&format!("the argument {word:?} is not UTF-8"));
            return ExitCode::from(2);
        }
    };
    let mut words = words.into_iter().peekable();
    if words.next_if(|word| word == "--child").is_some() {
        return child::run(words);
    }
    let result = match args::parse(words) {
        Ok(Asked::Help) => print(args::HELP).map(|()| true),
        Ok(Asked::Run(args)) => run(&args),
        Err(error) => Err(error),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            complain(&error);
            ExitCode::from(2)
        }
    }
}

/// Whether all is well.
fn run(args: &Args) -> Result<bool, String> {
    let modes = if args.compare { &Mode::ALL[..] } else { &[args.mode] };
    let mut reports = Vec::new();
    for mode in modes {
        reports.push(parent::run(args, *mode).map_err(|error| error.to_string())?);
    }
    let text = match (args.json, &reports[..]) {
        (true, [report]) => report.json() + "\n",
        (true, reports) => report::json_of_all(reports) + "\n",
        (false, reports) => report::table(reports),
    };
    print(&text)?;

    for report in &reports {
        report.remarks().iter().for_each(|remark| complain(&format!("{}: {remark}", report.mode)));
    }
    // The baselines are there to show their faults; they are judged only when they are asked for alone.
    let judged = reports.iter().filter(|report| !args.compare || report.mode == Mode::Peerage);
    let mut problems: Vec<_> = judged.flat_map(Report::problems).collect();
    if args.check {
        problems.extend(report::check(&reports));
    }
    problems.iter().for_each(|problem| complain(problem));
    Ok(problems.is_empty())
}

/// Output that can't be written is an error like any other.
fn print(text: &str) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| format!("the result can't be written: {error}"))
}

/// If this can't be written, the exit status still says it.
fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "pd_failover: {text}");
}
