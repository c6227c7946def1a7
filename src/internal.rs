//! What the models in `loom-tests` need of the private code. It exists under `--cfg peerage_loom` only.
//!
//! A [`Model`] is a table without threads of its own. The model's threads play them: [`Model::look`] is one round of the
//! real driver, [`Model::close_one`] and [`Model::connect_one`] run what its pools would have run.

#![allow(missing_debug_implementations)]

use crate::builder::Config;
use crate::clock::Clock;
use crate::driver::Driver;
use crate::error::ReadyError;
use crate::gate;
use crate::lease::Lease;
use crate::name::PeerId;
use crate::peer::Peer;
use crate::policy::{Backoff, Heartbeat};
use crate::ready;
use crate::record::{self, Record};
use crate::shared::Shared;
use crate::slot::SlotRef;
use crate::slow::{Join, locked};
use crate::state::{Generation, Phase};
use crate::table::PeerTable;
use crate::transport::Transport;
use crate::wait::Cell;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A table whose driver and pools are played by a model.
pub struct Model<T: Transport> {
    shared: Arc<Shared<T>>,
    table: PeerTable<T>,
    /// Of the one thread of the model that plays the driver.
    driver: Mutex<Driver<T>>,
}

impl<T: Transport> Model<T> {
    /// A table with gates of `stripes` stripes, no backoff, and a clock that stands still.
    pub fn new(transport: T, stripes: usize) -> Self {
        Self::with_heartbeat(transport, stripes, None)
    }

    /// The same where peers are asked whether they are alive.
    pub fn with_heartbeat(transport: T, stripes: usize, heartbeat: Option<Heartbeat>) -> Self {
        let backoff = Backoff { base: Duration::ZERO, cap: Duration::ZERO, min_stable: Duration::ZERO };
        let limits = Config { stripes, max_concurrent_connects: 1, max_stuck: 1, ..Config::default() };
        let config = Config { backoff, breaker: None, heartbeat, ..limits };
        let shared = Shared::new(transport, config, Clock::manual(), 1);
        let driver = Mutex::new(Driver::new(shared.clone()));
        Model { table: PeerTable::new(shared.clone()), shared, driver }
    }

    /// The table.
    pub fn table(&self) -> &PeerTable<T> {
        &self.table
    }

    /// What [`PeerTable::lease_by_id`] does, but a refused one asks for nothing.
    pub fn enter_by_id(&self, id: PeerId) -> Option<Lease<T>> {
        let slot = self.shared.slab.place(id.index)?;
        let stripe = gate::stripe_of_thread();
        let entered = slot.enter_by_id(id.version, stripe)?.ok()?;
        Some(Lease::of(slot, entered))
    }

    /// Moves the clock.
    pub fn advance(&self, by: Duration) {
        self.shared.clock.advance(by);
    }

    /// Names this thread as the one to unpark.
    pub fn driven_here(&self) {
        self.shared.queue.driven_by(loom::thread::current());
    }

    /// One round of the driver; answers whether anything moved.
    pub fn look(&self) -> bool {
        self.driver.try_lock().expect("one thread plays the driver").look()
    }

    /// Runs the next job of every pool but the connecting one; answers whether there was one.
    pub fn close_one(&self) -> bool {
        let connectors = &self.shared.connectors;
        let job =
            self.shared.pools().into_iter().filter(|pool| !Arc::ptr_eq(pool, connectors)).find_map(|p| p.next_job());
        job.map(|job| job()).is_some()
    }

    /// The next attempt, to be run.
    pub fn attempt(&self) -> Option<Box<dyn FnOnce() + Send>> {
        self.shared.connectors.next_job()
    }

    /// The next heartbeat's probe, to be run.
    pub fn beat(&self) -> Option<Box<dyn FnOnce() + Send>> {
        self.shared.beaters.next_job()
    }

    /// Runs the next attempt; answers whether there was one.
    pub fn connect_one(&self) -> bool {
        self.attempt().map(|attempt| attempt()).is_some()
    }

    /// Plays everybody until nothing moves.
    pub fn run(&self) {
        while self.look() | self.close_one() | self.connect_one() {}
        self.shared.sweep(); // as the driver does before it sleeps
    }

    /// What is done when the driver has panicked; played later, it goes on all the same.
    pub fn driver_dies(&self) {
        self.driver.try_lock().expect("one thread plays the driver").died();
    }

    /// Attempts that hold a permit, and native connects that have outlived theirs.
    pub fn connects(&self) -> (usize, usize) {
        (self.shared.connects.permits(), self.shared.connects.stuck())
    }

    /// Ends the table after every lease and handle was given back: all is drained, closed and counted back, or this
    /// panics.
    pub fn end(self) {
        let shared = self.finish();
        assert_eq!(Arc::strong_count(&shared), 1, "a reference of a slot was not given back");
    }

    /// The same where another thread gives a reference back meanwhile.
    pub fn end_beside_the_last_holder(self) {
        let shared = self.finish();
        while Arc::strong_count(&shared) > 1 {
            loom::thread::yield_now();
        }
        // Orders in models what the count of `shared` orders: who ended a life locked this before.
        shared.slab.places().for_each(|slot| drop(slot.slow.lock()));
    }

    fn finish(self) -> Arc<Shared<T>> {
        let Model { shared, table, driver } = self;
        drop(table);
        let mut driver = driver.into_inner().expect("no driver panicked");
        let pools = shared.pools().map(Arc::clone);
        let run = || pools.iter().filter_map(|pool| pool.next_job()).map(|job| job()).count() > 0;
        while driver.look() | run() {}
        assert!(driver.has_ended(), "a peer was never drained");
        drop(driver);
        shared
    }
}

/// What [`Peer::lease`] does, but a refused one asks for nothing.
pub fn enter<T: Transport>(peer: &Peer<T>) -> Option<Lease<T>> {
    let stripe = gate::stripe_of_thread();
    let entered = peer.slot().enter(stripe).ok()?;
    Some(Lease::of(peer.slot(), entered))
}

/// From here on this thread's leases use `stripe`.
pub fn use_stripe(stripe: u32) {
    gate::STRIPE.with(|mine| mine.set(stripe));
}

/// Runs `model` with records, which the other models go without.
pub fn with_records<R>(model: impl FnOnce() -> R) -> R {
    record::MODELLED.set(true);
    let answer = model();
    record::MODELLED.set(false);
    answer
}

/// Where the peer stands, in one look.
pub fn stands<T: Transport>(peer: &Peer<T>) -> (Phase, Generation) {
    let word = peer.slot().word();
    (word.phase(), word.generation())
}

/// Joins the peer's attempt, as `ready()` and `wait_ready()` do before they wait.
pub fn join<T: Transport>(peer: &Peer<T>) -> Joined {
    match ready::join(peer.slot()) {
        Join::Ended(ended) => Joined::Ended(ended),
        Join::Wait(cell) => Joined::Waiting(Waiting(cell)),
    }
}

/// What [`join`] found.
pub enum Joined {
    /// The answer is there.
    Ended(Result<Generation, ReadyError>),
    /// It will come.
    Waiting(Waiting),
}

/// Somebody who joined an attempt.
pub struct Waiting(Arc<Cell<Result<Generation, ReadyError>>>);

impl Waiting {
    /// Blocks until the outcome is there.
    pub fn wait(self) -> Result<Generation, ReadyError> {
        self.0.wait()
    }

    /// The outcome, if it is there.
    pub fn peek(&self) -> Option<Result<Generation, ReadyError>> {
        self.0.peek()
    }
}

/// What [`Peer::record`] answers, and of which word.
pub fn record_of<T: Transport>(peer: &Peer<T>) -> ((Phase, Generation), Option<Record>) {
    let word = peer.slot().word();
    ((word.phase(), word.generation()), peer.slot().record_of(word))
}

/// The peer's record, whatever its word says.
pub fn record_alone<T: Transport>(peer: &Peer<T>) -> Option<Record> {
    peer.slot().record.read(|record| record.cloned())
}

/// What the peer last failed with, as its next record will say.
pub fn last_error<T: Transport>(peer: &Peer<T>) -> Option<String> {
    locked(peer.slot(), |lane| {
        lane.settle(None);
        lane.join_note();
        lane.slow.last_error.as_ref().map(|text| text.to_string())
    })
}

/// Wakes the driver, as whoever holds a peer and has something for its table does.
pub fn wake<T: Transport>(peer: &Peer<T>) {
    peer.slot().home().queue.wake();
}

/// Tells the driver something about the peer.
pub fn tell<T: Transport>(peer: &Peer<T>, events: u32) {
    peer.slot().tell(events);
}

impl<T: Transport> Model<T> {
    /// Takes the driver's list, showing each peer's id and its events to `look`.
    pub fn take(&self, mut look: impl FnMut(PeerId, u32)) -> bool {
        let mut any = false;
        for (slot, events) in self.shared.queue.take() {
            any = true;
            // SAFETY: the list's counted reference, which `take` passes on.
            let slot = unsafe { SlotRef::from_counted(slot) };
            look(slot.id(), events);
        }
        any
    }
}
