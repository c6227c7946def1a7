//! The peers as a mapping, for code that had a dict of them.

use crate::handles::Handles;
use crate::peer::Peer;
use crate::refuse::not_picklable;
use crate::table::{Core, text_of_name};
use crate::{error, gate};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};
use std::sync::Arc;

/// A table's peers by name. It shows the table as it is when it is asked, without those that are being removed.
#[pyclass(frozen, mapping, module = "peerage")]
pub(crate) struct Peers {
    pub(crate) core: Arc<Core>,
    pub(crate) handles: Arc<Handles>,
}

impl Peers {
    fn all(&self, py: Python<'_>) -> PyResult<Vec<Py<Peer>>> {
        let table = &self.core.table;
        let there = || table.snapshot().peers.into_iter().filter_map(|status| table.peer(status.name.as_str()));
        let mut peers: Vec<_> = gate::detached(py, || there().collect());
        // A removed peer and the next of its name may both have a line.
        peers.sort_by(|a: &peerage::Peer<_>, b| a.name().cmp(b.name()));
        peers.dedup_by(|a, b| a.name() == b.name());
        peers.into_iter().map(|peer| self.handles.of(py, peer)).collect()
    }

    fn find(&self, name: &Bound<'_, PyAny>) -> PyResult<Option<Py<Peer>>> {
        let Ok(text) = name.cast::<PyString>() else { return Ok(None) };
        let peer = self.core.table.peer(&text_of_name(text)?);
        peer.map(|peer| self.handles.of(name.py(), peer)).transpose()
    }

    fn list<'py, T: IntoPyObject<'py>>(
        &self,
        py: Python<'py>,
        item: impl Fn(Py<Peer>) -> T,
    ) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for peer in self.all(py)? {
            list.append(item(peer))?;
        }
        Ok(list)
    }
}

#[pymethods]
impl Peers {
    fn __contains__(&self, name: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.find(name)?.is_some())
    }

    fn __getitem__(&self, name: &Bound<'_, PyAny>) -> PyResult<Py<Peer>> {
        let missing = || match name.cast::<PyString>() {
            Ok(text) => error::unknown(name.py(), &text.to_string_lossy()),
            Err(_) => PyKeyError::new_err(name.clone().unbind()),
        };
        self.find(name)?.ok_or_else(missing)
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.all(py)?.len())
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.keys(py)?.as_any().try_iter()?.into_any())
    }

    /// The names.
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.list(py, |peer| peer.get().name.clone_ref(py))
    }

    /// The peers.
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.list(py, |peer| peer)
    }

    /// Names and peers.
    fn items<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.list(py, |peer| (peer.get().name.clone_ref(py), peer))
    }

    /// The peer, or the default.
    #[pyo3(signature = (name, default=None))]
    fn get(&self, name: &Bound<'_, PyAny>, default: Option<Py<PyAny>>) -> PyResult<Option<Py<PyAny>>> {
        Ok(self.find(name)?.map(Py::into_any).or(default))
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<()> {
        not_picklable(slf)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<Peers {}>", self.keys(py)?))
    }
}
