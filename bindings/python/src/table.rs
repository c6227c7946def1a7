//! The table.

use crate::error;
use crate::events::Events;
use crate::exit;
use crate::gate::detached;
use crate::handles::Handles;
use crate::lane;
use crate::lease::Lease;
use crate::metadata::{Metadata, comparison_error};
use crate::peer::{Kinds, Peer};
use crate::peers::Peers;
use crate::refuse::not_picklable;
use crate::seen;
use crate::settings;
use crate::transport::Callables;
use crate::wait;
use crate::wake::Waiting;
use peerage::{InsertError, PeerName, Removed, ShutdownReport, UpdateError, UsedAfterFork};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How long a table that a `with` block ends has for that, in seconds.
const EXIT: f64 = 10.0;

/// What a table and its views share.
pub(crate) struct Core {
    pub(crate) table: peerage::PeerTable<Callables>,
    /// A shutdown has resolved: there will be no more events.
    pub(crate) ended: AtomicBool,
}

/// All peers of this process.
#[pyclass(frozen, weakref, module = "peerage")]
pub(crate) struct PeerTable {
    pub(crate) core: Arc<Core>,
    pub(crate) handles: Arc<Handles>,
}

/// Metadata as an argument: given, or left as it is.
pub(crate) enum Given {
    Keep,
    Value(Py<PyAny>),
}

/// The default of ensure's metadata: whatever the peer has.
#[pyclass(frozen, module = "peerage")]
pub(crate) struct Keep;

#[pymethods]
impl Keep {
    fn __repr__(&self) -> &'static str {
        "KEEP"
    }

    /// There is one, in every process.
    fn __reduce__(&self) -> &'static str {
        "KEEP"
    }
}

impl<'py> FromPyObject<'_, 'py> for Given {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if value.is_instance_of::<Keep>() { Ok(Given::Keep) } else { Ok(Given::Value(value.to_owned().unbind())) }
    }
}

impl PeerTable {
    pub(crate) fn existing(&self, name: &Bound<'_, PyString>) -> PyResult<Py<Peer>> {
        let (py, text) = (name.py(), text_of_name(name)?);
        match self.core.table.peer(&text) {
            Some(peer) => self.handles.called(name, peer),
            None => {
                // Only to learn why.
                let why = self.core.table.lease(&text).err();
                Err(why.map_or_else(|| error::unknown(py, &text), |why| error::not_ready(py, &text, &why)))
            }
        }
    }

    /// Inserts the peer, or updates the one that is there.
    fn put(&self, name: &Bound<'_, PyString>, metadata: &Bound<'_, PyAny>) -> PyResult<Py<Peer>> {
        let (py, text) = (name.py(), text_of_name(name)?);
        let metadata = Metadata::new(metadata);
        let table = &self.core.table;
        loop {
            let inserted = detached(py, || (table.insert(text.as_str(), metadata.clone()), comparison_error()));
            match inserted {
                (_, Some(error)) => return Err(error),
                (Ok(peer), None) => return self.handles.called(name, peer),
                (Err(InsertError::NameConflict { .. }), None) => {}
                (Err(why), None) => return Err(error::not_inserted(py, &why)),
            }
            let Some(peer) = table.peer(&text) else { continue };
            match detached(py, || (peer.update(metadata.clone()), comparison_error())) {
                (_, Some(error)) => return Err(error),
                (Ok(_), None) => return self.handles.called(name, peer),
                // It is inserted anew.
                (Err(UpdateError::Removed { .. } | UpdateError::Unknown { .. }), None) => {}
                (Err(why), None) => return Err(error::not_updated(py, &text, &why)),
            }
        }
    }

    #[cold]
    fn lease_slowly(&self, name: &Bound<'_, PyAny>) -> PyResult<Lease> {
        let peer = self.existing(name.cast::<PyString>()?)?;
        Peer::lease(peer.bind(name.py()))
    }
}

/// # Errors
/// UnicodeEncodeError, of lone surrogates.
pub(crate) fn text_of_name(name: &Bound<'_, PyString>) -> PyResult<String> {
    name.extract()
}

/// What a shutdown could not take back, as a dict.
///
/// # Errors
/// UsedAfterFork.
pub(crate) fn report_of(py: Python<'_>, core: &Core, report: &ShutdownReport) -> PyResult<Py<PyAny>> {
    if report.used_after_fork {
        return Err(error::new(py, "UsedAfterFork", UsedAfterFork));
    }
    if report.is_clean() {
        core.table.transport().let_go();
    }
    core.ended.store(true, Ordering::Release);
    let report_dict = PyDict::new(py);
    report_dict.set_item("clean", report.is_clean())?;
    let leases = PyDict::new(py);
    for (name, count) in &report.leaked_leases {
        leases.set_item(name.as_str(), count)?;
    }
    report_dict.set_item("leaked_leases", leases)?;
    let stuck: Vec<_> = report.stuck_connects.iter().map(PeerName::as_str).collect();
    report_dict.set_item("stuck_connects", stuck)?;
    report_dict.set_item("leaked_connections", report.leaked_connections)?;
    Ok(report_dict.into_any().unbind())
}

#[pymethods]
impl PeerTable {
    #[new]
    #[pyo3(signature = (connect, disconnect=None, *, overlap=false, broken_on=None, busy_on=None, name=None, **policy))]
    #[allow(clippy::too_many_arguments)] // they are Python's keywords
    fn new(
        py: Python<'_>,
        connect: Py<PyAny>,
        disconnect: Option<Py<PyAny>>,
        overlap: bool,
        broken_on: Option<&Bound<'_, PyAny>>,
        busy_on: Option<&Bound<'_, PyAny>>,
        name: Option<&Bound<'_, PyString>>,
        policy: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        for (what, callable) in [("connect", Some(&connect)), ("disconnect", disconnect.as_ref())] {
            if callable.is_some_and(|callable| !callable.bind(py).is_callable()) {
                return Err(PyTypeError::new_err(format!("{what} must be callable")));
            }
        }
        let name = name.map(text_of_name).transpose()?;
        let name = name.map(|name| PeerName::new(&name).map_err(|why| error::not_a_name(py, &why))).transpose()?;
        let lost = py.get_type::<pyo3::exceptions::PyConnectionError>().into_any();
        let broken_on = classes(py, "broken_on", Some(broken_on.unwrap_or(&lost)))?;
        let busy_on = classes(py, "busy_on", busy_on)?;
        let ours = py.import("peerage._errors")?.getattr("PeerageError")?.unbind();
        let kinds = Arc::new(Kinds { broken_on, busy_on: busy_on.clone_ref(py), ours });
        let builder = peerage::PeerTable::builder(Callables::new(connect, disconnect, busy_on, overlap, name));
        let builder = settings::apply(builder, policy)?;
        let table = detached(py, || builder.build()).map_err(|why| error::not_built(py, &why))?;
        let core = Arc::new(Core { table, ended: AtomicBool::new(false) });
        exit::register(&core);
        Ok(PeerTable { core, handles: Arc::new(Handles::new(py, kinds)) })
    }

    /// Inserts the peer where it is absent, updates it where its metadata differs (by ``==``), and waits until it is ready.
    /// Of many threads at once, one connects. Waits without the GIL; signals are handled meanwhile.
    ///
    /// Raises ConnectFailed with the connect callable's exception as its cause, another NotReady, or TimedOut; in a callable
    /// of a table WouldDeadlock, unless the peer is ready.
    #[pyo3(signature = (name, metadata=Given::Keep, timeout=Some(30.0)), text_signature = "($self, name, metadata=KEEP, timeout=30.0)")]
    fn ensure(
        &self,
        py: Python<'_>,
        name: &Bound<'_, PyString>,
        metadata: Given,
        timeout: Option<f64>,
    ) -> PyResult<Py<Peer>> {
        wait::deadline(timeout)?;
        let peer = match metadata {
            Given::Keep => self.existing(name)?,
            Given::Value(metadata) => self.put(name, metadata.bind(py))?,
        };
        peer.get().wait(py, timeout)?;
        Ok(peer)
    }

    /// Adds a peer, and connects nothing. Raises AlreadyPresent if the name is there with other metadata.
    fn insert(&self, py: Python<'_>, name: &Bound<'_, PyString>, metadata: &Bound<'_, PyAny>) -> PyResult<Py<Peer>> {
        let text = text_of_name(name)?;
        let (table, metadata) = (&self.core.table, Metadata::new(metadata));
        let inserted = detached(py, || (table.insert(text.as_str(), metadata), comparison_error()));
        match inserted {
            (_, Some(error)) => Err(error),
            (Ok(peer), None) => self.handles.called(name, peer),
            (Err(why), None) => Err(error::not_inserted(py, &why)),
        }
    }

    /// Replaces a peer's metadata. If it differs, the connection is retired: closed after its last lease, and made anew with
    /// the new metadata. True: it did differ.
    fn update(&self, py: Python<'_>, name: &Bound<'_, PyString>, metadata: &Bound<'_, PyAny>) -> PyResult<bool> {
        let text = text_of_name(name)?;
        let (table, metadata) = (&self.core.table, Metadata::new(metadata));
        match detached(py, || (table.update(&text, metadata), comparison_error())) {
            (_, Some(error)) => Err(error),
            (Ok(updated), None) => Ok(updated != peerage::Updated::Same),
            (Err(why), None) => Err(error::not_updated(py, &text, &why)),
        }
    }

    /// Removes a peer: no lease from here on; the connection is closed when its leases are released. Waits for that until
    /// `timeout`, if one is given. True: nothing of it is left. False: not yet, or something leaked.
    #[pyo3(signature = (name, timeout=None))]
    fn remove(&self, py: Python<'_>, name: &Bound<'_, PyString>, timeout: Option<f64>) -> PyResult<bool> {
        let text = text_of_name(name)?;
        let Some(peer) = self.core.table.peer(&text) else { return Err(error::unknown(py, &text)) };
        if timeout.is_some() && lane::is_here() {
            return Err(error::would_deadlock(py, format_args!("peer {text:?} was not removed")));
        }
        let deadline = wait::deadline(Some(timeout.unwrap_or(0.0)))?;
        let removal = detached(py, || peer.remove(deadline));
        self.handles.forget(py, &text)?;
        // It answers at its own deadline.
        match wait::block_on(py, removal, wait::deadline(None)?)? {
            Some(Removed::UsedAfterFork) => Err(error::of_peer(py, "UsedAfterFork", &text, UsedAfterFork)),
            removed => Ok(removed == Some(Removed::Removed)),
        }
    }

    /// A lease of the peer's current connection, for a ``with`` block or until it is released. Never waits; raises NotReady or
    /// UnknownPeer, and has asked for a reconnect then.
    fn lease(&self, name: &Bound<'_, PyAny>) -> PyResult<Lease> {
        if let Some(peer) = self.handles.cached(name)?
            && let Ok(lease) = peer.get().core.lease()
        {
            return Ok(Lease::new(lease, peer.unbind()));
        }
        self.lease_slowly(name)
    }

    /// Reports the generation of a lease, or of ``(name, generation)``, as broken. True: this report broke it. False: it was
    /// not the current one any more, and nothing changed. Never waits.
    #[pyo3(signature = (lease, error=None))]
    fn report_failure(
        &self,
        py: Python<'_>,
        lease: &Bound<'_, PyAny>,
        error: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        if let Ok(lease) = lease.cast::<Lease>() {
            let (peer, generation) = lease.get().token();
            return peer.get().report(py, generation, error);
        }
        let Ok((name, generation)) = lease.extract::<(String, u64)>() else {
            return Err(PyTypeError::new_err("report_failure takes a lease or (name, generation)"));
        };
        match self.core.table.peer(&name) {
            Some(peer) => self.handles.of(py, peer)?.get().report(py, generation, error),
            None => Ok(false),
        }
    }

    /// Ends the table: connections are disconnected when their leases are released, which may take until `timeout`. Says what
    /// was left; ``clean`` if nothing was. May be called again.
    #[pyo3(signature = (timeout=Some(EXIT)))]
    fn shutdown(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        if lane::is_here() {
            return Err(error::would_deadlock(py, "the table was not shut down"));
        }
        let deadline = wait::deadline(timeout)?;
        let shutdown = detached(py, || self.core.table.shutdown(deadline));
        // It answers at its own deadline.
        let report = wait::block_on(py, shutdown, wait::deadline(None)?)?;
        report_of(py, &self.core, &report.unwrap_or_default())
    }

    /// The peers by name, as a mapping that shows the table as it is.
    #[getter]
    fn peers(&self) -> Peers {
        Peers { core: self.core.clone(), handles: self.handles.clone() }
    }

    /// Every peer's state as a dict, those being removed included. ``record``, what it is connected with, is None while that
    /// changes. Waits for nobody, also during a hang.
    fn snapshot<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        seen::peers(py, &detached(py, || self.core.table.snapshot()))
    }

    /// The table's counts since it was built, and how many callables hang now, as a dict.
    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        seen::counters(py, &detached(py, || self.core.table.snapshot()))
    }

    /// A subscription to every transition of every peer: an iterator, which begins with where each stands.
    fn events(&self, py: Python<'_>) -> Events {
        Events::new(py, &self.core)
    }

    /// ``await table.ready(name)``: the peer, once it is ready. Asks for a connect if none runs; raises as ensure does.
    #[pyo3(signature = (name, timeout=None))]
    fn ready<'py>(&self, name: &Bound<'py, PyString>, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        let (py, peer) = (name.py(), self.existing(name)?);
        if lane::is_here() {
            peer.get().wait(py, timeout)?; // ready, or it would deadlock
        }
        wait::deadline(timeout)?;
        let too_late = error::timed_out(py, &text_of_name(name)?, "ready");
        py.import("peerage._asyncio")?.call_method1("wait", (Waiting::ready(peer), timeout, too_late))
    }

    fn __aenter__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("peerage._asyncio")?.call_method1("value", (slf,))
    }

    #[pyo3(signature = (*_error))]
    fn __aexit__<'py>(&self, py: Python<'py>, _error: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        let deadline = wait::deadline(Some(EXIT))?;
        let shutdown = detached(py, || self.core.table.shutdown(deadline));
        let waiting = Waiting::shutdown(self.core.clone(), shutdown);
        py.import("peerage._asyncio")?.call_method1("end", (waiting,))
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) -> PyResult<bool> {
        self.shutdown(py, Some(EXIT)).map(|_| false)
    }

    fn __repr__(&self) -> String {
        format!("<{:?}>", self.core.table)
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<()> {
        not_picklable(slf)
    }
}

/// One exception class or several, as a tuple of classes.
fn classes(py: Python<'_>, what: &str, given: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyTuple>> {
    let tuple = match given {
        None => PyTuple::empty(py),
        Some(given) => match given.cast::<PyTuple>() {
            Ok(tuple) => tuple.clone(),
            Err(_) => PyTuple::new(py, [given])?,
        },
    };
    let base = py.get_type::<pyo3::exceptions::PyBaseException>();
    for class in tuple.iter() {
        if !class.cast::<pyo3::types::PyType>().is_ok_and(|class| class.is_subclass(&base).unwrap_or(false)) {
            return Err(PyTypeError::new_err(format!("{what} must be exception classes, not {class}")));
        }
    }
    Ok(tuple.unbind())
}
