//! What a table costs as it grows: `cargo bench --bench scale`. With `-- --check` exit status 1 when a bound is broken, with
//! `-- --json FILE` a line for each number.
//!
//! Costs are CPU time: of the calling thread, pinned, and of the whole process where other threads work too. Growth is
//! judged as a ratio within the run, and by what is allocated. Memory is measured in a process per size (memory.rs).

mod cost;
mod cpu;
#[path = "../common/lines.rs"]
mod lines;
#[path = "../common/median.rs"]
mod median;
mod memory;
mod report;
#[path = "../common/wire.rs"]
mod wire;

use cost::Costs;
use lines::Lines;
use peerage::{InsertError, Peer, PeerName, PeerTable};
use report::Report;
use std::error::Error;
use std::process::ExitCode;
use wire::{Anywhere, Wire};

const SIZES: [usize; 4] = [10, 1_000, 10_000, 65_536];

/// What grows like the logarithm of the peers grows by this from the smallest table to the largest.
const LOGARITHMIC: f64 = 4.8;
/// Growth of the bytes per peer that `insert_many` asks for; a copy of the names per peer would make it tens.
const ONE_COPY: f64 = 1.3;
const FILL_MS: f64 = 1_000.0;

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().is_some_and(|first| first == memory::MEASURE) {
        memory::measure(arguments.next().ok_or("how many peers?")?.parse()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut lines = Lines::of("scale")?;
    cpu::pin()?;
    let mut report = Report::default();
    for peers in SIZES {
        let Costs { fill, insert, remove, cycle, hot_name, any_name, worst } = cost::at(peers)?;
        report.add("insert", peers, insert, "us");
        report.add("remove", peers, remove, "us");
        report.add("insert_and_remove_all_threads", peers, cycle, "us");
        report.add("insert_worst", peers, worst, "us");
        report.add("name_hot", peers, hot_name * 1e3, "ns");
        report.add("name_any", peers, any_name * 1e3, "ns");
        report.add("insert_many", peers, fill / 1e3, "ms");
        let memory = memory::of(peers)?;
        report.add("insert_and_remove_asked", peers, memory.cycle, "bytes");
        report.add("place", peers, memory.place, "bytes");
        report.add("insert_many_asked_per_peer", peers, memory.asked, "bytes");
        report.add("idle_peer_allocated", peers, memory.idle[0], "bytes");
        report.add("idle_peer_resident", peers, memory.idle[1], "bytes");
        report.add("connected_peer_allocated", peers, memory.connected[0], "bytes");
        report.add("connected_peer_resident", peers, memory.connected[1], "bytes");
    }
    report.print();
    report.put(&mut lines)?;
    judge(&report, &mut lines)?;
    Ok(lines.end())
}

fn judge(report: &Report, lines: &mut Lines) -> Result<(), Box<dyn Error>> {
    let [smallest, second, .., largest] = SIZES;
    let growth = |case, from| report.value(case, largest) / report.value(case, from);
    // A large table is not in the caches, whatever is done with it: what a look-up of any name grows by is the machine's.
    let to_look_up = |case| growth(case, smallest) / growth("name_any", smallest);
    for (what, value, bound) in [
        ("growth of the bytes one insert and remove ask for", growth("insert_and_remove_asked", smallest), LOGARITHMIC),
        ("growth of insert, in that of any look-up", to_look_up("insert"), 1.0),
        ("growth of remove, in that of any look-up", to_look_up("remove"), 1.0),
        ("growth of both on all threads, in that of any look-up", to_look_up("insert_and_remove_all_threads"), 1.0),
        ("growth of the bytes insert_many asks for per peer", growth("insert_many_asked_per_peer", second), ONE_COPY),
        ("ms of CPU time for insert_many of 65,536 peers", report.value("insert_many", largest), FILL_MS),
    ] {
        lines.bound(what, Some(value), ..=bound)?;
    }
    Ok(())
}

fn names(peers: usize) -> Vec<PeerName> {
    (0..peers).map(|peer| PeerName::new(&format!("worker-{peer}")).expect("a name")).collect()
}

fn fill(table: &PeerTable<Wire>, names: &[PeerName]) -> Result<Vec<Peer<Wire>>, InsertError> {
    table.insert_many(names.iter().map(|name| (name.clone(), Anywhere)))
}
