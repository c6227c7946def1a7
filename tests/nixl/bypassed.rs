//! What one does without a table: look whether the peer is there, add it if it is not, use it. **Not sound, which is what it
//! shows**: threads meet in NIXL's calls, with an agent that is in NIXL's default mode. No note below can say more than what
//! holds apart from that.

#[path = "../../src/transport/nixl/capi.rs"]
#[allow(dead_code, unreachable_pub)]
mod capi;

use crate::crash::{Done, MESSAGE, PIECE, WORKERS};
use capi::*;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use peerage::transport::nixl::{Nixl, NixlAddress};
use std::ffi::{CStr, CString, c_void};
use std::mem::ManuallyDrop;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

const THREAD_SYNC_NONE: thread_sync_t = 0;

pub(crate) struct Naive {
    api: Capi,
    agent: agent_t,
    peer: CString,
    metadata: Vec<u8>,
    here: usize,
    there: usize,
}

// SAFETY: none; see the head of this file.
unsafe impl Send for Naive {}
// SAFETY: as above.
unsafe impl Sync for Naive {}

fn api() -> Capi {
    // Finds the library as the transport does, and leaves no agent behind.
    let path = Nixl::builder().build().unwrap().library().to_owned();
    // SAFETY: it is NIXL's C API, and is never unloaded.
    unsafe {
        let library = ManuallyDrop::new(Library::open(Some(path), RTLD_NOW | RTLD_LOCAL).unwrap());
        Capi::of(&library).ok().unwrap()
    }
}

impl Naive {
    pub(crate) fn new(address: &NixlAddress) -> Self {
        let (api, memory) = (api(), Box::leak(vec![7_u8; PIECE].into_boxed_slice()));
        let config = AgentConfig {
            enable_prog_thread: true,
            enable_listen_thread: false,
            listen_port: 0,
            thread_sync: THREAD_SYNC_NONE,
            num_workers: 1,
            pthr_delay_us: 0,
            lthr_delay_us: 100_000,
            capture_telemetry: false,
            room: [0; 8],
        };
        let (mut agent, mut backend, mut list) = (null_mut(), null_mut(), null_mut());
        let (mut mems, mut params) = (null_mut(), null_mut());
        let here = memory.as_ptr() as usize;
        // SAFETY: the calls get pointers to places that live through them; the memory is never freed.
        unsafe {
            assert_eq!((api.create_configured_agent)(c"naive".as_ptr(), &config, &mut agent), 0);
            assert_eq!((api.get_plugin_params)(agent, c"UCX".as_ptr(), &mut mems, &mut params), 0);
            assert_eq!((api.create_backend)(agent, c"UCX".as_ptr(), params, &mut backend), 0);
            assert_eq!((api.create_reg_dlist)(MEM_DRAM, &mut list), 0);
            assert_eq!((api.reg_dlist_add_desc)(list, here, PIECE, 0, null(), 0), 0);
            assert_eq!((api.register_mem)(agent, list, null_mut()), 0);
        }
        let there = usize::try_from(address.memory()[0].address).unwrap();
        let peer = CString::new(address.name().as_str()).unwrap();
        Naive { api, agent, peer, metadata: address.metadata().to_vec(), here, there }
    }

    pub(crate) fn add(&self) -> bool {
        let mut name = null_mut();
        // SAFETY: as in `new`; the name is the C library's to free.
        unsafe {
            let data = self.metadata.as_ptr().cast::<c_void>();
            let added = (self.api.load_remote_md)(self.agent, data, self.metadata.len(), &mut name) == 0;
            if added {
                assert_eq!(CStr::from_ptr(name), &*self.peer);
                libc::free(name.cast());
            }
            added
        }
    }

    pub(crate) fn remove(&self) -> bool {
        // SAFETY: as in `new`.
        unsafe { (self.api.invalidate_remote_md)(self.agent, self.peer.as_ptr()) == 0 }
    }

    pub(crate) fn notify(&self) -> bool {
        let (data, len) = (MESSAGE.as_ptr().cast::<c_void>(), MESSAGE.len());
        // SAFETY: as in `new`.
        unsafe { (self.api.gen_notif)(self.agent, self.peer.as_ptr(), data, len, null_mut()) == 0 }
    }

    fn write(&self, over: &AtomicBool) -> bool {
        let (api, agent) = (&self.api, self.agent);
        let (mut local, mut remote, mut request) = (null_mut(), null_mut(), null_mut());
        // SAFETY: as in `new`; what is made is freed once.
        unsafe {
            assert_eq!((api.create_xfer_dlist)(MEM_DRAM, &mut local), 0);
            assert_eq!((api.create_xfer_dlist)(MEM_DRAM, &mut remote), 0);
            (api.xfer_dlist_add_desc)(local, self.here, PIECE, 0);
            (api.xfer_dlist_add_desc)(remote, self.there, PIECE, 0);
            let name = self.peer.as_ptr();
            let made = (api.create_xfer_req)(agent, XFER_WRITE, local, remote, name, &mut request, null_mut()) == 0;
            (api.destroy_xfer_dlist)(local);
            (api.destroy_xfer_dlist)(remote);
            if !made {
                return false;
            }
            let mut status = (api.post_xfer_req)(agent, request, null_mut());
            while status == Status::IN_PROGRESS.0 && !over.load(Ordering::Relaxed) {
                status = (api.get_xfer_status)(agent, request);
            }
            (api.release_xfer_req)(agent, request);
            (api.destroy_xfer_req)(request);
            status == 0
        }
    }
}

/// Until the first moment, and to the second where it has not done much by then.
pub(crate) fn run(address: &NixlAddress, (end, latest): (Instant, Instant), pause: &mut dyn FnMut(), done: &Done) {
    let (naive, present, over) = (Naive::new(address), AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (naive, present, over) = (&naive, &present, &over);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    if !present.load(Ordering::Relaxed) && naive.add() {
                        done.adds.fetch_add(1, Ordering::Relaxed);
                        present.store(true, Ordering::Relaxed);
                    }
                    done.sends.fetch_add(naive.notify().into(), Ordering::Relaxed);
                    if worker % 2 == 0 {
                        done.writes.fetch_add(naive.write(over).into(), Ordering::Relaxed);
                    }
                }
            });
        }
        while Instant::now() < end || (!done.is_load() && Instant::now() < latest) {
            pause();
            done.removes.fetch_add(naive.remove().into(), Ordering::Relaxed);
            present.store(false, Ordering::Relaxed);
        }
        over.store(true, Ordering::Relaxed);
    });
}
