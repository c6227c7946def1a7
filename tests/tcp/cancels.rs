//! Transfers that their dialer gives up: the far side is told, stops, and lets go.

use crate::support::*;
use peerage::transport::frame::{CHUNK, Codec, Decoded, Frame};
use peerage::{
    Access, DataPlane, Generation, Outcome, Refusal, Region, RemoteSlice, TransferError, TransferId, TransferKind,
};

const LARGE: usize = 64 << 20;
const GAVE_UP: Option<Outcome> = Some(Outcome::Failed(TransferError::Refused(Refusal::Cancelled)));

fn remote(len: usize) -> RemoteSlice {
    RemoteSlice { grant: 1, region: 1, offset: 0, len: len as u64 }
}

/// How many chunks come before the cancel.
fn chunks_until_cancel(raw: &mut Raw, transfer: TransferId) -> usize {
    let mut chunks = 0;
    loop {
        let bytes = raw.next();
        match raw.codec.decode(&bytes) {
            Ok(Decoded::Frame(Frame::WriteData { transfer: of, .. }, _)) if of == transfer => chunks += 1,
            Ok(Decoded::Frame(Frame::Cancel { transfer: of }, _)) if of == transfer => return chunks,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_write_that_is_given_up_is_cut_short_and_its_pages_are_ours_when_the_peer_has_answered() {
    let a = tcp("a");
    let (mut raw, connection) = dial_raw(&a);
    let write = post(&a, &connection, TransferKind::Write, &Region::zeroed(LARGE), remote(LARGE));
    raw.next();
    a.cancel(&connection, write.id());
    a.cancel(&connection, write.id());
    let chunks = chunks_until_cancel(&mut raw, write.id());
    assert!(chunks < LARGE / CHUNK, "{chunks}");
    a.notify(&connection, b"next").unwrap();
    let bytes = raw.next();
    let Ok(Decoded::Frame(Frame::Notify { message, .. }, _)) = raw.codec.decode(&bytes) else { panic!("{bytes:?}") };
    assert_eq!(message, b"next", "neither data nor a second cancel follows");
    assert!(!write.is_quiescent(), "the peer has not answered");
    raw.frame(Frame::Ack { transfer: write.id(), refusal: Some(Refusal::Cancelled) });
    assert_eq!(write.wait(soon()), GAVE_UP);
    eventually("the pages are ours", || write.is_quiescent());
    a.cancel(&connection, write.id());
    disconnect(&a, connection);
}

#[test]
fn an_acceptor_may_not_say_that_a_write_that_was_given_up_is_done() {
    let a = tcp("a");
    let (mut raw, connection) = dial_raw(&a);
    let write = post(&a, &connection, TransferKind::Write, &Region::zeroed(LARGE), remote(LARGE));
    raw.next();
    a.cancel(&connection, write.id());
    chunks_until_cancel(&mut raw, write.id());
    raw.frame(Frame::Ack { transfer: write.id(), refusal: None });
    assert_eq!(write.wait(soon()), Some(Outcome::Unknown));
    assert!(chain(&ended(&a, &connection)).contains("another length"));
}

#[test]
fn a_transfer_of_which_nothing_was_sent_is_over_at_once() {
    let a = tcp("a");
    let (mut raw, connection) = dial_raw(&a);
    let begun = post(&a, &connection, TransferKind::Write, &Region::zeroed(LARGE), remote(LARGE));
    raw.next();
    let waits = post(&a, &connection, TransferKind::Write, &Region::zeroed(8), remote(8));
    a.cancel(&connection, waits.id());
    assert_eq!(waits.try_outcome(), Some(Outcome::Failed(TransferError::NotSent)));
    assert!(waits.is_quiescent());
    assert_eq!(begun.try_outcome(), None);
    disconnect(&a, connection);
}

/// An acceptor that is told that a read was given up stops it, and lets the page go.
///
/// fails if: h2 (a cancel is not minded)
#[test]
fn case_h2_an_acceptor_that_is_told_stops_reading_and_lets_the_page_go() {
    let b = tcp("b");
    let (_page, grant, mut raw) = lent(&b, "a", LARGE, Access::Read);
    raw.frame(Frame::Read { transfer: T, page: grant.remote() });
    raw.next();
    raw.frame(Frame::Cancel { transfer: T });
    let mut chunks = 1;
    let end = loop {
        let bytes = raw.next();
        match raw.codec.decode(&bytes) {
            Ok(Decoded::Frame(Frame::ReadData { .. }, _)) => chunks += 1,
            Ok(Decoded::Frame(Frame::Ack { refusal, .. }, _)) => break refusal,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(end, Some(Refusal::Cancelled));
    assert!(chunks < LARGE / CHUNK, "{chunks} chunks came");
    assert!(grant.revoke().wait(soon()));
    raw.frame(Frame::Cancel { transfer: T });
    raw.frame(Frame::Ping(1));
    raw.next();
    assert_eq!((b.inbound_counts().cancelled, b.inbound_counts().misbehaved), (1, 0), "one that is over is left alone");
}

/// An acceptor that is told that a write was given up forgets it, and drops what still comes of it.
///
/// fails if: h2 (a cancel is not minded), h2-late (what comes after a cancel costs the connection)
#[test]
fn case_h2_an_acceptor_that_is_told_forgets_a_write_and_drops_what_still_comes_of_it() {
    let b = tcp("b");
    let (page, grant, mut raw) = lent(&b, "a", 300, Access::Write);
    raw.frame(Frame::Write { transfer: T, page: grant.remote() });
    raw.frame(Frame::WriteData { transfer: T, bytes: &[1; 100] });
    raw.frame(Frame::Cancel { transfer: T });
    assert_eq!(raw.ack(), (T, Some(Refusal::Cancelled)));
    raw.frame(Frame::WriteData { transfer: T, bytes: &[2; 200] });
    raw.frame(Frame::WriteData { transfer: T, bytes: &[2; 1000] });
    raw.frame(Frame::Ping(1));
    raw.next();
    let counts = b.inbound_counts();
    assert_eq!((counts.cancelled, counts.late_data, counts.misbehaved), (1, 2, 0));
    assert_eq!(page.slice(100..300).unwrap().to_vec(), [0; 200], "nothing of it lands");
    for id in 0..1000 {
        // More than may run at once: each gives its place back.
        raw.frame(Frame::Write { transfer: TransferId(id), page: grant.remote() });
        raw.frame(Frame::Cancel { transfer: TransferId(id) });
        assert_eq!(raw.ack(), (TransferId(id), Some(Refusal::Cancelled)));
    }
    raw.frame(Frame::Write { transfer: T, page: grant.remote() });
    raw.frame(Frame::WriteData { transfer: T, bytes: &[3; 300] });
    assert_eq!(raw.ack(), (T, None), "the grant goes on");
}

#[test]
fn a_transfer_given_up_between_two_transports_ends_once_and_the_connection_goes_on() {
    let (a, b) = (tcp("a"), tcp("b"));
    let connection = dial(&a, &b);
    let page = Region::zeroed(LARGE);
    let slice = page.slice(0..LARGE).unwrap();
    for (kind, access) in [(TransferKind::Write, Access::Write), (TransferKind::Read, Access::Read)] {
        for round in 0..10_u64 {
            let grant = b.grants().lend(&name("a"), &slice, access);
            let transfer = post(&a, &connection, kind, &Region::zeroed(LARGE), grant.remote());
            std::thread::sleep(std::time::Duration::from_millis(round));
            a.cancel(&connection, transfer.id());
            let outcome = transfer.wait(soon());
            let sent = Outcome::Failed(TransferError::NotSent);
            assert!(outcome == GAVE_UP || outcome == Some(Outcome::Done) || outcome == Some(sent), "{outcome:?}");
            eventually("the pages are ours", || transfer.is_quiescent());
            assert!(grant.revoke().wait(soon()));
        }
    }
    assert!(b.inbound_counts().cancelled > 0, "{:?}", b.inbound_counts());
    let grant = b.grants().lend(&name("a"), &page.slice(0..8).unwrap(), Access::Write);
    let last = post(&a, &connection, TransferKind::Write, &filled(8, 1), grant.remote());
    assert_eq!(last.wait(soon()), Some(Outcome::Done));
    assert_eq!(b.inbound_counts().misbehaved, 0);
    disconnect(&a, connection);
}

#[test]
fn the_frame_has_these_very_bytes() {
    let mut bytes = Vec::new();
    Codec::new(Generation(7), 100).encode(&Frame::Cancel { transfer: TransferId(4) }, &mut bytes);
    assert_eq!(bytes, [8, 0, 0, 0, 10, 7, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0]);
}
