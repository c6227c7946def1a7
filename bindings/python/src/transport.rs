//! The transport that Python's callables are.

use crate::attempt::{Attempt, Closed, Closing};
use crate::lane;
use crate::metadata::Metadata;
use peerage::{
    Capabilities, CloseContext, CloseReason, Closed as Ended, ConnectContext, Connected, ErrorClass, PeerName,
    Transport, TransportError,
};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a connect waits that raised one of `busy_on`, unless the exception has a `retry_after` of its own.
const BUSY: Duration = Duration::from_millis(50);

pub(crate) struct Callables {
    /// Empty once nothing is left to connect or to close: a bound method's object holds its table as a rule, and each would keep
    /// the other. Locked by who has the GIL only, and for no longer.
    calls: Mutex<Calls>,
    busy_on: Py<PyTuple>,
    overlap: bool,
    name: Option<PeerName>,
}

#[derive(Default)]
struct Calls {
    connect: Option<Py<PyAny>>,
    disconnect: Option<Py<PyAny>>,
}

impl Callables {
    pub(crate) fn new(
        connect: Py<PyAny>,
        disconnect: Option<Py<PyAny>>,
        busy_on: Py<PyTuple>,
        overlap: bool,
        name: Option<PeerName>,
    ) -> Self {
        Callables { calls: Mutex::new(Calls { connect: Some(connect), disconnect }), busy_on, overlap, name }
    }

    /// The table is shut down and has nothing left.
    pub(crate) fn let_go(&self) {
        let calls = std::mem::take(&mut *self.calls());
        drop(calls);
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What connect returned, and what it was made with.
pub(crate) struct Connection {
    pub(crate) object: Py<PyAny>,
    pub(crate) metadata: Metadata,
}

impl Transport for Callables {
    type Address = Metadata;
    type Connection = Connection;
    type Error = ConnectError;

    fn local_name(&self) -> Option<&PeerName> {
        self.name.as_ref()
    }

    fn capabilities(&self) -> Capabilities {
        let capabilities = Capabilities::NATIVE_CLOSE;
        if self.overlap { capabilities.with(Capabilities::OVERLAP) } else { capabilities }
    }

    fn connect(&self, cx: &ConnectContext, to: &Metadata) -> Result<Connected<Connection>, ConnectError> {
        let connected = lane::call(|py| {
            let attempt = Attempt { cx: cx.clone(), to: to.clone() };
            let connect = self.calls().connect.as_ref().map(|connect| connect.clone_ref(py));
            let connect = connect.ok_or_else(ConnectError::too_late)?;
            let object = (attempt,).into_pyobject(py).and_then(|args| lane::run(connect.bind(py), &args));
            let object = object.map_err(|error| self.failed(py, error))?.unbind();
            Ok(Connection { object, metadata: to.clone() })
        });
        let connection = connected.unwrap_or_else(|| Err(ConnectError::too_late()))?;
        Ok(Connected { connection, incarnation: None })
    }

    fn disconnect(&self, cx: &CloseContext, connection: Connection, why: CloseReason) -> Ended<Connection> {
        let mut connection = Some(connection);
        let ended = lane::call(|py| {
            let connection = connection.take().expect("put there above");
            let disconnect = self.calls().disconnect.as_ref().map(|disconnect| disconnect.clone_ref(py));
            match disconnect {
                Some(disconnect) => end(py, &disconnect, cx, connection, why),
                None => Ended::Released, // dropped here, with the GIL
            }
        });
        // What is left at the interpreter's end must not be dropped: that might close it.
        std::mem::forget(connection);
        ended.unwrap_or(Ended::Leaked("the interpreter has ended"))
    }
}

fn end(
    py: Python<'_>,
    disconnect: &Py<PyAny>,
    cx: &CloseContext,
    connection: Connection,
    why: CloseReason,
) -> Ended<Connection> {
    let args = (&connection.object, Closing { cx: cx.clone(), why }).into_pyobject(py);
    let answer = args.and_then(|args| lane::run(disconnect.bind(py), &args));
    let answer =
        answer.and_then(|answer| if answer.is_none() { Ok(None) } else { Ok(Some(*answer.cast::<Closed>()?.get())) });
    match answer {
        Ok(None) => Ended::Released,
        Ok(Some(Closed::AlreadyGone)) => Ended::AlreadyGone,
        Ok(Some(Closed::Leaked)) => Ended::Leaked("disconnect said that it leaked"),
        Ok(Some(Closed::Retry)) => Ended::Retry(connection),
        Err(error) => {
            error.write_unraisable(py, Some(disconnect.bind(py)));
            Ended::Leaked("disconnect raised")
        }
    }
}

impl Callables {
    fn failed(&self, py: Python<'_>, error: PyErr) -> ConnectError {
        let class = match error.matches(py, &self.busy_on) {
            Ok(true) => ErrorClass::Busy { retry_after: retry_after(error.value(py)).unwrap_or(BUSY) },
            _ if is_out_of_descriptors(error.value(py)) => ErrorClass::Local,
            _ => ErrorClass::PeerBroken,
        };
        ConnectError { text: text_of(error.value(py)), class, error: Some(error) }
    }
}

fn retry_after(error: &Bound<'_, PyAny>) -> Option<Duration> {
    let seconds = error.getattr("retry_after").ok()?.extract().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// No descriptor is left in this process, or in the system: a fault of no peer.
fn is_out_of_descriptors(error: &Bound<'_, PyAny>) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    let errno = error.getattr("errno").and_then(|errno| errno.extract());
    error.is_instance_of::<pyo3::exceptions::PyOSError>() && matches!(errno, Ok(ENFILE | EMFILE))
}

/// An exception as one line.
pub(crate) fn text_of(error: &Bound<'_, PyAny>) -> String {
    let kind = error.get_type().name().map_or_else(|_| "exception".into(), |name| name.to_string_lossy().into_owned());
    match error.str().map(|text| text.to_string_lossy().into_owned()) {
        Ok(text) if !text.is_empty() => format!("{kind}: {text}"),
        _ => kind,
    }
}

/// What a connect raised.
#[derive(Debug)]
pub(crate) struct ConnectError {
    text: String,
    class: ErrorClass,
    /// `None`: connect was not called.
    pub(crate) error: Option<PyErr>,
}

impl ConnectError {
    fn too_late() -> Self {
        ConnectError {
            text: "the table or the interpreter has ended".into(),
            class: ErrorClass::PeerBroken,
            error: None,
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for ConnectError {}

impl TransportError for ConnectError {
    fn class(&self) -> ErrorClass {
        self.class
    }
}
