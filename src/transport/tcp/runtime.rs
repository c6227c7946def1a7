//! The threads that serve sockets: two of our own, or those of a runtime we were given.

use super::error::BindError;
use crate::sync::{came_through, caught};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};

const OWN_WORKERS: usize = 2;
/// How long a thread that resolved a host stays for the next one.
const RESOLVER_KEEP_ALIVE: Duration = Duration::from_secs(1);

/// Where tasks run. Dropping it ends our own threads without waiting for them, so it may be dropped inside async code.
#[derive(Debug)]
pub(super) struct Threads {
    handle: Handle,
    own: Option<Runtime>,
}

impl Threads {
    pub(super) fn own() -> Result<Self, BindError> {
        let number = AtomicUsize::new(0);
        let mut builder = Builder::new_multi_thread();
        builder
            .worker_threads(OWN_WORKERS)
            .thread_keep_alive(RESOLVER_KEEP_ALIVE)
            .thread_name_fn(move || format!("peerage-tcp-{}", number.fetch_add(1, Ordering::Relaxed)))
            .enable_io()
            .enable_time();
        // It panics where descriptors run out on the way to some of its parts.
        let built = caught(|| builder.build()).unwrap_or_else(|panic| Err(io::Error::other(&*panic)));
        let runtime = built.map_err(BindError::Threads)?;
        Ok(Threads { handle: runtime.handle().clone(), own: Some(runtime) })
    }

    pub(super) fn given(handle: Handle) -> Result<Self, BindError> {
        if handle.runtime_flavor() == RuntimeFlavor::CurrentThread {
            return Err(BindError::CurrentThreadRuntime);
        }
        // Nothing tells what a runtime has but the panic of who uses what it has not: here, rather than with each dialer.
        let inside = handle.enter();
        let has_time = came_through(|| drop(tokio::time::sleep(Duration::ZERO)));
        drop(inside);
        if has_time { Ok(Threads { handle, own: None }) } else { Err(BindError::RuntimeLacks { what: "time" }) }
    }

    /// The listener as the runtime serves it. `Err` outside: it serves no sockets.
    pub(super) fn listen(&self, on: std::net::TcpListener) -> Result<io::Result<TcpListener>, BindError> {
        let _inside = self.handle.enter();
        caught(|| TcpListener::from_std(on)).map_err(|_| BindError::RuntimeLacks { what: "I/O" })
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(own) = self.own.take() {
            own.shutdown_background();
        }
    }
}
