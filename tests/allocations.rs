//! A granted lease, and leaving it, allocates and frees nothing: by handle, by id, by name. And what else the guarantees say
//! allocates nothing.

use peerage::transport::memory::{Fabric, Memory, MemoryAddress, Step};
use peerage::{Event, Lease, NotReady, Peer, PeerId, PeerTable, Phase, Reported};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, RefCell};
use std::hint::black_box;
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

/// The system's allocator, counting what each thread asks of it.
struct Counting;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count(calls: &'static thread::LocalKey<Cell<u64>>) {
    let _ = calls.try_with(|calls| calls.set(calls.get() + 1));
}

// SAFETY: every call is passed on to the system's allocator as it came; the counter is a plain thread-local without a
// destructor, so counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(&CALLS);
        count(&ALLOCATIONS);
        // SAFETY: the caller's duties are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(&CALLS);
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(&CALLS);
        count(&ALLOCATIONS);
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn calls_of(work: impl FnOnce()) -> u64 {
    let before = CALLS.get();
    work();
    CALLS.get() - before
}

/// Memory asked for, whatever is given back: a look at a record may free records that were replaced.
fn allocations_of(work: impl Fn()) -> u64 {
    work(); // a thread's first use may set up its locals
    let before = ALLOCATIONS.get();
    (0..1_000).for_each(|_| work());
    ALLOCATIONS.get() - before
}

fn far() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

struct World {
    memory: Memory,
    table: PeerTable<Memory>,
    peer: Peer<Memory>,
    id: PeerId,
}

fn world() -> World {
    let fabric = Fabric::new();
    fabric.node("p");
    let memory = fabric.node("here");
    let table = PeerTable::builder(memory.clone()).build().unwrap();
    let peer = table.insert("p", MemoryAddress::new("p")).unwrap();
    peer.wait_ready(far()).unwrap();
    let id = peer.id();
    World { memory, table, peer, id }
}

impl World {
    /// What each way to a thousand leases costs, one after the other and a hundred held at once.
    fn calls(&self) -> [u64; 3] {
        [
            self.calls_by(|| self.peer.lease()),
            self.calls_by(|| self.table.lease_by_id(self.id)),
            self.calls_by(|| self.table.lease("p")),
        ]
    }

    fn calls_by(&self, lease: impl Fn() -> Result<Lease<Memory>, NotReady>) -> u64 {
        drop(lease().unwrap()); // a thread's first use may set up its locals
        calls_of(|| {
            for _ in 0..1_000 {
                drop(lease().unwrap());
            }
            let held: [_; 100] = std::array::from_fn(|_| lease().unwrap());
            drop(held);
        })
    }
}

#[test]
fn the_counter_counts() {
    assert_eq!(calls_of(|| drop(Box::new(1))), 2);
}

#[test]
fn a_granted_lease_and_its_end_allocate_and_free_nothing() {
    assert_eq!(world().calls(), [0; 3]);
}

#[test]
fn nor_on_any_other_thread() {
    let world = world();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(world.calls(), [0; 3]));
        }
    });
}

#[test]
fn nor_while_another_peer_connects_and_this_one_was_connected_again() {
    let world = world();
    let hold = world.memory.steps().hold(Step::Connect, "slow");
    assert!(world.table.insert("slow", MemoryAddress::new("slow")).unwrap().lease().is_err());
    hold.wait_reached(1);
    let old = world.peer.generation();
    world.peer.report(old, &std::fmt::Error);
    while world.peer.lease().is_err() {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(world.calls(), [0; 3]);
}

#[test]
fn the_last_lease_of_a_reported_generation_allocates_and_frees_nothing_either() {
    let world = world();
    let lease = world.peer.lease().unwrap();
    world.peer.report(lease.generation(), &std::fmt::Error);
    assert_eq!(calls_of(|| drop(lease)), 0);
}

#[test]
fn a_refused_lease_allocates_nothing_by_handle_id_and_name() {
    let world = world();
    let hold = world.memory.steps().hold(Step::Connect, "slow");
    let peer = world.table.insert("slow", MemoryAddress::new("slow")).unwrap();
    assert!(peer.lease().is_err());
    hold.wait_reached(1);
    let id = peer.id();
    assert_eq!(allocations_of(|| assert!(peer.lease().is_err())), 0);
    assert_eq!(allocations_of(|| assert!(world.table.lease_by_id(id).is_err())), 0);
    assert_eq!(allocations_of(|| assert!(world.table.lease("slow").is_err())), 0);
    assert_eq!(allocations_of(|| assert!(world.table.lease("nobody").is_err())), 0);
}

#[test]
fn a_stale_report_allocates_nothing() {
    let world = world();
    let old = world.peer.generation();
    world.peer.report(old, &std::fmt::Error);
    assert_eq!(allocations_of(|| assert_eq!(world.peer.report(old, &std::fmt::Error), Reported::Stale)), 0);
}

#[test]
fn looks_at_one_peer_allocate_nothing() {
    let world = world();
    let (table, peer) = (&world.table, &world.peer);
    assert_eq!(allocations_of(|| drop((peer.phase(), peer.generation(), peer.record(), peer.status()))), 0);
    let words = || _ = black_box((peer.id(), peer.name(), peer.is_suspect()));
    assert_eq!(allocations_of(words), 0);
    let settings = || _ = black_box((table.time_to_declare_dead(), table.time_to_reusable()));
    assert_eq!(allocations_of(settings), 0);
    assert_eq!(allocations_of(|| drop((peer.clone(), table.peer("p"), table.peer_by_id(world.id)))), 0);
    assert_eq!(allocations_of(|| peer.wait_ready(far()).map(drop).unwrap()), 0, "it is ready");
    let lease = peer.lease().unwrap();
    assert_eq!(allocations_of(|| drop((lease.id(), lease.name(), lease.is_current()))), 0);
}

/// Receiving an event, and looking for one that is not there. fails if: an event is made where it is received.
#[test]
fn the_receiver_of_events_allocates_nothing() {
    let world = world();
    let mut events = world.table.events();
    world.peer.report(world.peer.generation(), &std::fmt::Error);
    assert!(world.peer.lease().is_err(), "and that asks for a connect");
    let before = ALLOCATIONS.get();
    let mut received = 0;
    loop {
        received += 1;
        match events.recv(far()).expect("it is connected again") {
            Event::Changed(change) if change.transition.phase == Phase::Ready => break,
            _ => {}
        }
    }
    assert!(received > 2, "Ready as it was, then Failed, then Ready again");
    assert_eq!(ALLOCATIONS.get() - before, 0);
    let events = RefCell::new(events);
    let nothing = || {
        let mut events = events.borrow_mut();
        assert!(events.try_recv().is_none() && events.recv(Instant::now()).is_none());
        assert!(events.poll_next(&mut Context::from_waker(Waker::noop())).is_pending());
    };
    assert_eq!(allocations_of(nothing), 0);
}
