//! What people ask for on the command line.

use crate::modes::{Mode, TransportKind};
use crate::scenario::Scenario;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

pub(crate) const HELP: &str = "\
Replays a trace of prefill/decode requests over real processes, breaks them on a seeded schedule, and checks that no
request is lost, no page is corrupt and no peer is connected to twice.

usage: pd_failover [options]

  --trace FILE              JSON lines {\"timestamp\", \"input_length\", \"output_length\", \"hash_ids\"}; default: generated
  --speedup X               replay X times as fast as the trace was recorded                     [default 40]
  --duration SECONDS        how long requests are offered; extended until the last fault is over  [default 20]
  --seed N                  of the faults, the pages and the generated requests                   [default 1]
  --prefill N               prefill processes                                                     [default 3]
  --decode N                decode processes                                                      [default 1]
  --threads N               threads that share one table, in every process                        [default 7]
  --kv-bytes-per-token N    a page is 512 times this                                              [default 64]
  --connect-delay MS        how long every acceptor waits before it answers a connect             [default 5]
  --mode MODE               peerage, or today's lifecycles: global-lock, check-then-add           [default peerage]
  --transport NAME          tcp, or with the feature ucx: ucx, where the connect delay is the dialer's; with the feature
                            nixl: nixl, which has no connect delay, and where a process is known once it has started [default tcp]
  --scenario NAME           one kind of trouble in place of the schedule, and what it must not do; changes the defaults of
                            the options above:
      storm                 all prefills restart together while every decode has 64 callers; never more connects at
                            once than the limit of 3                                [duration 16, prefill 8, decode 2]
      flap                  healthy connections are reported every 50-200 ms; connects per peer stay below what the
                            backoff allows                                          [duration 30]
      stopped               prefills are stopped until they are suspected, and lose nothing; until they are given up,
                            and recover                                             [duration 16]
      blackhole             all bytes to and from one prefill are dropped; the others notice nothing
                                                                                    [duration 16]
      restart-all           all prefills restart elsewhere; the first request that says where ends ok
                                                                                    [duration 12, decode 2]
      cross-dial            both ends of each pair dial at once; both finish, no lease is of a half-open connection
                                                                                    [duration 10]
      one-rank-down         the prefills are ranks of one engine; when one dies the others are probed at once
                                                                                    [duration 10, prefill 4, decode 2]
  --no-revoke               take pages back from a late writer without revoking its grant
  --compare                 run all three modes, with one more peer that is cut every 20 ms, and print one table
  --check                   with --compare: exit 1 unless the modes differ as they should
  --json                    print one JSON line in place of the table

exit status: 0 all is well; 1 the run shows lost or corrupt requests, duplicate connects, a broken connect equation, a
peer that did not recover or what its scenario must not do; 2 the run could not be made.
";

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Args {
    pub(crate) trace: Option<PathBuf>,
    pub(crate) speedup: f64,
    pub(crate) duration: Duration,
    pub(crate) seed: u64,
    pub(crate) prefill: usize,
    pub(crate) decode: usize,
    pub(crate) threads: usize,
    pub(crate) kv_bytes_per_token: usize,
    pub(crate) connect_delay: Duration,
    pub(crate) mode: Mode,
    pub(crate) transport: TransportKind,
    pub(crate) scenario: Option<Scenario>,
    pub(crate) revoke: bool,
    pub(crate) compare: bool,
    pub(crate) check: bool,
    pub(crate) json: bool,
}

impl Default for Args {
    fn default() -> Self {
        Args {
            trace: None,
            speedup: 40.0,
            duration: Duration::from_secs(20),
            seed: 1,
            prefill: 3,
            decode: 1,
            threads: 7,
            kv_bytes_per_token: 64,
            connect_delay: Duration::from_millis(5),
            mode: Mode::Peerage,
            transport: TransportKind::Tcp,
            scenario: None,
            revoke: true,
            compare: false,
            check: false,
            json: false,
        }
    }
}

#[derive(Debug, PartialEq)]
pub(crate) enum Asked {
    Help,
    Run(Args),
}

/// Reads the command line, without the program's name.
pub(crate) fn parse(words: impl Iterator<Item = String>) -> Result<Asked, String> {
    let words: Vec<_> = words.collect();
    // First, wherever it stands: it decides what the others change.
    let scenario = words.iter().position(|word| word == "--scenario").and_then(|at| words.get(at + 1));
    let mut args = match scenario.map(|name| name.parse::<Scenario>()).transpose()? {
        Some(scenario) => scenario.args(),
        None => Args::default(),
    };
    let mut words = words.into_iter();
    while let Some(flag) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{flag} needs a value; see --help"));
        match flag.as_str() {
            "--help" | "-h" => return Ok(Asked::Help),
            "--no-revoke" => args.revoke = false,
            "--compare" => args.compare = true,
            "--check" => args.check = true,
            "--json" => args.json = true,
            "--trace" => args.trace = Some(value()?.into()),
            "--seed" => args.seed = number(&flag, &value()?, 0, u64::MAX)?,
            "--prefill" => args.prefill = number(&flag, &value()?, 1, 64)?,
            "--decode" => args.decode = number(&flag, &value()?, 1, 16)?,
            "--threads" => args.threads = number(&flag, &value()?, 1, 256)?,
            "--kv-bytes-per-token" => args.kv_bytes_per_token = number(&flag, &value()?, 1, 1024)?,
            "--connect-delay" => args.connect_delay = Duration::from_millis(number(&flag, &value()?, 1, 1000)?),
            "--speedup" => args.speedup = number(&flag, &value()?, 0.01, 10_000.0)?,
            "--duration" => args.duration = Duration::from_secs_f64(number(&flag, &value()?, 1.0, 86_400.0)?),
            "--mode" => args.mode = value()?.parse()?,
            "--transport" => args.transport = value()?.parse()?,
            "--scenario" => args.scenario = Some(value()?.parse()?),
            _ => return Err(format!("{flag} is not an option; see --help")),
        }
    }
    if args.check && !args.compare {
        return Err("--check judges --compare; give both".into());
    }
    if args.scenario.is_some() && (args.compare || args.mode != Mode::Peerage || !args.revoke) {
        return Err("--scenario judges this library's table; give it without --compare, --mode and --no-revoke".into());
    }
    if args.transport.is_published() && (args.compare || args.mode != Mode::Peerage) {
        return Err(
            "the lifecycles that are compared know their peers' addresses from the start; give --transport nixl \
                    without --compare and --mode"
                .into(),
        );
    }
    if args.transport != TransportKind::Tcp && args.scenario == Some(Scenario::Blackhole) {
        return Err("--scenario blackhole is for --transport tcp: a way between two processes that drops what it carries can't \
                    be laid for others, as it would not have their data; ci/ucx_hosts.sh does it with network namespaces"
            .into());
    }
    Ok(Asked::Run(args))
}

fn number<N: FromStr + PartialOrd + std::fmt::Display>(flag: &str, text: &str, low: N, high: N) -> Result<N, String> {
    match text.parse() {
        Ok(n) if low <= n && n <= high => Ok(n),
        _ => Err(format!("{flag} must be a number from {low} to {high}, not \"{}\"", text.escape_debug())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Asked, String> {
        parse(line.split_whitespace().map(String::from))
    }

    #[test]
    fn nothing_asks_for_the_defaults() {
        assert_eq!(parsed(""), Ok(Asked::Run(Args::default())));
    }

    #[test]
    fn every_option_is_taken() {
        let Ok(Asked::Run(args)) = parsed(
            "--trace t --speedup 2.5 --duration 3 --seed 9 --prefill 4 --decode 2 --threads 3 --kv-bytes-per-token 8 \
             --connect-delay 7 --mode global-lock --transport tcp --no-revoke --compare --check --json",
        ) else {
            panic!("refused")
        };
        let expected = Args {
            trace: Some("t".into()),
            speedup: 2.5,
            duration: Duration::from_secs(3),
            seed: 9,
            prefill: 4,
            decode: 2,
            threads: 3,
            kv_bytes_per_token: 8,
            connect_delay: Duration::from_millis(7),
            mode: Mode::GlobalLock,
            transport: TransportKind::Tcp,
            scenario: None,
            revoke: false,
            compare: true,
            check: true,
            json: true,
        };
        assert_eq!(args, expected);
    }

    #[test]
    fn a_scenario_changes_defaults_and_options_change_those_wherever_they_stand() {
        for line in ["--scenario storm --duration 2 --seed 9", "--seed 9 --duration 2 --scenario storm"] {
            let Ok(Asked::Run(args)) = parsed(line) else { panic!("refused") };
            assert_eq!(args, Args { duration: Duration::from_secs(2), seed: 9, ..Scenario::Storm.args() });
        }
        assert!(Scenario::ALL.iter().all(|scenario| HELP.contains(&format!("\n      {scenario} "))));
    }

    #[test]
    fn a_bad_value_names_its_option_and_what_is_allowed() {
        for (line, says) in [
            ("--prefill 0", "--prefill must be a number from 1 to 64, not \"0\""),
            ("--seed -1", "--seed must be a number"),
            ("--speedup NaN", "--speedup must be a number from 0.01 to 10000"),
            ("--duration 0", "--duration must be a number from 1"),
            ("--threads", "--threads needs a value"),
            ("--mode best", "--mode must be"),
            ("--frobnicate", "--frobnicate is not an option"),
            ("--check", "give both"),
            ("--scenario", "--scenario needs a value"),
            ("--scenario drizzle", "--scenario must be one of storm, flap"),
            ("--scenario flap --compare", "without --compare"),
            ("--scenario flap --mode global-lock", "without --compare, --mode"),
        ] {
            let error = parsed(line).unwrap_err();
            assert!(error.contains(says), "{line}: {error}");
        }
    }
}
