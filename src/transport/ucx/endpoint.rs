//! One endpoint of libucp, and what is under way on it. The second file that calls libucp.
//!
//! libucp crashes when an endpoint is closed while somebody else uses it. Here that can't be written: everything on an
//! endpoint takes `&self`, and [`Endpoint::close`] takes the endpoint itself, which only who has the last `Arc` of it gets.
//! That it comes to that soon is the table's doing.
//!
//! An operation owns what libucp may touch until its callback: the bytes of a message, a page of ours, the key to the
//! peer's. It ends exactly once: at once, when libucp says so, or in its callback; a forced close ends what is left so.

use super::link::Link;
use super::mailbox::{Event, Mailbox};
use super::message::{Head, Kind};
use super::native::{Mapped, Status, Stranger, Worker};
use crate::grant::HeldLoan;
use crate::region::Slice;
use crate::state::Generation;
use crate::sync::came_through;
use crate::transfer::{Completion, TransferId, TransferKind};
use peerage_ucx_sys::*;
use socket2::SockAddr;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Tells the endpoints of a worker apart while they are open: what libucp names one by. Never followed.
pub(super) type EndpointKey = usize;

/// Whose an operation is. libucp gives the address of a closed endpoint to a new one, also before the operations of the
/// closed one have ended, so what ends says more than the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) key: EndpointKey,
    serial: u64,
}

/// One endpoint. Dropped without [`close`](Self::close), it is closed by force there and then.
pub(super) struct Endpoint {
    raw: ucp_ep_h,
    /// Of all endpoints of the process.
    serial: u64,
    worker: Arc<Worker>,
    /// Operations that have not ended.
    flight: Arc<AtomicUsize>,
}

// SAFETY: 1. its worker is in multi-thread mode, so calls on it may come from any thread, at once.
//         2. except for close, which no other call may meet: it takes the only owner. Ends if: a second way to close is added.
unsafe impl Send for Endpoint {}
// SAFETY: as above: in that mode calls on one endpoint may also meet.
unsafe impl Sync for Endpoint {}

/// What libucp may touch until the operation ends.
enum Held {
    Message { _bytes: Box<[u8]> },
    Piece { _head: Box<[u8]>, page: Arc<Page>, len: usize },
    Access(Access),
    Receive(Received),
}

struct Operation {
    held: Held,
    of: Origin,
    flight: Arc<AtomicUsize>,
    mailbox: Arc<Mailbox>,
}

impl Drop for Operation {
    fn drop(&mut self) {
        // ord! Release: what libucp touched for the operation, to who closes. Pairs with Acquire in `Closing::is_over`. No
        //      model looks: its other half is libucp.
        self.flight.fetch_sub(1, Ordering::Release);
        // ord! Relaxed: who sees too many naps for a millisecond.
        self.mailbox.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A read or a write of a page of ours, from its go to the end of its flush.
pub(super) struct Access {
    pub(super) link: Arc<Link>,
    pub(super) of: Origin,
    pub(super) id: TransferId,
    pub(super) kind: TransferKind,
    pub(super) local: Slice,
    pub(super) address: u64,
    pub(super) completion: Completion,
    pub(super) flushing: bool,
    pub(super) mapped: Option<Arc<Mapped>>,
    pub(super) key: Option<RemoteKey>,
}

/// The part of a page that is sent as messages, until the last of them has ended here.
pub(super) struct Page {
    pub(super) transfer: TransferId,
    pub(super) part: Slice,
    /// Keeps the page from being used again, if it is lent.
    pub(super) _loan: Option<HeldLoan>,
}

/// The key to a peer's memory, for one endpoint. ucp.h wants it destroyed before the endpoint, and of what a forced close ends it
/// is destroyed after. libucp 1.13 to 1.22 touches nothing then but a pool of the worker's.
pub(super) struct RemoteKey(ucp_rkey_h);

// SAFETY: it is used in calls of a worker in multi-thread mode, and destroyed once, by its owner.
unsafe impl Send for RemoteKey {}

impl Drop for RemoteKey {
    fn drop(&mut self) {
        // SAFETY: unpacked in `Endpoint::unpack`; the operation that used it has ended, as it owned it. The worker lives: an
        //         access is dropped by its thread or in its callback. Ends if: an access outlives the thread, or libucp begins
        //         to use the endpoint here.
        unsafe { ucp_rkey_destroy(self.0) };
    }
}

/// A long message on its way in.
pub(super) struct Received {
    pub(super) of: Origin,
    pub(super) head: Head,
    pub(super) bytes: Vec<u8>,
}

/// A long message that waits at its sender's. It must be received or refused: forgotten, it leaks in libucp.
pub(super) struct Parked(*mut c_void);

impl Parked {
    /// It is not wanted.
    pub(super) fn refuse(self, worker: &Worker) {
        // SAFETY: it came for this worker, which lives, and is used once.
        unsafe { ucp_am_data_release(worker.raw, self.0) };
    }
}

// SAFETY: a handle that is used once, in calls of a worker in multi-thread mode.
unsafe impl Send for Parked {}

impl Endpoint {
    /// Begins to dial. Errors come as [`Event::Broken`].
    pub(super) fn dial(worker: &Arc<Worker>, to: SocketAddr) -> Result<Endpoint, Status> {
        let sockaddr = SockAddr::from(to);
        Self::create(worker, |params| {
            params.field_mask |= u64::from(UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR);
            params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
            params.sockaddr.addr = sockaddr.as_ptr().cast();
            params.sockaddr.addrlen = sockaddr.len();
        })
    }

    /// Accepts who dialled. The stranger is used up, also by an error.
    pub(super) fn accept(worker: &Arc<Worker>, stranger: Stranger) -> Result<Endpoint, Status> {
        Self::create(worker, |params| {
            params.field_mask |= u64::from(UCP_EP_PARAM_FIELD_CONN_REQUEST);
            params.conn_request = stranger.0;
        })
    }

    fn create(worker: &Arc<Worker>, set: impl FnOnce(&mut ucp_ep_params_t)) -> Result<Endpoint, Status> {
        // SAFETY: all zeroes is a valid `ucp_ep_params_t`: numbers, null pointers and no callbacks; the mask says what counts.
        let mut params: ucp_ep_params_t = unsafe { MaybeUninit::zeroed().assume_init() };
        params.field_mask = (UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER).into();
        params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
        params.err_handler.cb = Some(broke);
        params.err_handler.arg = Arc::as_ptr(&worker.mailbox).cast_mut().cast();
        set(&mut params);
        let mut raw = ptr::null_mut();
        // SAFETY: addresses are copied in the call; the handler's `arg` is the mailbox, which the worker keeps and the endpoint
        //         keeps the worker.
        Status::check(unsafe { ucp_ep_create(worker.raw, &params, &mut raw) })?;
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let serial = NEXT.fetch_add(1, Ordering::Relaxed);
        Ok(Endpoint { raw, serial, worker: worker.clone(), flight: Arc::default() })
    }

    pub(super) fn key(&self) -> EndpointKey {
        self.raw.addr()
    }

    pub(super) fn origin(&self) -> Origin {
        Origin { key: self.key(), serial: self.serial }
    }

    /// Sends a message: one allocation, which libucp may use until it has sent it. Never waits.
    pub(super) fn send(&self, head: Head, body: &[u8]) -> Result<(), Status> {
        let mut bytes = Vec::with_capacity(Head::LEN + body.len());
        bytes.extend_from_slice(&head.encode());
        bytes.extend_from_slice(body);
        let bytes = bytes.into_boxed_slice();
        let (header, data, len) = (bytes.as_ptr(), bytes[Head::LEN..].as_ptr(), body.len());
        let submit = |param: &ucp_request_param_t| {
            // SAFETY: the endpoint is open while it is borrowed; header and data are of `bytes`, which the operation owns.
            unsafe { ucp_am_send_nbx(self.raw, 0, header.cast(), Head::LEN, data.cast(), len, param) }
        };
        // Only notifications may be announced, for the peer to fetch: as long as they may be.
        let eager = if head.kind == Kind::Notify { 0 } else { UCP_AM_SEND_FLAG_EAGER };
        let flags = UCP_AM_SEND_FLAG_REPLY | eager;
        self.submit(Held::Message { _bytes: bytes }, None, flags, submit).map(drop).map_err(|(status, _)| status)
    }

    /// Sends a piece of a page. `true`: it has ended at once; else there is an [`Event::Piece`] when it has.
    pub(super) fn send_piece(
        &self,
        generation: Generation,
        page: &Arc<Page>,
        at: usize,
        len: usize,
    ) -> Result<bool, Status> {
        assert!(at + len <= page.part.len());
        let head = Head { offset: at as u64, ..Head::new(Kind::Page, generation, page.transfer.0) };
        let head: Box<[u8]> = Box::new(head.encode());
        let (header, data) = (head.as_ptr(), page.part.as_ptr());
        let submit = |param: &ucp_request_param_t| {
            // SAFETY: 1. the endpoint is open while it is borrowed; the operation owns the header and a share of the page.
            //         2. `at + len` is not past its end, asserted above. Its bytes are atomics that may change at any time.
            unsafe { ucp_am_send_nbx(self.raw, 0, header.cast(), Head::LEN, data.add(at).cast(), len, param) }
        };
        let flags = UCP_AM_SEND_FLAG_REPLY | UCP_AM_SEND_FLAG_EAGER;
        let held = Held::Piece { _head: head, page: page.clone(), len };
        self.submit(held, None, flags, submit).map(|ended| ended.is_some()).map_err(|(status, _)| status)
    }

    /// The key to the peer's memory that it sent us.
    pub(super) fn unpack(&self, key: &[u8]) -> Result<RemoteKey, Status> {
        // What libucp reads of any key: which memory domains it is of, and the memory's type.
        if key.len() < size_of::<u64>() + 1 {
            return Err(Status(UCS_ERR_INVALID_PARAM));
        }
        let mut raw = ptr::null_mut();
        // SAFETY: libucp reads these 9 bytes, and then as much as they say themselves: they are a peer's, and UCX trusts its
        //         peers (the module's head says so to users). The endpoint is open while it is borrowed.
        Status::check(unsafe { ucp_ep_rkey_unpack(self.raw, key.as_ptr().cast(), &mut raw) })?;
        Ok(RemoteKey(raw))
    }

    /// Starts a read or a write, or, of one that has moved its bytes, the flush that proves them there. `Ok(Some)`: it has
    /// ended at once. `Err`: nothing of it runs.
    pub(super) fn access(&self, access: Access) -> Result<Option<Access>, (Status, Access)> {
        let (local, len) = (access.local.as_ptr(), access.local.len());
        let (address, kind, flushing) = (access.address, access.kind, access.flushing);
        let memory = access.mapped.as_ref().map(|mapped| mapped.handle);
        let key = access.key.as_ref().map_or(ptr::null_mut(), |key| key.0);
        let submit = |param: &ucp_request_param_t| {
            // SAFETY: 1. the endpoint is open while it is borrowed.
            //         2. the operation owns the slice, which keeps its region, the mapping and the key.
            //         3. a region's bytes are atomics that may change at any time, also from outside of Rust.
            unsafe {
                match kind {
                    _ if flushing => ucp_ep_flush_nbx(self.raw, param),
                    TransferKind::Write => ucp_put_nbx(self.raw, local.cast(), len, address, key, param),
                    TransferKind::Read => ucp_get_nbx(self.raw, local.cast(), len, address, key, param),
                }
            }
        };
        let memory = memory.filter(|_| !flushing);
        match self.submit(Held::Access(access), memory, 0, submit) {
            Ok(ended) => Ok(ended.map(|held| held.into_access())),
            Err((status, held)) => Err((status, held.into_access())),
        }
    }

    /// Takes a long message in. `Ok(Some)`: it is here already.
    pub(super) fn receive(&self, parked: Parked, mut received: Received) -> Result<Option<Received>, Status> {
        let (into, len) = (received.bytes.as_mut_ptr(), received.bytes.len());
        let submit = |param: &ucp_request_param_t| {
            let mut param = *param;
            param.cb.recv_am = Some(received_whole);
            // SAFETY: the worker lives, `parked` is used once, and the operation owns the bytes, which do not move.
            unsafe { ucp_am_recv_data_nbx(self.worker.raw, parked.0, into.cast(), len, &param) }
        };
        match self.submit(Held::Receive(received), None, 0, submit) {
            Ok(None) => Ok(None),
            Ok(Some(held)) => Ok(Some(held.into_received())),
            Err((status, _)) => Err(status),
        }
    }

    /// Hands an operation to libucp. `Ok(None)`: it will end in its callback.
    fn submit(
        &self,
        held: Held,
        memory: Option<ucp_mem_h>,
        flags: u32,
        call: impl FnOnce(&ucp_request_param_t) -> ucs_status_ptr_t,
    ) -> Result<Option<Held>, (Status, Held)> {
        // ord! Relaxed: `flight` is read when the endpoint has its last owner, who got it over a lock; `under_way` as said in
        //      `Thread::sleep`.
        self.flight.fetch_add(1, Ordering::Relaxed);
        self.worker.mailbox.under_way.fetch_add(1, Ordering::Relaxed);
        let (of, flight, mailbox) = (self.origin(), self.flight.clone(), self.worker.mailbox.clone());
        let operation = Box::into_raw(Box::new(Operation { held, of, flight, mailbox }));
        // SAFETY: all zeroes is a valid `ucp_request_param_t`; the mask says what counts.
        let mut param: ucp_request_param_t = unsafe { MaybeUninit::zeroed().assume_init() };
        param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
        param.flags = flags;
        param.cb.send = Some(ended);
        param.user_data = operation.cast();
        if let Some(memory) = memory {
            param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
            param.memh = memory;
        }
        let answer = call(&param).addr();
        // A status is a small negative number in the place of the pointer.
        let status = answer as isize;
        if answer != 0 && !(isize::from(UCS_ERR_LAST)..0).contains(&status) {
            // It needs progress, which the thread may be asleep to.
            self.worker.mailbox.ring();
            return Ok(None);
        }
        // SAFETY: ucp.h: with an answer that is null or a status no callback is called, and libucp keeps nothing of the call.
        //         Ends if: `UCP_OP_ATTR_FLAG_NO_IMM_CMPL` is set.
        let mut operation = unsafe { Box::from_raw(operation) };
        let held = operation.take();
        if answer == 0 { Ok(Some(held)) } else { Err((Status(status as i8), held)) }
    }

    /// Closes it by force. What is under way on it ends by then, or soon after: see [`Closing::is_over`].
    pub(super) fn close(mut self) -> Closing {
        self.force()
    }

    fn force(&mut self) -> Closing {
        let (worker, flight) = (self.worker.clone(), self.flight.clone());
        let raw = std::mem::replace(&mut self.raw, ptr::null_mut());
        if raw.is_null() {
            return Closing { request: ptr::null_mut(), _worker: worker, flight };
        }
        // SAFETY: as in `submit`.
        let mut param: ucp_request_param_t = unsafe { MaybeUninit::zeroed().assume_init() };
        param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        param.flags = UCP_EP_CLOSE_FLAG_FORCE;
        // SAFETY: 1. the endpoint was open, and nobody finds its handle here again.
        //         2. `self` is borrowed exclusively, by `close` or by `drop`, so no other call meets this one.
        let request = unsafe { ucp_ep_close_nbx(raw, &param) };
        let is_status = (isize::from(UCS_ERR_LAST)..=0).contains(&(request.addr() as isize));
        Closing { request: if is_status { ptr::null_mut() } else { request }, _worker: worker, flight }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // What is left of it ends in the worker's own time.
        drop(self.force());
    }
}

/// An endpoint that is being closed.
pub(super) struct Closing {
    request: ucs_status_ptr_t,
    /// Whose the request is.
    _worker: Arc<Worker>,
    flight: Arc<AtomicUsize>,
}

impl Closing {
    /// Whether it is closed and every operation on it has ended. Ask again after progress.
    pub(super) fn is_over(&mut self) -> bool {
        if !self.request.is_null() {
            // SAFETY: a request of libucp's that is freed below, once, after which it is forgotten.
            if unsafe { ucp_request_check_status(self.request) } == UCS_INPROGRESS {
                return false;
            }
            self.free();
        }
        // ord! Acquire: pairs with the Release of an operation's end.
        self.flight.load(Ordering::Acquire) == 0
    }

    fn free(&mut self) {
        // SAFETY: as in `is_over`; the worker lives, so its requests do.
        unsafe { ucp_request_free(std::mem::replace(&mut self.request, ptr::null_mut())) };
    }
}

// SAFETY: the request is used in calls of a worker in multi-thread mode, by its only owner.
unsafe impl Send for Closing {}

impl Drop for Closing {
    fn drop(&mut self) {
        if !self.request.is_null() {
            self.free();
        }
    }
}

impl Operation {
    /// What it held is ours again. Its drop counts it out.
    fn take(&mut self) -> Held {
        std::mem::replace(&mut self.held, Held::Message { _bytes: Box::default() })
    }

    /// It has ended in a callback. It is counted out after its event, so who sees it gone finds that in the mailbox.
    fn end(mut self, outcome: Result<(), Status>) {
        let (of, mailbox) = (self.of, self.mailbox.clone());
        match self.take() {
            Held::Access(mut access) => {
                access.key = None;
                mailbox.put(Event::Accessed(access, outcome));
            }
            Held::Receive(received) => mailbox.put(Event::Received(received, outcome)),
            held => {
                // What is lent ends on the thread: its end wakes users.
                if let Held::Piece { page, len, .. } = held {
                    mailbox.put(Event::Piece(of, page, len));
                }
                match outcome {
                    // A forced close of ours ends what is left so.
                    Err(status) if status.0 != UCS_ERR_CANCELED => mailbox.put(Event::Failed(of, status)),
                    _ => {}
                }
            }
        }
    }
}

impl Held {
    fn into_access(self) -> Access {
        match self {
            Held::Access(access) => access,
            _ => unreachable!("an access was submitted"),
        }
    }

    fn into_received(self) -> Received {
        match self {
            Held::Receive(received) => received,
            _ => unreachable!("a receive was submitted"),
        }
    }
}

unsafe extern "C" fn ended(request: *mut c_void, status: ucs_status_t, operation: *mut c_void) {
    // SAFETY: 1. `submit` made it with `Box::into_raw`, and libucp calls back once for a request it has answered with.
    //         2. the request is libucp's, and ours to free since this callback.
    let operation = unsafe {
        ucp_request_free(request);
        Box::from_raw(operation.cast::<Operation>())
    };
    // A panic must not go through frames of C.
    came_through(|| operation.end(Status::check(status)));
}

unsafe extern "C" fn received_whole(request: *mut c_void, status: ucs_status_t, _: usize, operation: *mut c_void) {
    // SAFETY: the same callback with a length, which `receive` knows.
    unsafe { ended(request, status, operation) };
}

unsafe extern "C" fn broke(mailbox: *mut c_void, endpoint: ucp_ep_h, status: ucs_status_t) {
    // SAFETY: `create` gave the worker's mailbox, and the endpoint does not outlive the worker.
    let mailbox = unsafe { &*mailbox.cast::<Mailbox>() };
    came_through(|| mailbox.put(Event::Broken(endpoint.addr(), Status(status))));
}

/// What comes for the worker. Everything is copied here but long messages, which wait at their senders'.
pub(super) unsafe extern "C" fn am_received(
    mailbox: *mut c_void,
    header: *const c_void,
    header_len: usize,
    data: *mut c_void,
    len: usize,
    param: *const ucp_am_recv_param_t,
) -> ucs_status_t {
    // SAFETY: 1. `Worker::new` gave its mailbox, and libucp calls handlers only while the worker lives.
    //         2. libucp's own structure and header live through this call.
    let (mailbox, param) = unsafe { (&*mailbox.cast::<Mailbox>(), &*param) };
    let bytes = |from: *const c_void, len: usize| match len {
        0 => &[][..],
        // SAFETY: libucp says that there are so many, through this call.
        _ => unsafe { std::slice::from_raw_parts(from.cast::<u8>(), len) },
    };
    let reply_ep = param.recv_attr & u64::from(UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0;
    let Some(head) = Head::decode(bytes(header, header_len)).filter(|_| reply_ep) else {
        return UCS_OK; // A long one is dropped so, too.
    };
    let from = param.reply_ep.addr();
    if param.recv_attr & u64::from(UCP_AM_RECV_ATTR_FLAG_RNDV) == 0 {
        came_through(|| mailbox.put(Event::Message(from, head, bytes(data, len).to_vec())));
        return UCS_OK;
    }
    match came_through(|| mailbox.put(Event::Announced(from, head, Parked(data), len))) {
        true => UCS_INPROGRESS,
        false => UCS_OK,
    }
}
