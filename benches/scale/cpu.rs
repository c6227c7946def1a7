//! CPU time, of the calling thread on its own core and of the whole process, in microseconds.

pub(crate) use os::{of_process, of_thread, pin};

#[cfg(target_os = "linux")]
mod os {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    use rustix::time::{ClockId, clock_gettime};
    use std::io;

    /// Keeps this thread, and no other that runs already, on one core.
    pub(crate) fn pin() -> io::Result<()> {
        let allowed = sched_getaffinity(None)?;
        let mut only = CpuSet::new();
        only.set((0..CpuSet::MAX_CPU).rev().find(|core| allowed.is_set(*core)).expect("it runs on one"));
        Ok(sched_setaffinity(None, &only)?)
    }

    pub(crate) fn of_thread() -> f64 {
        microseconds(ClockId::ThreadCPUTime)
    }

    pub(crate) fn of_process() -> f64 {
        microseconds(ClockId::ProcessCPUTime)
    }

    fn microseconds(clock: ClockId) -> f64 {
        let time = clock_gettime(clock);
        time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
    }
}

#[cfg(not(target_os = "linux"))]
mod os {
    use std::io;

    pub(crate) fn pin() -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "threads are pinned, and their CPU time read, on Linux only"))
    }

    pub(crate) fn of_thread() -> f64 {
        f64::NAN
    }

    pub(crate) fn of_process() -> f64 {
        f64::NAN
    }
}
