//! The interpreter's end, and a child of `fork`.
//!
//! What `atexit` runs, in order: tables begin to end, so that connects are cancelled and connections disconnected while
//! Python can still be called; the gate closes; callables that run on are interrupted. Each step has its time, and the
//! process then goes on to its end whatever hangs.

use crate::gate;
use crate::lane;
use crate::table::Core;
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// For the leases and the disconnects of all tables.
const SHUTDOWN: Duration = Duration::from_secs(1);
/// For callables that run, before and after they are interrupted.
const CALLS: Duration = Duration::from_millis(500);

/// Locked by who has the GIL only, and for no longer.
static TABLES: Mutex<Vec<Weak<Core>>> = Mutex::new(Vec::new());

pub(crate) fn register(table: &Arc<Core>) {
    let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    tables.retain(|table| table.strong_count() > 0);
    tables.push(Arc::downgrade(table));
}

/// Run by atexit.
#[pyfunction]
fn at_exit(py: Python<'_>) {
    let tables: Vec<_> = {
        let tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
        tables.iter().filter_map(Weak::upgrade).collect()
    };
    py.detach(|| {
        let deadline = Instant::now() + SHUTDOWN;
        let ends: Vec<_> = tables.iter().map(|core| core.table.shutdown(deadline)).collect();
        for end in ends {
            let _ = end.wait();
        }
        gate::close();
    });
    if !py.detach(|| gate::is_empty_by(Instant::now() + CALLS)) {
        lane::interrupt(py);
        py.detach(|| gate::is_empty_by(Instant::now() + CALLS));
    }
}

/// Run by os.fork in the child.
#[pyfunction]
fn after_fork() {
    gate::forked();
    lane::forked();
}

pub(crate) fn arrange(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    py.import("atexit")?.call_method1("register", (wrap_pyfunction!(at_exit, module)?,))?;
    let os = py.import("os")?;
    if os.hasattr("register_at_fork")? {
        let child = [("after_in_child", wrap_pyfunction!(after_fork, module)?)];
        os.call_method("register_at_fork", (), Some(&pyo3::types::IntoPyDict::into_py_dict(child, py)?))?;
    }
    Ok(())
}
