//! A table's transitions, as an iterator.

use crate::refuse::not_picklable;
use crate::table::Core;
use crate::{error, gate, lane, wait};
use peerage::Change;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

/// How long a signal, or the table's end, may wait to be noticed.
const SLICE: Duration = Duration::from_millis(50);

/// One transition, or how many were missed.
#[pyclass(frozen, get_all, module = "peerage")]
pub(crate) struct Event {
    /// "current" (where a peer stood when the subscription began), "changed" or "missed".
    kind: &'static str,
    /// The peer; None of "missed".
    name: Option<String>,
    /// Where it stands from here on.
    phase: Option<&'static str>,
    /// At which generation.
    generation: Option<u64>,
    /// Where it stood before; None of its first.
    before: Option<&'static str>,
    /// For how many seconds it had stood there.
    lasted: Option<f64>,
    /// Why, as one word.
    reason: Option<Py<PyAny>>,
    /// How many transitions a slow reader missed.
    missed: u64,
}

#[pymethods]
impl Event {
    fn __repr__(&self, py: Python<'_>) -> String {
        match (&self.name, &self.reason) {
            (Some(name), Some(why)) => {
                let (phase, at) = (self.phase.unwrap_or_default(), self.generation.unwrap_or_default());
                format!("<Event {} {name:?}: {phase} at g{at}, {}>", self.kind, why.bind(py))
            }
            _ => format!("<Event missed {}>", self.missed),
        }
    }
}

impl Event {
    fn new(py: Python<'_>, event: peerage::Event) -> PyResult<Self> {
        match event {
            peerage::Event::Current(change) => Self::of(py, "current", &change),
            peerage::Event::Changed(change) => Self::of(py, "changed", &change),
            peerage::Event::Missed(missed) => Ok(Event { missed, ..Self::nothing() }),
            _ => Ok(Self::nothing()),
        }
    }

    fn nothing() -> Self {
        let (kind, name, phase, generation) = ("missed", None, None, None);
        Event { kind, name, phase, generation, before: None, lasted: None, reason: None, missed: 0 }
    }

    fn of(py: Python<'_>, kind: &'static str, change: &Change) -> PyResult<Self> {
        let transition = &change.transition;
        Ok(Event {
            kind,
            name: Some(change.name.as_str().to_owned()),
            phase: Some(error::phase(transition.phase)),
            generation: Some(transition.generation.0),
            before: transition.before.map(error::phase),
            lasted: transition.lasted.map(|lasted| lasted.as_secs_f64()),
            reason: Some(pythonize::pythonize(py, &transition.reason)?.unbind()),
            missed: 0,
        })
    }
}

/// A subscription: first where every peer stands, then each transition of each peer once and in its order. Ends when the table
/// is shut down or gone. At most 1,024 wait for a reader.
#[pyclass(frozen, module = "peerage")]
pub(crate) struct Events {
    /// Used by one thread at a time: another one is refused, not kept waiting.
    events: Mutex<peerage::Events>,
    core: Weak<Core>,
}

impl Events {
    pub(crate) fn new(py: Python<'_>, core: &Arc<Core>) -> Self {
        let events = gate::detached(py, || core.table.events());
        Events { events: Mutex::new(events), core: Arc::downgrade(core) }
    }

    fn only(&self) -> PyResult<MutexGuard<'_, peerage::Events>> {
        let taken = |_| PyRuntimeError::new_err("another thread waits for this subscription; take one for each thread");
        self.events.try_lock().map_err(taken)
    }

    /// `None`: the deadline has passed, or there will be no more.
    fn next_by(&self, py: Python<'_>, deadline: Instant) -> PyResult<Option<Event>> {
        let mut events = self.only()?;
        if let Some(event) = events.try_recv() {
            return Event::new(py, event).map(Some);
        }
        if lane::is_here() {
            return Err(error::would_deadlock(py, "events"));
        }
        loop {
            let over = self.core.upgrade().is_none_or(|core| core.ended.load(Ordering::Acquire));
            let slice = if over { Instant::now() } else { deadline.min(Instant::now() + SLICE) };
            let subscription = &mut *events;
            if let Some(event) = gate::detached(py, || subscription.recv(slice)) {
                return Event::new(py, event).map(Some);
            }
            py.check_signals()?;
            if over || events.is_ended() || slice == deadline {
                return Ok(None);
            }
        }
    }
}

#[pymethods]
impl Events {
    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<()> {
        not_picklable(slf)
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Event>> {
        self.next_by(py, wait::deadline(None)?)
    }

    /// The next event; None if there is none within `timeout` seconds, or there will be no more. Waits without the GIL.
    #[pyo3(signature = (timeout=0.0))]
    fn next(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Event>> {
        self.next_by(py, wait::deadline(timeout)?)
    }
}
