//! Errors on their way to reporters, and what those said.

use crate::state::Generation;
use crate::sync::lock;
use crate::transport::Reported;
use crate::transport::memory::MemoryError;
use crate::transport::memory::steps::Pass;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// An error on its way to a reporter.
pub(in super::super) struct Report {
    pub(super) error: MemoryError,
    pub(super) pass: Pass,
    answers: Arc<Answers>,
}

/// What the reporters said, for whoever waits for it.
#[derive(Default)]
pub(in super::super) struct Answers {
    state: Mutex<(usize, Vec<(Generation, Reported)>)>,
    fewer: Condvar,
}

impl Report {
    pub(in super::super) fn new(error: MemoryError, answers: &Arc<Answers>) -> Self {
        answers.lock().0 += 1;
        Report { error, pass: Pass::default(), answers: answers.clone() }
    }

    pub(super) fn answer(self, generation: Generation, reported: Reported) {
        self.answers.lock().1.push((generation, reported));
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        self.answers.lock().0 -= 1;
        self.answers.fewer.notify_all();
    }
}

impl Answers {
    /// All of them, or `None` at the deadline.
    pub(in super::super) fn wait(&self, deadline: Instant) -> Option<Vec<(Generation, Reported)>> {
        let mut state = self.lock();
        while state.0 > 0 {
            let left = deadline.checked_duration_since(Instant::now())?;
            state = self.fewer.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Some(state.1.clone())
    }

    fn lock(&self) -> MutexGuard<'_, (usize, Vec<(Generation, Reported)>)> {
        lock(&self.state)
    }
}
