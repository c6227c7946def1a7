//! The full state of a peer beside its word, as plain data. The only file that names crossbeam-epoch.
//!
//! 1. The word decides, the record explains: a reader takes a record only if it is about the word the reader saw.
//! 2. Word first, then the record, both under the slot's mutex: a record may lag, it is never ahead.
//! 3. A record is numbers and text, so dropping one runs no user code, wherever the collector does it.
//! 4. The collector is this library's own: crossbeam's default one runs other crates' destructors on whoever pins.
//! 5. Nothing on the path of a granted lease pins, no pin outlives a call, and no native close depends on an epoch.
//! 6. A pin waits for nobody, so a forked child may read too. Threads that were in a pin at the fork keep what is retired there.

use crate::error::Reason;
use crate::name::{Incarnation, PeerName};
use crate::state::{Generation, Phase, Word};
use crate::sync::Tracked;
use crossbeam_epoch::{Atomic, Collector, Guard, LocalHandle, Owned, Shared};
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// What is known about a peer at one transition. Immutable; a new one replaces it at the next.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The peer's name.
    pub name: PeerName,
    /// Where it stands.
    pub phase: Phase,
    /// At which generation.
    pub generation: Generation,
    /// The boot id that the last connected peer answered with.
    pub incarnation: Option<Incarnation>,
    /// The address, as text.
    pub address: Arc<str>,
    /// Why it stands there.
    pub reason: Reason,
    /// The last error as text; kept until the next generation is Ready.
    pub last_error: Option<Arc<str>>,
    /// Since when, by the table's clock.
    pub since: Instant,
    /// Attempts so far.
    pub attempts: u64,
    /// Failures in a row, as the backoff counts them.
    pub failures: u32,
    /// Whether its [breaker](crate::Breaker) is open: the next attempt waits longer than the backoff's cap.
    pub breaker_open: bool,
    /// The group it was inserted with.
    pub group: Option<PeerName>,
    /// When the next attempt may start, if one has failed.
    pub retry_at: Option<Instant>,
}

impl Record {
    /// Whether it is about `word`, and may be its answer.
    pub(crate) fn is_of(&self, word: Word) -> bool {
        self.phase == word.phase() && self.generation == word.generation()
    }
}

/// The current record of a slot.
pub(crate) struct RecordCell {
    kept: Atomic<Kept>,
    #[cfg(peerage_loom)]
    unseen: Unseen,
}

struct Kept {
    record: Record,
    memory: Tracked,
}

/// Space for a record, allocated before the lock under which it is filled.
pub(crate) struct Draft(Owned<std::mem::MaybeUninit<Kept>>);

impl Draft {
    pub(crate) fn new() -> Self {
        Draft(Owned::new(std::mem::MaybeUninit::uninit()))
    }

    fn fill(self, record: Record) -> Owned<Kept> {
        let space = Box::into_raw(self.0.into_box()).cast::<Kept>();
        // SAFETY: `space` is a live allocation of a record's layout that only we hold; it is initialised here and then
        // owned as a record. `MaybeUninit<Kept>` has the layout of `Kept`.
        unsafe {
            space.write(Kept { record, memory: Tracked::new() });
            Owned::from(Box::from_raw(space))
        }
    }
}

/// A replaced record, to be given to the collector after unlock.
#[must_use]
pub(crate) struct Retired(*const Kept);

// SAFETY: plain data that nobody reaches any more but readers who pinned before; it may be retired from any thread.
unsafe impl Send for Retired {}

impl RecordCell {
    pub(crate) fn empty() -> Self {
        RecordCell {
            kept: Atomic::null(),
            #[cfg(peerage_loom)]
            unseen: Unseen::default(),
        }
    }

    /// Makes `record` the current one. Under the slot's mutex, after the word's CAS.
    pub(crate) fn replace(&self, draft: Draft, record: Record) -> Retired {
        #[cfg(peerage_loom)]
        if !MODELLED.get() {
            return self.unseen.replace(Some(record));
        }
        let record = draft.fill(record);
        // ord! AcqRel: Release publishes the record's text; pairs with the Acquire in `read`. Acquire takes over the old one,
        //      to be retired by us. Both are more than it needs as long as a pin begins with a SeqCst fence, which releases too,
        //      and replacing is under the slot's mutex; nothing here is to rest on how the collector pins.
        //      model: records::readers_get_the_words_record_and_it_outlives_them   fails if: record-freed-without-epoch
        pinned(|guard| Retired(self.kept.swap(record, Ordering::AcqRel, guard).as_raw()))
    }

    /// Takes the record away, at the end of a slot's life.
    pub(crate) fn clear(&self) -> Retired {
        #[cfg(peerage_loom)]
        if !MODELLED.get() {
            return self.unseen.replace(None);
        }
        // ord! AcqRel: as in `replace`, though nothing is published here. No model has records of two lives; the slot's
        //      last reference comes before it.
        pinned(|guard| Retired(self.kept.swap(Shared::null(), Ordering::AcqRel, guard).as_raw()))
    }

    /// Shows the record to `look`, which must not call user code: it runs under a pin.
    pub(crate) fn read<R>(&self, look: impl FnOnce(Option<&Record>) -> R) -> R {
        #[cfg(peerage_loom)]
        if !MODELLED.get() {
            return look(self.unseen.get().as_ref());
        }
        pinned(|guard| {
            // ord! Acquire: the record's contents, from the swap in `replace`. It says nothing about the word: whoever asks
            //      compares the two.
            //      model: records::readers_get_the_words_record_and_it_outlives_them   fails if: record-read-without-pin.
            //      A relaxed load passes it too, within the one switch it allows.
            // SAFETY: the pin is of the collector that every replaced record is retired to, so what is loaded here lives
            // at least as long as `guard`. Ends if: a record is freed without `Retired::retire`.
            let kept = unsafe { self.kept.load(Ordering::Acquire, guard).as_ref() };
            kept.inspect(|kept| kept.memory.touch());
            let answer = look(kept.map(|kept| &kept.record));
            kept.inspect(|kept| kept.memory.touch());
            answer
        })
    }
}

impl Drop for RecordCell {
    fn drop(&mut self) {
        // SAFETY: `&mut self`: no reader is left.
        drop(unsafe { std::mem::replace(&mut self.kept, Atomic::null()).try_into_owned() });
    }
}

impl Retired {
    /// Hands the record to the collector, outside every lock.
    pub(crate) fn retire(self) {
        if self.0.is_null() {
            return;
        }
        pinned(|guard| {
            // SAFETY: the record was swapped out of its cell once, by the call that made this `Retired`; new readers can't
            // find it, and the collector waits for those who have pinned.
            unsafe { guard.defer_destroy(Shared::from(self.0)) };
            guard.flush();
        });
    }
}

/// Runs `f` under a pin of our own collector, also while this thread's locals are being destroyed.
fn pinned<R>(f: impl FnOnce(&Guard) -> R) -> R {
    let mut f = ManuallyDrop::new(f);
    // SAFETY: exactly one of the two branches below takes `f`: `try_with` runs its closure or answers an error.
    let mut take = || unsafe { ManuallyDrop::take(&mut f) };
    match with_handle(|handle| take()(&handle.pin())) {
        Some(answer) => answer,
        None => take()(&collector().register().pin()),
    }
}

#[cfg(not(peerage_loom))]
fn collector() -> &'static Collector {
    static COLLECTOR: std::sync::LazyLock<Collector> = std::sync::LazyLock::new(Collector::new);
    &COLLECTOR
}

/// Makes the collector, before there is a table: a thread that was making it when another one forked would be waited for in the
/// child, for ever.
#[cfg(not(peerage_loom))]
pub(crate) fn prepare() {
    collector();
}

#[cfg(not(peerage_loom))]
fn with_handle<R>(f: impl FnOnce(&LocalHandle) -> R) -> Option<R> {
    thread_local! { static HANDLE: LocalHandle = collector().register() }
    HANDLE.try_with(f).ok()
}

/// A model has its own collector, which ends with it.
#[cfg(peerage_loom)]
fn collector() -> &'static Collector {
    loom::lazy_static! { static ref COLLECTOR: Collector = Collector::new(); }
    &COLLECTOR
}

#[cfg(peerage_loom)]
fn with_handle<R>(f: impl FnOnce(&LocalHandle) -> R) -> Option<R> {
    loom::thread_local! { static HANDLE: LocalHandle = collector().register() }
    HANDLE.try_with(f).ok()
}

#[cfg(peerage_loom)]
thread_local! {
    /// Whether the model that runs is about records. The others keep theirs where loom does not look: most of what it
    /// explored would be the collector's own steps.
    pub(crate) static MODELLED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

#[cfg(peerage_loom)]
#[derive(Default)]
struct Unseen(std::sync::Mutex<Option<Record>>);

#[cfg(peerage_loom)]
impl Unseen {
    fn replace(&self, record: Option<Record>) -> Retired {
        *crate::sync::lock(&self.0) = record;
        Retired(std::ptr::null())
    }

    fn get(&self) -> Option<Record> {
        crate::sync::lock(&self.0).clone()
    }
}

#[cfg(all(test, not(peerage_loom)))]
mod tests {
    use super::*;

    fn record(generation: u64) -> Record {
        Record {
            name: PeerName::new("p").unwrap(),
            phase: Phase::Failed,
            generation: Generation(generation),
            incarnation: None,
            address: "here".into(),
            reason: Reason::Broken(None),
            last_error: Some(generation.to_string().into()),
            since: Instant::now(),
            attempts: 0,
            failures: 0,
            breaker_open: false,
            group: None,
            retry_at: None,
        }
    }

    #[test]
    fn readers_see_whole_records_while_they_are_replaced() {
        let cell = RecordCell::empty();
        assert!(cell.read(|record| record.is_none()));
        cell.replace(Draft::new(), record(0)).retire();
        std::thread::scope(|scope| {
            scope.spawn(|| (1..5_000).for_each(|generation| cell.replace(Draft::new(), record(generation)).retire()));
            let mut newest = 0;
            while newest < 4_999 {
                newest = cell.read(|record| {
                    let record = record.expect("there is always one");
                    assert_eq!(record.last_error.as_deref(), Some(&*record.generation.0.to_string()));
                    record.generation.0
                });
            }
        });
        cell.clear().retire();
    }
}
