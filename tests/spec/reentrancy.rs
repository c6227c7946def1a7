//! No lock of the table is held while user code runs. A call that would wait for the table on one of its own threads says
//! so; the form that does not wait works there.

use crate::common::*;
use peerage::{Peer, PeerTable, ReadyError, Removal, Removed, WouldDeadlock};
use std::sync::{Arc, Mutex, OnceLock};

type Handle = Arc<OnceLock<(PeerTable<Custom>, Peer<Custom>)>>;

/// A table whose transport does `inside` during the first connect of `p`, and during its close.
fn calling_back(
    connect: impl Fn(&PeerTable<Custom>, &Peer<Custom>) + Send + Sync + 'static,
    close: impl Fn(&PeerTable<Custom>, &Peer<Custom>) + Send + Sync + 'static,
) -> (PeerTable<Custom>, Peer<Custom>) {
    let handle = Handle::default();
    let [one, two] = [handle.clone(), handle.clone()];
    let call = |handle: &Handle, of: &str, f: &dyn Fn(&PeerTable<Custom>, &Peer<Custom>)| {
        if let (Some((table, peer)), "p") = (handle.get(), of) {
            f(table, peer)
        }
    };
    let transport = Custom::new(
        move |cx| call(&one, cx.name().as_str(), &connect),
        move |cx, _| call(&two, cx.name.as_str(), &close),
    );
    let table = PeerTable::builder(transport).build().unwrap();
    let peer = table.insert("p", Place("here")).unwrap();
    assert!(handle.set((table.clone(), peer.clone())).is_ok());
    (table, peer)
}

/// Where a callback leaves what the test is to look at.
fn slot<V>() -> (Arc<Mutex<Option<V>>>, impl Fn(V)) {
    let slot = Arc::new(Mutex::new(None));
    let put = slot.clone();
    (slot, move |value| *put.lock().unwrap() = Some(value))
}

fn taken<V>(slot: &Mutex<Option<V>>) -> V {
    eventually("the callback has run", || slot.lock().unwrap().is_some());
    slot.lock().unwrap().take().unwrap()
}

#[test]
fn a_peer_may_be_removed_inside_its_own_connect_but_not_waited_for_there() {
    let (seen, put) = slot::<(Result<Removed, WouldDeadlock>, Removal)>();
    let put = Mutex::new(put);
    let connect = move |_: &PeerTable<Custom>, peer: &Peer<Custom>| {
        let waited = peer.remove(far()).wait();
        (put.lock().unwrap())((waited, peer.remove(far())));
    };
    let (table, peer) = calling_back(connect, |_, _| {});
    assert!(matches!(block_on(peer.ready()), Err(ReadyError::Removed { .. })));
    let (waited, removal) = taken(&seen);
    assert_eq!(waited, Err(WouldDeadlock));
    assert_eq!(block_on(removal), Removed::Removed);
    assert!(table.snapshot().peers.is_empty());
}

#[test]
fn a_table_may_be_shut_down_inside_a_connect_and_inside_a_close_but_not_waited_for_there() {
    let (seen, put) = slot();
    let put = Arc::new(Mutex::new(put));
    let inside = {
        let put = put.clone();
        move |table: &PeerTable<Custom>, _: &Peer<Custom>| {
            (put.lock().unwrap())((table.shutdown(far()).wait(), table.shutdown(far())));
        }
    };
    let (_table, peer) = calling_back(inside.clone(), |_, _| {});
    assert!(matches!(block_on(peer.ready()), Err(ReadyError::ShutDown { .. })));
    let (waited, shutdown) = taken(&seen);
    assert_eq!(waited, Err(WouldDeadlock));
    assert!(block_on(shutdown).is_clean());

    let (_table, peer) = calling_back(|_, _| {}, inside);
    block_on(peer.ready()).unwrap();
    peer.report(peer.generation(), &broken());
    let (waited, shutdown) = taken(&seen);
    assert_eq!(waited, Err(WouldDeadlock));
    assert!(block_on(shutdown).is_clean());
}

#[test]
fn who_waits_for_a_peer_inside_a_callback_is_told_that_it_would_never_end() {
    let (seen, put) = slot();
    let put = Mutex::new(put);
    let connect = move |table: &PeerTable<Custom>, peer: &Peer<Custom>| {
        let other = table.insert("q", Place("there")).unwrap();
        (put.lock().unwrap())((peer.wait_ready(far()), other.wait_ready(far()), other.ready()));
    };
    let (_table, peer) = calling_back(connect, |_, _| {});
    block_on(peer.ready()).unwrap();
    let (itself, other, future) = taken(&seen);
    assert!(matches!(itself, Err(ReadyError::WouldDeadlock { .. })), "{itself:?}");
    assert!(matches!(other, Err(ReadyError::WouldDeadlock { .. })), "{other:?}");
    block_on(future).unwrap();
}

#[test]
fn every_call_that_does_not_wait_works_inside_callbacks() {
    let inside = |table: &PeerTable<Custom>, peer: &Peer<Custom>| {
        let _ = (peer.lease(), table.lease("p"), table.lease_by_id(peer.id()));
        let _ = (peer.record(), peer.status(), table.snapshot(), peer.phase());
        assert_eq!(table.insert("p", Place("here")).map(|same| same.id()).ok(), table.peer("p").map(|p| p.id()));
        let extra = table.insert("extra", Place("there")).unwrap();
        drop(extra.remove(far()));
        let _ = peer.report(peerage::Generation(0), &broken());
        let _ = poll_once(&mut peer.ready());
    };
    let (table, peer) = calling_back(inside, move |table, peer| {
        if peer.phase() != peerage::Phase::Removing {
            inside(table, peer);
        }
    });
    block_on(peer.ready()).unwrap();
    peer.report(peer.generation(), &broken());
    ready_again(&peer);
    assert_eq!(block_on(peer.remove(far())), Removed::Removed);
    assert!(block_on(table.shutdown(far())).is_clean());
}
