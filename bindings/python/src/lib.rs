//! `peerage` for Python: a table of peers whose connections Python code makes and ends.
//!
//! | file | one idea |
//! |---|---|
//! | gate.rs | who may be attached to the interpreter, and until when |
//! | lane.rs | Python code on the table's own threads |
//! | transport.rs, attempt.rs, metadata.rs | the callables, what they are told, what they connect to |
//! | wait.rs, wake.rs | waits of Python's threads, and of their event loops |
//! | table.rs, handles.rs, peer.rs, lease.rs, peers.rs | the table and what it gives out |
//! | seen.rs, events.rs | what is seen of it |
//! | error.rs, refuse.rs | exceptions; what a handle can't do |
//! | settings.rs | a table's settings |
//! | exit.rs | the interpreter's end, and forks |

mod attempt;
mod error;
mod events;
mod exit;
mod gate;
mod handles;
mod lane;
mod lease;
mod metadata;
mod peer;
mod peers;
mod refuse;
mod seen;
mod settings;
mod table;
mod transport;
mod wait;
mod wake;

use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;

/// Rests on the GIL: what is locked by who has it only is not locked otherwise.
#[pymodule(gil_used = true)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    // SAFETY: the GIL is held, so there is a current interpreter.
    if unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) } != 0 {
        // Its end would be taken for the process's: the gate and the tables are of the process.
        return Err(PyImportError::new_err("peerage runs in the main interpreter only, not in a subinterpreter"));
    }
    module.add_class::<table::PeerTable>()?;
    module.add_class::<peer::Peer>()?;
    module.add_class::<lease::Lease>()?;
    module.add_class::<peers::Peers>()?;
    module.add_class::<events::Events>()?;
    module.add_class::<events::Event>()?;
    module.add_class::<attempt::Attempt>()?;
    module.add_class::<attempt::Closing>()?;
    module.add_class::<attempt::Closed>()?;
    module.add("KEEP", table::Keep)?;
    exit::arrange(module)
}
