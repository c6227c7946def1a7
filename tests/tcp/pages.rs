//! Pages lent: what a grant allows, and until when.

use crate::support::*;
use peerage::transport::frame::{CHUNK, Decoded, Frame, HEADER};
use peerage::{Access, DataPlane, Outcome, Refusal, Region, RemoteSlice, TransferError, TransferKind};

#[test]
fn what_a_grant_does_not_allow_is_refused_and_the_connection_goes_on() {
    let b = tcp("b");
    let (page, grant, mut raw) = lent(&b, "a", 100, Access::Write);
    let remote = grant.remote();
    for (refusal, page) in [
        (Refusal::NoSuchGrant, RemoteSlice { grant: remote.grant ^ 1, ..remote }),
        (Refusal::OutOfBounds, RemoteSlice { len: 101, ..remote }),
        (Refusal::OutOfBounds, RemoteSlice { offset: 50, len: 51, ..remote }),
        (Refusal::OutOfBounds, RemoteSlice { offset: u64::MAX - 10, len: 20, ..remote }),
        (Refusal::OutOfBounds, RemoteSlice { region: remote.region + 1, ..remote }),
    ] {
        raw.frame(Frame::Write { transfer: T, page });
        raw.frame(Frame::WriteData { transfer: T, bytes: &vec![0xff; page.len as usize] });
        assert_eq!(raw.ack(), (T, Some(refusal)), "{page:?}");
        raw.frame(Frame::Read { transfer: T, page });
        let expected = if refusal == Refusal::NoSuchGrant { refusal } else { Refusal::WrongAccess };
        assert_eq!(raw.ack(), (T, Some(expected)));
    }
    let mut other = Raw::welcome(&b, "c");
    other.frame(Frame::Write { transfer: T, page: RemoteSlice { len: 0, ..remote } });
    assert_eq!(other.ack(), (T, Some(Refusal::NotYours)));
    assert_eq!(page.slice(0..100).unwrap().to_vec(), [0; 100]);
    raw.frame(Frame::Write { transfer: T, page: remote });
    raw.frame(Frame::WriteData { transfer: T, bytes: &[7; 100] });
    assert_eq!(raw.ack(), (T, None));
    let mut second = Raw::welcome(&b, "a");
    second.frame(Frame::Write { transfer: T, page: RemoteSlice { len: 0, ..remote } });
    assert_eq!(second.ack(), (T, Some(Refusal::BoundElsewhere)));
    assert_eq!(page.slice(0..100).unwrap().to_vec(), [7; 100]);
    assert_eq!(b.inbound_counts().misbehaved, 0);
}

#[test]
fn after_revoke_the_rest_of_a_write_lands_nowhere_and_is_refused_at_its_end() {
    let b = tcp("b");
    let (page, grant, mut raw) = lent(&b, "a", 300, Access::Write);
    raw.frame(Frame::Write { transfer: T, page: grant.remote() });
    raw.frame(Frame::WriteData { transfer: T, bytes: &[1; 100] });
    eventually("the first part lands", || page.slice(99..100).unwrap().to_vec() == [1]);
    let mut half = Vec::new();
    raw.codec.encode(&Frame::WriteData { transfer: T, bytes: &[2; 100] }, &mut half);
    let rest = half.split_off(50);
    raw.bytes(&half);
    assert!(grant.revoke().wait(soon()), "nobody waits for a writer that is stopped in the middle of a frame");
    raw.bytes(&rest);
    raw.frame(Frame::WriteData { transfer: T, bytes: &[3; 100] });
    assert_eq!(raw.ack(), (T, Some(Refusal::Revoked)));
    assert_eq!(page.slice(100..300).unwrap().to_vec(), [0; 200]);
    raw.frame(Frame::Ping(5));
    assert_eq!(raw.next().len(), HEADER + 8);
}

#[test]
fn a_read_is_refused_from_the_chunk_on_at_which_it_was_revoked() {
    let b = tcp("b");
    let (_page, grant, mut raw) = lent(&b, "a", 64 << 20, Access::Read);
    raw.frame(Frame::Read { transfer: T, page: grant.remote() });
    raw.next();
    assert!(grant.revoke().wait(soon()));
    let mut chunks = 1;
    let end = loop {
        let bytes = raw.next();
        match raw.codec.decode(&bytes) {
            Ok(Decoded::Frame(Frame::ReadData { .. }, _)) => chunks += 1,
            Ok(Decoded::Frame(Frame::Ack { refusal, .. }, _)) => break refusal,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(end, Some(Refusal::Revoked));
    assert!(chunks < 1024, "{chunks} of 1024 chunks came");
}

#[test]
fn a_transfer_that_runs_is_not_begun_twice() {
    let b = tcp("b");
    let (page, grant, mut raw) = lent(&b, "a", 10, Access::Write);
    raw.frame(Frame::Write { transfer: T, page: grant.remote() });
    raw.frame(Frame::Write { transfer: T, page: grant.remote() });
    assert_eq!(raw.ack(), (T, Some(Refusal::DuplicateTransfer)));
    raw.frame(Frame::Read { transfer: T, page: grant.remote() });
    assert_eq!(raw.ack(), (T, Some(Refusal::DuplicateTransfer)));
    raw.frame(Frame::WriteData { transfer: T, bytes: &[4; 10] });
    assert_eq!(raw.ack(), (T, None), "the first one goes on");
    assert_eq!(page.slice(0..10).unwrap().to_vec(), [4; 10]);
    raw.frame(Frame::Write { transfer: T, page: grant.remote() });
    raw.frame(Frame::WriteData { transfer: T, bytes: &[5; 10] });
    assert_eq!(raw.ack(), (T, None), "a number is free again when its transfer is over");
}

#[test]
fn a_refused_transfer_ends_as_refused_at_its_dialer() {
    let (a, b) = (tcp("a"), tcp("b"));
    let connection = dial(&a, &b);
    let len = 3 * CHUNK;
    let grant = b.grants().lend(&name("a"), &Region::zeroed(len).slice(0..len).unwrap(), Access::Write);
    let remote = grant.remote();
    drop(grant);
    for kind in [TransferKind::Write, TransferKind::Read] {
        let transfer = post(&a, &connection, kind, &Region::zeroed(len), remote);
        let refused = Outcome::Failed(TransferError::Refused(Refusal::NoSuchGrant));
        assert_eq!(transfer.wait(soon()), Some(refused));
    }
    a.notify(&connection, b"goes on").unwrap();
    assert_eq!(b.inbox().recv(soon()).unwrap().bytes, b"goes on");
}

#[test]
fn what_was_lent_over_a_connection_is_quiesced_when_it_ends() {
    let b = tcp("b");
    for how in 0..3 {
        let (_page, grant, mut raw) = lent(&b, "a", 100, Access::Write);
        raw.frame(Frame::Write { transfer: T, page: grant.remote() });
        raw.frame(Frame::WriteData { transfer: T, bytes: &[1; 50] });
        raw.frame(Frame::Ping(1));
        raw.next();
        assert!(!grant.is_quiesced());
        match how {
            0 => drop(raw),
            1 => assert_eq!(b.cut_inbound_of(&name("a")), 1),
            _ => assert!(b.drop_inbound(&b.inbound()[0].key)),
        }
        eventually("the grant is quiesced", || grant.is_quiesced());
        eventually("the connection is listed no more", || b.inbound().is_empty());
    }
}
