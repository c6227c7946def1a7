//! A handle of one peer.

use crate::error::{self, Text};
use crate::lane;
use crate::lease::{Lease, was_first};
use crate::refuse::not_picklable;
use crate::transport::Callables;
use crate::wait;
use peerage::Generation;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use std::sync::Arc;

/// Which exceptions in a lease's block say what.
pub(crate) struct Kinds {
    pub(crate) broken_on: Py<PyTuple>,
    pub(crate) busy_on: Py<PyTuple>,
    /// Errors of this package say nothing of a connection, whatever they are derived from.
    pub(crate) ours: Py<PyAny>,
}

/// A peer of a table. It stays what it is: after a removal, a peer that is inserted under the same name is another one.
#[pyclass(frozen, module = "peerage")]
pub(crate) struct Peer {
    pub(crate) core: peerage::Peer<Callables>,
    pub(crate) name: Py<PyString>,
    kinds: Arc<Kinds>,
}

impl Peer {
    pub(crate) fn new(name: Py<PyString>, core: peerage::Peer<Callables>, kinds: Arc<Kinds>) -> Self {
        Peer { core, name, kinds }
    }

    pub(crate) fn name_str(&self) -> &str {
        self.core.name().as_str()
    }

    pub(crate) fn is_broken_by(&self, py: Python<'_>, error: &Bound<'_, PyAny>) -> PyResult<bool> {
        let Kinds { broken_on, busy_on, ours } = &*self.kinds;
        let is = |kind: &Bound<'_, PyAny>| error.is_instance(kind);
        Ok(is(broken_on.bind(py))? && !is(busy_on.bind(py))? && !is(ours.bind(py))?)
    }

    /// Waits until the peer is ready.
    pub(crate) fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<u64> {
        let deadline = wait::deadline(timeout)?;
        let ended = if lane::is_here() {
            // Ready, or it says that it would deadlock.
            Some(self.core.wait_ready(deadline))
        } else {
            wait::block_on(py, self.core.ready(), deadline)?
        };
        match ended {
            Some(Ok(generation)) => Ok(generation.0),
            Some(Err(why)) => Err(error::ready(py, &why)),
            None => Err(error::timed_out(py, self.name_str(), "ready")),
        }
    }

    pub(crate) fn report(&self, py: Python<'_>, at: u64, why: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
        was_first(py, self.name_str(), self.core.report(Generation(at), &Text::of(why)))
    }
}

#[pymethods]
impl Peer {
    /// The peer's name.
    #[getter]
    #[pyo3(name = "name")]
    fn py_name(&self, py: Python<'_>) -> Py<PyString> {
        self.name.clone_ref(py)
    }

    /// Where it stands now: "idle", "connecting", "ready", "failed", "removing" or "removed".
    #[getter]
    fn phase(&self) -> &'static str {
        error::phase(self.core.phase())
    }

    /// At which generation, now.
    #[getter]
    fn generation(&self) -> u64 {
        self.core.generation().0
    }

    /// A lease of the current generation. Never waits; raises NotReady.
    pub(crate) fn lease(slf: &Bound<'_, Self>) -> PyResult<Lease> {
        match slf.get().core.lease() {
            Ok(lease) => Ok(Lease::new(lease, slf.clone().unbind())),
            Err(why) => Err(error::not_ready(slf.py(), slf.get().name_str(), &why)),
        }
    }

    /// Reports a lease's generation, or one given by number, as broken. True: this report broke it. False: it was not the
    /// current one any more, and nothing changed. Never waits.
    #[pyo3(signature = (lease_or_generation, error=None))]
    fn report_failure(
        slf: &Bound<'_, Self>,
        lease_or_generation: &Bound<'_, PyAny>,
        error: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        let generation = match lease_or_generation.cast::<Lease>() {
            Ok(lease) => {
                let (peer, generation) = lease.get().token();
                if peer.get().core.id() != slf.get().core.id() {
                    let (this, other) = (slf.get().name_str(), peer.get().name_str());
                    return Err(PyTypeError::new_err(format!("the lease is of peer {other:?}, not of {this:?}")));
                }
                generation
            }
            Err(_) => lease_or_generation.extract()?,
        };
        slf.get().report(slf.py(), generation, error)
    }

    /// Waits until the peer is ready, and asks for a connect if none runs; answers the generation. Waits without the GIL;
    /// signals are handled meanwhile.
    #[pyo3(signature = (timeout=30.0))]
    fn wait_ready(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<u64> {
        self.wait(py, timeout)
    }

    fn __repr__(&self) -> String {
        format!("<Peer {:?}: {} at {}>", self.name_str(), self.phase(), self.core.generation())
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<()> {
        not_picklable(slf)
    }
}
