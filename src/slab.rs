//! Where slots live: type-stable places that are used again and never freed while the table or anything of it lives.
//!
//! 1. Generations come from one counter of the table, so no two slots, and no two lives of one slot, share a word.
//! 2. A life begins by writing the version, then the word. By id one reads the word, then the version, enters, and reads
//!    the word again: that second look rejects an entrant of an earlier life as it rejects a late entrant of a bay.
//! 3. A slot is used again when its last counted reference is gone: handles, queue entries, filled bays. A late entrant
//!    without a reference needs an open gate to enter, and an open gate's bay holds a reference.

use crate::name::PeerId;
use crate::slot::Slot;
use crate::sync::lock;
use crate::transport::Transport;
use std::sync::{Mutex, OnceLock};

/// Places of the first chunks, as a power of two.
const SMALLEST: u32 = if cfg!(peerage_loom) { 0 } else { 4 };
/// Chunks of one size, as a power of two; as many more have twice the places each. So a table that grows makes a
/// sixteenth of its places more at once: the insert that waits for them, and the memory of places that nobody uses, stay small
/// beside the rest, and finding a place is arithmetic.
const ALIKE: u32 = if cfg!(peerage_loom) { 0 } else { 4 };
/// For 2²⁷ places, less those of no use.
const CHUNKS: usize = ((27 - SMALLEST - ALIKE) as usize) << ALIKE;

pub(crate) struct Slab<T: Transport> {
    chunks: [OnceLock<Box<[Slot<T>]>>; CHUNKS],
    free: Mutex<Vec<u32>>,
    /// Places made so far. Held while a chunk is made, which takes long for a large one; `free` never is.
    made: Mutex<usize>,
}

impl<T: Transport> Slab<T> {
    pub(crate) fn new() -> Self {
        Slab { chunks: [const { OnceLock::new() }; CHUNKS], free: Mutex::default(), made: Mutex::default() }
    }

    /// The place at `index`, whatever life it is in.
    #[inline(always)]
    pub(crate) fn place(&self, index: u32) -> Option<&Slot<T>> {
        let (chunk, at) = locate(index as usize);
        self.chunks.get(chunk)?.get()?.get(at)
    }

    /// A place that nobody uses; `make` makes a new one, given its index. `None`: 2²⁷ slots are in use.
    pub(crate) fn claim(&self, make: impl Fn(u32) -> Slot<T>) -> Option<&Slot<T>> {
        loop {
            if let Some(index) = lock(&self.free).pop() {
                return self.place(index);
            }
            let mut made = lock(&self.made);
            if lock(&self.free).is_empty() {
                let (chunk, _) = locate(*made);
                let empty = self.chunks.get(chunk)?;
                let new = *made..*made + chunk_len(chunk);
                let slots = new.clone().map(|index| make(index as u32)).collect();
                assert!(empty.set(slots).is_ok(), "chunks are made in order, under the lock");
                *made = new.end;
                lock(&self.free).extend(new.rev().map(|index| index as u32));
            }
        }
    }

    /// Every place, whatever life it is in. Without a lock.
    pub(crate) fn places(&self) -> impl Iterator<Item = &Slot<T>> {
        self.chunks.iter().map_while(OnceLock::get).flat_map(|chunk| chunk.iter())
    }

    /// Gives a place back. The caller dropped its last counted reference.
    pub(crate) fn give_back(&self, id: PeerId) {
        lock(&self.free).push(id.index);
    }
}

fn chunk_len(chunk: usize) -> usize {
    1 << (SMALLEST as usize + (chunk >> ALIKE))
}

/// The index, moved up by the places that chunks of half the smallest size and less would have, reads like a floating-point
/// number: its exponent tells the size of its chunk, the next bits which of those, the rest which place.
#[inline(always)]
fn locate(index: usize) -> (usize, usize) {
    let moved = index + (1 << (SMALLEST + ALIKE));
    let exponent = usize::BITS - 1 - moved.leading_zeros();
    let size = exponent - ALIKE;
    let which = (moved >> size) & ((1 << ALIKE) - 1);
    ((((size - SMALLEST) as usize) << ALIKE) + which, moved & ((1 << size) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_index_has_one_place_and_chunks_follow_each_other() {
        let mut next = 0;
        for chunk in 0..CHUNKS / 2 {
            for at in 0..chunk_len(chunk) {
                assert_eq!(locate(next), (chunk, at));
                next += 1;
            }
        }
        assert!(locate(u32::MAX as usize).0 >= CHUNKS, "an index from outside may be any number");
        let all: usize = (0..CHUNKS).map(chunk_len).sum();
        assert_eq!(locate(all - 1), (CHUNKS - 1, chunk_len(CHUNKS - 1) - 1));
        assert_eq!(locate(all).0, CHUNKS);
    }

    #[test]
    fn a_chunk_is_a_small_part_of_what_was_there_before() {
        let mut before = 0;
        for chunk in 0..CHUNKS {
            assert!(
                chunk_len(chunk) <= 1 << SMALLEST
                    || chunk_len(chunk) * (1 << ALIKE) <= before + (1 << (SMALLEST + ALIKE))
            );
            before += chunk_len(chunk);
        }
    }
}
