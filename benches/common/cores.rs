//! Which cores there are, and staying on one.

pub(crate) use os::{cores, pin};

#[cfg(target_os = "linux")]
mod os {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    use std::io;

    /// The cores that this process may use, hyperthreads of one core far apart: the first n are of as many cores as can be.
    pub(crate) fn cores() -> io::Result<Vec<usize>> {
        let allowed = sched_getaffinity(None)?;
        let mut cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
        let siblings: Vec<_> = cores.iter().map(|core| hyperthreads(*core)).collect();
        let nth_of_core = |at: usize| siblings[..at].iter().filter(|other| **other == siblings[at]).count();
        let mut order: Vec<usize> = (0..cores.len()).collect();
        order.sort_by_key(|at| nth_of_core(*at));
        cores = order.into_iter().map(|at| cores[at]).collect();
        Ok(cores)
    }

    /// The list of a core's hyperthreads, the same text for all of them.
    fn hyperthreads(core: usize) -> String {
        let list = format!("/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list");
        std::fs::read_to_string(list).unwrap_or_else(|_| core.to_string())
    }

    /// Keeps this thread, and those it starts from here on, on one core.
    pub(crate) fn pin(core: usize) -> io::Result<()> {
        let mut only = CpuSet::new();
        only.set(core);
        Ok(sched_setaffinity(None, &only)?)
    }
}

#[cfg(not(target_os = "linux"))]
mod os {
    use std::io;

    pub(crate) fn cores() -> io::Result<Vec<usize>> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "threads are pinned on Linux only"))
    }

    pub(crate) fn pin(_: usize) -> io::Result<()> {
        Ok(())
    }
}
