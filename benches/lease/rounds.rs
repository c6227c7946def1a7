//! Rounds over all groups, and what their medians say.
//!
//! A round measures every group on one thread and then on two. Ratios are taken within a round; the table shows medians.
//!
//! Two threads that ran one after the other show no contention, whatever the group does. So the two-thread half of a round
//! counts only if its threads saw each other get on (pinned.rs), and if the control, whose two threads share one counter,
//! cost at least [`OVERLAP`] times its one thread in that round. Otherwise the round is repeated; after [`AT_MOST`] rounds
//! the rows say `no overlap`.

use crate::pinned::{self, OPS, Work};
use std::io::{self, IsTerminal, Write};

const WANTED: usize = 11;
const AT_MOST: usize = 3 * WANTED;
const OVERLAP: f64 = 1.5;

pub(crate) struct Group<'a> {
    name: &'static str,
    work: Box<Work<'a>>,
}

impl<'a> Group<'a> {
    pub(crate) fn new(name: &'static str, work: impl Fn(usize, u64) + Sync + 'a) -> Self {
        Group { name, work: Box::new(work) }
    }
}

pub(crate) struct Rounds {
    names: Vec<&'static str>,
    floor: &'static str,
    control: &'static str,
    cores: Vec<usize>,
    made: Vec<Round>,
}

/// Nanoseconds per operation, by group.
struct Round {
    one: Vec<f64>,
    /// `None` on a machine with one core, and in a round without overlap.
    two: Option<Vec<f64>>,
}

impl Rounds {
    pub(crate) fn run(groups: &[Group<'_>], floor: &'static str, control: &'static str) -> io::Result<Self> {
        let names = groups.iter().map(|group| group.name).collect();
        let mut rounds = Rounds { names, floor, control, cores: pinned::cores()?, made: Vec::new() };
        while rounds.counted() < WANTED && rounds.made.len() < AT_MOST {
            let round = rounds.round(groups)?;
            rounds.made.push(round);
            rounds.progress()?;
        }
        Ok(rounds)
    }

    fn round(&self, groups: &[Group<'_>]) -> io::Result<Round> {
        let (mut one, mut two) = (Vec::new(), self.has_pairs().then(Vec::new));
        for group in groups {
            one.push(pinned::run(&self.cores[..1], &*group.work)?.expect("one thread waits for nobody"));
            if let Some(pairs) = &mut two {
                match pinned::run(&self.cores, &*group.work)? {
                    Some(cost) => pairs.push(cost),
                    None => two = None,
                }
            }
        }
        let control = self.group(self.control);
        let two = two.filter(|two: &Vec<f64>| two[control] >= OVERLAP * one[control]);
        Ok(Round { one, two })
    }

    /// Whether there are two cores to run on.
    pub(crate) fn has_pairs(&self) -> bool {
        self.cores.len() > 1
    }

    /// One thread of `name` in floors.
    pub(crate) fn to_floor(&self, name: &str) -> f64 {
        let (group, floor) = (self.group(name), self.group(self.floor));
        median(self.made.iter().map(|round| round.one[group] / round.one[floor])).expect("a round was made")
    }

    /// Two threads of `name` in ones of it. `None`: too few rounds overlapped.
    pub(crate) fn pair_to_one(&self, name: &str) -> Option<f64> {
        let group = self.group(name);
        self.of_pairs(|one, two| two[group] / one[group])
    }

    pub(crate) fn print(&self) {
        println!("ns of CPU time per operation, medians of {} rounds of {OPS} operations", self.made.len());
        match self.cores[..] {
            [one, two] => println!("threads pinned to cores {one} and {two}"),
            _ => println!("one core: no rows for two threads"),
        }
        let repeated = self.made.len() - self.counted();
        if repeated > 0 {
            println!("{repeated} rounds without overlap of the two threads do not count for 2t");
        }
        let floor = self.group(self.floor);
        println!("| group | 1t ns | 1t / floor | 2t_same_peer ns | 2t / floor | 2t / 1t |\n|---|---|---|---|---|---|");
        for (group, name) in self.names.iter().enumerate() {
            let one = median(self.made.iter().map(|round| round.one[group])).expect("a round was made");
            print!("| {name} | {one:.1} | {:.2} |", self.to_floor(name));
            let pair = [
                self.of_pairs(|_, two| two[group]).map(|ns| format!("{ns:.1}")),
                self.of_pairs(|_, two| two[group] / two[floor]).map(|ratio| format!("{ratio:.2}")),
                self.pair_to_one(name).map(|ratio| format!("{ratio:.2}")),
            ];
            for cell in pair {
                print!(" {} |", cell.as_deref().unwrap_or(if self.has_pairs() { "no overlap" } else { "-" }));
            }
            println!();
        }
    }

    /// The median of `value` of a round's ones and twos, if enough rounds count.
    fn of_pairs(&self, value: impl Fn(&[f64], &[f64]) -> f64) -> Option<f64> {
        let pairs = self.made.iter().filter_map(|round| Some(value(&round.one, round.two.as_ref()?)));
        median(pairs).filter(|_| self.counted() >= WANTED)
    }

    /// Rounds that are good for what this machine can show.
    fn counted(&self) -> usize {
        self.made.iter().filter(|round| round.two.is_some() || !self.has_pairs()).count()
    }

    fn group(&self, name: &str) -> usize {
        self.names.iter().position(|known| *known == name).expect("a group of this run")
    }

    fn progress(&self) -> io::Result<()> {
        let mut terminal = io::stderr();
        if terminal.is_terminal() {
            let end = if self.counted() == WANTED || self.made.len() == AT_MOST { "\n" } else { "" };
            write!(terminal, "\rround {} of {WANTED}{end}", self.counted())?;
        }
        Ok(())
    }
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
