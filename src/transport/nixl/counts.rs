//! What became of those who connected to us.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) accepted: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) unanswerable: AtomicU64,
    pub(super) misbehaved: AtomicU64,
    pub(super) goodbyes: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) duplicates: AtomicU64,
    pub(super) outdated: AtomicU64,
}

impl Counts {
    pub(super) fn add(count: &AtomicU64) {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

impl From<&Counts> for InboundCounts {
    fn from(counts: &Counts) -> Self {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        InboundCounts {
            accepted: count(&counts.accepted),
            refused: count(&counts.refused),
            unanswerable: count(&counts.unanswerable),
            misbehaved: count(&counts.misbehaved),
            goodbyes: count(&counts.goodbyes),
            lost: count(&counts.lost),
            duplicates: count(&counts.duplicates),
            outdated: count(&counts.outdated),
        }
    }
}

/// What became of those who connected to us, since the transport was made.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InboundCounts {
    /// Hellos that were answered with a welcome.
    pub accepted: u64,
    /// Hellos we refused: another name, a duplicate, no place.
    pub refused: u64,
    /// Hellos whose sender NIXL could not connect, for an answer.
    pub unanswerable: u64,
    /// Messages that are none of ours, and connections that ended because of what came over them.
    pub misbehaved: u64,
    /// Connections whose dialers said goodbye: they removed us, or shut down.
    pub goodbyes: u64,
    /// Connections whose dialers could not be answered any more.
    pub lost: u64,
    /// Messages dropped because they had come before.
    pub duplicates: u64,
    /// Messages dropped because their sender had connected again, with a newer generation, before they came.
    pub outdated: u64,
}
