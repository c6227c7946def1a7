//! The one task that serves the socket of a connection we opened.
//!
//! It sends and receives in two halves that never run at the same time as its end: when it ends, for whatever reason, both
//! halves are gone, and only then the transfers that were not over are ended. So nothing touches a local page after that.
//! What a disconnect says last is said after it (`goodbye.rs`).

mod goodbye;
mod receive;
mod send;

pub(super) use goodbye::LINGER;

use super::connection::{Ending, Link, Over};
use super::error::TcpError;
use super::wire::WireError;
use crate::transfer::{Outcome, TransferError};
use crate::transport::Reporter;
use goodbye::{hurried, say_goodbye};
use receive::receive;
use send::{Unsent, send};
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::sync::watch;

/// The task of one connection.
pub(super) fn serve(
    link: Arc<Link>,
    stream: TcpStream,
    reporter: Reporter,
    gone: watch::Receiver<()>,
) -> impl Future<Output = ()> + Send {
    run(Last { link, reporter, ended: false }, stream, gone)
}

/// `last` is made before everything else here, so it is dropped after everything else, also when the task panics, never
/// starts, or its runtime ends.
async fn run(mut last: Last, mut stream: TcpStream, mut gone: watch::Receiver<()>) {
    let link = last.link.clone();
    let (mut from, mut to) = stream.split();
    let (mut unsent, mut farewell) = (Unsent::default(), None);
    let mut heard = link.pulse.listen(&mut from);
    let why = tokio::select! {
        error = receive(&link, &mut heard) => Some(broken(&link, error)),
        error = send(&link, &mut to, &mut unsent) => Some(broken(&link, error)),
        ending = ending(&link) => match ending {
            Ending::Goodbye(why) => {
                farewell = Some(why);
                None
            }
            Ending::Now => None,
            Ending::Cut => Some(TcpError::Cut { peer: link.peer.clone(), address: link.address.clone() }),
        },
        () = link.pulse.stops(link.keepalive, || link.ping()) => Some(link.silent()),
        _ = gone.changed() => Some(last.transport_gone()),
    };
    if matches!(why, Some(TcpError::Cut { .. } | TcpError::Silent { .. })) {
        super::reset_on_close(&stream);
    }
    last.end(why.map(Arc::new));
    if let Some(farewell) = farewell {
        tokio::select! {
            () = say_goodbye(&link, &mut stream, unsent, farewell) => {}
            () = hurried(&link) => {}
            _ = gone.changed() => {}
        }
    }
    drop(stream);
}

fn broken(link: &Link, error: WireError) -> TcpError {
    let (peer, address) = (link.peer.clone(), link.address.clone());
    match error {
        WireError::Io(source) => TcpError::Broken { peer, address, source },
        WireError::Peer(source) => TcpError::Misbehaved { peer, address, source },
        WireError::End => TcpError::ClosedByPeer { peer, address },
        WireError::Goodbye(farewell) => TcpError::SaidGoodbye { peer, address, farewell },
    }
}

async fn ending(link: &Link) -> Ending {
    loop {
        if let Some(ending) = link.lock().ending {
            return ending;
        }
        link.end.notified().await;
    }
}

/// Ends what the connection leaves behind.
struct Last {
    link: Arc<Link>,
    reporter: Reporter,
    ended: bool,
}

impl Last {
    fn transport_gone(&self) -> TcpError {
        TcpError::TransportGone { peer: self.link.peer.clone(), address: self.link.address.clone() }
    }

    /// Both halves are gone.
    fn end(&mut self, why: Option<Arc<TcpError>>) {
        self.ended = true;
        let mut queue = self.link.lock();
        queue.over = Some(Over { why: why.clone(), closed: false });
        let waiting = std::mem::take(&mut queue.waiting);
        let running = std::mem::take(&mut queue.running);
        let probes = std::mem::take(&mut queue.probes);
        drop(queue);
        if let Some(error) = why {
            self.reporter.report(&*error);
        }
        drop(probes);
        for post in waiting {
            post.completion.complete(Outcome::Failed(TransferError::NotSent));
        }
        for (_, running) in running {
            running.completion.complete(Outcome::Unknown);
        }
    }
}

impl Drop for Last {
    fn drop(&mut self) {
        let closed = AllGone(self.link.clone());
        if !self.ended {
            // The task did not come to its end by itself.
            self.end(Some(Arc::new(self.transport_gone())));
        }
        drop(closed);
    }
}

/// Says that nothing of the connection is left, also when somebody's waker panics on the way.
struct AllGone(Arc<Link>);

impl Drop for AllGone {
    fn drop(&mut self) {
        if let Some(over) = &mut self.0.lock().over {
            over.closed = true;
        }
        self.0.ended.notify_all();
    }
}

#[cfg(all(test, not(peerage_loom)))]
mod tests {
    use super::receive::take;
    use super::send::fill;
    use super::*;
    use crate::name::{PeerId, PeerName};
    use crate::region::Region;
    use crate::state::Generation;
    use crate::transfer::{Post, TransferKind};
    use crate::transport::context::ReportSink;
    use crate::transport::frame::{Frame, HEADER};
    use crate::transport::tcp::{Tcp, TcpAddress, TcpConnection};
    use crate::transport::{
        CloseContext, CloseReason, Closed, ConnectContext, DataPlane, Liveness, Reported, Transport, TransportError,
    };
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    const LONG: Duration = Duration::from_secs(30);

    /// A table that only listens.
    #[derive(Default)]
    struct Reports(Mutex<Vec<(Generation, String)>>);

    impl ReportSink for Reports {
        fn report(&self, _: PeerId, generation: Generation, error: &dyn TransportError) -> Reported {
            self.0.lock().unwrap().push((generation, error.to_string()));
            Reported::Failed
        }

        fn leaked(&self, _: PeerId, _: &'static str) {}
    }

    impl Reports {
        fn seen(&self) -> Vec<(Generation, String)> {
            self.0.lock().unwrap().clone()
        }

        fn eventually(&self, count: usize) -> Vec<(Generation, String)> {
            let end = Instant::now() + LONG;
            while self.seen().len() < count && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(2));
            }
            self.seen()
        }
    }

    fn tcp(name: &str) -> Tcp {
        let builder = Tcp::builder().name(PeerName::new(name).unwrap()).handshake_timeout(100 * LONG);
        builder.bind("127.0.0.1:0").unwrap()
    }

    fn context(to: &str, reports: &Arc<Reports>, cancelled: &Arc<AtomicBool>) -> ConnectContext {
        let reporter = Reporter::new(reports.clone(), PeerId::from_bits(0), Generation(7));
        ConnectContext::new(PeerName::new(to).unwrap(), Instant::now() + LONG, cancelled.clone(), reporter)
    }

    fn dial(from: &Tcp, to: &Tcp, reports: &Arc<Reports>) -> TcpConnection {
        let cx = context("b", reports, &Arc::default());
        from.connect(&cx, &TcpAddress::from(to.local_addr())).unwrap().connection
    }

    #[test]
    fn a_peer_that_goes_is_reported_once_without_anybody_sending() {
        let reports = Arc::new(Reports::default());
        let (a, b) = (tcp("a"), tcp("b"));
        let connection = dial(&a, &b, &reports);
        assert_eq!(reports.seen(), []);
        drop(b);
        let seen = reports.eventually(1);
        assert_eq!(seen[0].0, Generation(7));
        assert!(seen[0].1.contains("\"b\""), "{}", seen[0].1);
        a.notify(&connection, b"x").unwrap_err();
        drop((connection, a));
        assert_eq!(reports.seen().len(), 1);
    }

    #[test]
    fn a_disconnect_reports_nothing_and_a_cut_does() {
        let reports = Arc::new(Reports::default());
        let (a, b) = (tcp("a"), tcp("b"));
        let cx = CloseContext {
            name: PeerName::new("b").unwrap(),
            generation: Generation(7),
            deadline: Instant::now() + LONG,
        };
        let connection = dial(&a, &b, &reports);
        assert!(matches!(a.disconnect(&cx, connection, CloseReason::Removed), Closed::Released));
        assert_eq!(reports.seen(), []);
        while !b.inbound().is_empty() {
            std::thread::yield_now();
        }
        let connection = dial(&a, &b, &reports);
        connection.cut();
        assert!(matches!(a.disconnect(&cx, connection, CloseReason::Failed), Closed::Released));
        let seen = reports.seen();
        assert!(seen.len() == 1 && seen[0].1.contains("cut"), "{seen:?}");
    }

    #[test]
    fn a_peer_that_takes_nothing_has_one_ping_waiting_however_often_it_is_probed() {
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
        let settings = crate::transport::tcp::builder::Settings { outbound_queue: 1000, ..Default::default() };
        let link =
            Link::new(PeerName::new("b").unwrap(), "b".into(), Generation(7), address, 100, &settings, Arc::default());
        let clock = crate::clock::Clock::system();
        for ping in 0..100 {
            link.answer(ping);
        }
        for _ in 0..100 {
            assert_eq!(link.probe(Instant::now(), &clock), Liveness::Dead);
        }
        assert_eq!(link.lock().notes.len(), HEADER + 8, "and it is answered once, however often it pings");
        assert!(link.lock().probes.is_empty(), "a probe that has ended leaves nothing");

        std::thread::scope(|scope| {
            let asked: Vec<_> = (0..2).map(|_| scope.spawn(|| link.probe(Instant::now() + LONG, &clock))).collect();
            let end = Instant::now() + LONG;
            while link.lock().probes.len() < 2 && Instant::now() < end {
                std::thread::yield_now();
            }
            assert!(fill(&link, &mut Vec::new(), &mut None), "the ping is sent");
            let late = scope.spawn(|| link.probe(Instant::now() + LONG, &clock));
            while link.lock().probes.len() < 3 && Instant::now() < end {
                std::thread::yield_now();
            }
            take(&link, Frame::Pong(1)).unwrap();
            let answers: Vec<_> = asked.into_iter().map(|asked| asked.join().unwrap()).collect();
            assert_eq!(answers, [Liveness::Alive; 2], "both waited for the one ping");
            assert_eq!(link.lock().probes.len(), 1, "who asked after the ping was sent has a ping of its own");
            take(&link, Frame::Pong(2)).unwrap();
            assert_eq!(late.join().unwrap(), Liveness::Alive);
        });
    }

    #[test]
    fn a_connection_that_outlives_its_transport_is_reported_and_its_transfers_end() {
        let reports = Arc::new(Reports::default());
        let (a, b) = (tcp("a"), tcp("b"));
        let connection = dial(&a, &b, &reports);
        let page = Region::zeroed(64 << 20).slice(0..64 << 20).unwrap();
        let remote = crate::RemoteSlice { grant: 1, region: 1, offset: 0, len: 64 << 20 };
        let (post, transfer) = Post::standalone(TransferKind::Write, page, remote);
        a.post(&connection, post).unwrap();
        drop(a);
        assert!(reports.eventually(1)[0].1.contains("ended with its transport"), "{:?}", reports.seen());
        assert!(transfer.wait(Instant::now() + LONG).is_some());
        drop(connection);
    }

    #[test]
    fn a_connect_that_is_cancelled_returns_and_closes_its_socket() {
        let (a, mute) = (tcp("a"), std::net::TcpListener::bind("127.0.0.1:0").unwrap());
        let cancelled = Arc::new(AtomicBool::new(false));
        let cx = context("b", &Arc::default(), &cancelled);
        std::thread::scope(|scope| {
            let connecting = scope.spawn(|| a.connect(&cx, &mute.local_addr().unwrap().into()).map(drop));
            let (mut stream, _) = mute.accept().unwrap();
            stream.set_read_timeout(Some(LONG)).unwrap();
            cancelled.store(true, Ordering::Release);
            assert!(matches!(connecting.join().unwrap(), Err(TcpError::Cancelled { .. })));
            assert!(std::io::Read::read_to_end(&mut stream, &mut Vec::new()).is_ok(), "the socket is closed");
        });
    }
}
