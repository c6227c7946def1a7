//! What is asked of a peer whose thread is held up, and given up meanwhile.

use crate::support::*;
use peerage::{Access, DataPlane, Outcome, Post, Region, TransferError, TransferKind};
use std::pin::pin;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

/// Its wake comes back when somebody says so.
struct Stuck(Mutex<Receiver<()>>);

impl Wake for Stuck {
    fn wake(self: Arc<Self>) {
        let _ = self.0.lock().unwrap().recv();
    }
}

/// More transfers than a peer lends at once, asked for and given up in turn while it answers nothing.
///
/// fails if: who was asked is forgotten when its transfer is given up.
#[test]
fn transfers_that_are_given_up_before_they_are_answered_break_no_connection() {
    if elsewhere(transfers_that_are_given_up_before_they_are_answered_break_no_connection) {
        return;
    }
    const AT_ONCE: usize = 32;
    let (a, b) = (ucx("a"), ucx("b"));
    let connection = dial(&a, &b);
    let pages = Region::zeroed(64);
    let local = Region::zeroed(64);
    b.register(&pages).unwrap();
    a.register(&local).unwrap();
    let grant = b.grants().lend(&name("a"), &pages.slice(0..64).unwrap(), Access::Write);

    let (release, stuck) = channel();
    let waker = Waker::from(Arc::new(Stuck(Mutex::new(stuck))));
    let mut next = pin!(b.inbox().next());
    assert!(next.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    a.notify(&connection, b"holds up who receives it").unwrap();
    eventually("it is there, and its waker holds the thread", || b.inbox().len() == 1);

    for _ in 0..4 {
        let all: Vec<_> = (0..AT_ONCE)
            .map(|_| {
                let (post, transfer) =
                    Post::standalone(TransferKind::Write, local.slice(0..64).unwrap(), grant.remote());
                let id = post.id;
                a.post(&connection, post).unwrap();
                (id, transfer)
            })
            .collect();
        for (id, transfer) in all {
            a.cancel(&connection, id);
            assert_eq!(transfer.wait(soon()), Some(Outcome::Failed(TransferError::NotSent)));
        }
    }
    release.send(()).unwrap();
    let (post, transfer) = Post::standalone(TransferKind::Write, local.slice(0..64).unwrap(), grant.remote());
    a.post(&connection, post).unwrap();
    assert_eq!(transfer.wait(soon()), Some(Outcome::Done));
    assert_eq!((b.inbound_counts().misbehaved, b.inbound().len()), (0, 1));
    eventually("it lends nothing any more", || grant.running() == 0);
}
