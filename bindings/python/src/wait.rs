//! Waits of Python's threads: without the GIL, and interrupted by signals.

use crate::gate;
use pyo3::prelude::*;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// How long a signal may wait for its handler.
const SLICE: Duration = Duration::from_millis(50);

/// For ever: times are added to instants, which have an end.
const FOREVER: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// When so many seconds from now will be over; `None` and infinity never are.
pub(crate) fn deadline(seconds: Option<f64>) -> PyResult<Instant> {
    match seconds {
        Some(seconds) if seconds.is_nan() => {
            Err(pyo3::exceptions::PyValueError::new_err("a timeout must be a number of seconds, not nan"))
        }
        Some(seconds) => Ok(Instant::now() + duration(seconds)),
        None => Ok(Instant::now() + FOREVER),
    }
}

/// Seconds, from 0 to for ever.
pub(crate) fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(FOREVER).min(FOREVER)
}

/// Waits for `future`. `None`: the deadline passed first.
///
/// # Errors
/// What a signal's handler raised.
pub(crate) fn block_on<F>(py: Python<'_>, mut future: F, deadline: Instant) -> PyResult<Option<F::Output>>
where
    F: Future + Unpin + Send,
    F::Output: Send,
{
    loop {
        let slice = deadline.min(Instant::now() + SLICE);
        if let Some(output) = gate::detached(py, || poll_until(&mut future, slice)) {
            return Ok(Some(output));
        }
        py.check_signals()?;
        if slice == deadline {
            return Ok(None);
        }
    }
}

fn poll_until<F: Future + Unpin>(future: &mut F, deadline: Instant) -> Option<F::Output> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        if let Poll::Ready(output) = Pin::new(&mut *future).poll(&mut Context::from_waker(&waker)) {
            return Some(output);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        thread::park_timeout(left);
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
