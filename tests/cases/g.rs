//! G: one bad peer and all the others.

use crate::common::*;
use peerage::transport::memory::Step;
use peerage::{DataPlane, NotifyError, Phase, Removed, Reported, Sent};
use std::collections::HashSet;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// While one peer's connect never returns, others connect and every send to them goes through.
///
/// fails if: g1 (connects are made by the driver)
#[test]
fn case_g1_a_connect_held_for_ever_stops_no_send_to_anybody_else() {
    let world = world();
    let hold = world.memory.steps().hold(Step::Connect, "black-hole");
    assert!(world.peer("black-hole").lease().is_err());
    hold.wait_reached(1);
    let healthy: Vec<_> = (0..4).map(|n| world.connected(&format!("p{n}"))).collect();
    thread::scope(|scope| {
        for peer in &healthy {
            let inbox = world.fabric.node(peer.name().as_str());
            scope.spawn(move || {
                for sent in 0..1_000_u32 {
                    peer.lease().unwrap().notify(&sent.to_le_bytes()).unwrap();
                    let got = peerage::DataPlane::inbox(&inbox).try_recv().expect("delivered when notify returned");
                    assert_eq!(got.bytes, sent.to_le_bytes());
                }
            });
        }
    });
    assert_eq!((hold.reached(), world.connects("black-hole")), (1, 1), "it is still held");
}

/// A send to a peer whose queue is full is told so at once with nothing sent, and sends to others do not wait.
///
/// fails if: g2 (a full queue counts as a broken peer)
#[test]
fn case_g2_a_full_outbound_queue_answers_busy_with_nothing_sent_and_stops_nobody_else() {
    let world = world();
    let p = world.fabric.builder("p").capacity(2).build();
    let (peer, other) = (world.connected("p"), world.connected("q"));
    let lease = peer.lease().unwrap();
    let hold = world.memory.steps().hold(Step::Notify, "p");
    let mut accepted = 0;
    let refused = loop {
        match lease.notify(b"x") {
            Ok(()) => accepted += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, NotifyError::Busy { .. }), "{refused:?}");
    assert_eq!(refused.sent(), Sent::No);
    assert_eq!(peer.phase(), Phase::Ready);
    (0..100).for_each(|_| other.lease().unwrap().notify(b"not held up").unwrap());
    assert_eq!(world.fabric.node("q").inbox().len(), 100);
    hold.release();
    for _ in 0..accepted {
        assert!(p.inbox().recv(world.after(PATIENCE)).is_some());
    }
    assert_eq!(p.inbox().try_recv(), None);
}

/// While many wait for one peer whose connect hangs, there is one connect, and no lock is held that any call takes, not even
/// one about that peer.
///
/// fails if: g3 (a native connect is made under the peer's mutex)
#[test]
fn case_g3_while_many_wait_for_a_connect_that_hangs_no_other_call_waits() {
    const CALLERS: usize = 32;
    let world = Arc::new(world());
    let peer = world.peer("a");
    let generations: HashSet<_> = thread::scope(|scope| {
        let hold = world.memory.steps().hold(Step::Connect, "a");
        let callers: Vec<_> = (0..CALLERS).map(|_| scope.spawn(|| block_on(peer.ready()).unwrap())).collect();
        hold.wait_reached(1);
        let busy = {
            let (world, peer) = (world.clone(), peer.clone());
            thread::spawn(move || {
                for _ in 0..100 {
                    assert!(peer.lease().is_err() && !peer.history().is_empty());
                    assert_eq!(peer.report(peerage::Generation(0), &broken()), Reported::Stale);
                    assert_eq!(world.peer("a").id(), peer.id());
                    assert!(poll_once(&mut peer.ready()).is_pending());
                    let other = world.connected("b");
                    other.lease().unwrap().notify(b"not held up").unwrap();
                    let removed = other.remove(world.after(Duration::from_secs(1)));
                    assert_eq!(block_on(removed), Removed::Removed);
                    assert_eq!(world.table.snapshot().peers.len(), 1);
                }
            })
        };
        eventually("no call has waited", || busy.is_finished());
        busy.join().unwrap();
        assert_eq!((hold.reached(), peer.phase()), (1, Phase::Connecting));
        hold.release();
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    });
    assert_eq!((generations.len(), world.connects("a")), (1, 1));
}
