//! B: a peer restarts, and what belongs to its life before must not touch the next one.

use crate::common::*;
use crate::pages::pages;
use peerage::transport::memory::Step;
use peerage::{
    Capabilities, DataPlane, InsertError, NotifyError, Outcome, Phase, PostError, ReadyError, Reason, Removed, Reported,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Who is in the middle of a use when a native error fails its generation keeps what it uses, and is told at the next use.
///
/// fails if: b1 (a connection is closed while somebody is inside)
#[test]
fn case_b1_a_use_of_a_failed_generation_keeps_its_connection_and_the_next_use_is_told() {
    let world = world();
    let peer = world.connected("p");
    for round in 0..20 {
        let lease = peer.lease().unwrap();
        let (old, call) = (lease.generation(), lease.native_call());
        let reports = world.memory.report_late("p", old, broken());
        assert_eq!(reports.wait(), [(old, Reported::Failed)]);
        let new = world.reconnect(&peer);
        assert_eq!(world.closes("p"), round, "somebody is inside");
        match lease.notify(b"goes on").unwrap_err() {
            NotifyError::StaleGeneration { have, now, .. } => assert_eq!((have, now), (old, new)),
            error => panic!("{error:?}"),
        }
        drop((call, lease));
        eventually("it is closed", || world.closes("p") == round + 1);
    }
}

/// What holds an earlier generation is told both generations and sends nothing; what is taken anew works.
///
/// fails if: b2 (a post does not look whether its generation is current)
#[test]
fn case_b2_a_lease_of_an_earlier_generation_is_told_both_and_a_new_one_works() {
    let world = world();
    let peer = world.connected("p");
    let (ours, lent) = pages(&world, "p");
    let old = peer.lease().unwrap();
    peer.report(old.generation(), &broken());
    let now = world.reconnect(&peer);
    match old.write(&ours, lent.remote()).unwrap_err() {
        PostError::StaleGeneration { have, now: current, .. } => {
            assert_eq!((have, current), (old.generation(), now));
        }
        error => panic!("{error:?}"),
    }
    let write = peer.lease().unwrap().write(&ours, lent.remote()).unwrap();
    assert_eq!(block_on(write), Outcome::Done);

    let (before, id) = (peer.lease().unwrap(), peer.id());
    let removal = peer.remove(world.after(HOUR));
    let again = world.connected("p");
    assert!(matches!(before.write(&ours, lent.remote()), Err(PostError::StaleGeneration { .. })));
    assert!(world.table.lease_by_id(id).is_err() && peer.lease().is_err());
    again.lease().unwrap().notify(b"anew").unwrap();
    drop((old, before));
    assert_eq!(block_on(removal), Removed::Removed);
}

/// The connection of an attempt that timed out comes when nobody wants it: it is closed, and only the next attempt counts.
///
/// fails if: b3 (what comes too late is not closed)
#[test]
fn case_b3_the_late_answer_to_an_attempt_that_timed_out_is_closed_and_only_the_next_attempt_counts() {
    let world = world_with(|builder| builder.connect_timeout(5 * SECOND));
    let peer = world.peer("p");
    let hold = world.memory.steps().hold(Step::Connect, "p");
    let mut waiter = peer.ready();
    assert!(poll_once(&mut waiter).is_pending());
    hold.wait_reached(1);
    world.advance(5 * SECOND);
    let late = match block_on(waiter) {
        Err(ReadyError::TimedOut { peer, after, generation }) => {
            assert_eq!((peer.as_str(), after), ("p", 5 * SECOND));
            generation
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(world.table.snapshot().stuck_connects, 1);
    hold.release();
    eventually("it is closed", || world.closes("p") == 1);
    world.settle();
    assert_eq!((peer.phase(), world.connects("p")), (Phase::Failed, 1));
    assert_eq!(world.memory.counts("p").connects_ok, 1, "the native connect did succeed");
    let next = world.reconnect(&peer);
    assert_eq!((peer.lease().unwrap().generation(), world.memory.counts("p").open), (next, 1));
    let log = world.memory.log();
    let closed: Vec<_> = log.iter().filter(|call| call.step == Step::Close).map(|call| call.generation).collect();
    assert_eq!(closed, [late]);
}

/// Where the native side has one slot per name, the life before is closed before the next one is opened, and nothing of it
/// reaches the new process.
///
/// fails if: b4 (the next life is opened beside the one before)
#[test]
fn case_b4_the_old_life_is_closed_before_the_new_one_is_opened_where_there_is_one_slot_per_name() {
    let world = world_of(Capabilities::NATIVE_CLOSE, |builder| builder);
    let peer = world.connected("p");
    let (old, lease) = (peer.generation(), peer.lease().unwrap());
    let (ours, lent) = pages(&world, "p");
    world.fabric.restart("p").wait();
    assert_eq!((peer.phase(), peer.generation()), (Phase::Failed, old));
    world.wait_out_backoff(&peer);
    let mut waiter = peer.ready();
    assert!(poll_once(&mut waiter).is_pending());
    world.settle();
    assert_eq!((peer.phase(), world.connects("p")), (Phase::Failed, 1), "somebody is inside");
    assert!(lease.notify(b"old").is_err() && lease.write(&ours, lent.remote()).is_err());
    drop(lease);
    block_on(waiter).unwrap();
    let log = world.memory.log();
    let close = log.iter().find(|call| call.step == Step::Close).unwrap();
    let connect = log.iter().rfind(|call| call.step == Step::Connect).unwrap();
    assert_eq!(close.generation, old);
    assert!(close.ended.unwrap() < connect.begun);
    let now = world.fabric.node("p");
    assert_eq!(peer.record().unwrap().incarnation, Some(now.incarnation()));
    assert_eq!((now.inbox().try_recv(), lent.page().to_vec()), (None, vec![0; 64]));
}

/// A peer that its directory lists no more is removed by its user, and is unknown from that moment on.
///
/// fails if: b6 (a removal leaves the name)
#[test]
fn case_b6_who_is_listed_no_more_is_unknown_as_soon_as_it_is_removed() {
    let world = world();
    let peers = ["a", "b", "c"].map(|name| world.connected(name));
    let listed = ["a", "c"];
    for peer in peers.iter().filter(|peer| !listed.contains(&peer.name().as_str())) {
        let _goes_on = peer.remove(world.after(HOUR));
    }
    assert_eq!(world.table.lease("b").unwrap_err().reason, Reason::Unknown);
    assert!(world.table.peer("b").is_none());
    assert_eq!(peers[1].lease().unwrap_err().reason, Reason::Removed);
    assert!(listed.iter().all(|name| world.table.lease(name).is_ok()));
}

/// Who failed on an earlier generation cannot remove the one that another thread has made meanwhile.
///
/// fails if: b7 (a conditional removal does not look at the generation)
fn case_b7_a_conditional_removal_of_an_old_generation_changes_nothing_and_says_where_it_stands<F: Fleet>() {
    let fleet = F::of(&["p"]);
    let table = table_of(&fleet);
    let peer = insert(&fleet, &table, "p");
    let old = peer.wait_ready(far()).unwrap();
    peer.report(old, &broken());
    let new = ready_again(&peer);
    let refused = peer.remove_if(old, far()).unwrap_err();
    assert_eq!((refused.phase, refused.generation), (Phase::Ready, new));
    assert!(peer.lease().is_ok() && table.peer("p").is_some());
    block_on(peer.remove_if(new, far()).unwrap());
    assert!(table.peer("p").is_none());
}

/// A peer restarts while we do not: a use of the old connection says so, and the next use asks for one connect to the new
/// life, by itself.
///
/// fails if: b10 (a lease that is refused asks for no connect)
fn case_b10_a_restarted_peer_is_a_new_generation_and_a_new_incarnation_after_one_connect<F: Fleet>() {
    let mut fleet = F::of(&["p"]);
    let table = table_of(&fleet);
    let peer = insert(&fleet, &table, "p");
    let old = peer.wait_ready(far()).unwrap();
    let before = peer.record().unwrap().incarnation.expect("the transport learns it");
    fleet.stop("p");
    fleet.start("p");
    eventually("a use reaches the new life", || {
        peer.lease().is_ok_and(|lease| lease.notify(b"are you there").is_ok() && lease.generation() != old)
    });
    let new = peer.generation();
    assert!(new > old);
    eventually("the record is of the new generation", || {
        peer.record().is_some_and(|record| record.generation == new && record.incarnation != Some(before))
    });
    assert_eq!(table.transport().total().connects_begun, 2);
    while fleet.remote("p").inbox().try_recv().is_some() {}
    peer.lease().unwrap().notify(b"hello again").unwrap();
    loop {
        let got = fleet.remote("p").inbox().recv(far()).unwrap();
        assert_eq!(got.generation, Some(new));
        if got.bytes == b"hello again" {
            break;
        }
    }
}

/// When `remove` has returned, the peer is gone from every place that is keyed by it, while its connection still drains.
///
/// fails if: b13 (a removal leaves the name)
#[test]
fn case_b13_one_removal_empties_every_place_that_is_keyed_by_the_peer() {
    let world = world();
    let peer = world.connected("p");
    let (held, id) = (peer.lease().unwrap(), peer.id());
    let removal = peer.remove(world.after(HOUR));
    assert!(world.table.peer("p").is_none());
    let refused = [world.table.lease("p"), world.table.lease_by_id(id), peer.lease()].map(Result::unwrap_err);
    assert!(refused.iter().all(|refused| matches!(refused.reason, Reason::Unknown | Reason::Removed)), "{refused:?}");
    assert!(matches!(block_on(peer.ready()), Err(ReadyError::Removed { .. })));
    let again = world.connected("p");
    assert_ne!(again.id(), id);
    drop(held);
    assert_eq!(block_on(removal), Removed::Removed);
    assert_eq!((again.phase(), world.memory.counts("p").open), (Phase::Ready, 1));
}

/// A live name with the same address is the same peer; with another it is a conflict that names both.
///
/// fails if: b14 (an insert does not look at the address)
fn case_b14_a_live_name_with_the_same_address_is_the_same_peer_and_with_another_a_conflict<F: Fleet>() {
    let fleet = F::of(&["p", "q"]);
    let table = table_of(&fleet);
    let peer = insert(&fleet, &table, "p");
    let generation = peer.wait_ready(far()).unwrap();
    assert_eq!(insert(&fleet, &table, "p").id(), peer.id());
    let error = table.insert("p", fleet.address("q")).unwrap_err();
    let (live, given) = (fleet.address("p").to_string(), fleet.address("q").to_string());
    assert!([&live, &given].iter().all(|address| error.to_string().contains(*address)), "{error}");
    assert_eq!(error, InsertError::NameConflict { name: peer.name().clone(), live, given });
    assert_eq!((peer.generation(), table.transport().total().connects_begun), (generation, 1));
}

/// Peers that are killed under load and come back at the same address serve again with nobody restarting anything, and not
/// one send to a survivor fails meanwhile.
///
/// fails if: b16 (a failed peer is not tried again for an hour)
fn case_b16_e1_peers_killed_under_load_come_back_and_no_survivor_notices<F: Fleet>() {
    let mut fleet = F::of(&["a", "b", "survivor"]);
    let table = table_of(&fleet);
    let peers = ["a", "b", "survivor"].map(|name| insert(&fleet, &table, name));
    let before = peers.each_ref().map(|peer| peer.wait_ready(far()).unwrap());
    let (over, sent, failed) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let heard = |fleet: &F, name: &str| while fleet.remote(name).inbox().try_recv().is_some() {};
    thread::scope(|scope| {
        let _over = Over(&over);
        for peer in &peers {
            let (over, sent, failed) = (&over, &sent, &failed);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let went = peer.lease().is_ok_and(|lease| lease.notify(b"work").is_ok());
                    if peer.name().as_str() == "survivor" {
                        sent.fetch_add(1, Ordering::Relaxed);
                        failed.fetch_add(u64::from(!went), Ordering::Relaxed);
                    }
                    thread::sleep(Duration::from_millis(2));
                }
            });
        }
        let more = |fleet: &F| {
            let seen = sent.load(Ordering::Relaxed);
            eventually("the survivor is sent to", || {
                heard(fleet, "survivor");
                sent.load(Ordering::Relaxed) > seen + 20
            });
        };
        more(&fleet);
        ["a", "b"].iter().for_each(|name| fleet.stop(name));
        more(&fleet);
        ["a", "b"].iter().for_each(|name| fleet.start(name));
        eventually("the killed ones serve again", || {
            ["a", "b", "survivor"].iter().for_each(|name| heard(&fleet, name));
            peers.iter().zip(before).take(2).all(|(peer, before)| peer.generation() > before && peer.lease().is_ok())
        });
        for peer in &peers {
            for _ in 0..20 {
                peer.lease().unwrap().notify(b"all of them").unwrap();
                heard(&fleet, peer.name().as_str());
            }
        }
        more(&fleet);
    });
    assert_eq!((failed.into_inner(), peers[2].generation()), (0, before[2]));
}

/// Ends the load, also when the test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

with_transports!(
    case_b7_a_conditional_removal_of_an_old_generation_changes_nothing_and_says_where_it_stands,
    case_b10_a_restarted_peer_is_a_new_generation_and_a_new_incarnation_after_one_connect,
    case_b14_a_live_name_with_the_same_address_is_the_same_peer_and_with_another_a_conflict,
    case_b16_e1_peers_killed_under_load_come_back_and_no_survivor_notices,
);

#[cfg(all(feature = "tcp", not(peerage_loom)))]
mod over_sockets {
    use super::*;
    use crate::support::{self, Raw, builder, dial};
    use peerage::transport::frame::{Farewell, Frame, Verdict};
    use peerage::{Generation, PeerTable};

    /// The acceptor still holds a connection of a process that died without a word: the first dial of its next life is
    /// welcome, and what it says is heard, whatever its number.
    ///
    /// fails if: b5 (a name that is connected is connected once)
    #[test]
    fn case_b5_the_first_dial_of_a_new_life_is_welcome_while_the_old_one_is_still_held() {
        let b = support::tcp("b");
        let (_dead, answer) = Raw::hello(&b, "a", Generation(1_000_000));
        assert_eq!(answer.verdict, Verdict::Welcome);
        let a = support::tcp("a");
        let connection = dial(&a, &b);
        a.notify(&connection, b"back").unwrap();
        assert_eq!(b.inbox().recv(far()).unwrap().bytes, b"back");
        assert_eq!((b.inbound().len(), b.inbound_counts().outdated), (2, 0));
    }

    /// A stranger that claims to be the peer's next life, and says goodbye in its name, ends nothing; that the peer does not
    /// know our connection any more, which its own machine says, counts at once.
    ///
    /// fails if: b15 (a report changes nothing)
    #[test]
    fn case_b15_a_claim_to_be_the_peer_ends_nothing_and_its_real_restart_counts_at_once() {
        let here = PeerTable::builder(support::tcp("here")).build().unwrap();
        let p = support::tcp("p");
        let at = p.local_addr();
        let peer = here.insert("p", at.into()).unwrap();
        let old = peer.wait_ready(far()).unwrap();
        let (mut stranger, answer) = Raw::hello(here.transport(), "p", Generation(7));
        assert_eq!(answer.verdict, Verdict::Welcome);
        stranger.frame(Frame::Goodbye { code: Farewell::Shutdown as u8 });
        eventually("it was heard", || here.transport().inbound_counts().goodbyes == 1);
        peer.lease().unwrap().notify(b"still here").unwrap();
        assert_eq!(p.inbox().recv(far()).unwrap().bytes, b"still here");
        assert_eq!((peer.phase(), peer.generation()), (Phase::Ready, old));

        let before = peer.record().unwrap().incarnation;
        drop(p);
        let mut next = None;
        eventually("the address is free", || {
            next = builder("p").bind(at).ok();
            next.is_some()
        });
        eventually("the old connection has ended", || peer.generation() != old || peer.phase() == Phase::Failed);
        let new = ready_again(&peer);
        assert!(new > old && peer.record().unwrap().incarnation != before);
    }
}
