//! Writes through a table over `Nixl`, beside the same writes by NIXL's bare C API, to the same memory of the same process.
//!
//! `cargo bench --features nixl --bench nixl`. Pairs alternate; what is printed are medians, and the median of the pairs' ratios.

mod bare;
mod served;

use bare::Bare;
use peerage::transport::nixl::Nixl;
use peerage::{Lease, Outcome, PeerTable, Region, RemoteSlice, Transfer};
use served::Served;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

const PAIRS: usize = 21;
/// Writes that are under way at once.
const DEPTH: usize = 16;
const MIB: usize = 1 << 20;

fn main() {
    if std::env::args().any(|arg| arg == served::ROLE) {
        return served::serve();
    }
    let nixl = match Nixl::builder().name("here".try_into().unwrap()).build() {
        Ok(nixl) => nixl,
        Err(error) => return println!("SKIPPED: {error}"),
    };
    let bare = Bare::new(nixl.library(), DEPTH * MIB);
    let served = Served::start();
    let table = PeerTable::builder(nixl).build().unwrap();
    let peer = table.insert("served", served.address.clone()).unwrap();
    peer.wait_ready(Instant::now() + Duration::from_secs(10)).unwrap();
    let local = Region::zeroed(DEPTH * MIB);
    table.register(&local).unwrap();
    bare.load(&served.address);

    println!(
        "| write of | through the table, MiB/s | bare, MiB/s | ratio, median of {PAIRS} pairs | one alone: table, us | bare, us |"
    );
    println!("|---|---|---|---|---|---|");
    for (len, writes) in [(64 << 10, 4000), (MIB, 600)] {
        let rate = |took: Duration| (writes * len) as f64 / MIB as f64 / took.as_secs_f64();
        let (mut ours, mut theirs, mut ratios) = (vec![], vec![], vec![]);
        for pair in 0..PAIRS {
            let ours_now = || rate(by_table(&peer.lease().unwrap(), &local, &served.grants, len, writes, DEPTH));
            let theirs_now = || rate(bare.write(len, writes, DEPTH));
            let (one, other) = if pair % 2 == 0 {
                let one = ours_now();
                (one, theirs_now())
            } else {
                let other = theirs_now();
                (ours_now(), other)
            };
            ours.push(one);
            theirs.push(other);
            ratios.push(one / other);
        }
        let alone = |took: Duration| took.as_secs_f64() * 1e6 / 200.0;
        let ours_alone = alone(by_table(&peer.lease().unwrap(), &local, &served.grants, len, 200, 1));
        let theirs_alone = alone(bare.write(len, 200, 1));
        let [ours, theirs, ratio] = [ours, theirs, ratios].map(median);
        println!("| {} KiB | {ours:.0} | {theirs:.0} | {ratio:.2} | {ours_alone:.0} | {theirs_alone:.0} |", len >> 10);
    }
}

fn by_table(
    lease: &Lease<Nixl>,
    local: &Region,
    grants: &[RemoteSlice],
    len: usize,
    writes: usize,
    depth: usize,
) -> Duration {
    let start = Instant::now();
    let mut running = VecDeque::<Transfer>::new();
    let finish = |transfer: Transfer| {
        assert_eq!(transfer.wait(Instant::now() + Duration::from_secs(30)), Some(Outcome::Done));
    };
    for nth in 0..writes {
        if running.len() == depth {
            finish(running.pop_front().unwrap());
        }
        let at = nth % depth;
        let page = RemoteSlice { len: len as u64, ..grants[at] };
        running.push_back(lease.write(&local.slice(at * MIB..at * MIB + len).unwrap(), page).unwrap());
    }
    running.into_iter().for_each(finish);
    start.elapsed()
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}
