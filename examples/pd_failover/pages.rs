//! A pool of pages in one registered region, and what a page must hold.

use crate::random::{Random, mix};
use peerage::{Region, Slice};
use std::cell::RefCell;
use std::sync::{Mutex, MutexGuard, PoisonError};

const WORD: usize = size_of::<u64>();

/// A page of the pool, by its place in the region.
pub(crate) type Page = usize;

/// Says whether nothing can touch a page any more.
type IsQuiet = Box<dyn Fn() -> bool + Send>;

pub(crate) struct Pages {
    region: Region,
    page_bytes: usize,
    free: Mutex<Free>,
    quarantine: Mutex<Vec<(Page, IsQuiet)>>,
}

/// Pages are taken at random. So a late writer, whose pages were given back too early, meets as many other requests as
/// there can be.
struct Free {
    pages: Vec<Page>,
    random: Random,
}

impl Pages {
    pub(crate) fn new(pages: usize, page_bytes: usize) -> Self {
        Pages {
            region: Region::zeroed(pages * page_bytes),
            page_bytes,
            free: Mutex::new(Free { pages: (0..pages).collect(), random: Random::new(pages as u64) }),
            quarantine: Mutex::default(),
        }
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    pub(crate) fn slice(&self, page: Page) -> Slice {
        let start = page * self.page_bytes;
        self.region.slice(start..start + self.page_bytes).expect("a page of the pool is inside its region")
    }

    /// `n` pages, or none if fewer are free.
    pub(crate) fn take(&self, n: usize) -> Option<Vec<Page>> {
        let quiet: Vec<_> = lock(&self.quarantine).extract_if(.., |(_, is_quiet)| is_quiet()).collect();
        let mut free = lock(&self.free);
        let Free { pages, random } = &mut *free;
        pages.extend(quiet.into_iter().map(|(page, _)| page));
        if pages.len() < n {
            return None;
        }
        Some((0..n).map(|_| pages.swap_remove(random.below(pages.len() as u64) as usize)).collect())
    }

    pub(crate) fn give_back(&self, pages: impl IntoIterator<Item = Page>) {
        lock(&self.free).pages.extend(pages);
    }

    /// Gives a page back once nothing can touch it any more.
    pub(crate) fn give_back_when(&self, page: Page, is_quiet: impl Fn() -> bool + Send + 'static) {
        lock(&self.quarantine).push((page, Box::new(is_quiet)));
    }

    /// Overwrites a page with what no request writes.
    pub(crate) fn poison(&self, page: Page) {
        self.fill(page, |_| u64::from_le_bytes([0xdb; WORD]));
    }

    /// Writes what this block of this request must hold.
    pub(crate) fn write_content(&self, page: Page, request: u64, block: u64) {
        let mut content = content(request, block);
        self.fill(page, |_| content.next());
    }

    /// Whether every byte of a page is what this block of this request must hold.
    pub(crate) fn holds(&self, page: Page, request: u64, block: u64) -> bool {
        let mut content = content(request, block);
        with_buffer(self.page_bytes, |bytes| {
            self.slice(page).read(0, bytes).expect("as long as a page");
            bytes.chunks(WORD).all(|word| *word == content.next().to_le_bytes()[..word.len()])
        })
    }

    fn fill(&self, page: Page, mut word: impl FnMut(usize) -> u64) {
        with_buffer(self.page_bytes, |bytes| {
            for (at, chunk) in bytes.chunks_mut(WORD).enumerate() {
                chunk.copy_from_slice(&word(at).to_le_bytes()[..chunk.len()]);
            }
            self.slice(page).write(0, bytes).expect("as long as a page");
        });
    }
}

fn content(request: u64, block: u64) -> Random {
    Random::new(mix(request.wrapping_add(1) << 20).wrapping_add(mix(block ^ 0xb10c)))
}

/// One buffer per thread.
fn with_buffer<R>(len: usize, work: impl FnOnce(&mut [u8]) -> R) -> R {
    thread_local! { static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) } }
    BUFFER.with_borrow_mut(|buffer| {
        buffer.resize(len, 0);
        work(buffer)
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_page_holds_its_own_block_of_its_own_request_to_the_last_byte() {
        let pages = Pages::new(3, 20);
        pages.write_content(1, 7, 8);
        assert!(pages.holds(1, 7, 8));
        assert!(!pages.holds(1, 7, 9) && !pages.holds(1, 8, 8) && !pages.holds(2, 7, 8));
        let byte = pages.slice(1).to_vec()[19];
        pages.slice(1).write(19, &[!byte]).unwrap();
        assert!(!pages.holds(1, 7, 8));
        pages.poison(1);
        assert_eq!(pages.slice(1).to_vec(), [0xdb; 20]);
        assert_eq!(pages.slice(0).to_vec(), [0; 20]);
    }

    #[test]
    fn all_pages_asked_for_are_taken_or_none() {
        let pages = Pages::new(3, 8);
        let taken = pages.take(2).unwrap();
        assert_ne!(taken[0], taken[1]);
        assert_eq!(pages.take(2), None);
        pages.give_back(taken);
        let mut all = pages.take(3).unwrap();
        all.sort();
        assert_eq!(all, [0, 1, 2]);
    }

    #[test]
    fn pages_given_back_together_are_not_taken_together() {
        let pages = Pages::new(1_000, 8);
        let first = pages.take(20).unwrap();
        pages.give_back(first.clone());
        let again = pages.take(20).unwrap();
        assert!(again.iter().filter(|page| first.contains(page)).count() < 5, "{first:?} {again:?}");
    }

    #[test]
    fn a_page_in_quarantine_comes_back_when_it_is_quiet() {
        let pages = Pages::new(1, 8);
        let page = pages.take(1).unwrap()[0];
        let quiet = Arc::new(AtomicBool::new(false));
        let asked = quiet.clone();
        pages.give_back_when(page, move || asked.load(Ordering::Relaxed));
        assert_eq!(pages.take(1), None);
        quiet.store(true, Ordering::Relaxed);
        assert_eq!(pages.take(1), Some(vec![page]));
    }
}
