//! Threads for native calls that may block: pools of their own connect, close, probe, and end the table.
//!
//! A thread is started when work waits and none is idle, up to the pool's places, and ends when it has idled for a while. A
//! job that takes too long can be made to give up its place: it runs on, and another thread takes over. So calls that
//! never return cost their threads, up to the pool's limit if it has one, and nobody else's turn.

use crate::clock::Clock;
use crate::sync::{came_through, lock};
use std::cell::Cell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a thread waits for more work before it ends.
const IDLE: Duration = Duration::from_secs(2);

pub(crate) type Job = Box<dyn FnOnce() + Send>;

pub(crate) struct Pool {
    name: &'static str,
    places: usize,
    /// How many jobs may run without a place.
    max_overdue: usize,
    clock: Clock,
    state: Mutex<State>,
    /// How many jobs run without a place, to be read without the lock.
    overdue: AtomicUsize,
    work: Condvar,
    /// Orders in models what the mutex orders.
    #[cfg(peerage_loom)]
    handed_over: crate::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<(u64, Job)>,
    /// Running jobs, and since when.
    running: HashMap<u64, Instant>,
    /// Running jobs that gave up their place.
    overdue: HashSet<u64>,
    threads: usize,
    started: usize,
    closed: bool,
}

impl Pool {
    /// `name` is the threads' name before their number; 15 bytes of it are seen in system tools.
    pub(crate) fn new(name: &'static str, places: usize, max_overdue: usize, clock: Clock) -> Arc<Self> {
        Arc::new(Pool {
            name,
            places,
            max_overdue,
            clock,
            state: Mutex::default(),
            overdue: AtomicUsize::new(0),
            work: Condvar::new(),
            #[cfg(peerage_loom)]
            handed_over: crate::sync::Mutex::new(()),
        })
    }

    /// Runs `job` when there is a place. `id` is not that of a waiting or running job. Never waits. False: no
    /// thread will take it, because the system refused one, and the driver must be woken to try again.
    pub(crate) fn submit(self: &Arc<Self>, id: u64, job: Job) -> bool {
        #[cfg(peerage_loom)]
        let _handed_over = self.handed_over.lock();
        let mut state = self.lock();
        state.waiting.push_back((id, job));
        self.start_thread(&mut state);
        let taken = state.threads > state.overdue.len();
        drop(state);
        self.work.notify_one();
        taken
    }

    /// How many jobs run without a place; a moment's answer, without a lock.
    pub(crate) fn overdue(&self) -> usize {
        self.overdue.load(Ordering::Relaxed)
    }

    /// Whether job `id` has begun and not ended.
    pub(crate) fn is_running(&self, id: u64) -> bool {
        self.lock().running.contains_key(&id)
    }

    /// Lets other threads take the places of jobs that have run for this long. Answers when to look again: also a job that
    /// waits now may run for too long.
    pub(crate) fn give_up_older_than(self: &Arc<Self>, limit: Duration) -> Option<Instant> {
        let mut state = self.lock();
        let State { running, overdue, .. } = &mut *state;
        let now = self.clock.now();
        let (over, young): (Vec<_>, Vec<_>) =
            running.iter().filter(|(id, _)| !overdue.contains(id)).partition(|(_, began)| **began + limit <= now);
        let next = young.iter().map(|(_, began)| **began + limit).min();
        let over: Vec<u64> = over.into_iter().map(|(id, _)| *id).collect();
        let room = self.max_overdue.saturating_sub(state.overdue.len());
        for id in over.into_iter().take(room) {
            state.overdue.insert(id);
            self.start_thread(&mut state);
        }
        self.overdue.store(state.overdue.len(), Ordering::Relaxed);
        next.or_else(|| (!state.waiting.is_empty()).then(|| now + limit))
    }

    /// Tries again to start threads that the system refused. True while work waits that no thread will take.
    pub(crate) fn is_starved(self: &Arc<Self>) -> bool {
        let mut state = self.lock();
        self.start_thread(&mut state);
        state.threads == state.overdue.len() && !state.waiting.is_empty()
    }

    /// No more work will come: idle threads end now, the others when their job is done.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.work.notify_all();
    }

    /// The next job, for a model to run on a thread of its own.
    #[cfg(peerage_loom)]
    pub(crate) fn next_job(&self) -> Option<Job> {
        let _handed_over = self.handed_over.lock();
        self.lock().waiting.pop_front().map(|(_, job)| job)
    }

    fn start_thread(self: &Arc<Self>, state: &mut State) {
        if cfg!(peerage_loom) {
            return; // models run the jobs themselves
        }
        // Idle, or started and not there yet.
        let free = state.threads - state.running.len();
        if free >= state.waiting.len() || state.threads - state.overdue.len() >= self.places {
            return;
        }
        let pool = self.clone();
        let name = format!("{}-{}", self.name, state.started);
        if thread::Builder::new().name(name).spawn(move || pool.work()).is_ok() {
            state.threads += 1;
            state.started += 1;
        }
    }

    fn work(self: Arc<Self>) {
        mark_table_thread();
        let mut state = self.lock();
        loop {
            if let Some((id, job)) = state.waiting.pop_front() {
                state.running.insert(id, self.clock.now());
                drop(state);
                // Jobs catch what transports throw; this is for the counts if one of ours does.
                came_through(job);
                state = self.lock();
                state.running.remove(&id);
                state.overdue.remove(&id);
                self.overdue.store(state.overdue.len(), Ordering::Relaxed);
                if state.threads - state.overdue.len() > self.places {
                    break;
                }
                continue;
            }
            if state.closed {
                break;
            }
            let (back, timeout) = self.work.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = back;
            if timeout.timed_out() && state.waiting.is_empty() {
                break;
            }
        }
        state.threads -= 1;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

thread_local! { static TABLE_THREAD: Cell<bool> = const { Cell::new(false) } }

/// Marks this thread as one that a table's waits depend on.
pub(crate) fn mark_table_thread() {
    TABLE_THREAD.set(true);
}

/// Whether waiting here would wait for this very thread.
pub(crate) fn is_table_thread() -> bool {
    TABLE_THREAD.try_with(Cell::get).unwrap_or(false)
}

#[cfg(all(test, not(peerage_loom)))]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const PATIENCE: Duration = Duration::from_secs(30);

    #[test]
    fn a_job_that_never_returns_gives_up_its_place_and_not_more() {
        let pool = Pool::new("test", 1, 1, Clock::system());
        let (release, held) = mpsc::channel::<()>();
        let (done, results) = mpsc::channel();
        let tell = done.clone();
        let stuck = move || {
            held.recv().unwrap();
            tell.send(1).unwrap();
        };
        pool.submit(1, Box::new(stuck));
        let tell = done.clone();
        pool.submit(2, Box::new(move || tell.send(2).unwrap()));
        assert!(results.recv_timeout(Duration::from_millis(50)).is_err(), "one place, and it is taken");
        pool.give_up_older_than(Duration::ZERO);
        assert_eq!(results.recv_timeout(PATIENCE), Ok(2));
        pool.submit(3, Box::new(move || done.send(3).unwrap()));
        assert_eq!(results.recv_timeout(PATIENCE), Ok(3));
        release.send(()).unwrap();
        assert_eq!(results.recv_timeout(PATIENCE), Ok(1));
        pool.close();
        while pool.lock().threads > 0 {
            thread::yield_now();
        }
    }

    #[test]
    fn how_many_are_overdue_is_read_while_somebody_holds_the_pool() {
        let pool = Pool::new("test", 1, 1, Clock::system());
        let (release, held) = mpsc::channel::<()>();
        pool.submit(1, Box::new(move || held.recv().unwrap()));
        while !pool.is_running(1) {
            thread::yield_now();
        }
        pool.give_up_older_than(Duration::ZERO);
        let (tell, answer) = mpsc::channel();
        let locked = pool.lock();
        let asking = pool.clone();
        thread::spawn(move || tell.send(asking.overdue()).unwrap());
        assert_eq!(answer.recv_timeout(PATIENCE), Ok(1));
        drop(locked);
        release.send(()).unwrap();
        while pool.overdue() > 0 {
            thread::yield_now();
        }
        pool.close();
    }

    #[test]
    fn one_job_after_the_other_takes_one_thread() {
        let pool = Pool::new("test", 8, 0, Clock::system());
        let (done, results) = mpsc::channel();
        for id in 0..20 {
            let tell = done.clone();
            pool.submit(id, Box::new(move || tell.send(id).unwrap()));
            assert!(!pool.is_starved());
            assert_eq!(results.recv_timeout(PATIENCE), Ok(id));
            while pool.is_running(id) {
                thread::yield_now();
            }
        }
        assert_eq!(pool.lock().started, 1);
        pool.close();
    }

    #[test]
    fn a_job_that_panics_leaves_the_counts_right() {
        let pool = Pool::new("test", 1, 1, Clock::system());
        let (done, results) = mpsc::channel();
        pool.submit(1, Box::new(|| std::panic::resume_unwind(Box::new("planted"))));
        pool.submit(2, Box::new(move || done.send(is_table_thread()).unwrap()));
        assert_eq!(results.recv_timeout(PATIENCE), Ok(true));
        assert!(!is_table_thread());
        pool.close();
    }
}
