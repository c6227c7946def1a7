//! Lease by id. The rules are at the head of src/slab.rs.

use crate::explore;
use crate::thread;
use crate::wire::{Here, World, use_lease};
use peerage::__internal::{join, wake};
use peerage::Capabilities;
use std::sync::Arc;
use std::time::Instant;

/// A sender holds the id of a peer that is removed, and whose place is used again for another one.
#[test]
fn a_stale_id_never_reaches_the_next_peer() {
    explore(2, || {
        let (world, _) = World::ready(Capabilities::NONE, 1);
        let Some(World { table, peer, log }) = Arc::into_inner(world) else { unreachable!("not shared yet") };
        let id = peer.id();
        let table = Arc::new(table);
        let sender = {
            let table = table.clone();
            thread::spawn(move || {
                if let Some(lease) = table.enter_by_id(id) {
                    use_lease(&lease, "p");
                }
            })
        };
        drop(peer.remove(Instant::now()));
        drop(peer);
        table.run();
        assert!(table.enter_by_id(id).is_none(), "the id of a removed peer was admitted");
        let next = table.table().insert("q", Here).expect("inserted");
        drop(join(&next)); // asks whatever was wanted before
        table.run();
        use_lease(&table.enter_by_id(next.id()).expect("the next peer is ready"), "q");
        drop(next);
        sender.join().unwrap();
        let Some(table) = Arc::into_inner(table) else { panic!("a thread is not over") };
        table.end();
        assert_eq!(log.open_connections(), 0);
    });
}

/// A stale id is asked for a handle while the place begins its next life.
#[test]
fn a_stale_id_is_no_handle_of_the_next_peer() {
    explore(3, || {
        let (world, _) = World::ready(Capabilities::NONE, 1);
        let Some(World { table, peer, log }) = Arc::into_inner(world) else { unreachable!("not shared yet") };
        let id = peer.id();
        drop(peer.remove(Instant::now()));
        drop(peer);
        table.run();
        let table = Arc::new(table);
        let holder = {
            let table = table.clone();
            thread::spawn(move || {
                if let Some(found) = table.table().peer_by_id(id) {
                    panic!("the id of one peer found {}", found.name());
                }
            })
        };
        drop(table.table().insert("q", Here).expect("inserted"));
        holder.join().unwrap();
        let Some(table) = Arc::into_inner(table) else { panic!("a thread is not over") };
        table.end();
        assert_eq!(log.open_connections(), 0);
    });
}

/// A refused one by id looks for the peer's reason, while the last handle goes.
#[test]
fn a_refused_id_gives_back_what_it_counted() {
    explore(2, || {
        let (world, _) = World::ready(Capabilities::NONE, 1);
        let Some(World { table, peer, log }) = Arc::into_inner(world) else { unreachable!("not shared yet") };
        let id = peer.id();
        drop(peer.remove(Instant::now()));
        table.run();
        let table = Arc::new(table);
        let sender = {
            let table = table.clone();
            thread::spawn(move || assert!(table.table().lease_by_id(id).is_err()))
        };
        drop(peer);
        let next = table.table().insert("q", Here).expect("inserted");
        sender.join().unwrap();
        assert_ne!(next.id(), id);
        drop(next);
        let Some(table) = Arc::into_inner(table) else { panic!("a thread is not over") };
        table.end();
        assert_eq!(log.open_connections(), 0);
    });
}

/// A handle is used for the last time and dropped while everything else of the table ends.
#[test]
fn every_use_precedes_the_end_of_what_the_last_reference_kept() {
    explore(2, || {
        let World { table, peer, log: _ } = World::new(Capabilities::NONE, 1);
        let other = peer.clone();
        let holder = thread::spawn(move || {
            wake(&other);
            drop(other);
        });
        drop(peer);
        table.end_beside_the_last_holder();
        holder.join().unwrap();
    });
}
