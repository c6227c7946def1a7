//! L: what can be seen while something hangs.

use crate::common::*;
use crate::pages::pages;
use peerage::transport::memory::Step;
use peerage::{Event, PeerStatus, Phase, Reason};
use std::thread;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// While every native call hangs, another thread sees of each peer that is not ready where it stands, in which life, at which
/// generation, since when, what is under way, its last error and its next try; and each transition was one event with its
/// reason.
///
/// fails if: l1 (a record forgets the error)
#[test]
fn case_l1_a_snapshot_during_a_hang_says_all_of_every_peer_and_each_transition_is_one_event() {
    let world = world();
    let mut events = world.table.events();
    let holds = [(Step::Connect, "connecting"), (Step::Close, "closing"), (Step::Complete, "failed")]
        .map(|(step, name)| world.memory.steps().hold(step, name));
    let [closing, failed] = ["closing", "failed"].map(|name| world.connected(name));
    let connecting = world.peer("connecting");
    let life = world.fabric.node("failed").incarnation();
    let (ours, lent) = pages(&world, "failed");
    let lease = failed.lease().unwrap();
    let _transfer = lease.write(&ours, lent.remote()).unwrap();
    assert!(connecting.lease().is_err());
    let _removal = closing.remove(world.after(SECOND));
    failed.report(failed.generation(), &broken());
    holds[..2].iter().for_each(|hold| hold.wait_reached(1));
    world.settle();
    let retry_at = failed.record().unwrap().retry_at;
    world.clock.advance(SECOND);

    let table = world.table.clone();
    let seen = thread::spawn(move || table.snapshot()).join().unwrap();
    let of = |name: &str| -> &PeerStatus { seen.peers.iter().find(|peer| peer.name.as_str() == name).unwrap() };
    let phases = ["connecting", "closing", "failed"].map(|name| (of(name).phase, of(name).generation));
    let expected = [(Phase::Connecting, &connecting), (Phase::Removing, &closing), (Phase::Failed, &failed)];
    assert_eq!(phases, expected.map(|(phase, peer)| (phase, peer.generation())));
    assert!(of("connecting").connecting);
    let status = of("failed");
    let record = status.record.as_ref().unwrap();
    assert_eq!((record.incarnation, record.last_error.as_deref()), (Some(life), Some("cable pulled")));
    assert_eq!((world.clock.now() - record.since, status.draining, status.transfers), (SECOND, 1, 1));
    assert!(record.retry_at.is_some() && record.retry_at == retry_at);
    assert_eq!(record.reason, Reason::Broken(None));

    let told: Vec<_> = events.try_iter().collect();
    for peer in [&connecting, &closing, &failed] {
        let heard = told.iter().filter_map(|event| match event {
            Event::Changed(change) if change.id == peer.id() => Some(change.transition),
            _ => None,
        });
        assert_eq!(heard.collect::<Vec<_>>(), peer.history(), "{peer}");
    }
    drop((lease, holds));
}
