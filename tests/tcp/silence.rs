//! Peers that fall silent without ending anything: who notices, who must not.

use crate::support::*;
use peerage::transport::frame::{Codec, Frame};
use peerage::transport::tcp::{BindError, Tcp, TcpConnection, TcpError};
use peerage::{
    Access, ConnectContext, DataPlane, Liveness, Outcome, PeerTable, Phase, ProbeContext, Region, TransferKind,
    Transport,
};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const BEAT: Duration = Duration::from_millis(20);

fn watching(called: &str, dead_timeout: Duration) -> Tcp {
    builder(called).keepalive(BEAT, dead_timeout).bind("127.0.0.1:0").unwrap()
}

/// Forwards everything in both directions until it is muted: then nothing, and both sides' sockets stay open.
struct Between {
    at: SocketAddr,
    muted: Arc<AtomicBool>,
    gone: Arc<AtomicBool>,
}

impl Between {
    fn to(acceptor: &Tcp) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (at, to) = (listener.local_addr().unwrap(), acceptor.local_addr());
        let (muted, gone) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let flags = (muted.clone(), gone.clone());
        std::thread::spawn(move || {
            let dialer = listener.accept().unwrap().0;
            let acceptor = TcpStream::connect(to).unwrap();
            let there = (dialer.try_clone().unwrap(), acceptor.try_clone().unwrap());
            let other = flags.clone();
            std::thread::spawn(move || forward(there.0, there.1, &other));
            forward(acceptor, dialer, &flags);
        });
        Between { at, muted, gone }
    }

    fn mute(&self, muted: bool) {
        self.muted.store(muted, Ordering::SeqCst);
    }
}

impl Drop for Between {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::SeqCst);
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, (muted, gone): &(Arc<AtomicBool>, Arc<AtomicBool>)) {
    from.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
    let mut buffer = [0; 4096];
    while !gone.load(Ordering::SeqCst) {
        if muted.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(2));
            continue;
        }
        match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => {
                // What was sent after the muting is not let through, whenever it was read.
                while muted.load(Ordering::SeqCst) && !gone.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(2));
                }
                to.write_all(&buffer[..read]).unwrap_or(());
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => break,
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

fn dial_at(from: &Tcp, to: &Tcp, at: SocketAddr) -> TcpConnection {
    let cx = ConnectContext::standalone(to.local_name().unwrap().clone(), generation(), soon());
    from.connect(&cx, &at.into()).unwrap().connection
}

/// A dialer that vanished without a word is listed, then freed with all that was lent to it; the first transfer of the next
/// one goes through.
///
/// fails if: d6 (inbound connections have no dead timeout)
#[test]
fn case_d6_an_acceptor_frees_everything_of_a_dialer_that_vanished_without_a_word() {
    let (a, b) = (tcp("a"), watching("b", 10 * BEAT));
    let between = Between::to(&b);
    let connection = dial_at(&a, &b, between.at);
    let page = Region::zeroed(64);
    let slice = page.slice(0..64).unwrap();
    let grant = b.grants().lend(&name("a"), &slice, Access::Write);
    let write = post(&a, &connection, TransferKind::Write, &filled(64, 1), grant.remote());
    assert_eq!(write.wait(soon()), Some(Outcome::Done));
    assert_eq!((b.inbound().len(), grant.is_quiesced()), (1, false));
    between.mute(true);
    eventually("its place is free", || b.inbound().is_empty());
    assert!(grant.is_quiesced(), "and what was bound to it");
    let counts = b.inbound_counts();
    assert_eq!((counts.silent, counts.lost, counts.goodbyes), (1, 0, 0));

    let again = dial(&a, &b);
    let grant = b.grants().lend(&name("a"), &slice, Access::Write);
    let write = post(&a, &again, TransferKind::Write, &filled(64, 2), grant.remote());
    assert_eq!(write.wait(soon()), Some(Outcome::Done), "the first transfer of the next one");
}

/// What is sent to a peer is dropped on the way, without a word: an idle connection to it is found dead by its keepalive.
///
/// fails if: e4 (outbound connections have no dead timeout)
#[test]
fn case_e4_a_dialer_reports_a_peer_that_nothing_comes_from_any_more() {
    let b = tcp("b");
    let between = Between::to(&b);
    let table = PeerTable::builder(watching("a", 10 * BEAT)).build().unwrap();
    let peer = table.insert("b", between.at.into()).unwrap();
    peer.wait_ready(soon()).unwrap();
    std::thread::sleep(20 * BEAT);
    assert_eq!(peer.phase(), Phase::Ready, "its pings are answered, also by a peer that sends none");
    between.mute(true);
    eventually("its generation is reported, and nobody has sent anything", || peer.phase() == Phase::Failed);
    eventually("it says why", || {
        let error = peer.record().and_then(|record| record.last_error);
        error.is_some_and(|error| error.contains("\"b\"") && error.contains("silent"))
    });
}

#[test]
fn a_peer_that_was_stopped_and_goes_on_in_time_has_lost_nothing() {
    let (a, b) = (watching("a", LONG), watching("b", LONG));
    let between = Between::to(&b);
    let connection = dial_at(&a, &b, between.at);
    between.mute(true);
    (0..100_u8).for_each(|number| a.notify(&connection, &[number]).unwrap());
    std::thread::sleep(20 * BEAT);
    assert!(b.inbox().is_empty());
    between.mute(false);
    (0..100_u8).for_each(|number| assert_eq!(b.inbox().recv(soon()).unwrap().bytes, [number]));
    let cx = ProbeContext { name: name("b"), generation: generation(), deadline: soon() };
    assert_eq!(a.probe(&cx, &connection), Liveness::Alive);
    assert_eq!(b.inbound_counts().silent, 0);
}

#[test]
fn who_is_held_back_by_a_full_inbox_is_not_taken_for_dead_by_either_side() {
    let dead = 10 * BEAT;
    let a = watching("a", dead);
    let b = builder("b").keepalive(BEAT, dead).inbox_capacity(1).bind("127.0.0.1:0").unwrap();
    let connection = dial(&a, &b);
    (0..10_u8).for_each(|number| a.notify(&connection, &[number]).unwrap());
    std::thread::sleep(5 * dead);
    (0..10_u8).for_each(|number| assert_eq!(b.inbox().recv(soon()).unwrap().bytes, [number]));
    a.notify(&connection, b"still open").unwrap();
    assert_eq!(b.inbox().recv(soon()).unwrap().bytes, b"still open");
    assert_eq!((b.inbound().len(), b.inbound_counts().silent), (1, 0));
}

#[test]
fn who_takes_no_answers_and_sends_nothing_is_freed_too() {
    let b = watching("b", 10 * BEAT);
    let (_page, grant, mut raw) = lent(&b, "a", 64 << 20, Access::Read);
    let mut reads = Vec::new();
    (0..200).for_each(|id| {
        let codec: Codec = raw.codec;
        codec.encode(&Frame::Read { transfer: peerage::TransferId(id), page: grant.remote() }, &mut reads);
    });
    raw.bytes(&reads);
    eventually("its place is free", || b.inbound().is_empty() && grant.is_quiesced());
    assert_eq!(b.inbound_counts().silent, 1);
}

#[test]
fn a_keepalive_that_would_kill_the_healthy_is_refused() {
    for (interval, dead_timeout) in [(Duration::ZERO, LONG), (LONG, LONG), (2 * BEAT, 3 * BEAT)] {
        let refused = Tcp::builder().keepalive(interval, dead_timeout).bind("127.0.0.1:0").unwrap_err();
        assert!(matches!(refused, BindError::Keepalive { .. }), "{refused:?}");
    }
    assert!(Tcp::builder().keepalive(BEAT, 2 * BEAT).bind("127.0.0.1:0").is_ok());
}

#[test]
fn a_silent_peer_is_that_peers_fault() {
    let (a, b) = (watching("a", 10 * BEAT), tcp("b"));
    let between = Between::to(&b);
    let connection = dial_at(&a, &b, between.at);
    between.mute(true);
    let why = ended(&a, &connection);
    let TcpError::Ended { source: Some(source), .. } = &why else { panic!("{why:?}") };
    assert!(matches!(**source, TcpError::Silent { dead_timeout, .. } if dead_timeout == 10 * BEAT), "{source:?}");
}
