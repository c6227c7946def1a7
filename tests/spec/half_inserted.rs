//! What an insert of several had begun when it failed is visible to who lists peers, so it may have been used meanwhile. It
//! ends like any other peer: once, and with its connection closed.

use crate::common::*;
use peerage::{Peer, PeerTable, Phase, Removed};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

type Seen = Arc<Mutex<Vec<(&'static str, String)>>>;

/// Inserts two peers; while the second one's address is shown, which panics, `meanwhile` gets a handle of the first.
fn insert_half(meanwhile: impl FnOnce(&Peer<Custom>) + 'static) -> (PeerTable<Custom>, Receiver<Peer<Custom>>, Seen) {
    let transport = Custom::new(|_| {}, |_, _| {});
    let seen = transport.seen();
    let table = PeerTable::builder(transport).max_peers(1).build().unwrap();
    let (handle, handles) = channel();
    let looking = table.clone();
    on_show(move || {
        let first = looking.snapshot().peers.remove(0);
        let first = looking.peer_by_id(first.id).unwrap();
        meanwhile(&first);
        handle.send(first).unwrap();
    });
    let batch = [("first", "here"), ("second", "no text")].map(|(name, at)| (name.try_into().unwrap(), Place(at)));
    assert!(catch_unwind(AssertUnwindSafe(|| table.insert_many(batch))).is_err());
    (table, handles, seen)
}

#[test]
fn who_holds_a_peer_that_was_never_listed_is_told_that_it_is_removed() {
    let (_table, handles, _) = insert_half(|_| {});
    let peer = handles.recv().unwrap();
    assert_eq!(block_on(peer.remove(far())), Removed::Removed);
    assert_eq!(peer.phase(), Phase::Removed);
}

#[test]
fn a_peer_that_was_removed_before_its_insert_failed_is_counted_out_once() {
    let (table, _handles, _) = insert_half(|first| assert_eq!(block_on(first.remove(far())), Removed::Removed));
    table.insert("room for one", Place("here")).unwrap();
    assert!(block_on(table.shutdown(far())).is_clean());
}

#[test]
fn a_peer_that_was_connected_before_its_insert_failed_is_closed() {
    let (table, handles, seen) = insert_half(|first| assert!(block_on(first.ready()).is_ok()));
    drop(handles);
    assert!(block_on(table.shutdown(far())).is_clean());
    let seen: Vec<_> = seen.lock().unwrap().iter().map(|(what, _)| *what).collect();
    assert_eq!(seen, ["connect", "disconnect", "drop"]);
}
