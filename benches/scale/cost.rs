//! Costs at one size, in microseconds of CPU time: medians of rounds.

use crate::median::median;
use crate::wire::{Anywhere, Wire};
use crate::{cpu, fill, names};
use peerage::{PeerTable, Removed};
use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

const ROUNDS: usize = 21;
/// Peers that come and go in one round.
const BATCH: usize = 64;
const LOOKUPS: usize = 10_000;

pub(crate) struct Costs {
    /// `insert_many` of all.
    pub(crate) fill: f64,
    /// One peer more and one less: on the calling thread.
    pub(crate) insert: f64,
    pub(crate) remove: f64,
    /// Both together, until it is Removed: on all threads.
    pub(crate) cycle: f64,
    /// `PeerTable::peer` of one name again and again, and of all names in no order.
    pub(crate) hot_name: f64,
    pub(crate) any_name: f64,
    /// The dearest insert when a table of this size was filled one by one.
    pub(crate) worst: f64,
}

pub(crate) fn at(peers: usize) -> Result<Costs, Box<dyn Error>> {
    let names = names(peers);
    let worst = worst_insert(&names)?;
    let table = PeerTable::builder(Wire::new(|_| {})).build()?;
    let before = cpu::of_thread();
    let all = fill(&table, &names)?;
    let fill = cpu::of_thread() - before;
    let (mut insert, mut remove, mut cycle) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS + 1 {
        let fresh: Vec<_> = (0..BATCH).map(|n| format!("fresh-{round}-{n}")).collect();
        let began = [cpu::of_thread(), cpu::of_process()];
        let peers: Vec<_> = fresh.iter().map(|name| table.insert(name.as_str(), Anywhere)).collect::<Result<_, _>>()?;
        let inserted = cpu::of_thread();
        let removals: Vec<_> = peers.iter().map(|peer| peer.remove(far())).collect();
        let removed = cpu::of_thread();
        for removal in removals {
            if removal.wait()? != Removed::Removed {
                return Err("a peer that nobody used was not removed".into());
            }
        }
        drop(peers);
        let each = |microseconds: f64| microseconds / BATCH as f64;
        if round > 0 {
            // In the first one the slab may grow.
            insert.push(each(inserted - began[0]));
            remove.push(each(removed - inserted));
            cycle.push(each(cpu::of_process() - began[1]));
        }
    }
    let hot_name = lookups(&table, |_| names[0].as_str());
    // A step that shares no factor with any size: every name in turn, no two neighbours.
    let any_name = lookups(&table, |n| names[n * 7_919 % names.len()].as_str());
    drop(all);
    let [insert, remove, cycle] = [insert, remove, cycle].map(middle);
    Ok(Costs { fill, insert, remove, cycle, hot_name, any_name, worst })
}

fn worst_insert(names: &[peerage::PeerName]) -> Result<f64, Box<dyn Error>> {
    let table = PeerTable::builder(Wire::new(|_| {})).build()?;
    let mut worst: f64 = 0.0;
    for name in names {
        let before = cpu::of_thread();
        table.insert(name.clone(), Anywhere)?;
        worst = worst.max(cpu::of_thread() - before);
    }
    Ok(worst)
}

fn lookups<'a>(table: &PeerTable<Wire>, name: impl Fn(usize) -> &'a str) -> f64 {
    let round = |_| {
        let before = cpu::of_thread();
        for n in 0..LOOKUPS {
            black_box(table.peer(name(n)).expect("it was inserted"));
        }
        (cpu::of_thread() - before) / LOOKUPS as f64
    };
    middle((0..ROUNDS).map(round))
}

fn far() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn middle(values: impl IntoIterator<Item = f64>) -> f64 {
    median(values).expect("there are rounds")
}
