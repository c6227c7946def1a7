//! libucp in safe words: the context, its one worker, the listener and mapped memory. With `endpoint` the only file that
//! calls it.
//!
//! The context shares its objects between threads, and the worker is in multi-thread mode, so every call here may come from
//! any thread. libucp takes a lock of its own around each: that of the worker, or that of the context.

use super::endpoint::am_received;
use super::mailbox::{Event, Mailbox};
use crate::region::Region;
use crate::sync::came_through;
use peerage_ucx_sys::*;
use socket2::SockAddr;
use std::ffi::{CStr, CString, c_void};
use std::fmt;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr;
use std::sync::Arc;

/// A status of libucp that is no success. Any number: a newer library has ones we have no name for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status(pub i8);

impl Status {
    pub(super) fn check(status: ucs_status_t) -> Result<(), Status> {
        if status == UCS_OK { Ok(()) } else { Err(Status(status)) }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: it answers a static string for every number.
        let text = unsafe { CStr::from_ptr(ucs_status_string(self.0)) };
        write!(f, "{} ({})", text.to_string_lossy(), self.0)
    }
}

impl std::error::Error for Status {}

/// Which setting libucp did not take, and what it said.
pub(super) struct NotTaken {
    pub(super) setting: Option<String>,
    pub(super) status: Status,
}

/// Everything of libucp in this process that belongs to one transport.
pub(super) struct Context {
    raw: ucp_context_h,
}

// SAFETY: 1. it was made with `mt_workers_shared`, so libucp locks what its threads share.
//         2. the handle is only read here. Ends if: a call is added that libucp wants from one thread.
unsafe impl Send for Context {}
// SAFETY: as above: a shared context is used in the same calls as one that was sent.
unsafe impl Sync for Context {}

impl Context {
    /// What the environment says comes first. Over it go wishes, a name, its variable and a value each, and over those
    /// `settings`, by names without `UCX_`. A wish that this libucp does not take it does without.
    pub(super) fn new(wishes: &[(&str, &str, &str)], settings: &[(String, String)]) -> Result<Arc<Self>, NotTaken> {
        let as_a_whole = |status| NotTaken { setting: None, status };
        let mut config = ptr::null_mut();
        // SAFETY: no prefix, no file, a place for the answer.
        Status::check(unsafe { ucp_config_read(ptr::null(), ptr::null(), &mut config) }).map_err(as_a_whole)?;
        let made = (|| {
            let set = |name: &str, value: &str| {
                let text = |text: &str| CString::new(text).map_err(|_| Status(UCS_ERR_INVALID_PARAM));
                let (name, value) = (text(name)?, text(value)?);
                // SAFETY: `config` was read above and is released below; both strings end with 0 and are copied.
                Status::check(unsafe { ucp_config_modify(config, name.as_ptr(), value.as_ptr()) })
            };
            for (name, variable, value) in wishes {
                // UCX 1.13 has a transport's setting without the transport's name, and warns of it with the name; UCX 1.22 refuses
                // some without.
                let _ = set(name, value).or_else(|_| set(variable.trim_start_matches("UCX_"), value));
            }
            for (name, value) in settings {
                set(name, value).map_err(|status| NotTaken { setting: Some(name.clone()), status })?;
            }
            // SAFETY: all zeroes is a valid `ucp_params_t`: numbers, null pointers and no callbacks; the mask says what counts.
            let mut params: ucp_params_t = unsafe { MaybeUninit::zeroed().assume_init() };
            params.field_mask = (UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED).into();
            params.features = (UCP_FEATURE_AM | UCP_FEATURE_RMA | UCP_FEATURE_WAKEUP).into();
            params.mt_workers_shared = 1;
            let mut raw = ptr::null_mut();
            // SAFETY: the version is that of the bindings, and all pointers live through the call.
            let status = unsafe { ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &mut raw) };
            Status::check(status).map_err(as_a_whole)?;
            Ok(Arc::new(Context { raw }))
        })();
        // SAFETY: read above, used by nobody any more.
        unsafe { ucp_config_release(config) };
        made
    }

    /// Makes a region known to the native side.
    pub(super) fn map(self: &Arc<Self>, region: &Region) -> Result<Mapped, Status> {
        // SAFETY: as in `new`.
        let mut params: ucp_mem_map_params_t = unsafe { MaybeUninit::zeroed().assume_init() };
        params.field_mask = (UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH).into();
        params.address = region.as_ptr().cast();
        params.length = region.len();
        let mut handle = ptr::null_mut();
        // SAFETY: the bytes are the region's, which `Mapped` keeps alive until after it has unmapped them.
        Status::check(unsafe { ucp_mem_map(self.raw, &params, &mut handle) })?;
        let mut mapped = Mapped { context: self.clone(), handle, _region: region.clone(), key: Vec::new() };
        let (mut bytes, mut len) = (ptr::null_mut(), 0);
        // SAFETY: `handle` was mapped above.
        Status::check(unsafe { ucp_rkey_pack(self.raw, handle, &mut bytes, &mut len) })?;
        // SAFETY: libucp has just made these `len` bytes; they are copied, then given back.
        mapped.key = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), len) }.to_vec();
        // SAFETY: as above.
        unsafe { ucp_rkey_buffer_release(bytes) };
        Ok(mapped)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: worker and mapped memory hold an `Arc` of it, so they are gone.
        unsafe { ucp_cleanup(self.raw) };
    }
}

/// A region that the native side knows; it is unmapped when this is dropped.
pub(super) struct Mapped {
    context: Arc<Context>,
    pub(super) handle: ucp_mem_h,
    _region: Region,
    /// What a peer needs to read and write it.
    pub(super) key: Vec<u8>,
}

// SAFETY: the handle is used in calls that libucp locks by itself (see `Context`), and freed once, by the last owner.
unsafe impl Send for Mapped {}
// SAFETY: as above; shared, its handle and key are only read.
unsafe impl Sync for Mapped {}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: mapped in `Context::map`, and every operation that names it holds an `Arc` of this.
        unsafe { ucp_mem_unmap(self.context.raw, self.handle) };
    }
}

/// What moves the messages. Whoever calls [`progress`](Self::progress) runs callbacks; they only put events in the mailbox.
pub(super) struct Worker {
    pub(super) raw: ucp_worker_h,
    pub(super) mailbox: Arc<Mailbox>,
    efd: RawFd,
    _context: Arc<Context>,
}

// SAFETY: 1. it is in multi-thread mode: `new` reads that back from libucp, and refuses a library that did not give it.
//         2. the handle is only read here. Ends if: a call is added that ucp.h calls not thread safe.
unsafe impl Send for Worker {}
// SAFETY: as above: in that mode calls may also meet.
unsafe impl Sync for Worker {}

impl Worker {
    pub(super) fn new(context: &Arc<Context>, mailbox: Arc<Mailbox>) -> Result<Arc<Self>, Status> {
        // SAFETY: as in `Context::new`.
        let mut params: ucp_worker_params_t = unsafe { MaybeUninit::zeroed().assume_init() };
        params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE.into();
        params.thread_mode = UCS_THREAD_MODE_MULTI;
        let mut raw = ptr::null_mut();
        // SAFETY: the context lives, and the worker will hold an `Arc` of it.
        Status::check(unsafe { ucp_worker_create(context.raw, &params, &mut raw) })?;
        let mut worker = Worker { raw, mailbox, efd: -1, _context: context.clone() };
        // SAFETY: as in `Context::new`.
        let mut attr: ucp_worker_attr_t = unsafe { MaybeUninit::zeroed().assume_init() };
        attr.field_mask = UCP_WORKER_ATTR_FIELD_THREAD_MODE.into();
        // SAFETY: the worker was created above.
        Status::check(unsafe { ucp_worker_query(raw, &mut attr) })?;
        if attr.thread_mode != UCS_THREAD_MODE_MULTI {
            return Err(Status(UCS_ERR_UNSUPPORTED));
        }
        // SAFETY: as above.
        Status::check(unsafe { ucp_worker_get_efd(raw, &mut worker.efd) })?;
        // SAFETY: as in `Context::new`.
        let mut handler: ucp_am_handler_param_t = unsafe { MaybeUninit::zeroed().assume_init() };
        handler.field_mask = (UCP_AM_HANDLER_PARAM_FIELD_ID
            | UCP_AM_HANDLER_PARAM_FIELD_CB
            | UCP_AM_HANDLER_PARAM_FIELD_FLAGS
            | UCP_AM_HANDLER_PARAM_FIELD_ARG)
            .into();
        handler.id = 0;
        handler.flags = UCP_AM_FLAG_WHOLE_MSG;
        handler.cb = Some(am_received);
        handler.arg = Arc::as_ptr(&worker.mailbox).cast_mut().cast();
        // SAFETY: `arg` is the mailbox, which the worker holds until after it is destroyed.
        Status::check(unsafe { ucp_worker_set_am_recv_handler(raw, &handler) })?;
        Ok(Arc::new(worker))
    }

    /// Moves what can be moved; `false` if that was nothing.
    pub(super) fn progress(&self) -> bool {
        // SAFETY: the worker lives while `self` does, and may be called from any thread.
        unsafe { ucp_worker_progress(self.raw) != 0 }
    }

    /// Whether the next event will make [`event_fd`](Self::event_fd) readable. `false`: there is one already.
    pub(super) fn arm(&self) -> Result<bool, Status> {
        // SAFETY: as in `progress`.
        match unsafe { ucp_worker_arm(self.raw) } {
            UCS_OK => Ok(true),
            UCS_ERR_BUSY => Ok(false),
            status => Err(Status(status)),
        }
    }

    pub(super) fn event_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the worker owns the descriptor and keeps it open for as long as it lives.
        unsafe { BorrowedFd::borrow_raw(self.efd) }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // SAFETY: endpoints and the listener hold an `Arc` of it, so they are gone, and nobody else calls it.
        unsafe { ucp_worker_destroy(self.raw) };
    }
}

/// Takes strangers in: each is an [`Event::Stranger`].
pub(super) struct Listener {
    raw: ucp_listener_h,
    _worker: Arc<Worker>,
}

// SAFETY: its calls go through the worker, which is in multi-thread mode.
unsafe impl Send for Listener {}

impl Listener {
    pub(super) fn new(worker: &Arc<Worker>, address: SocketAddr) -> Result<(Self, SocketAddr), Status> {
        let sockaddr = SockAddr::from(address);
        // SAFETY: as in `Context::new`.
        let mut params: ucp_listener_params_t = unsafe { MaybeUninit::zeroed().assume_init() };
        params.field_mask = (UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER).into();
        params.sockaddr.addr = sockaddr.as_ptr().cast();
        params.sockaddr.addrlen = sockaddr.len();
        params.conn_handler.cb = Some(stranger_came);
        params.conn_handler.arg = Arc::as_ptr(&worker.mailbox).cast_mut().cast();
        let mut raw = ptr::null_mut();
        // SAFETY: the address is copied; `arg` is the mailbox, which outlives the worker and so the listener.
        Status::check(unsafe { ucp_listener_create(worker.raw, &params, &mut raw) })?;
        let listener = Listener { raw, _worker: worker.clone() };
        // SAFETY: as in `Context::new`.
        let mut attr: ucp_listener_attr_t = unsafe { MaybeUninit::zeroed().assume_init() };
        attr.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR.into();
        // SAFETY: created above.
        Status::check(unsafe { ucp_listener_query(raw, &mut attr) })?;
        // SAFETY: both are the system's `sockaddr_storage`, in which libucp has put the address of the listener's family.
        let (_, bound) = unsafe {
            SockAddr::try_init(|storage, len| {
                ptr::copy_nonoverlapping(ptr::from_ref(&attr.sockaddr).cast::<u8>(), storage.cast(), *len as usize);
                Ok(())
            })
        }
        .map_err(|_| Status(UCS_ERR_INVALID_ADDR))?;
        Ok((listener, bound.as_socket().unwrap_or(address)))
    }

    /// Sends a stranger away.
    pub(super) fn reject(&self, stranger: Stranger) {
        // SAFETY: `stranger` came from this listener and is used once.
        unsafe { ucp_listener_reject(self.raw, stranger.0) };
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // SAFETY: created in `new`, and this is its only owner.
        unsafe { ucp_listener_destroy(self.raw) };
    }
}

/// Somebody who wants to connect. To be accepted or rejected.
pub(super) struct Stranger(pub(super) ucp_conn_request_h);

// SAFETY: a handle that is used once, by whoever has it, in calls of the worker.
unsafe impl Send for Stranger {}

unsafe extern "C" fn stranger_came(request: ucp_conn_request_h, mailbox: *mut c_void) {
    // SAFETY: `Listener::new` gave the worker's mailbox, and the listener does not outlive the worker.
    let mailbox = unsafe { &*mailbox.cast::<Mailbox>() };
    // A panic must not go through frames of C.
    came_through(|| mailbox.put(Event::Stranger(Stranger(request))));
}
