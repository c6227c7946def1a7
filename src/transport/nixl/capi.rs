//! NIXL's C API as a table of functions, found by name in a library that is loaded when the process runs.
//!
//! Only what is called is here. There is no function that tells a version, and no header in the package: a library is judged by
//! the symbols that it has. All but [`Capi::params_add`] must be there; without that one, NIXL's own settings are used.
//!
//! Every number that comes from C is an integer here, never an enum of Rust's: a newer library has ones without a name.

#![allow(non_camel_case_types)]

use libloading::os::unix::Library;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::fmt;

/// What a call of NIXL answered. Any number: a newer library has ones we have no name for.
///
/// The C API tells less than NIXL knows. REMOTE_DISCONNECT, NOT_ALLOWED, CANCELED, REPOST_ACTIVE, NOT_POSTED, MISMATCH,
/// NOT_SUPPORTED and exceptions are all [`BACKEND`](Self::BACKEND); so is NOT_FOUND, when a backend, its parameters or a
/// transfer is made. What it means follows from the call that failed: on a call to a peer it is the
/// peer's, until a probe says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(pub i32);

impl Status {
    /// Not an error: it is under way.
    pub const IN_PROGRESS: Status = Status(1);
    /// It is done.
    pub const SUCCESS: Status = Status(0);
    /// NIXL does not take what it was given.
    pub const INVALID_PARAM: Status = Status(-1);
    /// Anything that has no code of its own, see above.
    pub const BACKEND: Status = Status(-2);
    /// Not now.
    pub const INVALID_STATE: Status = Status(-3);
    /// C++ threw.
    pub const EXCEPTION: Status = Status(-4);
    /// Telemetry is off.
    pub const NO_TELEMETRY: Status = Status(-5);
    /// The peer is not loaded (any more), or nothing serves such memory.
    pub const NOT_FOUND: Status = Status(-6);

    /// `Ok` for [`SUCCESS`](Self::SUCCESS) alone.
    pub(super) fn check(code: Code) -> Result<(), Status> {
        if Status(code) == Status::SUCCESS { Ok(()) } else { Err(Status(code)) }
    }

    fn text(self) -> &'static str {
        match self {
            Status::IN_PROGRESS => "in progress",
            Status::SUCCESS => "success",
            Status::INVALID_PARAM => "invalid parameter",
            Status::BACKEND => "backend error or any other, which the C API does not tell apart",
            Status::INVALID_STATE => "invalid state",
            Status::EXCEPTION => "exception",
            Status::NO_TELEMETRY => "no telemetry",
            Status::NOT_FOUND => "not found",
            _ => "a status without a name here",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.text(), self.0)
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Status({}: {})", self.0, self.text())
    }
}

impl std::error::Error for Status {}

/// `nixl_capi_status_t`.
pub(super) type Code = c_int;
/// `nixl_capi_mem_type_t`.
pub(super) type mem_type_t = c_uint;
pub(super) const MEM_DRAM: mem_type_t = 0;
/// `nixl_capi_xfer_op_t`.
pub(super) type xfer_op_t = c_uint;
pub(super) const XFER_READ: xfer_op_t = 0;
pub(super) const XFER_WRITE: xfer_op_t = 1;
/// `nixl_capi_thread_sync_t`.
pub(super) type thread_sync_t = c_uint;
pub(super) const THREAD_SYNC_RW: thread_sync_t = 2;

macro_rules! opaque {
    ($($handle:ident)*) => {$(
        pub(super) type $handle = *mut behind::$handle;
    )*
    mod behind {$(
        #[repr(C)]
        pub(in super::super) struct $handle([u8; 0]);
    )*}};
}

opaque! { agent_t params_t mem_list_t backend_t opt_args_t xfer_dlist_t reg_dlist_t xfer_req_t notif_map_t }

/// `nixl_capi_agent_config_t`, and behind it room that is zero, in case a newer library reads fields that are new.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct AgentConfig {
    pub(super) enable_prog_thread: bool,
    pub(super) enable_listen_thread: bool,
    pub(super) listen_port: c_int,
    pub(super) thread_sync: thread_sync_t,
    pub(super) num_workers: c_uint,
    pub(super) pthr_delay_us: u64,
    pub(super) lthr_delay_us: u64,
    pub(super) capture_telemetry: bool,
    pub(super) room: [u64; 8],
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(std::mem::offset_of!(AgentConfig, capture_telemetry) == 32);

/// A symbol that a library of NIXL must have, and this one has not.
pub(super) struct Missing(pub(super) &'static str);

macro_rules! table {
    ($($(#[$note:meta])* fn $name:ident($($argument:ident: $kind:ty),* $(,)?);)* optional $(#[$may:meta])* fn $option:ident($($a:ident: $k:ty),* $(,)?);) => {
        /// The functions, by their names without `nixl_capi_`.
        pub(super) struct Capi {
            $($(#[$note])* pub(super) $name: unsafe extern "C" fn($($argument: $kind),*) -> Code,)*
            $(#[$may])* pub(super) $option: Option<unsafe extern "C" fn($($a: $k),*) -> Code>,
        }

        impl Capi {
            /// # Safety
            /// `library` is NIXL's C API, and is never unloaded.
            pub(super) unsafe fn of(library: &Library) -> Result<Self, Missing> {
                Ok(Capi {
                    $($name: {
                        const SYMBOL: &str = concat!("nixl_capi_", stringify!($name));
                        // SAFETY: 1. the caller says that this is NIXL's C API, whose functions are used by their declared types.
                        //         2. it stays loaded, so the address stays good without the `Symbol`.
                        //         Ends if: NIXL changes a function and keeps its name.
                        *unsafe { library.get(SYMBOL) }.map_err(|_| Missing(SYMBOL))?
                    },)*
                    // SAFETY: as above.
                    $option: unsafe { library.get(concat!("nixl_capi_", stringify!($option))) }.ok().map(|found| *found),
                })
            }
        }
    };
}

table! {
    fn create_configured_agent(name: *const c_char, config: *const AgentConfig, agent: *mut agent_t);
    fn destroy_agent(agent: agent_t);
    /// The bytes are the caller's, to be given to `free`.
    fn get_local_md(agent: agent_t, data: *mut *mut c_void, len: *mut usize);
    /// The name is the caller's, to be given to `free`.
    fn load_remote_md(agent: agent_t, data: *const c_void, len: usize, name: *mut *mut c_char);
    fn invalidate_remote_md(agent: agent_t, remote: *const c_char);

    fn get_plugin_params(agent: agent_t, plugin: *const c_char, mems: *mut mem_list_t, params: *mut params_t);
    fn destroy_mem_list(list: mem_list_t);
    fn destroy_params(params: params_t);
    fn create_backend(agent: agent_t, plugin: *const c_char, params: params_t, backend: *mut backend_t);
    /// Frees the handle; the backend is the agent's.
    fn destroy_backend(backend: backend_t);

    fn create_opt_args(options: *mut opt_args_t);
    fn destroy_opt_args(options: opt_args_t);
    fn opt_args_set_notif_msg(options: opt_args_t, data: *const c_void, len: usize);
    fn opt_args_set_has_notif(options: opt_args_t, has: bool);

    fn create_reg_dlist(kind: mem_type_t, list: *mut reg_dlist_t);
    fn reg_dlist_add_desc(list: reg_dlist_t, address: usize, len: usize, device: u64, meta: *const c_void, meta_len: usize);
    fn destroy_reg_dlist(list: reg_dlist_t);
    fn register_mem(agent: agent_t, list: reg_dlist_t, options: opt_args_t);
    fn deregister_mem(agent: agent_t, list: reg_dlist_t, options: opt_args_t);

    fn create_xfer_dlist(kind: mem_type_t, list: *mut xfer_dlist_t);
    fn xfer_dlist_add_desc(list: xfer_dlist_t, address: usize, len: usize, device: u64);
    fn destroy_xfer_dlist(list: xfer_dlist_t);
    fn create_xfer_req(
        agent: agent_t, operation: xfer_op_t, local: xfer_dlist_t, remote: xfer_dlist_t, name: *const c_char,
        request: *mut xfer_req_t, options: opt_args_t,
    );
    fn post_xfer_req(agent: agent_t, request: xfer_req_t, options: opt_args_t);
    fn get_xfer_status(agent: agent_t, request: xfer_req_t);
    /// What is inside the handle is gone on success only. The handle itself goes with `destroy_xfer_req`.
    fn release_xfer_req(agent: agent_t, request: xfer_req_t);
    fn destroy_xfer_req(request: xfer_req_t);

    fn gen_notif(agent: agent_t, remote: *const c_char, data: *const c_void, len: usize, options: opt_args_t);
    fn create_notif_map(map: *mut notif_map_t);
    fn destroy_notif_map(map: notif_map_t);
    fn get_notifs(agent: agent_t, map: notif_map_t, options: opt_args_t);
    fn notif_map_size(map: notif_map_t, size: *mut usize);
    fn notif_map_get_agent_at(map: notif_map_t, index: usize, name: *mut *const c_char);
    fn notif_map_get_notifs_size(map: notif_map_t, name: *const c_char, size: *mut usize);
    fn notif_map_get_notif(map: notif_map_t, name: *const c_char, index: usize, data: *mut *const c_void, len: *mut usize);
    optional
    fn params_add(params: params_t, key: *const c_char, value: *const c_char);
}
