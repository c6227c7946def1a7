//! Memory that remote peers may write into while we look at it.
//!
//! A [`Region`] owns its bytes, and every copy in and out goes through relaxed atomics of one width. A write that comes
//! too late is therefore a wrong byte, never undefined behaviour; whether a page may be reused is decided by transfers and
//! grants, not here. Bytes are kept in 64-bit words because mixed-width atomics on one address are not defined in Rust.

use crate::error::OutOfRegion;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const WORD: usize = size_of::<u64>();

/// Tells regions of one process apart, also on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RegionId(pub u64);

/// Owned memory for transfers. Clones share the bytes; they are freed with the last clone, slice, grant or transfer.
#[derive(Clone)]
pub struct Region(Arc<Bytes>);

struct Bytes {
    id: RegionId,
    len: usize,
    words: Box<[AtomicU64]>,
}

impl Region {
    /// `len` zero bytes.
    pub fn zeroed(len: usize) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let words = (0..len.div_ceil(WORD)).map(|_| AtomicU64::new(0)).collect();
        Region(Arc::new(Bytes { id: RegionId(NEXT.fetch_add(1, Relaxed)), len, words }))
    }

    /// Unique in this process.
    pub fn id(&self) -> RegionId {
        self.0.id
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// The part of the region at `range`, in bytes; it keeps the region alive.
    ///
    /// # Errors
    /// [`OutOfRegion`] if `range` ends after the region or before its own start. It names the region and its length.
    pub fn slice(&self, range: Range<usize>) -> Result<Slice, OutOfRegion> {
        self.check(range.start, range.end.checked_sub(range.start))?;
        Ok(Slice { region: self.clone(), offset: range.start, len: range.end - range.start })
    }

    /// Where its bytes are, for a native library that reads and writes them while they are used here. They are atomics, and
    /// little-endian words have their bytes in order.
    #[cfg(any(feature = "ucx", feature = "nixl"))]
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.0.words.as_ptr().cast_mut().cast()
    }

    fn check(&self, offset: usize, len: Option<usize>) -> Result<(), OutOfRegion> {
        match len.and_then(|len| offset.checked_add(len)) {
            Some(end) if end <= self.0.len => Ok(()),
            _ => Err(OutOfRegion { region: self.0.id, offset, len: len.unwrap_or(0), region_len: self.0.len }),
        }
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region").field("id", &self.0.id).field("len", &self.0.len).finish_non_exhaustive()
    }
}

/// A part of a region.
#[derive(Debug, Clone)]
pub struct Slice {
    region: Region,
    offset: usize,
    len: usize,
}

impl Slice {
    /// The region it is a part of.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Where it starts in its region, in bytes.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A part of this slice; `range` counts from its start, in bytes.
    ///
    /// # Errors
    /// [`OutOfRegion`] if `range` ends after the slice or before its own start.
    pub fn slice(&self, range: Range<usize>) -> Result<Slice, OutOfRegion> {
        self.check(range.start, range.end.checked_sub(range.start))?;
        Ok(Slice { region: self.region.clone(), offset: self.offset + range.start, len: range.end - range.start })
    }

    /// Copies `bytes` in at `at`, counted from the start of the slice. Never waits.
    ///
    /// # Errors
    /// [`OutOfRegion`] if `bytes` would end after the slice; nothing was copied.
    pub fn write(&self, at: usize, bytes: &[u8]) -> Result<(), OutOfRegion> {
        self.check(at, Some(bytes.len()))?;
        let (mut word, skip) = ((self.offset + at) / WORD, (self.offset + at) % WORD);
        let words = &self.region.0.words;
        let (head, bytes) = bytes.split_at(if skip == 0 { 0 } else { bytes.len().min(WORD - skip) });
        if !head.is_empty() {
            store_part(&words[word], skip, head);
            word += 1;
        }
        let mut whole = bytes.chunks_exact(WORD);
        for chunk in &mut whole {
            words[word].store(u64::from_le_bytes(chunk.try_into().expect("chunks of a word")), Relaxed);
            word += 1;
        }
        if !whole.remainder().is_empty() {
            store_part(&words[word], 0, whole.remainder());
        }
        Ok(())
    }

    /// Copies bytes out from `at`, counted from the start of the slice. Never waits. A remote write that is still under
    /// way may be seen in part.
    ///
    /// # Errors
    /// [`OutOfRegion`] if the bytes asked for end after the slice; nothing was copied.
    pub fn read(&self, at: usize, bytes: &mut [u8]) -> Result<(), OutOfRegion> {
        self.check(at, Some(bytes.len()))?;
        let (mut word, skip) = ((self.offset + at) / WORD, (self.offset + at) % WORD);
        let words = &self.region.0.words;
        let head = if skip == 0 { 0 } else { bytes.len().min(WORD - skip) };
        let (head, bytes) = bytes.split_at_mut(head);
        if !head.is_empty() {
            let value = words[word].load(Relaxed).to_le_bytes();
            head.copy_from_slice(&value[skip..skip + head.len()]);
            word += 1;
        }
        for chunk in bytes.chunks_mut(WORD) {
            chunk.copy_from_slice(&words[word].load(Relaxed).to_le_bytes()[..chunk.len()]);
            word += 1;
        }
        Ok(())
    }

    /// Where its bytes are: see [`Region::as_ptr`].
    #[cfg(feature = "ucx")]
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.region.as_ptr().wrapping_add(self.offset)
    }

    /// The whole slice as bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        self.read(0, &mut bytes).expect("a slice is inside its region");
        bytes
    }

    fn check(&self, at: usize, len: Option<usize>) -> Result<(), OutOfRegion> {
        match len.and_then(|len| at.checked_add(len)) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(OutOfRegion {
                region: self.region.0.id,
                offset: self.offset.saturating_add(at),
                len: len.unwrap_or(0),
                region_len: self.region.0.len,
            }),
        }
    }
}

/// Replaces a part of a word, leaving its neighbours to whoever writes them.
fn store_part(word: &AtomicU64, skip: usize, bytes: &[u8]) {
    let (mut value, mut mask) = ([0; WORD], [0; WORD]);
    value[skip..skip + bytes.len()].copy_from_slice(bytes);
    mask[skip..skip + bytes.len()].fill(0xff);
    let (value, mask) = (u64::from_le_bytes(value), u64::from_le_bytes(mask));
    let mut seen = word.load(Relaxed);
    while let Err(now) = word.compare_exchange_weak(seen, seen & !mask | value, Relaxed, Relaxed) {
        seen = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_offset_and_length_reads_back_and_leaves_its_neighbours_alone() {
        let region = Region::zeroed(40);
        for offset in 0..24 {
            for len in 0..=16 {
                region.slice(0..40).unwrap().write(0, &[0xee; 40]).unwrap();
                let bytes: Vec<u8> = (1..=len as u8).collect();
                region.slice(offset..offset + len).unwrap().write(0, &bytes).unwrap();
                let mut expected = vec![0xee; 40];
                expected[offset..offset + len].copy_from_slice(&bytes);
                assert_eq!(region.slice(0..40).unwrap().to_vec(), expected, "offset {offset}, length {len}");
                assert_eq!(region.slice(offset..offset + len).unwrap().to_vec(), bytes);
            }
        }
    }

    #[test]
    fn what_is_outside_is_refused_also_when_the_sum_overflows() {
        let region = Region::zeroed(10);
        assert!(region.slice(0..11).is_err());
        let (end, start) = (1, usize::MAX);
        assert!(region.slice(start..end).is_err());
        let slice = region.slice(4..8).unwrap();
        assert!(slice.write(0, &[0; 5]).is_err());
        assert!(slice.write(usize::MAX, &[0; 2]).is_err());
        assert!(slice.slice(1..5).is_err());
        assert!(slice.read(4, &mut []).is_ok());
        assert_eq!(slice.slice(2..4).unwrap().offset(), 6);
    }

    #[test]
    fn neighbours_in_one_word_do_not_undo_each_other() {
        let region = Region::zeroed(8);
        std::thread::scope(|scope| {
            for part in 0..2 {
                let slice = region.slice(part * 4..part * 4 + 4).unwrap();
                scope.spawn(move || (0..10_000).for_each(|_| slice.write(0, &[part as u8 + 1; 4]).unwrap()));
            }
        });
        assert_eq!(region.slice(0..8).unwrap().to_vec(), [1, 1, 1, 1, 2, 2, 2, 2]);
    }
}
