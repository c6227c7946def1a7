//! F: storms of connects, and peers that are never forgiven.

use crate::common::*;
use peerage::transport::memory::{Fabric, Memory, MemoryAddress, Step};
use peerage::{Backoff, Breaker, BusyCause, NotElected, NotifyError, Peer, PeerName, PeerTable, Phase, ReadyError};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// A process that starts with many peers connects to so many at a time; the others wait in line, or are told when to ask.
/// A mesh of such processes becomes whole.
///
/// fails if: f1 (no permit is needed to connect)
#[test]
fn case_f1_processes_that_start_together_connect_to_so_many_at_a_time_and_the_mesh_becomes_whole() {
    const LIMIT: usize = 4;
    let world = world_with(|builder| builder.max_concurrent_connects(LIMIT));
    let peers: Vec<_> = (0..31).map(|at| world.peer(&format!("p{at}"))).collect();
    let holds: Vec<_> =
        peers.iter().map(|peer| world.memory.steps().hold(Step::Connect, peer.name().as_str())).collect();
    assert!(peers.iter().all(|peer| peer.lease().is_err()));
    eventually("as many as may connect", || world.memory.total_counts().connecting == LIMIT as u64);
    world.settle();
    let (connecting, in_line): (Vec<_>, Vec<_>) = peers.iter().partition(|peer| peer.phase() == Phase::Connecting);
    assert_eq!((connecting.len(), in_line.len()), (LIMIT, 31 - LIMIT));
    match in_line[0].try_elect() {
        Err(NotElected::NotNow(ReadyError::Busy { cause: BusyCause::Permits(LIMIT), retry_after, .. })) => {
            assert!(retry_after > Duration::ZERO);
        }
        other => panic!("{other:?}"),
    }
    drop(holds);
    eventually("all are connected", || peers.iter().all(|peer| peer.phase() == Phase::Ready));
    assert_eq!(world.memory.total_counts().connecting_max, LIMIT as u64);

    const NODES: usize = 32;
    let fabric = Fabric::new();
    let name = |at: usize| format!("n{at}");
    let nodes: Vec<_> = (0..NODES).map(|at| fabric.node(&name(at))).collect();
    let table = |node: &Memory| PeerTable::builder(node.clone()).max_concurrent_connects(LIMIT).build().unwrap();
    let tables: Vec<_> = nodes.iter().map(table).collect();
    let mesh: Vec<Vec<Peer<Memory>>> = (0..NODES)
        .map(|at| {
            let others = (0..NODES).filter(|other| *other != at).map(name);
            let address = |name: String| (PeerName::new(&name).unwrap(), MemoryAddress::new(&name));
            tables[at].insert_many(others.map(address)).unwrap()
        })
        .collect();
    let mut all = mesh.iter().flatten();
    all.clone().for_each(|peer| drop(peer.lease()));
    eventually("the mesh is whole", || all.clone().all(|peer| peer.phase() == Phase::Ready));
    assert!(all.all(|peer| peer.lease().is_ok()));
    for node in &nodes {
        let counts = node.total_counts();
        assert_eq!((counts.connects_begun, counts.duplicate_connects), (NODES as u64 - 1, 0));
        assert!(counts.connecting_max <= LIMIT as u64, "{counts:?}");
    }
}

/// After one failure of a healthy peer and its time of rest, one attempt runs, succeeds, and traffic goes on; nobody
/// restarts anything.
///
/// fails if: f3 (a connection does not close the breaker)
#[test]
fn case_f3_a_healthy_peer_is_forgiven_after_one_attempt() {
    let breaker = Breaker { after: 1, open_for: MINUTE, max_open_percent: 100 };
    let world = world_with(|builder| builder.breaker(breaker));
    let peer = world.connected("p");
    world.memory.steps().fail_next(Step::Notify, "p", 1, broken());
    assert!(matches!(peer.lease().unwrap().notify(b"fails"), Err(NotifyError::PeerBroken { .. })));
    world.settle();
    assert!(peer.record().unwrap().breaker_open);
    let ask = || {
        assert!((0..100).all(|_| peer.lease().is_err()));
        world.settle();
    };
    ask();
    assert_eq!((peer.phase(), world.connects("p")), (Phase::Failed, 1), "it rests");
    let hold = world.memory.steps().hold(Step::Connect, "p");
    world.wait_out_backoff(&peer);
    ask();
    hold.wait_reached(1);
    ask();
    assert_eq!(world.connects("p"), 2);
    hold.release();
    block_on(peer.ready()).unwrap();
    assert!(!peer.record().unwrap().breaker_open);
    (0..100).for_each(|_| peer.lease().unwrap().notify(b"goes on").unwrap());
    world.advance(Backoff::default().min_stable);
    peer.report(peer.generation(), &broken());
    world.settle();
    assert_eq!(peer.record().unwrap().failures, 1, "what was before is forgiven");
}

/// Clients that lose a peer at the same moment spread their connects evenly over the window, after the first attempt and
/// after a later one alike.
///
/// fails if: f4 (the whole window is waited)
#[test]
fn case_f4_clients_that_lose_a_peer_together_spread_their_connects() {
    const CLIENTS: usize = 1_500;
    let window = 5 * SECOND;
    let backoff = Backoff { base: window, cap: window, ..Backoff::default() };
    let world = world_with(|builder| builder.backoff(backoff));
    let peers: Vec<_> = (0..CLIENTS).map(|at| world.peer(&format!("p{at}"))).collect();
    let spread = || {
        let mut buckets = [0; 50];
        for peer in &peers {
            eventually("its failure is accounted for", || {
                peer.record().is_some_and(|record| record.retry_at.is_some())
            });
            let wait = peer.record().unwrap().retry_at.unwrap() - world.clock.now();
            buckets[(wait.as_millis() / 100) as usize] += 1;
        }
        assert!(buckets.iter().all(|clients| *clients < 2 * CLIENTS / buckets.len()), "{buckets:?}");
    };
    for peer in &peers {
        world.memory.steps().fail_next(Step::Connect, peer.name().as_str(), 1, broken());
        assert!(peer.lease().is_err());
    }
    spread();
    world.clock.advance(window);
    peers.iter().for_each(|peer| drop(peer.lease()));
    eventually("all are connected", || peers.iter().all(|peer| peer.phase() == Phase::Ready));
    for peer in &peers {
        peer.report(peer.generation(), &broken());
    }
    spread();
}
