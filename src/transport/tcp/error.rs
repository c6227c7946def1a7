//! Why a `Tcp` operation failed.

use super::TcpAddress;
use crate::error::UsedAfterFork;
use crate::name::PeerName;
use crate::region::RegionId;
use crate::state::Generation;
use crate::transfer::TransferId;
use crate::transport::frame::{Farewell, FrameError, VERSION};
use crate::transport::{ErrorClass, TransportError};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// How long a caller should wait for room in a full outbound queue.
const QUEUE_RETRY: Duration = Duration::from_millis(1);
/// How long a dialer should wait for a place at a full acceptor.
const FULL_RETRY: Duration = Duration::from_millis(100);

/// Why a [`Tcp`](super::Tcp) was not made.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The address can't be resolved.
    #[error("the address to listen on can't be resolved; write ip:port, like 127.0.0.1:0")]
    Unresolvable(#[source] io::Error),
    /// The address is reachable from other machines, and without a shared secret nobody who comes is authenticated. Give all
    /// processes the same [`secret`](super::TcpBuilder::secret), or bind a loopback address.
    #[error(
        "{address} is not a loopback address: without a secret nobody is authenticated, so only loopback may be bound"
    )]
    NotLoopback {
        /// The address.
        address: SocketAddr,
    },
    /// The secret is so short that somebody who watches one handshake could find it by trying.
    #[error("the secret has {len} bytes, at least {min} are needed, and they should be random")]
    ShortSecret {
        /// Its length.
        len: usize,
        /// The least.
        min: usize,
    },
    /// It listens on every address of the machine, which is no address that a peer could dial. Say which one with
    /// [`advertise`](super::TcpBuilder::advertise).
    #[error("{address} stands for every address of this machine; say with advertise() which one peers dial")]
    NothingToAdvertise {
        /// The address to listen on.
        address: SocketAddr,
    },
    /// A peer that dialled this would reach itself, or another process of its own machine.
    #[error("{advertised} means another process on each machine; advertise an address that reaches this one")]
    Unreachable {
        /// What was to be advertised.
        advertised: TcpAddress,
    },
    /// The operating system refused the address. Most often another process listens there.
    #[error("can't listen on {address}; is another process listening there?")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// The runtime has one thread: whoever blocks it would stop every connection. Give a multi-thread handle, or none.
    #[error("the runtime given has a single thread; give the handle of a multi-thread runtime, or none")]
    CurrentThreadRuntime,
    /// The operating system gave no threads.
    #[error("the transport's threads could not be started")]
    Threads(#[source] io::Error),
    /// The operating system has no memory to tell us of a `fork`.
    #[error("no handler for forks could be registered")]
    Fork(#[source] io::Error),
    /// A keepalive that would find healthy peers dead.
    #[error(
        "a dead timeout of {dead_timeout:?} must be at least twice the interval, {interval:?}, which must not be 0"
    )]
    Keepalive {
        /// Between pings.
        interval: Duration,
        /// Until a silent peer counts as dead.
        dead_timeout: Duration,
    },
    /// A limit that must be at least one is zero, or is too large for the wire.
    #[error("{limit} must be from 1 to {max}, not {given}")]
    Limit {
        /// Which.
        limit: &'static str,
        /// What was asked for.
        given: usize,
        /// The most.
        max: usize,
    },
}

/// Why a connect, a send or an open connection failed.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum TcpError {
    /// The peer's host can't be resolved. Correct the address, or the resolver.
    #[error("peer \"{peer}\": the host of {address} can't be resolved")]
    Unresolvable {
        /// The peer.
        peer: PeerName,
        /// Its address.
        address: Arc<str>,
        /// What the resolver said.
        #[source]
        source: io::Error,
    },
    /// Nothing accepts connections there, the way is cut, or this machine has no address or port left to reach it from. Is
    /// the peer running, and is the address its own? The source tells these apart.
    #[error("peer \"{peer}\" does not accept connections at {address}; is it running?")]
    Unreachable {
        /// The peer.
        peer: PeerName,
        /// Its address.
        address: Arc<str>,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// This process can't open a socket: descriptors or memory have run out. Raise `ulimit -n` or close something.
    #[error("no socket for peer \"{peer}\" at {address}: this process or machine has run out of something")]
    NoSocket {
        /// The peer.
        peer: PeerName,
        /// Its address.
        address: Arc<str>,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// The peer did not accept, or accepted and did not answer, in time. It is stopped, overloaded or black-holed.
    #[error("peer \"{peer}\" at {address} did not answer in time")]
    TimedOut {
        /// The peer.
        peer: PeerName,
        /// Its address.
        address: Arc<str>,
    },
    /// Nobody wants this connection any more.
    #[error("connect to peer \"{peer}\" at {address} was cancelled")]
    Cancelled {
        /// The peer.
        peer: PeerName,
        /// Its address.
        address: Arc<str>,
    },
    /// What listens there is not a peerage process, or speaks another version. Run the same version on both sides.
    #[error("peer \"{peer}\": what answers at {address} can't be talked to")]
    Incompatible {
        /// The peer.
        peer: PeerName,
        /// Its address.
        address: Arc<str>,
        /// What it said.
        #[source]
        source: FrameError,
    },
    /// The peer refused our protocol version. Run the same version on both sides.
    #[error("peer \"{peer}\" at {address} refuses protocol version {VERSION}")]
    VersionRefused {
        /// The peer.
        peer: PeerName,
        /// Its address.
        address: Arc<str>,
    },
    /// Another process answers at this address. Correct the address, or the name.
    #[error("peer \"{peer}\": {actual:?} answers at {address}; correct the address or the name")]
    WrongName {
        /// The name that was meant.
        peer: PeerName,
        /// The address.
        address: Arc<str>,
        /// The name of who answered.
        actual: PeerName,
    },
    /// The peer takes only who shares its secret, and this process has none. Give both the same
    /// [`secret`](super::TcpBuilder::secret).
    #[error("peer \"{peer}\" at {address} wants proof of a shared secret; give this process the same secret")]
    SecretMissing {
        /// The peer.
        peer: PeerName,
        /// Its address.
        address: Arc<str>,
    },
    /// This process wants proof of its secret, and the peer has none. Give both the same
    /// [`secret`](super::TcpBuilder::secret).
    #[error("peer \"{peer}\" at {address} has no secret, and this process has one; give the peer the same secret")]
    SecretUnused {
        /// The peer.
        peer: PeerName,
        /// Its address.
        address: Arc<str>,
    },
    /// The peer has another secret. Give both the same; a secret is changed on all at once.
    #[error("peer \"{peer}\" at {address} has another secret than this process; give both the same")]
    WrongSecret {
        /// The peer.
        peer: PeerName,
        /// Its address.
        address: Arc<str>,
    },
    /// What answers there wants to be taken for the peer and does not know the secret. Is it the right address?
    #[error("peer \"{peer}\": what answers at {address} did not prove that it knows the shared secret")]
    Unproven {
        /// The peer.
        peer: PeerName,
        /// Its address.
        address: Arc<str>,
    },
    /// The address stands for every address of a machine; dialled, it reaches a process of this one. Use the address that
    /// the peer's [`Tcp::address`](super::Tcp::address) says.
    #[error("peer \"{peer}\": {address} is no address of one machine; use the one that the peer advertises")]
    Wildcard {
        /// The peer.
        peer: PeerName,
        /// Its address.
        address: Arc<str>,
    },
    /// The address is on another machine, and without a shared secret nobody there is authenticated. Give all processes the
    /// same [`secret`](super::TcpBuilder::secret).
    #[error("peer \"{peer}\" at {address} is not on this machine; give both processes the same secret first")]
    NotLoopback {
        /// The peer.
        peer: PeerName,
        /// Its address.
        address: Arc<str>,
    },
    /// The peer has a connection of this generation already. The next attempt has a new generation.
    #[error("peer \"{peer}\" at {address} has a connection of {generation} already")]
    Duplicate {
        /// The peer.
        peer: PeerName,
        /// Its address.
        address: Arc<str>,
        /// The generation.
        generation: Generation,
    },
    /// The peer has as many inbound connections or undelivered messages as it may. Raise its `max_inbound`.
    #[error("peer \"{peer}\" at {address} takes no more connections; raise its max_inbound")]
    Full {
        /// The peer.
        peer: PeerName,
        /// Its address.
        address: Arc<str>,
    },
    /// The peer closed the connection without a goodbye: it ended, most likely not by its own will.
    #[error("peer \"{peer}\" at {address} closed the connection")]
    ClosedByPeer {
        /// The peer.
        peer: PeerName,
        /// Its address.
        address: Arc<str>,
    },
    /// Nothing came from the peer for so long that it counts as dead, though the connection is open: it is stopped, or what
    /// is between us swallows everything.
    #[error("peer \"{peer}\" at {address} has been silent for {dead_timeout:?}")]
    Silent {
        /// The peer.
        peer: PeerName,
        /// Its address.
        address: Arc<str>,
        /// The keepalive's dead timeout.
        dead_timeout: Duration,
    },
    /// The peer ended the connection and said so. A peer that has shut down may come back with another boot id.
    #[error("peer \"{peer}\" at {address} {farewell}")]
    SaidGoodbye {
        /// The peer.
        peer: PeerName,
        /// Its address.
        address: Arc<str>,
        /// Why.
        farewell: Farewell,
    },
    /// The connection broke.
    #[error("connection to peer \"{peer}\" at {address} broke")]
    Broken {
        /// The peer.
        peer: PeerName,
        /// Its address.
        address: Arc<str>,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// The peer sent what it may not. Is it the same version of the library?
    #[error("peer \"{peer}\" at {address} broke the protocol")]
    Misbehaved {
        /// The peer.
        peer: PeerName,
        /// Its address.
        address: Arc<str>,
        /// How.
        #[source]
        source: Misbehaviour,
    },
    /// The connection was cut by [`TcpConnection::cut`](super::TcpConnection::cut).
    #[error("connection to peer \"{peer}\" at {address} was cut from this side")]
    Cut {
        /// The peer.
        peer: PeerName,
        /// Its address.
        address: Arc<str>,
    },
    /// The transport was dropped, or the runtime it was given has ended.
    #[error("connection to peer \"{peer}\" at {address} ended with its transport")]
    TransportGone {
        /// The peer.
        peer: PeerName,
        /// Its address.
        address: Arc<str>,
    },
    /// The connection had ended before this call. Nothing was sent; fail the request.
    #[error("peer \"{peer}\": the connection of {generation} has ended")]
    Ended {
        /// The peer.
        peer: PeerName,
        /// The connection's generation.
        generation: Generation,
        /// How it ended; `None` if it was disconnected from this side.
        #[source]
        source: Option<Arc<TcpError>>,
    },
    /// More is waiting to be sent than may. Nothing was sent; try again, or raise `outbound_queue`.
    #[error("peer \"{peer}\": its {limit} bytes of outbound queue are full")]
    QueueFull {
        /// The peer.
        peer: PeerName,
        /// The connection's limit, in bytes.
        limit: usize,
    },
    /// Longer than both sides take. Nothing was sent; split it, or write it into a granted page.
    #[error("peer \"{peer}\": {len} bytes, a notification on this connection has at most {max}")]
    TooLong {
        /// The peer.
        peer: PeerName,
        /// What was given.
        len: usize,
        /// What fits.
        max: usize,
    },
    /// The local and the remote slice differ in length. Nothing was sent.
    #[error("transfer with \"{peer}\": {local} bytes here, {remote} there")]
    Length {
        /// The peer.
        peer: PeerName,
        /// Of the local slice.
        local: u64,
        /// Of the remote slice.
        remote: u64,
    },
    /// The region was never registered with this transport.
    #[error("region {} is not registered", region.0)]
    NotRegistered {
        /// The region.
        region: RegionId,
    },
    /// This is a forked child, the transport is the parent's. Nothing was sent, and no socket was touched.
    #[error(transparent)]
    UsedAfterFork(#[from] UsedAfterFork),
}

impl TcpError {
    /// No socket was opened, or its host was not found.
    pub(super) fn not_opened(peer: PeerName, address: Arc<str>, source: io::Error, unresolvable: bool) -> Self {
        match () {
            () if is_local(&source) => TcpError::NoSocket { peer, address, source },
            () if unresolvable => TcpError::Unresolvable { peer, address, source },
            () => TcpError::Unreachable { peer, address, source },
        }
    }
}

/// What a peer did that no peer may do. Its connection is dropped.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Misbehaviour {
    /// Its bytes are not frames.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// It ended in the middle of a frame.
    #[error("the connection ended in the middle of a frame")]
    Truncated,
    /// It does not know the shared secret.
    #[error("did not prove that it knows the shared secret")]
    Unproven,
    /// A frame that its side never sends.
    #[error("a frame that this side never sends")]
    WrongSide,
    /// A frame about a transfer that does not run, or not in this direction.
    #[error("transfer {} does not run", transfer.0)]
    NoSuchTransfer {
        /// The transfer.
        transfer: TransferId,
    },
    /// A transfer was called over before its bytes had come through, or more came than it has.
    #[error("transfer {} has another length than it said", transfer.0)]
    WrongLength {
        /// The transfer.
        transfer: TransferId,
    },
    /// More transfers at once than one connection may run.
    #[error("more than {limit} transfers at once")]
    TooManyTransfers {
        /// The most.
        limit: usize,
    },
}

impl TransportError for TcpError {
    fn class(&self) -> ErrorClass {
        match self {
            TcpError::NoSocket { .. }
            | TcpError::TooLong { .. }
            | TcpError::Length { .. }
            | TcpError::NotRegistered { .. }
            | TcpError::UsedAfterFork(_) => ErrorClass::Local,
            TcpError::QueueFull { .. } => ErrorClass::Busy { retry_after: QUEUE_RETRY },
            TcpError::Full { .. } => ErrorClass::Busy { retry_after: FULL_RETRY },
            TcpError::Incompatible { .. }
            | TcpError::VersionRefused { .. }
            | TcpError::WrongName { .. }
            | TcpError::SecretMissing { .. }
            | TcpError::SecretUnused { .. }
            | TcpError::WrongSecret { .. }
            | TcpError::Unproven { .. }
            | TcpError::Wildcard { .. }
            | TcpError::NotLoopback { .. } => ErrorClass::Incompatible,
            _ => ErrorClass::PeerBroken,
        }
    }

    fn process_is_gone(&self) -> bool {
        use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset};
        match self {
            TcpError::Unreachable { source, .. } | TcpError::Broken { source, .. } => {
                matches!(source.kind(), ConnectionRefused | ConnectionReset | BrokenPipe)
            }
            TcpError::Ended { source: Some(source), .. } => source.process_is_gone(),
            _ => false,
        }
    }

    fn native_code(&self) -> Option<i64> {
        match self {
            TcpError::Unresolvable { source, .. }
            | TcpError::Unreachable { source, .. }
            | TcpError::NoSocket { source, .. }
            | TcpError::Broken { source, .. } => source.raw_os_error().map(i64::from),
            TcpError::Ended { source: Some(source), .. } => source.native_code(),
            _ => None,
        }
    }
}

/// Whether an error of the operating system says that this side has run out of something. Every peer waits then, so nothing
/// that one peer's address can bring about is among them. `EADDRNOTAVAIL` is not: it says that no address of this machine
/// reaches that one, or that the ports towards it are used up. Ports are taken per destination, so that too stays with the
/// peer, whose own backoff spares them.
fn is_local(error: &io::Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    const ENOBUFS: i32 = 105;
    error.kind() == io::ErrorKind::OutOfMemory || matches!(error.raw_os_error(), Some(ENFILE | EMFILE | ENOBUFS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer() -> PeerName {
        PeerName::new("prefill-0").unwrap()
    }

    #[test]
    fn a_class_says_whose_fault_it_is() {
        let (peer, address): (_, Arc<str>) = (peer(), "127.0.0.1:1".into());
        let reset = TcpError::Broken {
            peer: peer.clone(),
            address: address.clone(),
            source: io::Error::from_raw_os_error(104),
        };
        assert_eq!((reset.class(), reset.native_code()), (ErrorClass::PeerBroken, Some(104)));
        let ended = TcpError::Ended { peer: peer.clone(), generation: Generation(3), source: Some(Arc::new(reset)) };
        assert_eq!((ended.class(), ended.native_code()), (ErrorClass::PeerBroken, Some(104)));
        assert!(ended.process_is_gone());
        let full = TcpError::QueueFull { peer: peer.clone(), limit: 1 };
        assert!(matches!(full.class(), ErrorClass::Busy { .. }) && !full.process_is_gone());
        let name = TcpError::WrongName { actual: peer.clone(), peer, address };
        assert_eq!((name.class(), name.native_code()), (ErrorClass::Incompatible, None));
        assert!(is_local(&io::Error::from_raw_os_error(24)) && !is_local(&io::Error::from_raw_os_error(111)));
    }

    #[test]
    fn an_address_that_this_machine_has_no_source_for_is_that_peers_fault_alone() {
        const EADDRNOTAVAIL: i32 = 99;
        let source = io::Error::from_raw_os_error(EADDRNOTAVAIL);
        assert_eq!(source.kind(), io::ErrorKind::AddrNotAvailable);
        let error = TcpError::not_opened(peer(), "[2001:db8::1]:7000".into(), source, false);
        assert_eq!((error.class(), error.native_code()), (ErrorClass::PeerBroken, Some(99)));
        for out_of in [12, 23, 24, 105] {
            let source = io::Error::from_raw_os_error(out_of);
            let error = TcpError::not_opened(peer(), "127.0.0.1:7000".into(), source, false);
            assert_eq!(error.class(), ErrorClass::Local, "{error:?}");
        }
    }

    #[test]
    fn a_message_names_the_peer_and_what_to_do() {
        let error = TcpError::Full { peer: peer(), address: "127.0.0.1:1".into() };
        assert_eq!(
            error.to_string(),
            "peer \"prefill-0\" at 127.0.0.1:1 takes no more connections; raise its max_inbound"
        );
    }
}
