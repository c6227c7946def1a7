//! What one peer keeps of ours beyond its end: pages of transfers that have ended for their callers, and of grants that
//! were revoked, while something may still touch them.
//!
//! The counts publish nothing: a page is given back by what proves that it is quiescent.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Debug, Default)]
pub(crate) struct Quarantine {
    transfers: AtomicU64,
    grants: AtomicU64,
    bytes: AtomicU64,
}

/// Whose page it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    Transfer,
    Grant,
}

/// How much is kept, at a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) transfers: u64,
    pub(crate) grants: u64,
    pub(crate) bytes: u64,
}

impl Quarantine {
    pub(crate) fn enter(&self, kept: Kept, bytes: usize) {
        self.pages(kept).fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// What has entered leaves once.
    pub(crate) fn leave(&self, kept: Kept, bytes: usize) {
        self.pages(kept).fetch_sub(1, Relaxed);
        self.bytes.fetch_sub(bytes as u64, Relaxed);
    }

    pub(crate) fn counts(&self) -> Counts {
        let read = |count: &AtomicU64| count.load(Relaxed);
        Counts { transfers: read(&self.transfers), grants: read(&self.grants), bytes: read(&self.bytes) }
    }

    /// How many bytes there are, if no more may come.
    pub(crate) fn is_full(&self, limit: u64) -> Option<u64> {
        Some(self.bytes.load(Relaxed)).filter(|bytes| *bytes >= limit)
    }

    fn pages(&self, kept: Kept) -> &AtomicU64 {
        match kept {
            Kept::Transfer => &self.transfers,
            Kept::Grant => &self.grants,
        }
    }
}

impl std::iter::Sum for Counts {
    fn sum<I: Iterator<Item = Counts>>(all: I) -> Counts {
        all.fold(Counts::default(), |sum, one| Counts {
            transfers: sum.transfers + one.transfers,
            grants: sum.grants + one.grants,
            bytes: sum.bytes + one.bytes,
        })
    }
}

#[cfg(all(test, not(peerage_loom)))]
mod tests {
    use super::*;

    #[test]
    fn pages_of_both_kinds_are_counted_apart_and_their_bytes_together() {
        let quarantine = Quarantine::default();
        quarantine.enter(Kept::Transfer, 100);
        quarantine.enter(Kept::Grant, 20);
        assert_eq!(quarantine.counts(), Counts { transfers: 1, grants: 1, bytes: 120 });
        assert_eq!((quarantine.is_full(121), quarantine.is_full(120)), (None, Some(120)));
        quarantine.leave(Kept::Transfer, 100);
        assert_eq!(quarantine.counts(), Counts { transfers: 0, grants: 1, bytes: 20 });
        assert_eq!([quarantine.counts(); 2].into_iter().sum::<Counts>().bytes, 40);
    }
}
