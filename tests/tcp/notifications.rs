//! Messages: each once, in order, and none of a connection that its sender has left behind.

use crate::support::*;
use peerage::transport::frame::{Codec, Frame, HEADER};
use peerage::{DataPlane, Generation, TransferId};
use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};

fn note(sequence: u64, message: &[u8]) -> Frame<'_> {
    Frame::Notify { sequence, message }
}

#[test]
fn a_message_that_comes_again_or_behind_a_later_one_is_dropped_and_counted() {
    let b = tcp("b");
    let mut raw = Raw::welcome(&b, "a");
    for sequence in [1, 2, 2, 1, 5, 3, 0, 6] {
        raw.frame(note(sequence, &[sequence as u8]));
    }
    for sequence in [1, 2, 5, 6] {
        let message = b.inbox().recv(soon()).unwrap();
        assert_eq!((message.sequence, message.bytes), (Some(sequence), vec![sequence as u8]));
    }
    assert_eq!((b.inbound_counts().duplicates, b.inbound_counts().outdated), (4, 0));
    assert!(b.inbox().is_empty());
}

/// What is still under way, or comes later, over a connection that its sender has replaced is dropped and counted.
///
/// fails if: b12 (a replaced connection is heard like any other)
#[test]
fn case_b12_a_message_of_a_connection_that_its_sender_has_replaced_is_dropped_and_counted() {
    let b = builder("b").inbox_capacity(1).bind("127.0.0.1:0").unwrap();
    let (mut old, _) = Raw::hello(&b, "a", Generation(5));
    let mut other = Raw::welcome(&b, "c");
    (1..=2).for_each(|sequence| old.frame(note(sequence, b"old")));
    eventually("its share is full", || b.inbox().len() == 1);
    let (mut new, _) = Raw::hello(&b, "a", Generation(6));
    new.frame(note(1, b"new"));
    other.frame(note(1, b"of another"));
    eventually("all are there", || b.inbox().len() == 3);
    let mut seen: Vec<_> = (0..3).map(|_| b.inbox().recv(soon()).unwrap().bytes).collect();
    eventually("what was held back is dropped", || b.inbound_counts().outdated == 1);
    assert_eq!(seen.remove(0), b"old", "it came in time");
    seen.sort();
    assert_eq!(seen, [&b"new"[..], b"of another"]);

    old.frame(note(3, b"late"));
    eventually("as is what comes later", || b.inbound_counts().outdated == 2);
    drop(new);
    eventually("the newer one has gone", || b.inbound().len() == 2);
    old.frame(note(4, b"later"));
    eventually("the order stays", || b.inbound_counts().outdated == 3);
    assert!(b.inbox().is_empty());
    assert_eq!(b.inbound_counts().misbehaved, 0);

    drop(old);
    eventually("nothing of it is left", || b.inbound().len() == 1);
    let (mut again, _) = Raw::hello(&b, "a", Generation(5));
    again.frame(note(1, b"again"));
    assert_eq!(b.inbox().recv(soon()).unwrap().bytes, b"again", "and nothing is remembered");
}

#[test]
fn a_frame_of_an_unknown_kind_is_skipped_and_counted_in_both_directions() {
    let (a, b) = (tcp("a"), tcp("b"));
    let mut raw = Raw::welcome(&b, "c");
    for (sequence, kind) in (1..).zip([0, 99, 255]) {
        raw.frame(Frame::Unknown { kind, body: &[7; 1000] });
        raw.frame(note(sequence, b"goes on"));
        assert_eq!(b.inbox().recv(soon()).unwrap().sequence, Some(sequence));
    }
    assert_eq!((b.inbound_counts().unknown_frames, b.inbound_counts().misbehaved), (3, 0));

    let (mut raw, connection) = dial_raw(&a);
    raw.frame(Frame::Unknown { kind: 99, body: b"" });
    raw.frame(Frame::Ping(1));
    assert_eq!(raw.next().len(), HEADER + 8, "it answers");
    assert_eq!(a.inbound_counts().unknown_frames, 1);
    disconnect(&a, connection);
}

#[test]
fn after_a_flood_of_garbage_and_during_it_a_good_peer_connects() {
    let (a, b) = (tcp("a"), tcp("b"));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let (b, over) = (&b, &over);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    // Those of one thread begin well, and of another are as long as they get.
                    let garbage = [&b"peerage\x01\x02\x00"[..usize::from(thread) * 3], &[thread ^ 0xa5; 2000]].concat();
                    if let Ok(mut stream) = TcpStream::connect(b.local_addr()) {
                        let _ = stream.write_all(&garbage);
                    }
                }
            });
        }
        eventually("it rains", || b.inbound_counts().refused > 500);
        let connection = dial(&a, &b);
        a.notify(&connection, b"through").unwrap();
        assert_eq!(b.inbox().recv(soon()).unwrap().bytes, b"through");
        disconnect(&a, connection);
        over.store(true, Ordering::Relaxed);
    });
    let connection = dial(&a, &b);
    a.notify(&connection, b"after").unwrap();
    assert_eq!(b.inbox().recv(soon()).unwrap().bytes, b"after");
    assert_eq!((b.inbound_counts().accepted, b.inbound().len()), (2, 1));
}

#[test]
fn the_frames_have_these_very_bytes() {
    let codec = Codec::new(Generation(7), 100);
    let encoded = |frame: Frame<'_>| {
        let mut bytes = Vec::new();
        codec.encode(&frame, &mut bytes);
        bytes
    };
    let generation = [7, 0, 0, 0, 0, 0, 0, 0];
    let number = |number: u8| [number, 0, 0, 0, 0, 0, 0, 0];
    let expected = [&[10, 0, 0, 0, 1][..], &generation, &number(3), b"hi"].concat();
    assert_eq!(encoded(note(3, b"hi")), expected);
    let expected = [&[9, 0, 0, 0, 3][..], &generation, &number(4), b"x"].concat();
    assert_eq!(encoded(Frame::WriteData { transfer: TransferId(4), bytes: b"x" }), expected);
    let expected = [&[9, 0, 0, 0, 6][..], &generation, &number(4), &[0]].concat();
    assert_eq!(encoded(Frame::Ack { transfer: TransferId(4), refusal: None }), expected);
    assert_eq!(encoded(Frame::Ping(4)), [&[8, 0, 0, 0, 7][..], &generation, &number(4)].concat());
}
