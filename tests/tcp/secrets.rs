//! A shared secret: who has it gets through, and nobody else, also not by what they overheard.

use crate::support::*;
use peerage::transport::frame::{ANSWER_MAX, Answer, HELLO_MAX, Hello, TOKEN, VERSION, Verdict};
use peerage::transport::tcp::{Tcp, TcpAddress, TcpError};
use peerage::{ConnectContext, DataPlane, ErrorClass, Generation, Incarnation, Transport, TransportError};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

const SECRET: &[u8] = b"0123456789abcdef-shared";

fn sharing(called: &str, secret: &[u8]) -> Tcp {
    builder(called).secret(secret).bind("127.0.0.1:0").unwrap()
}

#[test]
fn who_shares_the_secret_gets_through() {
    let (a, b) = (sharing("a", SECRET), sharing("b", SECRET));
    let connection = dial(&a, &b);
    a.notify(&connection, b"hello").unwrap();
    assert_eq!(b.inbox().recv(soon()).unwrap().bytes, b"hello");
    assert_eq!((b.inbound_counts().accepted, b.inbound_counts().refused), (1, 0));
    disconnect(&a, connection);
}

#[test]
fn a_wrong_or_a_missing_secret_is_refused_with_the_peers_name_and_what_to_do() {
    let (a, b) = (sharing("a", SECRET), sharing("b", b"another secret of some length"));
    let (open_a, open_b) = (tcp("a"), tcp("b"));
    type Is = fn(&TcpError) -> bool;
    let cases: [(&Tcp, &Tcp, Is); 3] = [
        (&a, &b, |error| matches!(error, TcpError::WrongSecret { .. })),
        (&open_a, &b, |error| matches!(error, TcpError::SecretMissing { .. })),
        (&a, &open_b, |error| matches!(error, TcpError::SecretUnused { .. })),
    ];
    for (from, to, is) in cases {
        let error = try_dial(from, to).unwrap_err();
        assert!(is(&error), "{error:?}");
        assert_eq!(error.class(), ErrorClass::Incompatible, "trying again does not help");
        let text = error.to_string();
        assert!(text.contains("\"b\"") && text.contains("same") && text.contains("secret"), "{text}");
        assert!(to.inbound().is_empty());
    }
    assert_eq!((b.inbound_counts().refused, b.inbound_counts().unproven), (2, 2));
    for shown in [format!("{a:?}"), format!("{:?}", builder("a").secret(SECRET))] {
        assert!(!shown.contains("0123456789"), "{shown}");
        assert!(!shown.contains("48, 49, 50"), "{shown}");
    }
}

/// Passes bytes on, and keeps those of the dialer.
fn overheard(from: &Tcp, to: &Tcp) -> Vec<u8> {
    let between = TcpListener::bind("127.0.0.1:0").unwrap();
    let at: TcpAddress = between.local_addr().unwrap().into();
    let to_addr = to.local_addr();
    std::thread::scope(|scope| {
        let heard = scope.spawn(move || {
            let (mut dialer, _) = between.accept().unwrap();
            let mut acceptor = TcpStream::connect(to_addr).unwrap();
            let (mut back, mut answers) = (dialer.try_clone().unwrap(), acceptor.try_clone().unwrap());
            let answers = std::thread::spawn(move || std::io::copy(&mut answers, &mut back));
            let mut heard = Vec::new();
            let mut buffer = [0; 1000];
            while let Ok(read @ 1..) = dialer.read(&mut buffer) {
                heard.extend_from_slice(&buffer[..read]);
                acceptor.write_all(&buffer[..read]).unwrap();
            }
            drop(acceptor.shutdown(std::net::Shutdown::Both));
            drop(answers.join());
            heard
        });
        let cx = ConnectContext::standalone(to.local_name().unwrap().clone(), generation(), soon());
        let connection = from.connect(&cx, &at).unwrap().connection;
        disconnect(from, connection);
        heard.join().unwrap()
    })
}

#[test]
fn what_was_overheard_is_of_no_use_again() {
    let (a, b) = (sharing("a", SECRET), sharing("b", SECRET));
    let heard = overheard(&a, &b);
    eventually("it has gone", || b.inbound().is_empty());
    let mut raw = Raw::silent(&b);
    raw.bytes(&heard);
    assert_eq!(raw.answer().verdict, Verdict::Challenge);
    let refused = raw.answer();
    assert_eq!((refused.verdict, refused.token), (Verdict::WrongSecret, None), "and it learns no proof of ours");
    assert!(raw.is_closed());
    assert_eq!((b.inbound_counts().accepted, b.inbound_counts().unproven), (1, 1));
    assert!(b.inbound().is_empty());
}

/// An acceptor called "b" that reads a hello and the proof that follows a challenge, and says `answers` in turn.
fn impostor(answers: Vec<Answer>) -> (TcpAddress, std::thread::JoinHandle<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().into();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        let mut heard = vec![0; HELLO_MAX];
        let hello = stream.read(&mut heard).unwrap();
        assert!(hello > 0);
        for (at, answer) in answers.iter().enumerate() {
            if at > 0 {
                stream.read_exact(&mut [0; TOKEN]).unwrap();
            }
            let mut bytes = Vec::new();
            answer.encode(&mut bytes);
            stream.write_all(&bytes).unwrap();
        }
        stream.read_to_end(&mut heard).unwrap_or(0)
    });
    (at, server)
}

#[test]
fn an_acceptor_that_does_not_know_the_secret_is_not_believed_whatever_it_says() {
    let a = sharing("a", SECRET);
    let say =
        |verdict, token| Answer { verdict, name: name("b"), incarnation: Incarnation(1), max_notification: 100, token };
    let challenge = || say(Verdict::Challenge, Some([1; TOKEN]));
    let lies = [
        ("welcome without a proof", vec![say(Verdict::Welcome, None)]),
        ("full without a proof", vec![say(Verdict::Full, None)]),
        ("a challenge and no proof", vec![challenge(), say(Verdict::Welcome, None)]),
        ("a challenge and a wrong proof", vec![challenge(), say(Verdict::Welcome, Some([2; TOKEN]))]),
        ("a challenge and a wrong proof of being full", vec![challenge(), say(Verdict::Full, Some([2; TOKEN]))]),
        ("two challenges", vec![challenge(), challenge()]),
    ];
    for (what, answers) in lies {
        let (at, server) = impostor(answers);
        let cx = ConnectContext::standalone(name("b"), generation(), soon());
        let error = a.connect(&cx, &at).unwrap_err();
        assert!(matches!(error, TcpError::Unproven { .. }), "{what}: {error:?}");
        assert_eq!(error.class(), ErrorClass::Incompatible, "{what}");
        assert!(error.to_string().contains("\"b\""), "{error}");
        assert_eq!(server.join().unwrap(), 0, "{what}: nothing more is sent to it");
    }
    let (at, server) = impostor(vec![Answer { name: name("c"), ..challenge() }]);
    let cx = ConnectContext::standalone(name("b"), generation(), soon());
    let error = a.connect(&cx, &at).unwrap_err();
    assert!(matches!(&error, TcpError::WrongName { actual, .. } if *actual == name("c")), "{error:?}");
    assert_eq!(server.join().unwrap(), 0, "another name gets no proof");
}

#[test]
fn a_stranger_that_proves_nothing_costs_its_place_until_the_handshake_timeout_and_no_more() {
    let b = builder("b").secret(SECRET).handshake_timeout(Duration::from_millis(300)).bind("127.0.0.1:0").unwrap();
    let hello = Hello {
        name: name("a"),
        incarnation: Incarnation(1),
        generation: Generation(1),
        target: name("b"),
        nonce: Some([5; TOKEN]),
    };
    let mut silent = Raw::silent(&b);
    silent.say(&hello);
    assert_eq!(silent.answer().verdict, Verdict::Challenge);
    assert!(b.inbound().is_empty(), "a claim that is not proven takes no place");
    assert!(silent.is_closed());
    assert_eq!(b.inbound_counts().timed_out, 1);

    let b = builder("b").secret(SECRET).handshake_timeout(100 * LONG).bind("127.0.0.1:0").unwrap();
    let flood: Vec<_> = (0..300)
        .map(|_| {
            let mut raw = Raw::silent(&b);
            raw.say(&hello);
            raw
        })
        .collect();
    let a = sharing("a", SECRET);
    let connection = dial(&a, &b);
    a.notify(&connection, b"through").unwrap();
    assert_eq!(b.inbox().recv(soon()).unwrap().bytes, b"through");
    assert!(b.inbound_counts().evicted >= 300 - 128, "{:?}", b.inbound_counts());
    drop(flood);
}

#[test]
fn beyond_loopback_it_listens_with_a_secret_only_and_says_where() {
    let at: TcpAddress = "prefill-0.example:7000".parse().unwrap();
    let b = builder("b").secret(SECRET).advertise(at.clone()).bind("0.0.0.0:0").unwrap();
    assert_eq!(b.address(), &at);
    let a = sharing("a", SECRET);
    assert_eq!(a.address(), &TcpAddress::from(a.local_addr()));
    let near = SocketAddr::from(([127, 0, 0, 1], b.local_addr().port()));
    let cx = ConnectContext::standalone(name("b"), generation(), soon());
    disconnect(&a, a.connect(&cx, &near.into()).unwrap().connection);

    let refused = |from: &Tcp, to: &str| {
        let to = TcpAddress::from(to.parse::<SocketAddr>().unwrap());
        let cx = ConnectContext::standalone(name("b"), generation(), soon());
        let error = from.connect(&cx, &to).unwrap_err();
        assert_eq!(error.class(), ErrorClass::Incompatible, "{error:?}");
        error
    };
    assert!(matches!(refused(&a, "0.0.0.0:7000"), TcpError::Wildcard { .. }));
    assert!(matches!(refused(&a, "[::]:7000"), TcpError::Wildcard { .. }));
    let open = refused(&tcp("a"), "192.0.2.1:7000");
    assert!(matches!(open, TcpError::NotLoopback { .. }) && open.to_string().contains("secret"), "{open}");
}

#[test]
fn two_versions_tell_each_other_apart_also_with_a_secret() {
    let b = sharing("b", SECRET);
    let mut raw = Raw::silent(&b);
    raw.bytes(b"peerage\x01\x01\x00");
    let answer = raw.answer();
    assert_eq!((answer.verdict, VERSION), (Verdict::WrongVersion, 2));
    assert_eq!((answer.token, b.inbound_counts().unproven), (None, 0));

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().into();
    let old = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // What version 1 says to any other.
        stream.write_all(b"peerage\x01\x01\x00\x01\0\0\0\0\0\0\0\0\0\0\x01\0\x01b").unwrap();
        stream.read_to_end(&mut Vec::new())
    });
    let cx = ConnectContext::standalone(name("b"), generation(), soon());
    let error = b.connect(&cx, &at).unwrap_err();
    assert!(matches!(error, TcpError::Incompatible { .. }) && chain(&error).contains("version 1"), "{}", chain(&error));
    drop(old.join().unwrap());
}

#[test]
fn the_handshake_has_these_very_bytes() {
    let fixed = [&b"peerage\x01\x02\x00"[..], &[5, 0, 0, 0, 0, 0, 0, 0], &[7, 0, 0, 0, 0, 0, 0, 0]].concat();
    let hello = Hello {
        name: name("a"),
        incarnation: Incarnation(5),
        generation: Generation(7),
        target: name("bc"),
        nonce: None,
    };
    let mut bytes = Vec::new();
    hello.encode(&mut bytes);
    assert_eq!(bytes, [&fixed[..], &[1, 2, 0], b"abc"].concat());
    bytes.clear();
    Hello { nonce: Some([9; TOKEN]), ..hello }.encode(&mut bytes);
    assert_eq!(bytes, [&fixed[..], &[1, 2, 1], &[9; TOKEN], b"abc"].concat());
    bytes.clear();
    let token = Some([8; TOKEN]);
    Answer { verdict: Verdict::Challenge, name: name("b"), incarnation: Incarnation(5), max_notification: 258, token }
        .encode(&mut bytes);
    assert_eq!(bytes, [&b"peerage\x01\x02\x00\x05\x05"[..], &[0; 7], &[2, 1, 0, 0, 1, 1], &[8; TOKEN], b"b"].concat());
    assert!(bytes.len() <= ANSWER_MAX);
}
