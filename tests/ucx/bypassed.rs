//! What one does without a table: look whether there is an endpoint, then use it. **Not sound, which is what it shows**: between
//! the look and the use another thread may close it. No note below can say more than what holds apart from that.

use super::{Done, MESSAGE, SENDERS};
use peerage_ucx_sys::*;
use socket2::SockAddr;
use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::time::Instant;

/// Of the libucp that runs.
pub(super) fn version() -> String {
    // SAFETY: libucp answers with a text of its own that never changes.
    unsafe { CStr::from_ptr(ucp_get_version_string()) }.to_string_lossy().into_owned()
}

#[derive(Clone, Copy)]
struct Worker(ucp_worker_h);

// SAFETY: it is in multi-thread mode.
unsafe impl Send for Worker {}
// SAFETY: as above.
unsafe impl Sync for Worker {}

impl Worker {
    fn new() -> Worker {
        let (mut config, mut context, mut worker) = (null_mut(), null_mut(), null_mut());
        // SAFETY: all zeroes is a valid value of both; the calls get pointers to places that live through them.
        unsafe {
            let mut params: ucp_params_t = MaybeUninit::zeroed().assume_init();
            params.field_mask = (UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED).into();
            params.features = UCP_FEATURE_AM.into();
            params.mt_workers_shared = 1;
            assert_eq!(ucp_config_read(null(), null(), &mut config), UCS_OK);
            assert_eq!(ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &mut context), UCS_OK);
            let mut params: ucp_worker_params_t = MaybeUninit::zeroed().assume_init();
            params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE.into();
            params.thread_mode = UCS_THREAD_MODE_MULTI;
            assert_eq!(ucp_worker_create(context, &params, &mut worker), UCS_OK);
        }
        Worker(worker)
    }

    fn progress(self) {
        // SAFETY: the worker is never destroyed.
        unsafe { ucp_worker_progress(self.0) };
    }

    fn connect(self, to: &SockAddr) -> ucp_ep_h {
        let mut endpoint = null_mut();
        // SAFETY: as in `new`.
        unsafe {
            let mut params: ucp_ep_params_t = MaybeUninit::zeroed().assume_init();
            params.field_mask = (UCP_EP_PARAM_FIELD_FLAGS
                | UCP_EP_PARAM_FIELD_SOCK_ADDR
                | UCP_EP_PARAM_FIELD_ERR_HANDLER
                | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE)
                .into();
            params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
            params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
            params.err_handler.cb = Some(broke);
            params.sockaddr.addr = to.as_ptr().cast();
            params.sockaddr.addrlen = to.len();
            assert_eq!(ucp_ep_create(self.0, &params, &mut endpoint), UCS_OK);
        }
        endpoint
    }

    fn close(self, endpoint: ucp_ep_h) {
        // SAFETY: nobody closes it twice.
        unsafe {
            let mut param: ucp_request_param_t = MaybeUninit::zeroed().assume_init();
            param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
            param.flags = UCP_EP_CLOSE_FLAG_FORCE;
            let request = ucp_ep_close_nbx(endpoint, &param);
            if is_request(request) {
                while ucp_request_check_status(request) == UCS_INPROGRESS {
                    ucp_worker_progress(self.0);
                }
                ucp_request_free(request);
            }
        }
    }
}

fn is_request(answer: *mut c_void) -> bool {
    !(-100..=0).contains(&(answer.addr() as isize))
}

/// Whether it was taken.
fn send(endpoint: ucp_ep_h) -> bool {
    // SAFETY: the bytes are static. The endpoint may be closed by now.
    unsafe {
        let mut param: ucp_request_param_t = MaybeUninit::zeroed().assume_init();
        param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_FLAGS;
        param.flags = UCP_AM_SEND_FLAG_REPLY;
        param.cb.send = Some(sent);
        static BYTES: [u8; MESSAGE.len()] = MESSAGE;
        let answer = ucp_am_send_nbx(endpoint, 0, null(), 0, BYTES.as_ptr().cast(), BYTES.len(), &param);
        answer.is_null() || is_request(answer)
    }
}

unsafe extern "C" fn sent(request: *mut c_void, _: ucs_status_t, _: *mut c_void) {
    // SAFETY: it is ours to free since this callback.
    unsafe { ucp_request_free(request) };
}

unsafe extern "C" fn broke(_: *mut c_void, _: ucp_ep_h, _: ucs_status_t) {}

pub(super) fn run(addr: SocketAddr, end: Instant, pause: &mut dyn FnMut(), done: &Done) {
    let (worker, addr) = (Worker::new(), SockAddr::from(addr));
    let (endpoint, over) = (AtomicPtr::<ucp_ep>::new(null_mut()), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                worker.progress();
            }
        });
        for _ in 0..SENDERS {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let endpoint = endpoint.load(Ordering::Acquire);
                    if endpoint.is_null() {
                        std::thread::yield_now();
                    } else {
                        done.sends.fetch_add(send(endpoint).into(), Ordering::Relaxed);
                    }
                }
            });
        }
        while Instant::now() < end {
            endpoint.store(worker.connect(&addr), Ordering::Release);
            done.connects.fetch_add(1, Ordering::Relaxed);
            pause();
            worker.close(endpoint.swap(null_mut(), Ordering::AcqRel));
            done.closes.fetch_add(1, Ordering::Relaxed);
        }
        over.store(true, Ordering::Relaxed);
    });
}
