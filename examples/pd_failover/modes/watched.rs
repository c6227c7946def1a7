//! Remembers when native connects ran, so that a latency can be told from one that had nothing to do with them.

use peerage::transport::{
    Capabilities, CloseContext, CloseReason, Closed, ConnectContext, Connected, DataPlane, Liveness, ProbeContext,
    Transport,
};
use peerage::{GrantBook, Inbox, PeerName, Post, Region, TransferId};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long an ended connect is remembered: longer than any send waits.
const REMEMBERED: Duration = Duration::from_secs(10);

/// A transport whose connects are remembered for a while. Everything else goes straight to the one inside.
pub(crate) struct Watched<T> {
    inner: T,
    connects: Mutex<VecDeque<Ran>>,
}

struct Ran {
    to: PeerName,
    begun: Instant,
    /// `None`: it still runs.
    ended: Option<Instant>,
}

impl<T> Watched<T> {
    pub(crate) fn new(inner: T) -> Self {
        Watched { inner, connects: Mutex::default() }
    }

    pub(crate) fn inner(&self) -> &T {
        &self.inner
    }

    /// Whether a connect to another peer than this one ran at some time from `from` to `to`.
    pub(crate) fn connect_ran(&self, besides: &str, from: Instant, to: Instant) -> bool {
        let ran =
            |ran: &Ran| ran.to.as_str() != besides && ran.begun <= to && ran.ended.is_none_or(|ended| ended >= from);
        self.connects().iter().rev().any(ran)
    }

    fn connects(&self) -> MutexGuard<'_, VecDeque<Ran>> {
        self.connects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends a connect's time also when it panics.
struct Running<'a, T> {
    of: &'a Watched<T>,
    to: PeerName,
    begun: Instant,
}

impl<'a, T> Running<'a, T> {
    fn begin(of: &'a Watched<T>, to: &PeerName) -> Self {
        let begun = Instant::now();
        let mut connects = of.connects();
        while connects.front().is_some_and(|first| first.ended.is_some_and(|ended| ended + REMEMBERED < begun)) {
            connects.pop_front();
        }
        connects.push_back(Ran { to: to.clone(), begun, ended: None });
        Running { of, to: to.clone(), begun }
    }
}

impl<T> Drop for Running<'_, T> {
    fn drop(&mut self) {
        let mut connects = self.of.connects();
        let it = |ran: &&mut Ran| ran.begun == self.begun && ran.to == self.to && ran.ended.is_none();
        if let Some(ran) = connects.iter_mut().rev().find(it) {
            ran.ended = Some(Instant::now());
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
        let _running = Running::begin(self, cx.name());
        self.inner.connect(cx, to)
    }

    fn disconnect(&self, cx: &CloseContext, connection: T::Connection, why: CloseReason) -> Closed<T::Connection> {
        self.inner.disconnect(cx, connection, why)
    }

    fn end(&self, deadline: Instant) {
        self.inner.end(deadline);
    }

    fn probe(&self, cx: &ProbeContext, connection: &T::Connection) -> Liveness {
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
        let running = Running::begin(&watched, &PeerName::new("p").unwrap());
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
}
