//! One transfer, from being made to the proof that it has ended.
//!
//! NIXL's own release of a transfer that is under way is no cancellation. It says success, and goes on to send from our page:
//! measured over TCP with 1.5.1, a page that was written again after the release arrived at a peer that had been stopped, nearly
//! all of it new bytes; also where the peer had been removed before the release. So here a transfer is released when it was never
//! posted or is done, which is proof, and [`abandon`](Request::abandon)ed otherwise, which gives back what must be kept. Removing
//! the peer is no proof, and nor is an error: a transfer of several pieces fails with its first.
//!
//! NIXL notes a transfer's status in it under its *shared* lock, so two threads must not ask for it at once: whatever calls NIXL
//! takes `&mut self`.

use super::capi::*;
use super::native::{Agent, Registration};
use super::remote::Remote;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::Arc;

/// What a transfer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kind(pub(super) xfer_op_t);

impl Kind {
    /// From the peer's memory to ours.
    pub(super) const READ: Kind = Kind(XFER_READ);
    /// From our memory to the peer's.
    pub(super) const WRITE: Kind = Kind(XFER_WRITE);
}

/// How far a transfer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    Running,
    Done,
}

/// One transfer. Dropped before it is proven to have ended, it is leaked, with its memory: [`Agent::leaked`].
pub(super) struct Request {
    raw: xfer_req_t,
    load: u64,
    /// Whether it was never posted or is done: NIXL has nothing under way for it.
    quiet: bool,
    held: ManuallyDrop<Held>,
}

/// What the native side may touch until a transfer has ended. Dropped, it is free for anything.
pub(super) struct Held {
    registrations: Vec<Arc<Registration>>,
    agent: Arc<Agent>,
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Held").field(&self.registrations).finish()
    }
}

// SAFETY: 1. the handle is used by one thread at a time: every call takes `&mut self` or the transfer itself.
//         2. NIXL has no thread-locals for it, and its agent is in the mode for several threads.
unsafe impl Send for Request {}
// SAFETY: nothing calls NIXL by `&self`.
unsafe impl Sync for Request {}

impl Request {
    /// # Safety
    /// `raw` is a transfer of `agent`, not posted, that nobody else has, and `registrations` are the memory of ours that it names.
    pub(super) unsafe fn new(
        agent: &Arc<Agent>,
        raw: xfer_req_t,
        load: u64,
        registrations: Vec<Arc<Registration>>,
    ) -> Self {
        let held = ManuallyDrop::new(Held { registrations, agent: agent.clone() });
        Request { raw, load, quiet: true, held }
    }

    /// Starts it, again if it was done before. An error says nothing of what has moved, except
    /// [`INVALID_PARAM`](Status::INVALID_PARAM), where the peer is another or one loaded since: nothing was called then.
    pub(super) fn post(&mut self, remote: &Remote) -> Result<Progress, Status> {
        remote.owns(self.load)?;
        if !self.quiet {
            return Err(Status::INVALID_STATE);
        }
        self.quiet = false;
        let agent = &self.held.agent;
        // SAFETY: 1. agent and transfer live, and no other thread has the transfer.
        //         2. the peer it was made for is loaded, if NIXL has not removed it by itself, which it notices: by its name, which
        //            nobody else loads while `remote` lives.
        let status = unsafe { (agent.api().post_xfer_req)(agent.raw(), self.raw, ptr::null_mut()) };
        self.told(Status(status))
    }

    /// How far it is; one that was never posted is as good as done. After an error ask no more: NIXL repeats it.
    /// [`NOT_FOUND`](Status::NOT_FOUND): the peer was removed meanwhile, and nobody knows.
    pub(super) fn poll(&mut self) -> Result<Progress, Status> {
        if self.quiet {
            return Ok(Progress::Done);
        }
        let agent = &self.held.agent;
        // SAFETY: as in `post`; nothing of the peer is followed.
        let status = unsafe { (agent.api().get_xfer_status)(agent.raw(), self.raw) };
        self.told(Status(status))
    }

    fn told(&mut self, status: Status) -> Result<Progress, Status> {
        self.quiet = status == Status::SUCCESS;
        match status {
            Status::SUCCESS => Ok(Progress::Done),
            Status::IN_PROGRESS => Ok(Progress::Running),
            status => Err(status),
        }
    }

    /// Frees one that was never posted or is done. Any other is given back: nothing was called.
    pub(super) fn release(self) -> Result<(), Request> {
        if self.quiet { Ok(()) } else { Err(self) }
    }

    /// Has NIXL let go of it, whatever is under way. `Ok`: the handle is gone, and **its bytes may still move**, so what it held is
    /// given back, to be kept until none can. `Err`: NIXL did not let go of it, and it is whole. Nothing here tells when that
    /// is; the end of the peer's process does.
    pub(super) fn abandon(mut self) -> Result<Held, Request> {
        if self.let_go().is_err() {
            return Err(self);
        }
        let mut this = ManuallyDrop::new(self);
        // SAFETY: taken once: `this` is never dropped, and nobody else looks at it.
        Ok(unsafe { ManuallyDrop::take(&mut this.held) })
    }

    fn let_go(&mut self) -> Result<(), Status> {
        let agent = &self.held.agent;
        // SAFETY: as in `poll`. On success NIXL has no more of it, and only the handle is left, which is freed once: both callers
        //         end the transfer then. On any other answer the handle is as it was.
        unsafe {
            Status::check((agent.api().release_xfer_req)(agent.raw(), self.raw))?;
            (agent.api().destroy_xfer_req)(self.raw);
        }
        Ok(())
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("quiet", &self.quiet).field("held", &*self.held).finish()
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if self.quiet && self.let_go().is_ok() {
            // SAFETY: dropped once: `abandon`, which takes it, does not come here.
            unsafe { ManuallyDrop::drop(&mut self.held) };
        } else {
            self.held.agent.count_leak();
        }
    }
}
