//! Connects that fail, and why.

use crate::support::*;
use peerage::transport::tcp::{TcpAddress, TcpError};
use peerage::{Clock, ConnectContext, DataPlane, ErrorClass, Transport, TransportError};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

#[test]
fn a_connect_that_fails_says_why_and_whose_fault_it_is() {
    let a = tcp("a");
    let reserved = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    reserved.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let nobody: TcpAddress = reserved.local_addr().unwrap().as_socket().unwrap().into();
    let fail = |to: &TcpAddress, limit: Duration| {
        let cx = ConnectContext::standalone(name("b"), generation(), Instant::now() + limit);
        let error = a.connect(&cx, to).unwrap_err();
        let text = chain(&error);
        assert!(text.contains("\"b\"") && text.contains(&to.to_string()), "{text}");
        error
    };
    let refused = fail(&nobody, LONG);
    assert!(matches!(refused, TcpError::Unreachable { .. }), "{refused:?}");
    assert_eq!((refused.class(), refused.native_code()), (ErrorClass::PeerBroken, Some(111)));

    let unknown = fail(&TcpAddress::new("no-such-host.invalid:7000").unwrap(), LONG);
    assert!(matches!(unknown, TcpError::Unresolvable { .. }), "{unknown:?}");
    assert_eq!(unknown.class(), ErrorClass::PeerBroken);

    let other = tcp("c");
    let wrong = fail(&address(&other), LONG);
    assert!(matches!(&wrong, TcpError::WrongName { actual, .. } if *actual == name("c")), "{wrong:?}");
    assert_eq!(wrong.class(), ErrorClass::Incompatible);
    assert!(other.inbound().is_empty());

    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = fail(&mute.local_addr().unwrap().into(), Duration::from_millis(200));
    assert!(matches!(silent, TcpError::TimedOut { .. }), "{silent:?}");
    assert_eq!(silent.class(), ErrorClass::PeerBroken);
}

#[test]
fn an_acceptor_that_never_answers_is_given_up_after_the_handshake_timeout() {
    let a = builder("a").handshake_timeout(Duration::from_millis(100)).bind("127.0.0.1:0").unwrap();
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let cx = ConnectContext::standalone(name("b"), generation(), Instant::now() + 100 * LONG);
    let error = a.connect(&cx, &mute.local_addr().unwrap().into()).unwrap_err();
    assert!(matches!(error, TcpError::TimedOut { .. }), "{error:?}");
    let (mut stream, _) = mute.accept().unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    assert!(stream.read_to_end(&mut Vec::new()).is_ok(), "the socket is closed");
}

#[test]
fn a_deadline_is_told_by_the_clock_that_was_given() {
    let clock = Clock::manual();
    let a = builder("a").clock(clock.clone()).handshake_timeout(1000 * LONG).bind("127.0.0.1:0").unwrap();
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let cx = ConnectContext::standalone(name("b"), generation(), clock.now() + 100 * LONG);
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| a.connect(&cx, &mute.local_addr().unwrap().into()).map(drop));
        let _accepted = mute.accept().unwrap();
        assert!(!connecting.is_finished());
        clock.advance(100 * LONG);
        assert!(matches!(connecting.join().unwrap(), Err(TcpError::TimedOut { .. })));
    });
}

#[test]
fn an_acceptor_of_another_kind_is_incompatible() {
    let a = tcp("a");
    let answers = |said: &'static [u8]| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap().into();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(said).unwrap();
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let cx = ConnectContext::standalone(name("b"), generation(), soon());
        let error = a.connect(&cx, &to).unwrap_err();
        server.join().unwrap();
        error
    };
    for said in [
        &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
        b"peerage\x01\x09\x00",
        b"peerage\x01\x02\x00\xff\0\0\0\0\0\0\0\0\0\0\0\0\x01\0x",
    ] {
        let error = answers(said);
        assert!(matches!(error, TcpError::Incompatible { .. }), "{error:?}");
        assert_eq!(error.class(), ErrorClass::Incompatible);
    }
}

#[test]
fn a_connect_waits_as_long_as_the_acceptor_was_told_to_delay() {
    let delay = Duration::from_millis(80);
    let (a, b) = (tcp("a"), builder("b").accept_delay(delay).bind("127.0.0.1:0").unwrap());
    let start = Instant::now();
    disconnect(&a, dial(&a, &b));
    assert!(start.elapsed() >= delay);
}

/// fails if: a time of a setting is added to the present, or multiplied, as it was given.
#[test]
fn a_limit_may_be_for_ever() {
    const FOR_EVER: Duration = Duration::MAX;
    let patient = |called| builder(called).handshake_timeout(FOR_EVER);
    for (interval, dead_timeout) in
        [(FOR_EVER, FOR_EVER), (FOR_EVER / 2, FOR_EVER), (Duration::from_millis(1), FOR_EVER)]
    {
        let bound = |called| patient(called).keepalive(interval, dead_timeout).bind("127.0.0.1:0").unwrap();
        let (a, b) = (bound("a"), bound("b"));
        let connection = dial(&a, &b);
        a.notify(&connection, b"x").unwrap();
        assert_eq!(b.inbox().recv(soon()).unwrap().bytes, b"x");
        std::thread::sleep(Duration::from_millis(20)); // the keepalives of both sides have begun
        assert_eq!(b.inbound().len(), 1);
        disconnect(&a, connection);
    }
    let slow = patient("b").accept_delay(FOR_EVER).bind("127.0.0.1:0").unwrap();
    let cx = ConnectContext::standalone(name("b"), generation(), Instant::now() + Duration::from_millis(100));
    assert!(matches!(tcp("a").connect(&cx, &address(&slow)), Err(TcpError::TimedOut { .. })));
}
