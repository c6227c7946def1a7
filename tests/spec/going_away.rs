//! Who asked goes away: futures dropped at each point, and handles dropped as their thread ends.

use crate::common::*;
use peerage::transport::memory::{Memory, Step};
use peerage::{
    Access, DataPlane, Events, Grant, Inbox, Lease, Liveness, Outcome, Peer, PeerTable, Phase, Ready, Region, Removal,
    Removed, Revoked, Slice, Ticket, Transfer,
};
use std::cell::RefCell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Waker};
use std::thread;

/// Polls so many times, then drops.
fn dropped_after(polls: usize, future: impl Future) {
    let mut future: Pin<&mut _> = pin!(future);
    for _ in 0..polls {
        assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
}

/// fails if: a dropped future takes what it waited for with it, or leaves something behind.
#[test]
fn a_future_dropped_at_any_point_cancels_nothing_and_leaves_nothing_behind() {
    for polls in [0, 1, 2] {
        let world = world_with(|builder| builder.max_waiters_per_peer(2));
        let (peer, other, p) = (world.connected("p"), world.peer("q"), world.fabric.node("p"));
        let hold = |step, of| world.memory.steps().hold(step, of);

        let connects = hold(Step::Connect, "q");
        for _ in 0..16 {
            dropped_after(polls, other.ready());
        }
        let mut waiter = other.ready();
        assert!(poll_once(&mut waiter).is_pending());
        connects.release();
        block_on(waiter).unwrap();
        assert_eq!(world.connects("q"), 1);

        let probes = hold(Step::Probe, "p");
        dropped_after(polls, peer.probe(world.after(PATIENCE)));
        probes.wait_reached(1);
        probes.release();
        assert_eq!(block_on(peer.probe(world.after(PATIENCE))), Liveness::Alive);

        let region = Region::zeroed(16);
        world.table.register(&region).unwrap();
        let (local, page) = (region.slice(0..8).unwrap(), Region::zeroed(8));
        let grant = p.grants().lend(&"here".try_into().unwrap(), &page.slice(0..8).unwrap(), Access::Write);
        local.write(0, &[7; 8]).unwrap();
        let posts = hold(Step::Post, "p");
        dropped_after(polls, peer.lease().unwrap().write(&local, grant.remote()).unwrap());
        posts.release();
        eventually("the transfer has ended", || {
            peer.status().transfers == 0 && page.slice(0..8).unwrap().to_vec() == [7; 8]
        });

        let lent = world.table.grant(&peer, &region.slice(8..16).unwrap(), Access::Write).unwrap();
        let revoked = lent.revoke();
        assert!(lent.is_quiesced());
        drop((revoked, lent));

        dropped_after(polls, world.table.inbox().next());
        let mut events = world.table.events();
        while events.try_recv().is_some() {}
        dropped_after(polls, events.next());
        peer.report(peer.generation(), &broken());
        assert!(events.recv(far()).is_some(), "the dropped future took none");

        let lease = other.lease().unwrap();
        dropped_after(polls, other.remove(world.after(PATIENCE)));
        dropped_after(polls, world.table.shutdown(world.after(PATIENCE)));
        drop(lease);
        assert_eq!(block_on(other.remove(world.after(PATIENCE))), Removed::Removed);
        assert!(block_on(world.table.shutdown(world.after(PATIENCE))).is_clean());
    }
}

/// One of everything a thread may keep to its end.
struct Kept {
    _table: PeerTable<Memory>,
    _peer: Peer<Memory>,
    _lease: Lease<Memory>,
    _ticket: Ticket<Memory>,
    _waiter: Ready<Memory>,
    _removal: Removal,
    _transfer: Transfer,
    _grant: Grant,
    _revoked: Revoked,
    _events: Events,
    _inbox: Inbox,
}

thread_local! { static KEPT: RefCell<Option<Kept>> = const { RefCell::new(None) } }

fn keep(world: &World, theirs: &Grant, local: &Slice) -> Kept {
    let peer = world.table.peer("p").unwrap();
    let mut waiter = world.table.peer("slow").unwrap().ready();
    assert!(poll_once(&mut waiter).is_pending());
    let lease = peer.lease().unwrap();
    let mut transfer = lease.write(local, theirs.remote()).unwrap();
    assert!(poll_once(&mut transfer).is_pending());
    let grant = world.table.grant(&peer, local, Access::Read).unwrap();
    let mut removal = world.table.peer("busy").unwrap().remove(world.after(PATIENCE));
    assert!(poll_once(&mut removal).is_pending());
    Kept {
        _ticket: world.table.peer("idle").unwrap().try_elect().unwrap(),
        _revoked: world.table.grant(&peer, local, Access::Read).unwrap().revoke(),
        _events: world.table.events(),
        _inbox: world.table.inbox(),
        _table: world.table.clone(),
        _peer: peer,
        _lease: lease,
        _waiter: waiter,
        _removal: removal,
        _transfer: transfer,
        _grant: grant,
    }
}

/// fails if: a drop needs a thread-local that is gone by then, or is not as good as any other.
#[test]
fn handles_dropped_as_their_thread_ends_are_dropped_like_any_others() {
    for set_first in [true, false] {
        let world = world();
        let (peer, busy) = (world.connected("p"), world.connected("busy"));
        let (slow, idle) = (world.peer("slow"), world.peer("idle"));
        let connects = world.memory.steps().hold(Step::Connect, "slow");
        let posts = world.memory.steps().hold(Step::Post, "p");
        let (region, page, p) = (Region::zeroed(8), Region::zeroed(8), world.fabric.node("p"));
        world.table.register(&region).unwrap();
        let local = region.slice(0..8).unwrap();
        let grant = p.grants().lend(&"here".try_into().unwrap(), &page.slice(0..8).unwrap(), Access::Write);
        let in_use = busy.lease().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                // A local that is set first is dropped last, after those of the library.
                if set_first {
                    KEPT.set(None);
                    KEPT.with(|_| ());
                }
                let kept = keep(&world, &grant, &local);
                KEPT.set(Some(kept));
            });
        });
        eventually("what it held is given back", || peer.status().leases == 0 && peer.status().grants == 0);
        eventually("its ticket has failed", || idle.phase() == Phase::Failed && !idle.status().connecting);
        posts.release();
        eventually("its transfer has ended", || peer.status().transfers == 0);
        connects.release();
        block_on(slow.ready()).unwrap();
        drop(in_use);
        assert_eq!(block_on(busy.remove(world.after(PATIENCE))), Removed::Removed);
        let again = peer.lease().unwrap().write(&local, grant.remote()).unwrap();
        assert_eq!(block_on(again), Outcome::Done);
        assert!(block_on(world.table.shutdown(world.after(PATIENCE))).is_clean());
    }
}
