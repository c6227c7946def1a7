//! Writes through a table, beside the same writes by NIXL's bare C API, to the same memory of the same process.

use crate::bare::Bare;
use crate::median::median;
use crate::process::say;
use crate::served::Served;
use crate::{MIB, served};
use peerage::transport::nixl::Nixl;
use peerage::{Lease, Outcome, PeerTable, Region, RemoteSlice, Transfer};
use std::collections::VecDeque;
use std::error::Error;
use std::time::{Duration, Instant};

/// Writes that are under way at once, each to a page of its own.
pub(crate) const DEPTH: usize = 16;

/// A line for each size: KiB; MiB per second through the table, and bare; the ratio. Medians, the last of the pairs' ratios.
pub(crate) fn measure(pairs: usize) -> Result<(), Box<dyn Error>> {
    let nixl = Nixl::named(served::BORROWER.try_into()?)?;
    let bare = Bare::new(nixl.library(), DEPTH * MIB);
    let served = Served::start("served")?;
    let table = PeerTable::builder(nixl).build()?;
    let peer = table.insert("served", served.address.clone())?;
    peer.wait_ready(Instant::now() + Duration::from_secs(10))?;
    let local = Region::zeroed(DEPTH * MIB);
    local.slice(0..DEPTH * MIB)?.write(0, &vec![7; DEPTH * MIB])?;
    table.register(&local)?;
    bare.load(&served.address);
    for (len, writes) in [(64 << 10, 16_000), (MIB, 2_000)] {
        let rate = |took: Duration| (writes * len) as f64 / MIB as f64 / took.as_secs_f64();
        let ours = || Ok::<_, Box<dyn Error>>(rate(by_table(&peer.lease()?, &local, &served.grants, len, writes)?));
        let theirs = || rate(bare.write(len, writes, DEPTH));
        let mut measured = Vec::new();
        for pair in 0..pairs {
            let (ours, theirs) = if pair % 2 == 0 {
                (ours()?, theirs())
            } else {
                let theirs = theirs();
                (ours()?, theirs)
            };
            measured.push([ours, theirs, ours / theirs]);
        }
        let [Some(ours), Some(theirs), Some(ratio)] = [0, 1, 2].map(|at| median(measured.iter().map(|one| one[at])))
        else {
            return Err("no pair".into());
        };
        say(&[(len >> 10) as f64, ours, theirs, ratio]);
    }
    Ok(())
}

fn by_table(
    lease: &Lease<Nixl>,
    local: &Region,
    grants: &[RemoteSlice],
    len: usize,
    writes: usize,
) -> Result<Duration, Box<dyn Error>> {
    let start = Instant::now();
    let mut running = VecDeque::<Transfer>::new();
    let finish = |transfer: Transfer| match transfer.wait(Instant::now() + Duration::from_secs(30)) {
        Some(Outcome::Done) => Ok(()),
        other => Err(format!("a write ended with {other:?}")),
    };
    for nth in 0..writes {
        if running.len() == DEPTH
            && let Some(oldest) = running.pop_front()
        {
            finish(oldest)?;
        }
        let at = nth % DEPTH;
        let page = RemoteSlice { len: len as u64, ..grants[at] };
        running.push_back(lease.write(&local.slice(at * MIB..at * MIB + len)?, page)?);
    }
    running.into_iter().try_for_each(finish)?;
    Ok(start.elapsed())
}
