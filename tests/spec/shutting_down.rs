//! Promise 11. Shutdown is bounded, ordered, idempotent, and reports what it could not take back; what is still in use is
//! neither disconnected nor deregistered.

use crate::common::*;
use peerage::transport::memory::{MemoryAddress, Step};
use peerage::{
    Access, Capabilities, Clock, DataPlane, InsertError, Outcome, PeerTable, Phase, ReadyError, Reason, Region,
    RegisterError, Removed,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

fn a_shutdown_with_nothing_in_use_takes_everything_back_and_may_be_repeated<F: Fleet>() {
    let fleet = F::of(&["p", "q"]);
    let table = table_of(&fleet);
    let peers = ["p", "q"].map(|name| insert(&fleet, &table, name));
    for peer in &peers {
        peer.wait_ready(far()).unwrap();
    }
    let region = Region::zeroed(64);
    table.register(&region).unwrap();
    let grant = table.grant(&peers[0], &region.slice(0..64).unwrap(), Access::Write).unwrap();
    for _ in 0..2 {
        let report = block_on(table.shutdown(far()));
        assert!(report.is_clean(), "{report:?}");
    }
    assert!(grant.is_quiesced());
    let counts = table.transport().total();
    assert_eq!((counts.closes, counts.open), (2, 0));
    assert!(table.snapshot().peers.is_empty());
}

fn after_a_shutdown_nothing_is_admitted_and_every_answer_says_so<F: Fleet>() {
    let fleet = F::of(&["p"]);
    let table = table_of(&fleet);
    let peer = insert(&fleet, &table, "p");
    peer.wait_ready(far()).unwrap();
    block_on(table.shutdown(far()));
    match table.insert("q", fleet.address("p")).unwrap_err() {
        InsertError::ShutDown { name } => assert_eq!(name.as_str(), "q"),
        error => panic!("{error:?}"),
    }
    assert_eq!(peer.lease().unwrap_err().reason, Reason::ShutDown);
    assert_eq!(table.lease("p").unwrap_err().reason, Reason::ShutDown);
    assert!(table.lease_by_id(peer.id()).is_err());
    assert!(matches!(block_on(peer.ready()), Err(ReadyError::ShutDown { .. })));
    assert_eq!(block_on(peer.remove(far())), Removed::Removed);
    assert!(table.peer("p").is_none());
}

fn table_and_transport_may_be_dropped_inside_async_code<F: Fleet>() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let fleet = F::of(&["p"]);
        let table = table_of(&fleet);
        let peer = insert(&fleet, &table, "p");
        peer.ready().await.unwrap();
        let lease = peer.lease().unwrap();
        drop(table);
        drop((lease, peer, fleet));
    });
}

with_transports!(
    table_and_transport_may_be_dropped_inside_async_code,
    a_shutdown_with_nothing_in_use_takes_everything_back_and_may_be_repeated,
    after_a_shutdown_nothing_is_admitted_and_every_answer_says_so,
);

#[test]
fn a_shutdown_ends_at_its_deadline_and_names_what_is_still_in_use_which_it_leaves_alone() {
    let world = world_of(Capabilities::NATIVE_CLOSE, |builder| builder);
    let [leased, moving, stuck, idle] = ["leased", "moving", "stuck", "idle"].map(|name| world.peer(name));
    for peer in [&leased, &moving, &idle] {
        block_on(peer.ready()).unwrap();
    }
    let (used, unused) = (Region::zeroed(8), Region::zeroed(8));
    world.table.register(&used).unwrap();
    world.table.register(&unused).unwrap();
    let leases = [leased.lease().unwrap(), leased.lease().unwrap()];
    let p = world.fabric.node("moving");
    let grant = p.grants().lend(&"here".try_into().unwrap(), &Region::zeroed(8).slice(0..8).unwrap(), Access::Write);
    let completes = world.memory.steps().hold(Step::Complete, "moving");
    let transfer = moving.lease().unwrap().write(&used.slice(0..8).unwrap(), grant.remote()).unwrap();
    completes.wait_reached(1);
    let connects = world.memory.steps().hold(Step::Connect, "stuck");
    assert!(stuck.lease().is_err());
    connects.wait_reached(1);

    let mut shutdown = world.table.shutdown(world.after(SECOND));
    eventually("the idle one is closed", || world.closes("idle") == 1);
    world.settle_by(&leased);
    assert!(poll_once(&mut shutdown).is_pending());
    world.clock.advance(SECOND);
    let report = block_on(shutdown);
    let name = |name: &str| name.try_into().unwrap();
    assert_eq!(report.leaked_leases, [(name("leased"), 2)]);
    assert_eq!(report.quarantined, [(name("moving"), 1)]);
    assert_eq!(report.stuck_connects, [name("stuck")]);
    assert!(report.still_registered.contains(&used.id()));
    assert_eq!((world.closes("leased"), world.closes("moving")), (0, 0));

    eventually("what nobody uses is taken back", || {
        matches!(world.table.deregister(&unused), Err(RegisterError::NotRegistered { .. }))
    });
    assert!(matches!(world.table.deregister(&used), Err(RegisterError::InUse { transfers: 1, .. })));

    drop(leases);
    completes.release();
    connects.release();
    assert_eq!(block_on(transfer), Outcome::Done);
    let report = block_on(world.table.shutdown(world.after(HOUR)));
    assert!(report.is_clean(), "once nothing is in use the rest is taken back: {report:?}");
}

#[test]
fn everybody_who_shuts_down_is_answered_and_a_dropped_future_cancels_nothing() {
    let world = world();
    let peer = world.connected("p");
    let lease = peer.lease().unwrap();
    let dropped = world.table.shutdown(world.after(HOUR));
    drop(dropped);
    let mut long = world.table.shutdown(world.after(HOUR));
    let short = world.table.shutdown(world.after(SECOND));
    assert!(poll_once(&mut long).is_pending());
    world.clock.advance(SECOND);
    assert_eq!(block_on(short).leaked_leases.len(), 1);
    drop(lease);
    assert!(block_on(long).is_clean());
}

#[test]
fn a_shutdown_ends_at_its_deadline_also_when_every_closing_thread_hangs() {
    let world = world_with(|builder| builder.max_concurrent_closes(1).close_timeout(HOUR));
    let _peer = world.connected("p");
    let hold = world.memory.steps().hold(Step::Close, "p");
    let shutdown = world.table.shutdown(world.after(SECOND));
    hold.wait_reached(1);
    world.clock.advance(SECOND);
    block_on(shutdown);
    assert_eq!(world.closes("p"), 0);
}

#[test]
fn who_waits_for_a_connect_is_answered_by_the_shutdown() {
    let world = world();
    let peer = world.peer("p");
    let hold = world.memory.steps().hold(Step::Connect, "p");
    let mut waiter = peer.ready();
    assert!(poll_once(&mut waiter).is_pending());
    hold.wait_reached(1);
    let _shutdown = world.table.shutdown(world.after(HOUR));
    assert!(matches!(block_on(waiter), Err(ReadyError::ShutDown { .. })));
}

#[test]
fn dropping_the_last_table_inside_async_code_neither_blocks_nor_panics_and_closes_everything() {
    let world = world();
    let memory = world.memory.clone();
    let _peer = world.connected("p");
    let hold = memory.steps().hold(Step::Close, "p");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async move { drop(world) });
    hold.wait_reached(1);
    hold.release();
    eventually("it is closed", || memory.counts("p").closes == 1);
}

/// As a transport that keeps time: looks at the clock once more when it ends.
struct LastLook(Clock, Arc<AtomicBool>);

impl Drop for LastLook {
    fn drop(&mut self) {
        let _ = self.0.now();
        self.1.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_table_may_end_while_its_clock_is_moved() {
    for _ in 0..200 {
        let (clock, ended) = (Clock::manual(), Arc::new(AtomicBool::new(false)));
        let last_look = LastLook(clock.clone(), ended.clone());
        let transport = Custom::new(move |_| _ = &last_look, |_, _| {});
        let table = PeerTable::builder(transport).clock(clock.clone()).build().unwrap();
        let mover = {
            let ended = ended.clone();
            thread::spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    clock.advance(Duration::from_millis(1));
                }
            })
        };
        drop(table);
        eventually("the transport has ended", || mover.is_finished());
    }
}

#[test]
fn dropping_one_of_two_table_handles_ends_nothing() {
    let world = world();
    let peer = world.connected("p");
    drop(world.table.clone());
    world.settle();
    assert_eq!(peer.phase(), Phase::Ready);
    assert!(world.table.insert("q", MemoryAddress::new("q")).is_ok());
}
