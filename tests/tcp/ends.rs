//! Connections that end, from either side and in every way.

use crate::support::*;
use peerage::transport::frame::{Decoded, Frame, HEADER};
use peerage::transport::tcp::{Tcp, TcpConnection};
use peerage::{
    DataPlane, ErrorClass, Generation, Outcome, Post, Region, RemoteSlice, TransferError, TransferKind, TransportError,
};
use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn disconnect_ends_every_transfer_once_and_the_pages_are_ours_again() {
    let a = tcp("a");
    let (mut raw, connection) = dial_raw(&a);
    let (large, small) = (Region::zeroed(64 << 20), Region::zeroed(8));
    let remote = |len| RemoteSlice { grant: 1, region: 1, offset: 0, len };
    let begun = post(&a, &connection, TransferKind::Write, &large, remote(64 << 20));
    raw.next();
    let waiting: Vec<_> =
        [TransferKind::Write, TransferKind::Read].map(|kind| post(&a, &connection, kind, &small, remote(8))).into();
    disconnect(&a, connection);
    assert_eq!(begun.try_outcome(), Some(Outcome::Unknown));
    assert!(begun.is_quiescent());
    for transfer in waiting {
        assert_eq!(transfer.try_outcome(), Some(Outcome::Failed(TransferError::NotSent)));
        assert!(transfer.is_quiescent());
    }
    assert!(raw.is_closed());
}

#[test]
fn a_read_that_was_asked_for_is_unknown_when_the_peer_dies() {
    let a = tcp("a");
    let (mut raw, connection) = dial_raw(&a);
    let remote = RemoteSlice { grant: 1, region: 1, offset: 0, len: 8 };
    let read = post(&a, &connection, TransferKind::Read, &Region::zeroed(8), remote);
    raw.next();
    drop(raw);
    assert_eq!(read.wait(soon()), Some(Outcome::Unknown));
    eventually("the pages are ours", || read.is_quiescent());
    let (late, _transfer) = Post::standalone(TransferKind::Read, Region::zeroed(8).slice(0..8).unwrap(), remote);
    let error = a.post(&connection, late).unwrap_err();
    assert!(chain(&error).contains("closed the connection"), "{}", chain(&error));
    assert_eq!(error.class(), ErrorClass::PeerBroken);
    disconnect(&a, connection);
}

#[test]
fn a_connection_that_is_dropped_is_closed() {
    let a = tcp("a");
    let (mut raw, connection) = dial_raw(&a);
    drop(connection);
    assert!(raw.is_closed());
}

#[test]
fn a_cut_from_either_side_is_a_reset() {
    let (a, b) = (tcp("a"), tcp("b"));
    let connection = dial(&a, &b);
    assert_eq!(b.cut_inbound_of(&name("stranger")), 0);
    assert_eq!(b.cut_inbound_of(&name("a")), 1);
    let why = ended(&a, &connection);
    assert_eq!(why.native_code(), Some(104), "{}", chain(&why));
    assert!(chain(&why).contains("broke"), "{}", chain(&why));
    eventually("it is listed no more", || b.inbound().is_empty());
    assert!(!b.cut_inbound(&peerage::transport::tcp::InboundKey {
        name: name("a"),
        incarnation: a.incarnation(),
        generation: Generation(0)
    }));

    let (mut raw, connection) = dial_raw(&a);
    connection.cut();
    let why = ended(&a, &connection);
    assert!(chain(&why).contains("ended"), "{}", chain(&why));
    let reset = raw.stream.read_to_end(&mut Vec::new()).unwrap_err();
    assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn inbound_connections_are_listed_and_can_be_dropped_one_by_one() {
    let (a, b) = (tcp("a"), tcp("b"));
    let remote = RemoteSlice { grant: 1, region: 1, offset: 0, len: 0 };
    let (first, second) = (dial(&a, &b), dial(&a, &b));
    assert_eq!(b.inbound().len(), 2);
    let write = post(&a, &first, TransferKind::Write, &Region::zeroed(0), remote);
    write.wait(soon()).unwrap();
    let used = || b.inbound().into_iter().find(|entry| entry.received > 0).unwrap();
    let bytes = (HEADER as u64 + 48, HEADER as u64 + 9);
    eventually("both directions are counted", || (used().received, used().sent) == bytes);
    let entry = used();
    assert_eq!((&entry.key.name, entry.key.incarnation), (&name("a"), a.incarnation()));
    assert!(entry.peer_addr.ip().is_loopback());
    assert!(b.drop_inbound(&entry.key));
    ended(&a, &first);
    eventually("it is listed no more", || b.inbound().len() == 1);
    a.notify(&second, b"y").unwrap();
    assert_eq!(b.inbox().recv(soon()).unwrap().bytes, b"y");
    assert!(!b.drop_inbound(&entry.key));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn dropping_it_inside_async_code_ends_everything() {
    let (a, b) = (tcp("a"), tcp("b"));
    let (to, from) = (dial(&a, &b), dial(&b, &a));
    let inbox = a.inbox().clone();
    let port = a.local_addr();
    b.notify(&from, b"before").unwrap();
    eventually("it arrives", || !inbox.is_empty());
    drop(a);
    assert_eq!(inbox.next().await.unwrap().bytes, b"before");
    assert_eq!(inbox.next().await, None);
    ended(&b, &from);
    eventually("inbound connections end", || b.inbound().is_empty());
    eventually("the port is free", || Tcp::bind(port).is_ok());
    drop(to);
}

/// Somebody who sends as soon as a transfer has ended, from the thread that ended it.
struct Sends {
    from: Tcp,
    over: TcpConnection,
    woken: AtomicU64,
}

impl std::task::Wake for Sends {
    fn wake(self: Arc<Self>) {
        let _ = self.from.notify(&self.over, b"ended");
        self.woken.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn whoever_is_woken_by_a_transfer_may_send_at_once() {
    let a = tcp("a");
    let (mut raw, over) = dial_raw(&a);
    let sends = Arc::new(Sends { from: a, over, woken: AtomicU64::new(0) });
    let start = || {
        let remote = RemoteSlice { grant: 1, region: 1, offset: 0, len: 0 };
        let mut transfer = post(&sends.from, &sends.over, TransferKind::Write, &Region::zeroed(0), remote);
        let waker = std::task::Waker::from(sends.clone());
        let polled = std::pin::Pin::new(&mut transfer).poll(&mut std::task::Context::from_waker(&waker));
        assert!(polled.is_pending());
        transfer
    };
    let acked = start();
    raw.next();
    raw.frame(Frame::Ack { transfer: acked.id(), refusal: None });
    let bytes = raw.next();
    assert!(matches!(raw.codec.decode(&bytes), Ok(Decoded::Frame(Frame::Notify { message: b"ended", .. }, _))));
    let cut_off = start();
    raw.next();
    sends.over.cut();
    eventually("it is woken at the end too", || sends.woken.load(Ordering::Relaxed) == 2);
    assert_eq!(cut_off.try_outcome(), Some(Outcome::Unknown));
}

#[test]
fn a_runtime_that_was_given_keeps_nothing_of_it() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (a, b) = (
        builder("a").handle(runtime.handle().clone()).handshake_timeout(100 * LONG).bind("127.0.0.1:0").unwrap(),
        tcp("b"),
    );
    let (to, from) = (dial(&a, &b), dial(&b, &a));
    let mut stranger = Raw::silent(&a);
    let (port, inbox) = (a.local_addr(), a.inbox().clone());
    drop(a);
    assert_eq!(inbox.recv(soon()), None);
    ended(&b, &from);
    eventually("its own connections end", || b.inbound().is_empty());
    assert!(stranger.is_closed());
    eventually("the port is free", || Tcp::bind(port).is_ok());
    eventually("no task is left", || runtime.metrics().num_alive_tasks() == 0);
    drop(to);
}
