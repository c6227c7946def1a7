//! Closing a bay whose transfers do not end, without breaking a user's lease.
//!
//! 1. A bay counts users and transfers apart. A transfer is posted under a lease and keeps the transfer count, not the
//!    lease: "only transfers are left" is one look at the users' count.
//! 2. Where the close quiesces, the lane closes over outstanding transfers; elsewhere it waits for them, and either it or
//!    the one who ends the last transfer sees to it that it looks again.
//! 3. A transfer ends once.
//! 4. What touched its pages last comes before whoever sees it quiescent.
//! 5. Who gives a transfer up has no lease. Its call of the transport comes before the close, or is not made.

use crate::explore;
use crate::thread;
use crate::wire::{World, remote};
use loom::cell::UnsafeCell;
use peerage::{Capabilities, Generation, Outcome, Region, Transfer};
use std::sync::Arc;

fn post(world: &World, region: &Region) -> Option<Transfer> {
    world.peer.lease().ok()?.write(&region.slice(0..1).unwrap(), remote()).ok()
}

/// A Ready peer with one transfer in flight.
fn with_a_transfer(capabilities: Capabilities) -> (Arc<World>, Generation, Region, Transfer) {
    let (world, first) = World::ready(capabilities, 1);
    let region = Region::zeroed(1);
    world.table.table().register(&region).unwrap();
    let transfer = post(&world, &region).unwrap();
    (world, first, region, transfer)
}

fn completes(world: &Arc<World>) -> thread::JoinHandle<()> {
    let completion = world.log.posted.lock().unwrap().pop().unwrap();
    thread::spawn(move || completion.complete(Outcome::Done))
}

/// A user inside posts a second transfer and leaves while the first completes and the lane closes.
#[test]
fn users_are_counted_apart_from_transfers() {
    explore(2, || {
        let (world, first, region, transfer) = with_a_transfer(Capabilities::CLOSE_QUIESCES);
        let native = completes(&world);
        let lease = world.peer.lease().unwrap();
        let user = thread::spawn(move || {
            let posted = lease.write(&region.slice(0..1).unwrap(), remote()).ok();
            crate::wire::use_lease(&lease, "p");
            posted
        });
        world.report(first);
        world.table.run();
        native.join().unwrap();
        let posted = user.join().unwrap();
        world.table.run();
        assert_eq!(world.log.open_connections(), 0, "drained, and not closed");
        assert!(transfer.is_quiescent() && transfer.try_outcome().is_some());
        if let Some(posted) = posted {
            assert_eq!(posted.try_outcome(), Some(Outcome::Unknown), "the close ends it");
            assert!(posted.is_quiescent());
        }
        world.log.posted.lock().unwrap().clear();
        world.end();
    });
}

/// The close and the completion both end one transfer: whoever is first, its outcome stays.
#[test]
fn a_transfer_ends_once() {
    explore(3, || {
        let (world, first, _region, transfer) = with_a_transfer(Capabilities::CLOSE_QUIESCES);
        let native = completes(&world);
        world.report(first);
        world.table.run();
        let seen = transfer.try_outcome(); // none: the native side has decided, and is about to say so
        native.join().unwrap();
        let outcome = transfer.try_outcome();
        assert!(outcome.is_some() && transfer.is_quiescent(), "never ended");
        assert!(seen.is_none() || seen == outcome, "ended twice");
        world.end();
    });
}

/// What the transport does to the pages of a transfer, and their owner after it.
struct Page(UnsafeCell<()>);

// SAFETY: every access is checked by loom, which fails the model on a race.
unsafe impl Sync for Page {}

/// The transport touches the page and completes, while the owner looks and uses the page again.
#[test]
fn pages_are_ours_again_when_a_transfer_is_quiescent() {
    explore(2, || {
        let (world, _first, _region, transfer) = with_a_transfer(Capabilities::CLOSE_QUIESCES);
        let completion = world.log.posted.lock().unwrap().pop().unwrap();
        let page = Arc::new(Page(UnsafeCell::new(())));
        let theirs = page.clone();
        let native = thread::spawn(move || {
            theirs.0.with_mut(|_| ());
            completion.complete(Outcome::Done);
        });
        if transfer.is_quiescent() {
            page.0.with_mut(|_| ());
        }
        native.join().unwrap();
        assert!(transfer.is_quiescent());
        world.end();
    });
}

/// A transfer is given up while its generation fails and its connection is closed over it.
#[test]
fn a_cancel_comes_before_the_close_or_not_at_all() {
    explore(2, || {
        let (world, first, _region, transfer) = with_a_transfer(Capabilities::CLOSE_QUIESCES);
        let far = std::time::Instant::now() + std::time::Duration::from_secs(3600);
        let user = thread::spawn(move || {
            drop(transfer.cancel(far));
            transfer
        });
        world.report(first);
        world.table.run();
        let transfer = user.join().unwrap();
        world.table.run();
        assert_eq!(world.log.open_connections(), 0, "the visit has ended, and the lane sleeps");
        assert!(transfer.is_quiescent());
        world.log.posted.lock().unwrap().clear();
        drop(transfer);
        world.end();
    });
}

/// The last transfer ends while the lane finds the bay drained of users: one of the two notices.
#[test]
fn the_last_transfer_or_the_lane_notices() {
    explore(2, || {
        let (world, first, _region, transfer) = with_a_transfer(Capabilities::NONE);
        let native = completes(&world);
        world.report(first);
        world.table.run();
        native.join().unwrap();
        world.table.run();
        assert_eq!(world.log.open_connections(), 0, "drained of users and transfers, and the lane sleeps");
        drop(transfer);
        world.end();
    });
}
