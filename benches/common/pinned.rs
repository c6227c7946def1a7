//! Threads that stay on their core, and the CPU time they take: what another process does on that core is not counted.

use crate::cores::pin;
use crossbeam_utils::CachePadded;
use std::io;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Operations between two looks at the clock and at the other threads: short against a time slice, long against the looks.
const CHUNK: u64 = 4_992;
/// Chunks that count in one measurement.
const WANTED: u64 = 50;
/// Chunks before those: enough to come back to each of a thousand peers, so that what is measured is not the way of their
/// lines into the cache.
const WARM_UP: u64 = 25;
/// A thread gives up after this many.
const AT_MOST: u64 = 40 * WANTED;

/// The work of a case: which of the threads does it, and how many operations.
pub(crate) type Work<'a> = dyn Fn(usize, u64) + Sync + 'a;

/// What somebody else does every millisecond.
pub(crate) type Meanwhile<'a> = dyn Fn() + Sync + 'a;

/// The same as [`run`], while a thread on the core `elsewhere` does `meanwhile`.
pub(crate) fn run_while(
    elsewhere: usize,
    meanwhile: &Meanwhile<'_>,
    cores: &[usize],
    work: &Work<'_>,
) -> io::Result<Option<f64>> {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let _ = pin(elsewhere);
            while !over.load(Ordering::Relaxed) {
                meanwhile();
                thread::sleep(Duration::from_millis(1));
            }
        });
        let cost = run(cores, work);
        over.store(true, Ordering::Relaxed);
        cost
    })
}

/// Runs `work` on one thread per core at the same time: nanoseconds of CPU time per operation, mean of the threads. Only
/// chunks during which the other threads got on count. `None`: there were too few of them.
pub(crate) fn run(cores: &[usize], work: &Work<'_>) -> io::Result<Option<f64>> {
    let together = Together {
        work,
        start: Barrier::new(cores.len()),
        chunks: cores.iter().map(|_| CachePadded::default()).collect(),
        busy: AtomicUsize::new(cores.len()),
        gave_up: AtomicBool::new(false),
    };
    let costs: Vec<io::Result<Option<f64>>> = thread::scope(|scope| {
        let start = |(thread, core): (usize, &usize)| {
            let (together, core) = (&together, *core);
            scope.spawn(move || together.run(thread, core))
        };
        let threads: Vec<_> = cores.iter().enumerate().map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("no case panics")).collect()
    });
    let costs: Option<Vec<f64>> = costs.into_iter().collect::<io::Result<_>>()?;
    Ok(costs.map(|costs| costs.iter().sum::<f64>() / costs.len() as f64))
}

/// The threads of one measurement.
struct Together<'a> {
    work: &'a Work<'a>,
    start: Barrier,
    /// Chunks that each thread has done.
    chunks: Vec<CachePadded<AtomicU64>>,
    /// Threads that want more chunks. The others go on for their sake.
    busy: AtomicUsize,
    gave_up: AtomicBool,
}

impl Together<'_> {
    fn run(&self, thread: usize, core: usize) -> io::Result<Option<f64>> {
        let pinned = pin(core);
        (self.work)(thread, WARM_UP * CHUNK);
        self.start.wait();
        let (mut counted, mut cost, mut done) = (0, 0.0, 0);
        while self.busy.load(Ordering::Relaxed) > 0 && !self.gave_up.load(Ordering::Relaxed) {
            let others = self.others(thread);
            let before = cpu_time();
            (self.work)(thread, CHUNK);
            let chunk = cpu_time() - before;
            done += 1;
            self.chunks[thread].store(done, Ordering::Relaxed);
            if counted < WANTED && self.got_on(thread, others) {
                counted += 1;
                cost += chunk;
                if counted == WANTED {
                    self.busy.fetch_sub(1, Ordering::Relaxed);
                }
            }
            if done == AT_MOST && counted < WANTED {
                self.gave_up.store(true, Ordering::Relaxed);
            }
        }
        pinned.map(|()| (counted == WANTED).then(|| cost / (WANTED * CHUNK) as f64))
    }

    /// The chunks of the other threads, all together.
    fn others(&self, thread: usize) -> u64 {
        let all = self.chunks.iter().enumerate();
        all.filter(|(other, _)| *other != thread).map(|(_, chunks)| chunks.load(Ordering::Relaxed)).sum()
    }

    fn got_on(&self, thread: usize, before: u64) -> bool {
        self.chunks.len() == 1 || self.others(thread) != before
    }
}

/// Of this thread, in nanoseconds.
#[cfg(target_os = "linux")]
fn cpu_time() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Nobody comes here: `cores` has failed.
#[cfg(not(target_os = "linux"))]
fn cpu_time() -> f64 {
    f64::NAN
}
