//! `peerage` for Python: a table of peers whose connections Python code makes and ends.
//!
//! | file | one idea |
//! |---|---|
//! | gate.rs | who may be attached to the interpreter, and until when |
//! | lane.rs | Python code on the table's own threads |
//! | transport.rs, attempt.rs, metadata.rs | the callables, what they are told, what they connect to |
//! | wait.rs | waits of Python's threads |
//! | table.rs, handles.rs, peer.rs, lease.rs | the classes |
//! | error.rs, refuse.rs | exceptions; what a handle can't do |
//! | settings.rs | a table's settings |
//! | exit.rs | the interpreter's end, and forks |

mod attempt;
mod error;
mod exit;
mod gate;
mod handles;
mod lane;
mod lease;
mod metadata;
mod peer;
mod refuse;
mod settings;
mod table;
mod transport;
mod wait;

use pyo3::prelude::*;

/// Rests on the GIL: what is locked by who has it only is not locked otherwise.
#[pymodule(gil_used = true)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<table::PeerTable>()?;
    module.add_class::<peer::Peer>()?;
    module.add_class::<lease::Lease>()?;
    module.add_class::<attempt::Attempt>()?;
    module.add_class::<attempt::Closing>()?;
    module.add_class::<attempt::Closed>()?;
    module.add("KEEP", table::Keep)?;
    exit::arrange(module)
}
