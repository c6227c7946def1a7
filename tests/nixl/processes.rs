//! Tables, and a peer in another process that is killed, restarted and stopped.

use crate::support::*;
use peerage::transport::nixl::NixlError;
use peerage::{ConnectContext, Liveness, Phase, Transport};
use std::time::{Duration, Instant};

#[test]
fn two_tables_connect_each_other_and_notify_both_ways() {
    alone(two_tables_connect_each_other_and_notify_both_ways, || {
        let (a, b) = (table("a"), table("b"));
        let address = |of: &peerage::PeerTable<_>| -> peerage::transport::nixl::NixlAddress {
            peerage::transport::nixl::Nixl::local_address(of.transport()).unwrap()
        };
        let to_b = a.insert("b", address(&b)).unwrap();
        let to_a = b.insert("a", address(&a)).unwrap();
        for round in 0..5_u8 {
            ready_again(&to_b);
            ready_again(&to_a);
            to_b.lease().unwrap().notify(&[round, 1]).unwrap();
            to_a.lease().unwrap().notify(&[round, 2]).unwrap();
            let at_b = b.inbox().recv(soon()).unwrap();
            assert_eq!((at_b.from.as_str(), &at_b.bytes[..]), ("a", &[round, 1][..]));
            let at_a = a.inbox().recv(soon()).unwrap();
            assert_eq!((at_a.from.as_str(), &at_a.bytes[..]), ("b", &[round, 2][..]));
            // A new connection in one direction leaves the other alone.
            let before = to_a.generation();
            to_b.report(to_b.generation(), &Told);
            ready_again(&to_b);
            assert_eq!((to_a.phase(), to_a.generation()), (Phase::Ready, before));
        }
        assert!(a.shutdown(soon()).wait().unwrap().is_clean());
        assert!(b.shutdown(soon()).wait().unwrap().is_clean());
    });
}

/// The next message to the dead says so; its successor has another address.
#[test]
fn a_killed_peer_is_found_by_the_next_call_and_its_successor_is_connected() {
    alone(a_killed_peer_is_found_by_the_next_call_and_its_successor_is_connected, || {
        let table = table("here");
        let mut served = Served::start();
        let peer = table.insert("served", served.address.clone()).unwrap();
        let mut last = None;
        for _ in 0..5 {
            ready_again(&peer);
            let incarnation = peer.record().unwrap().incarnation;
            assert_ne!(incarnation, last, "each process is another incarnation");
            last = incarnation;
            peer.lease().unwrap().notify(b"hello").unwrap();
            eventually("it is received", || served.messages() == 1);
            served.kill();
            eventually("it is found dead", || {
                peer.lease().is_ok_and(|lease| lease.notify(b"anybody?").is_err()) || peer.phase() == Phase::Failed
            });
            served = Served::start();
            peer.update(served.address.clone()).unwrap();
        }
        ready_again(&peer);
        assert!(table.shutdown(soon()).wait().unwrap().is_clean());
    });
}

/// fails if: a probe takes what NIXL has accepted for an answer.
#[test]
fn a_stopped_peer_raises_no_error_and_a_probe_finds_it() {
    alone(a_stopped_peer_raises_no_error_and_a_probe_finds_it, || {
        let (here, served) = (nixl("here"), Served::start());
        let connection = try_dial(&here, &served.address).unwrap();
        let probe = |limit| probe(&here, &connection, limit);
        assert_eq!(probe(LONG), Liveness::Alive);
        served.stop();
        assert_eq!(probe(Duration::from_millis(500)), Liveness::Dead);
        served.go_on();
        assert_eq!(probe(LONG), Liveness::Alive, "it was only stopped");
    });
}

/// Nothing is noticed without a call, and who has said hello only waits.
///
/// fails if: a peer that owes the answer to a hello is not asked for a sign of life.
#[test]
fn a_connect_ends_when_its_peer_is_killed_before_it_answers() {
    alone(a_connect_ends_when_its_peer_is_killed_before_it_answers, || {
        let (here, mut served) = (nixl("here"), Served::start());
        served.stop();
        let (to, deadline) = (served.address.clone(), Instant::now() + 100 * LONG);
        let cx = ConnectContext::standalone(to.name().clone(), generation(), deadline);
        std::thread::scope(|scope| {
            let dial = scope.spawn(|| here.connect(&cx, &to).map(drop));
            // It loads the peer and says hello meanwhile; the death of one that is not loaded yet ends it also.
            std::thread::sleep(Duration::from_millis(500));
            served.kill();
            eventually("it ends", || dial.is_finished());
            let failed = dial.join().unwrap().unwrap_err();
            assert!(matches!(failed, NixlError::Broken { .. } | NixlError::Unreachable { .. }), "{failed:?}");
        });
    });
}
