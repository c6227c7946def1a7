//! The ordinary way: messages, pages, probes.

use crate::support::*;
use peerage::transport::frame::{CHUNK, Decoded, Frame};
use peerage::transport::tcp::{TcpConnection, TcpError};
use peerage::{
    Access, Capabilities, ConnectContext, DataPlane, ErrorClass, Generation, Liveness, Outcome, ProbeContext, Region,
    RemoteSlice, TransferKind, Transport, TransportError,
};
use std::time::{Duration, Instant};

#[test]
fn messages_come_in_order_with_the_senders_identity() {
    let (a, b) = (tcp("a"), tcp("b"));
    let cx = ConnectContext::standalone(name("b"), generation(), soon());
    let connected = a.connect(&cx, &address(&b)).unwrap();
    assert_eq!(connected.incarnation, Some(b.incarnation()));
    for number in 0..1000_u32 {
        a.notify(&connected.connection, &number.to_le_bytes()).unwrap();
    }
    for number in 0..1000_u32 {
        let message = b.inbox().recv(soon()).unwrap();
        assert_eq!(message.bytes, number.to_le_bytes());
        assert_eq!(message.from, name("a"));
        assert_eq!((message.incarnation, message.generation), (Some(a.incarnation()), Some(cx.generation())));
    }
    a.notify(&connected.connection, b"to a queue that sleeps").unwrap();
    assert_eq!(b.inbox().recv(soon()).unwrap().bytes, b"to a queue that sleeps");
    disconnect(&a, connected.connection);
}

#[test]
fn pages_are_written_and_read_whole() {
    let (a, b) = (tcp("a"), tcp("b"));
    let connection = dial(&a, &b);
    for len in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 5 * CHUNK + 17] {
        let page = Region::zeroed(len);
        let slice = page.slice(0..len).unwrap();
        let grant = b.grants().lend(&name("a"), &slice, Access::Write);
        let write = post(&a, &connection, TransferKind::Write, &filled(len, 3), grant.remote());
        assert_eq!(write.wait(soon()), Some(Outcome::Done));
        eventually("the pages are ours", || write.is_quiescent());
        assert_eq!(slice.to_vec(), pattern(len, 3), "{len} bytes written");

        let grant = b.grants().lend(&name("a"), &slice, Access::Read);
        let back = Region::zeroed(len);
        let read = post(&a, &connection, TransferKind::Read, &back, grant.remote());
        assert_eq!(read.wait(soon()), Some(Outcome::Done));
        assert_eq!(back.slice(0..len).unwrap().to_vec(), pattern(len, 3), "{len} bytes read");
    }
    disconnect(&a, connection);
}

#[test]
fn a_message_does_not_wait_behind_a_large_write() {
    let a = tcp("a");
    let (mut raw, connection) = dial_raw(&a);
    let len = 64 << 20;
    let remote = RemoteSlice { grant: 1, region: 1, offset: 0, len: len as u64 };
    let write = post(&a, &connection, TransferKind::Write, &Region::zeroed(len), remote);
    raw.next();
    a.notify(&connection, b"first").unwrap();
    let mut arrived = 0;
    loop {
        let bytes = raw.next();
        match raw.codec.decode(&bytes) {
            Ok(Decoded::Frame(Frame::WriteData { bytes, .. }, _)) => arrived += bytes.len(),
            Ok(Decoded::Frame(Frame::Notify { message, .. }, _)) => break assert_eq!(message, b"first"),
            other => panic!("{other:?}"),
        }
    }
    assert!(arrived < len, "the write was still under way");
    assert_eq!(write.try_outcome(), None);
    disconnect(&a, connection);
}

#[test]
fn capabilities_say_what_it_does() {
    let all = Capabilities::CLOSE_QUIESCES
        .with(Capabilities::NATIVE_CLOSE)
        .with(Capabilities::PROBE)
        .with(Capabilities::UPDATES_IN_PLACE)
        .with(Capabilities::OVERLAP);
    assert_eq!(tcp("a").capabilities(), all);
    let one = builder("a").overlap(false).bind("127.0.0.1:0").unwrap();
    assert!(!one.capabilities().contains(Capabilities::OVERLAP));
}

#[test]
fn transfers_of_many_threads_share_one_connection() {
    let (a, b) = (tcp("a"), tcp("b"));
    let connection = dial(&a, &b);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (a, b, connection) = (&a, &b, &connection);
            scope.spawn(move || {
                for round in 0..25 {
                    let (len, salt) = (1 + 7919 * round, thread * 100 + round);
                    let page = Region::zeroed(len);
                    let slice = page.slice(0..len).unwrap();
                    let grant = b.grants().lend(&name("a"), &slice, Access::Write);
                    let write = post(a, connection, TransferKind::Write, &filled(len, salt), grant.remote());
                    a.notify(connection, &[thread as u8]).unwrap();
                    assert_eq!(write.wait(soon()), Some(Outcome::Done));
                    assert_eq!(slice.to_vec(), pattern(len, salt));
                }
            });
        }
    });
    let mut per_thread = [0; 4];
    (0..100).for_each(|_| per_thread[usize::from(b.inbox().recv(soon()).unwrap().bytes[0])] += 1);
    assert_eq!(per_thread, [25; 4]);
}

#[test]
fn a_probe_tells_alive_from_dead() {
    let (a, b) = (tcp("a"), tcp("b"));
    let probe = |connection: &TcpConnection, limit: Duration| {
        let cx = ProbeContext { name: name("b"), generation: Generation(0), deadline: Instant::now() + limit };
        a.probe(&cx, connection)
    };
    let connection = dial(&a, &b);
    assert_eq!(probe(&connection, LONG), Liveness::Alive);
    let (raw, mute) = dial_raw(&a);
    assert_eq!(probe(&mute, Duration::from_millis(100)), Liveness::Dead, "a peer that does not answer");
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| probe(&mute, LONG));
        std::thread::sleep(Duration::from_millis(50));
        drop(raw);
        assert_eq!(asked.join().unwrap(), Liveness::Dead, "a peer that goes while it is asked");
    });
    assert_eq!(probe(&mute, LONG), Liveness::Dead, "a peer that is gone");
}

#[test]
fn a_probe_waits_behind_messages_that_fill_its_share_of_the_inbox() {
    let (a, b) = (tcp("a"), builder("b").inbox_capacity(1).bind("127.0.0.1:0").unwrap());
    let connection = dial(&a, &b);
    (0..3).for_each(|_| a.notify(&connection, b"first").unwrap());
    let probe = |limit: Duration| {
        let cx = ProbeContext { name: name("b"), generation: Generation(0), deadline: Instant::now() + limit };
        a.probe(&cx, &connection)
    };
    assert_eq!(probe(Duration::from_millis(100)), Liveness::Dead);
    (0..3).for_each(|_| drop(b.inbox().recv(soon()).unwrap()));
    assert_eq!(probe(LONG), Liveness::Alive, "nothing was lost by it");
}

#[test]
fn a_registration_is_taken_back_once() {
    let (a, region) = (tcp("a"), Region::zeroed(8));
    a.register(&region).unwrap();
    a.register(&region).unwrap();
    a.deregister(&region).unwrap();
    let error = a.deregister(&region).unwrap_err();
    assert!(matches!(error, TcpError::NotRegistered { region: id } if id == region.id()));
    assert_eq!(error.class(), ErrorClass::Local);
}
