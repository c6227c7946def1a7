//! What the callables are told.

use crate::metadata::Metadata;
use crate::refuse::not_picklable;
use peerage::{CloseContext, CloseReason, ConnectContext};
use pyo3::prelude::*;
use std::time::Instant;

/// One attempt to connect, as the connect callable sees it.
#[pyclass(frozen, module = "peerage")]
pub(crate) struct Attempt {
    pub(crate) cx: ConnectContext,
    pub(crate) to: Metadata,
}

#[pymethods]
impl Attempt {
    /// The peer's name.
    #[getter]
    fn name(&self) -> &str {
        self.cx.name().as_str()
    }

    /// The peer's metadata, as it was given to ensure, insert or update.
    #[getter]
    fn metadata(&self, py: Python<'_>) -> Py<PyAny> {
        self.to.value().clone_ref(py)
    }

    /// The generation this attempt will have.
    #[getter]
    fn generation(&self) -> u64 {
        self.cx.generation().0
    }

    /// Seconds until the attempt counts as failed, whether or not the callable has returned; never below 0.
    fn remaining(&self) -> f64 {
        left(self.cx.deadline())
    }

    /// Whether nobody wants this connection any more. A callable that waits should ask now and then, and return.
    fn is_cancelled(&self) -> bool {
        self.cx.is_cancelled()
    }

    fn __repr__(&self) -> String {
        format!("<Attempt {} of {:?}>", self.cx.generation(), self.name())
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<()> {
        not_picklable(slf)
    }
}

/// One close, as the disconnect callable sees it.
#[pyclass(frozen, module = "peerage")]
pub(crate) struct Closing {
    pub(crate) cx: CloseContext,
    pub(crate) why: CloseReason,
}

#[pymethods]
impl Closing {
    /// The peer's name.
    #[getter]
    fn name(&self) -> &str {
        self.cx.name.as_str()
    }

    /// The generation that ends.
    #[getter]
    fn generation(&self) -> u64 {
        self.cx.generation.0
    }

    /// Why: "broken", "updated", "removed", "superseded" (it came too late) or "shutdown".
    #[getter]
    fn reason(&self) -> &'static str {
        match self.why {
            CloseReason::Failed => "broken",
            CloseReason::Replaced => "updated",
            CloseReason::Removed => "removed",
            CloseReason::Shutdown => "shutdown",
            _ => "superseded",
        }
    }

    /// Seconds until the close counts as overdue and another one may take its place; never below 0.
    fn remaining(&self) -> f64 {
        left(self.cx.deadline)
    }

    fn __repr__(&self) -> String {
        format!("<Closing {} of {:?}: {}>", self.cx.generation, self.name(), self.reason())
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<()> {
        not_picklable(slf)
    }
}

fn left(deadline: Instant) -> f64 {
    deadline.saturating_duration_since(Instant::now()).as_secs_f64()
}

/// What became of a connection that was given to the disconnect callable. None of these: it was released.
#[pyclass(frozen, eq, module = "peerage", rename_all = "SCREAMING_SNAKE_CASE")]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closed {
    /// The native side had removed it already.
    AlreadyGone,
    /// The native side could not take it back. Counted.
    Leaked,
    /// Not yet: call again with the same connection.
    Retry,
}
