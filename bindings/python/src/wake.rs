//! Waiting in an event loop. What a table's thread wakes must not wait for the GIL there: it hands the callback to a thread
//! that has nothing else to do.

use crate::peer::Peer;
use crate::table::{Core, report_of};
use crate::transport::Callables;
use crate::{error, gate, lane};
use peerage::{Ready, Shutdown};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::future::Future;
use std::pin::Pin;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

/// Something that an event loop waits for.
#[pyclass(frozen, module = "peerage._native")]
pub(crate) struct Waiting(Mutex<What>);

enum What {
    Ready { peer: Py<Peer>, ready: Ready<Callables> },
    Shutdown { core: Arc<Core>, shutdown: Shutdown },
}

impl Waiting {
    pub(crate) fn ready(peer: Py<Peer>) -> Self {
        let ready = peer.get().core.ready();
        Waiting(Mutex::new(What::Ready { peer, ready }))
    }

    pub(crate) fn shutdown(core: Arc<Core>, shutdown: Shutdown) -> Self {
        Waiting(Mutex::new(What::Shutdown { core, shutdown }))
    }
}

#[pymethods]
impl Waiting {
    /// What came of it; None, and `wake` will be called once, from another thread, when to ask again.
    fn poll(&self, py: Python<'_>, wake: Py<PyAny>) -> PyResult<Option<Py<PyAny>>> {
        let waker = Waker::from(Arc::new(Call { wake, to: sender()? }));
        let busy = |_| PyRuntimeError::new_err("polled from two threads");
        let mut what = self.0.try_lock().map_err(busy)?;
        match &mut *what {
            What::Ready { peer, ready } => match gate::detached(py, || poll(ready, &waker)) {
                Poll::Ready(Ok(_)) => Ok(Some(peer.clone_ref(py).into_any())),
                Poll::Ready(Err(why)) => Err(error::ready(py, &why)),
                Poll::Pending => Ok(None),
            },
            What::Shutdown { core, shutdown } => match gate::detached(py, || poll(shutdown, &waker)) {
                Poll::Ready(report) => report_of(py, core, &report).map(Some),
                Poll::Pending => Ok(None),
            },
        }
    }
}

fn poll<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

/// One call that is to be made. Woken on the table's threads, which must not wait.
struct Call {
    wake: Py<PyAny>,
    to: Sender<Arc<Call>>,
}

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        let to = self.to.clone();
        let _ = to.send(self);
    }
}

/// To this process's thread that calls. Locked by who has the GIL only, and for no longer.
static CALLER: Mutex<Option<(u64, Sender<Arc<Call>>)>> = Mutex::new(None);

fn sender() -> PyResult<Sender<Arc<Call>>> {
    let mut caller = CALLER.lock().unwrap_or_else(PoisonError::into_inner);
    match &*caller {
        Some((process, to)) if *process == gate::process() => Ok(to.clone()),
        _ => {
            let (to, calls) = mpsc::channel();
            thread::Builder::new().name("peerage-async".into()).spawn(move || run(&calls))?;
            *caller = Some((gate::process(), to.clone()));
            Ok(to)
        }
    }
}

fn run(calls: &Receiver<Arc<Call>>) {
    for call in calls {
        let called = gate::attach(|py| {
            if let Err(error) = lane::run(call.wake.bind(py), &PyTuple::empty(py)) {
                error.write_unraisable(py, Some(call.wake.bind(py)));
            }
        });
        if called.is_none() {
            std::mem::forget(call); // the interpreter is ending
        }
    }
}
