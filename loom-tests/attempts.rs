//! Who may end an attempt to connect, and who may start the next one.
//!
//! 1. Only a report changes the word without the mutex: Ready(g) or Connecting(g) to Failed(g). Everybody else holds it,
//!    looks again, and still changes the word by CAS.
//! 2. At most one native connect of a peer runs, also if its attempt has expired.
//! 3. A bay is reserved at the election and touched at publish; expiry frees it at once.
//! 4. A connection that comes too late is closed, and only then has its connect returned.

use crate::explore;
use crate::thread;
use crate::wire::World;
use peerage::__internal::{Joined, join};
use peerage::{Capabilities, Phase, ReadyError, Reported};
use std::sync::Arc;
use std::time::Duration;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// An attempt returns, is reported by its native side, and expires, in any order; then somebody asks for the next one.
fn one_attempt(capabilities: Capabilities) {
    explore(2, move || {
        let (world, oldest) = World::ready(capabilities, 1);
        // Where connections may overlap, the older one still drains.
        let held = capabilities.contains(Capabilities::OVERLAP).then(|| world.peer.lease().unwrap());
        world.report(oldest);
        world.ask();
        while world.table.look() | world.table.close_one() {}
        let attempt = world.peer.generation();
        assert_eq!((world.peer.phase(), attempt == oldest), (Phase::Connecting, false));

        let connecting = thread::spawn(world.table.attempt().expect("elected"));
        let reporting = {
            let world = world.clone();
            thread::spawn(move || {
                world.report(attempt);
                assert_ne!(world.send(), Some(attempt), "admitted although it was reported");
            })
        };
        world.table.advance(CONNECT_TIMEOUT);
        world.table.run();
        world.ask();
        world.table.run();
        connecting.join().unwrap();
        reporting.join().unwrap();
        world.ask();
        world.table.run();
        assert_eq!(world.peer.phase(), Phase::Ready);
        assert_ne!(world.peer.generation(), attempt, "Ready although it was reported");
        let wanted = 1 + usize::from(held.is_some());
        assert_eq!(world.log.open_connections(), wanted, "a connection was lost");
        assert!(world.send().is_some());
        drop(held);
        world.end();
    });
}

#[test]
fn an_attempt_ends_once_and_the_next_one_starts_when_its_connect_is_back() {
    one_attempt(Capabilities::NONE);
}

#[test]
fn an_attempt_ends_once_beside_a_connection_that_drains() {
    one_attempt(Capabilities::OVERLAP);
}

/// A report comes while the attempt is published.
#[test]
fn a_reported_attempt_is_never_ready() {
    explore(3, || {
        let world = Arc::new(World::new(Capabilities::NONE, 1));
        world.ask();
        while world.table.look() {}
        let attempt = world.peer.generation();
        let connecting = thread::spawn(world.table.attempt().expect("elected"));
        assert!(world.report(attempt), "it was current");
        assert_ne!(world.peer.lease().ok().map(|lease| lease.generation()), Some(attempt));
        connecting.join().unwrap();
        world.table.run();
        assert_eq!(world.log.open_connections(), 1);
        world.end();
    });
}

/// An attempt that somebody waits for returns late, while its deadline passes.
fn late_ticket(fails: bool) {
    explore(3, move || {
        let world = World::connecting();
        let attempt = world.peer.generation();
        let Joined::Waiting(waiting) = join(&world.peer) else { panic!("it is connecting") };
        world.log.fails.store(fails, std::sync::atomic::Ordering::SeqCst);
        let late = thread::spawn(world.table.attempt().expect("elected"));
        world.table.advance(CONNECT_TIMEOUT);
        world.table.run();
        late.join().unwrap();
        world.table.run();
        let ready = match waiting.peek().expect("nobody has told who waited") {
            Ok(generation) => generation == attempt && !fails,
            Err(ReadyError::TimedOut { generation, .. }) => generation != attempt,
            Err(ReadyError::Failed { generation, .. }) => generation != attempt || !fails,
            Err(other) => panic!("another end: {other:?}"),
        };
        let phase = if ready { Phase::Ready } else { Phase::Failed };
        assert_eq!((world.peer.phase(), world.peer.generation()), (phase, attempt), "not as the waiter was told");
        assert_eq!(world.log.open_connections(), usize::from(ready), "a late connection stays open");
        assert_eq!(world.table.connects(), (0, 0), "a permit was not given back, or twice");
        world.end();
    });
}

#[test]
fn a_deadline_and_a_late_connection_end_the_attempt_once() {
    late_ticket(false);
}

#[test]
fn a_deadline_and_a_late_failure_end_the_attempt_once() {
    late_ticket(true);
}

/// A native thread reports the generation it was given while the connect that started it returns and is published.
#[test]
fn an_error_before_publish_fails_its_attempt() {
    explore(3, || {
        let world = World::connecting();
        let attempt = world.peer.generation();
        world.log.reports_early.store(true, std::sync::atomic::Ordering::SeqCst);
        let connecting = thread::spawn(world.table.attempt().expect("elected"));
        world.table.run();
        connecting.join().unwrap();
        let native = world.log.natives.lock().unwrap().pop().expect("the connect started it");
        assert_eq!(native.join().unwrap(), Reported::Failed, "nobody else ends this attempt");
        assert_ne!(world.send(), Some(attempt), "admitted although it was reported");
        world.table.run();
        let stands = (world.peer.phase(), world.peer.generation(), world.log.open_connections());
        assert_eq!(stands, (Phase::Failed, attempt, 0));
        world.end();
    });
}

/// Two reporters of one generation, one of them late, while the peer reconnects.
#[test]
fn a_late_reporter_leaves_the_next_generation_alone() {
    explore(2, || {
        let (world, first) = World::ready(Capabilities::NONE, 1);
        let late = {
            let world = world.clone();
            thread::spawn(move || world.report(first))
        };
        let here = world.report(first);
        world.ask();
        world.table.run();
        let there = late.join().unwrap();
        assert!(here != there, "one generation has failed once");
        world.table.run();
        if world.peer.generation() != first {
            assert_eq!(
                world.peer.phase(),
                Phase::Ready,
                "the next generation was failed by a report of the one before"
            );
        }
        world.end();
    });
}

/// The peer is removed while its attempt is published and somebody sends.
#[test]
fn an_attempt_of_a_removed_peer_is_undone() {
    explore(2, || {
        let world = World::connecting();
        let connecting = thread::spawn(world.table.attempt().expect("elected"));
        let sender = world.sender(0);
        drop(world.peer.remove(std::time::Instant::now() + CONNECT_TIMEOUT));
        assert!(world.send().is_none(), "admitted after remove returned");
        world.table.run();
        connecting.join().unwrap();
        sender.join().unwrap();
        world.table.run();
        assert_eq!((world.peer.phase(), world.log.open_connections()), (Phase::Removed, 0));
        world.end();
    });
}
