//! What is seen of a table, as plain dicts: the library's own serialized form, without what a table of Python's has not.

use peerage::Snapshot;
use pyo3::prelude::*;
use pyo3::types::{PyAnyMethods, PyDict, PyList};

/// The transfers and grants of a data plane.
const NOT_OF_A_PEER: [&str; 8] =
    ["id", "transfers", "quarantined", "stalled", "grants", "quarantined_grants", "quarantined_bytes", "suspect"];
const NOT_OF_A_RECORD: [&str; 6] = ["name", "phase", "generation", "incarnation", "group", "native_code"];
const NOT_OF_A_TABLE: [&str; 4] = ["peers", "quarantined", "quarantined_grants", "quarantined_bytes"];

fn without(dict: &Bound<'_, PyAny>, keys: &[&str]) -> PyResult<()> {
    keys.iter().try_for_each(|key| dict.del_item(key))
}

pub(crate) fn peers<'py>(py: Python<'py>, snapshot: &Snapshot) -> PyResult<Bound<'py, PyList>> {
    let peers = pythonize::pythonize(py, &snapshot.peers)?.cast_into::<PyList>()?;
    for peer in peers.iter() {
        without(&peer, &NOT_OF_A_PEER)?;
        let record = peer.get_item("record")?;
        if !record.is_none() {
            without(&record, &NOT_OF_A_RECORD)?;
            record.set_item("metadata", record.get_item("address")?)?;
            record.del_item("address")?;
        }
    }
    Ok(peers)
}

pub(crate) fn counters<'py>(py: Python<'py>, snapshot: &Snapshot) -> PyResult<Bound<'py, PyDict>> {
    let counters = pythonize::pythonize(py, snapshot)?;
    without(&counters, &NOT_OF_A_TABLE)?;
    Ok(counters.cast_into()?)
}
