//! Faults of this process: they delay every peer's connect and count against none.

use crate::policy::Backoff;
use crate::sync::lock;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Those of one table.
#[derive(Default)]
pub(crate) struct LocalFaults(Mutex<Faults>);

#[derive(Default)]
struct Faults {
    in_a_row: u32,
    retry_at: Option<Instant>,
}

impl LocalFaults {
    /// A connect failed by one: how long everybody waits.
    pub(crate) fn one_more(&self, backoff: &Backoff, now: Instant, random: u64) -> Duration {
        let mut faults = lock(&self.0);
        faults.in_a_row = faults.in_a_row.saturating_add(1);
        let wait = backoff.delay(faults.in_a_row, random);
        faults.retry_at = Some(now + wait);
        wait
    }

    pub(crate) fn are_over(&self) {
        *lock(&self.0) = Faults::default();
    }

    pub(crate) fn retry_at(&self) -> Option<Instant> {
        lock(&self.0).retry_at
    }
}
