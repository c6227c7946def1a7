//! Why a transport was not made.

use crate::transport::tcp::TcpAddress;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Why a [`Tcp`](crate::transport::tcp::Tcp) was not made.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The address can't be resolved.
    #[error("the address to listen on can't be resolved; write ip:port, like 127.0.0.1:0")]
    Unresolvable(#[source] io::Error),
    /// The address is reachable from other machines, and without a shared secret nobody who comes is authenticated. Give all
    /// processes the same [`secret`](crate::transport::tcp::TcpBuilder::secret), or bind a loopback address.
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
    /// [`advertise`](crate::transport::tcp::TcpBuilder::advertise).
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
    /// The operating system refused the address, most often because another process listens there, or the socket; the source
    /// says which. End what listens there, or choose another port; or raise `ulimit -n`.
    #[error("can't listen on {address}{}", what_to_do(.source))]
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
    /// The runtime was built without what sockets are served with. Build it with `enable_all`, or give none.
    #[error("the runtime given has no {what} enabled; build it with enable_all(), or give none")]
    RuntimeLacks {
        /// What is not enabled: `I/O` or `time`.
        what: &'static str,
    },
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
    /// No dialer could be known in no time at all, so nobody would ever connect.
    #[error("handshake_timeout is 0, so nobody could ever connect; give it seconds")]
    NoTimeForHandshakes,
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

/// A guess that is wrong sends people looking in the wrong place.
fn what_to_do(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::AddrInUse => "; another process listens there",
        _ => "",
    }
}
