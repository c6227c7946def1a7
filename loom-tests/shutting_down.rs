//! The end of a table beside everything else that goes on. Inserts are in names.rs.
//!
//! 1. After `shutdown` has returned nothing is admitted, elected, lent or registered.
//! 2. What was under way is undone: every peer ends Removed, and every connection is closed once its users have left.
//! 3. What is still in use is neither closed nor deregistered.

use crate::explore;
use crate::thread;
use crate::wire::{World, remote, use_lease};
use peerage::__internal::{Joined, join};
use peerage::{Access, Capabilities, Outcome, Phase, ReadyError, Region, Shutdown, ShutdownReport};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

fn shut_down(world: &World) -> Shutdown {
    let shutdown = world.table.table().shutdown(Instant::now() + PATIENCE);
    assert!(world.send().is_none(), "admitted after shutdown returned");
    shutdown
}

/// Everybody else is done: plays driver and pools to the end.
fn ended(world: Arc<World>, mut shutdown: Shutdown) -> ShutdownReport {
    world.table.run();
    assert_eq!((world.peer.phase(), world.log.open_connections()), (Phase::Removed, 0), "not undone");
    assert_eq!(world.table.connects(), (0, 0));
    let Poll::Ready(report) = Pin::new(&mut shutdown).poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("nothing is left, and nobody says so")
    };
    world.end();
    report
}

fn nothing_is_left(report: &ShutdownReport) {
    assert_eq!(format!("{report:?}"), format!("{:?}", ShutdownReport::default()));
}

/// An attempt that somebody waits for connects and publishes.
#[test]
fn an_attempt_is_undone() {
    explore(3, || {
        let world = World::connecting();
        let attempt = world.peer.generation();
        let Joined::Waiting(waiting) = join(&world.peer) else { panic!("it is connecting") };
        let connecting = thread::spawn(world.table.attempt().expect("elected"));
        let shutdown = shut_down(&world);
        assert!(matches!(join(&world.peer), Joined::Ended(Err(ReadyError::ShutDown { .. }))));
        connecting.join().unwrap();
        match waiting.peek() {
            Some(Ok(generation)) => assert_eq!(generation, attempt),
            Some(Err(ReadyError::ShutDown { .. })) => {}
            other => panic!("who waits was not told: {other:?}"),
        }
        nothing_is_left(&ended(world, shutdown));
    });
}

/// A connect was asked for, the older connection still drains, and the driver comes to it.
#[test]
fn nobody_is_elected_afterwards() {
    explore(2, || {
        let (world, first) = World::ready(Capabilities::OVERLAP, 1);
        let lease = world.peer.lease().unwrap();
        world.report(first);
        world.ask();
        let driver = {
            let world = world.clone();
            thread::spawn(move || while world.table.look() | world.table.close_one() | world.table.connect_one() {})
        };
        let shutdown = shut_down(&world);
        driver.join().unwrap();
        world.table.run();
        assert_eq!((world.peer.phase(), world.table.connects()), (Phase::Removing, (0, 0)), "elected after the end");
        drop(lease);
        nothing_is_left(&ended(world, shutdown));
    });
}

#[test]
fn a_report_changes_nothing_about_it() {
    explore(3, || {
        let (world, first) = World::ready(Capabilities::NONE, 1);
        let reporter = {
            let world = world.clone();
            thread::spawn(move || world.report(first))
        };
        let shutdown = shut_down(&world);
        reporter.join().unwrap();
        nothing_is_left(&ended(world, shutdown));
    });
}

/// One sender holds a lease, another tries for one.
#[test]
fn every_lease_precedes_the_close() {
    explore(2, || {
        let (world, _) = World::ready(Capabilities::NONE, 1);
        let lease = world.peer.lease().unwrap();
        let holder = thread::spawn(move || {
            use_lease(&lease, "p");
        });
        let sender = world.sender(0);
        let shutdown = shut_down(&world);
        world.table.run();
        holder.join().unwrap();
        sender.join().unwrap();
        nothing_is_left(&ended(world, shutdown));
    });
}

/// Somebody else removes the peer, and both wait.
#[test]
fn a_remover_learns_the_same_end() {
    explore(2, || {
        let (world, _) = World::ready(Capabilities::NONE, 1);
        let remover = {
            let world = world.clone();
            thread::spawn(move || world.peer.remove(Instant::now() + PATIENCE))
        };
        let shutdown = shut_down(&world);
        let mut removal = remover.join().unwrap();
        world.table.run();
        let removed = Pin::new(&mut removal).poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(removed, Poll::Ready(peerage::Removed::Removed));
        nothing_is_left(&ended(world, shutdown));
    });
}

#[test]
fn a_grant_is_refused_or_revoked() {
    explore(2, || {
        let (world, _) = World::ready(Capabilities::NONE, 1);
        let region = Region::zeroed(1);
        world.table.table().register(&region).unwrap();
        let lender = {
            let (world, page) = (world.clone(), region.slice(0..1).unwrap());
            thread::spawn(move || world.table.table().grant(&world.peer, &page, Access::Write).ok())
        };
        let shutdown = shut_down(&world);
        let lent = lender.join().unwrap();
        assert!(lent.as_ref().is_none_or(|grant| grant.is_quiesced()), "lent beyond the end");
        assert_eq!(world.peer.status().grants, 0, "a grant was not counted out");
        nothing_is_left(&ended(world, shutdown));
    });
}

#[test]
fn a_registration_is_refused_or_taken_back() {
    explore(2, || {
        let (world, _) = World::ready(Capabilities::NONE, 1);
        let register = {
            let world = world.clone();
            thread::spawn(move || drop(world.table.table().register(&Region::zeroed(1))))
        };
        let shutdown = shut_down(&world);
        world.table.run();
        register.join().unwrap();
        assert!(!world.log.is_registered(), "registered beyond the end");
        nothing_is_left(&ended(world, shutdown));
    });
}

/// A transfer is posted under a lease while the deadline passes and registrations are taken back. The transport panics if
/// it is to post from a region that it has given up, or to give one up that it uses.
#[test]
fn a_transfer_keeps_its_region() {
    explore(2, || {
        let (world, _) = World::ready(Capabilities::NONE, 1);
        let region = Region::zeroed(1);
        world.table.table().register(&region).unwrap();
        let lease = world.peer.lease().unwrap();
        let page = region.slice(0..1).unwrap();
        let poster = thread::spawn(move || lease.write(&page, remote()).is_ok());
        let shutdown = shut_down(&world);
        world.table.advance(2 * PATIENCE);
        world.table.run();
        let posted = poster.join().unwrap();
        assert!(!posted || world.log.is_registered(), "deregistered under a transfer");
        let completions = std::mem::take(&mut *world.log.posted.lock().unwrap());
        completions.into_iter().for_each(|completion| completion.complete(Outcome::Done));
        let report = ended(world, shutdown);
        assert!(!posted || report.still_registered == [region.id()], "the report leaves it out");
    });
}
