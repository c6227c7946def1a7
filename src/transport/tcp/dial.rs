//! Opening a connection: resolve, connect, our side of the handshake. Blocks a connecting thread, never one of ours.

use super::connection::{Link, TcpConnection};
use super::error::{Misbehaviour, TcpError};
use super::secret;
use super::wire::{WireError, handshake};
use super::{Shared, TcpAddress};
use crate::name::PeerName;
use crate::state::Generation;
use crate::transport::frame::{ANSWER_MAX, Answer, Hello, Verdict};
use crate::transport::{ConnectContext, Connected, Reporter};
use std::io;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, lookup_host};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;

/// How long a connecting thread sleeps at most before it looks whether anybody still wants the connection.
const LOOK: Duration = Duration::from_millis(10);
/// How long it waits at most for a cancelled attempt to have closed its socket.
const UNDO: Duration = Duration::from_secs(1);

/// Runs one attempt on `on`, and waits for it until the context's deadline.
pub(super) fn connect(
    cx: &ConnectContext,
    to: &TcpAddress,
    shared: &Arc<Shared>,
    on: &Handle,
    gone: watch::Receiver<()>,
) -> Result<Connected<TcpConnection>, TcpError> {
    let dial = Dial {
        peer: cx.name().clone(),
        address: to.to_string().into(),
        generation: cx.generation(),
        reporter: cx.reporter().clone(),
        shared: shared.clone(),
        gone,
        on: on.clone(),
    };
    let (peer, address) = (dial.peer.clone(), dial.address.clone());
    let (done, outcome) = mpsc::sync_channel(1);
    let host_port = to.host_port().to_owned();
    let task = on.spawn(async move {
        // Nobody waits any more if this fails; the connection is closed when it is dropped.
        let _ = done.send(dial.run(&host_port).await);
    });
    let error = loop {
        let Some(left) = shared.clock.real_wait_until(cx.deadline()) else {
            break TcpError::TimedOut { peer, address };
        };
        if cx.is_cancelled() {
            break TcpError::Cancelled { peer, address };
        }
        match outcome.recv_timeout(left.min(LOOK)) {
            Ok(outcome) => return outcome,
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => return Err(TcpError::TransportGone { peer, address }),
        }
    };
    task.abort();
    // The task holds the sending end: this returns once its socket is closed, with what it made just in time, if anything.
    drop(outcome.recv_timeout(UNDO));
    Err(error)
}

struct Dial {
    peer: PeerName,
    address: Arc<str>,
    generation: Generation,
    reporter: Reporter,
    shared: Arc<Shared>,
    gone: watch::Receiver<()>,
    on: Handle,
}

impl Dial {
    async fn run(self, host_port: &str) -> Result<Connected<TcpConnection>, TcpError> {
        let mut stream = self.open(host_port).await?;
        let limit = self.shared.settings.handshake_timeout;
        let greeted = timeout(limit, self.greet(&mut stream)).await;
        let (peer, address) = (self.peer, self.address);
        let Ok(greeted) = greeted else { return Err(TcpError::TimedOut { peer, address }) };
        let answer = match greeted {
            Ok(answer) => answer,
            Err(WireError::Io(source)) => return Err(TcpError::Broken { peer, address, source }),
            Err(WireError::End | WireError::Goodbye(_)) => return Err(TcpError::ClosedByPeer { peer, address }),
            Err(WireError::Peer(Misbehaviour::Frame(source))) => {
                return Err(TcpError::Incompatible { peer, address, source });
            }
            Err(WireError::Peer(Misbehaviour::Unproven)) => return Err(TcpError::Unproven { peer, address }),
            Err(WireError::Peer(source)) => return Err(TcpError::Misbehaved { peer, address, source }),
        };
        match answer.verdict {
            Verdict::Welcome if answer.name == peer => {}
            Verdict::Welcome | Verdict::WrongName => {
                return Err(TcpError::WrongName { peer, address, actual: answer.name });
            }
            Verdict::WrongVersion => return Err(TcpError::VersionRefused { peer, address }),
            Verdict::Duplicate => return Err(TcpError::Duplicate { peer, address, generation: self.generation }),
            Verdict::Full => return Err(TcpError::Full { peer, address }),
            Verdict::SecretMissing => return Err(TcpError::SecretMissing { peer, address }),
            Verdict::SecretUnused => return Err(TcpError::SecretUnused { peer, address }),
            Verdict::WrongSecret => return Err(TcpError::WrongSecret { peer, address }),
            // One that follows a proof, or comes to who has no secret.
            Verdict::Challenge => {
                return Err(TcpError::Misbehaved { peer, address, source: Misbehaviour::WrongSide });
            }
        }
        let peer_addr = match stream.peer_addr() {
            Ok(peer_addr) => peer_addr,
            Err(source) => return Err(TcpError::Broken { peer, address, source }),
        };
        let settings = &self.shared.settings;
        let max_notification = settings.max_notification.min(answer.max_notification as usize);
        let unknown_frames = self.shared.counts.unknown_frames.clone();
        let link = Link::new(peer, address, self.generation, peer_addr, max_notification, settings, unknown_frames);
        let connection = link.start(stream, self.reporter, self.gone, &self.on);
        Ok(Connected { connection, incarnation: Some(answer.incarnation) })
    }

    async fn open(&self, host_port: &str) -> Result<TcpStream, TcpError> {
        let error = |source: io::Error, unresolvable: bool| {
            TcpError::not_opened(self.peer.clone(), self.address.clone(), source, unresolvable)
        };
        let addresses = lookup_host(host_port).await.map_err(|source| error(source, true))?;
        let mut last = None;
        for address in addresses {
            let ip = address.ip().to_canonical();
            if ip.is_unspecified() {
                return Err(TcpError::Wildcard { peer: self.peer.clone(), address: self.address.clone() });
            }
            if !ip.is_loopback() && self.shared.settings.secret.is_none() {
                return Err(TcpError::NotLoopback { peer: self.peer.clone(), address: self.address.clone() });
            }
            match TcpStream::connect(address).await {
                Ok(stream) if is_itself(&stream) => {
                    super::reset_on_close(&stream);
                    last = Some(io::ErrorKind::ConnectionRefused.into());
                }
                Ok(stream) => {
                    stream.set_nodelay(true).map_err(|source| error(source, false))?;
                    return Ok(stream);
                }
                Err(source) => last = Some(source),
            }
        }
        Err(last.map_or_else(|| error(io::ErrorKind::NotFound.into(), true), |source| error(source, false)))
    }

    async fn greet(&self, stream: &mut TcpStream) -> Result<Answer, WireError> {
        let secret = self.shared.settings.secret.as_ref();
        let hello = Hello {
            name: self.shared.name.clone(),
            incarnation: self.shared.incarnation(),
            generation: self.generation,
            target: self.peer.clone(),
            nonce: secret.map(|_| secret::nonce()),
        };
        let mut out = Vec::new();
        hello.encode(&mut out);
        stream.write_all(&out).await?;
        let first = handshake(stream, &mut [0; ANSWER_MAX], Answer::decode).await?;
        let Some(secret) = secret else { return Ok(first) };
        match first.verdict {
            Verdict::Challenge if first.name == self.peer && first.token.is_some() => {}
            Verdict::Challenge => return Ok(Answer { verdict: Verdict::WrongName, ..first }),
            Verdict::SecretUnused | Verdict::WrongVersion => return Ok(first),
            _ => return Err(Misbehaviour::Unproven.into()),
        }
        stream.write_all(&secret.dialer_proof(&hello, &first)).await?;
        let last = handshake(stream, &mut [0; ANSWER_MAX], Answer::decode).await?;
        match last.verdict {
            Verdict::WrongSecret => Ok(last),
            _ if secret.is_acceptor(&hello, &first, &last) => Ok(last),
            _ => Err(Misbehaviour::Unproven.into()),
        }
    }
}

/// Whether a socket is connected to itself. Where nobody listens, the operating system may choose the port that is dialled
/// as the socket's own; kept open, it would keep a restarted peer from its port.
fn is_itself(stream: &TcpStream) -> bool {
    matches!((stream.local_addr(), stream.peer_addr()), (Ok(local), Ok(peer)) if local == peer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::{TcpListener, TcpSocket};

    #[tokio::test]
    async fn a_socket_connected_to_itself_is_no_peer() {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        let own = socket.local_addr().unwrap();
        assert!(is_itself(&socket.connect(own).await.unwrap()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        assert!(!is_itself(&stream));
    }
}
