//! Rounds over all cases, and what their medians say.
//!
//! A round measures every case once. Ratios are taken within a round; tables show medians.
//!
//! Threads that ran one after the other show no contention, whatever the case does. So a case of several threads counts
//! only if its threads saw each other get on (pinned.rs), and if the control of that round, whose threads share one counter,
//! cost at least [`OVERLAP`] times its one thread. Rounds are added until every case has enough, up to a limit; a case
//! that never has enough is "not measured".

use crate::median::median;
use crate::pick::Pick;
use crate::pinned::{self, Meanwhile, Work};
use std::io::{self, IsTerminal, Write};

const OVERLAP: f64 = 1.5;
/// Tries to see the threads of one case overlap, per round.
const TRIES: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) threads: usize,
    pub(crate) pick: Pick,
    pub(crate) reconnecting: bool,
}

pub(crate) struct Case<'a> {
    pub(crate) key: Key,
    pub(crate) work: Box<Work<'a>>,
    pub(crate) meanwhile: Option<Box<Meanwhile<'a>>>,
}

pub(crate) struct Rounds {
    keys: Vec<Key>,
    /// Nanoseconds per operation, by round and case.
    made: Vec<Vec<Option<f64>>>,
    wanted: usize,
}

impl Rounds {
    /// `control`: the name of the case that shows whether threads overlapped.
    pub(crate) fn run(
        wanted: usize,
        cores: &[usize],
        cases: &[Case<'_>],
        control: Option<&'static str>,
    ) -> io::Result<Self> {
        let keys = cases.iter().map(|case| case.key).collect();
        let mut rounds = Rounds { keys, made: Vec::new(), wanted };
        while rounds.counted() < wanted && rounds.made.len() < 2 * wanted {
            let mut round = Vec::new();
            for case in cases {
                round.push(measure(cores, case)?);
            }
            rounds.made.push(round);
            if let Some(control) = control {
                rounds.strike_if_apart(control);
            }
            rounds.progress()?;
        }
        Ok(rounds)
    }

    /// Forgets the cases of the last round whose number of threads ran apart.
    fn strike_if_apart(&mut self, control: &'static str) {
        let round = self.made.last_mut().expect("a round was made");
        let of = |threads| self.keys.iter().position(|key| key.name == control && key.threads == threads);
        let one = of(1).and_then(|one| round[one]);
        let apart: Vec<bool> = self
            .keys
            .iter()
            .map(|key| {
                let together = of(key.threads).and_then(|all| round[all]);
                key.threads > 1 && !matches!((one, together), (Some(one), Some(all)) if all >= OVERLAP * one)
            })
            .collect();
        for (cost, apart) in round.iter_mut().zip(apart) {
            if apart {
                *cost = None;
            }
        }
    }

    /// Rounds in which the case that has fewest was measured.
    fn counted(&self) -> usize {
        let of = |case: usize| self.made.iter().filter(|round| round[case].is_some()).count();
        (0..self.keys.len()).map(of).min().unwrap_or(0)
    }

    pub(crate) fn made(&self) -> usize {
        self.made.len()
    }

    pub(crate) fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// Nanoseconds per operation and thread.
    pub(crate) fn ns(&self, key: Key) -> Option<f64> {
        let case = self.case(key)?;
        self.enough(self.made.iter().filter_map(|round| round[case]).collect())
    }

    /// `key` in `unit`s of the same round.
    pub(crate) fn ratio(&self, key: Key, unit: Key) -> Option<f64> {
        let (case, unit) = (self.case(key)?, self.case(unit)?);
        self.enough(self.made.iter().filter_map(|round| Some(round[case]? / round[unit]?)).collect())
    }

    fn case(&self, key: Key) -> Option<usize> {
        self.keys.iter().position(|known| *known == key)
    }

    fn enough(&self, values: Vec<f64>) -> Option<f64> {
        median(values.iter().copied()).filter(|_| 2 * values.len() > self.wanted)
    }

    fn progress(&self) -> io::Result<()> {
        let mut terminal = io::stderr();
        if terminal.is_terminal() {
            write!(terminal, "\rround {} of {}   ", self.counted(), self.wanted)?;
        }
        Ok(())
    }
}

fn measure(cores: &[usize], case: &Case<'_>) -> io::Result<Option<f64>> {
    let used = &cores[..case.key.threads];
    for _ in 0..TRIES {
        let cost = match &case.meanwhile {
            Some(meanwhile) => pinned::run_while(*cores.last().expect("one core"), &**meanwhile, used, &*case.work)?,
            None => pinned::run(used, &*case.work)?,
        };
        if cost.is_some() {
            return Ok(cost);
        }
    }
    Ok(None)
}
