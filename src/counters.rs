//! What a table counts for people. Nothing is decided by it, and it publishes nothing.

use std::sync::atomic::{AtomicU64, Ordering};

/// Since the table was built.
#[derive(Default)]
pub(crate) struct Counters {
    elections: AtomicU64,
    elections_without_connect: AtomicU64,
    reports: AtomicU64,
    stale_reports: AtomicU64,
    leaked: AtomicU64,
}

impl Counters {
    pub(crate) fn elected(&self) {
        self.elections.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn elected_without_connect(&self) {
        self.elections_without_connect.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn leaked(&self) {
        self.leaked.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn report(&self) {
        self.reports.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn stale_report(&self) {
        self.stale_reports.fetch_add(1, Ordering::Relaxed);
    }

    /// Elections, those without a connect, reports, stale ones, leaked connections.
    pub(crate) fn read(&self) -> [u64; 5] {
        [&self.elections, &self.elections_without_connect, &self.reports, &self.stale_reports, &self.leaked]
            .map(|counter| counter.load(Ordering::Relaxed))
    }
}
