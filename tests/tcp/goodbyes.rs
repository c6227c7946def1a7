//! Goodbyes: who ends a connection says so, and the other side tells that from a loss.

use crate::support::*;
use peerage::transport::frame::{Decoded, Farewell, Frame};
use peerage::transport::tcp::{Tcp, TcpConnection, TcpError};
use peerage::{
    Access, Clock, CloseContext, CloseReason, Closed, DataPlane, ErrorClass, Generation, Outcome, PeerTable, Phase,
    Region, RemoteSlice, TransferKind, Transport, TransportError,
};
use std::io::Read;
use std::time::{Duration, Instant};

fn close(from: &Tcp, connection: TcpConnection, why: CloseReason, deadline: Instant) -> bool {
    let cx = CloseContext { name: name("peer"), generation: Generation(0), deadline };
    matches!(from.disconnect(&cx, connection, why), Closed::Released)
}

/// Every frame that is still to come, up to a goodbye, which must be the last thing before the end.
fn until_goodbye(raw: &mut Raw) -> (usize, Farewell) {
    let mut frames = 0;
    loop {
        let bytes = raw.next();
        if let Ok(Decoded::Frame(Frame::Goodbye { code }, _)) = raw.codec.decode(&bytes) {
            assert_eq!(raw.stream.read(&mut [0]).unwrap(), 0, "nothing follows a goodbye");
            return (frames, Farewell::from_code(code));
        }
        frames += 1;
    }
}

#[test]
fn a_close_says_why_and_what_was_accepted_before_is_sent_first() {
    let a = tcp("a");
    for (why, farewell, sent) in [
        (CloseReason::Removed, Farewell::Removed, 100),
        (CloseReason::Shutdown, Farewell::Shutdown, 100),
        (CloseReason::Failed, Farewell::Failed, 0),
    ] {
        let (mut raw, connection) = dial_raw(&a);
        (0..sent).for_each(|_| a.notify(&connection, b"before").unwrap());
        assert!(close(&a, connection, why, soon()));
        assert_eq!(until_goodbye(&mut raw), (sent, farewell), "{why:?}");
    }
}

#[test]
fn an_acceptor_tells_a_goodbye_from_a_loss_and_frees_its_side_either_way() {
    let (a, b) = (tcp("a"), tcp("b"));
    for round in 1..=3 {
        let (leaves, cut) = (dial(&a, &b), dial(&a, &b));
        let page = Region::zeroed(8);
        let grant = b.grants().lend(&name("a"), &page.slice(0..8).unwrap(), Access::Write);
        let write = post(&a, &leaves, TransferKind::Write, &page, grant.remote());
        assert_eq!(write.wait(soon()), Some(Outcome::Done));
        disconnect(&a, leaves);
        // It has taken the goodbye: that is what the disconnect waited for.
        eventually("the grant is free", || grant.is_quiesced());
        cut.cut();
        drop(Raw::welcome(&b, "c"));
        eventually("all are gone", || b.inbound().is_empty());
        eventually("they are told apart", || {
            let counts = b.inbound_counts();
            (counts.goodbyes, counts.lost, counts.misbehaved) == (round, 2 * round, 0)
        });
    }
}

#[test]
fn a_goodbye_comes_after_the_rest_of_a_frame_that_was_begun() {
    let a = tcp("a");
    let (mut raw, connection) = dial_raw(&a);
    let remote = RemoteSlice { grant: 1, region: 1, offset: 0, len: 64 << 20 };
    let write = post(&a, &connection, TransferKind::Write, &Region::zeroed(64 << 20), remote);
    raw.next();
    // The socket is full, and a frame is cut somewhere.
    let mut sent = 0;
    eventually("nothing more fits", || {
        std::thread::sleep(Duration::from_millis(50));
        std::mem::replace(&mut sent, queued(&raw)) == queued(&raw)
    });
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| close(&a, connection, CloseReason::Shutdown, soon()));
        eventually("the pages are ours before the peer has read a byte", || write.is_quiescent());
        let (frames, farewell) = until_goodbye(&mut raw);
        assert!(frames > 0 && frames < 1024, "{frames}");
        assert_eq!(farewell, Farewell::Shutdown);
        drop(raw);
        assert!(closing.join().unwrap());
    });
    assert_eq!(write.try_outcome(), Some(Outcome::Unknown));
}

/// Bytes that wait in a socket's receive buffer.
fn queued(raw: &Raw) -> usize {
    raw.stream.peek(&mut vec![0; 32 << 20]).unwrap()
}

#[test]
fn a_peer_that_takes_nothing_holds_up_a_removal_for_a_moment_and_a_shutdown_until_its_deadline() {
    let clock = Clock::manual();
    let a = builder("a").clock(clock.clone()).bind("127.0.0.1:0").unwrap();
    for why in [CloseReason::Removed, CloseReason::Failed, CloseReason::Shutdown] {
        let (raw, connection) = dial_raw(&a);
        let remote = RemoteSlice { grant: 1, region: 1, offset: 0, len: 64 << 20 };
        let write = post(&a, &connection, TransferKind::Write, &Region::zeroed(64 << 20), remote);
        eventually("it has begun", || queued(&raw) > 1 << 16);
        let deadline = clock.now() + 100 * LONG;
        std::thread::scope(|scope| {
            let closing = scope.spawn(|| close(&a, connection, why, deadline));
            if why == CloseReason::Shutdown {
                eventually("the pages are ours", || write.is_quiescent());
                assert!(!closing.is_finished());
                clock.advance(100 * LONG);
            }
            assert!(closing.join().unwrap(), "{why:?}");
        });
    }
}

#[test]
fn a_dialer_that_is_dropped_by_hand_is_told() {
    let (a, b) = (tcp("a"), tcp("b"));
    let connection = dial(&a, &b);
    assert!(b.drop_inbound(&b.inbound()[0].key));
    let why = ended(&a, &connection);
    let TcpError::Ended { source: Some(source), .. } = &why else { panic!("{why:?}") };
    assert!(matches!(**source, TcpError::SaidGoodbye { farewell: Farewell::Removed, .. }), "{source:?}");
    assert_eq!((source.class(), b.inbound_counts().lost), (ErrorClass::PeerBroken, 0));
}

/// When a shutdown has resolved, every live peer has been told goodbye, whoever had dialled.
///
/// fails if: d7 (a shutdown does not end what others have opened)
#[test]
fn case_d7_when_a_shutdown_has_resolved_every_live_peer_has_been_told_in_both_directions() {
    let table = |called| PeerTable::builder(tcp(called)).build().unwrap();
    let (a, b) = (table("a"), table("b"));
    let to_b = a.insert("b", b.transport().address().clone()).unwrap();
    let to_a = b.insert("a", a.transport().address().clone()).unwrap();
    to_b.wait_ready(soon()).unwrap();
    to_a.wait_ready(soon()).unwrap();
    let generation = to_b.generation();
    assert!(b.shutdown(soon()).wait().unwrap().is_clean());

    assert!(b.transport().inbound().is_empty(), "its side is free");
    let counts = a.transport().inbound_counts();
    assert_eq!((counts.goodbyes, counts.lost), (1, 0), "of the connection that b had opened");
    eventually("the dialer has reported", || to_b.phase() == Phase::Failed);
    eventually("and says why", || {
        to_b.record().is_some_and(|record| {
            assert_eq!(record.generation, generation);
            record.last_error.is_some_and(|error| error.contains("\"b\"") && error.contains("shut down"))
        })
    });
    let refused = try_dial(a.transport(), b.transport()).unwrap_err();
    assert!(matches!(refused, TcpError::Unreachable { .. }), "nobody is let in any more: {refused:?}");
    assert!(a.shutdown(soon()).wait().unwrap().is_clean());
}

#[test]
fn a_shutdown_waits_until_its_deadline_for_a_dialer_that_takes_nothing_and_then_cuts_it_off() {
    let clock = Clock::manual();
    let b = builder("b").clock(clock.clone()).bind("127.0.0.1:0").unwrap();
    let (_page, grant, mut raw) = lent(&b, "a", 64 << 20, Access::Read);
    raw.frame(Frame::Read { transfer: T, page: grant.remote() });
    eventually("the answer fills the sockets", || queued(&raw) > 1 << 16);
    let deadline = clock.now() + 100 * LONG;
    std::thread::scope(|scope| {
        let ending = scope.spawn(|| b.end(deadline));
        eventually("nobody new is let in", || std::net::TcpStream::connect(b.local_addr()).is_err());
        assert!(!ending.is_finished());
        clock.advance(100 * LONG);
        ending.join().unwrap();
    });
    eventually("it is cut off", || b.inbound().is_empty() && grant.is_quiesced());
}

#[test]
fn the_frames_have_these_very_bytes() {
    let codec = peerage::transport::frame::Codec::new(Generation(7), 100);
    let mut bytes = Vec::new();
    codec.encode(&Frame::Goodbye { code: Farewell::Removed as u8 }, &mut bytes);
    assert_eq!(bytes, [1, 0, 0, 0, 9, 7, 0, 0, 0, 0, 0, 0, 0, 2]);
    for code in 0..=u8::MAX {
        assert_eq!(Farewell::from_code(code) as u8, if code <= 3 { code } else { 0 });
    }
}
