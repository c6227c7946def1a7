//! Runs that show one thing each: how their processes are set up, and what is broken when.

use crate::args::Args;
use crate::faults::{Fault, Kind, Target};
use crate::lines::View;
use crate::modes::Policy;
use crate::random::Random;
use peerage::Heartbeat;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scenario {
    /// All prefills restart together while every decode has many callers.
    Storm,
    /// Errors of prefills that are well, all the time.
    Flap,
    /// Prefills are stopped: until they are suspected, and until they are found dead.
    Stopped,
    /// All bytes to and from one prefill are dropped without a word.
    Blackhole,
    /// All prefills restart elsewhere, and only the next request says where.
    RestartAll,
    /// All connections are cut, so that both ends of each pair dial at once.
    CrossDial,
    /// The prefills are ranks of one engine, and one of them dies.
    OneRankDown,
}

/// Connects at once in each process of a storm: fewer than there are peers, so that some have to wait.
pub(crate) const STORM_CONNECTS: usize = 3;
/// Callers in each decode process of a storm.
pub(crate) const STORM_CALLERS: usize = 64;
/// Longer than any run, so that whoever is probed is probed because of its group.
const NO_BEAT: Duration = Duration::from_secs(600);
/// How long a dead rank takes to be back: time in which it is dialed in vain, and so found gone.
const RANK_GONE: f64 = 1.0;
/// From one storm to the next: connections live long enough to be forgiven what came before.
const STORM_EVERY: f64 = 8.0;
const RESTART_EVERY: f64 = 4.0;
const STOPS_EVERY: f64 = 12.0;
const CUT_EVERY: f64 = 0.5;
/// What ends a stop by a sign ends it by this at the latest.
const NO_SIGN: f64 = 10.0;
/// A hole lasts longer than it takes to find its peer dead, and to have a connect time out.
const HOLE: f64 = 7.0;

impl Scenario {
    pub(crate) const ALL: [Scenario; 7] = [
        Scenario::Storm,
        Scenario::Flap,
        Scenario::Stopped,
        Scenario::Blackhole,
        Scenario::RestartAll,
        Scenario::CrossDial,
        Scenario::OneRankDown,
    ];

    /// What options on the command line change.
    pub(crate) fn args(self) -> Args {
        let seconds = Duration::from_secs;
        let args = Args { scenario: Some(self), ..Args::default() };
        match self {
            Scenario::Storm => Args {
                prefill: 8,
                decode: 2,
                threads: 4,
                connect_delay: Duration::from_millis(20),
                duration: seconds(16),
                ..args
            },
            Scenario::Flap => Args { duration: seconds(30), ..args },
            Scenario::Stopped => Args { duration: seconds(16), ..args },
            Scenario::Blackhole => Args { duration: seconds(16), ..args },
            Scenario::RestartAll => Args { decode: 2, duration: seconds(12), ..args },
            Scenario::CrossDial => Args { connect_delay: Duration::from_millis(30), duration: seconds(10), ..args },
            Scenario::OneRankDown => Args { prefill: 4, decode: 2, duration: seconds(10), ..args },
        }
    }

    /// Changes what this scenario needs changed, and nothing else: the rest are the library's defaults.
    pub(crate) fn apply(self, policy: &mut Policy) {
        match self {
            Scenario::Storm => policy.max_concurrent_connects = Some(STORM_CONNECTS),
            // What is shown is the backoff alone. One peer of so few that an open breaker leaves out for half a minute
            // would make the numbers look better than that.
            Scenario::Flap => policy.breaker = None,
            Scenario::Stopped | Scenario::Blackhole => policy.heartbeat = Some(Heartbeat::default()),
            Scenario::RestartAll | Scenario::CrossDial => {}
            Scenario::OneRankDown => {
                policy.heartbeat = Some(Heartbeat { interval: NO_BEAT, dead_after: NO_BEAT });
                policy.group = true;
            }
        }
    }

    /// The delay before each dial, where it is not the backoff's: both ends are to dial at once, again and again.
    pub(crate) fn constant_retry(self) -> Option<Duration> {
        (self == Scenario::CrossDial).then_some(Duration::from_millis(10))
    }

    /// What is broken when, in a run of `args`. At least once whatever its duration.
    pub(crate) fn faults(self, args: &Args) -> Vec<Fault> {
        let mut random = Random::new(args.seed ^ 0x5ce0);
        let first = random.below(args.prefill as u64) as usize;
        let one = |nth: usize| Target::Prefill((first + nth) % args.prefill);
        let length = args.duration.as_secs_f64();
        let rounds = |every: f64| (0..(length / every).max(1.0) as usize).map(move |round| round as f64 * every);
        let mut faults = Vec::new();
        let mut add = |kind, target, at: f64, hold: f64, until| {
            let [at, hold] = [at, hold].map(Duration::from_secs_f64);
            faults.push(Fault { at, kind, target, hold, until });
        };
        let all = || (0..args.prefill).map(one);
        match self {
            Scenario::Storm => rounds(STORM_EVERY)
                .for_each(|start| all().for_each(|target| add(Kind::Kill, target, start + 0.5, 0.0, None))),
            Scenario::Flap => all().for_each(|target| add(Kind::Flap, target, 0.1, length, None)),
            Scenario::Stopped => {
                for start in rounds(STOPS_EVERY) {
                    add(Kind::Stop, one(0), start + random.between(0.2, 0.5), NO_SIGN, Some(View::Suspect));
                    if length >= STOPS_EVERY {
                        add(Kind::Stop, one(1), start + random.between(3.2, 3.5), NO_SIGN, Some(View::Suspect));
                    }
                    let long = if length >= STOPS_EVERY { 6.0 } else { 0.6 };
                    add(Kind::Stop, one(2), start + long, NO_SIGN, Some(View::Down));
                }
            }
            Scenario::Blackhole => {
                add(Kind::Blackhole, one(0), random.between(0.3, 0.6), HOLE.max(length / 2.0), None);
            }
            Scenario::RestartAll => rounds(RESTART_EVERY)
                .for_each(|start| all().for_each(|target| add(Kind::Move, target, start + 0.3, 0.0, None))),
            Scenario::CrossDial => rounds(CUT_EVERY)
                .for_each(|start| all().for_each(|target| add(Kind::Cut, target, start + 0.2, 0.0, None))),
            Scenario::OneRankDown => {
                for (nth, start) in rounds(RESTART_EVERY).enumerate() {
                    add(Kind::Kill, one(nth), start + random.between(0.3, 0.9), RANK_GONE, None);
                }
            }
        }
        faults
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Scenario::Storm => "storm",
            Scenario::Flap => "flap",
            Scenario::Stopped => "stopped",
            Scenario::Blackhole => "blackhole",
            Scenario::RestartAll => "restart-all",
            Scenario::CrossDial => "cross-dial",
            Scenario::OneRankDown => "one-rank-down",
        })
    }
}

impl FromStr for Scenario {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Scenario::ALL.into_iter().find(|scenario| scenario.to_string() == text).ok_or_else(|| {
            let names = Scenario::ALL.map(|scenario| scenario.to_string()).join(", ");
            format!("--scenario must be one of {names}, not \"{}\"", text.escape_debug())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_is_found_by_its_name_and_an_unknown_one_is_refused_with_the_list() {
        for scenario in Scenario::ALL {
            assert_eq!(scenario.to_string().parse(), Ok(scenario));
            assert_eq!(scenario.args().scenario, Some(scenario));
        }
        let error = "drizzle".parse::<Scenario>().unwrap_err();
        assert!(Scenario::ALL.iter().all(|scenario| error.contains(&scenario.to_string())), "{error}");
    }

    #[test]
    fn the_seed_alone_decides_and_the_shortest_run_breaks_something_of_everything() {
        for scenario in Scenario::ALL {
            let faults = |seed, seconds| {
                scenario.faults(&Args { seed, duration: Duration::from_secs(seconds), ..scenario.args() })
            };
            assert_eq!(faults(1, 20), faults(1, 20));
            let kinds = |faults: Vec<Fault>| {
                let mut kinds: Vec<_> = faults.iter().map(|fault| (fault.kind as usize, fault.until)).collect();
                kinds.sort_by_key(|(kind, until)| (*kind, until.map(|view| view as usize)));
                kinds.dedup();
                kinds
            };
            assert!(!faults(1, 1).is_empty());
            for seed in 0..50 {
                assert_eq!(kinds(faults(seed, 1)), kinds(faults(seed, 40)), "{scenario}");
                assert!(faults(seed, 40).is_sorted_by_key(|fault| fault.at), "{scenario}");
            }
        }
    }
}
