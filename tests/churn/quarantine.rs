//! An allocator that makes a use after free visible. A freed block is filled with poison and kept back until many others
//! were freed after it; when it leaves, it must still be poison from end to end.
//!
//! - A write to a freed block ends the process when the block leaves the quarantine.
//! - Freeing what is not allocated ends the process at once.
//! - A read of a freed block gives poison: an address that faults, a count that no `Arc` accepts, bytes that are no text.
//!   Where it gives a plain number, whoever reads must know what it should have been.
//!
//! ```text
//! block:  Header | what the caller asked for
//! ring:   the last N freed blocks; the next one takes the place of the oldest, by one swap, so there is no lock
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;
use std::process::abort;
use std::ptr::null_mut;
use std::slice;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// Eight of them are an address that no machine maps, and more than an `Arc` counts to. One is no UTF-8.
pub(crate) const POISON: u8 = 0xfa;

/// Blocks from this size on have a ring of their own, a short one.
const LARGE: usize = 4096;

/// What freed blocks are compared with, in pieces: byte for byte would take most of the run.
static PATTERN: [u8; 256] = [POISON; 256];

const ALLOCATED: u64 = 0x616c_6c6f_6361_7465;
const FREED: u64 = 0x6672_6565_6466_7265;

/// The allocator, over the system's.
pub(crate) struct Quarantine;

static SMALL_ONES: Ring<65536> = Ring::new();
static LARGE_ONES: Ring<256> = Ring::new();

struct Header {
    layout: Layout,
    state: AtomicU64,
}

struct Ring<const N: usize> {
    kept: [AtomicPtr<u8>; N],
    freed: AtomicUsize,
}

/// Takes everything out of the quarantine, checked; answers how many blocks were freed so far.
pub(crate) fn look_through() -> usize {
    SMALL_ONES.empty() + LARGE_ONES.empty()
}

// SAFETY: 1. a block is the system's, of the caller's layout behind a header, so it is as large and as aligned as asked.
// 2. it goes back to the system once: by the swap that took it out of a ring, into which only the free that found it
// ALLOCATED has put it. 3. nothing here allocates or panics.
unsafe impl GlobalAlloc for Quarantine {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Ok((whole, offset)) = Layout::new::<Header>().extend(layout) else { return null_mut() };
        // SAFETY: `whole` has a header's size at least.
        let start = unsafe { System.alloc(whole) };
        if start.is_null() {
            return start;
        }
        // SAFETY: `offset` is inside the allocation, has room for a header before it, and is aligned for both.
        unsafe {
            let block = start.add(offset);
            header(block).write(Header { layout, state: AtomicU64::new(ALLOCATED) });
            block
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller says that `alloc` answered `block`; what we made of it is behind a header still, unless the
        // caller frees it for the second time after it has left the quarantine, which nothing can tell.
        let Header { layout: asked, state } = unsafe { &*header(block) };
        if state.swap(FREED, Ordering::AcqRel) != ALLOCATED || *asked != layout {
            end("what is freed is not allocated", layout, None);
        }
        // SAFETY: the caller has given the block up, and it has `layout.size()` bytes.
        unsafe { block.write_bytes(POISON, layout.size()) };
        match layout.size() {
            LARGE.. => LARGE_ONES.put(block),
            _ => SMALL_ONES.put(block),
        }
    }
}

impl<const N: usize> Ring<N> {
    const fn new() -> Self {
        Ring { kept: [const { AtomicPtr::new(null_mut()) }; N], freed: AtomicUsize::new(0) }
    }

    fn put(&self, block: *mut u8) {
        let place = &self.kept[self.freed.fetch_add(1, Ordering::Relaxed) % N];
        let_go(place.swap(block, Ordering::AcqRel));
    }

    fn empty(&self) -> usize {
        self.kept.iter().for_each(|place| let_go(place.swap(null_mut(), Ordering::AcqRel)));
        self.freed.load(Ordering::Relaxed)
    }
}

/// Gives a block out of a ring back to the system, if it was left alone. Null: the place was empty.
fn let_go(block: *mut u8) {
    if block.is_null() {
        return;
    }
    // SAFETY: the block came out of a ring, so it is ours, header and all, as it was put there.
    let (layout, bytes) = unsafe {
        let layout = (*header(block)).layout;
        (layout, slice::from_raw_parts(block, layout.size()))
    };
    if !bytes.chunks(PATTERN.len()).all(|part| *part == PATTERN[..part.len()]) {
        let at = bytes.iter().position(|byte| *byte != POISON).unwrap_or(0);
        end("somebody has written to a freed block", layout, Some((at, &bytes[at..bytes.len().min(at + 16)])));
    }
    let Ok((whole, offset)) = Layout::new::<Header>().extend(layout) else { unreachable!("`alloc` has done the same") };
    // SAFETY: the allocation that `alloc` made, given back with its layout; the swap took it out of the ring once.
    unsafe { System.dealloc(block.sub(offset), whole) };
}

fn header(block: *mut u8) -> *mut Header {
    block.wrapping_sub(size_of::<Header>()).cast()
}

/// Says what happened and ends the process: there is nobody to tell, and memory is not to be trusted.
fn end(what: &str, layout: Layout, found: Option<(usize, &[u8])>) -> ! {
    let _ = writeln!(std::io::stderr(), "quarantine: {what}: {layout:?}, at and what: {found:02x?}");
    abort()
}
