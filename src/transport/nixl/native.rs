//! NIXL in safe words: an agent with its one backend, memory, and what peers notify. With `remote`, `request` and `library`
//! the only files that call it, by the table in `capi`.
//!
//! # Threads
//! An agent is made in NIXL's mode for several threads ([`THREAD_SYNC_RW`]), so every call here may come from any thread. NIXL
//! takes a lock of its own around each: shared for what moves data (notify, make, post, poll and release a transfer),
//! exclusive for all else (load and remove a peer, register, metadata, taking notifications). Loading
//! a peer connects it and holds the lock for that long, so other peers' sends wait inside NIXL. Nothing here adds a lock around
//! a call.
//!
//! # What keeps what alive
//! A transfer holds its registrations; a registration, a transfer and
//! a peer hold the agent; the agent holds the library. So they end in the order that NIXL wants. A peer is not held: it is given up
//! by who owns it ([`Remote::remove`](super::remote::Remote::remove)), also while a transfer with it does not end.

use super::capi::*;
use super::library::Library;
use super::long_calls::LongCalls;
use super::remote::Names;
use crate::region::Region;
use crate::transport::exit::{self, Door, Registered};
use std::any::Any;
use std::ffi::{CStr, CString, c_void};
use std::fmt;
use std::io;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How long NIXL's progress thread sleeps if no event wakes it. By NIXL's default, 0, it never sleeps: measured with 1.5.1, an idle
/// agent took 0.8 of a core and more. It is woken by what comes, so a longer sleep delays nothing.
const PROGRESS_LOOKS_US: u64 = 10_000;

static EXIT: Registered = Registered::new();

/// Why there is no agent.
#[derive(Debug)]
pub(super) enum NotMade {
    /// The name is empty or has a 0 in it, or NIXL said so.
    Agent(Status),
    /// There is no such plugin. Is `NIXL_PLUGIN_DIR` set?
    Plugin(Status),
    /// The backend's plugin has no place for it, or this library of NIXL takes no settings (`None`).
    Setting { setting: String, status: Option<Status> },
    /// The backend was not made: a setting that it does not take, or no device.
    Backend(Status),
    /// The system has no memory for a handler of the end of the process.
    Exit(io::Error),
}

/// A name for C. One with a 0 in it would be cut.
pub(super) fn c_string(text: &str) -> Result<CString, Status> {
    CString::new(text).map_err(|_| Status::INVALID_PARAM)
}

/// What is made by C in a place that we give.
pub(super) fn made<H>(make: impl FnOnce(*mut *mut H) -> Code) -> Result<*mut H, Status> {
    let mut handle = ptr::null_mut();
    Status::check(make(&mut handle))?;
    if handle.is_null() { Err(Status::INVALID_STATE) } else { Ok(handle) }
}

/// # Safety
/// There are `len` bytes at `data`, if any.
unsafe fn copied(data: *const c_void, len: usize) -> Vec<u8> {
    if data.is_null() || len == 0 {
        return Vec::new();
    }
    // SAFETY: the caller says so.
    unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len) }.to_vec()
}

/// One agent, with one backend. Destroyed with the last that holds it, which waits for its threads to end.
pub(super) struct Agent {
    raw: agent_t,
    backend: backend_t,
    library: Arc<Library>,
    name: String,
    /// The peers that are loaded.
    pub(super) names: Names,
    /// Threads that connect, close and end go through it.
    pub(super) door: Arc<Door>,
    /// Transfers that were given up, see [`leaked`](Self::leaked).
    leaked: AtomicUsize,
    pub(super) long_calls: Arc<LongCalls>,
}

// SAFETY: 1. `new` makes it in NIXL's mode for several threads, which locks what calls share.
//         2. its backend is made before it can be shared: NIXL reads the list of backends outside of its lock in notify.
//         3. the handles are only read here. Ends if: a call is added that NIXL does not lock, or a backend is made later.
unsafe impl Send for Agent {}
// SAFETY: as above.
unsafe impl Sync for Agent {}

impl Agent {
    /// `settings` go over what the plugin has by itself. With `progress`, a thread of NIXL's moves what peers do to us; without
    /// it, whoever polls does.
    pub(super) fn new(
        library: &Arc<Library>,
        name: &str,
        progress: bool,
        plugin: &str,
        settings: &[(String, String)],
    ) -> Result<Arc<Self>, NotMade> {
        let (name_c, plugin_c) = (c_string(name).map_err(NotMade::Agent)?, c_string(plugin).map_err(NotMade::Plugin)?);
        let config = AgentConfig {
            enable_prog_thread: progress,
            enable_listen_thread: false,
            listen_port: 0,
            thread_sync: THREAD_SYNC_RW,
            num_workers: 1,
            pthr_delay_us: PROGRESS_LOOKS_US,
            lthr_delay_us: 100_000,
            capture_telemetry: false,
            room: [0; 8],
        };
        let api = &library.api;
        // SAFETY: both are copied; the answer has a place.
        let raw = made(|agent| unsafe { (api.create_configured_agent)(name_c.as_ptr(), &config, agent) })
            .map_err(NotMade::Agent)?;
        let mut agent = Agent {
            raw,
            backend: ptr::null_mut(),
            library: library.clone(),
            name: name.to_owned(),
            names: Names::default(),
            door: Door::new(),
            leaked: AtomicUsize::new(0),
            long_calls: Arc::default(),
        };
        let (mut mems, mut params) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the agent lives; the plugin's name is copied; both answers have a place.
        let asked = unsafe { (api.get_plugin_params)(raw, plugin_c.as_ptr(), &mut mems, &mut params) };
        Status::check(asked).map_err(NotMade::Plugin)?;
        let params = Params { raw: params, api };
        // SAFETY: made by the call above, and used by nobody.
        unsafe { (api.destroy_mem_list)(mems) };
        for (name, value) in settings {
            params.set(name, value).map_err(|status| NotMade::Setting { setting: name.clone(), status })?;
        }
        // SAFETY: the agent and the parameters live; both names are copied.
        agent.backend = made(|backend| unsafe { (api.create_backend)(raw, plugin_c.as_ptr(), params.raw, backend) })
            .map_err(NotMade::Backend)?;
        exit::watch(&EXIT).map_err(NotMade::Exit)?;
        Ok(Arc::new(agent))
    }

    pub(super) fn api(&self) -> &Capi {
        &self.library.api
    }

    pub(super) fn raw(&self) -> agent_t {
        self.raw
    }

    /// What a peer needs to load us, with the keys to all memory that is registered now. Takes NIXL's exclusive lock, so keep it
    /// until memory is registered or deregistered.
    pub(super) fn local_metadata(&self) -> Result<Vec<u8>, Status> {
        let (mut data, mut len) = (ptr::null_mut(), 0);
        let _long = self.long_calls.begin();
        // SAFETY: the agent lives, both answers have a place.
        Status::check(unsafe { (self.api().get_local_md)(self.raw, &mut data, &mut len) })?;
        // SAFETY: NIXL has just made these `len` bytes for us; they are copied, then given back to the C library's `free`.
        unsafe {
            let bytes = copied(data, len);
            libc::free(data);
            Ok(bytes)
        }
    }

    /// What peers have notified since the last call, each with the name its sender goes by; in order for each sender. NIXL takes
    /// anybody's word for the name, and counts bytes that are no text as `\u{fffd}`.
    pub(super) fn take_notifications(&self) -> Result<Vec<(String, Vec<u8>)>, Status> {
        let api = self.api();
        // SAFETY: the answer has a place.
        let map = made(|map| unsafe { (api.create_notif_map)(map) })?;
        let map = NotificationMap { raw: map, api };
        // SAFETY: the agent and the map live; no options.
        let asked = Status::check(unsafe { (api.get_notifs)(self.raw, map.raw, ptr::null_mut()) });
        // What a failing call has taken all the same is nowhere else any more.
        let taken = map.read()?;
        if taken.is_empty() { asked.map(|()| taken) } else { Ok(taken) }
    }

    /// Makes a region known to NIXL, and so to peers, by the metadata that they load from then on.
    pub(super) fn register_region(self: &Arc<Self>, region: &Region) -> Result<Arc<Registration>, Status> {
        let memory = Memory { kind: MemoryKind::DRAM, address: region.as_ptr() as usize, len: region.len(), device: 0 };
        // SAFETY: the bytes are the region's, which are atomics, and the registration keeps them.
        unsafe { self.register(memory, Box::new(region.clone())) }
    }

    /// Makes memory known to NIXL. `owner` is kept until it is not known any more.
    ///
    /// # Safety
    /// The memory is there for as long as `owner` is, and whoever reads it bears that peers write to it meanwhile.
    pub(super) unsafe fn register(
        self: &Arc<Self>,
        memory: Memory,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Result<Arc<Registration>, Status> {
        let api = self.api();
        // SAFETY: the answer has a place.
        let list = made(|list| unsafe { (api.create_reg_dlist)(memory.kind.0, list) })?;
        let list = RegisteredList { raw: list, agent: self.clone() };
        let Memory { address, len, device, .. } = memory;
        // SAFETY: the list lives; there is no metadata of the user's.
        Status::check(unsafe { (api.reg_dlist_add_desc)(list.raw, address, len, device, ptr::null(), 0) })?;
        let _long = self.long_calls.begin();
        // SAFETY: the agent and the list live; the caller answers for the memory.
        Status::check(unsafe { (api.register_mem)(self.raw, list.raw, ptr::null_mut()) })?;
        Ok(Arc::new(Registration { memory, list, _owner: owner }))
    }

    /// Transfers of which nobody could say that they have ended when they were dropped. Each keeps its memory registered, and the
    /// agent alive, for ever.
    pub(super) fn leaked(&self) -> usize {
        self.leaked.load(Ordering::Relaxed)
    }

    pub(super) fn count_leak(&self) {
        self.leaked.fetch_add(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Agent").field(&self.name).finish()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let Some(_inside) = self.door.enter() else { return };
        // SAFETY: 1. peers, registrations and transfers hold an `Arc` of it, so they are gone, and nobody else calls it.
        //         2. the backend's handle is freed once, here; the backend goes with the agent.
        unsafe {
            if !self.backend.is_null() {
                (self.api().destroy_backend)(self.backend);
            }
            (self.api().destroy_agent)(self.raw);
        }
    }
}

struct Params<'a> {
    raw: params_t,
    api: &'a Capi,
}

impl Params<'_> {
    fn set(&self, name: &str, value: &str) -> Result<(), Option<Status>> {
        let add = self.api.params_add.ok_or(None)?;
        let (name, value) = (c_string(name).map_err(Some)?, c_string(value).map_err(Some)?);
        // SAFETY: the parameters live; both strings end with 0 and are copied.
        Status::check(unsafe { add(self.raw, name.as_ptr(), value.as_ptr()) }).map_err(Some)
    }
}

impl Drop for Params<'_> {
    fn drop(&mut self) {
        // SAFETY: given to us, and used by nobody any more.
        unsafe { (self.api.destroy_params)(self.raw) };
    }
}

struct NotificationMap<'a> {
    raw: notif_map_t,
    api: &'a Capi,
}

impl NotificationMap<'_> {
    fn read(&self) -> Result<Vec<(String, Vec<u8>)>, Status> {
        let (api, map) = (self.api, self.raw);
        let mut senders = 0;
        // SAFETY: the map lives, as in all calls below; the answer has a place.
        Status::check(unsafe { (api.notif_map_size)(map, &mut senders) })?;
        let mut taken = Vec::new();
        for sender in 0..senders {
            let mut name = ptr::null();
            // SAFETY: the index is in the map, as it must be.
            Status::check(unsafe { (api.notif_map_get_agent_at)(map, sender, &mut name) })?;
            let mut count = 0;
            // SAFETY: the name is the map's own. It is not found if the sender's has a 0 in it: nobody can get at its messages
            // then.
            if unsafe { (api.notif_map_get_notifs_size)(map, name, &mut count) } != Status::SUCCESS.0 {
                continue;
            }
            // SAFETY: the map's string, which ends with 0 and lives while the map does.
            let text = unsafe { CStr::from_ptr(name) }.to_string_lossy();
            for index in 0..count {
                let (mut data, mut len) = (ptr::null(), 0);
                // SAFETY: the name and the index are the map's own.
                Status::check(unsafe { (api.notif_map_get_notif)(map, name, index, &mut data, &mut len) })?;
                // SAFETY: these `len` bytes are the map's, which lives.
                taken.push((text.clone().into_owned(), unsafe { copied(data, len) }));
            }
        }
        Ok(taken)
    }
}

impl Drop for NotificationMap<'_> {
    fn drop(&mut self) {
        // SAFETY: made for us, and used by nobody any more.
        unsafe { (self.api.destroy_notif_map)(self.raw) };
    }
}

/// What memory is. Any number, as in [`Status`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MemoryKind(pub(super) mem_type_t);

impl MemoryKind {
    pub(super) const DRAM: MemoryKind = MemoryKind(MEM_DRAM);
}

/// Where memory is, of ours or of a peer's. Never followed here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) kind: MemoryKind,
    pub(super) address: usize,
    pub(super) len: usize,
    /// Which GPU; 0 for [`DRAM`](MemoryKind::DRAM).
    pub(super) device: u64,
}

impl Memory {
    /// A part of it.
    pub(super) fn part(self, range: Range<usize>) -> Option<Memory> {
        let len = range.end.checked_sub(range.start)?;
        let address = self.address.checked_add(range.start)?;
        (range.end <= self.len).then_some(Memory { address, len, ..self })
    }
}

/// Memory that NIXL knows; it does not know it any more when this is dropped.
pub(super) struct Registration {
    memory: Memory,
    list: RegisteredList,
    _owner: Box<dyn Any + Send + Sync>,
}

impl Registration {
    pub(super) fn memory(&self) -> Memory {
        self.memory
    }

    pub(super) fn agent(&self) -> &Arc<Agent> {
        &self.list.agent
    }

    /// A part of it, for a transfer.
    pub(super) fn slice(self: &Arc<Self>, range: Range<usize>) -> Option<LocalSlice> {
        Some(LocalSlice { memory: self.memory.part(range)?, of: self.clone() })
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Registration").field(&self.memory).finish()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let agent = &self.list.agent;
        let Some(_inside) = agent.door.enter() else { return };
        let _long = agent.long_calls.begin();
        // SAFETY: registered in `Agent::register` by this very list; every list and transfer that names it holds an `Arc` of it.
        unsafe { (agent.api().deregister_mem)(agent.raw, self.list.raw, ptr::null_mut()) };
    }
}

struct RegisteredList {
    raw: reg_dlist_t,
    agent: Arc<Agent>,
}

// SAFETY: the list is changed by nobody once it is registered by, and freed once, by its owner.
unsafe impl Send for RegisteredList {}
// SAFETY: as above.
unsafe impl Sync for RegisteredList {}

impl Drop for RegisteredList {
    fn drop(&mut self) {
        // SAFETY: made in `Agent::register`; NIXL copies what it keeps of it.
        unsafe { (self.agent.api().destroy_reg_dlist)(self.raw) };
    }
}

/// A part of registered memory of ours; it keeps it registered.
#[derive(Clone, Debug)]
pub(super) struct LocalSlice {
    pub(super) memory: Memory,
    pub(super) of: Arc<Registration>,
}

/// A list of memory for C, while a call needs it.
pub(super) struct Descriptors<'a> {
    pub(super) raw: xfer_dlist_t,
    api: &'a Capi,
}

impl<'a> Descriptors<'a> {
    /// The memory must be all of one kind, and there must be some.
    pub(super) fn new(api: &'a Capi, memory: impl IntoIterator<Item = Memory>) -> Result<Self, Status> {
        let mut memory = memory.into_iter().peekable();
        let kind = memory.peek().ok_or(Status::INVALID_PARAM)?.kind;
        // SAFETY: the answer has a place.
        let raw = made(|list| unsafe { (api.create_xfer_dlist)(kind.0, list) })?;
        let list = Descriptors { raw, api };
        for Memory { kind: this, address, len, device } in memory {
            if this != kind {
                return Err(Status::INVALID_PARAM);
            }
            // SAFETY: the list lives. NIXL looks the numbers up among what is registered and never takes them on trust.
            Status::check(unsafe { (api.xfer_dlist_add_desc)(list.raw, address, len, device) })?;
        }
        Ok(list)
    }
}

impl Drop for Descriptors<'_> {
    fn drop(&mut self) {
        // SAFETY: made in `new`, and used by nobody any more.
        unsafe { (self.api.destroy_xfer_dlist)(self.raw) };
    }
}

/// What goes with a transfer.
pub(super) struct Options<'a> {
    raw: opt_args_t,
    api: &'a Capi,
}

impl<'a> Options<'a> {
    /// The peer is notified of `message` once the transfer is done, if there is one.
    pub(super) fn new(api: &'a Capi, message: Option<&[u8]>) -> Result<Option<Self>, Status> {
        let Some(message) = message else { return Ok(None) };
        // SAFETY: the answer has a place.
        let raw = made(|options| unsafe { (api.create_opt_args)(options) })?;
        let options = Options { raw, api };
        // SAFETY: the options live; the bytes are copied.
        Status::check(unsafe { (api.opt_args_set_notif_msg)(raw, message.as_ptr().cast::<c_void>(), message.len()) })?;
        // SAFETY: as above.
        Status::check(unsafe { (api.opt_args_set_has_notif)(raw, true) })?;
        Ok(Some(options))
    }

    pub(super) fn raw(this: &Option<Self>) -> opt_args_t {
        this.as_ref().map_or(ptr::null_mut(), |options| options.raw)
    }
}

impl Drop for Options<'_> {
    fn drop(&mut self) {
        // SAFETY: made in `new`, and used by nobody any more.
        unsafe { (self.api.destroy_opt_args)(self.raw) };
    }
}
