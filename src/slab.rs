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

/// Places of the first chunks, as a power of two. One in models: loom sees no lock of the free list.
const SMALLEST: u32 = if cfg!(peerage_loom) { 0 } else { 4 };
/// Chunks of one size, as a power of two; as many more have twice the places each. So a table that grows makes a
/// sixteenth of its places more at once: the insert that waits for them, and the memory of places that nobody uses, stay small
/// beside the rest.
const ALIKE: u32 = 4;
/// For 2²⁷ places, less those of no use; a few in models, whose stacks are small.
const CHUNKS: usize = if cfg!(peerage_loom) { 16 } else { ((27 - SMALLEST - ALIKE) as usize) << ALIKE };
/// Bits of an index that say which place of its chunk; those above say which chunk. So finding a place is a shift and a
/// mask.
const PLACE_BITS: u32 = 23;

pub(crate) struct Slab<T: Transport> {
    chunks: [OnceLock<Box<[Slot<T>]>>; CHUNKS],
    free: Mutex<Vec<u32>>,
    /// Chunks made so far. Held while one is made, which takes long for a large one; `free` never is.
    made: Mutex<usize>,
}

impl<T: Transport> Slab<T> {
    pub(crate) fn new() -> Self {
        Slab { chunks: [const { OnceLock::new() }; CHUNKS], free: Mutex::default(), made: Mutex::default() }
    }

    /// The place at `index`, whatever life it is in.
    #[inline(always)]
    pub(crate) fn place(&self, index: u32) -> Option<&Slot<T>> {
        let (chunk, at) = (index >> PLACE_BITS, index & ((1 << PLACE_BITS) - 1));
        self.chunks.get(chunk as usize)?.get()?.get(at as usize)
    }

    /// A place that nobody uses; `make` makes a new one, given its index. `None`: 2²⁷ slots are in use.
    pub(crate) fn claim(&self, make: impl Fn(u32) -> Slot<T>) -> Option<&Slot<T>> {
        loop {
            if let Some(index) = lock(&self.free).pop() {
                return self.place(index);
            }
            let mut made = lock(&self.made);
            if lock(&self.free).is_empty() {
                let empty = self.chunks.get(*made)?;
                let first = (*made as u32) << PLACE_BITS;
                let new = first..first + chunk_len(*made) as u32;
                let slots = new.clone().map(&make).collect();
                assert!(empty.set(slots).is_ok(), "chunks are made in order, under the lock");
                *made += 1;
                lock(&self.free).extend(new.rev());
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

const _: () = assert!(CHUNKS <= 1 << (32 - PLACE_BITS), "a chunk's number fits above its places' bits");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chunk_fits_its_bits_and_all_together_are_as_many_as_promised() {
        assert!((0..CHUNKS).all(|chunk| chunk_len(chunk) <= 1 << PLACE_BITS));
        let all: usize = (0..CHUNKS).map(chunk_len).sum();
        assert_eq!(all, (1 << 27) - (1 << (SMALLEST + ALIKE)));
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
