//! What a peer's metadata is for the table: an address that is compared with `==` and never looked into.

use crate::gate;
use crate::lane;
use peerage::Address;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyByteArray, PyBytes, PyTuple};
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

/// How much of a `repr` a snapshot shows.
const SHOWN: usize = 120;

#[derive(Clone)]
pub(crate) struct Metadata(Arc<Inner>);

struct Inner {
    value: Py<PyAny>,
    /// Made once, with the GIL: whoever shows it need not wait for that.
    shown: Box<str>,
}

impl Metadata {
    pub(crate) fn new(value: &Bound<'_, PyAny>) -> Self {
        Metadata(Arc::new(Inner { shown: show(value), value: value.clone().unbind() }))
    }

    pub(crate) fn value(&self) -> &Py<PyAny> {
        &self.0.value
    }
}

/// Bytes are a native library's, long and now and then secret: of them only the length is shown.
fn show(value: &Bound<'_, PyAny>) -> Box<str> {
    if value.is_instance_of::<PyBytes>() || value.is_instance_of::<PyByteArray>() {
        return format!("<{} bytes>", value.len().unwrap_or_default()).into();
    }
    let Ok(text) = value.repr().map(|text| text.to_string_lossy().into_owned()) else {
        return "<metadata whose repr() raises>".into();
    };
    match text.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}…", &text[..at]).into(),
        None => text.into(),
    }
}

static EQ: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

thread_local! { static UNCOMPARED: Cell<Option<PyErr>> = const { Cell::new(None) } }

/// What `==` raised on this thread since it was last asked. Metadata that could not be compared counted as the same, so that
/// nothing was changed.
pub(crate) fn comparison_error() -> Option<PyErr> {
    UNCOMPARED.take()
}

impl PartialEq for Metadata {
    fn eq(&self, other: &Self) -> bool {
        if self.value().is(other.value()) {
            return true;
        }
        let equal = gate::attach(|py| {
            let eq = EQ.import(py, "operator", "eq")?;
            let pair = PyTuple::new(py, [self.value(), other.value()])?;
            lane::run(eq, &pair)?.is_truthy()
        });
        match equal {
            Some(Ok(equal)) => equal,
            Some(Err(error)) => {
                UNCOMPARED.set(Some(error));
                true
            }
            None => true,
        }
    }
}

impl Eq for Metadata {}

impl fmt::Display for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.shown)
    }
}

impl Address for Metadata {}
