//! A `PeerId` names one life of one peer: a stale one is detected, and never reaches the next peer in the same place.

use crate::common::*;
use peerage::{PeerId, Reason};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

#[test]
fn an_id_of_a_removed_peer_never_reaches_the_next_peer_in_its_place() {
    let world = world();
    let first = world.connected("p");
    let old = first.id();
    block_on(first.remove(world.after(PATIENCE)));
    assert_eq!(world.table.lease_by_id(old).unwrap_err().reason, Reason::Removed);
    drop(first);
    // The place is used again once its last reference is gone, the driver's too.
    eventually("a peer has the same place", || {
        let peer = world.connected("q");
        let same = peer.id().to_bits() as u32 == old.to_bits() as u32;
        if !same {
            block_on(peer.remove(world.after(PATIENCE)));
        }
        same
    });
    let next = world.table.peer("q").unwrap();
    assert_ne!(next.id(), old);
    assert_eq!(world.table.lease_by_id(old).unwrap_err().reason, Reason::Unknown);
    assert!(world.table.peer_by_id(old).is_none());
    assert!(world.table.lease_by_id(next.id()).is_ok());
}

#[test]
fn any_number_is_a_safe_id() {
    let world = world();
    let peer = world.connected("p");
    let bits = peer.id().to_bits();
    assert!(world.table.lease_by_id(PeerId::from_bits(bits)).is_ok());
    for wrong in [0, u64::MAX, bits ^ 1 << 32, bits ^ 1, bits ^ 1 << 31, 1 << 20, u64::from(u32::MAX)] {
        let refused = world.table.lease_by_id(PeerId::from_bits(wrong));
        assert_eq!(refused.unwrap_err().reason, Reason::Unknown, "{wrong:x}");
        assert!(world.table.peer_by_id(PeerId::from_bits(wrong)).is_none());
    }
}

#[test]
fn a_lease_by_id_is_never_of_another_peer_while_places_are_used_again() {
    let world = world();
    let over = AtomicBool::new(false);
    let id = std::sync::Mutex::new(world.connected("p").id());
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let id = *id.lock().unwrap();
                    if let Ok(lease) = world.table.lease_by_id(id) {
                        let call = lease.native_call();
                        assert_eq!(lease.id(), id);
                        drop(call);
                    }
                }
            });
        }
        for round in 0..200 {
            let peer = world.connected(&format!("p{round}"));
            let old = std::mem::replace(&mut *id.lock().unwrap(), peer.id());
            if let Some(old) = world.table.peer_by_id(old) {
                block_on(old.remove(world.after(PATIENCE)));
            }
        }
        over.store(true, Ordering::Relaxed);
    });
}
