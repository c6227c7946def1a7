//! What the promises are tested with: waits that are generous and never timed, a table on a clock that only the test
//! moves, a transport that calls back, and the same processes over every transport.

#[cfg(feature = "nixl")]
mod by_name;
mod custom;
#[cfg(any(feature = "ucx", feature = "nixl"))]
mod elsewhere;
mod fleet;
mod pages;
mod world;

#[cfg(feature = "nixl")]
pub(crate) use by_name::{OverNixl, alone_with_nixl};
pub(crate) use custom::{Custom, Never, Place, on_show};
pub(crate) use fleet::*;
pub(crate) use pages::*;
pub(crate) use world::{World, broken, world, world_of, world_with};

use peerage::{Generation, Peer, ReadyError, Transport};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// How long a test waits for what must happen before it says that it won't.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A deadline on the system's clock that is only met by a hang.
pub(crate) fn far() -> Instant {
    Instant::now() + PATIENCE
}

/// Waits until something that must happen has happened.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let give_up = far();
    while !holds() {
        assert!(Instant::now() < give_up, "not after {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_micros(200));
    }
}

/// The peer's record, which follows its word: between the two there is none, also for whom an answer has come meanwhile.
pub(crate) fn record_of<T: peerage::Transport>(peer: &peerage::Peer<T>) -> peerage::Record {
    eventually("its record follows its word", || peer.record().is_some());
    peer.record().expect("nobody changes it meanwhile")
}

/// An executor made by hand: polls only when it was woken, so a lost wake-up is a hang and a hang is a failure.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread, AtomicBool);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.1.store(true, Ordering::Release);
            self.0.unpark();
        }
    }
    let woken = Arc::new(Unpark(thread::current(), AtomicBool::new(true)));
    let waker = Waker::from(woken.clone());
    let (mut future, give_up) = (pin!(future), far());
    loop {
        if woken.1.swap(false, Ordering::AcqRel)
            && let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker))
        {
            return output;
        }
        assert!(Instant::now() < give_up, "a future was not ready after {PATIENCE:?}");
        thread::park_timeout(Duration::from_millis(50));
    }
}

/// One look at a future.
pub(crate) fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Waits until the peer is ready, through backoffs, on the system's clock.
pub(crate) fn ready_again<T: Transport>(peer: &Peer<T>) -> Generation {
    let give_up = far();
    loop {
        match block_on(peer.ready()) {
            Ok(generation) => return generation,
            Err(ReadyError::BackingOff { retry_at, .. }) => {
                thread::sleep(retry_at.saturating_duration_since(Instant::now()))
            }
            Err(error) => assert!(Instant::now() < give_up, "{error}"),
        }
    }
}
