//! Which peer the next lease is of. Choosing costs the same for any number of peers.

use crate::pinned::Work;
use crossbeam_utils::CachePadded;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pick {
    /// All threads lease one peer.
    Same,
    /// Each thread has a peer of its own.
    Own,
    /// One of so many, each time at random: no lease finds what the one before brought into the cache.
    Random(usize),
    /// One of so many at random, then [`BURST`] leases of it: the pages of one request of 16,384 tokens, in blocks of 512.
    Bursts(usize),
}

pub(crate) const BURST: u64 = 32;

const SEED: u64 = 0x9E37_79B9_7F4A_7C15;

impl Pick {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Pick::Same => "one peer",
            Pick::Own => "a peer each",
            Pick::Random(_) => "random",
            Pick::Bursts(_) => "bursts",
        }
    }

    pub(crate) fn peers(self, threads: usize) -> usize {
        match self {
            Pick::Same => 1,
            Pick::Own => threads,
            Pick::Random(peers) | Pick::Bursts(peers) => peers,
        }
    }

    /// Work that does `one` with one of the `items`, one for each peer, again and again. As in a program that keeps its
    /// handles, the item is at hand while it stays the same: it is looked up when the peer changes.
    pub(crate) fn repeat<'a, I: Sync>(self, items: &'a [I], one: impl Fn(&I) + Sync + 'a) -> Box<Work<'a>> {
        let states: [CachePadded<AtomicU64>; 64] =
            std::array::from_fn(|thread| CachePadded::new(AtomicU64::new(SEED.wrapping_mul(thread as u64 + 1))));
        let again = move |item: &I, ops: u64| (0..ops).for_each(|_| one(item));
        match self {
            Pick::Same => Box::new(move |_, ops| again(&items[0], ops)),
            Pick::Own => Box::new(move |thread, ops| again(&items[thread], ops)),
            Pick::Random(peers) => Box::new(move |thread, ops| {
                let mut random = Random::resume(&states[thread % states.len()]);
                (0..ops).for_each(|_| again(&items[random.below(peers)], 1));
            }),
            Pick::Bursts(peers) => Box::new(move |thread, ops| {
                let mut random = Random::resume(&states[thread % states.len()]);
                (0..ops / BURST).for_each(|_| again(&items[random.below(peers)], BURST));
            }),
        }
    }
}

/// Goes on where the thread's last piece of work ended, so that every piece meets other peers.
struct Random<'a> {
    state: u64,
    kept: &'a AtomicU64,
}

impl<'a> Random<'a> {
    fn resume(kept: &'a AtomicU64) -> Self {
        Random { state: kept.load(Ordering::Relaxed), kept }
    }

    #[inline(always)]
    fn below(&mut self, end: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        ((u128::from(self.state) * end as u128) >> 64) as usize
    }
}

impl Drop for Random<'_> {
    fn drop(&mut self) {
        self.kept.store(self.state, Ordering::Relaxed);
    }
}
