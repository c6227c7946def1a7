//! The transports that the processes talk over. Nothing else in the suite has to do with one of its own.

use crate::child;
use peerage::transport::Counting;
use peerage::transport::tcp::{BindError, Tcp, TcpAddress};
#[cfg(feature = "ucx")]
use peerage::transport::ucx::{Ucx, UcxBindError};
use peerage::{DataPlane, PeerName};
use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::{Duration, Instant};

/// Counted, so that a second connect to one peer shows.
pub(crate) type Net<W> = Counting<W>;

/// How long a restarted process tries to get its port back.
const BIND: Duration = Duration::from_secs(10);

/// Over which transport a plan is walked through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Over {
    Tcp,
    #[cfg(feature = "ucx")]
    Ucx,
}

/// What is asked of a transport beyond what every one can do.
pub(crate) trait Wire: DataPlane<Address = TcpAddress> + Sized {
    type Error: fmt::Display;

    /// One connection to a peer at a time: then a second one is a duplicate, whatever its reason.
    fn bind(name: &PeerName, at: SocketAddr, accept_delay: Duration) -> Result<Self, <Self as Wire>::Error>;

    /// Whether the address may become free yet.
    fn is_taken(error: &<Self as Wire>::Error) -> bool;

    /// Where a process listens, as others are told.
    fn listens_at(&self) -> SocketAddr;

    fn boot(&self) -> String;

    /// Resets every connection that `peer` has made to us.
    fn cut(&self, peer: &PeerName);
}

/// Listens at `at`; port 0 lets the operating system choose.
pub(crate) fn listen<W: Wire>(name: &PeerName, at: SocketAddr, accept_delay: Duration) -> Result<Net<W>, String> {
    let deadline = Instant::now() + BIND;
    loop {
        match W::bind(name, at, accept_delay) {
            Err(error) if W::is_taken(&error) && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(20));
            }
            wire => return wire.map(Counting::new).map_err(|error| error.to_string()),
        }
    }
}

impl Over {
    /// Runs this process as one of a plan; returns only if it can't begin.
    pub(crate) fn serve(self, setup: &child::Setup) -> Result<Infallible, String> {
        match self {
            Over::Tcp => child::serve::<Tcp>(setup),
            #[cfg(feature = "ucx")]
            Over::Ucx => child::serve::<Ucx>(setup),
        }
    }
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Over::Tcp => "tcp",
            #[cfg(feature = "ucx")]
            Over::Ucx => "ucx",
        })
    }
}

impl FromStr for Over {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "tcp" => Ok(Over::Tcp),
            #[cfg(feature = "ucx")]
            "ucx" => Ok(Over::Ucx),
            _ => Err(format!("no transport: {text}")),
        }
    }
}

impl Wire for Tcp {
    type Error = BindError;

    fn bind(name: &PeerName, at: SocketAddr, accept_delay: Duration) -> Result<Self, BindError> {
        Tcp::builder().name(name.clone()).overlap(false).accept_delay(accept_delay).bind(at)
    }

    fn is_taken(error: &BindError) -> bool {
        matches!(error, BindError::Listen { .. })
    }

    fn listens_at(&self) -> SocketAddr {
        self.local_addr()
    }

    fn boot(&self) -> String {
        self.incarnation().to_string()
    }

    fn cut(&self, peer: &PeerName) {
        self.cut_inbound_of(peer);
    }
}

#[cfg(feature = "ucx")]
impl Wire for Ucx {
    type Error = UcxBindError;

    fn bind(name: &PeerName, at: SocketAddr, accept_delay: Duration) -> Result<Self, UcxBindError> {
        Ucx::builder().name(name.clone()).overlap(false).accept_delay(accept_delay).bind(at)
    }

    fn is_taken(error: &UcxBindError) -> bool {
        matches!(error, UcxBindError::Listen { .. })
    }

    fn listens_at(&self) -> SocketAddr {
        self.local_addr()
    }

    fn boot(&self) -> String {
        self.incarnation().to_string()
    }

    fn cut(&self, peer: &PeerName) {
        self.cut_inbound_of(peer);
    }
}
