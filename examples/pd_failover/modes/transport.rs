//! The transport of a run: one of those that move pages between processes, chosen on the command line.

use super::address::WireAddress;
#[cfg(feature = "nixl")]
use peerage::transport::nixl::{Nixl, NixlConnection, NixlError};
use peerage::transport::tcp::{Tcp, TcpConnection, TcpError};
#[cfg(feature = "ucx")]
use peerage::transport::ucx::{Ucx, UcxConnection, UcxError};
use peerage::transport::{
    Capabilities, CloseContext, CloseReason, Closed, ConnectContext, Connected, DataPlane, ErrorClass, Liveness,
    ProbeContext, Transport, TransportError,
};
use peerage::{GrantBook, Inbox, Incarnation, PeerName, Post, Region, TransferId};
use std::fmt;
use std::str::FromStr;
use std::time::Instant;

/// Which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Tcp,
    #[cfg(feature = "ucx")]
    Ucx,
    #[cfg(feature = "nixl")]
    Nixl,
}

impl Kind {
    /// Whether a process is where it says when it has started, and nobody can know before.
    pub(crate) fn is_published(self) -> bool {
        match self {
            Kind::Tcp => false,
            #[cfg(feature = "ucx")]
            Kind::Ucx => false,
            #[cfg(feature = "nixl")]
            Kind::Nixl => true,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Tcp => "tcp",
            #[cfg(feature = "ucx")]
            Kind::Ucx => "ucx",
            #[cfg(feature = "nixl")]
            Kind::Nixl => "nixl",
        })
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "tcp" => Ok(Kind::Tcp),
            #[cfg(feature = "ucx")]
            "ucx" => Ok(Kind::Ucx),
            #[cfg(not(feature = "ucx"))]
            "ucx" => Err("--transport ucx needs a build with --features ucx".into()),
            #[cfg(feature = "nixl")]
            "nixl" => Ok(Kind::Nixl),
            #[cfg(not(feature = "nixl"))]
            "nixl" => Err("--transport nixl needs a build with --features nixl".into()),
            _ => Err(format!("--transport must be tcp, ucx or nixl, not \"{}\"", text.escape_debug())),
        }
    }
}

/// One of them.
pub(crate) enum Wire {
    Tcp(Tcp),
    #[cfg(feature = "ucx")]
    Ucx(Ucx),
    #[cfg(feature = "nixl")]
    Nixl(Nixl),
}

#[derive(Debug)]
pub(crate) enum WireConnection {
    Tcp(TcpConnection),
    #[cfg(feature = "ucx")]
    Ucx(UcxConnection),
    #[cfg(feature = "nixl")]
    Nixl(NixlConnection),
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
    #[error(transparent)]
    Tcp(#[from] TcpError),
    #[cfg(feature = "ucx")]
    #[error(transparent)]
    Ucx(#[from] UcxError),
    #[cfg(feature = "nixl")]
    #[error(transparent)]
    Nixl(#[from] NixlError),
    #[cfg(feature = "nixl")]
    #[error("the address is of another transport")]
    Address,
}

impl TransportError for WireError {
    fn class(&self) -> ErrorClass {
        match self {
            WireError::Tcp(error) => error.class(),
            #[cfg(feature = "ucx")]
            WireError::Ucx(error) => error.class(),
            #[cfg(feature = "nixl")]
            WireError::Nixl(error) => error.class(),
            #[cfg(feature = "nixl")]
            WireError::Address => ErrorClass::Incompatible,
        }
    }

    fn native_code(&self) -> Option<i64> {
        match self {
            WireError::Tcp(error) => error.native_code(),
            #[cfg(feature = "ucx")]
            WireError::Ucx(error) => error.native_code(),
            #[cfg(feature = "nixl")]
            WireError::Nixl(error) => error.native_code(),
            #[cfg(feature = "nixl")]
            WireError::Address => None,
        }
    }

    fn process_is_gone(&self) -> bool {
        match self {
            WireError::Tcp(error) => error.process_is_gone(),
            #[cfg(feature = "ucx")]
            WireError::Ucx(error) => error.process_is_gone(),
            #[cfg(feature = "nixl")]
            WireError::Nixl(error) => error.process_is_gone(),
            #[cfg(feature = "nixl")]
            WireError::Address => false,
        }
    }
}

/// The same call of whichever it is.
macro_rules! either {
    ($wire:expr, $transport:pat => $call:expr) => {
        match $wire {
            Wire::Tcp($transport) => $call,
            #[cfg(feature = "ucx")]
            Wire::Ucx($transport) => $call,
            #[cfg(feature = "nixl")]
            Wire::Nixl($transport) => $call,
        }
    };
}

/// The same call with its connection.
macro_rules! over {
    ($wire:expr, $connection:expr, ($transport:pat, $of:pat) => $call:expr) => {
        match ($wire, $connection) {
            (Wire::Tcp($transport), WireConnection::Tcp($of)) => $call,
            #[cfg(feature = "ucx")]
            (Wire::Ucx($transport), WireConnection::Ucx($of)) => $call,
            #[cfg(feature = "nixl")]
            (Wire::Nixl($transport), WireConnection::Nixl($of)) => $call,
            #[cfg(any(feature = "ucx", feature = "nixl"))]
            _ => unreachable!("a connection is of the transport that made it"),
        }
    };
}

impl Wire {
    /// For others, for this boot only.
    pub(crate) fn address(&self) -> Result<WireAddress, WireError> {
        Ok(match self {
            Wire::Tcp(tcp) => WireAddress::Tcp(tcp.address().clone().with_incarnation(tcp.incarnation())),
            #[cfg(feature = "ucx")]
            Wire::Ucx(ucx) => WireAddress::Tcp(ucx.address().clone().with_incarnation(ucx.incarnation())),
            #[cfg(feature = "nixl")]
            Wire::Nixl(nixl) => WireAddress::Nixl(nixl.local_address()?),
        })
    }

    /// Breaks the connections that one peer, or every peer, has made to us.
    pub(crate) fn cut(&self, peer: Option<&str>) {
        let is_meant = |name: &PeerName| peer.is_none_or(|peer| name.as_str() == peer);
        match self {
            Wire::Tcp(tcp) => {
                for inbound in tcp.inbound().into_iter().filter(|inbound| is_meant(&inbound.key.name)) {
                    tcp.cut_inbound(&inbound.key);
                }
            }
            #[cfg(feature = "ucx")]
            Wire::Ucx(ucx) => {
                for (key, _) in ucx.inbound().into_iter().filter(|(key, _)| is_meant(&key.name)) {
                    ucx.cut_inbound(&key);
                }
            }
            #[cfg(feature = "nixl")]
            Wire::Nixl(nixl) => {
                for (key, _) in nixl.inbound().into_iter().filter(|(key, _)| is_meant(&key.name)) {
                    nixl.cut_inbound(&key);
                }
            }
        }
    }
}

fn map<C, D>(closed: Closed<C>, connection: impl FnOnce(C) -> D) -> Closed<D> {
    match closed {
        Closed::Released => Closed::Released,
        Closed::AlreadyGone => Closed::AlreadyGone,
        Closed::Retry(rest) => Closed::Retry(connection(rest)),
        Closed::Leaked(why) => Closed::Leaked(why),
        _ => Closed::Leaked("it closed in a way this example does not know"),
    }
}

impl Transport for Wire {
    type Address = WireAddress;
    type Connection = WireConnection;
    type Error = WireError;

    fn local_name(&self) -> Option<&PeerName> {
        either!(self, of => of.local_name())
    }

    fn new_incarnation(&self) -> Option<Incarnation> {
        either!(self, of => of.new_incarnation())
    }

    fn capabilities(&self) -> Capabilities {
        either!(self, of => of.capabilities())
    }

    fn connect(&self, cx: &ConnectContext, to: &WireAddress) -> Result<Connected<WireConnection>, WireError> {
        Ok(match (self, to) {
            (Wire::Tcp(tcp), WireAddress::Tcp(to)) => {
                let Connected { connection, incarnation } = tcp.connect(cx, to)?;
                Connected { connection: WireConnection::Tcp(connection), incarnation }
            }
            #[cfg(feature = "ucx")]
            (Wire::Ucx(ucx), WireAddress::Tcp(to)) => {
                let Connected { connection, incarnation } = ucx.connect(cx, to)?;
                Connected { connection: WireConnection::Ucx(connection), incarnation }
            }
            #[cfg(feature = "nixl")]
            (Wire::Nixl(nixl), WireAddress::Nixl(to)) => {
                let Connected { connection, incarnation } = nixl.connect(cx, to)?;
                Connected { connection: WireConnection::Nixl(connection), incarnation }
            }
            #[cfg(feature = "nixl")]
            _ => return Err(WireError::Address),
        })
    }

    fn disconnect(&self, cx: &CloseContext, connection: WireConnection, why: CloseReason) -> Closed<WireConnection> {
        match (self, connection) {
            (Wire::Tcp(tcp), WireConnection::Tcp(of)) => map(tcp.disconnect(cx, of, why), WireConnection::Tcp),
            #[cfg(feature = "ucx")]
            (Wire::Ucx(ucx), WireConnection::Ucx(of)) => map(ucx.disconnect(cx, of, why), WireConnection::Ucx),
            #[cfg(feature = "nixl")]
            (Wire::Nixl(nixl), WireConnection::Nixl(of)) => map(nixl.disconnect(cx, of, why), WireConnection::Nixl),
            #[cfg(any(feature = "ucx", feature = "nixl"))]
            _ => Closed::Leaked("it is of another transport"),
        }
    }

    fn probe(&self, cx: &ProbeContext, connection: &WireConnection) -> Liveness {
        over!(self, connection, (by, of) => by.probe(cx, of))
    }

    fn end(&self, deadline: Instant) {
        either!(self, of => of.end(deadline))
    }
}

impl DataPlane for Wire {
    fn max_notification(&self) -> usize {
        either!(self, of => of.max_notification())
    }

    fn notify(&self, connection: &WireConnection, message: &[u8]) -> Result<(), WireError> {
        over!(self, connection, (by, of) => Ok(by.notify(of, message)?))
    }

    fn inbox(&self) -> &Inbox {
        either!(self, of => of.inbox())
    }

    fn register(&self, region: &Region) -> Result<(), WireError> {
        either!(self, of => Ok(of.register(region)?))
    }

    fn deregister(&self, region: &Region) -> Result<(), WireError> {
        either!(self, of => Ok(of.deregister(region)?))
    }

    fn post(&self, connection: &WireConnection, post: Post) -> Result<(), WireError> {
        over!(self, connection, (by, of) => Ok(by.post(of, post)?))
    }

    fn cancel(&self, connection: &WireConnection, transfer: TransferId) {
        over!(self, connection, (by, of) => by.cancel(of, transfer));
    }

    fn grants(&self) -> &GrantBook {
        either!(self, of => of.grants())
    }
}
