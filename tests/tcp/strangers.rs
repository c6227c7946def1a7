//! Strangers: what they can not do to an acceptor.

use crate::support::*;
use peerage::transport::frame::{Codec, Frame, HEADER, Hello, VERSION, Verdict};
use peerage::transport::tcp::{Tcp, TcpConnection, TcpError};
use peerage::{Access, DataPlane, ErrorClass, Generation, Incarnation, RemoteSlice, TransferId, TransportError};
use std::io::Write;
use std::time::Duration;

/// Whether a well-behaved peer still gets through.
fn serves(a: &Tcp, b: &Tcp, connection: &TcpConnection) {
    a.notify(connection, b"still here").unwrap();
    assert_eq!(b.inbox().recv(soon()).unwrap().bytes, b"still here");
}

#[test]
fn bytes_that_are_no_hello_cost_their_sender_the_connection_and_nobody_else() {
    let (a, b) = (tcp("a"), tcp("b"));
    let connection = dial(&a, &b);
    let hello = Hello {
        name: name("x"),
        incarnation: Incarnation(1),
        generation: Generation(1),
        target: name("b"),
        nonce: None,
    };
    let mut good = Vec::new();
    hello.encode(&mut good);
    let mut nameless = good.clone();
    nameless[26] = 0;
    let mut control = good.clone();
    control[29] = b'\n';
    let mut flagged = good.clone();
    flagged[28] = 2;
    let bad = [b"GET / HTTP/1.1\r\n\r\n".to_vec(), vec![0xff; 10_000], nameless, control, flagged];
    for (at, bytes) in bad.iter().enumerate() {
        let mut raw = Raw::silent(&b);
        raw.bytes(bytes);
        assert!(raw.is_closed(), "stranger {at}");
        eventually("it is counted", || b.inbound_counts().refused == at as u64 + 1);
    }
    let mut cut_short = Raw::silent(&b);
    cut_short.bytes(&good[..good.len() - 1]);
    drop(cut_short);
    eventually("it is counted", || b.inbound_counts().refused == bad.len() as u64 + 1);
    assert_eq!(b.inbound().len(), 1);
    serves(&a, &b, &connection);
}

#[test]
fn a_hello_of_another_version_is_answered_with_ours() {
    let b = tcp("b");
    let mut raw = Raw::silent(&b);
    raw.bytes(b"peerage\x01\x63\x00");
    let answer = raw.answer();
    assert_eq!((answer.verdict, VERSION), (Verdict::WrongVersion, 2));
    assert!(raw.is_closed());
    assert_eq!(b.inbound_counts().refused, 1);
}

#[test]
fn a_dialer_that_means_another_or_is_here_already_is_refused() {
    let b = tcp("b");
    let mut raw = Raw::silent(&b);
    raw.say(&Hello {
        name: name("x"),
        incarnation: Incarnation(1),
        generation: Generation(1),
        target: name("c"),
        nonce: None,
    });
    let answer = raw.answer();
    assert_eq!((answer.verdict, answer.name), (Verdict::WrongName, name("b")));
    assert!(raw.is_closed());
    let (first, taken) = Raw::hello(&b, "a", Generation(5));
    assert_eq!(taken.verdict, Verdict::Welcome);
    let (mut second, again) = Raw::hello(&b, "a", Generation(5));
    assert_eq!(again.verdict, Verdict::Duplicate);
    assert!(second.is_closed());
    let (_third, other) = Raw::hello(&b, "a", Generation(6));
    assert_eq!(other.verdict, Verdict::Welcome);
    drop(first);
    eventually("the key is free again", || Raw::hello(&b, "a", Generation(5)).1.verdict == Verdict::Welcome);
}

#[test]
fn a_dialer_beyond_max_inbound_is_refused_as_busy_until_one_leaves() {
    let (a, b) = (tcp("a"), builder("b").max_inbound(2).bind("127.0.0.1:0").unwrap());
    let (first, _second) = (dial(&a, &b), dial(&a, &b));
    let full = try_dial(&a, &b).unwrap_err();
    assert!(matches!(full, TcpError::Full { .. }), "{full:?}");
    assert!(matches!(full.class(), ErrorClass::Busy { .. }));
    disconnect(&a, first);
    eventually("there is a place again", || try_dial(&a, &b).is_ok());
}

#[test]
fn messages_left_behind_by_connections_that_are_gone_count_against_new_ones() {
    let b = builder("b").max_inbound(1).inbox_capacity(1).bind("127.0.0.1:0").unwrap();
    let mut raw = Raw::welcome(&b, "a");
    raw.frame(Frame::Notify { sequence: 1, message: b"left behind" });
    drop(raw);
    eventually("it has gone", || b.inbound().is_empty() && b.inbox().len() == 1);
    assert_eq!(Raw::hello(&b, "a", generation()).1.verdict, Verdict::Full);
    b.inbox().try_recv().unwrap();
    assert_eq!(Raw::hello(&b, "a", generation()).1.verdict, Verdict::Welcome);
}

#[test]
fn a_hello_that_trickles_in_has_the_handshake_timeout_and_no_more() {
    let (a, b) = (tcp("a"), builder("b").handshake_timeout(Duration::from_millis(300)).bind("127.0.0.1:0").unwrap());
    let mut raw = Raw::silent(&b);
    let mut good = Vec::new();
    let hello = Hello {
        name: name("x"),
        incarnation: Incarnation(1),
        generation: Generation(1),
        target: name("b"),
        nonce: None,
    };
    hello.encode(&mut good);
    let mut sent = 0;
    eventually("the trickle is cut off", || {
        let byte = good.get(sent).copied();
        sent += 1;
        std::thread::sleep(Duration::from_millis(20));
        byte.is_none_or(|byte| raw.stream.write_all(&[byte]).is_err())
    });
    assert!(sent < good.len(), "the hello was never whole");
    assert_eq!(b.inbound_counts().timed_out, 1);
    let connection = dial(&a, &b);
    serves(&a, &b, &connection);
}

#[test]
fn a_flood_of_silent_sockets_does_not_keep_out_who_says_hello() {
    let (a, b) = (tcp("a"), builder("b").handshake_timeout(100 * LONG).bind("127.0.0.1:0").unwrap());
    let silent: Vec<_> = (0..300).map(|_| Raw::silent(&b)).collect();
    let connection = dial(&a, &b);
    serves(&a, &b, &connection);
    assert!(b.inbound_counts().evicted >= 300 - 128, "{:?}", b.inbound_counts());
    drop(silent);
}

#[test]
fn many_dialers_that_come_in_one_moment_are_all_heard() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let b = builder("b").handle(runtime.handle().clone()).bind("127.0.0.1:0").unwrap();
    let (release, held) = std::sync::mpsc::channel::<()>();
    runtime.spawn(async move { held.recv() });
    let mut all: Vec<_> = (0..300).map(|_| Raw::silent(&b)).collect();
    for (raw, number) in all.iter_mut().zip(1..) {
        raw.say(&Hello {
            name: name("a"),
            incarnation: Incarnation(1),
            generation: Generation(number),
            target: name("b"),
            nonce: None,
        });
    }
    drop(release);
    assert!(all.iter_mut().all(|raw| raw.answer().verdict == Verdict::Welcome));
    assert_eq!(b.inbound_counts().evicted, 0);
}

#[test]
fn frames_that_no_peer_may_send_cost_the_connection_and_nobody_else() {
    let (a, b) = (tcp("a"), tcp("b"));
    let connection = dial(&a, &b);
    let page = RemoteSlice { grant: 1, region: 1, offset: 0, len: 10 };
    let encoded = |codec: Codec, frame: Frame<'_>| {
        let mut bytes = Vec::new();
        codec.encode(&frame, &mut bytes);
        bytes
    };
    type Attack<'a> = (&'static str, &'a dyn Fn(Codec) -> Vec<u8>);
    let attacks: [Attack<'_>; 9] = [
        ("oversized", &|codec| {
            let mut bytes = encoded(codec, Frame::Notify { sequence: 1, message: b"" });
            bytes[..4].fill(0xff);
            bytes
        }),
        ("over the limit of notifications", &|codec| {
            let mut bytes = encoded(codec, Frame::Notify { sequence: 1, message: b"" });
            bytes[..4].copy_from_slice(&(64 * 1024 + 8 + 1_u32).to_le_bytes());
            bytes
        }),
        ("an unknown kind, oversized", &|codec| {
            let mut bytes = encoded(codec, Frame::Unknown { kind: 99, body: b"" });
            bytes[..4].copy_from_slice(&(64 * 1024 + 8 + 1_u32).to_le_bytes());
            bytes
        }),
        ("another generation", &|_| {
            encoded(Codec::new(Generation(u64::MAX), 100), Frame::Notify { sequence: 1, message: b"old" })
        }),
        ("wrong side", &|codec| encoded(codec, Frame::Ack { transfer: T, refusal: None })),
        ("data of nothing", &|codec| encoded(codec, Frame::WriteData { transfer: T, bytes: b"x" })),
        ("more data than said", &|codec| {
            let mut bytes = encoded(codec, Frame::Write { transfer: T, page });
            bytes.extend(encoded(codec, Frame::WriteData { transfer: T, bytes: &[0; 11] }));
            bytes
        }),
        ("too many writes", &|codec| {
            (0..100).flat_map(|id| encoded(codec, Frame::Write { transfer: TransferId(id), page })).collect()
        }),
        ("garbage", &|_| vec![0xa5; 100_000]),
    ];
    for (at, (what, attack)) in attacks.iter().enumerate() {
        let mut raw = Raw::welcome(&b, "evil");
        let bytes = attack(raw.codec);
        let _ = raw.stream.write_all(&bytes);
        assert!(raw.is_closed(), "{what}");
        eventually(what, || b.inbound_counts().misbehaved == at as u64 + 1 && b.inbound().len() == 1);
    }
    let mut truncated = Raw::welcome(&b, "evil");
    truncated.bytes(&encoded(truncated.codec, Frame::Notify { sequence: 1, message: b"whole" })[..HEADER + 2]);
    drop(truncated);
    eventually("truncated", || b.inbound_counts().misbehaved == attacks.len() as u64 + 1);
    assert!(b.inbox().is_empty(), "nothing of it was delivered");
    serves(&a, &b, &connection);
}

#[test]
fn a_flooder_is_held_back_alone_and_loses_nothing() {
    let b = builder("b").inbox_capacity(4).bind("127.0.0.1:0").unwrap();
    let (a, c) = (tcp("a"), tcp("c"));
    let (flood, calm) = (dial(&a, &b), dial(&c, &b));
    for number in 0..1000_u32 {
        a.notify(&flood, &number.to_le_bytes()).unwrap();
    }
    eventually("its share is full", || b.inbox().len() == 4);
    c.notify(&calm, b"calm").unwrap();
    eventually("the other gets through", || b.inbox().len() == 5);
    let mut expected = 0_u32;
    for _ in 0..1001 {
        let message = b.inbox().recv(soon()).unwrap();
        assert!(b.inbox().len() <= 5);
        if message.from == name("a") {
            assert_eq!(message.bytes, expected.to_le_bytes());
            expected += 1;
        }
    }
    assert_eq!(expected, 1000);
}

#[test]
fn a_connection_held_back_by_the_inbox_can_still_be_cut() {
    let b = builder("b").inbox_capacity(1).bind("127.0.0.1:0").unwrap();
    let mut raw = Raw::welcome(&b, "a");
    (1..=10).for_each(|sequence| raw.frame(Frame::Notify { sequence, message: b"more" }));
    eventually("its share is full", || b.inbox().len() == 1);
    assert_eq!(b.cut_inbound_of(&name("a")), 1);
    eventually("it is gone", || b.inbound().is_empty());
}

#[test]
fn a_reader_that_does_not_take_its_bytes_is_not_served_ahead() {
    let b = tcp("b");
    let len = 1 << 20;
    let (_page, grant, mut raw) = lent(&b, "a", len, Access::Read);
    raw.stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    for id in 0..10_000 {
        let mut bytes = Vec::new();
        raw.codec.encode(&Frame::Read { transfer: TransferId(id), page: grant.remote() }, &mut bytes);
        if raw.stream.write_all(&bytes).is_err() {
            break;
        }
    }
    std::thread::sleep(Duration::from_millis(300));
    let entry = &b.inbound()[0];
    let asked = entry.received / (HEADER + 48) as u64;
    let answered = entry.sent / len as u64;
    assert!(asked <= answered + 70, "{asked} requests taken in, {answered} answered");
}
