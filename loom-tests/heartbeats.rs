//! Heartbeats beside what changes the generation they are about.
//!
//! 1. A probe is of the generation it was ordered for. It begins no silence of the next one, and its answer ends none.
//! 2. A silence fails the generation that is silent, and nothing if a report was first.
//! 3. The native call runs under a lease: nothing closes its connection meanwhile, neither the silence nor a removal.

use crate::explore;
use crate::thread;
use crate::wire::World;
use peerage::__internal::last_error;
use peerage::{Capabilities, Generation, Heartbeat, Phase};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

const BEAT: Heartbeat = Heartbeat { interval: Duration::from_secs(1), dead_after: Duration::from_secs(3) };

type Probe = Box<dyn FnOnce() + Send>;

/// A Ready peer whose probe was ordered.
fn asked(capabilities: Capabilities) -> (Arc<World>, Generation, Probe) {
    let (world, generation) = World::with_heartbeat(capabilities, 1, Some(BEAT)).into_ready();
    world.table.advance(BEAT.interval);
    while world.table.look() {}
    let probe = world.table.beat().expect("it is due");
    (world, generation, probe)
}

/// The old generation answers while the next one is silent.
#[test]
fn an_answer_of_an_old_generation_ends_no_silence_of_the_next_one() {
    explore(2, || {
        let (world, old, probe) = asked(Capabilities::OVERLAP);
        world.log.alive.store(old.0, SeqCst);
        let late = thread::spawn(probe);
        world.report(old);
        world.ask();
        world.table.run();
        world.table.advance(BEAT.interval);
        world.table.run();
        let next = world.peer.generation();
        let is_silent = world.log.was_probed(next) && next != old; // or the driver found the mutex held
        late.join().unwrap();
        world.table.run();
        world.table.advance(BEAT.interval);
        world.table.run();
        assert!(!is_silent || world.peer.is_suspect(), "another generation's answer has ended its silence");
        world.table.advance(BEAT.dead_after - BEAT.interval);
        world.table.run();
        assert!(!is_silent || (world.peer.phase(), world.peer.generation()) == (Phase::Failed, next));
        world.end();
    });
}

/// The probe waits for a thread until the next generation is Ready, which nobody asks here.
#[test]
fn a_late_probe_begins_no_silence_of_the_next_generation() {
    explore(2, || {
        let (world, old, probe) = asked(Capabilities::OVERLAP);
        let late = thread::spawn(probe);
        world.report(old);
        world.ask();
        world.table.run();
        late.join().unwrap();
        world.table.run();
        let next = world.peer.generation();
        assert_eq!((world.peer.phase(), next > old), (Phase::Ready, true));
        assert!(!world.log.was_probed(next), "asked in place of the generation before");
        for _ in 0..2 {
            world.table.advance(BEAT.interval);
            while world.table.look() {}
        }
        assert!(!world.peer.is_suspect(), "nobody has asked it");
        world.end();
    });
}

/// Whoever comes first fails the generation, and says why.
#[test]
fn a_silence_or_a_report_fails_a_generation_once() {
    explore(3, || {
        let (world, silent, probe) = asked(Capabilities::NONE);
        probe();
        let reporting = {
            let world = world.clone();
            thread::spawn(move || world.report(silent))
        };
        world.table.advance(BEAT.dead_after);
        world.table.run();
        let reported = reporting.join().unwrap();
        world.table.run();
        assert_eq!((world.peer.phase(), world.peer.generation()), (Phase::Failed, silent));
        let why = if reported { "reported" } else { "no heartbeat was answered for dead_after" };
        assert_eq!(last_error(&world.peer).as_deref(), Some(why), "failed twice");
        world.end();
    });
}

/// The silence of a generation that was reported comes to its end while the next one is published.
#[test]
fn a_silence_fails_no_later_generation() {
    explore(2, || {
        let (world, silent, probe) = asked(Capabilities::NONE);
        probe();
        world.report(silent);
        world.ask();
        while world.table.look() | world.table.close_one() {}
        let connecting = thread::spawn(world.table.attempt().expect("elected"));
        world.table.advance(BEAT.dead_after);
        world.table.run();
        connecting.join().unwrap();
        world.table.run();
        assert_eq!((world.peer.phase(), world.peer.generation() > silent), (Phase::Ready, true));
        world.end();
    });
}

/// The silence ends, and the peer is removed, while the native call is out.
#[test]
fn a_probe_keeps_its_connection_open() {
    explore(2, || {
        let (world, _, probe) = asked(Capabilities::NONE);
        let probing = thread::spawn(probe);
        world.table.advance(BEAT.dead_after);
        world.table.run();
        drop(world.peer.remove(Instant::now() + Duration::from_secs(60)));
        world.table.run();
        probing.join().unwrap();
        world.table.run();
        assert_eq!(world.peer.phase(), Phase::Removed);
        world.end();
    });
}
