//! A: several want one peer connected at the same time.

use crate::common::*;
use peerage::transport::memory::Step;
use peerage::{Phase, ReadyError};
use std::collections::HashSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Threads that want an absent peer at once make one native connect, and all get the generation it made.
///
/// fails if: a1 (who asks while a connect runs begins another one)
#[test]
fn case_a1_threads_that_want_an_absent_peer_at_once_make_one_connect() {
    const THREADS: usize = 32;
    let world = world();
    let peer = world.peer("p");
    let (start, asking) = (Barrier::new(THREADS), AtomicUsize::new(0));
    let generations: HashSet<_> = thread::scope(|scope| {
        let hold = world.memory.steps().hold(Step::Connect, "p");
        let ask = || {
            start.wait();
            asking.fetch_add(1, Ordering::Relaxed);
            block_on(peer.ready()).unwrap()
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(ask)).collect();
        hold.wait_reached(1);
        eventually("all ask", || asking.load(Ordering::Relaxed) == THREADS);
        assert!(poll_once(&mut peer.ready()).is_pending());
        world.settle();
        hold.release();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(generations.len(), 1);
    let counts = world.memory.counts("p");
    assert_eq!((counts.connects_begun, counts.open_max), (1, 1));
    assert_eq!(world.table.snapshot().elections, 1, "nor was a second one begun and given up");
}

/// Of a thousand callers one makes the connect; if it fails all get that one error, and the next connect waits its time.
///
/// fails if: a7 (an attempt starts before its time)
#[test]
fn case_a7_a_thousand_callers_get_the_error_of_the_one_attempt_and_the_next_one_waits_its_time() {
    let world = world();
    let peer = world.peer("p");
    let hold = world.memory.steps().hold(Step::Connect, "p");
    let mut callers: Vec<_> = (0..1_000).map(|_| peer.ready()).collect();
    let (early, late) = callers.split_at_mut(500);
    assert!(early.iter_mut().all(|caller| poll_once(caller).is_pending()));
    hold.wait_reached(1);
    assert!(late.iter_mut().all(|caller| poll_once(caller).is_pending()));
    let attempt = peer.generation();
    world.memory.steps().fail_next(Step::Connect, "p", 1, broken());
    hold.release();
    for caller in callers {
        match block_on(caller) {
            Err(ReadyError::Failed { generation, error, .. }) => {
                assert_eq!((generation, error.to_string().as_str()), (attempt, "cable pulled"));
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(peer.lease().is_err(), "this asks");
    world.settle();
    assert_eq!((peer.phase(), world.connects("p")), (Phase::Failed, 1));
    assert!(matches!(block_on(peer.ready()), Err(ReadyError::BackingOff { .. })));
    assert!(world.reconnect(&peer) > attempt);
    assert_eq!(world.connects("p"), 2);
}

#[cfg(all(feature = "tcp", not(peerage_loom)))]
mod over_sockets {
    use super::*;
    use crate::support::{self, Raw};
    use peerage::transport::Counting;
    use peerage::transport::frame::{Codec, Frame, Hello, Verdict};
    use peerage::transport::tcp::TcpError;
    use peerage::{
        ConnectContext, DataPlane, ErrorClass, Generation, Incarnation, PeerTable, Transport, TransportError,
    };
    use std::net::TcpListener;
    use std::time::Duration;

    /// Who comes while a handshake runs waits for that one, and no second socket is opened.
    ///
    /// fails if: a2 (who asks while a connect runs begins another one)
    #[test]
    fn case_a2_who_comes_while_a_handshake_runs_waits_for_it_and_opens_no_socket() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let table =
            PeerTable::builder(Counting::new(support::tcp("a"))).connect_timeout(support::LONG).build().unwrap();
        let peer = table.insert("raw", listener.local_addr().unwrap().into()).unwrap();
        let mut callers: Vec<_> = (0..9).map(|_| peer.ready()).collect();
        assert!(poll_once(&mut callers[0]).is_pending());
        let (stream, _) = listener.accept().unwrap();
        assert!(callers[1..].iter_mut().all(|caller| poll_once(caller).is_pending()));
        for _ in 0..3 {
            // The driver has looked at everything it was told.
            let other = table.insert("other", listener.local_addr().unwrap().into()).unwrap();
            block_on(other.remove(far()));
        }
        let _raw = Raw::accepted(stream);
        let generations: HashSet<_> = callers.into_iter().map(|caller| block_on(caller).unwrap()).collect();
        assert_eq!(generations.len(), 1);
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err(), "another socket");
        assert_eq!(table.transport().total().connects_begun, 1);
    }

    /// Two processes that dial each other at the same instant both get through, and no caller is given a connection that
    /// is not ready.
    ///
    /// fails if: a3 (a connect returns before the handshake is over)
    #[test]
    fn case_a3_two_processes_that_dial_each_other_at_once_both_get_through() {
        for _ in 0..10 {
            let [a, b] = ["a", "b"].map(|called| PeerTable::builder(support::tcp(called)).build().unwrap());
            let to_b = a.insert("b", support::address(b.transport())).unwrap();
            let to_a = b.insert("a", support::address(a.transport())).unwrap();
            let start = Barrier::new(4);
            thread::scope(|scope| {
                for peer in [&to_b, &to_a] {
                    scope.spawn(|| {
                        start.wait();
                        block_on(peer.ready()).unwrap()
                    });
                    scope.spawn(|| {
                        start.wait();
                        eventually("a lease is granted", || match peer.lease() {
                            Ok(lease) => lease.notify(b"through").map(|()| true).unwrap(),
                            Err(not_ready) => {
                                assert!(matches!(not_ready.phase, Phase::Idle | Phase::Connecting), "{not_ready}");
                                false
                            }
                        });
                    });
                }
            });
            for table in [&a, &b] {
                assert_eq!(table.inbox().recv(far()).unwrap().bytes, b"through");
            }
            assert_eq!([&to_b, &to_a].map(|peer| peer.record().unwrap().attempts), [1, 1]);
        }
    }

    /// What a dialer sends before the acceptor has done its part of the handshake waits until it has; an acceptor that never
    /// does is a timeout, and nothing else.
    ///
    /// fails if: a6 (a handshake reads more than its own message)
    #[test]
    fn case_a6_what_comes_before_the_accept_is_done_waits_for_it() {
        let b = support::builder("b").accept_delay(Duration::from_millis(50)).bind("127.0.0.1:0").unwrap();
        let generation = support::generation();
        let hello = Hello {
            name: support::name("a"),
            incarnation: Incarnation(9),
            generation,
            target: support::name("b"),
            nonce: None,
        };
        let mut bytes = Vec::new();
        hello.encode(&mut bytes);
        Codec::new(generation, 64 * 1024).encode(&Frame::Notify { sequence: 1, message: b"early" }, &mut bytes);
        let mut raw = Raw::silent(&b);
        raw.bytes(&bytes);
        assert_eq!(raw.answer().verdict, Verdict::Welcome);
        assert_eq!(b.inbox().recv(far()).unwrap().bytes, b"early");
        assert_eq!((b.inbound_counts().misbehaved, b.inbound().len()), (0, 1));

        let a = support::builder("a").handshake_timeout(Duration::from_millis(50)).bind("127.0.0.1:0").unwrap();
        let mute = TcpListener::bind("127.0.0.1:0").unwrap();
        let cx = ConnectContext::standalone(support::name("b"), Generation(1), far());
        let error = a.connect(&cx, &mute.local_addr().unwrap().into()).unwrap_err();
        assert!(matches!(error, TcpError::TimedOut { .. }), "{error:?}");
        assert_eq!(error.class(), ErrorClass::PeerBroken);
    }
}
