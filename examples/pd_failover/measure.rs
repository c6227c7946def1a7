//! What the operating system says of a process. Where there is no `/proc`, nothing.

use std::fs;

/// Open descriptors.
pub(crate) fn descriptors(pid: u32) -> Option<u64> {
    Some(fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count() as u64)
}

/// Resident memory in kilobytes.
pub(crate) fn resident_kb(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse().ok())
}

/// Processor time in seconds that this process and its children that have ended took so far.
pub(crate) fn processor_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The second field is the program's name in brackets, which may hold anything; `utime` is the 14th.
    let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: Option<u64> = fields.get(11..15)?.iter().map(|field| field.parse::<u64>().ok()).sum();
    Some(ticks? as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Processors this process may use.
pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_descriptors_memory_and_time() {
        let me = std::process::id();
        let before = descriptors(me).unwrap();
        let file = fs::File::open("/dev/null").unwrap();
        assert!(descriptors(me).unwrap() > 2 && before > 2);
        drop(file);
        assert!(resident_kb(me).unwrap() > 100);
        assert!(processor_seconds().is_some());
        assert_eq!(descriptors(u32::MAX), None);
    }
}
