//! Acceptors that lie to their dialer.

use crate::support::*;
use peerage::transport::frame::{Codec, Frame};
use peerage::transport::tcp::{Misbehaviour, TcpError};
use peerage::{DataPlane, Generation, Outcome, Post, Refusal, Region, RemoteSlice, TransferId, TransferKind};

#[test]
fn an_acceptor_that_breaks_the_protocol_loses_the_connection() {
    let a = tcp("a");
    type Lie = (&'static str, fn(&mut Raw, TransferId));
    let lies: [Lie; 7] = [
        ("is over before it was sent", |raw, write| raw.frame(Frame::Ack { transfer: write, refusal: None })),
        ("refused before it was sent", |raw, write| {
            raw.frame(Frame::Ack { transfer: write, refusal: Some(Refusal::Revoked) });
        }),
        ("no such transfer", |raw, _| raw.frame(Frame::Ack { transfer: TransferId(u64::MAX), refusal: None })),
        ("data for a write", |raw, write| raw.frame(Frame::ReadData { transfer: write, bytes: b"x" })),
        ("wrong side", |raw, _| raw.frame(Frame::Notify { sequence: 1, message: b"x" })),
        ("another generation", |raw, _| {
            raw.codec = Codec::new(Generation(u64::MAX), 100);
            raw.frame(Frame::Pong(1));
        }),
        ("garbage", |raw, _| raw.bytes(&[0x5a; 100])),
    ];
    for (what, lie) in lies {
        let (mut raw, connection) = dial_raw(&a);
        let len = 64 << 20;
        let remote = RemoteSlice { grant: 1, region: 1, offset: 0, len: len as u64 };
        let write = post(&a, &connection, TransferKind::Write, &Region::zeroed(len), remote);
        raw.next();
        lie(&mut raw, write.id());
        assert_eq!(write.wait(soon()), Some(Outcome::Unknown), "{what}");
        let why = ended(&a, &connection);
        let TcpError::Ended { source: Some(source), .. } = &why else { panic!("{what}: {why:?}") };
        assert!(matches!(**source, TcpError::Misbehaved { .. }), "{what}: {source:?}");
        disconnect(&a, connection);
    }
}

#[test]
fn a_read_takes_exactly_the_bytes_it_asked_for() {
    let a = tcp("a");
    let remote = RemoteSlice { grant: 1, region: 1, offset: 0, len: 8 };
    let (mut raw, connection) = dial_raw(&a);
    let region = Region::zeroed(16);
    let (long, read) = Post::standalone(TransferKind::Read, region.slice(0..8).unwrap(), remote);
    a.post(&connection, long).unwrap();
    raw.next();
    raw.frame(Frame::ReadData { transfer: read.id(), bytes: &[1; 8] });
    raw.frame(Frame::ReadData { transfer: read.id(), bytes: &[2; 1] });
    assert_eq!(read.wait(soon()), Some(Outcome::Unknown));
    assert_eq!(region.slice(8..16).unwrap().to_vec(), [0; 8]);
    let why = ended(&a, &connection);
    let wrong = Misbehaviour::WrongLength { transfer: read.id() };
    assert!(chain(&why).contains(&wrong.to_string()), "{}", chain(&why));

    let (mut raw, connection) = dial_raw(&a);
    let read = post(&a, &connection, TransferKind::Read, &Region::zeroed(8), remote);
    raw.next();
    raw.frame(Frame::ReadData { transfer: read.id(), bytes: &[1; 7] });
    raw.frame(Frame::Ack { transfer: read.id(), refusal: None });
    assert_eq!(read.wait(soon()), Some(Outcome::Unknown), "it is not whole");
}
