//! Handles by name: one look into a dict of Python's own costs less than text that is encoded and hashed.

use crate::peer::{Kinds, Peer};
use crate::transport::Callables;
use peerage::Phase;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The last handle of each name that was asked for. One of a peer that is gone grants no lease, so it does no harm there.
pub(crate) struct Handles {
    by_name: Py<PyDict>,
    kinds: Arc<Kinds>,
    /// Handles of peers that the table removed by itself are let go when there are so many.
    sweep_at: AtomicUsize,
}

const FEW: usize = 64;

impl Handles {
    pub(crate) fn new(py: Python<'_>, kinds: Arc<Kinds>) -> Self {
        Handles { by_name: PyDict::new(py).unbind(), kinds, sweep_at: AtomicUsize::new(FEW) }
    }

    pub(crate) fn cached<'py>(&self, name: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, Peer>>> {
        let found = self.by_name.bind(name.py()).get_item(name)?;
        Ok(found.and_then(|found| found.cast_into::<Peer>().ok()))
    }

    /// The handle of a peer, the same object as long as it is the same peer. `name` as the caller has it, who comes again with it:
    /// a dict finds an object sooner than an equal one.
    pub(crate) fn called(&self, name: &Bound<'_, PyString>, peer: peerage::Peer<Callables>) -> PyResult<Py<Peer>> {
        if let Some(known) = self.cached(name.as_any())?
            && known.get().core.id() == peer.id()
        {
            return Ok(known.unbind());
        }
        let (py, handles) = (name.py(), self.by_name.bind(name.py()));
        if handles.len() >= self.sweep_at.load(Ordering::Relaxed) {
            self.sweep(handles)?;
        }
        let name = match name.cast_exact::<PyString>() {
            Ok(name) => name.clone(),
            Err(_) => PyString::new(py, peer.name().as_str()), // an object of theirs, which may change
        };
        let peer = Py::new(py, Peer::new(name.clone().unbind(), peer, self.kinds.clone()))?;
        handles.set_item(name, &peer)?;
        Ok(peer)
    }

    pub(crate) fn of(&self, py: Python<'_>, peer: peerage::Peer<Callables>) -> PyResult<Py<Peer>> {
        self.called(&PyString::new(py, peer.name().as_str()), peer)
    }

    pub(crate) fn forget(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        let handles = self.by_name.bind(py);
        if handles.contains(name)? { handles.del_item(name) } else { Ok(()) }
    }

    fn sweep(&self, handles: &Bound<'_, PyDict>) -> PyResult<()> {
        for (name, peer) in handles.copy()?.iter() {
            if peer.cast::<Peer>()?.get().core.phase() == Phase::Removed {
                handles.del_item(name)?;
            }
        }
        self.sweep_at.store(FEW.max(2 * handles.len()), Ordering::Relaxed);
        Ok(())
    }
}
