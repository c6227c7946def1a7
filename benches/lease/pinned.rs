//! Threads that stay on their core, and the CPU time they take: what another process does on that core is not counted.

use crossbeam_utils::CachePadded;
pub(crate) use os::cores;
use os::{cpu_time, pin};
use std::io;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;

/// Operations between two looks at the clock and at the other thread: short against a time slice, long against the looks.
const CHUNK: u64 = 5_000;
/// Chunks that count in one measurement.
const WANTED: u64 = 100;
/// A thread gives up after this many.
const AT_MOST: u64 = 40 * WANTED;
/// Operations that count in one measurement, per thread.
pub(crate) const OPS: u64 = WANTED * CHUNK;

/// The work of a group: which of the threads does it, and how many operations.
pub(crate) type Work<'a> = dyn Fn(usize, u64) + Sync + 'a;

/// Runs `work` on one thread per core at the same time: nanoseconds of CPU time per operation, mean of the threads. Only
/// chunks during which the other thread got on count. `None`: there were too few of them.
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
        threads.into_iter().map(|thread| thread.join().expect("no group panics")).collect()
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
        (self.work)(thread, CHUNK);
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

#[cfg(target_os = "linux")]
mod os {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    use rustix::time::{ClockId, clock_gettime};
    use std::io;

    /// One or two cores that this process may use. Not two hyperthreads of one core, if there is a choice.
    pub(crate) fn cores() -> io::Result<Vec<usize>> {
        let allowed = sched_getaffinity(None)?;
        let mut cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
        let of_first = hyperthreads(cores[0]);
        cores[1..].sort_by_cached_key(|core| hyperthreads(*core) == of_first);
        cores.truncate(2);
        Ok(cores)
    }

    /// The list of a core's hyperthreads, the same text for all of them.
    fn hyperthreads(core: usize) -> String {
        let list = format!("/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list");
        std::fs::read_to_string(list).unwrap_or_default()
    }

    /// Keeps this thread on one core.
    pub(super) fn pin(core: usize) -> io::Result<()> {
        let mut only = CpuSet::new();
        only.set(core);
        Ok(sched_setaffinity(None, &only)?)
    }

    /// Of this thread, in nanoseconds.
    pub(super) fn cpu_time() -> f64 {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
    }
}

#[cfg(not(target_os = "linux"))]
mod os {
    use std::io;

    pub(crate) fn cores() -> io::Result<Vec<usize>> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "threads are pinned, and their CPU time read, on Linux only"))
    }

    pub(super) fn pin(_: usize) -> io::Result<()> {
        Ok(())
    }

    pub(super) fn cpu_time() -> f64 {
        f64::NAN
    }
}
