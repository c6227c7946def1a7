//! Promise 12, for people: a peer is one line of a log.

use crate::common::*;
use peerage::transport::memory::Step;
use peerage::{Access, Capabilities, DataPlane, MAX_NAME, Region};
use std::time::Duration;

const TENTH: Duration = Duration::from_millis(100);

#[test]
fn a_ready_peer_shows_who_it_is_what_is_in_use_and_for_how_long() {
    let world = world();
    let peer = world.connected("prefill-0");
    let (generation, incarnation) = (peer.generation(), world.fabric.node("prefill-0").incarnation());
    world.advance(42 * TENTH);
    assert_eq!(peer.to_string(), format!("prefill-0 Ready {generation} (incarnation {incarnation}, up 4.2 s)"));

    let region = Region::zeroed(8);
    world.table.register(&region).unwrap();
    let page = region.slice(0..8).unwrap();
    let theirs = Region::zeroed(8);
    let prefill = world.fabric.node("prefill-0");
    let lent = prefill.grants().lend(&"here".try_into().unwrap(), &theirs.slice(0..8).unwrap(), Access::Write);
    let hold = world.memory.steps().hold(Step::Post, "prefill-0");
    let leases = [(); 3].map(|()| peer.lease().unwrap());
    let transfers = [(); 2].map(|()| leases[0].write(&page, lent.remote()).unwrap());
    let grant = world.table.grant(&peer, &page, Access::Read).unwrap();
    let all =
        format!("prefill-0 Ready {generation} (incarnation {incarnation}, 3 leases, 2 transfers, 1 grant, up 4.2 s)");
    assert_eq!((peer.to_string(), peer.status().to_string()), (all.clone(), all));
    hold.release();
    drop((transfers, grant));
}

#[test]
fn a_peer_that_is_not_ready_shows_why_for_how_long_and_when_it_is_tried_again() {
    let world = world_of(Capabilities::NATIVE_CLOSE, |builder| builder);
    let peer = world.peer("p");
    assert_eq!(peer.to_string(), format!("p Idle {} (not connected yet, for 0.0 s)", peer.generation()));

    let hold = world.memory.steps().hold(Step::Connect, "p");
    assert!(peer.lease().is_err());
    hold.wait_reached(1);
    world.advance(3 * TENTH);
    assert_eq!(peer.to_string(), format!("p Connecting {} (for 0.3 s)", peer.generation()));
    hold.release();
    block_on(peer.ready()).unwrap();

    let incarnation = world.fabric.node("p").incarnation();
    let lease = peer.lease().unwrap();
    world.memory.break_connection("p", broken().with_native_code(-107)).wait();
    world.settle();
    let left = peer.record().unwrap().retry_at.unwrap() - world.clock.now();
    let next = if left.is_zero() { String::new() } else { format!(", next try in {:.1} s", left.as_secs_f64()) };
    let failed = format!(
        "p Failed {} (connection broken (native code -107): \"cable pulled\", 1 failure, incarnation {incarnation}, \
         1 lease draining, for 0.0 s{next})",
        peer.generation()
    );
    assert_eq!(peer.to_string(), failed);

    let removal = peer.remove(world.after(TENTH));
    assert_eq!(
        peer.to_string(),
        format!("p Removing {} (1 failure, incarnation {incarnation}, 1 lease draining, for 0.0 s)", peer.generation())
    );
    drop(lease);
    block_on(removal);
}

#[test]
fn whatever_a_peer_says_its_line_stays_one_line() {
    let world = world();
    let peer = world.connected(&"n".repeat(MAX_NAME));
    peer.report(peer.generation(), &std::io::Error::other("two\nlines, \"quoted\""));
    world.settle();
    let line = peer.to_string();
    assert!(line.contains(r#"connection broken: "two\nlines, \"quoted\"", 1 failure"#), "{line}");
    assert_eq!(line.lines().count(), 1);
}
