//! Ranks of one engine: inserted together, and asked when one of them is gone.

use crate::common::*;
use peerage::transport::memory::{Memory, MemoryAddress, Step};
use peerage::{GroupError, Heartbeat, Incarnation, Peer, PeerName, Phase};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
const MOMENT: Duration = Duration::from_millis(1);

fn rank(name: &str, engine: Option<u64>) -> (PeerName, MemoryAddress) {
    let address = MemoryAddress::new(name);
    let address = match engine {
        Some(engine) => address.with_engine(Incarnation(engine)),
        None => address,
    };
    (PeerName::new(name).unwrap(), address)
}

/// Three connected ranks whose heartbeats are an hour apart, and one that belongs to nobody.
fn engine() -> (World, Vec<Peer<Memory>>, Peer<Memory>) {
    let heartbeat = Heartbeat { interval: HOUR, dead_after: HOUR };
    let world = world_with(|builder| builder.heartbeat(heartbeat));
    let names = ["r0", "r1", "r2"];
    names.iter().for_each(|name| drop(world.fabric.node(name)));
    let ranks = world.table.insert_group("engine", names.map(|name| rank(name, None))).unwrap();
    for rank in &ranks {
        block_on(rank.ready()).unwrap();
    }
    let stranger = world.connected("stranger");
    world.settle();
    (world, ranks, stranger)
}

/// When one rank of an engine is gone with its process, its siblings are probed at once and judged within one interval.
///
/// fails if: e3 (nobody asks the others)
#[test]
fn case_e3_when_one_rank_s_process_is_gone_the_others_are_probed_at_once_and_strangers_are_not() {
    let (world, ranks, _stranger) = engine();
    let holds = ["r0", "r1", "r2", "stranger"].map(|name| world.memory.steps().hold(Step::Probe, name));
    world.fabric.kill("r0").wait();
    holds[1..3].iter().for_each(|hold| hold.wait_reached(1));
    world.advance(MOMENT);
    assert_eq!(holds.iter().map(|hold| hold.reached()).collect::<Vec<_>>(), [0, 1, 1, 0]);
    assert_eq!(ranks.iter().map(|rank| rank.phase()).collect::<Vec<_>>(), [Phase::Failed, Phase::Ready, Phase::Ready]);
    world.advance(HOUR);
    assert!(ranks[1..].iter().all(|rank| rank.phase() == Phase::Failed), "they did not answer either");
}

#[test]
fn a_refused_connect_says_so_too_and_an_error_that_says_nothing_of_the_process_asks_nobody() {
    let (world, ranks, _stranger) = engine();
    let hold = world.memory.steps().hold(Step::Probe, "r1");
    world.memory.break_connection("r0", broken()).wait();
    world.wait_out_backoff(&ranks[0]);
    world.settle();
    assert_eq!(hold.reached(), 0);
    let alone = world.fabric.kill("r0");
    assert_eq!(alone.wait(), [], "it had no connection any more");
    assert!(block_on(ranks[0].ready()).is_err());
    hold.wait_reached(1);
}

#[test]
fn members_of_different_engines_are_refused_with_a_list_and_none_is_added() {
    let world = world();
    let members = [rank("r0", Some(1)), rank("r1", None), rank("r2", Some(2))];
    let error = world.table.insert_group("engine", members).unwrap_err();
    let text = error.to_string();
    let one = Incarnation(1);
    assert!(text.contains(&format!("r0 → {one} → memory:r0")), "{text}");
    assert!(text.contains("r1 → none → memory:r1") && text.contains("r2 → "), "{text}");
    assert!(matches!(error, GroupError::Mixed { members, .. } if members.len() == 3));
    assert!(world.table.snapshot().peers.is_empty());
    let fitting = [rank("r0", Some(1)), rank("r1", None), rank("r2", Some(1))];
    assert_eq!(world.table.insert_group("engine", fitting).unwrap().len(), 3);
}

#[test]
fn a_member_that_can_not_be_added_keeps_all_others_out_and_one_that_is_there_joins() {
    let world = world();
    let there = world.peer("r0");
    let elsewhere = (PeerName::new("r0").unwrap(), MemoryAddress::new("elsewhere"));
    let refused = world.table.insert_group("engine", [rank("r1", None), elsewhere]);
    assert!(matches!(refused, Err(GroupError::Insert(_))), "{refused:?}");
    assert!(world.table.peer("r1").is_none());
    assert!(matches!(world.table.insert_group("", [rank("r1", None)]), Err(GroupError::Insert(_))));
    let group = world.table.insert_group("engine", [rank("r1", None), rank("r0", None)]).unwrap();
    assert_eq!(group[1].id(), there.id());
    let groups = group.iter().map(|peer| peer.record().unwrap().group.unwrap().to_string()).collect::<Vec<_>>();
    assert_eq!(groups, ["engine", "engine"]);
}
