//! The gate of a grant. The rules are at the head of src/grant.rs.

use crate::explore;
use crate::thread;
use loom::cell::UnsafeCell;
use peerage::{Access, Clock, Grant, GrantBook, HeldLoan, Loan, PeerName, Region};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a copy under a grant does to its page: written by no two at once, but read here, so that copies may overlap and
/// loom reports one that is not ordered before the owner's next use of the page.
struct Page(UnsafeCell<()>);

// SAFETY: every access is checked by loom, which fails the model on a race.
unsafe impl Sync for Page {}

fn lent() -> (GrantBook, Grant, [Loan; 2], Arc<Page>) {
    let book = GrantBook::new(Clock::manual());
    let borrower = PeerName::new("p").unwrap();
    let grant = book.lend(&borrower, &Region::zeroed(8).slice(0..8).unwrap(), Access::Write);
    let loans = [(); 2].map(|()| book.present(&borrower, 1, grant.remote(), Access::Write).unwrap());
    (book, grant, loans, Arc::new(Page(UnsafeCell::new(()))))
}

fn copies(loan: Loan, page: &Arc<Page>) -> thread::JoinHandle<()> {
    let page = page.clone();
    thread::spawn(move || {
        if let Ok(held) = loan.hold() {
            page.0.with(|_| ());
            drop::<HeldLoan>(held);
        }
    })
}

/// Two writers, and the owner takes the page back and uses it.
#[test]
fn quiesced_comes_after_every_write() {
    explore(3, || {
        let (_book, grant, loans, page) = lent();
        let writers = loans.map(|loan| copies(loan, &page));
        assert!(grant.revoke().wait(Instant::now() + Duration::from_secs(60)), "no deadline passes in a model");
        page.0.with_mut(|_| ());
        for writer in writers {
            writer.join().unwrap();
        }
    });
}

/// The borrower's connection closes while the owner takes the page back; a write may be held.
#[test]
fn a_grant_quiesces_once_whoever_ends_it() {
    explore(3, || {
        let (book, grant, [loan, other], page) = lent();
        drop(other);
        let writer = copies(loan, &page);
        let closing = {
            let book = book.clone();
            thread::spawn(move || book.inbound_closed(1))
        };
        let revoked = grant.revoke();
        writer.join().unwrap();
        closing.join().unwrap();
        assert!(grant.is_quiesced(), "nobody is inside, and nobody has said so");
        assert!(revoked.wait(Instant::now()));
        page.0.with_mut(|_| ());
        assert!(book.is_empty());
    });
}
