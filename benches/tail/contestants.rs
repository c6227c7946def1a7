//! Ways to hold the peers. Peer 0 reconnects, the others are sent to.

use crate::CONNECT;
use crate::ready::{Peer, names, ready};
use crate::wait::wait;
use crate::wire::{Endpoint, Wire};
use crossbeam_utils::CachePadded;
use dashmap::DashMap;
use peerage::{Backoff, PeerTable};
use std::collections::HashMap;
use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::thread;
use std::time::Duration;

/// One CAS in and one subtraction out, on a cache line of the peer. Its reconnect touches nothing of the sender's.
pub(crate) const FLOOR: &str = "floor";
pub(crate) const PEERAGE: &str = "peerage";
pub(crate) const GLOBAL_LOCK: &str = "global lock, held through connect";

pub(crate) const PEERS: usize = 256;

pub(crate) struct Contestant {
    pub(crate) name: &'static str,
    pub(crate) send: Box<dyn Fn(usize) + Sync>,
    pub(crate) reconnect: Box<dyn Fn() + Sync>,
}

type Send = Box<dyn Fn(usize) + Sync>;
type Reconnect = Box<dyn Fn() + Sync>;

pub(crate) fn all() -> Result<Vec<Contestant>, Box<dyn Error>> {
    let all = [
        (FLOOR, floor()),
        (PEERAGE, peerage()?),
        (GLOBAL_LOCK, mutex(true)),
        ("RwLock map, held through connect", rw_lock(true)),
        ("DashMap, entry held through connect", dash_map(true)),
        ("Mutex map, connect outside (check-then-add)", mutex(false)),
        ("RwLock map, connect outside", rw_lock(false)),
        ("DashMap, connect outside", dash_map(false)),
        ("papaya, connect outside", papaya()),
    ];
    Ok(all.into_iter().map(|(name, (send, reconnect))| Contestant { name, send, reconnect }).collect())
}

/// The native connect, the same for all.
fn connect() -> Endpoint {
    thread::sleep(CONNECT);
    Endpoint(7)
}

fn map<M: FromIterator<(String, Endpoint)>>(names: &[String]) -> M {
    names.iter().map(|name| (name.clone(), Endpoint(7))).collect()
}

fn floor() -> (Send, Reconnect) {
    let lines: Box<[CachePadded<AtomicU64>]> = (0..PEERS).map(|_| CachePadded::default()).collect();
    let send = move |peer: usize| {
        let line = &lines[peer];
        let mut seen = line.load(Ordering::Acquire);
        while let Err(now) = line.compare_exchange_weak(seen, seen + 1, Ordering::Acquire, Ordering::Acquire) {
            seen = now;
        }
        line.fetch_sub(1, Ordering::Release);
    };
    (Box::new(send), Box::new(|| connect().touch()))
}

fn peerage() -> Result<(Send, Reconnect), Box<dyn Error>> {
    let at_once = Backoff { base: Duration::ZERO, ..Backoff::default() };
    let builder = PeerTable::builder(Wire::new(|_| thread::sleep(CONNECT))).backoff(at_once).breaker(None);
    let (table, peers) = ready(builder, &names(PEERS))?;
    let restarted: Peer = peers[0].clone();
    let reconnect = move || {
        let _open = &table;
        let broken = std::io::Error::other("cable pulled");
        restarted.report(restarted.generation(), &broken);
        wait(&restarted).expect("it is back in a moment");
    };
    Ok((Box::new(move |peer| peers[peer].lease().expect("healthy").touch()), Box::new(reconnect)))
}

fn mutex(held: bool) -> (Send, Reconnect) {
    let names = names(PEERS);
    let map: Arc<Mutex<HashMap<String, Endpoint>>> = Arc::new(Mutex::new(map(&names)));
    let (same, restarted) = (map.clone(), names[0].clone());
    let reconnect = move || {
        let outside = (!held).then(connect);
        let mut map = same.lock().expect("nobody panics");
        map.insert(restarted.clone(), outside.unwrap_or_else(connect));
    };
    (Box::new(move |peer| map.lock().expect("nobody panics")[&names[peer]].touch()), Box::new(reconnect))
}

fn rw_lock(held: bool) -> (Send, Reconnect) {
    let names = names(PEERS);
    let map: Arc<RwLock<HashMap<String, Endpoint>>> = Arc::new(RwLock::new(map(&names)));
    let (same, restarted) = (map.clone(), names[0].clone());
    let reconnect = move || {
        let outside = (!held).then(connect);
        let mut map = same.write().expect("nobody panics");
        map.insert(restarted.clone(), outside.unwrap_or_else(connect));
    };
    (Box::new(move |peer| map.read().expect("nobody panics")[&names[peer]].touch()), Box::new(reconnect))
}

fn dash_map(held: bool) -> (Send, Reconnect) {
    let names = names(PEERS);
    let map: Arc<DashMap<String, Endpoint>> = Arc::new(map(&names));
    let (same, restarted) = (map.clone(), names[0].clone());
    let reconnect = move || {
        let outside = (!held).then(connect);
        let entry = same.entry(restarted.clone());
        drop(entry.insert(outside.unwrap_or_else(connect)));
    };
    (Box::new(move |peer| map.get(&names[peer]).expect("inserted").touch()), Box::new(reconnect))
}

fn papaya() -> (Send, Reconnect) {
    let names = names(PEERS);
    let map: Arc<papaya::HashMap<String, Endpoint>> = Arc::new(map(&names));
    let (same, restarted) = (map.clone(), names[0].clone());
    let reconnect = move || {
        let connected = connect();
        same.pin().insert(restarted.clone(), connected);
    };
    (Box::new(move |peer| map.pin().get(&names[peer]).expect("inserted").touch()), Box::new(reconnect))
}
