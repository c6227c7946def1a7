//! The fabric's one thread and what waits for it: links that have something to deliver, complete or report.

use super::link::{Link, Next};
use crate::clock::Clock;
use crate::sync::lock;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// How soon a link that waits for room in an inbox looks again.
const LOOK: Duration = Duration::from_millis(1);

pub(super) struct Yard {
    state: Mutex<State>,
    stirred: Condvar,
    thread: OnceLock<ThreadId>,
}

#[derive(Default)]
struct State {
    busy: Vec<Arc<Link>>,
    stirred: bool,
    stopped: bool,
}

impl Yard {
    pub(super) fn new() -> Self {
        Yard { state: Mutex::default(), stirred: Condvar::new(), thread: OnceLock::new() }
    }

    /// Has the thread look at everything that waits: a step may be free.
    pub(super) fn stir(&self) {
        self.lock().stirred = true;
        self.stirred.notify_all();
    }

    /// Has the thread look at this link. The link queues itself at most once.
    pub(super) fn attend(&self, link: &Arc<Link>) {
        let mut state = self.lock();
        if !state.stopped {
            state.busy.push(link.clone());
            state.stirred = true;
            self.stirred.notify_all();
        }
    }

    /// Ends the thread once it has looked at everything that waits.
    pub(super) fn stop(&self) {
        self.lock().stopped = true;
        self.stirred.notify_all();
    }

    /// Whether the caller is the thread itself, which must not wait for itself.
    pub(super) fn is_current(&self) -> bool {
        self.thread.get() == Some(&std::thread::current().id())
    }

    /// The thread.
    pub(super) fn run(&self, clock: &Clock) {
        self.thread.set(std::thread::current().id()).expect("a yard has one thread");
        let mut waiting = Vec::new();
        loop {
            let stopped = self.take(&mut waiting);
            let mut look_at = None::<Instant>;
            waiting.retain(|link| {
                let due = match link.advance() {
                    Next::Nothing => return false,
                    Next::Changed => return true,
                    Next::Room => clock.now() + LOOK,
                    Next::At(due) => due,
                };
                look_at = Some(look_at.map_or(due, |sooner| sooner.min(due)));
                true
            });
            if stopped {
                return;
            }
            self.sleep(look_at, clock);
        }
    }

    fn take(&self, waiting: &mut Vec<Arc<Link>>) -> bool {
        let mut state = self.lock();
        state.stirred = false;
        waiting.append(&mut state.busy);
        state.stopped
    }

    fn sleep(&self, until: Option<Instant>, clock: &Clock) {
        let limit = until.map(|until| clock.real_wait_until(until).unwrap_or_default());
        let state = self.lock();
        if state.stirred || state.stopped {
            return;
        }
        match limit {
            Some(limit) => drop(self.stirred.wait_timeout(state, limit)),
            None => drop(self.stirred.wait(state)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}
