//! What is broken when: a schedule drawn from the seed alone.
//!
//! Faults come in rounds. Each round has every kind of fault, on prefill processes drawn anew, and one fault of a decode
//! process. In each round one prefill is stopped in the middle of a page for longer than a request may take: the fault
//! that corrupts pages if they are taken back without `revoke`.

use crate::lines::View;
use crate::random::Random;
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// SIGKILL; a new process takes over the name and the port.
    Kill,
    /// SIGSTOP, later SIGCONT.
    Stop,
    /// All its connections are reset.
    Cut,
    /// SIGKILL; something that accepts and never answers takes over the port for a while, then a new process.
    Mute,
    /// The decode processes report its connections again and again, which are well.
    Flap,
    /// All bytes to and from it are dropped, and no connection ends.
    Blackhole,
    /// SIGKILL; a new process takes over the name at another port, and only requests say where.
    Move,
}

impl Kind {
    /// In their order. The first four are those of a run without a scenario.
    pub(crate) const NAMES: [&str; 7] = ["kill", "stop", "cut", "mute", "flap", "blackhole", "move"];
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Prefill(usize),
    Decode(usize),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Fault {
    /// When, counted from the first request.
    pub(crate) at: Duration,
    pub(crate) kind: Kind,
    pub(crate) target: Target,
    /// How long it lasts. A cut lasts no time of its own, nor does a kill, but for what a restart takes.
    pub(crate) hold: Duration,
    /// It is over sooner if all decode processes see this of its target.
    pub(crate) until: Option<View>,
}

impl Fault {
    /// Whether a request may fail because of it. A stop that ends as soon as it is suspected is no excuse.
    pub(crate) fn excuses(&self) -> bool {
        self.until != Some(View::Suspect)
    }
}

/// A peer that was broken must have answered a new request this long after the fault is over.
pub(crate) const RECOVERY: Duration = Duration::from_secs(10);

const ROUND: f64 = 10.0;

/// The schedule of a run over `duration`. As a rule its last fault is over `RECOVERY` before the end.
pub(crate) fn schedule(seed: u64, duration: Duration, prefill: usize, decode: usize) -> Vec<Fault> {
    let mut random = Random::new(seed ^ 0xfa17);
    let rounds = ((duration.as_secs_f64() - RECOVERY.as_secs_f64()) / ROUND) as u64;
    let mut faults = Vec::new();
    if rounds == 0 {
        short_round(&mut faults, &mut random, prefill, decode);
    }
    for round in 0..rounds {
        full_round(&mut faults, &mut random, round as f64 * ROUND, prefill, decode);
    }
    faults
}

fn full_round(faults: &mut Vec<Fault>, random: &mut Random, start: f64, prefill: usize, decode: usize) {
    // Three different ones if there are three, so that at most two are away at a time.
    let first = random.below(prefill as u64) as usize;
    let one = |nth: usize| Target::Prefill((first + nth) % prefill);
    let decode = Target::Decode(random.below(decode as u64) as usize);
    let mut add = |kind, target, at: f64, hold: f64| {
        faults.push(Fault { at: seconds(start + at), kind, target, hold: seconds(hold), until: None });
    };
    add(Kind::Stop, one(0), random.between(0.4, 0.8), random.between(6.0, 6.8));
    add(Kind::Cut, one(1), random.between(1.2, 2.5), 0.0);
    add(Kind::Kill, one(1), random.between(2.8, 3.6), 0.0);
    add(Kind::Mute, one(2), random.between(4.6, 5.2), random.between(2.0, 3.0));
    add(Kind::Cut, one(1), random.between(5.4, 6.5), 0.0);
    // After the stopped prefill runs again: its late writes must find the process they are meant for.
    let (kind, hold) = match random.below(3) {
        0 => (Kind::Kill, 0.0),
        1 => (Kind::Cut, 0.0),
        _ => (Kind::Stop, random.between(0.3, 0.7)),
    };
    add(kind, decode, random.between(8.8, 9.1), hold);
}

/// For a run too short for a full round: no peer is away for long.
fn short_round(faults: &mut Vec<Fault>, random: &mut Random, prefill: usize, decode: usize) {
    let first = random.below(prefill as u64) as usize;
    let one = |nth: usize| Target::Prefill((first + nth) % prefill);
    let decode = Target::Decode(random.below(decode as u64) as usize);
    let mut add = |kind, target, at: f64, hold: f64| {
        faults.push(Fault { at: seconds(at), kind, target, hold: seconds(hold), until: None });
    };
    add(Kind::Cut, one(0), random.between(0.2, 0.4), 0.0);
    add(Kind::Stop, one(0), random.between(0.6, 0.8), random.between(0.3, 0.6));
    add(Kind::Kill, one(1), random.between(0.9, 1.1), 0.0);
    add(Kind::Mute, one(2), random.between(1.6, 1.8), random.between(0.3, 0.6));
    add(Kind::Cut, decode, random.between(2.2, 2.5), 0.0);
}

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_alone_decides() {
        let of = |seed| schedule(seed, seconds(20.0), 3, 1);
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }

    #[test]
    fn every_run_has_every_kind_and_leaves_time_to_recover() {
        for seed in 0..200 {
            for (length, prefill, decode) in [(20.0, 3, 1), (65.0, 5, 2), (20.0, 1, 1), (2.0, 3, 1)] {
                let faults = schedule(seed, seconds(length), prefill, decode);
                assert!(
                    [Kind::Kill, Kind::Stop, Kind::Cut, Kind::Mute]
                        .iter()
                        .all(|kind| faults.iter().any(|fault| fault.kind == *kind))
                );
                assert!(faults.is_sorted_by_key(|fault| fault.at));
                for fault in &faults {
                    let inside = match fault.target {
                        Target::Prefill(at) => at < prefill,
                        Target::Decode(at) => at < decode,
                    };
                    assert!(inside, "{fault:?}");
                    assert!(length < 20.0 || fault.at + fault.hold + RECOVERY < seconds(length), "{fault:?}");
                }
            }
        }
    }

    #[test]
    fn a_full_run_stops_a_prefill_for_longer_than_a_request_may_take() {
        for seed in 0..200 {
            let faults = schedule(seed, seconds(20.0), 3, 1);
            let late = faults.iter().any(|fault| {
                matches!((fault.kind, fault.target), (Kind::Stop, Target::Prefill(_)))
                    && fault.hold > crate::child::REQUEST_TIMEOUT
            });
            assert!(late, "seed {seed}");
        }
    }
}
