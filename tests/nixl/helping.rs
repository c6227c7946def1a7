//! Transfers that who waits for them moves on, and those that nobody waits for.

use crate::support::*;
use peerage::{Access, DataPlane, Outcome, Post, Region, Transfer, TransferKind};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const PART: usize = 64 << 10;
const TIMES: usize = 50;
/// Twenty times what it is on a quiet machine, and a ninth of what it is if the thread sees to none.
const MEANWHILE: usize = 3000;

/// Also where a test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// fails if: the thread leaves all transfers of a connection to those who wait for some.
#[test]
fn one_that_nobody_waits_for_ends_beside_those_that_are_waited_for() {
    // Where bytes move by themselves when they are posted, nobody waits.
    alone_over(Some("tcp"), one_that_nobody_waits_for_ends_beside_those_that_are_waited_for, || {
        let (a, mut served) = (nixl("here"), Served::start());
        let connection = try_dial(&a, &served.address).unwrap();
        let local = Region::zeroed(PART);
        a.register(&local).unwrap();
        let page = peerage::RemoteSlice { len: PART as u64, ..served.lends(Access::Write) };
        let write = || -> Transfer {
            let (post, transfer) = Post::standalone(TransferKind::Write, local.slice(0..PART).unwrap(), page);
            a.post(&connection, post).unwrap();
            transfer
        };
        let (over, ended) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut running = VecDeque::new();
                while !over.load(Ordering::Relaxed) {
                    running.push_back(write());
                    if running.len() == 8 {
                        assert_eq!(running.pop_front().unwrap().wait(soon()), Some(Outcome::Done));
                        ended.fetch_add(1, Ordering::Relaxed);
                    }
                }
                assert!(running.into_iter().all(|transfer| transfer.wait(soon()) == Some(Outcome::Done)));
            });
            let _ends = Ends(&over);
            for _ in 0..TIMES {
                let transfer = write();
                eventually("it ends", || transfer.try_outcome().is_some());
                assert_eq!(transfer.try_outcome(), Some(Outcome::Done));
            }
        });
        let meanwhile = ended.into_inner() / TIMES;
        assert!(meanwhile < MEANWHILE, "{meanwhile} others ended during one");
    });
}
