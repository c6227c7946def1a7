//! Transfers that stand still: they are shown as stalled and their peer as suspect, nothing is refused or ended for it, and
//! the first byte that moves returns both to normal.

use crate::common::*;
use peerage::transport::memory::Step;
use peerage::{Capabilities, Outcome, Phase};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

fn watching() -> World {
    world_with(|builder| builder.stalled_after(SECOND))
}

/// Lets time pass in steps in which every look is in time.
fn pass(world: &World, time: Duration) {
    (0..time.as_millis() / 250).for_each(|_| world.advance(SECOND / 4));
}

/// fails if: e2 (standing still goes unnoticed, or is not forgotten when it moves)
#[test]
fn case_e2_a_transfer_without_progress_is_stalled_and_its_peer_suspect_until_it_moves_again() {
    let world = watching();
    let peer = world.connected("p");
    let posts = world.memory.steps().hold(Step::Post, "p");
    let hold = world.memory.steps().hold(Step::Chunk, "p");
    let (_local, _grant, transfer) = write(&world, &peer);
    posts.wait_reached(1);
    world.settle(); // the look that the post asked for comes before it begins, also on a machine that is busy
    posts.release();
    hold.wait_reached(1);
    pass(&world, SECOND);
    assert!(!transfer.is_stalled() && !peer.is_suspect(), "its first look after that found that it had begun");
    pass(&world, SECOND / 4);
    assert!(transfer.is_stalled() && peer.is_suspect());
    let status = peer.status();
    assert_eq!((status.stalled, status.transfers, status.suspect, status.phase), (1, 1, true, Phase::Ready));
    drop(peer.lease().expect("a suspect is not refused"));
    // From here on one chunk moves in each quarter of a second.
    world.memory.steps().delay(Step::Chunk, "p", SECOND / 4);
    hold.release();
    pass(&world, SECOND / 4);
    eventually("the first chunk moves, and is seen", || {
        world.settle();
        !transfer.is_stalled() || {
            world.advance(SECOND / 4);
            false
        }
    });
    assert!(!peer.is_suspect() && peer.status().stalled == 0);
    eventually("the others follow", || {
        world.advance(SECOND / 4);
        transfer.try_outcome() == Some(Outcome::Done)
    });
    assert!(!peer.is_suspect());
}

#[test]
fn a_transfer_that_waits_for_its_turn_is_not_stalled_and_one_that_waits_for_its_answer_is() {
    let world = watching();
    let peer = world.connected("p");
    let posts = world.memory.steps().hold(Step::Post, "p");
    let (_local, _grant, transfer) = write(&world, &peer);
    posts.wait_reached(1);
    pass(&world, 5 * SECOND);
    assert!(!transfer.is_stalled());
    let answers = world.memory.steps().hold(Step::Complete, "p");
    posts.release();
    answers.wait_reached(1);
    pass(&world, 2 * SECOND);
    assert!(transfer.is_stalled() && peer.is_suspect());
    answers.release();
    assert_eq!(transfer.wait(world.after(HOUR)), Some(Outcome::Done));
    eventually("it counts no more", || !peer.is_suspect());
    assert!(!transfer.is_stalled());
}

#[test]
fn what_stands_still_on_a_connection_that_drains_makes_the_next_one_no_suspect() {
    let overlap = Capabilities::NATIVE_CLOSE.with(Capabilities::OVERLAP);
    let world = world_of(overlap, |builder| builder.stalled_after(SECOND).drain_deadline(HOUR));
    let peer = world.connected("p");
    let hold = world.memory.steps().hold(Step::Complete, "p");
    let (_local, _grant, transfer) = write(&world, &peer);
    hold.wait_reached(1);
    pass(&world, 2 * SECOND);
    assert!(peer.is_suspect());
    peer.report(peer.generation(), &broken());
    assert!(!peer.is_suspect(), "it is not Ready");
    world.reconnect(&peer);
    pass(&world, 2 * SECOND);
    assert!(transfer.is_stalled() && !peer.is_suspect() && peer.status().stalled == 1);
    hold.release();
}

#[test]
fn nobody_is_watched_unless_it_is_asked_for() {
    let world = world();
    let peer = world.connected("p");
    let hold = world.memory.steps().hold(Step::Complete, "p");
    let (_local, _grant, transfer) = write(&world, &peer);
    hold.wait_reached(1);
    pass(&world, 60 * SECOND);
    assert!(!transfer.is_stalled() && !peer.is_suspect());
    hold.release();
}
