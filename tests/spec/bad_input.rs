//! Bad input to the table: each a typed error that names the peer and says what to do; the table is unchanged.

use crate::common::*;
use peerage::transport::memory::{Fabric, MemoryAddress};
use peerage::{BuildError, InsertError, MAX_NAME, NameError, PeerName, PeerTable, Reason, Transport};
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// One line, in small letters, without control characters.
fn reads_well(error: &dyn Error) {
    let text = error.to_string();
    assert!(!text.is_empty() && !text.chars().any(char::is_control) && !text.ends_with('.'), "{text:?}");
    assert!(!text.starts_with(char::is_uppercase), "{text:?}");
}

fn what_is_not_a_name_is_refused<F: Fleet>() {
    let fleet = F::of(&["p"]);
    let table = table_of(&fleet);
    let long = "x".repeat(MAX_NAME + 1);
    for (name, why) in [
        ("", NameError::Empty),
        (long.as_str(), NameError::TooLong { bytes: MAX_NAME + 1 }),
        ("a\nb", NameError::Control { name: "a\\nb".into(), at: 1 }),
        ("a\0", NameError::Control { name: "a\\0".into(), at: 1 }),
        ("\u{9b}31m", NameError::Control { name: "\\u{9b}31m".into(), at: 0 }),
    ] {
        let error = table.insert(name, fleet.address("p")).unwrap_err();
        assert_eq!(error, InsertError::Name(why));
        reads_well(&error);
        assert!(table.peer(name).is_none());
    }
    table.insert("x".repeat(MAX_NAME), fleet.address("p")).unwrap();
    assert_eq!(table.snapshot().peers.len(), 1);
}

fn a_process_is_no_peer_of_its_own<F: Fleet>() {
    let fleet = F::of(&["p"]);
    let table = table_of(&fleet);
    let own = table.transport().local_name().unwrap().clone();
    let error = table.insert(&own, fleet.address("p")).unwrap_err();
    assert_eq!(error, InsertError::OwnName { name: own });
    reads_well(&error);
}

fn an_unknown_name_is_nobody<F: Fleet>() {
    let fleet = F::of(&["p"]);
    let table = table_of(&fleet);
    insert(&fleet, &table, "p");
    for name in ["q", "", "p ", "P"] {
        assert!(table.peer(name).is_none());
        assert_eq!(table.lease(name).unwrap_err().reason, Reason::Unknown);
    }
}

with_transports!(what_is_not_a_name_is_refused, a_process_is_no_peer_of_its_own, an_unknown_name_is_nobody);

fn name(name: &str) -> PeerName {
    name.try_into().unwrap()
}

#[test]
fn many_peers_are_inserted_together_or_not_at_all() {
    let world = world();
    let at = MemoryAddress::new;
    let live = world.peer("live");
    let peers = [("a", "a"), ("live", "live"), ("b", "b"), ("a", "a")].map(|(of, node)| (name(of), at(node)));
    let inserted = world.table.insert_many(peers).unwrap();
    let names: Vec<_> = inserted.iter().map(|peer| peer.name().as_str()).collect();
    assert_eq!(names, ["a", "live", "b", "a"]);
    assert_eq!((inserted[0].id(), inserted[1].id()), (inserted[3].id(), live.id()));

    let before = world.table.snapshot().peers.len();
    let conflict = [("c", "c"), ("live", "elsewhere"), ("d", "d")].map(|(of, node)| (name(of), at(node)));
    let error = world.table.insert_many(conflict).unwrap_err();
    assert!(matches!(&error, InsertError::NameConflict { name, .. } if name.as_str() == "live"), "{error:?}");
    let twice = [("e", "one"), ("e", "two")].map(|(of, node)| (name(of), at(node)));
    assert!(matches!(world.table.insert_many(twice), Err(InsertError::NameConflict { .. })));
    assert!(["c", "d", "e"].iter().all(|name| world.table.peer(name).is_none()));
    assert_eq!(world.table.snapshot().peers.len(), before);
    assert!(world.table.insert_many([]).unwrap().is_empty());
}

#[test]
fn an_empty_batch_is_an_empty_answer_also_after_a_shutdown() {
    let world = world();
    block_on(world.table.shutdown(world.after(PATIENCE)));
    assert!(world.table.insert_many([]).unwrap().is_empty());
}

#[test]
fn a_table_holds_no_more_peers_than_it_may_and_a_removed_one_makes_room() {
    let world = world_with(|builder| builder.max_peers(2));
    let at = MemoryAddress::new;
    let peer = world.peer("a");
    let many = ["b", "c"].map(|of| (name(of), at(of)));
    match world.table.insert_many(many).unwrap_err() {
        InsertError::TooManyPeers { name, limit: 2 } => assert_eq!(name.as_str(), "c"),
        error => panic!("{error:?}"),
    }
    assert!(world.table.peer("b").is_none(), "all or none");
    world.peer("b");
    assert!(world.table.insert("a", at("a")).is_ok(), "a peer that is there needs no room");
    assert!(matches!(world.table.insert("c", at("c")), Err(InsertError::TooManyPeers { .. })));
    block_on(peer.remove(world.after(PATIENCE)));
    world.table.insert("c", at("c")).unwrap();
}

#[test]
fn threads_that_insert_one_name_get_one_peer() {
    let world = world();
    for round in 0..50 {
        let name = format!("p{round}");
        let ids: Vec<_> = std::thread::scope(|scope| {
            let inserters: Vec<_> = (0..4).map(|_| scope.spawn(|| world.peer(&name).id())).collect();
            inserters.into_iter().map(|inserter| inserter.join().unwrap()).collect()
        });
        assert!(ids.iter().all(|id| *id == ids[0]));
    }
    assert_eq!(world.table.snapshot().peers.len(), 50);
}

#[test]
fn settings_that_make_no_sense_build_nothing() {
    let memory = Fabric::new().node("here");
    let builder = || PeerTable::builder(memory.clone());
    for stripes in [0, 3, 128] {
        let error = builder().stripes(stripes).build().unwrap_err();
        assert!(matches!(error, BuildError::Stripes { given } if given == stripes), "{error:?}");
        reads_well(&error);
    }
    for built in [
        builder().max_concurrent_connects(0).build(),
        builder().max_concurrent_closes(0).build(),
        builder().max_peers(0).build(),
        builder().max_connects_per_second(0).build(),
        builder().max_waiters_per_peer(0).build(),
    ] {
        let error = built.unwrap_err();
        assert!(matches!(error, BuildError::Zero { .. }), "{error:?}");
        reads_well(&error);
    }
}

#[test]
fn an_address_that_panics_harms_its_own_insert_and_leaves_nothing_behind() {
    let table = PeerTable::builder(Custom::new(|_| {}, |_, _| {})).max_peers(2).build().unwrap();
    let live = table.insert("live", Place("here")).unwrap();
    for hostile in ["no text", "no comparing"] {
        let batch = || [("new", "there"), ("live", hostile)].map(|(of, at)| (name(of), Place(at)));
        assert!(catch_unwind(AssertUnwindSafe(|| table.insert_many(batch()))).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| table.insert("other", Place("no text")))).is_err());
    }
    assert_eq!(table.snapshot().peers.len(), 1);
    table.insert("room for one more", Place("there")).unwrap();
    live.wait_ready(far()).unwrap();
    assert!(block_on(table.shutdown(far())).is_clean());
}
