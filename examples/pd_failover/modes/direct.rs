//! A connection without a table, and the calls the baselines make on it. What is here is what code without this library
//! does well: it closes a connection after its last user, and it does not dial without a delay.

use super::{Link, Net, NetError, PeerIndex, Policy, Refused, WireAddress};
use crate::random::Random;
use peerage::{
    Access, CloseContext, CloseReason, Closed, ConnectContext, DataPlane, ErrorClass, Generation, Grant, PeerName,
    Post, Region, RemoteSlice, Slice, Transfer, TransferKind, Transport, TransportError,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a close may take.
const CLOSE: Duration = Duration::from_secs(5);

/// The transport and the addresses of a baseline.
pub(crate) struct Direct {
    pub(crate) net: Arc<Net>,
    peers: Vec<(PeerName, WireAddress)>,
    policy: Policy,
    /// By peer: when to dial again.
    retry: Vec<Mutex<Retry>>,
    next_generation: AtomicU64,
}

struct Retry {
    failures: u32,
    at: Instant,
    /// When the last connection was made.
    since: Option<Instant>,
    random: Random,
}

impl Direct {
    pub(crate) fn new(net: Net, peers: &[(PeerName, WireAddress)], policy: Policy) -> Self {
        let retry = |seed| Retry { failures: 0, at: Instant::now(), since: None, random: Random::new(seed) };
        Direct {
            net: Arc::new(net),
            peers: peers.to_vec(),
            policy,
            retry: (0..peers.len() as u64).map(|seed| Mutex::new(retry(seed))).collect(),
            next_generation: AtomicU64::new(1),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.peers.len()
    }

    /// Dials on this thread, unless the retry delay is not over.
    pub(crate) fn connect(&self, to: PeerIndex) -> Result<Arc<Open>, Refused> {
        if self.retry(to).at > Instant::now() {
            return Err(Refused::because("not connected, and not to be dialled yet"));
        }
        let (name, address) = &self.peers[to];
        let generation = Generation(self.next_generation.fetch_add(1, Ordering::Relaxed));
        let context =
            ConnectContext::standalone(name.clone(), generation, Instant::now() + self.policy.connect_timeout);
        match self.net.connect(&context, address) {
            Ok(connected) => {
                self.retry(to).since = Some(Instant::now());
                let connection = Some(connected.connection);
                Ok(Arc::new(Open { net: self.net.clone(), name: name.clone(), generation, connection }))
            }
            Err(error) => {
                self.failed(to);
                Err(Refused::because(error))
            }
        }
    }

    /// A connect failed, or a connection broke: the same delay as a table's.
    pub(crate) fn failed(&self, to: PeerIndex) {
        let mut retry = self.retry(to);
        let stable = retry.since.take().map(|since| since.elapsed());
        retry.failures = self.policy.backoff.failures_after(retry.failures, stable);
        let random = retry.random.next();
        retry.at = Instant::now() + self.policy.backoff.delay(retry.failures, random);
    }

    pub(crate) fn register(&self, region: &Region) -> Result<(), Refused> {
        self.net.register(region).map_err(Refused::because)
    }

    pub(crate) fn lend(&self, to: PeerIndex, page: &Slice) -> Grant {
        self.net.grants().lend(&self.peers[to].0, page, Access::Write)
    }

    fn retry(&self, to: PeerIndex) -> MutexGuard<'_, Retry> {
        self.retry[to].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An open connection; closed when its last user is gone.
pub(crate) struct Open {
    net: Arc<Net>,
    name: PeerName,
    generation: Generation,
    /// Taken by `drop`.
    connection: Option<<Net as Transport>::Connection>,
}

impl Open {
    fn connection(&self) -> &<Net as Transport>::Connection {
        self.connection.as_ref().expect("only drop takes it")
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let context =
            CloseContext { name: self.name.clone(), generation: self.generation, deadline: Instant::now() + CLOSE };
        let mut left = self.connection.take();
        while let Some(connection) = left {
            left = match self.net.disconnect(&context, connection, CloseReason::Failed) {
                Closed::Retry(connection) if Instant::now() < context.deadline => Some(connection),
                _ => None,
            };
        }
    }
}

/// A baseline's link: a counted reference of the connection, and what to do when it breaks.
pub(crate) struct DirectLink<'a> {
    pub(crate) open: Arc<Open>,
    /// Removes the peer's connection from the map, by name: all that today's code knows at this point.
    pub(crate) remove: Box<dyn Fn() + 'a>,
}

impl DirectLink<'_> {
    fn check<R>(&self, result: Result<R, NetError>) -> Result<R, Refused> {
        result.map_err(|error| match error.class() {
            ErrorClass::Busy { retry_after } => Refused::Busy(retry_after),
            ErrorClass::Local => Refused::because(error),
            _ => {
                (self.remove)();
                Refused::because(error)
            }
        })
    }
}

impl Link for DirectLink<'_> {
    fn generation(&self) -> Generation {
        self.open.generation
    }

    fn notify(&self, message: &[u8]) -> Result<(), Refused> {
        self.check(self.open.net.notify(self.open.connection(), message))
    }

    fn write(&self, local: &Slice, remote: RemoteSlice) -> Result<Transfer, Refused> {
        let (post, transfer) = Post::standalone(TransferKind::Write, local.clone(), remote);
        self.check(self.open.net.post(self.open.connection(), post)).map(|()| transfer)
    }
}
