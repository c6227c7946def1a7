//! The callers of one peer: each is a `ready()` future of its own, polled when it asks and once more when it was woken.

use crate::wire::{Refused, Wire};
use crate::{PATIENCE, eventually};
use peerage::{Generation, Peer, Ready, ReadyError, Reported};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

pub(crate) struct Callers {
    peer: Peer<Wire>,
    many: usize,
    waiting: Vec<Ready<Wire>>,
    woken: Arc<Woken>,
}

/// What all callers of a peer were answered when they asked; the clock stands still, so it is the same for all.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Waits,
    BackingOff(Instant),
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

impl Callers {
    pub(crate) fn new(peer: Peer<Wire>, many: usize) -> Self {
        Callers { peer, many, waiting: Vec::new(), woken: Arc::default() }
    }

    pub(crate) fn peer(&self) -> &Peer<Wire> {
        &self.peer
    }

    /// Every caller finds the connection broken; answers how many of them were the first.
    pub(crate) fn report(&self, generation: Generation) -> usize {
        let first = |_: &usize| self.peer.report(generation, &Refused) == Reported::Failed;
        (0..self.many).filter(first).count()
    }

    /// Every caller asks for the peer.
    pub(crate) fn ask(&mut self) -> Asked {
        assert!(self.waiting.is_empty(), "who waits does not ask again");
        self.woken.0.store(0, Ordering::Relaxed);
        let waker = Waker::from(self.woken.clone());
        let mut answers = (0..self.many).map(|_| {
            let mut ready = self.peer.ready();
            match Pin::new(&mut ready).poll(&mut Context::from_waker(&waker)) {
                Poll::Pending => {
                    self.waiting.push(ready);
                    Asked::Waits
                }
                Poll::Ready(Err(ReadyError::BackingOff { retry_at, .. })) => Asked::BackingOff(retry_at),
                Poll::Ready(other) => panic!("{other:?}"),
            }
        });
        let asked = answers.next().expect("a peer has callers");
        assert!(answers.all(|answer| answer == asked), "callers of one peer were answered differently");
        asked
    }

    /// The outcome of the attempt that all callers waited for: each was woken once, and is answered the same.
    pub(crate) fn outcome(&mut self) -> (Generation, bool) {
        let woken = || self.woken.0.load(Ordering::Acquire);
        eventually(|| woken() == self.many, || format!("{} of {} callers woken, {PATIENCE:?}", woken(), self.many));
        let mut answers = self.waiting.drain(..).map(|mut ready| {
            match Pin::new(&mut ready).poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Ok(generation)) => (generation, true),
                Poll::Ready(Err(ReadyError::Failed { generation, .. })) => (generation, false),
                other => panic!("{other:?}"),
            }
        });
        let outcome = answers.next().expect("a peer has callers");
        assert!(answers.all(|answer| answer == outcome), "callers of one attempt were answered differently");
        outcome
    }
}
