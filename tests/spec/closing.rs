//! Promise 5. Nothing is closed in use: a connection is closed once, after its last lease, off the sender's thread.

use crate::common::*;
use peerage::transport::memory::{CloseAnswer, Step};
use peerage::{Capabilities, Peer, PeerTable, Phase, Removed};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

fn a_connection_is_closed_once_after_its_last_lease_wherever_that_is_dropped<F: Fleet>() {
    let fleet = F::of(&["p"]);
    let table = table_of(&fleet);
    let peer = insert(&fleet, &table, "p");
    peer.wait_ready(far()).unwrap();
    let leases: Vec<_> = (0..3).map(|_| peer.lease().unwrap()).collect();
    let (go, wait): (Vec<_>, Vec<_>) = (0..3).map(|_| mpsc::channel::<()>()).unzip();
    let holders = leases.into_iter().zip(wait).map(|(lease, wait)| {
        thread::spawn(move || {
            wait.recv().unwrap();
            drop(lease);
        })
    });
    let holders: Vec<_> = holders.collect();
    peer.report(peer.generation(), &broken());
    for (left, (go, holder)) in go.into_iter().zip(holders).enumerate() {
        assert_eq!(peer.status().draining, 3 - left as u64);
        assert_eq!(table.transport().total().closes, 0);
        go.send(()).unwrap();
        holder.join().unwrap();
    }
    eventually("it is closed", || table.transport().total().closes == 1);
    assert_eq!(block_on(peer.remove(far())), Removed::Removed);
    let counts = table.transport().total();
    assert_eq!((counts.connects_begun, counts.closes, counts.open, counts.dropped), (1, 1, 0, 0));
}

fn a_lease_outlives_the_table_and_its_handles<F: Fleet>() {
    let fleet = F::of(&["p"]);
    let table = table_of(&fleet);
    let peer = insert(&fleet, &table, "p");
    peer.wait_ready(far()).unwrap();
    let (lease, id) = (peer.lease().unwrap(), peer.id());
    drop(table);
    eventually("the table ends", || peer.phase() == Phase::Removing);
    assert!(peer.lease().is_err());
    drop(peer);
    assert_eq!(lease.id(), id);
    assert!(!lease.is_current());
    assert!(lease.notify(b"too late").is_err());
    drop(lease);
}

with_transports!(
    a_connection_is_closed_once_after_its_last_lease_wherever_that_is_dropped,
    a_lease_outlives_the_table_and_its_handles,
);

#[test]
fn a_lease_that_outlives_the_table_keeps_its_connection_open() {
    let world = world();
    let peer = world.connected("p");
    let lease = peer.lease().unwrap();
    drop(peer);
    let World { memory, table, .. } = &world;
    let (memory, shutdown) = (memory.clone(), table.shutdown(world.clock.now()));
    assert_eq!(block_on(shutdown).leaked_leases, [("p".try_into().unwrap(), 1)]);
    drop(world);
    let call = lease.native_call();
    assert_eq!(memory.counts("p").closes, 0);
    drop(call);
    drop(lease);
    eventually("it is closed after its last lease", || memory.counts("p").closes == 1);
    assert_eq!(memory.misuses(), []);
}

#[test]
fn no_native_call_and_no_destructor_of_a_connection_runs_on_a_senders_thread() {
    let transport = Custom::new(|_| {}, |_, _| {});
    let seen = transport.seen();
    let table = PeerTable::builder(transport).build().unwrap();
    let peer = table.insert("p", Place("here")).unwrap();
    peer.wait_ready(far()).unwrap();
    let lease = peer.lease().unwrap();
    peer.report(lease.generation(), &broken());
    drop(lease);
    eventually("the connection is dropped", || seen.lock().unwrap().len() == 3);
    let seen = seen.lock().unwrap();
    for ((what, thread), (expected, name)) in
        seen.iter().zip([("connect", "peerage-conn-"), ("disconnect", "peerage-close-"), ("drop", "peerage-close-")])
    {
        assert!(*what == expected && thread.starts_with(name), "{seen:?}");
    }
}

#[test]
fn a_lease_may_be_held_across_awaits_and_moved_between_the_threads_of_a_runtime() {
    let world = world();
    let peer = world.connected("p");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let lease = peer.lease().unwrap();
        peer.report(lease.generation(), &broken());
        let holder = tokio::spawn(async move {
            for _ in 0..100 {
                let call = lease.native_call();
                tokio::task::yield_now().await;
                drop(call);
            }
            lease
        });
        let lease = holder.await.unwrap();
        assert_eq!(world.closes("p"), 0);
        tokio::task::spawn_blocking(move || drop(lease)).await.unwrap();
    });
    eventually("it is closed", || world.closes("p") == 1);
}

#[test]
fn a_close_that_is_not_ready_is_asked_again_until_it_is() {
    let world = world();
    let peer = world.connected("p");
    world.memory.steps().close_next("p", 3, CloseAnswer::Retry);
    let removal = peer.remove(world.after(PATIENCE));
    eventually("it was asked four times", || {
        world.clock.advance(Duration::from_millis(20));
        world.closes("p") == 1
    });
    assert_eq!(block_on(removal), Removed::Removed);
    assert_eq!(world.memory.log().iter().filter(|call| call.step == Step::Close).count(), 4);
    assert_eq!(world.table.snapshot().leaked, 0);
}

#[test]
fn a_close_that_is_never_ready_leaks_at_the_drain_deadline_counted_and_not_dropped() {
    let world = world_with(|builder| builder.drain_deadline(Duration::from_secs(5)));
    let peer = world.connected("p");
    world.memory.steps().close_next("p", 1_000, CloseAnswer::Retry);
    let removal = peer.remove(world.after(Duration::from_secs(3600)));
    eventually("the connection is given up", || {
        world.clock.advance(Duration::from_secs(1));
        world.table.snapshot().leaked == 1
    });
    assert!(matches!(block_on(removal), Removed::Leaked(_)));
    assert_eq!(world.memory.counts("p").dropped, 0, "its destructor may close it");
}

#[test]
fn a_close_that_leaks_is_counted_and_the_peer_connects_again() {
    let world = world_of(Capabilities::NATIVE_CLOSE, |builder| builder);
    let peer = world.connected("p");
    world.memory.steps().close_next("p", 1, CloseAnswer::Leaked("a bug of the library"));
    peer.report(peer.generation(), &broken());
    world.reconnect(&peer);
    assert_eq!((world.table.snapshot().leaked, world.memory.counts("p").leaked), (1, 1));
}

#[test]
fn a_connection_that_is_gone_already_is_not_a_leak() {
    let world = world();
    let peer = world.connected("p");
    world.memory.steps().close_next("p", 1, CloseAnswer::AlreadyGone);
    assert_eq!(block_on(peer.remove(world.after(PATIENCE))), Removed::Removed);
    assert_eq!(world.table.snapshot().leaked, 0);
}

#[test]
fn where_there_is_no_native_close_every_close_is_a_leak_that_is_said() {
    let world = world_of(Capabilities::NONE, |builder| builder);
    let peer: Peer<_> = world.connected("p");
    assert!(matches!(block_on(peer.remove(world.after(PATIENCE))), Removed::Leaked(_)));
    assert_eq!(world.table.snapshot().leaked, 1);
}
