//! The right to use one generation's connection, as a context manager.

use crate::error::{self, Text};
use crate::peer::Peer;
use crate::refuse::not_picklable;
use crate::transport::{Callables, Connection};
use peerage::Reported;
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What an exception that left a lease's block says of it: `(name, generation)`. An outer lease of another peer is not to blame
/// for it then.
const LEASE_OF: &str = "peerage_lease";
/// When it left. A block that was entered later is no outer one: the exception was raised again.
const LEFT_AT: &str = "peerage_lease_left_at";

/// Counts the blocks that were entered and left. Changed by who has the GIL only.
static MOMENTS: AtomicU64 = AtomicU64::new(0);

fn now() -> u64 {
    MOMENTS.fetch_add(1, Ordering::Relaxed)
}

/// The right to use one generation's connection, and what keeps that connection open until it is released.
#[pyclass(frozen, freelist = 64, module = "peerage")]
pub(crate) struct Lease {
    /// Locked by who has the GIL only, and never while Python code runs.
    held: Mutex<Option<peerage::Lease<Callables>>>,
    peer: Py<Peer>,
    generation: u64,
    entered_at: AtomicU64,
}

impl Lease {
    pub(crate) fn new(lease: peerage::Lease<Callables>, peer: Py<Peer>) -> Self {
        let (generation, entered_at) = (lease.generation().0, AtomicU64::new(0));
        Lease { generation, held: Mutex::new(Some(lease)), peer, entered_at }
    }

    pub(crate) fn token(&self) -> (&Py<Peer>, u64) {
        (&self.peer, self.generation)
    }

    fn held(&self) -> MutexGuard<'_, Option<peerage::Lease<Callables>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<R>(&self, py: Python<'_>, f: impl FnOnce(&Connection) -> R) -> PyResult<R> {
        match &*self.held() {
            Some(lease) => Ok(f(lease.connection())),
            None => Err(self.released(py)),
        }
    }

    fn released(&self, py: Python<'_>) -> PyErr {
        let name = self.peer.get().name_str();
        let at = self.generation;
        error::of_peer(
            py,
            "LeaseReleased",
            name,
            format_args!("the lease of peer {name:?} at g{at} was released; take another"),
        )
    }

    /// Reports the generation, if the exception is of the kind that breaks it and was raised under no other lease.
    fn blame(&self, py: Python<'_>, error: &Bound<'_, PyAny>) -> PyResult<()> {
        let peer = self.peer.get();
        let own = (peer.name_str(), self.generation);
        let raised_under = error.getattr_opt(LEASE_OF)?.and_then(|of| of.extract::<(String, u64)>().ok());
        let left_at = error.getattr_opt(LEFT_AT)?.and_then(|at| at.extract::<u64>().ok());
        let is_inner = left_at.is_some_and(|left_at| left_at >= self.entered_at.load(Ordering::Relaxed));
        match raised_under {
            Some((name, generation)) if is_inner && (name.as_str(), generation) != own => return Ok(()),
            Some(_) if is_inner => {}
            // An exception without room for it is not known by an outer lease.
            _ => drop(error.setattr(LEASE_OF, own).and_then(|()| error.setattr(LEFT_AT, now()))),
        }
        if peer.is_broken_by(py, error)? {
            peer.core.report(peerage::Generation(self.generation), &Text::of(Some(error)));
        }
        Ok(())
    }
}

#[pymethods]
impl Lease {
    /// What the connect callable returned. It is not disconnected while this lease is held.
    #[getter]
    fn connection(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.with(py, |connection| connection.object.clone_ref(py))
    }

    /// The metadata that the connection was made with.
    #[getter]
    fn metadata(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.with(py, |connection| connection.metadata.value().clone_ref(py))
    }

    /// The generation it is a lease of; also when it is released.
    #[getter]
    fn generation(&self) -> u64 {
        self.generation
    }

    /// The peer's name.
    #[getter]
    fn name(&self, py: Python<'_>) -> Py<PyString> {
        self.peer.get().name.clone_ref(py)
    }

    /// Gives the connection back. May be called again.
    fn release(&self) {
        let lease = self.held().take();
        drop(lease);
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        if slf.get().held().is_none() {
            return Err(slf.get().released(slf.py()));
        }
        slf.get().entered_at.store(now(), Ordering::Relaxed);
        Ok(slf)
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        error: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let blamed = if error.is_none() { Ok(()) } else { self.blame(py, error) };
        self.release();
        blamed.map(|()| false)
    }

    fn __repr__(&self) -> String {
        let state = if self.held().is_some() { "" } else { ", released" };
        format!("<Lease of {:?} at g{}{state}>", self.peer.get().name_str(), self.generation)
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<()> {
        not_picklable(slf)
    }
}

/// Whether a report was the one that broke the generation.
///
/// # Errors
/// UsedAfterFork.
pub(crate) fn was_first(py: Python<'_>, name: &str, reported: Reported) -> PyResult<bool> {
    match reported {
        Reported::UsedAfterFork => Err(error::of_peer(py, "UsedAfterFork", name, peerage::UsedAfterFork)),
        reported => Ok(reported == Reported::Failed),
    }
}
