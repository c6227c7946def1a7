//! A real table over a fabric, driven by operations one at a time and compared with the model after each.
//!
//! The table's threads run as they like; after an operation the world waits until everything that can be seen is as the
//! model says, lets the driver take another turn, and looks again. So the model may be exact, and an operation that
//! changes something it must not is seen with it, not with a later one.

mod check;
mod perform;

use crate::model::op::{At, NAMES, Op, Setup};
use crate::model::sequential::{
    Answer, BASE, CAP, CLOSE_TIMEOUT, CONNECT_TIMEOUT, DRAIN_DEADLINE, MAX_PEERS, MIN_STABLE, Model, Native, Refusal,
};
use peerage::transport::memory::{Fabric, Hold, Memory, MemoryAddress, NativeCall, Step};
use peerage::{
    Backoff, Cancel, Capabilities, Clock, Generation, Grant, Lease, Peer, PeerId, PeerTable, Ready, Region, Removal,
    Removed, Shutdown, Slice, Ticket, Transfer,
};
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::panic;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, Once};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

const PAGE: [u8; 8] = *b"all here";

/// Runs one sequence. `Err` names the operation after which table and model differ, and how.
pub(crate) fn run(setup: Setup, ops: &[Op]) -> Result<(), String> {
    keep_quiet();
    let mut world = World::new(setup);
    for (at, op) in ops.iter().enumerate() {
        world.apply(*op).map_err(|error| format!("after operation {at}, {op:?}: {error}"))?;
    }
    world.finish().map_err(|error| format!("at the end: {error}"))
}

/// Panics that a sequence asks for are not worth a backtrace each.
fn keep_quiet() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let tell = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !info.payload().downcast_ref::<String>().is_some_and(|text| text.starts_with("a test asked")) {
                tell(info);
            }
        }));
    });
}

/// How long the table may take to come to rest. Once a sequence has failed, those that shrink it need not wait as long.
fn patience() -> Duration {
    if FAILED.load(Relaxed) { Duration::from_millis(300) } else { Duration::from_secs(10) }
}

static FAILED: AtomicBool = AtomicBool::new(false);
static SEEN: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());

/// How often each operation had each answer, and each thing that was waited for each end.
pub(crate) fn seen() -> BTreeMap<String, u64> {
    SEEN.lock().expect("nobody panics with it").clone()
}

struct World {
    model: Model,
    clock: Clock,
    start: Instant,
    fabric: Fabric,
    us: Memory,
    nodes: Vec<Memory>,
    table: PeerTable<Memory>,
    region: Region,
    /// Of each peer there ever was.
    ids: Vec<PeerId>,
    handles: Vec<Peer<Memory>>,
    leases: Vec<(Lease<Memory>, NativeCall)>,
    tickets: Vec<Ticket<Memory>>,
    waiters: Vec<Waiting<Ready<Memory>>>,
    removers: Vec<Waiting<Removal>>,
    shutdowns: Vec<Waiting<Shutdown>>,
    transfers: Vec<Moving>,
    cancels: Vec<Waiting<Cancel>>,
    grants: Vec<Grant>,
    holds: HashMap<(Step, usize), Hold>,
    /// What the table chose for each of the model's generations.
    chosen: Vec<Option<Generation>>,
    /// The greatest before this operation.
    newest: Generation,
}

struct Moving {
    transfer: Transfer,
    theirs: Slice,
    _lent: Grant,
}

/// A future and what it said.
struct Waiting<F: Future> {
    future: F,
    said: Option<F::Output>,
}

impl<F: Future + Unpin> Waiting<F> {
    /// Starts waiting at once: some futures ask when they are first polled.
    fn new(future: F) -> Self {
        let mut waiting = Waiting { future, said: None };
        waiting.poll();
        waiting
    }

    fn poll(&mut self) -> Option<&F::Output> {
        if self.said.is_none() {
            let mut cx = Context::from_waker(Waker::noop());
            if let Poll::Ready(said) = Pin::new(&mut self.future).poll(&mut cx) {
                self.said = Some(said);
            }
        }
        self.said.as_ref()
    }
}

fn name(number: usize) -> String {
    format!("p{number}")
}

impl World {
    fn new(setup: Setup) -> Self {
        let clock = Clock::manual();
        let fabric = Fabric::with_clock(clock.clone());
        let nodes: Vec<_> = (0..NAMES).map(|node| fabric.node(&name(node))).collect();
        let mut capabilities = Capabilities::NATIVE_CLOSE;
        for (has, capability) in [
            (setup.overlap, Capabilities::OVERLAP.with(Capabilities::UPDATES_IN_PLACE)),
            (setup.quiesces, Capabilities::CLOSE_QUIESCES),
        ] {
            capabilities = if has { capabilities.with(capability) } else { capabilities };
        }
        let us = fabric.builder("us").capabilities(capabilities).build();
        let table = PeerTable::builder(us.clone())
            .clock(clock.clone())
            .backoff(Backoff { base: BASE, cap: CAP, min_stable: MIN_STABLE })
            .breaker(None)
            .connect_timeout(CONNECT_TIMEOUT)
            .drain_deadline(DRAIN_DEADLINE)
            .close_timeout(CLOSE_TIMEOUT)
            .max_peers(MAX_PEERS)
            .max_concurrent_closes(64)
            .max_concurrent_connects(64)
            .seed(1)
            .build()
            .expect("sound settings");
        let region = Region::zeroed(PAGE.len());
        region.slice(0..PAGE.len()).and_then(|slice| slice.write(0, &PAGE)).expect("it fits");
        table.register(&region).expect("a new table");
        let incarnations: Vec<_> = nodes.iter().map(|node| node.incarnation().0).collect();
        World {
            model: Model::new(setup, incarnations.try_into().expect("one for each")),
            start: clock.now(),
            clock,
            fabric,
            us,
            nodes,
            table,
            region,
            ids: Vec::new(),
            handles: Vec::new(),
            leases: Vec::new(),
            tickets: Vec::new(),
            waiters: Vec::new(),
            removers: Vec::new(),
            shutdowns: Vec::new(),
            transfers: Vec::new(),
            cancels: Vec::new(),
            grants: Vec::new(),
            holds: HashMap::new(),
            chosen: Vec::new(),
            newest: Generation(0),
        }
    }

    fn apply(&mut self, op: Op) -> Result<(), String> {
        let mut model = self.model.clone();
        let expected = model.apply(op);
        if expected == Answer::Skipped || model.ambiguous {
            return Ok(());
        }
        self.newest = self.chosen.iter().flatten().copied().max().unwrap_or(self.newest);
        let answer = self.perform(op);
        self.model = model;
        see(op, &answer);
        if !agree(&expected, &answer) {
            FAILED.store(true, Relaxed);
            return Err(format!("expected {expected:?}, got {answer:?}"));
        }
        self.come_to_rest()?;
        self.turn();
        self.come_to_rest()
    }

    /// Lets go of everything and ends the table: nothing may be left.
    fn finish(mut self) -> Result<(), String> {
        for name in 0..NAMES as u8 {
            for at in [At::Connect, At::Close, At::Complete] {
                self.apply(Op::Release { at, name })?;
            }
        }
        for lease in (0..self.leases.len()).rev().filter_map(|lease| u8::try_from(lease).ok()) {
            self.apply(Op::DropLease { lease, elsewhere: false })?;
        }
        for ticket in (0..self.tickets.len()).rev().filter_map(|ticket| u8::try_from(ticket).ok()) {
            self.apply(Op::DropTicket { ticket })?;
        }
        self.apply(Op::Advance { by: 5 })?;
        self.apply(Op::Shutdown { within: 5 })?;
        self.apply(Op::Advance { by: 5 })?;
        self.apply(Op::Advance { by: 5 })?;
        self.model.waiters.iter().for_each(|waiter| see("waiter", &waiter.outcome));
        self.model.removers.iter().for_each(|remover| see("remover", &remover.outcome));
        self.model.transfers.iter().for_each(|transfer| see("transfer", &transfer.outcome));
        self.model.cancels.iter().for_each(|cancel| see("cancel", &cancel.answer));
        self.model.shutdowns.iter().for_each(|shutdown| see("shutdown", &shutdown.outcome));
        // What is passed over here is held or kept: the shutdown's report has shown that.
        let held = self.model.native.iter().any(Native::is_held);
        let open: u64 = self.model.native.iter().map(|native| native.counts.open).sum();
        let left = open > 0 || self.model.live() > 0;
        if left && !held && self.leases.is_empty() && self.model.is_shut_down() {
            return Err(format!("{open} connections and {} peers are left", self.model.live()));
        }
        Ok(())
    }

    /// Waits until what can be seen is what the model says.
    fn come_to_rest(&mut self) -> Result<(), String> {
        let give_up = Instant::now() + patience();
        for look in 0.. {
            match self.check() {
                Ok(()) => return Ok(()),
                Err(error) if Instant::now() > give_up => {
                    FAILED.store(true, Relaxed);
                    return Err(error);
                }
                Err(_) if look < 20 => thread::yield_now(),
                Err(_) => thread::sleep(Duration::from_micros(50)),
            }
        }
        unreachable!("it gives up before")
    }

    /// Has the driver go round once more: an idle peer is removed by nobody else.
    fn turn(&self) {
        if let Ok(peer) = self.table.insert("turn", MemoryAddress::new("turn")) {
            assert_eq!(peer.remove(self.clock.now() + CONNECT_TIMEOUT).wait(), Ok(Removed::Removed));
        }
    }
}

fn agree(expected: &Answer, answer: &Answer) -> bool {
    match (expected, answer) {
        (Answer::NotReady(Refusal { or: Some(or), .. }), Answer::NotReady(refusal)) if refusal.reason == *or => true,
        (Answer::NotReady(expected), Answer::NotReady(refusal)) => {
            *refusal == Refusal { or: refusal.or, ..expected.clone() }
        }
        (expected, answer) => expected == answer,
    }
}

/// Counts a pair by their words alone: no numbers, so that there are not too many.
fn see(what: impl std::fmt::Debug, how: &impl std::fmt::Debug) {
    let words = format!("{what:?} -> {how:?}").replace(|c: char| c.is_ascii_digit(), "");
    *SEEN.lock().expect("nobody panics with it").entry(words).or_default() += 1;
}
