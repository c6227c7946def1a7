//! Why a connect, a send or an open connection failed.

use super::Misbehaviour;
use crate::error::UsedAfterFork;
use crate::name::PeerName;
use crate::region::RegionId;
use crate::state::Generation;
use crate::transport::frame::{Farewell, FrameError, VERSION};
use std::io;
use std::sync::Arc;
use std::time::Duration;

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
    /// [`secret`](crate::transport::tcp::TcpBuilder::secret).
    #[error("peer \"{peer}\" at {address} wants proof of a shared secret; give this process the same secret")]
    SecretMissing {
        /// The peer.
        peer: PeerName,
        /// Its address.
        address: Arc<str>,
    },
    /// This process wants proof of its secret, and the peer has none. Give both the same
    /// [`secret`](crate::transport::tcp::TcpBuilder::secret).
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
    /// the peer's [`Tcp::address`](crate::transport::tcp::Tcp::address) says.
    #[error("peer \"{peer}\": {address} is no address of one machine; use the one that the peer advertises")]
    Wildcard {
        /// The peer.
        peer: PeerName,
        /// Its address.
        address: Arc<str>,
    },
    /// The address is on another machine, and without a shared secret nobody there is authenticated. Give all processes the
    /// same [`secret`](crate::transport::tcp::TcpBuilder::secret).
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
    /// The connection was cut by [`TcpConnection::cut`](crate::transport::tcp::TcpConnection::cut).
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_the_peer_and_what_to_do() {
        let error = TcpError::Full { peer: PeerName::new("prefill-0").unwrap(), address: "127.0.0.1:1".into() };
        assert_eq!(
            error.to_string(),
            "peer \"prefill-0\" at 127.0.0.1:1 takes no more connections; raise its max_inbound"
        );
    }
}
