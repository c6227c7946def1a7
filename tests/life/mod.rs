//! A table in virtual time and one peer's life in it, for the tests of what other systems are told.

use peerage::transport::memory::{Fabric, Memory, MemoryAddress, MemoryError, Step};
use peerage::{Backoff, Clock, PeerTable};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

pub(crate) struct World {
    pub(crate) clock: Clock,
    pub(crate) fabric: Fabric,
    pub(crate) memory: Memory,
    pub(crate) table: PeerTable<Memory>,
}

pub(crate) fn world() -> World {
    let clock = Clock::manual();
    let fabric = Fabric::with_clock(clock.clone());
    let memory = fabric.node("here");
    fabric.node("p");
    let backoff = Backoff { base: SECOND, cap: SECOND, ..Backoff::default() };
    let table =
        PeerTable::builder(memory.clone()).clock(clock.clone()).seed(7).backoff(backoff).breaker(None).build().unwrap();
    World { clock, fabric, memory, table }
}

pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < give_up, "{what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

pub(crate) fn lock<V>(mutex: &Mutex<V>) -> MutexGuard<'_, V> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A failed attempt, a good one after two seconds, a report, a late report, a removal.
pub(crate) fn a_life(world: &World, name: &str) {
    world.fabric.node(name);
    let peer = world.table.insert(name, MemoryAddress::new(name)).unwrap();
    let later = || world.clock.now() + 60 * SECOND;
    world.memory.steps().fail_next(Step::Connect, name, 1, MemoryError::peer_broken("no route").with_native_code(-5));
    peer.wait_ready(later()).unwrap_err();
    world.clock.advance(SECOND);
    let hold = world.memory.steps().hold(Step::Connect, name);
    assert!(peer.lease().is_err());
    hold.wait_reached(1);
    world.clock.advance(2 * SECOND);
    hold.release();
    let generation = peer.wait_ready(later()).unwrap();
    peer.report(generation, &MemoryError::peer_broken("cable pulled"));
    peer.report(generation, &MemoryError::peer_broken("cable pulled"));
    eventually("it is accounted for", || peer.record().is_some());
    peer.remove(later()).wait().unwrap();
}
