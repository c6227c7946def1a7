//! One peer that is loaded, and transfers with it.
//!
//! NIXL has one slot per name, and its older versions let a transfer of the slot's last tenant be used with the next, by pointers
//! to what is gone. Here that can't be written: what needs a peer is asked of a [`Remote`], which checks that the transfer is its
//! own; [`Remote::remove`] takes the peer itself, which only its owner has; and a name is loaded again only when its last
//! `Remote` is gone, also where NIXL has dropped the peer by itself meanwhile.
//!
//! Lists are not prepared. A transfer of one piece that names its pieces as it is made costs what one of two prepared lists
//! costs: measured with 1.5.1 over shared memory, 16 writes of 64 KiB at once ran at 11.8 GB/s by the first and at 11.5 GB/s by
//! the second. A prepared list would be one thing more to let go of before its peer, under NIXL's exclusive lock.

use super::capi::*;
use super::native::{Agent, Descriptors, LocalSlice, Memory, Options, c_string, made};
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
        let _inside = self.door.enter_or_sleep();
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
        self.unload(&actual);
        Err(NotLoaded::OtherName(actual))
    }

    /// What metadata of somebody else has loaded, unless there is a peer of that name.
    fn unload(&self, name: &str) {
        if self.names.take(name) {
            if let Ok(name) = c_string(name) {
                self.invalidate(&name);
            }
            self.names.give_back(name);
        }
    }

    pub(super) fn load_metadata(&self, metadata: &[u8]) -> Result<String, Status> {
        let _long = self.long_calls.begin();
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
        let _long = self.long_calls.begin();
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
}

impl Remote {
    /// Loads newer metadata of the same process: keys to memory that it has registered since. `Err`: it is another process's, or
    /// NIXL did not take it, and what was known stays known. Takes NIXL's exclusive lock.
    pub(super) fn refresh(&self, metadata: &[u8]) -> Result<(), Status> {
        let loaded = self.agent.load_metadata(metadata)?;
        if loaded == self.name {
            return Ok(());
        }
        self.agent.unload(&loaded);
        Err(Status::INVALID_PARAM)
    }

    /// Sends bytes. `Ok`: NIXL has accepted them, without bound where the peer is stopped.
    pub(super) fn notify(&self, message: &[u8]) -> Result<(), Status> {
        self.agent.notify(&self.name_c, message)
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
        Ok(unsafe { Request::new(&self.agent, raw, self.load, registrations) })
    }

    /// [`INVALID_PARAM`](Status::INVALID_PARAM) unless this is the load that a list or a transfer was made with.
    pub(super) fn owns(&self, load: u64) -> Result<(), Status> {
        if load == self.load { Ok(()) } else { Err(Status::INVALID_PARAM) }
    }

    /// Removes the peer, as NIXL may have done before. Transfers that have not ended answer
    /// [`NOT_FOUND`](Status::NOT_FOUND) from now on. `Err`: NIXL did not remove it. Takes NIXL's exclusive lock.
    pub(super) fn remove(mut self) -> Result<(), Remote> {
        if self.is_removed() { Ok(()) } else { Err(self) }
    }

    fn is_removed(&mut self) -> bool {
        // Of a process that exits, nothing is left to remove.
        let inside = self.agent.door.enter();
        let removed =
            inside.is_none() || matches!(self.agent.invalidate(&self.name_c), Status::SUCCESS | Status::NOT_FOUND);
        if removed {
            self.removed = true;
            self.agent.names.give_back(&self.name);
        }
        removed
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
            self.is_removed();
        }
    }
}
