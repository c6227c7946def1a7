//! What is refused on this side, before anything is sent.

use crate::support::*;
use peerage::transport::frame::{Decoded, Frame};
use peerage::transport::tcp::{BindError, Tcp, TcpAddress, TcpError};
use peerage::{DataPlane, ErrorClass, Post, Region, RemoteSlice, TransferKind, TransportError};
use std::time::Duration;

#[test]
fn an_address_that_would_not_be_safe_or_not_be_found_is_not_bound() {
    for address in ["0.0.0.0:0", "192.0.2.1:0", "[::]:0"] {
        let error = Tcp::bind(address).unwrap_err();
        assert!(matches!(error, BindError::NotLoopback { .. }), "{address}: {error:?}");
        assert!(error.to_string().contains("authenticated"), "{error}");
    }
    for (address, means) in [("192.0.2.1:0", "0.0.0.0:7000"), ("0.0.0.0:0", "127.0.0.1:7000")] {
        let means = TcpAddress::from(means.parse::<std::net::SocketAddr>().unwrap());
        let error = Tcp::builder().secret([7; 32]).advertise(means.clone()).bind(address).unwrap_err();
        assert!(matches!(&error, BindError::Unreachable { advertised } if *advertised == means), "{error:?}");
    }
    let error = Tcp::builder().secret([7; 32]).bind("0.0.0.0:0").unwrap_err();
    assert!(
        matches!(error, BindError::NothingToAdvertise { .. }) && error.to_string().contains("advertise"),
        "{error}"
    );
    let error = Tcp::builder().secret(b"fifteen bytes..").bind("127.0.0.1:0").unwrap_err();
    assert!(matches!(error, BindError::ShortSecret { len: 15, min: 16 }), "{error:?}");
    assert!(matches!(Tcp::bind("no port"), Err(BindError::Unresolvable(_))));
    let taken = tcp("a");
    let error = Tcp::bind(taken.local_addr()).unwrap_err();
    assert!(matches!(&error, BindError::Listen { address, .. } if *address == taken.local_addr()), "{error:?}");
    assert!(error.to_string().contains("another process listens there"), "{error}");
}

#[test]
fn limits_of_nothing_are_refused() {
    for builder in [
        Tcp::builder().max_inbound(0),
        Tcp::builder().outbound_queue(0),
        Tcp::builder().inbox_capacity(0),
        Tcp::builder().max_notification(0),
        Tcp::builder().max_notification(1 << 30),
    ] {
        assert!(matches!(builder.bind("127.0.0.1:0"), Err(BindError::Limit { .. })));
    }
    let hurried = Tcp::builder().handshake_timeout(Duration::ZERO).bind("127.0.0.1:0");
    assert!(matches!(hurried, Err(BindError::NoTimeForHandshakes)), "{hurried:?}");
}

#[test]
fn a_runtime_that_can_not_serve_is_refused_and_one_of_many_threads_serves() {
    let one = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let refused = Tcp::builder().handle(one.handle().clone()).bind("127.0.0.1:0");
    assert!(matches!(refused, Err(BindError::CurrentThreadRuntime)));
    for (lacks, has_time) in [("time", false), ("I/O", true)] {
        // fails if: what a runtime lacks is found out by the first dialer.
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let half =
            if has_time { builder.enable_time() } else { builder.enable_io() }.worker_threads(1).build().unwrap();
        let refused = Tcp::builder().handle(half.handle().clone()).bind("127.0.0.1:0");
        assert!(matches!(refused, Err(BindError::RuntimeLacks { what }) if what == lacks), "{refused:?}");
    }
    let many = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let a = builder("a").handle(many.handle().clone()).bind("127.0.0.1:0").unwrap();
    let b = tcp("b");
    let (there, back) = (dial(&a, &b), dial(&b, &a));
    a.notify(&there, b"there").unwrap();
    b.notify(&back, b"back").unwrap();
    assert_eq!(b.inbox().recv(soon()).unwrap().bytes, b"there");
    assert_eq!(a.inbox().recv(soon()).unwrap().bytes, b"back");
    drop(many);
    assert!(matches!(ended(&a, &there), TcpError::Ended { source: Some(_), .. }));
    disconnect(&a, there);
    assert_eq!(try_dial(&a, &b).unwrap_err().class(), ErrorClass::PeerBroken);
}

#[test]
fn a_full_queue_is_busy_and_nothing_of_the_message_was_sent() {
    let a = builder("a").outbound_queue(100_000).bind("127.0.0.1:0").unwrap();
    let (mut raw, connection) = dial_raw(&a);
    let mut accepted = 0_u32;
    let busy = loop {
        match a.notify(&connection, &[&accepted.to_le_bytes()[..], &[0; 10_000]].concat()) {
            Ok(()) => accepted += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(busy, TcpError::QueueFull { limit: 100_000, .. }), "{busy:?}");
    assert!(accepted < 10_000, "{accepted} messages: more than sockets may hold");
    assert!(matches!(busy.class(), ErrorClass::Busy { .. }));
    let remote = RemoteSlice { grant: 1, region: 1, offset: 0, len: 8 };
    // The sockets may take some more at any moment.
    let refused = loop {
        while a.notify(&connection, b"last").is_ok() {
            accepted += 1;
        }
        let (write, _transfer) = Post::standalone(TransferKind::Write, Region::zeroed(8).slice(0..8).unwrap(), remote);
        match a.post(&connection, write) {
            Ok(()) => accepted += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, TcpError::QueueFull { .. }), "{refused:?}");
    for _ in 0..accepted {
        raw.next();
    }
    eventually("there is room again", || a.notify(&connection, b"again").is_ok());
    let bytes = raw.next();
    assert!(matches!(raw.codec.decode(&bytes), Ok(Decoded::Frame(Frame::Notify { message: b"again", .. }, _))));
}

#[test]
fn what_can_never_be_sent_is_a_local_fault() {
    let (a, b) = (tcp("a"), builder("b").max_notification(100).bind("127.0.0.1:0").unwrap());
    let connection = dial(&a, &b);
    assert_eq!(connection.max_notification(), 100, "the lesser of both sides");
    a.notify(&connection, &[1; 100]).unwrap();
    let error = a.notify(&connection, &[1; 101]).unwrap_err();
    assert!(matches!(error, TcpError::TooLong { len: 101, max: 100, .. }), "{error:?}");
    assert_eq!(error.class(), ErrorClass::Local);
    let remote = RemoteSlice { grant: 1, region: 1, offset: 0, len: 9 };
    let (odd, _transfer) = Post::standalone(TransferKind::Read, Region::zeroed(8).slice(0..8).unwrap(), remote);
    let error = a.post(&connection, odd).unwrap_err();
    assert!(matches!(error, TcpError::Length { local: 8, remote: 9, .. }), "{error:?}");
    assert_eq!(b.inbox().recv(soon()).unwrap().bytes, [1; 100]);
}
