//! The library's errors as exceptions of `peerage._errors`.

use crate::transport::{ConnectError, text_of};
use peerage::{BuildError, InsertError, NameError, NotReady, Phase, ReadyError, Reason, UpdateError};
use pyo3::prelude::*;
use std::fmt::Display;
use std::time::Instant;

/// An exception of this class.
pub(crate) fn new(py: Python<'_>, class: &str, message: impl Display) -> PyErr {
    let error = || {
        let class = py.import("peerage._errors")?.getattr(class)?;
        Ok(PyErr::from_value(class.call1((message.to_string(),))?))
    };
    error().unwrap_or_else(|failed: PyErr| failed)
}

/// The same, of a peer.
pub(crate) fn of_peer(py: Python<'_>, class: &str, name: &str, message: impl Display) -> PyErr {
    with(new(py, class, message), py, "name", name)
}

fn with<'py>(error: PyErr, py: Python<'py>, field: &str, value: impl IntoPyObject<'py>) -> PyErr {
    match error.value(py).setattr(field, value) {
        Ok(()) => error,
        Err(failed) => failed,
    }
}

fn retry_after(at: Option<Instant>) -> Option<f64> {
    at.map(|at| at.saturating_duration_since(Instant::now()).as_secs_f64())
}

pub(crate) fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Idle => "idle",
        Phase::Connecting => "connecting",
        Phase::Ready => "ready",
        Phase::Failed => "failed",
        Phase::Removing => "removing",
        _ => "removed",
    }
}

/// A lease that was not granted.
pub(crate) fn not_ready(py: Python<'_>, name: &str, why: &NotReady) -> PyErr {
    let class = match why.reason {
        Reason::Unknown => return unknown(py, name),
        Reason::ShutDown => return of_peer(py, "TableClosed", name, format_args!("peer {name:?}: {why}")),
        Reason::UsedAfterFork => return of_peer(py, "UsedAfterFork", name, format_args!("peer {name:?}: {why}")),
        Reason::Connecting => "Connecting",
        Reason::Broken(_) | Reason::Unresponsive => "Broken",
        Reason::ConnectFailed(_) | Reason::TimedOut | Reason::WrongIncarnation | Reason::Incompatible => {
            "ConnectFailed"
        }
        Reason::Undrained | Reason::WaitingForPredecessor => "Undrained",
        Reason::Removed | Reason::FailedTooLong | Reason::IdleTooLong => "PeerRemoved",
        // The word is ahead of the record, for a moment: who has just reported it meets this.
        Reason::Unsettled if why.phase == Phase::Failed => "Broken",
        Reason::Unsettled if why.phase == Phase::Connecting => "Connecting",
        Reason::Unsettled if matches!(why.phase, Phase::Removing | Phase::Removed) => "PeerRemoved",
        Reason::NotAsked | Reason::Ready | Reason::Replaced | Reason::NewIncarnation | Reason::Unsettled => {
            "NotConnected"
        }
        _ => "NotReady",
    };
    let error = of_peer(py, class, name, format_args!("peer {name:?} is {why}"));
    let error = with(error, py, "phase", phase(why.phase));
    let error = with(error, py, "generation", why.generation.0);
    with(error, py, "retry_after", retry_after(why.retry_at))
}

pub(crate) fn unknown(py: Python<'_>, name: &str) -> PyErr {
    of_peer(py, "UnknownPeer", name, format_args!("no peer is called {name:?}; insert it, or give ensure its metadata"))
}

pub(crate) fn timed_out(py: Python<'_>, name: &str, what: &str) -> PyErr {
    of_peer(
        py,
        "TimedOut",
        name,
        format_args!("peer {name:?} was not {what} before the caller's timeout; that goes on"),
    )
}

pub(crate) fn would_deadlock(py: Python<'_>, what: impl Display) -> PyErr {
    new(
        py,
        "WouldDeadlock",
        format_args!("{what}: a callable of a table would wait for its own thread; use another thread"),
    )
}

/// A wait that ended without a connection.
pub(crate) fn ready(py: Python<'_>, why: &ReadyError) -> PyErr {
    let name = why.peer().as_str();
    let (class, at, retry_at) = match why {
        ReadyError::Failed { generation, .. } | ReadyError::TimedOut { generation, .. } => {
            ("ConnectFailed", Some(*generation), None)
        }
        ReadyError::Reported { generation, .. } => ("Broken", Some(*generation), None),
        ReadyError::Panicked { .. } | ReadyError::WrongIncarnation { .. } => ("ConnectFailed", None, None),
        ReadyError::BackingOff { retry_at, .. } => ("BackingOff", None, Some(*retry_at)),
        ReadyError::Undrained { .. } | ReadyError::WaitingForPredecessor { .. } => ("Undrained", None, None),
        ReadyError::Busy { retry_after, .. } => ("Busy", None, Some(Instant::now() + *retry_after)),
        ReadyError::Removed { .. } => ("PeerRemoved", None, None),
        ReadyError::ShutDown { .. } => return of_peer(py, "TableClosed", name, why),
        ReadyError::Deadline { .. } => return timed_out(py, name, "ready"),
        ReadyError::WouldDeadlock { .. } => return would_deadlock(py, format_args!("peer {name:?}")),
        ReadyError::UsedAfterFork { .. } => return of_peer(py, "UsedAfterFork", name, why),
        _ => ("NotReady", None, None),
    };
    let mut error = of_peer(py, class, name, why);
    if let Some(generation) = at {
        error = with(error, py, "generation", generation.0);
    }
    if retry_at.is_some() {
        error = with(error, py, "retry_after", retry_after(retry_at));
    }
    if let ReadyError::Failed { error: failed, .. } = why {
        let raised = failed.inner().downcast_ref::<ConnectError>().and_then(|failed| failed.error.as_ref());
        error.set_cause(py, raised.map(|raised| raised.clone_ref(py)));
    }
    error
}

pub(crate) fn not_inserted(py: Python<'_>, why: &InsertError) -> PyErr {
    match why {
        InsertError::Name(name) => not_a_name(py, name),
        InsertError::OwnName { name } => of_peer(py, "InvalidArgument", name.as_str(), why),
        InsertError::NameConflict { name, .. } => of_peer(py, "AlreadyPresent", name.as_str(), why),
        InsertError::TooManyPeers { name, .. } => of_peer(py, "TableFull", name.as_str(), why),
        InsertError::ShutDown { name } => of_peer(py, "TableClosed", name.as_str(), why),
        InsertError::UsedAfterFork { name } => of_peer(py, "UsedAfterFork", name.as_str(), why),
        _ => new(py, "PeerageError", why),
    }
}

pub(crate) fn not_updated(py: Python<'_>, name: &str, why: &UpdateError) -> PyErr {
    match why {
        UpdateError::Unknown { .. } => unknown(py, name),
        UpdateError::Removed { .. } => of_peer(py, "PeerRemoved", name, why),
        UpdateError::ShutDown { .. } => of_peer(py, "TableClosed", name, why),
        UpdateError::UsedAfterFork { .. } => of_peer(py, "UsedAfterFork", name, why),
        _ => of_peer(py, "PeerageError", name, why),
    }
}

pub(crate) fn not_a_name(py: Python<'_>, why: &NameError) -> PyErr {
    new(py, "InvalidArgument", why)
}

pub(crate) fn not_built(py: Python<'_>, why: &BuildError) -> PyErr {
    match why {
        BuildError::Stripes { .. } | BuildError::Zero { .. } => new(py, "InvalidArgument", why),
        _ => new(py, "PeerageError", why),
    }
}

/// What somebody reported, as text.
#[derive(Debug)]
pub(crate) struct Text(String);

impl Text {
    pub(crate) fn of(error: Option<&Bound<'_, PyAny>>) -> Self {
        match error {
            Some(error) if error.is_instance_of::<pyo3::exceptions::PyBaseException>() => Text(text_of(error)),
            Some(other) => {
                Text(other.str().map_or_else(|_| "reported".into(), |text| text.to_string_lossy().into_owned()))
            }
            None => Text("reported".into()),
        }
    }
}

impl Display for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Text {}
