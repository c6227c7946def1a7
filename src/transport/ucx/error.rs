//! What may go wrong with the `Ucx` transport.

use super::native::Status;
use crate::error::UsedAfterFork;
use crate::name::PeerName;
use crate::region::RegionId;
use crate::state::Generation;
use crate::transport::frame::{Farewell, Verdict};
use crate::transport::limits::{FULL_RETRY, QUEUE_RETRY};
use crate::transport::{ErrorClass, TransportError};
use peerage_ucx_sys as ucx;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// Why a `Ucx` was not made. Nothing is left behind.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum UcxBindError {
    /// libucp does not take this setting, or, if none is named, its configuration as a whole: the `UCX_` variables of the
    /// environment are a part of it.
    #[error("libucp does not take {}", what_of_it(setting.as_deref()))]
    Configuration {
        /// The name, without `UCX_`.
        setting: Option<String>,
        /// What libucp said.
        #[source]
        status: Status,
    },
    /// libucp gave no worker that several threads may use. It has to be built with `--enable-mt`, as Debian's is; or this
    /// process is out of descriptors: raise `ulimit -n`.
    #[error("libucp gave no worker that several threads may use")]
    Worker(#[source] Status),
    /// The address means nothing here.
    #[error("the address can't be resolved")]
    Unresolvable(#[source] io::Error),
    /// Something else listens there, or no device of this machine has the address.
    #[error("can't listen on {address}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What libucp said.
        #[source]
        status: Status,
    },
    /// Nobody is authenticated: allow it with [`trust_network`](super::UcxBuilder::trust_network), in a network that only
    /// those can reach whom you trust.
    #[error("{address} is not a loopback address; UCX authenticates nobody, so say trust_network(true) first")]
    NotLoopback {
        /// The address.
        address: SocketAddr,
    },
    /// No dialer could be known in no time at all, so nobody would ever connect.
    #[error("handshake_timeout is 0, so nobody could ever connect; give it seconds")]
    NoTimeForHandshakes,
    /// A setting of ours is 0 or too large.
    #[error("{limit} is {given}, it must be 1 to {max}")]
    Limit {
        /// Which.
        limit: &'static str,
        /// What was given.
        given: usize,
        /// The most.
        max: usize,
    },
    /// The operating system gave no descriptor or no thread.
    #[error("no descriptor or thread for the transport")]
    Thread(#[source] io::Error),
    /// The operating system gave no memory to notice forks.
    #[error("forks can't be noticed")]
    Fork(#[source] io::Error),
    /// The operating system gave no memory to notice the end of the process.
    #[error("the end of the process can't be noticed")]
    Exit(#[source] io::Error),
}

fn what_of_it(setting: Option<&str>) -> String {
    setting.map_or("its configuration; look at the UCX_ variables and at what `config` was given".into(), |setting| {
        format!("the setting {setting:?}")
    })
}

/// Why a call of the `Ucx` transport failed.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum UcxError {
    /// The host was not found. Is the name right?
    #[error("peer \"{peer}\": {address} can't be resolved")]
    Unresolvable {
        /// The peer.
        peer: PeerName,
        /// Its address.
        address: Arc<str>,
        /// What the resolver said.
        #[source]
        source: io::Error,
    },
    /// This process has no descriptor or memory left to connect with. Nothing was sent; raise `ulimit -n`, or close something.
    #[error("nothing left to connect to peer \"{peer}\" at {address} with")]
    NoDescriptor {
        /// The peer.
        peer: PeerName,
        /// Its address.
        address: Arc<str>,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// It is not a loopback address, and [`trust_network`](super::UcxBuilder::trust_network) was not said. Nothing was sent.
    #[error(
        "peer \"{peer}\": {address} is not a loopback address; UCX authenticates nobody, so say trust_network(true) first"
    )]
    NotLoopback {
        /// The peer.
        peer: PeerName,
        /// Its address.
        address: Arc<str>,
    },
    /// No connection came about. Does it run, and listen there?
    #[error("peer \"{peer}\" at {address} can't be reached")]
    Unreachable {
        /// The peer.
        peer: PeerName,
        /// Its address.
        address: Arc<str>,
        /// What libucp said.
        #[source]
        status: Status,
    },
    /// It did not answer before the attempt's deadline.
    #[error("peer \"{peer}\" at {address} did not answer in time")]
    TimedOut {
        /// The peer.
        peer: PeerName,
        /// Its address.
        address: Arc<str>,
    },
    /// Nobody wants the connection any more.
    #[error("the attempt to connect peer \"{peer}\" at {address} was cancelled")]
    Cancelled {
        /// The peer.
        peer: PeerName,
        /// Its address.
        address: Arc<str>,
    },
    /// It does not let us in: it speaks another version, has this connection already, is full, or wants what we do not have.
    #[error("peer \"{peer}\" at {address} refused: {verdict:?}")]
    Refused {
        /// The peer.
        peer: PeerName,
        /// Its address.
        address: Arc<str>,
        /// Why.
        verdict: Verdict,
    },
    /// Another process answers at this address.
    #[error("peer \"{peer}\": at {address} is \"{actual}\"")]
    WrongName {
        /// The peer.
        peer: PeerName,
        /// Its address.
        address: Arc<str>,
        /// Who answered.
        actual: PeerName,
    },
    /// What it sent is not of this protocol. Is it the same version of the library?
    #[error("peer \"{peer}\" at {address} broke the protocol")]
    Misbehaved {
        /// The peer.
        peer: PeerName,
        /// Its address.
        address: Arc<str>,
    },
    /// The connection broke. From a call: nothing of it was sent. What was accepted before may be lost in any case: fail those
    /// requests; the table connects again. The status differs between versions of UCX for one and the same cause.
    #[error("connection to peer \"{peer}\" at {address} broke")]
    Broken {
        /// The peer.
        peer: PeerName,
        /// Its address.
        address: Arc<str>,
        /// What libucp said.
        #[source]
        status: Status,
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
    /// The transport was dropped.
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
        source: Option<Arc<UcxError>>,
    },
    /// 1,024 messages or 4 MiB of them are not taken yet, or 16,384 transfers wait for their turn. Nothing was sent; try again.
    #[error("peer \"{peer}\": as much is under way as may be")]
    QueueFull {
        /// The peer.
        peer: PeerName,
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
    /// The local and the remote slice differ in length. Nothing was sent; give slices of one length.
    #[error("transfer with \"{peer}\": {local} bytes here, {remote} there")]
    Length {
        /// The peer.
        peer: PeerName,
        /// Of the local slice.
        local: u64,
        /// Of the remote slice.
        remote: u64,
    },
    /// libucp did not take the region: no device takes it, or it is too much locked memory; then raise `ulimit -l`.
    #[error("region {} can't be registered", region.0)]
    Register {
        /// The region.
        region: RegionId,
        /// What libucp said.
        #[source]
        status: Status,
    },
    /// The region was never registered with this transport.
    #[error("region {} is not registered", region.0)]
    NotRegistered {
        /// The region.
        region: RegionId,
    },
    /// This is a forked child, the transport is the parent's. Nothing was sent, and libucp was not called.
    #[error(transparent)]
    UsedAfterFork(#[from] UsedAfterFork),
}

impl TransportError for UcxError {
    fn class(&self) -> ErrorClass {
        match self {
            UcxError::NoDescriptor { .. }
            | UcxError::TooLong { .. }
            | UcxError::Length { .. }
            | UcxError::Register { .. }
            | UcxError::NotRegistered { .. }
            | UcxError::UsedAfterFork(_) => ErrorClass::Local,
            UcxError::QueueFull { .. } => ErrorClass::Busy { retry_after: QUEUE_RETRY },
            UcxError::Refused { verdict: Verdict::Full, .. } => ErrorClass::Busy { retry_after: FULL_RETRY },
            UcxError::Refused { verdict: Verdict::Duplicate, .. } => ErrorClass::PeerBroken,
            UcxError::Refused { .. } | UcxError::WrongName { .. } | UcxError::NotLoopback { .. } => {
                ErrorClass::Incompatible
            }
            _ => ErrorClass::PeerBroken,
        }
    }

    fn process_is_gone(&self) -> bool {
        // What libucp of 1.13 says of a reset TCP socket depends on who notices: the connection manager that it is reset, a
        // lane that sends that its endpoint has timed out.
        const GONE: [i8; 3] = [ucx::UCS_ERR_CONNECTION_RESET, ucx::UCS_ERR_REJECTED, ucx::UCS_ERR_ENDPOINT_TIMEOUT];
        match self {
            UcxError::Unreachable { status, .. } | UcxError::Broken { status, .. } => GONE.contains(&status.0),
            UcxError::Ended { source: Some(source), .. } => source.process_is_gone(),
            _ => false,
        }
    }

    fn native_code(&self) -> Option<i64> {
        match self {
            UcxError::Unreachable { status, .. }
            | UcxError::Broken { status, .. }
            | UcxError::Register { status, .. } => Some(status.0.into()),
            UcxError::Ended { source: Some(source), .. } => source.native_code(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_status_of_an_endpoint_breaks_its_connection_also_one_without_a_name() {
        for status in -100..0 {
            let (peer, address) = (PeerName::new("p").unwrap(), "127.0.0.1:1".into());
            let error = UcxError::Broken { peer, address, status: Status(status) };
            assert_eq!((error.class(), error.native_code()), (ErrorClass::PeerBroken, Some(status.into())));
            assert!(!Status(status).to_string().is_empty());
        }
    }
}
