//! C: a peer is removed while something of it is under way.

use crate::common::*;
use crate::pages::pages;
use peerage::transport::memory::{Ending, Step};
use peerage::{Capabilities, Outcome, Phase, Removed};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// A peer that is removed and inserted again under three transfers: the old connection is closed once, after the third, and
/// nothing on the new one is touched.
///
/// fails if: c1 (a connection is closed under its transfers)
#[test]
fn case_c1_a_removed_peer_is_closed_once_after_its_last_transfer_and_its_successor_is_not_touched() {
    let world = world_of(Capabilities::NATIVE_CLOSE.with(Capabilities::OVERLAP), |builder| builder);
    let old = world.connected("p");
    let generation = old.generation();
    let hold = world.memory.steps().hold(Step::Complete, "p");
    let transfers = [(); 3].map(|()| {
        let (ours, lent) = pages(&world, "p");
        (old.lease().unwrap().write(&ours, lent.remote()).unwrap(), lent)
    });
    hold.wait_reached(3);
    let removal = old.remove(world.after(HOUR));
    let new = world.connected("p");
    new.lease().unwrap().notify(b"on the new one").unwrap();
    world.settle();
    assert_eq!((old.phase(), world.closes("p")), (Phase::Removing, 0));
    hold.release();
    for (transfer, lent) in transfers {
        assert_eq!((block_on(transfer), lent.page().to_vec()), (Outcome::Done, vec![1; 64]));
    }
    assert_eq!(block_on(removal), Removed::Removed);
    let log = world.memory.log();
    // A completion lets the close begin before it returns.
    let last = log.iter().filter(|call| call.step == Step::Complete).map(|call| call.begun).max().unwrap();
    let closes: Vec<_> = log.iter().filter(|call| call.step == Step::Close).collect();
    assert_eq!(closes.iter().map(|close| close.generation).collect::<Vec<_>>(), [generation]);
    assert!(closes[0].begun > last && closes[0].ending == Some(Ending::Done));
    new.lease().unwrap().notify(b"still open").unwrap();
}

/// A name that is inserted again before its former peer is gone connects when that is closed: a thousand times, and never
/// a refusal.
///
/// fails if: c7 (a successor does not wait)
#[test]
fn case_c7_a_name_is_removed_and_inserted_a_thousand_times_without_a_refusal() {
    let world = world_of(Capabilities::NATIVE_CLOSE, |builder| builder);
    for round in 1..=1000 {
        let peer = world.peer("p");
        block_on(peer.ready()).unwrap();
        drop(peer.remove(world.after(HOUR)));
        assert_eq!(world.connects("p"), round);
    }
    assert_eq!(world.memory.counts("p").open_max, 1);
}
