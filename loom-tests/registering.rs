//! Taking a registration back while its region is used.
//!
//! 1. A post counts itself, then looks at the list; a deregistration changes the list, then looks at the counts. A fence
//!    stands between the two in both, so one sees the other.
//! 2. A grant is listed, then looks at the registrations; the deregistration looks at the lent under the same mutex.
//! 3. The last touch of the pages comes before the deregistration that reads zero.

use crate::explore;
use crate::thread;
use crate::wire::{World, remote};
use peerage::{Access, Capabilities, Outcome, Region};
use std::sync::Arc;

fn registered() -> (Arc<World>, Region) {
    let (world, _) = World::ready(Capabilities::NONE, 1);
    let region = Region::zeroed(1);
    world.table.table().register(&region).unwrap();
    (world, region)
}

/// The transport panics if it is to post from a region that it has given up, or to give one up that it uses.
#[test]
fn a_post_is_refused_or_keeps_its_region() {
    explore(3, || {
        let (world, region) = registered();
        let page = region.slice(0..1).unwrap();
        let lease = world.peer.lease().unwrap();
        let poster = thread::spawn(move || lease.write(&page, remote()).is_ok());
        let taken = world.table.table().deregister(&region).is_ok();
        let posted = poster.join().unwrap();
        assert!(!(taken && posted), "deregistered under a transfer");
        assert_eq!(world.log.is_registered(), !taken);
        let completions = std::mem::take(&mut *world.log.posted.lock().unwrap());
        completions.into_iter().for_each(|completion| completion.complete(Outcome::Done));
        world.end();
    });
}

/// A transfer touches its pages for the last time and completes.
#[test]
fn the_last_touch_of_a_page_comes_before_its_deregistration() {
    explore(3, || {
        let (world, region) = registered();
        let transfer = world.peer.lease().unwrap().write(&region.slice(0..1).unwrap(), remote()).unwrap();
        let completion = world.log.posted.lock().unwrap().pop().unwrap();
        let native = {
            let log = world.log.clone();
            thread::spawn(move || {
                log.pages.with(|_| ());
                completion.complete(Outcome::Done);
            })
        };
        let taken = world.table.table().deregister(&region).is_ok();
        native.join().unwrap();
        assert!(taken || world.table.table().deregister(&region).is_ok(), "nothing uses it any more");
        drop(transfer);
        world.end();
    });
}

#[test]
fn a_grant_is_refused_or_keeps_its_region() {
    explore(3, || {
        let (world, region) = registered();
        let lender = {
            let (world, page) = (world.clone(), region.slice(0..1).unwrap());
            thread::spawn(move || world.table.table().grant(&world.peer, &page, Access::Write).ok())
        };
        let taken = world.table.table().deregister(&region).is_ok();
        let lent = lender.join().unwrap();
        assert!(!(taken && lent.is_some()), "deregistered while its page is lent");
        drop(lent);
        assert!(taken || world.table.table().deregister(&region).is_ok(), "nothing uses it any more");
        world.end();
    });
}
