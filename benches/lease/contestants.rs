//! What a lease is compared with. Each looks a peer up by its name, touches its connection and lets go.
//!
//! "guard held" uses the connection while the map's guard is held: whoever takes a connection out waits for it. "Arc cloned"
//! counts a reference of the connection and lets the guard go before the use, so a slow use stops nobody. A lease is the
//! second kind: it may be held for as long as one likes.

use crate::pick::Pick;
use crate::pinned::Work;
use crate::ready::{Peer, Table, names, ready};
use crate::wire::{Endpoint, Wire};
use crossbeam_utils::CachePadded;
use dashmap::DashMap;
use peerage::{PeerId, PeerTable};
use std::collections::HashMap;
use std::error::Error;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::task::{Context, Poll, Waker};

/// One CAS in and one subtraction out, on a cache line of the thread or of the peer.
pub(crate) const FLOOR: &str = "floor";
pub(crate) const HANDLE: &str = "peerage by handle";
pub(crate) const ID: &str = "peerage by id";
pub(crate) const NAME: &str = "peerage by name";
pub(crate) const ONE_STRIPE: &str = "peerage by handle, one stripe";
pub(crate) const MUTEX: &str = "Mutex map, guard held";
pub(crate) const RW_LOCK: &str = "RwLock map, guard held";
pub(crate) const DASH_MAP: &str = "DashMap, guard held";
pub(crate) const PAPAYA: &str = "papaya, guard held";

/// So many peers, in a table and in every map.
pub(crate) struct World {
    pub(crate) names: Vec<String>,
    pub(crate) table: Table,
    pub(crate) handles: Vec<Peer>,
    ids: Vec<PeerId>,
    _one_stripe: Table,
    one_stripe: Vec<Peer>,
    lines: Box<[CachePadded<AtomicU64>]>,
    alone: HashMap<String, Endpoint>,
    pub(crate) mutex: Mutex<HashMap<String, Endpoint>>,
    pub(crate) rw_lock: RwLock<HashMap<String, Endpoint>>,
    pub(crate) dash_map: DashMap<String, Endpoint>,
    pub(crate) papaya: papaya::HashMap<String, Endpoint>,
    mutex_arc: Mutex<HashMap<String, Arc<Endpoint>>>,
    rw_lock_arc: RwLock<HashMap<String, Arc<Endpoint>>>,
    parking_mutex: parking_lot::Mutex<HashMap<String, Endpoint>>,
    parking_mutex_arc: parking_lot::Mutex<HashMap<String, Arc<Endpoint>>>,
    parking_rw: parking_lot::RwLock<HashMap<String, Endpoint>>,
    parking_rw_arc: parking_lot::RwLock<HashMap<String, Arc<Endpoint>>>,
    tokio: tokio::sync::RwLock<HashMap<String, Endpoint>>,
    tokio_arc: tokio::sync::RwLock<HashMap<String, Arc<Endpoint>>>,
    dash_arc: DashMap<String, Arc<Endpoint>>,
    papaya_arc: papaya::HashMap<String, Arc<Endpoint>>,
    indices: Vec<usize>,
    by_index: Mutex<HashMap<usize, Arc<Endpoint>>>,
}

impl World {
    pub(crate) fn of(peers: usize) -> Result<Self, Box<dyn Error>> {
        let names = names(peers);
        let at_once = peerage::Backoff { base: Default::default(), ..Default::default() };
        let (table, handles) = ready(PeerTable::builder(Wire::new(|_| {})).backoff(at_once).breaker(None), &names)?;
        let (_one_stripe, one_stripe) = ready(PeerTable::builder(Wire::new(|_| {})).stripes(1), &names[..1])?;
        let plain = || names.iter().map(|name| (name.clone(), Endpoint(7)));
        let counted = || names.iter().map(|name| (name.clone(), Arc::new(Endpoint(7))));
        Ok(World {
            ids: handles.iter().map(Peer::id).collect(),
            _one_stripe,
            one_stripe,
            lines: (0..peers.max(64)).map(|_| CachePadded::default()).collect(),
            alone: plain().collect(),
            mutex: Mutex::new(plain().collect()),
            rw_lock: RwLock::new(plain().collect()),
            dash_map: plain().collect(),
            papaya: plain().collect(),
            mutex_arc: Mutex::new(counted().collect()),
            rw_lock_arc: RwLock::new(counted().collect()),
            parking_mutex: parking_lot::Mutex::new(plain().collect()),
            parking_mutex_arc: parking_lot::Mutex::new(counted().collect()),
            parking_rw: parking_lot::RwLock::new(plain().collect()),
            parking_rw_arc: parking_lot::RwLock::new(counted().collect()),
            tokio: tokio::sync::RwLock::new(plain().collect()),
            tokio_arc: tokio::sync::RwLock::new(counted().collect()),
            dash_arc: counted().collect(),
            papaya_arc: counted().collect(),
            indices: (0..peers).collect(),
            by_index: Mutex::new((0..peers).map(|peer| (peer, Arc::new(Endpoint(7)))).collect()),
            table,
            handles,
            names,
        })
    }

    /// The floor, with a cache line for each thread when all lease one peer, and one for each peer otherwise.
    pub(crate) fn floor(&self, pick: Pick) -> Box<Work<'_>> {
        let pick = if pick == Pick::Same { Pick::Own } else { pick };
        pick.repeat(&self.lines, |line| two_rmw(line))
    }

    /// The table, and what people use instead: the one row for each way that every section shows.
    pub(crate) fn few(&self, pick: Pick) -> Vec<(&'static str, Box<Work<'_>>)> {
        let names = &self.names;
        vec![
            (FLOOR, self.floor(pick)),
            (HANDLE, pick.repeat(&self.handles, |peer| peer.lease().expect("ready").touch())),
            (ID, pick.repeat(&self.ids, |id| self.table.lease_by_id(*id).expect("ready").touch())),
            (NAME, pick.repeat(names, |name| self.table.lease(name).expect("ready").touch())),
            (MUTEX, pick.repeat(names, |name| self.mutex.lock().expect("nobody panics")[name].touch())),
            (RW_LOCK, pick.repeat(names, |name| self.rw_lock.read().expect("nobody panics")[name].touch())),
            (DASH_MAP, pick.repeat(names, |name| self.dash_map.get(name).expect("inserted").touch())),
            (PAPAYA, pick.repeat(names, |name| self.papaya.pin().get(name).expect("inserted").touch())),
        ]
    }

    /// The others, and the control.
    pub(crate) fn more(&self, pick: Pick) -> Vec<(&'static str, Box<Work<'_>>)> {
        let names = &self.names;
        vec![
            (ONE_STRIPE, Pick::Same.repeat(&self.one_stripe, |peer| peer.lease().expect("ready").touch())),
            ("map alone, no lock, never changed", pick.repeat(names, |name| self.alone[name].touch())),
            (
                "Mutex map, Arc cloned",
                pick.repeat(names, |name| {
                    let connection = self.mutex_arc.lock().expect("nobody panics")[name].clone();
                    connection.touch();
                }),
            ),
            (
                "RwLock map, Arc cloned",
                pick.repeat(names, |name| {
                    let connection = self.rw_lock_arc.read().expect("nobody panics")[name].clone();
                    connection.touch();
                }),
            ),
            ("parking_lot Mutex map, guard held", pick.repeat(names, |name| self.parking_mutex.lock()[name].touch())),
            (
                "parking_lot Mutex map, Arc cloned",
                pick.repeat(names, |name| {
                    let connection = self.parking_mutex_arc.lock()[name].clone();
                    connection.touch();
                }),
            ),
            ("parking_lot RwLock map, guard held", pick.repeat(names, |name| self.parking_rw.read()[name].touch())),
            (
                "parking_lot RwLock map, Arc cloned",
                pick.repeat(names, |name| {
                    let connection = self.parking_rw_arc.read()[name].clone();
                    connection.touch();
                }),
            ),
            ("tokio RwLock map, guard held", pick.repeat(names, |name| now(self.tokio.read())[name].touch())),
            (
                "tokio RwLock map, Arc cloned",
                pick.repeat(names, |name| {
                    let connection = now(self.tokio_arc.read())[name].clone();
                    connection.touch();
                }),
            ),
            (
                "DashMap, Arc cloned",
                pick.repeat(names, |name| {
                    let connection = self.dash_arc.get(name).expect("inserted").clone();
                    connection.touch();
                }),
            ),
            (
                "papaya, Arc cloned",
                pick.repeat(names, |name| {
                    let connection = self.papaya_arc.pin().get(name).expect("inserted").clone();
                    connection.touch();
                }),
            ),
            (
                // While nothing reconnects both lifecycles of `pd_failover` do this: its index, its lock, its clone.
                "global-lock and check-then-add",
                pick.repeat(&self.indices, |peer| {
                    let connection = self.by_index.lock().expect("nobody panics")[peer].clone();
                    connection.touch();
                }),
            ),
        ]
    }
}

/// What a lease cannot do without.
#[inline(always)]
fn two_rmw(line: &AtomicU64) {
    let mut seen = line.load(Ordering::Acquire);
    while let Err(now) = line.compare_exchange_weak(seen, seen + 1, Ordering::Acquire, Ordering::Acquire) {
        seen = now;
    }
    line.fetch_sub(1, Ordering::Release);
}

/// Awaits what nobody makes wait: there are only readers.
#[inline(always)]
fn now<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return output;
        }
        std::hint::spin_loop();
    }
}
