//! A process that goes on from a snapshot is another incarnation: everything before is retired, all shake hands again.

use crate::common::*;
use peerage::transport::memory::{MemoryAddress, Step};
use peerage::{DataPlane, IncarnationError, NotifyError, PeerTable, Phase, Reason};

/// fails if: b17 (a generation outlives the incarnation it was made by, or a peer is told the old one)
fn case_b17_every_peer_shakes_hands_again_and_a_lease_from_before_is_stale<F: Fleet>() {
    let fleet = F::of(&["p", "q"]);
    let table = table_of(&fleet);
    let [p, q] = ["p", "q"].map(|name| insert(&fleet, &table, name));
    let old = [&p, &q].map(|peer| peer.wait_ready(far()).unwrap());
    let lease = p.lease().unwrap();
    lease.notify(b"before").unwrap();
    let before = fleet.remote("p").inbox().recv(far()).unwrap().incarnation.expect("the transport tells");

    let now = table.new_incarnation().unwrap();
    assert_ne!(now, before);
    match lease.notify(b"late").unwrap_err() {
        NotifyError::StaleGeneration { have, .. } => assert_eq!(have, old[0]),
        other => panic!("{other:?}"),
    }
    drop(lease);
    for ((peer, name), old) in [(&p, "p"), (&q, "q")].into_iter().zip(old) {
        assert!(ready_again(peer) > old);
        peer.lease().unwrap().notify(b"after").unwrap();
        let got = fleet.remote(name).inbox().recv(far()).unwrap();
        assert_eq!((got.incarnation, got.bytes), (Some(now), b"after".to_vec()));
        assert_eq!(record_of(peer).failures, 0);
    }
    assert!(table.shutdown(far()).wait().unwrap().is_clean());
}

with_transports!(case_b17_every_peer_shakes_hands_again_and_a_lease_from_before_is_stale);

/// fails if: a connection that another process opened goes on with the incarnation that is no more.
#[test]
fn who_was_connected_to_it_comes_again_and_meets_the_new_incarnation() {
    let world = world();
    let theirs = PeerTable::builder(world.fabric.node("p")).clock(world.clock.clone()).build().unwrap();
    let us = theirs.insert("here", MemoryAddress::new("here")).unwrap();
    let old = block_on(us.ready()).unwrap();
    assert_eq!(record_of(&us).incarnation, Some(world.memory.incarnation()));
    let now = world.table.new_incarnation().unwrap();
    eventually("it is told", || us.phase() == Phase::Failed);
    world.wait_out_backoff(&us);
    assert!(block_on(us.ready()).unwrap() > old);
    assert_eq!(record_of(&us).incarnation, Some(now));
    assert_eq!(world.memory.incarnation(), now);
}

/// fails if: an attempt that introduced the old incarnation becomes Ready, or its waiters get its outcome; an idle peer is
/// connected; a backoff of before goes on.
#[test]
fn an_attempt_of_before_is_given_up_for_the_next_one_and_nobody_is_connected_who_was_not() {
    let world = world();
    let (connecting, idle, failed) = (world.peer("connecting"), world.peer("idle"), world.peer("failed"));
    let at_rest = idle.generation();
    world.memory.steps().fail_next(Step::Connect, "failed", 1, broken());
    block_on(failed.ready()).unwrap_err();
    let hold = world.memory.steps().hold(Step::Connect, "connecting");
    let mut waiter = connecting.ready();
    assert!(poll_once(&mut waiter).is_pending());
    hold.wait_reached(1);
    let attempt = connecting.generation();
    world.table.new_incarnation().unwrap();
    assert_eq!((connecting.phase(), connecting.generation()), (Phase::Failed, attempt));
    assert_eq!(connecting.lease().unwrap_err().reason, Reason::NewIncarnation);
    hold.release();
    assert!(block_on(waiter).unwrap() > attempt);
    assert_eq!((idle.phase(), idle.generation(), world.connects("idle")), (Phase::Idle, at_rest, 0));
    block_on(failed.ready()).expect("its backoff is forgotten");
}

/// fails if: a table without an incarnation, or one that has ended, does anything.
#[test]
fn where_there_is_no_incarnation_nothing_is_touched() {
    let table = PeerTable::builder(Custom::new(|_| {}, |_, _| {})).build().unwrap();
    let peer = table.insert("p", Place("here")).unwrap();
    let generation = block_on(peer.ready()).unwrap();
    assert_eq!(table.new_incarnation(), Err(IncarnationError::Unsupported));
    assert_eq!((peer.phase(), peer.generation()), (Phase::Ready, generation));
    let world = world();
    let incarnation = world.memory.incarnation();
    block_on(world.table.shutdown(world.after(PATIENCE)));
    assert_eq!(world.table.new_incarnation(), Err(IncarnationError::ShutDown));
    assert_eq!(world.memory.incarnation(), incarnation);
}

#[cfg(feature = "tcp")]
mod over_real_sockets {
    use super::*;
    use peerage::transport::tcp::{Tcp, TcpAddress};
    use peerage::{Backoff, ReadyError};
    use std::time::Duration;

    fn table(name: &str) -> PeerTable<Tcp> {
        let short = Duration::from_millis(1);
        let backoff = Backoff { base: short, cap: short, ..Backoff::default() };
        let tcp = Tcp::builder().name(name.try_into().unwrap()).bind("127.0.0.1:0").unwrap();
        PeerTable::builder(tcp).backoff(backoff).breaker(None).build().unwrap()
    }

    fn at(table: &PeerTable<Tcp>) -> TcpAddress {
        table.transport().address().clone()
    }

    /// fails if: a connection that another process opened goes on with the incarnation that is no more.
    #[test]
    fn who_was_connected_is_said_goodbye_to_and_meets_the_new_incarnation() {
        let (here, theirs) = (table("here"), table("p"));
        let us = theirs.insert("here", at(&here)).unwrap();
        let old = us.wait_ready(far()).unwrap();
        let was = here.transport().incarnation();
        let now = here.new_incarnation().unwrap();
        assert!(now != was && here.transport().incarnation() == now);
        eventually("it is told", || us.generation() == old && us.phase() == Phase::Failed);
        assert!(us.record().and_then(|record| record.last_error).is_none_or(|error| !error.contains("reset")));
        ready_again(&us);
        eventually("it meets the new one", || us.record().is_some_and(|record| record.incarnation == Some(now)));
    }

    /// fails if: who answers as another incarnation than the address names is taken for the peer, or its connection stays.
    #[test]
    fn an_address_of_an_earlier_incarnation_is_told_the_present_one_by_the_first_answer() {
        let (here, theirs) = (table("here"), table("p"));
        let named = theirs.transport().incarnation();
        let address = at(&theirs).with_incarnation(named);
        let known = theirs.new_incarnation().unwrap();
        let peer = here.insert("p", address).unwrap();
        match peer.wait_ready(far()) {
            Err(ReadyError::WrongIncarnation { named: asked, known: answered, .. }) => {
                assert_eq!((asked, answered), (named, known));
            }
            other => panic!("{other:?}"),
        }
        eventually("it is undone", || theirs.transport().inbound().is_empty());
        assert_eq!(theirs.transport().inbound_counts().accepted, 1, "one handshake");
        peer.update(at(&theirs).with_incarnation(known)).unwrap();
        assert!(ready_again(&peer) > peerage::Generation(0));
    }
}
