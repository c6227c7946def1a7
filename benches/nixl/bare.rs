//! NIXL's C API as one uses it from one thread: a transfer made, posted, polled and released for each write.

#[path = "../../src/transport/nixl/capi.rs"]
#[allow(dead_code, unreachable_pub)]
mod capi;

use crate::MIB;
use capi::*;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use peerage::transport::nixl::NixlAddress;
use std::cell::OnceCell;
use std::collections::VecDeque;
use std::ffi::CString;
use std::mem::ManuallyDrop;
use std::path::Path;
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

/// As `transport::nixl` makes its agents.
const CONFIG: AgentConfig = AgentConfig {
    enable_prog_thread: false,
    enable_listen_thread: false,
    listen_port: 0,
    thread_sync: THREAD_SYNC_RW,
    num_workers: 1,
    pthr_delay_us: 10_000,
    lthr_delay_us: 100_000,
    capture_telemetry: false,
    room: [0; 8],
};

pub(crate) struct Bare {
    api: Capi,
    agent: agent_t,
    memory: usize,
    /// Its name, and where its memory is.
    peer: OnceCell<(CString, usize)>,
}

impl Bare {
    pub(crate) fn new(library: &Path, len: usize) -> Self {
        // SAFETY: it is NIXL's C API, and is never unloaded.
        let api = unsafe {
            let library = ManuallyDrop::new(Library::open(Some(library), RTLD_NOW | RTLD_LOCAL).unwrap());
            Capi::of(&library).ok().unwrap()
        };
        let memory = vec![7_u8; len].leak().as_ptr() as usize;
        let (mut agent, mut backend, mut list) = (null_mut(), null_mut(), null_mut());
        let (mut mems, mut params) = (null_mut(), null_mut());
        // SAFETY: the calls get pointers to places that live through them; the memory is never freed.
        unsafe {
            assert_eq!((api.create_configured_agent)(c"bare".as_ptr(), &CONFIG, &mut agent), 0);
            assert_eq!((api.get_plugin_params)(agent, c"UCX".as_ptr(), &mut mems, &mut params), 0);
            assert_eq!((api.create_backend)(agent, c"UCX".as_ptr(), params, &mut backend), 0);
            assert_eq!((api.create_reg_dlist)(MEM_DRAM, &mut list), 0);
            assert_eq!((api.reg_dlist_add_desc)(list, memory, len, 0, null(), 0), 0);
            assert_eq!((api.register_mem)(agent, list, null_mut()), 0);
        }
        Bare { api, agent, memory, peer: OnceCell::new() }
    }

    pub(crate) fn load(&self, address: &NixlAddress) {
        let (metadata, mut name) = (address.metadata(), null_mut());
        // SAFETY: as in `new`.
        let loaded =
            unsafe { (self.api.load_remote_md)(self.agent, metadata.as_ptr().cast(), metadata.len(), &mut name) };
        assert_eq!(loaded, 0);
        let there = usize::try_from(address.memory()[0].address).unwrap();
        self.peer.set((CString::new(address.name().as_str()).unwrap(), there)).unwrap();
    }

    fn piece(&self, at: usize, len: usize) -> xfer_dlist_t {
        let mut list = null_mut();
        // SAFETY: as in `new`.
        unsafe {
            assert_eq!((self.api.create_xfer_dlist)(MEM_DRAM, &mut list), 0);
            assert_eq!((self.api.xfer_dlist_add_desc)(list, at, len, 0), 0);
        }
        list
    }

    pub(crate) fn write(&self, len: usize, writes: usize, depth: usize) -> Duration {
        let (api, agent) = (&self.api, self.agent);
        let (name, there) = self.peer.get().unwrap();
        let start = Instant::now();
        let mut running = VecDeque::new();
        let finish = |(request, mut status): (xfer_req_t, Code)| {
            // SAFETY: as in `new`; the request is freed once.
            unsafe {
                while status == Status::IN_PROGRESS.0 {
                    status = (api.get_xfer_status)(agent, request);
                }
                assert_eq!(status, 0);
                (api.release_xfer_req)(agent, request);
                (api.destroy_xfer_req)(request);
            }
        };
        for nth in 0..writes {
            if running.len() == depth {
                finish(running.pop_front().unwrap());
            }
            let (at, mut request) = ((nth % depth) * MIB, null_mut());
            let (local, remote) = (self.piece(self.memory + at, len), self.piece(there + at, len));
            // SAFETY: as in `new`; lists and name are copied.
            unsafe {
                let made =
                    (api.create_xfer_req)(agent, XFER_WRITE, local, remote, name.as_ptr(), &mut request, null_mut());
                assert_eq!(made, 0);
                (api.destroy_xfer_dlist)(local);
                (api.destroy_xfer_dlist)(remote);
                running.push_back((request, (api.post_xfer_req)(agent, request, null_mut())));
            }
        }
        running.into_iter().for_each(finish);
        start.elapsed()
    }
}
