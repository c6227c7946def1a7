//! One peer that is loaded, and prepared lists.
//!
//! NIXL has one slot per name, and its older versions let a list or a transfer of the slot's last tenant be used with the next, by pointers to
//! what is gone. Here that can't be written: what needs a peer is asked of a [`Remote`], which checks that the list or the
//! transfer is its own; [`Remote::remove`] takes the peer itself, which only its owner has; and a name is loaded again only when its
//! last `Remote` is gone, also where NIXL has dropped the peer by itself meanwhile.

use super::capi::*;
use super::native::{Agent, Descriptors, LocalSlice, Memory, Options, Registration, c_string, made};
use super::request::{Kind, Request};
use crate::sync::lock;
use std::collections::HashSet;
use std::ffi::{CStr, CString, c_char};
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The names of peers that are loaded. Locked while the set is changed, never while NIXL is called.
#[derive(Default)]
pub(super) struct Names(Mutex<HashSet<String>>);

impl Names {
    /// Whether nobody had it; from now on somebody has.
    fn take(&self, name: &str) -> bool {
        lock(&self.0).insert(name.to_owned())
    }

    fn give_back(&self, name: &str) {
        lock(&self.0).remove(name);
    }
}

/// Why a peer was not loaded. Nothing is left behind of it.
#[derive(Debug)]
pub(super) enum NotLoaded {
    /// There is a `Remote` of this name. Remove it first.
    Taken,
    /// NIXL said so: the metadata is none, or the peer can't be reached ([`BACKEND`](Status::BACKEND)).
    Native(Status),
    /// The metadata is another's.
    OtherName(String),
}

/// One peer. Dropped without [`remove`](Self::remove), it is removed there and then.
pub(super) struct Remote {
    agent: Arc<Agent>,
    name: String,
    name_c: CString,
    /// Which load it is, of all in this process.
    load: u64,
    removed: bool,
}

impl Agent {
    /// Loads and, as far as the backend does so now, connects the peer called `name`. May take as long as a TCP connect, and NIXL's
    /// exclusive lock for that long.
    pub(super) fn load(self: &Arc<Self>, name: &str, metadata: &[u8]) -> Result<Remote, NotLoaded> {
        let name_c = c_string(name).map_err(NotLoaded::Native)?;
        if !self.names.take(name) {
            return Err(NotLoaded::Taken);
        }
        let loaded = self.load_metadata(metadata);
        if loaded.as_deref() == Ok(name) {
            static LOADS: AtomicU64 = AtomicU64::new(1);
            let load = LOADS.fetch_add(1, Ordering::Relaxed);
            return Ok(Remote { agent: self.clone(), name: name.to_owned(), name_c, load, removed: false });
        }
        // A part of it may be loaded. Nobody has a peer of this name, as it is ours until we give it back.
        self.invalidate(&name_c);
        self.names.give_back(name);
        let actual = loaded.map_err(NotLoaded::Native)?;
        if self.names.take(&actual) {
            if let Ok(actual) = c_string(&actual) {
                self.invalidate(&actual);
            }
            self.names.give_back(&actual);
        }
        Err(NotLoaded::OtherName(actual))
    }

    pub(super) fn load_metadata(&self, metadata: &[u8]) -> Result<String, Status> {
        // SAFETY: the agent lives; the bytes are copied; the answer has a place. NIXL believes what is in metadata, see `nixl`.
        let name: *mut c_char = made(|name| unsafe {
            (self.api().load_remote_md)(self.raw(), metadata.as_ptr().cast(), metadata.len(), name)
        })?;
        // SAFETY: NIXL has just made the string for us; it is copied, then given back to the C library's `free`.
        let text = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        // SAFETY: as above.
        unsafe { libc::free(name.cast()) };
        Ok(text)
    }

    pub(super) fn invalidate(&self, name: &CStr) -> Status {
        // SAFETY: the agent lives; the name is copied.
        Status(unsafe { (self.api().invalidate_remote_md)(self.raw(), name.as_ptr()) })
    }

    pub(super) fn notify(&self, name: &CStr, message: &[u8]) -> Result<(), Status> {
        // SAFETY: the agent lives; name and bytes are copied; no options.
        Status::check(unsafe {
            let (data, len) = (message.as_ptr().cast(), message.len());
            (self.api().gen_notif)(self.raw(), name.as_ptr(), data, len, ptr::null_mut())
        })
    }

    /// A list of memory of ours, for transfers that name its entries by their index. Takes NIXL's exclusive lock.
    pub(super) fn prepare(self: &Arc<Self>, slices: &[LocalSlice]) -> Result<Arc<LocalList>, Status> {
        if slices.iter().any(|slice| !Arc::ptr_eq(slice.of.agent(), self)) {
            return Err(Status::INVALID_PARAM);
        }
        let registrations = slices.iter().map(|slice| slice.of.clone()).collect();
        let list = Prepared::new(self, c"", slices.iter().map(|slice| slice.memory))?;
        Ok(Arc::new(LocalList { list, registrations }))
    }
}

/// NIXL did not remove the peer, which is given back.
#[derive(Debug)]
pub(super) struct NotRemoved {
    pub(super) remote: Remote,
    pub(super) status: Status,
}

impl Remote {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn agent(&self) -> &Arc<Agent> {
        &self.agent
    }

    /// Loads newer metadata of the same process: keys to memory that it has registered since. `Err`: it is another process's, or NIXL
    /// did not take it, and what was known stays known. Takes NIXL's exclusive lock.
    pub(super) fn refresh(&self, metadata: &[u8]) -> Result<(), Status> {
        let loaded = self.agent.load_metadata(metadata)?;
        if loaded == self.name { Ok(()) } else { Err(Status::INVALID_PARAM) }
    }

    /// Connects now what would be connected by the first use. Takes NIXL's exclusive lock.
    pub(super) fn connect(&self) -> Result<(), Status> {
        // SAFETY: the agent lives; the name is copied; no options.
        Status::check(unsafe {
            (self.agent.api().agent_make_connection)(self.agent.raw(), self.name_c.as_ptr(), ptr::null_mut())
        })
    }

    /// Sends bytes. `Ok`: NIXL has accepted them, without bound where the peer is stopped.
    pub(super) fn notify(&self, message: &[u8]) -> Result<(), Status> {
        self.agent.notify(&self.name_c, message)
    }

    /// A list of the peer's memory, for transfers that name its entries by their index. [`NOT_FOUND`](Status::NOT_FOUND) if the
    /// metadata had no key to some of it. Takes NIXL's exclusive lock.
    pub(super) fn prepare(&self, memory: &[Memory]) -> Result<Arc<RemoteList>, Status> {
        let list = Prepared::new(&self.agent, &self.name_c, memory.iter().copied())?;
        Ok(Arc::new(RemoteList { list, load: self.load }))
    }

    /// A transfer between entries of two prepared lists. The peer is notified of `message` once it is done.
    pub(super) fn prepared_transfer(
        &self,
        kind: Kind,
        (local, local_entries): (&Arc<LocalList>, &[i32]),
        (remote, remote_entries): (&Arc<RemoteList>, &[i32]),
        message: Option<&[u8]>,
    ) -> Result<Request, Status> {
        if !Arc::ptr_eq(&local.list.agent, &self.agent) {
            return Err(Status::INVALID_PARAM);
        }
        self.owns(remote.load)?;
        let is_of = |entries: &[i32], list: &Prepared| {
            entries.iter().all(|&entry| usize::try_from(entry).is_ok_and(|entry| entry < list.lens.len()))
        };
        let is_fit = !local_entries.is_empty()
            && local_entries.len() == remote_entries.len()
            && is_of(local_entries, &local.list)
            && is_of(remote_entries, &remote.list)
            && local_entries
                .iter()
                .zip(remote_entries)
                .all(|(&l, &r)| local.list.lens[l as usize] == remote.list.lens[r as usize]);
        if !is_fit {
            return Err(Status::INVALID_PARAM);
        }
        let api = self.agent.api();
        let options = Options::new(api, message)?;
        // SAFETY: 1. the agent and both lists live, and the lists are of this agent and of this load of the peer.
        //         2. the entries are in the lists, equal in number and length, and copied.
        let raw = made(|request| unsafe {
            (api.make_xfer_req)(
                self.agent.raw(),
                kind.0,
                local.list.raw,
                local_entries.as_ptr(),
                local_entries.len(),
                remote.list.raw,
                remote_entries.as_ptr(),
                remote_entries.len(),
                request,
                Options::raw(&options),
            )
        })?;
        let lists = (local.clone(), remote.clone());
        // SAFETY: made just now, of memory that `lists` keeps registered.
        Ok(unsafe { Request::new(&self.agent, raw, self.load, local.registrations.clone(), Some(lists)) })
    }

    /// A transfer between memory of ours and the peer's, piece by piece.
    pub(super) fn transfer(
        &self,
        kind: Kind,
        local: &[LocalSlice],
        remote: &[Memory],
        message: Option<&[u8]>,
    ) -> Result<Request, Status> {
        let is_fit = local.len() == remote.len()
            && local.iter().zip(remote).all(|(local, remote)| local.memory.len == remote.len)
            && local.iter().all(|slice| Arc::ptr_eq(slice.of.agent(), &self.agent));
        if !is_fit {
            return Err(Status::INVALID_PARAM);
        }
        let api = self.agent.api();
        let registrations = local.iter().map(|slice| slice.of.clone()).collect();
        let local = Descriptors::new(api, local.iter().map(|slice| slice.memory))?;
        let remote = Descriptors::new(api, remote.iter().copied())?;
        let options = Options::new(api, message)?;
        // SAFETY: the agent lives; lists, name and options are copied.
        let raw = made(|request| unsafe {
            let (agent, name, options) = (self.agent.raw(), self.name_c.as_ptr(), Options::raw(&options));
            (api.create_xfer_req)(agent, kind.0, local.raw, remote.raw, name, request, options)
        })?;
        // SAFETY: made just now, of memory that `registrations` keeps registered.
        Ok(unsafe { Request::new(&self.agent, raw, self.load, registrations, None) })
    }

    /// [`INVALID_PARAM`](Status::INVALID_PARAM) unless this is the load that a list or a transfer was made with.
    pub(super) fn owns(&self, load: u64) -> Result<(), Status> {
        if load == self.load { Ok(()) } else { Err(Status::INVALID_PARAM) }
    }

    /// Removes the peer, as NIXL may have done before. Transfers that have not ended answer
    /// [`NOT_FOUND`](Status::NOT_FOUND) from now on. Takes NIXL's exclusive lock.
    pub(super) fn remove(mut self) -> Result<(), NotRemoved> {
        match self.remove_once() {
            Ok(()) => Ok(()),
            Err(status) => Err(NotRemoved { remote: self, status }),
        }
    }

    fn remove_once(&mut self) -> Result<(), Status> {
        match self.agent.invalidate(&self.name_c) {
            Status::SUCCESS | Status::NOT_FOUND => {
                self.removed = true;
                self.agent.names.give_back(&self.name);
                Ok(())
            }
            status => Err(status),
        }
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Remote").field(&self.name).finish()
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        if !self.removed {
            // Where NIXL does not remove it, its name stays taken.
            let _ = self.remove_once();
        }
    }
}

/// A list that NIXL has looked up.
struct Prepared {
    raw: xfer_dlist_handle_t,
    agent: Arc<Agent>,
    lens: Box<[usize]>,
}

// SAFETY: 1. NIXL only reads it, in calls that it locks by itself, until it is freed once, by its owner.
//         2. transfers that are made of it hold an `Arc` of it. Ends if: a call is added that changes a list.
unsafe impl Send for Prepared {}
// SAFETY: as above.
unsafe impl Sync for Prepared {}

impl Prepared {
    fn new(agent: &Arc<Agent>, of: &CStr, memory: impl Iterator<Item = Memory> + Clone) -> Result<Self, Status> {
        let api = agent.api();
        let lens = memory.clone().map(|memory| memory.len).collect();
        let list = Descriptors::new(api, memory)?;
        // SAFETY: the agent and the list live; the name is copied; no options.
        let raw = made(|handle| unsafe {
            (api.prep_xfer_dlist)(agent.raw(), of.as_ptr(), list.raw, handle, ptr::null_mut())
        })?;
        Ok(Prepared { raw, agent: agent.clone(), lens })
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        // SAFETY: prepared in `new`; transfers hold an `Arc` of it. It holds no more than weak references to what a peer's removal
        //         frees, in 1.5; in older versions its end does not follow them.
        unsafe { (self.agent.api().release_xfer_dlist_handle)(self.agent.raw(), self.raw) };
    }
}

/// A prepared list of our memory, which it keeps registered. Its end takes NIXL's exclusive lock.
pub(super) struct LocalList {
    list: Prepared,
    registrations: Vec<Arc<Registration>>,
}

/// A prepared list of a peer's memory, good for that load of the peer. Its end takes NIXL's exclusive lock.
pub(super) struct RemoteList {
    list: Prepared,
    load: u64,
}

impl fmt::Debug for LocalList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalList").field("entries", &self.list.lens.len()).finish()
    }
}

impl fmt::Debug for RemoteList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteList").field("entries", &self.list.lens.len()).finish()
    }
}
