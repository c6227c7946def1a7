//! The connections that others opened to us: who they are, how many there may be, and how to end one.

use crate::grant::GrantBook;
use crate::name::{Incarnation, PeerName};
use crate::state::Generation;
use crate::transport::frame::Verdict;
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// What tells inbound connections apart. The dialer names all three; on an unauthenticated transport that is a claim.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct InboundKey {
    /// The dialer's name.
    pub name: PeerName,
    /// Its boot id.
    pub incarnation: Incarnation,
    /// Its generation of this connection.
    pub generation: Generation,
}

/// One inbound connection as it was when it was listed.
#[non_exhaustive]
#[derive(Debug, Clone)]
pub struct Inbound {
    /// Which.
    pub key: InboundKey,
    /// Where it comes from.
    pub peer_addr: SocketAddr,
    /// Bytes of frames received.
    pub received: u64,
    /// Bytes of frames sent.
    pub sent: u64,
    /// How long it has been open.
    pub age: Duration,
}

/// One open connection, as its task and the list share it.
#[derive(Debug)]
pub(super) struct Live {
    /// What a grant binds to: unique in this process.
    pub(super) id: u64,
    pub(super) key: InboundKey,
    pub(super) received: AtomicU64,
    pub(super) sent: AtomicU64,
    peer_addr: SocketAddr,
    since: Instant,
    stop: Notify,
    reset: AtomicBool,
}

impl Live {
    /// Resolves when somebody wants the connection ended; whether by RST.
    pub(super) async fn stopped(&self) -> bool {
        self.stop.notified().await;
        self.reset.load(Ordering::Acquire)
    }

    fn stop(&self, reset: bool) {
        self.reset.fetch_or(reset, Ordering::AcqRel);
        self.stop.notify_one();
    }
}

/// All of them.
#[derive(Debug)]
pub(super) struct Registry {
    live: DashMap<InboundKey, Arc<Live>>,
    /// Places taken, also by connections that are about to be listed.
    taken: AtomicUsize,
    limit: usize,
}

impl Registry {
    pub(super) fn new(limit: usize) -> Self {
        Registry { live: DashMap::new(), taken: AtomicUsize::new(0), limit }
    }

    /// Lists a connection, until the place is dropped.
    pub(super) fn enter(
        self: &Arc<Self>,
        key: InboundKey,
        peer_addr: SocketAddr,
        grants: &GrantBook,
    ) -> Result<Place, Verdict> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        if self.taken.fetch_add(1, Ordering::AcqRel) >= self.limit {
            self.taken.fetch_sub(1, Ordering::AcqRel);
            return Err(Verdict::Full);
        }
        let Entry::Vacant(vacant) = self.live.entry(key.clone()) else {
            self.taken.fetch_sub(1, Ordering::AcqRel);
            return Err(Verdict::Duplicate);
        };
        let live = Arc::new(Live {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            key,
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            peer_addr,
            since: Instant::now(),
            stop: Notify::new(),
            reset: AtomicBool::new(false),
        });
        vacant.insert(live.clone());
        Ok(Place { live, registry: self.clone(), grants: grants.clone() })
    }

    pub(super) fn list(&self) -> Vec<Inbound> {
        let seen = |live: &Live| Inbound {
            key: live.key.clone(),
            peer_addr: live.peer_addr,
            received: live.received.load(Ordering::Relaxed),
            sent: live.sent.load(Ordering::Relaxed),
            age: live.since.elapsed(),
        };
        self.live.iter().map(|entry| seen(&entry)).collect()
    }

    pub(super) fn stop(&self, key: &InboundKey, reset: bool) -> bool {
        let live = self.live.get(key).map(|live| live.clone());
        live.inspect(|live| live.stop(reset)).is_some()
    }

    pub(super) fn stop_all_of(&self, name: &PeerName, reset: bool) -> usize {
        let of_name = self.live.iter().filter(|live| live.key.name == *name);
        of_name.map(|live| live.stop(reset)).count()
    }
}

/// A connection's place in the list. Dropped when nothing of the connection runs any more: what was lent over it is
/// quiesced then.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) live: Arc<Live>,
    registry: Arc<Registry>,
    grants: GrantBook,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.grants.inbound_closed(self.live.id);
        self.registry.live.remove(&self.live.key);
        self.registry.taken.fetch_sub(1, Ordering::AcqRel);
    }
}
