//! H: ends that nobody hears of.

use crate::common::*;
use peerage::Updated;
use peerage::transport::memory::{MemoryAddress, Step};

/// Who waits for an attempt that is given up, because the peer has another address now, is moved to the next one.
///
/// fails if: h5 (who waits is left with the attempt that was given up)
#[test]
fn case_h5_who_waits_for_an_attempt_at_the_old_address_gets_the_outcome_of_the_one_at_the_new() {
    let world = world();
    let peer = world.peer("p");
    let held = world.memory.steps().hold(Step::Connect, "p");
    let mut waiting = Box::pin(peer.ready());
    assert!(poll_once(&mut waiting).is_pending());
    held.wait_reached(1);
    let given_up = peer.generation();
    world.fabric.node("q");
    assert_eq!(peer.update(MemoryAddress::new("q")), Ok(Updated::Retired(given_up)));
    world.settle();
    assert!(poll_once(&mut waiting).is_pending());
    assert_eq!(world.connects("p"), 1, "one native connect at a time");
    held.release();
    assert!(block_on(waiting).unwrap() > given_up);
    assert_eq!(peer.record().unwrap().incarnation, Some(world.fabric.node("q").incarnation()));
    eventually("what came too late is closed", || world.closes("p") == 1);
}
