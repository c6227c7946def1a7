//! What peers take: bytes asked of the allocator, and pages the system gives. Measured in a process of its own, because memory
//! that was given back stays with the process and would hide what the next table takes.

use crate::{Anywhere, Wire, fill, names};
use peerage::{PeerName, PeerTable, Phase};
use std::alloc::{GlobalAlloc, Layout, System};
use std::error::Error;
use std::hint::black_box;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The first argument of a process that measures: the second one is how many peers.
pub(crate) const MEASURE: &str = "--memory-of";

/// Bytes per peer.
pub(crate) struct PerPeer {
    /// All that one peer more and one less ask for, on all threads.
    pub(crate) cycle: f64,
    /// Of a place that nobody uses: the growth of the slab by its next chunk.
    pub(crate) place: f64,
    /// All that `insert_many` asked for, given back or not.
    pub(crate) asked: f64,
    /// Held by the process: asked for, and resident.
    pub(crate) idle: [f64; 2],
    pub(crate) connected: [f64; 2],
}

/// Measures `peers` in another process.
pub(crate) fn of(peers: usize) -> Result<PerPeer, Box<dyn Error>> {
    let output = Command::new(std::env::current_exe()?).args([MEASURE, &peers.to_string()]).output()?;
    let text = String::from_utf8(output.stdout)?;
    let numbers: Vec<f64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let [cycle, place, asked, idle, idle_resident, connected, connected_resident] = numbers[..] else {
        return Err(format!("{}: {text:?} {:?}", output.status, String::from_utf8_lossy(&output.stderr)).into());
    };
    let (idle, connected) = ([idle, idle_resident], [connected, connected_resident]);
    Ok(PerPeer { cycle, place, asked, idle, connected })
}

/// The other process: prints what [`of`] reads.
pub(crate) fn measure(peers: usize) -> Result<(), Box<dyn Error>> {
    COUNTS.store(true, Ordering::Relaxed);
    let table = PeerTable::builder(Wire::new(|_| {})).build()?;
    let names = names(peers);
    let warm = [held(), resident()?];
    let asked_before = ASKED.load(Ordering::Relaxed);
    let all = fill(&table, &names)?;
    let asked = ASKED.load(Ordering::Relaxed) - asked_before;
    let per_peer = |now: [u64; 2]| [0, 1].map(|of| (now[of] as f64 - warm[of] as f64) / peers as f64);
    let idle = per_peer([held(), resident()?]);
    for peer in &all {
        // It asks; in parts, so that the line for a permit is no part of the measurement.
        drop(peer.lease());
        while peer.phase() != Phase::Ready {
            thread::yield_now();
        }
        black_box(peer.lease()?.0);
    }
    let connected = per_peer([held(), resident()?]);
    let place = place(&table, peers)?;
    let cycle = cycle(&table)?;
    println!(
        "{cycle} {place} {} {} {} {} {}",
        asked as f64 / peers as f64,
        idle[0],
        idle[1],
        connected[0],
        connected[1]
    );
    Ok(())
}

/// Inserts until the slab has grown twice: what the first chunk took, by the peers that found a place in it.
fn place(table: &PeerTable<Wire>, peers: usize) -> Result<f64, Box<dyn Error>> {
    let mut kept = Vec::new();
    let mut took = Vec::new();
    for n in 0..peers + 64 {
        let name = PeerName::new(&format!("more-{n}"))?;
        kept.reserve(1);
        let before = held();
        kept.push(table.insert(name, Anywhere)?);
        took.push(held().saturating_sub(before));
    }
    let one = {
        let mut sorted = took.clone();
        sorted.sort_unstable();
        sorted[sorted.len() / 2]
    };
    // A chunk is of sixteen places at least; nothing else that an insert allocates is as large.
    let grew: Vec<_> = took.iter().enumerate().filter(|(_, took)| **took > 8 * one.max(1_000)).collect();
    let [(first, chunk), (second, _), ..] = grew[..] else { return Err("the slab did not grow twice".into()) };
    Ok((chunk - one) as f64 / (second - first) as f64)
}

fn cycle(table: &PeerTable<Wire>) -> Result<f64, Box<dyn Error>> {
    const CYCLES: u32 = 64;
    let before = ASKED.load(Ordering::Relaxed);
    for n in 0..CYCLES {
        let peer = table.insert(PeerName::new(&format!("fresh-{n}"))?, Anywhere)?;
        peer.remove(Instant::now() + Duration::from_secs(60)).wait()?;
    }
    Ok((ASKED.load(Ordering::Relaxed) - before) as f64 / f64::from(CYCLES))
}

/// The system's allocator, which counts when it is told to.
pub(crate) struct Counting;

static COUNTS: AtomicBool = AtomicBool::new(false);
static ASKED: AtomicU64 = AtomicU64::new(0);
static GIVEN_BACK: AtomicU64 = AtomicU64::new(0);

fn held() -> u64 {
    ASKED.load(Ordering::Relaxed) - GIVEN_BACK.load(Ordering::Relaxed)
}

fn count(counter: &AtomicU64, bytes: usize) {
    if COUNTS.load(Ordering::Relaxed) {
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

// SAFETY: every call is passed on to the system's allocator as it came; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(&ASKED, layout.size());
        // SAFETY: the caller's duties are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(&GIVEN_BACK, layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(&GIVEN_BACK, layout.size());
        count(&ASKED, size);
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, size) }
    }
}

/// Bytes of this process in memory.
fn resident() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = status.split(' ').nth(1).ok_or("no resident size")?.parse()?;
    Ok(pages * rustix::param::page_size() as u64)
}
