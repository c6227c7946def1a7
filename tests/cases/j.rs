//! J: what an error says, and what follows from it.

use crate::common::*;
use peerage::transport::memory::{MemoryError, Step};
use peerage::{Backoff, ErrorClass, NotReady, NotifyError, Phase, ReadyError, Reason, Reported, Sent, TransportError};
use std::error::Error;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// What a peer has caused says so: which peer, which generation, where it stands, whether anything was sent, when to try
/// again, and the native code. Every one of them is an error that a caller can catch as such, and serve the others.
///
/// fails if: j1 (a report loses its native code)
#[test]
fn case_j1_a_failure_says_peer_generation_phase_native_code_and_when_to_try_again() {
    let world = world();
    let (peer, other) = (world.connected("p"), world.connected("q"));
    let lost = || broken().with_native_code(-107);
    let lease = peer.lease().unwrap();
    let old = lease.generation();
    world.memory.steps().fail_next(Step::Notify, "p", 1, lost());
    let error = lease.notify(b"x").unwrap_err();
    match &error {
        NotifyError::PeerBroken { peer, generation, source, sent: Sent::No } => {
            assert_eq!((peer.as_str(), *generation, source.native_code()), ("p", old, Some(-107)));
        }
        other => panic!("{other:?}"),
    }
    world.settle();
    let not_ready = peer.lease().unwrap_err();
    let NotReady { phase, generation, retry_at, reason } = not_ready;
    assert_eq!((phase, generation, reason), (Phase::Failed, old, Reason::Broken(Some(-107))));
    assert_eq!((retry_at, retry_at > Some(world.clock.now())), (peer.record().unwrap().retry_at, true));
    let backing_off = block_on(peer.ready()).unwrap_err();
    assert!(matches!(&backing_off, ReadyError::BackingOff { retry_at: at, .. } if Some(*at) == retry_at));

    world.memory.steps().fail_next(Step::Connect, "p", 1, lost());
    // Held until somebody waits for it: the attempt begins when it may, also if nobody asks.
    let hold = world.memory.steps().hold(Step::Connect, "p");
    world.wait_out_backoff(&peer);
    let mut failed = pin!(peer.ready());
    assert!(failed.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    hold.release();
    let failed = block_on(failed).unwrap_err();
    match &failed {
        ReadyError::Failed { peer, generation, error } => {
            let native = error.inner().downcast_ref::<MemoryError>().and_then(MemoryError::native_code);
            assert_eq!((peer.as_str(), *generation > old, native), ("p", true, Some(-107)));
        }
        other => panic!("{other:?}"),
    }
    let stale = lease.notify(b"x").unwrap_err();
    let caught: [Box<dyn Error>; 5] =
        [Box::new(error), Box::new(not_ready), Box::new(backing_off), Box::new(failed), Box::new(stale)];
    assert!(caught.iter().all(|error| !error.to_string().is_empty()));
    other.lease().unwrap().notify(b"served").unwrap();
}

/// Each class of native error has its consequence: whether the connection is given up, whether the peer is to blame, when
/// the next attempt starts, and whether others wait too.
///
/// fails if: j2 (a send of unknown outcome leaves the connection in use)
#[test]
fn case_j2_each_class_of_error_has_its_consequence() {
    use ErrorClass::{Busy, Incompatible, Local, OutcomeUnknown, PeerBroken};
    let retry_after = SECOND;
    let (failed, ready) = ((Reported::Failed, Phase::Failed), (Reported::NotThePeer, Phase::Ready));
    let code = Reason::ConnectFailed(Some(-7));
    let cap = Backoff::default().cap;
    // While connected; then, of a connect: the reason, the failures counted, the exact wait, and whether others wait.
    for (class, connected, reason, failures, wait, others_wait) in [
        (PeerBroken, failed, code, 1, None, false),
        (OutcomeUnknown, failed, code, 1, None, false),
        (Incompatible, failed, Reason::Incompatible, 0, Some(cap), false),
        (Busy { retry_after }, ready, code, 0, Some(retry_after), false),
        (Local, ready, code, 0, None, true),
    ] {
        let error = || MemoryError::new(class, "asked").with_native_code(-7);
        let world = world();
        let peer = world.connected("p");
        let reported = world.memory.report_late("p", peer.generation(), error()).wait();
        assert_eq!((reported[0].1, peer.phase()), connected, "{class:?}");

        let [peer, other] = ["fresh", "other"].map(|name| world.peer(name));
        world.memory.steps().fail_next(Step::Connect, "fresh", 1, error());
        assert!(matches!(block_on(peer.ready()), Err(ReadyError::Failed { .. })), "{class:?}");
        world.settle();
        let record = peer.record().unwrap();
        assert_eq!((record.reason, record.failures), (reason, failures), "{class:?}");
        let retry_at = record.retry_at.unwrap();
        assert!(wait.is_none_or(|wait| retry_at == world.after(wait)), "{class:?}");
        let answer = block_on(other.ready());
        assert_eq!(matches!(answer, Err(ReadyError::BackingOff { .. })), others_wait, "{class:?}: {answer:?}");
    }
}

/// A peer that speaks another protocol is left alone for as long as the cap, however often it is asked for, and others are
/// not concerned.
///
/// fails if: j3 (an incompatible peer is tried again at once)
#[test]
fn case_j3_a_peer_that_speaks_another_protocol_is_left_alone_for_as_long_as_the_cap() {
    let world = world();
    let (peer, other) = (world.peer("p"), world.connected("q"));
    world.memory.steps().fail_next(Step::Connect, "p", 9, MemoryError::new(ErrorClass::Incompatible, "version 9"));
    assert!(block_on(peer.ready()).is_err());
    world.settle();
    let record = peer.record().unwrap();
    assert_eq!((record.reason, record.last_error.as_deref()), (Reason::Incompatible, Some("version 9")));
    assert_eq!(record.retry_at, Some(world.after(Backoff::default().cap)));
    for _ in 0..100 {
        assert!(peer.lease().is_err());
        world.settle();
    }
    assert_eq!(world.connects("p"), 1);
    other.lease().unwrap().notify(b"not concerned").unwrap();
    #[cfg(all(feature = "tcp", not(peerage_loom)))]
    over_sockets::both_versions_are_named();
}

#[cfg(all(feature = "tcp", not(peerage_loom)))]
mod over_sockets {
    use super::*;
    use crate::support::{self, chain};
    use peerage::PeerTable;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    pub(super) fn both_versions_are_named() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let acceptor = thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            stream.write_all(b"peerage\x01\x09\x00").unwrap();
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let table = PeerTable::builder(support::tcp("here")).build().unwrap();
        let peer = table.insert("p", at.into()).unwrap();
        let error = block_on(peer.ready()).unwrap_err();
        let text = chain(&error);
        assert!(text.contains("version 9") && text.contains("this process speaks 2"), "{text}");
        assert_eq!(peer.record().unwrap().reason, Reason::Incompatible);
        acceptor.join().unwrap();
    }
}
