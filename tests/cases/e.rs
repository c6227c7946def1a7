//! E: who is dead, and who knows it.

use crate::common::*;
use peerage::transport::memory::MemoryAddress;
use peerage::{Backoff, Breaker, Event, Incarnation, Phase, ReadyError, Reason, Updated};
use std::collections::BTreeMap;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// Once a loss has been told, the peer is not Ready; a peer whose attempts go on failing says why, and comes back by time
/// or by an address of another life.
///
/// fails if: e5 (another life backs off for what the one before has failed)
#[test]
fn case_e5_a_lost_peer_is_not_ready_and_one_that_is_given_up_can_be_revived() {
    let backoff = Backoff { cap: Duration::from_secs(1), ..Backoff::default() };
    let breaker = Breaker { after: 3, open_for: MINUTE, max_open_percent: 100 };
    let world = world_with(|builder| builder.backoff(backoff).breaker(breaker));
    let peer = world.connected("p");
    let generation = peer.generation();
    world.fabric.kill("p").wait();
    assert_eq!((peer.phase(), peer.generation()), (Phase::Failed, generation));
    assert!(peer.lease().is_err());
    let give_up = || {
        while !peer.record().is_some_and(|record| record.breaker_open) {
            world.wait_out_backoff(&peer);
            assert!(matches!(block_on(peer.ready()), Err(ReadyError::Failed { .. })));
        }
    };
    give_up();
    assert_eq!((peer.phase(), peer.record().unwrap().reason), (Phase::Failed, Reason::ConnectFailed(None)));
    assert!(peer.record().unwrap().last_error.is_some_and(|error| error.contains("\"p\"")));

    world.fabric.revive("p");
    assert!(matches!(block_on(peer.ready()), Err(ReadyError::BackingOff { .. })));
    world.reconnect(&peer);

    world.fabric.kill("p").wait();
    give_up();
    let life: Incarnation = world.fabric.revive("p");
    assert_eq!(peer.update(MemoryAddress::new("p").with_incarnation(life)), Ok(Updated::Stored));
    block_on(peer.ready()).unwrap();
}

/// Who subscribes again after a gap hears first where everybody stands, so who was removed meanwhile is not among them.
///
/// fails if: e6 (a subscription does not begin with every peer's state)
#[test]
fn case_e6_who_subscribes_again_after_a_gap_hears_first_where_everybody_stands() {
    let world = world();
    let peers = ["gone", "failed", "kept"].map(|name| world.connected(name));
    let known = |events: &mut peerage::Events| -> BTreeMap<String, Phase> {
        let told = events.try_iter().map(|event| match event {
            Event::Current(change) => (change.name.to_string(), change.transition.phase),
            other => panic!("not the state first: {other:?}"),
        });
        told.collect()
    };
    let mut events = world.table.events();
    assert_eq!(known(&mut events).len(), 3);
    drop(events);
    block_on(peers[0].remove(world.after(MINUTE)));
    peers[1].report(peers[1].generation(), &broken());
    world.settle();
    world.peer("new");
    let mut events = world.table.events();
    let expected = [("failed", Phase::Failed), ("kept", Phase::Ready), ("new", Phase::Idle)];
    assert_eq!(known(&mut events), expected.map(|(name, phase)| (name.to_owned(), phase)).into());
    block_on(peers[2].remove(world.after(MINUTE)));
    let next = events.try_recv();
    assert!(matches!(&next, Some(Event::Changed(change)) if change.name.as_str() == "kept"), "{next:?}");
}
