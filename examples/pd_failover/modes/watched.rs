//! Remembers when native calls ran, so that a latency can be told from one that had nothing to do with connects, and so
//! that a scenario can say what it has seen of them.

use peerage::transport::{
    Capabilities, CloseContext, CloseReason, Closed, ConnectContext, Connected, DataPlane, Liveness, ProbeContext,
    Transport,
};
use peerage::{GrantBook, Inbox, PeerName, Post, Region, TransferId};
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long an ended connect is remembered: longer than any send waits.
const REMEMBERED: Duration = Duration::from_secs(10);

/// A transport whose connects and probes are remembered for a while. Everything else goes straight to the one inside.
pub(crate) struct Watched<T> {
    inner: T,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    connects: VecDeque<Ran>,
    /// The most within their deadline that ran at one instant. Beyond it one has given up its place for another.
    at_once: usize,
    /// When each peer was probed last.
    probes: HashMap<PeerName, Instant>,
}

/// A native connect.
#[derive(Clone)]
pub(crate) struct Ran {
    pub(crate) to: PeerName,
    pub(crate) begun: Instant,
    /// `None`: it still runs.
    pub(crate) ended: Option<Instant>,
    pub(crate) made: bool,
    deadline: Instant,
    told: bool,
}

impl<T> Watched<T> {
    pub(crate) fn new(inner: T) -> Self {
        Watched { inner, seen: Mutex::default() }
    }

    pub(crate) fn inner(&self) -> &T {
        &self.inner
    }

    /// Whether a connect to another peer than this one ran at some time from `from` to `to`.
    pub(crate) fn connect_ran(&self, besides: &str, from: Instant, to: Instant) -> bool {
        let ran =
            |ran: &Ran| ran.to.as_str() != besides && ran.begun <= to && ran.ended.is_none_or(|ended| ended >= from);
        self.seen().connects.iter().rev().any(ran)
    }

    /// Connects that have ended and were not asked for before.
    pub(crate) fn ended_connects(&self) -> Vec<Ran> {
        let mut seen = self.seen();
        let new = seen.connects.iter_mut().filter(|ran| ran.ended.is_some() && !ran.told);
        let tell = |ran: &mut Ran| {
            ran.told = true;
            ran.clone()
        };
        new.map(tell).collect()
    }

    /// The most connects within their deadline that ever ran at one instant.
    pub(crate) fn connects_at_once(&self) -> usize {
        self.seen().at_once
    }

    pub(crate) fn last_probe(&self, of: &str) -> Option<Instant> {
        self.seen().probes.iter().find(|(name, _)| name.as_str() == of).map(|(_, at)| *at)
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends a connect's time also when it panics.
struct Running<'a, T> {
    of: &'a Watched<T>,
    to: PeerName,
    begun: Instant,
    made: bool,
}

impl<'a, T> Running<'a, T> {
    fn begin(of: &'a Watched<T>, to: &PeerName, deadline: Instant) -> Self {
        let mut seen = of.seen();
        let begun = Instant::now();
        let connects = &mut seen.connects;
        while connects.front().is_some_and(|first| first.ended.is_some_and(|ended| ended + REMEMBERED < begun)) {
            connects.pop_front();
        }
        connects.push_back(Ran { to: to.clone(), begun, ended: None, made: false, deadline, told: false });
        let at_once = connects.iter().filter(|ran| ran.ended.is_none() && ran.deadline > begun).count();
        seen.at_once = seen.at_once.max(at_once);
        Running { of, to: to.clone(), begun, made: false }
    }
}

impl<T> Drop for Running<'_, T> {
    fn drop(&mut self) {
        let mut seen = self.of.seen();
        let it = |ran: &&mut Ran| ran.begun == self.begun && ran.to == self.to && ran.ended.is_none();
        if let Some(ran) = seen.connects.iter_mut().rev().find(it) {
            ran.ended = Some(Instant::now());
            ran.made = self.made;
        }
    }
}

impl<T: Transport> Transport for Watched<T> {
    type Address = T::Address;
    type Connection = T::Connection;
    type Error = T::Error;

    fn local_name(&self) -> Option<&PeerName> {
        self.inner.local_name()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn connect(&self, cx: &ConnectContext, to: &T::Address) -> Result<Connected<T::Connection>, T::Error> {
        let mut running = Running::begin(self, cx.name(), cx.deadline());
        let result = self.inner.connect(cx, to);
        running.made = result.is_ok();
        result
    }

    fn disconnect(&self, cx: &CloseContext, connection: T::Connection, why: CloseReason) -> Closed<T::Connection> {
        self.inner.disconnect(cx, connection, why)
    }

    fn end(&self, deadline: Instant) {
        self.inner.end(deadline);
    }

    fn probe(&self, cx: &ProbeContext, connection: &T::Connection) -> Liveness {
        self.seen().probes.insert(cx.name.clone(), Instant::now());
        self.inner.probe(cx, connection)
    }
}

impl<T: DataPlane> DataPlane for Watched<T> {
    fn max_notification(&self) -> usize {
        self.inner.max_notification()
    }

    fn notify(&self, connection: &T::Connection, message: &[u8]) -> Result<(), T::Error> {
        self.inner.notify(connection, message)
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

    fn post(&self, connection: &T::Connection, post: Post) -> Result<(), T::Error> {
        self.inner.post(connection, post)
    }

    fn cancel(&self, connection: &T::Connection, transfer: TransferId) {
        self.inner.cancel(connection, transfer);
    }

    fn grants(&self) -> &GrantBook {
        self.inner.grants()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connect_is_seen_by_whatever_overlaps_it_and_is_about_another_peer() {
        let watched = Watched::new(());
        let moment = || std::thread::sleep(Duration::from_millis(2));
        let before = Instant::now();
        moment();
        let running = Running::begin(&watched, &PeerName::new("p").unwrap(), before + REMEMBERED);
        moment();
        let during = Instant::now();
        let later = during + Duration::from_secs(1);
        assert!(watched.connect_ran("q", later, later), "it still runs");
        moment();
        drop(running);
        moment();
        let after = Instant::now();
        assert!(watched.connect_ran("q", during, during));
        assert!(watched.connect_ran("q", before, after));
        assert!(!watched.connect_ran("q", before, before));
        assert!(!watched.connect_ran("q", after, after));
        assert!(!watched.connect_ran("p", before, after));
    }

    #[test]
    fn connects_beyond_their_deadline_are_not_counted_at_once_and_each_is_told_once() {
        let watched = Watched::new(());
        let begin = |name, deadline| Running::begin(&watched, &PeerName::new(name).unwrap(), deadline);
        let now = Instant::now();
        let overdue = begin("p", now);
        let (mut one, two) = (begin("q", now + REMEMBERED), begin("r", now + REMEMBERED));
        assert_eq!((watched.connects_at_once(), watched.ended_connects().len()), (2, 0));
        one.made = true;
        drop((overdue, one));
        let told = watched.ended_connects();
        let told: Vec<_> = told.iter().map(|ran| (ran.to.as_str(), ran.made)).collect();
        assert_eq!(told, [("p", false), ("q", true)]);
        drop(two);
        assert_eq!((watched.ended_connects().len(), watched.connects_at_once()), (1, 2));
    }
}
