//! A queue of things to do, now or later, for the workers of a process.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub(crate) struct Jobs<J> {
    heap: Mutex<Heap<J>>,
    came: Condvar,
}

struct Heap<J> {
    jobs: BinaryHeap<Due<J>>,
    pushed: u64,
}

struct Due<J> {
    at: Instant,
    nth: u64,
    job: J,
}

impl<J> Jobs<J> {
    pub(crate) fn new() -> Self {
        Jobs { heap: Mutex::new(Heap { jobs: BinaryHeap::new(), pushed: 0 }), came: Condvar::new() }
    }

    /// Does a job at a time; jobs of one time in the order they came.
    pub(crate) fn push(&self, at: Instant, job: J) {
        let mut heap = self.heap.lock().unwrap_or_else(PoisonError::into_inner);
        heap.pushed += 1;
        let nth = heap.pushed;
        heap.jobs.push(Due { at, nth, job });
        self.came.notify_one();
    }

    /// Blocks for the next job that is due; `None` if there is none for `patience`.
    pub(crate) fn next(&self, patience: Duration) -> Option<J> {
        let deadline = Instant::now() + patience;
        let mut heap = self.heap.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let now = Instant::now();
            let due = heap.jobs.peek().map_or(deadline, |first| first.at);
            if due <= now
                && let Some(first) = heap.jobs.pop()
            {
                return Some(first.job);
            }
            let left = due.min(deadline).checked_duration_since(now).filter(|left| !left.is_zero())?;
            heap = self.came.wait_timeout(heap, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl<J> Ord for Due<J> {
    /// The earliest is the greatest: a heap gives its greatest first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.nth).cmp(&(self.at, self.nth))
    }
}

impl<J> PartialOrd for Due<J> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<J> PartialEq for Due<J> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<J> Eq for Due<J> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_come_when_they_are_due_and_in_order() {
        let jobs = Jobs::new();
        let now = Instant::now();
        jobs.push(now + Duration::from_secs(1000), "much later");
        jobs.push(now + Duration::from_millis(20), "later");
        jobs.push(now, "first");
        jobs.push(now, "second");
        let patience = Duration::from_secs(10);
        assert_eq!(jobs.next(patience), Some("first"));
        assert_eq!(jobs.next(patience), Some("second"));
        assert_eq!(jobs.next(patience), Some("later"));
        assert!(now.elapsed() >= Duration::from_millis(20));
        assert_eq!(jobs.next(Duration::from_millis(1)), None);
    }
}
