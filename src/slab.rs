//! Where slots live: type-stable places that are used again and never freed while the table or anything of it lives.
//!
//! 1. Generations come from one counter of the table, so no two slots, and no two lives of one slot, share a word.
//! 2. A life begins by writing the version, then the word. By id one reads the word, then the version, enters, and reads
//!    the word again: that second look rejects an entrant of an earlier life as it rejects a late entrant of a bay.
//! 3. A slot is used again when its last counted reference is gone: handles, queue entries, filled bays. A late entrant
//!    without a reference needs an open gate to enter, and an open gate's bay holds a reference.

use crate::name::PeerId;
use crate::slot::{Slot, SlotRef};
use crate::sync::lock;
use crate::transport::Transport;
use std::marker::PhantomData;
use std::ptr;
use std::slice;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Places of the first chunks, as a power of two. One in models: loom sees no lock of the free list.
const SMALLEST: u32 = if cfg!(peerage_loom) { 0 } else { 4 };
/// Chunks of one size, as a power of two; as many more have twice the places each. So a table that grows makes a
/// sixteenth of its places more at once: the insert that waits for them, and the memory of places that nobody uses, stay small
/// beside the rest.
const ALIKE: u32 = 4;
/// For 2²⁷ − 256 places; a few in models, whose stacks are small.
const CHUNKS: usize = if cfg!(peerage_loom) { 16 } else { ((27 - SMALLEST - ALIKE) as usize) << ALIKE };
/// Bits of an index that say which place of its chunk; those above say which chunk. So finding a place is a shift, one load
/// and an addition.
const PLACE_BITS: u32 = 23;

pub(crate) struct Slab<T: Transport> {
    /// The first place of each chunk, null until it is made. Pointers alone: a look-up by id waits for this load.
    chunks: [AtomicPtr<Slot<T>>; CHUNKS],
    free: Mutex<Vec<u32>>,
    /// Chunks made so far. Held while one is made, which takes long for a large one; `free` never is.
    made: Mutex<usize>,
    owned: PhantomData<Slot<T>>,
}

impl<T: Transport> Slab<T> {
    pub(crate) fn new() -> Self {
        Slab {
            chunks: [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS],
            free: Mutex::default(),
            made: Mutex::default(),
            owned: PhantomData,
        }
    }

    /// The place at `index`, whatever life it is in.
    #[inline(always)]
    pub(crate) fn place(&self, index: u32) -> Option<&Slot<T>> {
        self.chunk((index >> PLACE_BITS) as usize)?.get(index as usize & ((1 << PLACE_BITS) - 1))
    }

    #[inline(always)]
    fn chunk(&self, chunk: usize) -> Option<&[Slot<T>]> {
        // Acquire: the places that `claim` made before it stored this.
        let first = self.chunks.get(chunk)?.load(Ordering::Acquire);
        // SAFETY: `claim` made a chunk of `chunk_len(chunk)` places before it stored its pointer, and `drop` is the only one
        // who frees it. Ends if: a chunk is given back or moved while the slab lives.
        (!first.is_null()).then(|| unsafe { slice::from_raw_parts(first, chunk_len(chunk)) })
    }

    /// A place that nobody uses; `make` makes a new one, given its index. `None`: 2²⁷ − 256 slots are in use.
    /// Waits while another claim makes a chunk.
    pub(crate) fn claim(&self, make: impl Fn(u32) -> Slot<T>) -> Option<&Slot<T>> {
        loop {
            if let Some(index) = lock(&self.free).pop() {
                return self.place(index);
            }
            let mut made = lock(&self.made);
            if lock(&self.free).is_empty() {
                let null = self.chunks.get(*made)?;
                let first = (*made as u32) << PLACE_BITS;
                let new = first..first + chunk_len(*made) as u32;
                let slots: Box<[Slot<T>]> = new.clone().map(&make).collect();
                // Release: publishes the places to `chunk`, which acquires. loom does not see the slab (loom-tests/README.md).
                null.store(Box::into_raw(slots).cast(), Ordering::Release);
                *made += 1;
                lock(&self.free).extend(new.rev());
            }
        }
    }

    /// Every place, whatever life it is in. Without a lock.
    pub(crate) fn places(&self) -> impl Iterator<Item = &Slot<T>> {
        (0..CHUNKS).map_while(|chunk| self.chunk(chunk)).flatten()
    }

    /// A counted reference of every life that goes on, also of one whose insert has not returned yet. Without a lock.
    pub(crate) fn lives(&self) -> impl Iterator<Item = SlotRef<T>> {
        self.places().filter_map(|slot| SlotRef::upgrade(slot, slot.id().version))
    }

    /// Gives a place back. The caller dropped its last counted reference.
    pub(crate) fn give_back(&self, id: PeerId) {
        lock(&self.free).push(id.index);
    }
}

impl<T: Transport> Drop for Slab<T> {
    fn drop(&mut self) {
        for (chunk, first) in self.chunks.iter_mut().enumerate() {
            let first = *first.get_mut();
            if !first.is_null() {
                let slots = ptr::slice_from_raw_parts_mut(first, chunk_len(chunk));
                // SAFETY: it came out of a box of that many places in `claim`, and nobody borrows a slab that is dropped.
                drop(unsafe { Box::from_raw(slots) });
            }
        }
    }
}

#[inline(always)]
fn chunk_len(chunk: usize) -> usize {
    1 << (SMALLEST as usize + (chunk >> ALIKE))
}

const _: () = assert!(CHUNKS <= 1 << (32 - PLACE_BITS), "a chunk's number fits above its places' bits");

#[cfg(all(test, not(peerage_loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_chunk_fits_its_bits_and_all_together_are_as_many_as_promised() {
        assert!((0..CHUNKS).all(|chunk| chunk_len(chunk) <= 1 << PLACE_BITS));
        let all: usize = (0..CHUNKS).map(chunk_len).sum();
        assert_eq!(all, (1 << 27) - 256);
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
