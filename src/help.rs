//! Who waits for a transfer moves it on, where its transport moves bytes only when it is asked to.

use crate::sync::{came_through, caught};
use crate::transfer::TransferId;
use std::time::{Duration, Instant};

/// How long who waits helps, then sleeps: what takes longer is not worth a processor.
const HELPS: Duration = Duration::from_millis(1);

/// What a transport does for a transfer on the thread that waits for it, see [`Completion::helped_by`](crate::Completion::helped_by).
///
/// Any thread may call it that waits, also one of the table or the transport that runs a waker; several at once for one transfer; and
/// when that has ended. A panic is caught, and counts as `false`. The reference that is called by may be the last.
pub trait Help: Send + Sync {
    /// Moves this transfer on, and completes it if that was the last of it, which runs wakers of whoever waits. Waits for no other
    /// thread, and takes no longer than some of the transfer's own bytes. `false`: the caller sleeps, and the transport's own
    /// threads see to it.
    fn help(&self, transfer: TransferId) -> bool;

    /// The caller of `help` sleeps from now on, though it was told to call again. Never waits.
    fn stop(&self, transfer: TransferId);
}

/// Helps while `may_wait`, until it `is_over`, is no use, or has been some for a while. Calls once also for what is over, so that a
/// transport knows of who waits for what others have moved.
pub(crate) fn help(helper: &dyn Help, transfer: TransferId, may_wait: impl Fn() -> bool, is_over: impl Fn() -> bool) {
    let begin = Instant::now();
    let mut helped = false;
    while may_wait() && begin.elapsed() < HELPS {
        helped = true;
        if !caught(|| helper.help(transfer)).unwrap_or(false) || is_over() {
            return;
        }
        std::thread::yield_now();
    }
    if helped {
        came_through(|| helper.stop(transfer));
    }
}

#[cfg(all(test, not(peerage_loom)))]
mod tests {
    use super::*;
    use crate::region::Region;
    use crate::transfer::{Completion, Outcome, Post, RemoteSlice, Transfer, TransferKind};
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    use std::sync::{Arc, Mutex};

    /// Completes the transfer when it has helped so often.
    struct Helper {
        left: Mutex<u32>,
        stops: AtomicU32,
        completion: Mutex<Option<Completion>>,
    }

    impl Help for Helper {
        fn help(&self, _: TransferId) -> bool {
            let mut left = self.left.lock().unwrap();
            *left -= 1;
            if *left == 0 {
                self.completion.lock().unwrap().take().unwrap().complete(Outcome::Done);
            }
            *left > 0
        }

        fn stop(&self, _: TransferId) {
            self.stops.fetch_add(1, Relaxed);
        }
    }

    fn post() -> (Post, Transfer) {
        let there = RemoteSlice { grant: 1, region: 1, offset: 0, len: 8 };
        Post::standalone(TransferKind::Write, Region::zeroed(8).slice(0..8).unwrap(), there)
    }

    fn helped(times: u32) -> (Arc<Helper>, Transfer) {
        let (post, transfer) = post();
        let helper =
            Arc::new(Helper { left: Mutex::new(times), stops: AtomicU32::new(0), completion: Mutex::new(None) });
        let weak = Arc::downgrade(&helper);
        post.completion.helped_by(weak);
        *helper.completion.lock().unwrap() = Some(post.completion);
        (helper, transfer)
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(30)
    }

    #[test]
    fn who_waits_moves_it_on() {
        for times in [1, 3] {
            let (helper, transfer) = helped(times);
            assert_eq!(transfer.wait(soon()), Some(Outcome::Done));
            assert_eq!(*helper.left.lock().unwrap(), 0);
        }
    }

    #[test]
    fn who_looks_helps_nobody() {
        let (helper, transfer) = helped(1);
        assert_eq!(transfer.try_outcome(), None);
        assert_eq!(*helper.left.lock().unwrap(), 1);
    }

    /// fails if: the deadline is looked at once, or the transport is not told.
    #[test]
    fn the_deadline_of_who_waits_ends_the_help_too() {
        let (helper, transfer) = helped(u32::MAX);
        let left = std::cell::Cell::new(3);
        help(&*helper, transfer.id(), || left.replace(left.get() - 1) > 0, || false);
        let told = || (u32::MAX - *helper.left.lock().unwrap(), helper.stops.load(Relaxed));
        // Fewer on a machine that is busy for a millisecond.
        let (helps, stops) = told();
        assert!((1..=3).contains(&helps) && stops == 1, "{helps}, {stops}");
        assert_eq!(transfer.wait(Instant::now()), None);
        assert_eq!(told(), (helps, stops), "it has passed before");
    }

    /// fails if: a panic of the transport's comes out of a wait.
    #[test]
    fn a_helper_that_panics_is_no_use() {
        let (helper, transfer) = helped(1);
        let completion = helper.completion.lock().unwrap().take().unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| transfer.wait(soon()));
            while *helper.left.lock().unwrap_or_else(std::sync::PoisonError::into_inner) > 0 {
                std::thread::yield_now();
            }
            completion.complete(Outcome::Done);
            assert_eq!(waits.join().unwrap(), Some(Outcome::Done));
        });
    }

    /// fails if: who helps never sleeps, or sleeps though it is over.
    #[test]
    fn what_takes_longer_is_waited_for_as_without_help() {
        let (helper, transfer) = helped(u32::MAX);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| transfer.wait(soon()));
            let mut last = 0;
            loop {
                std::thread::sleep(20 * HELPS);
                let left = std::mem::replace(&mut last, *helper.left.lock().unwrap());
                if left == last && last < u32::MAX {
                    break; // it sleeps
                }
            }
            assert_eq!(helper.stops.load(Relaxed), 1);
            helper.completion.lock().unwrap().take().unwrap().complete(Outcome::Unknown);
            assert_eq!(waits.join().unwrap(), Some(Outcome::Unknown));
        });
    }

    #[test]
    fn a_helper_that_is_gone_is_no_use() {
        let (post, transfer) = post();
        post.completion.helped_by(Arc::downgrade(&helped(1).0) as std::sync::Weak<dyn Help>);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| transfer.wait(soon()));
            post.completion.complete(Outcome::Done);
            assert_eq!(waits.join().unwrap(), Some(Outcome::Done));
        });
    }
}
