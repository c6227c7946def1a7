//! What the tests share: transports, contexts, and strangers that speak by hand.

use peerage::transport::frame::{ANSWER_MAX, Answer, Codec, Decoded, Frame, Hello, Verdict};
use peerage::transport::tcp::{Tcp, TcpAddress, TcpBuilder, TcpConnection, TcpError};
use peerage::{
    Access, CloseContext, CloseReason, Closed, ConnectContext, DataPlane, ErrorClass, Generation, Grant, Incarnation,
    Liveness, PeerName, Post, ProbeContext, Refusal, Region, RemoteSlice, Transfer, TransferId, TransferKind,
    Transport, TransportError,
};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Long enough for anything that happens at all on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(30);

pub(crate) fn soon() -> Instant {
    Instant::now() + LONG
}

pub(crate) fn name(name: &str) -> PeerName {
    PeerName::new(name).unwrap()
}

pub(crate) fn generation() -> Generation {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    Generation(NEXT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn builder(called: &str) -> TcpBuilder {
    // Strangers of these tests answer no pings.
    Tcp::builder().name(name(called)).without_keepalive()
}

pub(crate) fn tcp(called: &str) -> Tcp {
    builder(called).bind("127.0.0.1:0").unwrap()
}

pub(crate) fn address(of: &Tcp) -> TcpAddress {
    of.local_addr().into()
}

pub(crate) fn try_dial(from: &Tcp, to: &Tcp) -> Result<TcpConnection, TcpError> {
    let cx = ConnectContext::standalone(to.local_name().unwrap().clone(), generation(), soon());
    from.connect(&cx, &address(to)).map(|connected| connected.connection)
}

pub(crate) fn dial(from: &Tcp, to: &Tcp) -> TcpConnection {
    try_dial(from, to).unwrap()
}

pub(crate) fn disconnect(from: &Tcp, connection: TcpConnection) {
    let cx = CloseContext { name: name("peer"), generation: Generation(0), deadline: soon() };
    assert!(matches!(from.disconnect(&cx, connection, CloseReason::Removed), Closed::Released));
}

pub(crate) fn post(
    from: &Tcp,
    over: &TcpConnection,
    kind: TransferKind,
    local: &Region,
    remote: RemoteSlice,
) -> Transfer {
    let (post, transfer) = Post::standalone(kind, local.slice(0..local.len()).unwrap(), remote);
    from.post(over, post).unwrap();
    transfer
}

pub(crate) fn filled(len: usize, salt: usize) -> Region {
    let region = Region::zeroed(len);
    region.slice(0..len).unwrap().write(0, &pattern(len, salt)).unwrap();
    region
}

pub(crate) fn pattern(len: usize, salt: usize) -> Vec<u8> {
    (0..len).map(|at| ((at / 7) ^ at ^ salt) as u8).collect()
}

pub(crate) fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let end = soon();
    while !is() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The whole chain of messages, as a log shows it.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        text += &format!(": {error}");
        next = error.source();
    }
    text
}

/// A stranger that speaks the handshake by hand.
pub(crate) struct Raw {
    pub(crate) stream: TcpStream,
    pub(crate) codec: Codec,
}

impl Raw {
    pub(crate) fn silent(to: &Tcp) -> Raw {
        let stream = TcpStream::connect(to.local_addr()).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        Raw { stream, codec: Codec::new(Generation(1), 64 * 1024) }
    }

    pub(crate) fn hello(to: &Tcp, called: &str, generation: Generation) -> (Raw, Answer) {
        let mut raw = Self::silent(to);
        raw.codec = Codec::new(generation, 64 * 1024);
        let target = to.local_name().unwrap().clone();
        raw.say(&Hello { name: name(called), incarnation: Incarnation(9), generation, target, nonce: None });
        let answer = raw.answer();
        (raw, answer)
    }

    pub(crate) fn welcome(to: &Tcp, called: &str) -> Raw {
        let (raw, answer) = Self::hello(to, called, generation());
        assert_eq!(answer.verdict, Verdict::Welcome);
        raw
    }

    pub(crate) fn say(&mut self, hello: &Hello) {
        let mut bytes = Vec::new();
        hello.encode(&mut bytes);
        self.bytes(&bytes);
    }

    pub(crate) fn answer(&mut self) -> Answer {
        let (mut bytes, mut have) = ([0; ANSWER_MAX], 0);
        loop {
            match Answer::decode(&bytes[..have]).unwrap() {
                Decoded::Frame(answer, _) => return answer,
                Decoded::Need(need) => {
                    self.stream.read_exact(&mut bytes[have..need]).unwrap();
                    have = need;
                }
            }
        }
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub(crate) fn frame(&mut self, frame: Frame<'_>) {
        let mut bytes = Vec::new();
        self.codec.encode(&frame, &mut bytes);
        self.bytes(&bytes);
    }

    /// The next frame that comes, as bytes.
    pub(crate) fn next(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while let Decoded::Need(need) = self.codec.decode(&bytes).unwrap() {
            let have = bytes.len();
            bytes.resize(need, 0);
            self.stream.read_exact(&mut bytes[have..]).unwrap();
        }
        bytes
    }

    pub(crate) fn ack(&mut self) -> (TransferId, Option<Refusal>) {
        let bytes = self.next();
        match self.codec.decode(&bytes) {
            Ok(Decoded::Frame(Frame::Ack { transfer, refusal }, _)) => (transfer, refusal),
            other => panic!("not an ack: {other:?}"),
        }
    }

    /// An acceptor called `raw` that welcomes whoever dialled.
    pub(crate) fn accepted(stream: TcpStream) -> Raw {
        stream.set_read_timeout(Some(LONG)).unwrap();
        let mut raw = Raw { stream, codec: Codec::new(Generation(1), 64 * 1024) };
        let mut bytes = Vec::new();
        let hello = loop {
            match Hello::decode(&bytes).unwrap() {
                Decoded::Frame(hello, _) => break hello,
                Decoded::Need(need) => {
                    let have = bytes.len();
                    bytes.resize(need, 0);
                    raw.stream.read_exact(&mut bytes[have..]).unwrap();
                }
            }
        };
        raw.codec = Codec::new(hello.generation, 64 * 1024);
        let mut out = Vec::new();
        let (name, incarnation) = (name("raw"), Incarnation(3));
        Answer { verdict: Verdict::Welcome, name, incarnation, max_notification: 64 * 1024, token: None }
            .encode(&mut out);
        raw.bytes(&out);
        raw
    }

    /// Whether the other side has closed the connection, and not just fallen silent.
    pub(crate) fn is_closed(&mut self) -> bool {
        match self.stream.read_to_end(&mut Vec::new()) {
            Ok(_) => true,
            Err(error) => matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
        }
    }
}

/// An acceptor that speaks by hand, and the connection of a `Tcp` to it.
pub(crate) fn dial_raw(from: &Tcp) -> (Raw, TcpConnection) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to: TcpAddress = listener.local_addr().unwrap().into();
    let cx = ConnectContext::standalone(name("raw"), generation(), soon());
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| from.connect(&cx, &to).unwrap().connection);
        let raw = Raw::accepted(listener.accept().unwrap().0);
        (raw, connecting.join().unwrap())
    })
}

/// Waits until a connection has ended, without sending a message over it, and answers why.
pub(crate) fn ended(from: &Tcp, connection: &TcpConnection) -> TcpError {
    let cx = ProbeContext { name: name("peer"), generation: Generation(0), deadline: soon() };
    eventually("the connection ends", || from.probe(&cx, connection) == Liveness::Dead);
    let why = from.notify(connection, b"late").unwrap_err();
    assert_eq!(why.class(), ErrorClass::PeerBroken);
    why
}

/// A page of `b` lent to `to`, and a stranger of that name.
pub(crate) fn lent(b: &Tcp, to: &str, len: usize, access: Access) -> (Region, Grant, Raw) {
    let page = Region::zeroed(len);
    let grant = b.grants().lend(&name(to), &page.slice(0..len).unwrap(), access);
    (page, grant, Raw::welcome(b, to))
}

/// A transfer number of a stranger's own.
pub(crate) const T: TransferId = TransferId(77);
