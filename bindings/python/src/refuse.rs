//! What handles of a process can't do.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

/// A connection is of this process: a copy of a handle elsewhere would name nothing.
pub(crate) fn not_picklable<T>(handle: &Bound<'_, T>) -> PyResult<()> {
    Err(PyTypeError::new_err(format!(
        "cannot pickle or copy a '{}': it belongs to this process; send the peer's name and build a table in the other process",
        handle.as_any().get_type().name()?
    )))
}
