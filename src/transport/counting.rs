//! Counts what is done to a transport: the proof that nobody connects twice.

use super::{
    Capabilities, CloseContext, CloseReason, Closed, ConnectContext, Connected, DataPlane, Liveness, ProbeContext,
    Transport,
};
use crate::grant::GrantBook;
use crate::inbox::Inbox;
use crate::name::{Incarnation, PeerName};
use crate::region::Region;
use crate::sync::lock;
use crate::transfer::{Post, TransferId};
use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;

/// A transport that counts the native calls made on the one inside. Wrap any transport in it, in a test or in production,
/// and prove that nobody connects twice:
///
/// ```
/// use peerage::transport::{Counting, memory::{Fabric, MemoryAddress}};
/// use peerage::{ConnectContext, Generation, Transport};
/// use std::time::{Duration, Instant};
///
/// let fabric = Fabric::new();
/// fabric.node("prefill-0");
/// let transport = Counting::new(fabric.node("decode"));
/// let deadline = Instant::now() + Duration::from_secs(10);
/// let cx = ConnectContext::standalone("prefill-0".try_into()?, Generation(1), deadline);
/// let connected = transport.connect(&cx, &MemoryAddress::new("prefill-0"))?;
///
/// assert_eq!(transport.total().connects_begun, 1);
/// assert_eq!(transport.total().duplicate_connects, 0);
/// # drop(connected);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A notification costs one relaxed addition more, on a line of its peer; connect and close take a mutex for a moment.
///
/// The counts of a name are kept as long as this lives, also after its peer is removed, so that a peer that comes back is
/// counted on: some 200 bytes and the name itself for each name ever connected to. A process whose peers take a new name at
/// each start should wrap its transport in tests only.
#[derive(Debug)]
pub struct Counting<T> {
    inner: T,
    tallies: Tallies,
}

impl<T> Counting<T> {
    /// Counts the calls on `inner` from now on.
    pub fn new(inner: T) -> Self {
        Counting { inner, tallies: Tallies::default() }
    }

    /// The transport inside. Calls made on it directly are not counted.
    pub fn inner(&self) -> &T {
        &self.inner
    }

    /// The counts of one peer; `None` if nobody has tried to connect to it. Never waits for a native call.
    pub fn peer(&self, name: &str) -> Option<PeerCounts> {
        self.tallies.peer(name)
    }

    /// The counts of all peers together; the two `max` are of what ran at one instant, not sums. Never waits for a
    /// native call.
    pub fn total(&self) -> PeerCounts {
        self.tallies.total()
    }

    /// How many native connects are running now: one relaxed load, for a hot loop.
    pub fn connects_running(&self) -> u64 {
        self.tallies.running.load(Relaxed)
    }
}

/// What has been done to one peer, or to all, so far.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PeerCounts {
    /// Native connects begun.
    pub connects_begun: u64,
    /// Those that made a connection.
    pub connects_ok: u64,
    /// Those that failed or panicked.
    pub connects_failed: u64,
    /// Those begun while another to the same name ran, or while a connection to it was not yet closed. Zero on a
    /// transport without [`Capabilities::OVERLAP`], or the table is broken; with it, a draining connection counts.
    pub duplicate_connects: u64,
    /// Native connects running now.
    pub connecting: u64,
    /// The most that ever ran at one instant.
    pub connecting_max: u64,
    /// Connections open now: made, and neither closed, leaked nor dropped.
    pub open: u64,
    /// The most that were ever open at one instant.
    pub open_max: u64,
    /// Closes finished: released, already gone or leaked.
    pub closes: u64,
    /// Those of them that leaked.
    pub leaked: u64,
    /// Connections dropped without a close that finished.
    pub dropped: u64,
    /// Calls of `notify`, accepted or not.
    pub notifies: u64,
    /// Calls of `post`, accepted or not.
    pub posts: u64,
}

/// A connection that is counted as open until it is closed or dropped. Derefs to the one inside.
#[derive(Debug)]
pub struct Counted<C> {
    connection: C,
    open: Open,
}

impl<C> Deref for Counted<C> {
    type Target = C;
    fn deref(&self) -> &C {
        &self.connection
    }
}

impl<T: Transport> Transport for Counting<T> {
    type Address = T::Address;
    type Connection = Counted<T::Connection>;
    type Error = T::Error;

    fn local_name(&self) -> Option<&PeerName> {
        self.inner.local_name()
    }

    fn new_incarnation(&self) -> Option<Incarnation> {
        self.inner.new_incarnation()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn connect(&self, cx: &ConnectContext, to: &T::Address) -> Result<Connected<Self::Connection>, T::Error> {
        let attempt = self.tallies.begin(cx.name());
        let Connected { connection, incarnation } = self.inner.connect(cx, to)?;
        Ok(Connected { connection: Counted { connection, open: attempt.made() }, incarnation })
    }

    fn disconnect(
        &self,
        cx: &CloseContext,
        connection: Self::Connection,
        why: CloseReason,
    ) -> Closed<Self::Connection> {
        let Counted { connection, open } = connection;
        match self.inner.disconnect(cx, connection, why) {
            Closed::Released => {
                open.end(Ended::Closed);
                Closed::Released
            }
            Closed::AlreadyGone => {
                open.end(Ended::Closed);
                Closed::AlreadyGone
            }
            Closed::Leaked(why) => {
                open.end(Ended::Leaked);
                Closed::Leaked(why)
            }
            Closed::Retry(connection) => Closed::Retry(Counted { connection, open }),
        }
    }

    fn end(&self, deadline: Instant) {
        self.inner.end(deadline);
    }

    fn probe(&self, cx: &ProbeContext, connection: &Self::Connection) -> Liveness {
        self.inner.probe(cx, connection)
    }
}

impl<T: DataPlane> DataPlane for Counting<T> {
    fn max_notification(&self) -> usize {
        self.inner.max_notification()
    }

    fn notify(&self, connection: &Self::Connection, message: &[u8]) -> Result<(), T::Error> {
        connection.open.notified();
        self.inner.notify(&connection.connection, message)
    }

    fn inbox(&self) -> &Inbox {
        self.inner.inbox()
    }

    fn register(&self, region: &Region) -> Result<(), T::Error> {
        self.inner.register(region)
    }

    fn deregister(&self, region: &Region) -> Result<(), T::Error> {
        self.inner.deregister(region)
    }

    fn post(&self, connection: &Self::Connection, post: Post) -> Result<(), T::Error> {
        connection.open.posted();
        self.inner.post(&connection.connection, post)
    }

    fn cancel(&self, connection: &Self::Connection, transfer: TransferId) {
        self.inner.cancel(connection, transfer);
    }

    fn grants(&self) -> &GrantBook {
        self.inner.grants()
    }
}

/// The counts of a transport, by name and in total.
#[derive(Default)]
pub(super) struct Tallies {
    peers: RwLock<HashMap<PeerName, Arc<Tally>>>,
    total: Arc<Tally>,
    running: Arc<AtomicU64>,
}

/// The counts of one name. Those of sends are apart: they are made without a lock.
#[derive(Default)]
struct Tally {
    slow: Mutex<PeerCounts>,
    notifies: AtomicU64,
    posts: AtomicU64,
}

impl Tallies {
    /// Counts a connect as begun, and as failed when the attempt is dropped before a connection is made.
    pub(super) fn begin(&self, name: &PeerName) -> Attempt {
        let known = self.peers.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        let peer = known.unwrap_or_else(|| {
            self.peers.write().unwrap_or_else(PoisonError::into_inner).entry(name.clone()).or_default().clone()
        });
        let count = |tally: &Tally, duplicate: Option<u64>| {
            let mut counts = tally.counts();
            let duplicate = duplicate.unwrap_or(u64::from(counts.connecting + counts.open > 0));
            counts.duplicate_connects += duplicate;
            counts.connects_begun += 1;
            counts.connecting += 1;
            counts.connecting_max = counts.connecting_max.max(counts.connecting);
            duplicate
        };
        let duplicate = count(&peer, None);
        count(&self.total, Some(duplicate));
        self.running.fetch_add(1, Relaxed);
        Attempt { of: Pair { peer, total: self.total.clone() }, running: self.running.clone(), made: false }
    }

    pub(super) fn peer(&self, name: &str) -> Option<PeerCounts> {
        self.peers.read().unwrap_or_else(PoisonError::into_inner).get(name).map(|tally| tally.snapshot())
    }

    pub(super) fn total(&self) -> PeerCounts {
        let mut total = self.total.snapshot();
        for peer in self.peers.read().unwrap_or_else(PoisonError::into_inner).values() {
            total.notifies += peer.notifies.load(Relaxed);
            total.posts += peer.posts.load(Relaxed);
        }
        total
    }
}

impl fmt::Debug for Tallies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.total(), f)
    }
}

impl Tally {
    fn counts(&self) -> MutexGuard<'_, PeerCounts> {
        lock(&self.slow)
    }

    fn snapshot(&self) -> PeerCounts {
        let (notifies, posts) = (self.notifies.load(Relaxed), self.posts.load(Relaxed));
        PeerCounts { notifies, posts, ..*self.counts() }
    }
}

#[derive(Clone)]
struct Pair {
    peer: Arc<Tally>,
    total: Arc<Tally>,
}

impl Pair {
    fn count(&self, count: impl Fn(&mut PeerCounts)) {
        count(&mut self.peer.counts());
        count(&mut self.total.counts());
    }
}

/// A native connect that runs.
pub(super) struct Attempt {
    of: Pair,
    running: Arc<AtomicU64>,
    made: bool,
}

impl Attempt {
    /// It made a connection, which is open from the instant at which the connect no longer runs.
    pub(super) fn made(mut self) -> Open {
        self.made = true;
        Open { of: self.of.clone(), how: Ended::Dropped }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let made = self.made;
        self.running.fetch_sub(1, Relaxed);
        self.of.count(|counts| {
            counts.connecting -= 1;
            if made {
                counts.connects_ok += 1;
                counts.open += 1;
                counts.open_max = counts.open_max.max(counts.open);
            } else {
                counts.connects_failed += 1;
            }
        });
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    Closed,
    Leaked,
    Dropped,
}

/// A connection that is open until this is gone.
pub(super) struct Open {
    of: Pair,
    how: Ended,
}

impl Open {
    pub(super) fn end(mut self, how: Ended) {
        self.how = how;
    }

    pub(super) fn notified(&self) {
        self.of.peer.notifies.fetch_add(1, Relaxed);
    }

    pub(super) fn posted(&self) {
        self.of.peer.posts.fetch_add(1, Relaxed);
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let how = self.how;
        self.of.count(|counts| {
            counts.open -= 1;
            counts.closes += u64::from(how != Ended::Dropped);
            counts.leaked += u64::from(how == Ended::Leaked);
            counts.dropped += u64::from(how == Ended::Dropped);
        });
    }
}

impl fmt::Debug for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Open")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> PeerName {
        PeerName::new(name).unwrap()
    }

    #[test]
    fn a_connect_is_a_duplicate_while_another_to_its_name_runs_or_is_open() {
        let tallies = Tallies::default();
        let first = tallies.begin(&name("p"));
        let second = tallies.begin(&name("p"));
        let other = tallies.begin(&name("q"));
        assert_eq!(tallies.peer("p").unwrap().duplicate_connects, 1);
        drop(second);
        let open = first.made();
        drop(tallies.begin(&name("p")));
        assert_eq!(tallies.peer("p").unwrap().duplicate_connects, 2);
        open.end(Ended::Closed);
        drop(tallies.begin(&name("p")));
        assert_eq!(tallies.peer("p").unwrap().duplicate_connects, 2, "the old one is closed");
        assert_eq!(tallies.peer("q").unwrap().duplicate_connects, 0, "names are apart");
        assert_eq!(tallies.total().duplicate_connects, 2);
        drop(other);
        assert_eq!(tallies.running.load(Relaxed), 0);
    }

    #[test]
    fn every_connection_ends_in_exactly_one_count() {
        let tallies = Tallies::default();
        for how in [Some(Ended::Closed), Some(Ended::Leaked), None] {
            let open = tallies.begin(&name("p")).made();
            match how {
                Some(how) => open.end(how),
                None => drop(open),
            }
        }
        drop(tallies.begin(&name("p")));
        let counts = tallies.total();
        assert_eq!((counts.connects_begun, counts.connects_ok, counts.connects_failed), (4, 3, 1));
        assert_eq!((counts.closes, counts.leaked, counts.dropped), (2, 1, 1));
        assert_eq!((counts.open, counts.open_max, counts.connecting, counts.connecting_max), (0, 1, 0, 1));
    }
}
