//! One outcome, many waiters: a cell that is resolved once and read by threads and by futures of any runtime.

use crate::clock::Clock;
use crate::error::WouldDeadlock;
use crate::fork::Process;
use crate::pool::is_table_thread;
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, came_through};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// An outcome that is not there yet. Resolved at most once; the first outcome stays. In a forked child there is none, and no
/// wait for one: whoever may come there asks [`is_here`](Self::is_here) first.
pub(crate) struct Cell<O> {
    process: Process,
    state: Mutex<State<O>>,
    resolved: Condvar,
}

struct State<O> {
    outcome: Option<O>,
    /// A thread sleeps, or has slept. To wake nobody is a system call, too.
    sleeps: bool,
    /// One place per waiting future; a place is free again when its future is dropped.
    wakers: Vec<Option<Waker>>,
    free: Vec<usize>,
}

impl<O: Clone> Cell<O> {
    pub(crate) fn new() -> Self {
        Cell {
            process: Process::this(),
            state: Mutex::new(State { outcome: None, sleeps: false, wakers: Vec::new(), free: Vec::new() }),
            resolved: Condvar::new(),
        }
    }

    /// Whether this process made it: elsewhere nobody will resolve it, and its mutex may be held for ever.
    pub(crate) fn is_here(&self) -> bool {
        self.process.is_this()
    }

    /// Answers whether this call was the first. Wakers, which are other people's code, run after unlock.
    pub(crate) fn resolve(&self, outcome: O) -> bool {
        if !self.is_here() {
            return false;
        }
        let mut state = self.state.lock();
        if state.outcome.is_some() {
            return false;
        }
        state.outcome = Some(outcome);
        let (wakers, sleeps) = (std::mem::take(&mut state.wakers), state.sleeps);
        drop(state);
        if sleeps {
            self.resolved.notify_all();
        }
        for waker in wakers.into_iter().flatten() {
            // One that panics must harm neither the others nor the driver.
            came_through(|| waker.wake());
        }
        true
    }

    pub(crate) fn peek(&self) -> Option<O> {
        if self.is_here() { self.state.lock().outcome.clone() } else { None }
    }

    /// Blocks this thread for as long as it takes.
    pub(crate) fn wait(&self) -> O {
        let outcome = self.look_and_sleep(|state| Some(self.resolved.wait(state)));
        outcome.expect("it sleeps until there is an outcome")
    }

    /// Blocks this thread. `None`: the deadline passed first.
    pub(crate) fn wait_until(&self, deadline: Instant, clock: &Clock) -> Option<O> {
        self.look_and_sleep(|state| {
            let left = clock.real_wait_until(deadline)?;
            Some(self.resolved.wait_timeout(state, left))
        })
    }

    /// Both under one lock, so that no outcome comes between them. `None`: it may sleep no more.
    fn look_and_sleep<'a>(
        &'a self,
        sleep: impl Fn(MutexGuard<'a, State<O>>) -> Option<MutexGuard<'a, State<O>>>,
    ) -> Option<O> {
        let mut state = self.state.lock();
        loop {
            if let Some(outcome) = &state.outcome {
                return Some(outcome.clone());
            }
            state.sleeps = true;
            state = sleep(state)?;
        }
    }

    fn poll(&self, place: &mut Option<usize>, cx: &Context<'_>) -> Poll<O> {
        let waker = cx.waker().clone(); // other people's code: before the lock
        let mut state = self.state.lock();
        if let Some(outcome) = &state.outcome {
            return Poll::Ready(outcome.clone());
        }
        let at = *place.get_or_insert_with(|| {
            state.free.pop().unwrap_or_else(|| {
                state.wakers.push(None);
                state.wakers.len() - 1
            })
        });
        let old = state.wakers[at].replace(waker);
        drop(state);
        drop(old);
        Poll::Pending
    }

    fn forget(&self, place: usize) {
        if !self.is_here() {
            return;
        }
        let mut state = self.state.lock();
        let old = state.wakers.get_mut(place).and_then(Option::take);
        if old.is_some() {
            state.free.push(place);
        }
        drop(state);
        drop(old);
    }
}

/// A future of one cell. Dropping it cancels nothing.
pub(crate) struct Wait<O: Clone> {
    cell: Arc<Cell<O>>,
    place: Option<usize>,
}

impl<O: Clone> Wait<O> {
    pub(crate) fn new(cell: Arc<Cell<O>>) -> Self {
        Wait { cell, place: None }
    }

    pub(crate) fn cell(&self) -> &Cell<O> {
        &self.cell
    }
}

/// What who waits is told in a forked child.
pub(crate) trait AfterFork {
    fn after_fork() -> Self;
}

impl<O: Clone> Future for Wait<O> {
    type Output = O;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<O> {
        let this = &mut *self;
        this.cell.poll(&mut this.place, cx)
    }
}

impl<O: Clone> Drop for Wait<O> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.cell.forget(place);
        }
    }
}

impl<O: Clone + fmt::Debug> fmt::Debug for Wait<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Wait").field(&self.cell.peek()).finish()
    }
}

/// The end of something that the table's threads bring about: a future, or a wait of any other thread.
pub(crate) struct Pending<O: Clone> {
    wait: Wait<O>,
}

impl<O: Clone + AfterFork> Pending<O> {
    pub(crate) fn new(cell: Arc<Cell<O>>) -> Self {
        Pending { wait: Wait::new(cell) }
    }

    pub(crate) fn wait(&self) -> Result<O, WouldDeadlock> {
        if !self.wait.cell.is_here() {
            return Ok(O::after_fork());
        }
        if is_table_thread() {
            return Err(WouldDeadlock);
        }
        Ok(self.wait.cell.wait())
    }
}

impl<O: Clone + AfterFork> Future for Pending<O> {
    type Output = O;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<O> {
        if !self.wait.cell.is_here() {
            return Poll::Ready(O::after_fork());
        }
        Pin::new(&mut self.wait).poll(cx)
    }
}

impl<O: Clone + fmt::Debug> fmt::Debug for Pending<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.wait, f)
    }
}

#[cfg(all(test, not(peerage_loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn the_first_outcome_stays_and_every_waiter_gets_it() {
        let cell = Arc::new(Cell::new());
        let woken = std::sync::Arc::new(Count(AtomicUsize::new(0)));
        let waker = Waker::from(woken.clone());
        let mut cx = Context::from_waker(&waker);
        let mut waits: Vec<_> = (0..3).map(|_| Wait::new(cell.clone())).collect();
        for wait in &mut waits {
            assert!(Pin::new(wait).poll(&mut cx).is_pending());
        }
        drop(waits.remove(1));
        assert!(cell.resolve(7));
        assert!(!cell.resolve(8));
        assert_eq!(woken.0.load(Ordering::SeqCst), 2, "the dropped one is not woken");
        for wait in &mut waits {
            assert_eq!(Pin::new(wait).poll(&mut cx), Poll::Ready(7));
        }
        assert_eq!(cell.wait(), 7);
    }

    #[test]
    fn dropped_futures_leave_no_place_behind() {
        let cell = Arc::new(Cell::<u8>::new());
        let waker = Waker::noop();
        for _ in 0..100 {
            let mut wait = Wait::new(cell.clone());
            assert!(Pin::new(&mut wait).poll(&mut Context::from_waker(waker)).is_pending());
        }
        assert_eq!(cell.state.lock().wakers.len(), 1);
    }

    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new(())); // of no size: it is forgotten, and would be reported as a leak
        }
    }

    struct Bombs;
    impl Wake for Bombs {
        fn wake(self: std::sync::Arc<Self>) {
            std::panic::resume_unwind(Box::new(Bomb));
        }
    }

    #[test]
    fn a_waker_whose_panic_panics_when_it_is_dropped_harms_nobody() {
        let cell = Arc::new(Cell::new());
        let (mut bad, mut good) = (Wait::new(cell.clone()), Wait::new(cell.clone()));
        let woken = std::sync::Arc::new(Count(AtomicUsize::new(0)));
        assert!(
            Pin::new(&mut bad).poll(&mut Context::from_waker(&Waker::from(std::sync::Arc::new(Bombs)))).is_pending()
        );
        assert!(Pin::new(&mut good).poll(&mut Context::from_waker(&Waker::from(woken.clone()))).is_pending());
        assert!(cell.resolve(1));
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_waker_is_cloned_and_dropped_outside_the_lock() {
        use std::task::{RawWaker, RawWakerVTable};
        thread_local! { static ASKED: std::cell::RefCell<Option<Arc<Cell<u8>>>> = const { std::cell::RefCell::new(None) } }
        fn look() {
            ASKED.with_borrow(|cell| cell.as_ref().map(|cell| cell.peek())); // would wait for ever under the cell's lock
        }
        const TABLE: RawWakerVTable = RawWakerVTable::new(
            |_| {
                look();
                RawWaker::new(std::ptr::null(), &TABLE)
            },
            |_| look(),
            |_| look(),
            |_| look(),
        );
        let cell = Arc::new(Cell::<u8>::new());
        ASKED.set(Some(cell.clone()));
        // SAFETY: the functions of the table use no data.
        let waker = unsafe { Waker::from_raw(RawWaker::new(std::ptr::null(), &TABLE)) };
        let mut wait = Wait::new(cell.clone());
        for _ in 0..2 {
            assert!(Pin::new(&mut wait).poll(&mut Context::from_waker(&waker)).is_pending());
        }
        drop(wait);
        ASKED.set(None);
    }
}
