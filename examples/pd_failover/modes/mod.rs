//! One program, three lifecycles. The rest of the example sends through [`Peers`] and does not know which one it has:
//!
//! 1. [`peerage`](self::peerage): this library's table; the file to read if you want to use it.
//! 2. [`global_lock`]: a map of connections behind one lock, held through connect.
//! 3. [`check_then_add`]: the same map, looked up first and added to later, without a lock in between.
//!
//! The two baselines call the same counted transport with the same retry delays; only the lifecycle differs.

mod address;
mod check_then_add;
mod direct;
mod global_lock;
mod peerage;
mod transport;
mod watched;

pub(crate) use self::address::WireAddress;
pub(crate) use self::peerage::Peerage;
use crate::lines::Counts;
use ::peerage::transport::Counting;
use ::peerage::{
    Backoff, Breaker, Generation, Grant, Heartbeat, PeerName, Region, RemoteSlice, Slice, Transfer, Transport,
};
use std::error::Error;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};
pub(crate) use transport::{Kind as TransportKind, Wire};
pub(crate) use watched::Watched;

/// The transport of every mode.
pub(crate) type Net = Watched<Counting<Wire>>;
/// A peer, by its place in the list that [`open`] was given.
pub(crate) type PeerIndex = usize;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Peerage,
    GlobalLock,
    CheckThenAdd,
}

/// The peers of one process, shared by all its threads.
pub(crate) trait Peers: Send + Sync {
    /// The right to send to a peer. With peerage this never waits, and a peer that is not there is asked for; the
    /// baselines connect on the caller's thread.
    fn link(&self, to: PeerIndex) -> Result<Box<dyn Link + '_>, Refused>;

    /// The same if there is a connection now; in no mode does the caller connect.
    fn link_if_up(&self, to: PeerIndex) -> Option<Box<dyn Link + '_>>;

    /// The same, for a caller who chooses to wait for the peer.
    fn link_within(&self, to: PeerIndex, deadline: Instant) -> Result<Box<dyn Link + '_>, Refused>;

    /// The connection that was used has failed its user.
    fn report(&self, to: PeerIndex, used: Generation, why: &dyn Error);

    /// Makes a region known to the transport.
    fn register(&self, region: &Region) -> Result<(), Refused>;

    /// Lends a page for writing.
    fn lend(&self, to: PeerIndex, page: &Slice) -> Result<Grant, Refused>;

    fn all_ready(&self) -> bool;

    fn net(&self) -> &Net;

    /// What scenarios ask for and only this library's table can do; `None` in a baseline.
    fn peerage(&self) -> Option<&Peerage> {
        None
    }

    /// `None` while a connect is running, when counts of different places do not belong together.
    fn counts(&self) -> Option<Counts>;

    /// Ends all connections; says what could not be taken back, or nothing.
    fn shutdown(&self, deadline: Instant) -> String;
}

/// The right to send over one connection, which stays open while this lives.
pub(crate) trait Link {
    fn generation(&self) -> Generation;
    fn notify(&self, message: &[u8]) -> Result<(), Refused>;
    fn write(&self, local: &Slice, remote: RemoteSlice) -> Result<Transfer, Refused>;
}

/// Why nothing was sent, or why nobody knows.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    /// Nothing was sent; the peer is well.
    #[error("busy")]
    Busy(Duration),
    #[error("{0}")]
    Because(String),
}

impl Refused {
    fn because(error: impl fmt::Display) -> Self {
        Refused::Because(error.to_string())
    }
}

#[derive(Debug, thiserror::Error)]
#[error("a request was not answered in time")]
pub(crate) struct RequestTimedOut;

/// How connects are made and repeated.
#[derive(Debug, Clone)]
pub(crate) struct Policy {
    /// These two are the same in every mode.
    pub(crate) connect_timeout: Duration,
    pub(crate) backoff: Backoff,
    /// The rest only a table has.
    pub(crate) breaker: Option<Breaker>,
    pub(crate) heartbeat: Option<Heartbeat>,
    /// `None`: the library's default.
    pub(crate) max_concurrent_connects: Option<usize>,
    /// The peers are ranks of one engine.
    pub(crate) group: bool,
}

impl Default for Policy {
    /// The library's, but for a connect that fails sooner.
    fn default() -> Self {
        Policy {
            connect_timeout: Duration::from_secs(2),
            backoff: Backoff::default(),
            breaker: Some(Breaker::default()),
            heartbeat: None,
            max_concurrent_connects: None,
            group: false,
        }
    }
}

pub(crate) fn open(
    mode: Mode,
    net: Net,
    peers: &[(PeerName, WireAddress)],
    policy: Policy,
) -> Result<Arc<dyn Peers>, String> {
    Ok(match mode {
        Mode::Peerage => Arc::new(peerage::Peerage::new(net, peers, policy)?),
        Mode::GlobalLock => Arc::new(global_lock::GlobalLock::new(net, peers, policy)),
        Mode::CheckThenAdd => Arc::new(check_then_add::CheckThenAdd::new(net, peers, policy)),
    })
}

impl Mode {
    pub(crate) const ALL: [Mode; 3] = [Mode::CheckThenAdd, Mode::GlobalLock, Mode::Peerage];
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Peerage => "peerage",
            Mode::GlobalLock => "global-lock",
            Mode::CheckThenAdd => "check-then-add",
        })
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Mode::ALL.into_iter().find(|mode| mode.to_string() == text);
        found.ok_or_else(|| {
            format!("--mode must be peerage, global-lock or check-then-add, not \"{}\"", text.escape_debug())
        })
    }
}

/// What the baselines have in common: the counts of the transport, and no table to count in.
fn counts_without_table(net: &Net) -> Option<Counts> {
    let total = net.inner().total();
    (total.connecting == 0).then_some(Counts {
        table: None,
        native_connects: total.connects_begun,
        duplicate_connects: total.duplicate_connects,
    })
}

/// The transport's word for an error of its own.
type NetError = <Net as Transport>::Error;
