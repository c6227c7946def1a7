//! Who waits for a transfer moves it on, where its transport moves bytes only when it is asked to.

use crate::transfer::TransferId;
use std::time::{Duration, Instant};

/// How long who waits helps, then sleeps: about what a busy machine takes to wake a thread twice. What takes longer is left
/// to the transport's own threads.
const HELPS: Duration = Duration::from_millis(1);

/// What a transport does for a transfer on the thread that waits for it, see [`Completion::helped_by`](crate::Completion::helped_by).
pub trait Help: Send + Sync {
    /// Moves this transfer on, and completes it if that was the last of it. Never waits for another thread, and takes no longer than
    /// some of the transfer's own bytes. `false`: it is not under way here, and calling again is no use.
    fn help(&self, transfer: TransferId) -> bool;
}

/// Helps while `may_wait`, until it `is_over`, is no use, or has been some for a while. Once also if it is over: whoever asks again and
/// again for what others have ended is one that helps.
pub(crate) fn help(helper: &dyn Help, transfer: TransferId, may_wait: impl Fn() -> bool, is_over: impl Fn() -> bool) {
    let begin = Instant::now();
    while may_wait() && helper.help(transfer) && !is_over() && begin.elapsed() < HELPS {
        std::thread::yield_now();
    }
}

#[cfg(all(test, not(peerage_loom)))]
mod tests {
    use super::*;
    use crate::region::Region;
    use crate::transfer::{Completion, Outcome, Post, RemoteSlice, Transfer, TransferKind};
    use std::sync::{Arc, Mutex};

    /// Completes the transfer when it has helped so often.
    struct Helper {
        left: Mutex<u32>,
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
    }

    fn post() -> (Post, Transfer) {
        let there = RemoteSlice { grant: 1, region: 1, offset: 0, len: 8 };
        Post::standalone(TransferKind::Write, Region::zeroed(8).slice(0..8).unwrap(), there)
    }

    fn helped(times: u32) -> (Arc<Helper>, Transfer) {
        let (post, transfer) = post();
        let helper = Arc::new(Helper { left: Mutex::new(times), completion: Mutex::new(None) });
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

    #[test]
    fn the_deadline_of_who_waits_ends_the_help_too() {
        let (helper, transfer) = helped(u32::MAX);
        assert_eq!(transfer.wait(Instant::now()), None);
        assert_eq!(*helper.left.lock().unwrap(), u32::MAX, "it was over before");
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
