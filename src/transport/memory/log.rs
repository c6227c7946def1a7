//! What was called, in which order, and what should not have been.

use super::Step;
use crate::name::PeerName;
use crate::state::Generation;
use crate::sync::lock;
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// How many calls a log keeps; older ones are forgotten.
const KEPT: usize = 1 << 16;

/// One call of a transport, or one completion or native error that came from its own thread.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// What was done.
    pub step: Step,
    /// The peer it was done to, by its name in the table.
    pub peer: PeerName,
    /// The generation it was done to.
    pub generation: Generation,
    /// When it began: a number that grows with everything that begins or ends in the whole fabric.
    pub begun: u64,
    /// When it ended, on the same count; `None` while it runs.
    pub ended: Option<u64>,
    /// How it ended; `None` while it runs.
    pub ending: Option<Ending>,
}

/// How a call ended.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// As it should.
    Done,
    /// With an error.
    Failed,
    /// With a panic.
    Panicked,
    /// A close that the native side did not take back.
    Leaked,
    /// A close of what was gone.
    AlreadyGone,
    /// A close that is to be called again.
    Retry,
}

/// Something a table must never do. A test asserts that there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misuse {
    /// The peer, by its name in the table; `None` for a region.
    pub peer: Option<PeerName>,
    /// The connection's generation; `None` for a region.
    pub generation: Option<Generation>,
    /// What was done.
    pub kind: MisuseKind,
}

/// What must never be done.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MisuseKind {
    /// A call began on a connection whose close had begun.
    UsedAfterClose,
    /// A close began while a call on the connection ran.
    ClosedInUse,
    /// A close began under a transfer, and this close does not quiesce transfers.
    ClosedUnderTransfer,
    /// A region was deregistered under a transfer.
    DeregisteredUnderTransfer,
}

pub(super) struct Log {
    calls: Mutex<Calls>,
    misuses: Mutex<Vec<Misuse>>,
    order: Arc<AtomicU64>,
}

#[derive(Default)]
struct Calls {
    kept: VecDeque<Call>,
    forgotten: u64,
}

impl Log {
    pub(super) fn new(order: Arc<AtomicU64>) -> Self {
        Log { calls: Mutex::default(), misuses: Mutex::default(), order }
    }

    /// Notes that a call begins. It ends as panicked unless [`Running::end`] says otherwise.
    pub(super) fn begin(&self, step: Step, peer: &PeerName, generation: Generation) -> Running<'_> {
        let mut calls = lock(&self.calls);
        if calls.kept.len() == KEPT {
            calls.kept.pop_front();
            calls.forgotten += 1;
        }
        let begun = self.order.fetch_add(1, Relaxed);
        calls.kept.push_back(Call { step, peer: peer.clone(), generation, begun, ended: None, ending: None });
        Running { log: self, number: calls.forgotten + calls.kept.len() as u64 - 1, ending: Ending::Panicked }
    }

    pub(super) fn calls(&self) -> Vec<Call> {
        lock(&self.calls).kept.iter().cloned().collect()
    }

    pub(super) fn misuse(&self, peer: Option<(&PeerName, Generation)>, kind: MisuseKind) {
        let (peer, generation) = peer.map(|(peer, generation)| (peer.clone(), generation)).unzip();
        lock(&self.misuses).push(Misuse { peer, generation, kind });
    }

    pub(super) fn misuses(&self) -> Vec<Misuse> {
        lock(&self.misuses).clone()
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("misuses", &self.misuses()).finish_non_exhaustive()
    }
}

pub(super) struct Running<'a> {
    log: &'a Log,
    number: u64,
    ending: Ending,
}

impl Running<'_> {
    pub(super) fn end(mut self, ending: Ending) {
        self.ending = ending;
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut calls = lock(&self.log.calls);
        let at = self.number.checked_sub(calls.forgotten).map(|at| at as usize);
        if let Some(call) = at.and_then(|at| calls.kept.get_mut(at)) {
            call.ended = Some(self.log.order.fetch_add(1, Relaxed));
            call.ending = Some(self.ending);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_forgets_its_oldest_calls_and_keeps_the_ends_of_the_others_right() {
        let log = Log::new(Arc::default());
        let peer = PeerName::new("p").unwrap();
        let early = log.begin(Step::Connect, &peer, Generation(1));
        for _ in 0..KEPT {
            log.begin(Step::Notify, &peer, Generation(1)).end(Ending::Done);
        }
        early.end(Ending::Failed);
        let calls = log.calls();
        assert_eq!(calls.len(), KEPT);
        assert!(calls.iter().all(|call| call.ending == Some(Ending::Done) && call.ended == Some(call.begun + 1)));
    }
}
