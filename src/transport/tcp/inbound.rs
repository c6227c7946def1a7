//! The connections that others opened to us: who they are, how many there may be, and how to end one.
//!
//! No model sees sockets. What makes the atomics here right: `taken` is one number, changed by read-modify-writes alone, so the
//! bound holds in any order; whoever waits for its zero looks under `waiting`, which the last one out takes before it notifies.
//! `newest` only grows, and what must have seen it grow is ordered by the inbox's lock. Bytes are for listing.

use super::alive::Pulse;
use crate::grant::GrantBook;
use crate::name::{Incarnation, PeerName};
use crate::state::Generation;
use crate::sync::lock;
use crate::transport::frame::Verdict;
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
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
    pub(super) pulse: Pulse,
    /// The newest generation that the same boot of the same peer has connected with.
    newest: Arc<AtomicU64>,
    peer_addr: SocketAddr,
    since: Instant,
    stop: Notify,
    how: Mutex<Option<Stop>>,
}

/// How somebody here wants a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    Goodbye,
    Reset,
}

impl Live {
    /// Whether its dialer has connected again since: what comes here now is old.
    pub(super) fn is_superseded(&self) -> bool {
        // ord! Acquire is more than it needs. Asked under the inbox's lock: whoever finds a newer connection's message queued
        //      there finds that connection's generation here, which was raised before its dialer was let in.
        //      test: case_b12_a_message_of_a_connection_that_its_sender_has_replaced_is_dropped_and_counted
        //      fails if: b12
        self.key.generation.0 < self.newest.load(Ordering::Acquire)
    }

    /// Resolves when somebody wants the connection ended.
    pub(super) async fn stopped(&self) -> Stop {
        loop {
            self.stop.notified().await;
            if let Some(how) = lock(&self.how).take() {
                return how;
            }
        }
    }

    fn stop(&self, how: Stop) {
        let mut wanted = lock(&self.how);
        if *wanted != Some(Stop::Reset) {
            *wanted = Some(how);
        }
        drop(wanted);
        self.stop.notify_one();
    }
}

/// All of them.
#[derive(Debug)]
pub(super) struct Registry {
    live: DashMap<InboundKey, Arc<Live>>,
    /// How many connections each boot of each peer has, and its newest generation.
    boots: DashMap<(PeerName, Incarnation), (usize, Arc<AtomicU64>)>,
    /// Places taken, also by connections that are about to be listed.
    taken: AtomicUsize,
    limit: usize,
    /// Held by who waits until there is none.
    waiting: Mutex<()>,
    left: Condvar,
}

impl Registry {
    pub(super) fn new(limit: usize) -> Self {
        Registry {
            live: DashMap::new(),
            boots: DashMap::new(),
            taken: AtomicUsize::new(0),
            limit,
            waiting: Mutex::new(()),
            left: Condvar::new(),
        }
    }

    /// Lists a connection, until what this answers is dropped.
    pub(super) fn enter(
        self: &Arc<Self>,
        key: InboundKey,
        peer_addr: SocketAddr,
        grants: &GrantBook,
    ) -> Result<Listed, Verdict> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        // ord! AcqRel is more than the bound needs, which any order of read-modify-writes keeps: who comes too many goes again.
        if self.taken.fetch_add(1, Ordering::AcqRel) >= self.limit {
            self.taken.fetch_sub(1, Ordering::AcqRel);
            return Err(Verdict::Full);
        }
        let Entry::Vacant(vacant) = self.live.entry(key.clone()) else {
            self.taken.fetch_sub(1, Ordering::AcqRel);
            return Err(Verdict::Duplicate);
        };
        let newest = {
            let mut boot = self.boots.entry((key.name.clone(), key.incarnation)).or_default();
            boot.0 += 1;
            boot.1.clone()
        };
        // ord! AcqRel is more than it needs: the maximum is one read-modify-write, and it publishes only itself. Before the
        //      dialer is told that it is in, on the task that queues what comes from it: nothing of it is queued before what
        //      is older is refused.
        newest.fetch_max(key.generation.0, Ordering::AcqRel);
        let live = Arc::new(Live {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            key,
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            pulse: Pulse::default(),
            newest,
            peer_addr,
            since: Instant::now(),
            stop: Notify::new(),
            how: Mutex::new(None),
        });
        vacant.insert(live.clone());
        Ok(Listed { live, registry: self.clone(), grants: grants.clone() })
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

    pub(super) fn stop(&self, key: &InboundKey, how: Stop) -> bool {
        let live = self.live.get(key).map(|live| live.clone());
        live.inspect(|live| live.stop(how)).is_some()
    }

    pub(super) fn stop_all(&self, which: impl Fn(&InboundKey) -> bool, how: Stop) -> usize {
        let of_name = self.live.iter().filter(|live| which(&live.key));
        of_name.map(|live| live.stop(how)).count()
    }

    /// Blocks this thread until no connection has a place, or `left` says that the time is over.
    pub(super) fn wait_until_empty(&self, left: impl Fn() -> Option<Duration>) {
        let mut waiting = lock(&self.waiting);
        // ord! Acquire: pairs with the Release in `Listed::drop`, of each one that left: what was lent over any of them is
        //      quiesced. Under `waiting`, so the last one to leave notifies after this look, or this look sees its zero.
        while self.taken.load(Ordering::Acquire) > 0 {
            let Some(left) = left() else { return };
            waiting = self.left.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// A connection in the list. Dropped when nothing of the connection runs any more: what was lent over it is
/// quiesced then.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) live: Arc<Live>,
    registry: Arc<Registry>,
    grants: GrantBook,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.grants.inbound_closed(self.live.id);
        let key = &self.live.key;
        self.registry.live.remove(key);
        if let Entry::Occupied(mut boot) = self.registry.boots.entry((key.name.clone(), key.incarnation)) {
            boot.get_mut().0 -= 1;
            if boot.get().0 == 0 {
                boot.remove();
            }
        }
        // ord! Release: the end of all that was lent over the connection, and of its place in the lists, to who waits for zero.
        self.registry.taken.fetch_sub(1, Ordering::AcqRel);
        // Between the look of who waits and its wait nobody notifies.
        drop(lock(&self.registry.waiting));
        self.registry.left.notify_all();
    }
}
