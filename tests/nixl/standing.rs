//! Permissions that last while they are used.

use crate::support::*;
use peerage::transport::nixl::{Nixl, NixlConnection};
use peerage::{Access, DataPlane, Grant, Outcome, Post, Refusal, Region, RemoteSlice, TransferError, TransferKind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const PART: usize = 4096;
const PARTS: usize = 64;

struct Both {
    a: Nixl,
    b: Nixl,
    connection: NixlConnection,
    /// What `a` writes from.
    local: Region,
    /// What `b` lends.
    page: Region,
    grant: Grant,
}

impl Both {
    fn new(access: Access) -> Self {
        let (a, b) = (nixl("a"), nixl("b"));
        let connection = dial(&a, &b);
        let (local, page) = (Region::zeroed(PART * PARTS), Region::zeroed(PART * PARTS));
        a.register(&local).unwrap();
        b.register(&page).unwrap();
        let grant = b.grants().lend(&name("a"), &page.slice(0..PART * PARTS).unwrap(), access);
        Both { a, b, connection, local, page, grant }
    }

    fn moves(&self, kind: TransferKind, part: usize) -> Outcome {
        let there = self.grant.remote().slice((part * PART) as u64, PART as u64).unwrap();
        self.moves_at(kind, part, there)
    }

    fn moves_at(&self, kind: TransferKind, part: usize, there: RemoteSlice) -> Outcome {
        let here = self.local.slice(part * PART..(part + 1) * PART).unwrap();
        let (post, transfer) = Post::standalone(kind, here, there);
        self.a.post(&self.connection, post).unwrap();
        transfer.wait(soon()).expect("an end")
    }
}

fn is_refused(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed(TransferError::Refused(Refusal::NoSuchGrant | Refusal::Revoked)))
}

fn of(part: usize) -> Vec<u8> {
    (0..PART).map(|at| (at + part * 7) as u8).collect()
}

fn part(region: &Region, part: usize) -> peerage::Slice {
    region.slice(part * PART..(part + 1) * PART).unwrap()
}

/// fails if: a part is looked for where the first one was.
#[test]
fn parts_of_one_page_go_where_they_belong() {
    alone(parts_of_one_page_go_where_they_belong, || {
        let both = Both::new(Access::Write);
        // Not from its beginning: what is asked for first is no other's place.
        let order = || (0..PARTS).map(|at| (at + PARTS / 2) % PARTS);
        for at in order() {
            part(&both.local, at).write(0, &of(at)).unwrap();
            assert_eq!(both.moves(TransferKind::Write, at), Outcome::Done);
        }
        assert!((0..PARTS).all(|at| part(&both.page, at).to_vec() == of(at)));
        let both = Both::new(Access::Read);
        for at in order() {
            part(&both.page, at).write(0, &of(at)).unwrap();
            assert_eq!(both.moves(TransferKind::Read, at), Outcome::Done);
            assert_eq!(part(&both.local, at).to_vec(), of(at));
        }
    });
}

/// fails if: where a page ends, or what it was lent for, is looked at only when it is asked for.
#[test]
fn what_is_outside_is_refused_also_when_the_permission_lasts() {
    alone(what_is_outside_is_refused_also_when_the_permission_lasts, || {
        let both = Both::new(Access::Write);
        assert_eq!(both.moves(TransferKind::Write, 0), Outcome::Done);
        let beyond = RemoteSlice { offset: ((PARTS - 1) * PART + 1) as u64, len: PART as u64, ..both.grant.remote() };
        let refused = |refusal| Outcome::Failed(TransferError::Refused(refusal));
        assert_eq!(both.moves_at(TransferKind::Write, 0, beyond), refused(Refusal::OutOfBounds));
        assert_eq!(both.moves(TransferKind::Write, 1), Outcome::Done);
        assert_eq!(both.moves(TransferKind::Read, 1), refused(Refusal::WrongAccess));
        let both = Both::new(Access::Read);
        assert_eq!(both.moves(TransferKind::Read, 0), Outcome::Done);
        assert_eq!(both.moves(TransferKind::Write, 0), refused(Refusal::WrongAccess));
    });
}

/// fails if: what was let in once goes on after the page was given back.
#[test]
fn nothing_lands_in_a_page_that_was_given_back_by_who_wrote_it_without_a_pause() {
    alone(nothing_lands_in_a_page_that_was_given_back_by_who_wrote_it_without_a_pause, || {
        let both = Both::new(Access::Write);
        let (over, written, refused) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for writer in 0..2 {
                let (both, over, written, refused) = (&both, &over, &written, &refused);
                scope.spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        let outcome = both.moves(TransferKind::Write, writer);
                        assert!(outcome == Outcome::Done || is_refused(&outcome), "{outcome:?}");
                        let count = if outcome == Outcome::Done { written } else { refused };
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            eventually("it is written to", || written.load(Ordering::Relaxed) > 100);
            assert!(both.grant.revoke().wait(soon()), "it did not come back");
            let mark = vec![0xa5; PART * PARTS];
            both.page.slice(0..PART * PARTS).unwrap().write(0, &mark).unwrap();
            let before = refused.load(Ordering::Relaxed);
            eventually("nothing more is let in", || refused.load(Ordering::Relaxed) > before + 10);
            over.store(true, Ordering::Relaxed);
            assert_eq!(both.page.slice(0..PART * PARTS).unwrap().to_vec(), mark, "something landed");
        });
        assert_eq!(both.a.leaked_transfers(), 0);
    });
}

/// Who writes on and on gives a writer no pause in which it would be idle.
///
/// fails if: a revoked page is not recalled, or a recalled one is used on.
#[test]
fn a_revoked_page_is_recalled_while_it_is_used() {
    alone(a_revoked_page_is_recalled_while_it_is_used, || {
        let both = Both::new(Access::Write);
        for _ in 0..100 {
            assert_eq!(both.moves(TransferKind::Write, 0), Outcome::Done);
        }
        let back = both.grant.revoke();
        // Some get in until the recall has come.
        let refused = (0..1_000_000).any(|_| is_refused(&both.moves(TransferKind::Write, 0)));
        assert!(refused, "it is still let in");
        assert!(back.wait(soon()));
    });
}

/// fails if: a page is kept that nobody uses.
#[test]
fn a_page_is_given_back_when_nothing_has_used_it_for_a_while() {
    alone(a_page_is_given_back_when_nothing_has_used_it_for_a_while, || {
        let both = Both::new(Access::Write);
        assert_eq!(both.moves(TransferKind::Write, 0), Outcome::Done);
        eventually("it is given back", || both.grant.running() == 0);
        assert!(both.grant.revoke().wait(soon()));
        both.a.deregister(&both.local).unwrap();
        both.b.deregister(&both.page).unwrap();
    });
}
