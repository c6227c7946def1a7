//! One process lives through many deaths of its peer, and keeps nothing of them.

use crate::measure;
use crate::plan::{Must, Plan};
use crate::run::Run;
use crate::transport::Over;
use std::time::{Duration, Instant};

/// How much the memory of a thread may move: twice the 128 kB that glibc's allocator keeps before it gives the top of an
/// arena back, and each of these few threads has an arena. In 1,000 cycles it is far less than a connection each.
const UNTRIMMED_KB: u64 = 2 * 128;
/// How often its peer dies in `cargo test`; `PEERAGE_FAULTS_SOAK` asks for more.
const CYCLES: usize = 25;
/// Pool threads end when they have been idle for two seconds.
const IDLE: Duration = Duration::from_secs(3);
/// How long what is on its way back may take.
const NEVER: Duration = Duration::from_secs(30);

/// What a process holds.
#[derive(Debug, Clone, Copy)]
struct Held {
    descriptors: u64,
    threads: u64,
    resident_kb: u64,
}

impl Held {
    fn by(pid: u32) -> Self {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).map(Iterator::count);
        Held {
            descriptors: measure::descriptors(pid).expect("it lives"),
            threads: threads.expect("it lives") as u64,
            resident_kb: measure::resident_kb(pid).expect("it lives"),
        }
    }
}

#[test]
fn soak() {
    soak_over(Over::Tcp);
}

#[cfg(feature = "ucx")]
#[test]
fn over_ucx() {
    soak_over(Over::Ucx);
}

fn soak_over(over: Over) {
    let cycles = std::env::var("PEERAGE_FAULTS_SOAK").ok();
    let cycles = cycles.map_or(CYCLES, |text| text.parse().expect("PEERAGE_FAULTS_SOAK is a number"));
    assert!(cycles >= 10, "PEERAGE_FAULTS_SOAK must be at least 10: there is a warm-up");
    let mut plan =
        Plan::parse("tests/faults/soak.json", include_str!("soak.json")).unwrap_or_else(|why| panic!("{why}"));
    // The bounds are those of one cycle.
    for row in &mut plan.expect {
        if let Must::Be { generations, .. } = &mut row.must {
            let (least, most, more) = (*generations.start(), *generations.end(), cycles as u64 - 1);
            *generations = least + more..=most + most * more;
        }
    }
    let mut run = Run::start(&plan, over);
    let pid = run.survivor().pid();
    run.listen_for(IDLE);
    let baseline = Held::by(pid);
    let mut resident = Vec::new();
    for _ in 0..cycles {
        plan.steps.iter().for_each(|step| run.step(step));
        resident.push(Held::by(pid).resident_kb);
    }
    run.listen_for(IDLE);
    let (mut last, end) = (Held::by(pid), Instant::now() + NEVER);
    while (last.descriptors > baseline.descriptors || last.threads > baseline.threads) && Instant::now() < end {
        run.listen_for(IDLE / 10);
        last = Held::by(pid);
    }
    let part = (cycles / 10).max(3);
    let tenths: Vec<_> = resident.chunks(part).map(median).collect();
    let (warm, end) = (median(&resident[part..2 * part]), median(&resident[cycles - part..]));
    println!("{cycles} cycles; the survivor's descriptors {} → {}", baseline.descriptors, last.descriptors);
    println!("threads {} → {}", baseline.threads, last.threads);
    println!("resident {} kB at the start, then medians of {part} cycles: {tenths:?} kB", baseline.resident_kb);
    assert!(last.descriptors <= baseline.descriptors, "descriptors are left after {cycles} cycles");
    assert!(last.threads <= baseline.threads, "threads are left after {cycles} cycles");
    let (grown, allowed) = (end.saturating_sub(warm), UNTRIMMED_KB * baseline.threads);
    assert!(grown <= allowed, "memory grew by {grown} kB, more than {allowed} kB");
    run.finish(&plan.expect);
}

fn median(numbers: &[u64]) -> u64 {
    let mut numbers = numbers.to_vec();
    numbers.sort();
    numbers[numbers.len() / 2]
}
