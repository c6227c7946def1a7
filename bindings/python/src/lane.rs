//! Calls of Python code on the table's own threads.

use crate::gate;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::cell::Cell;
use std::os::raw::{c_long, c_ulong};
use std::sync::{Mutex, PoisonError};

thread_local! { static ON_LANE: Cell<bool> = const { Cell::new(false) } }

/// The threads that run Python code now, by Python's number for them. Locked by who has the GIL only, and for no longer.
static RUNNING: Mutex<Vec<c_ulong>> = Mutex::new(Vec::new());

/// Whether a wait for the table here might wait for this very thread.
pub(crate) fn is_here() -> bool {
    ON_LANE.get()
}

/// Runs `f` attached. `None`: the interpreter is ending.
pub(crate) fn call<R>(f: impl FnOnce(Python<'_>) -> R) -> Option<R> {
    gate::attach(|py| {
        let _running = Running::new();
        f(py)
    })
}

type Call = unsafe extern "C" fn(*mut ffi::PyObject, *mut ffi::PyObject) -> *mut ffi::PyObject;
type CallUnwound = unsafe extern "C-unwind" fn(*mut ffi::PyObject, *mut ffi::PyObject) -> *mut ffi::PyObject;

/// Calls Python code that may still run when the interpreter ends. Before 3.14 CPython ends a thread that comes back to it then, by
/// unwinding its stack; that would end the process where it came upon Rust. The thread stays where it is instead.
///
/// # Errors
/// What the callable raised.
pub(crate) fn run<'py>(callable: &Bound<'py, PyAny>, args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the same function, said to be one whose stack may be unwound. By a pointer that is not seen through: its own
    //         declaration says that it never is, and nothing would be dropped.
    let call = unsafe { std::mem::transmute::<Call, CallUnwound>(ffi::PyObject_CallObject) };
    let call = std::hint::black_box(call);
    let stays = Stays;
    // SAFETY: the GIL is held, and both objects live through the call.
    let answer = unsafe { call(callable.as_ptr(), args.as_ptr()) };
    std::mem::forget(stays);
    // SAFETY: it answers a reference of its own, or null and sets an exception.
    unsafe { Bound::from_owned_ptr_or_err(callable.py(), answer) }
}

/// Dropped by a thread alone that is being ended.
struct Stays;

impl Drop for Stays {
    fn drop(&mut self) {
        loop {
            std::thread::park();
        }
    }
}

/// Python code that runs on a thread of a table.
struct Running(c_ulong);

impl Running {
    fn new() -> Self {
        ON_LANE.set(true);
        // SAFETY: it asks the system for the number of this thread and may be called at any time.
        let this = unsafe { ffi::PyThread_get_thread_ident() };
        running(|all| all.push(this));
        Running(this)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        running(|all| all.retain(|running| *running != self.0));
        ON_LANE.set(false);
    }
}

fn running<R>(f: impl FnOnce(&mut Vec<c_ulong>) -> R) -> R {
    f(&mut RUNNING.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Raises SystemExit in callables that run on, so that none is in the interpreter when it ends.
pub(crate) fn interrupt(py: Python<'_>) {
    let exit = py.get_type::<pyo3::exceptions::PySystemExit>();
    for thread in running(|all| all.clone()) {
        // SAFETY: the GIL is held, and `exit` is an exception's class that lives through the call, which takes a reference of
        //         its own. A thread that has ended is not found, which is no error.
        unsafe { ffi::PyThreadState_SetAsyncExc(thread as c_long, exit.as_ptr()) };
    }
}

/// A child of `fork` has no such threads, unless it was forked on one.
pub(crate) fn forked() {
    running(|all| all.clear());
}
