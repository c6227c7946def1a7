//! Errors of peers that are well: their connections are reported again and again.

use super::{Setup, say};
use crate::lines::{Event, Flapped};
use crate::modes::{PeerIndex, Peers};
use crate::random::Random;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// From one error to the next, in seconds.
const EVERY: (f64, f64) = (0.05, 0.2);

#[derive(Debug, thiserror::Error)]
#[error("a transient error of a connection that is well")]
struct Transient;

pub(crate) struct Flaps {
    peers: Arc<dyn Peers>,
    names: Vec<String>,
    /// By peer: whether its errors are over.
    running: Mutex<HashMap<String, Arc<AtomicBool>>>,
}

impl Flaps {
    pub(crate) fn new(setup: &Setup, peers: Arc<dyn Peers>) -> Self {
        let names = setup.peers.iter().map(|(name, _)| name.clone()).collect();
        Flaps { peers, names, running: Mutex::default() }
    }

    pub(crate) fn begin(&self, name: &str, seed: u64) {
        let Some(peer) = self.names.iter().position(|known| known == name) else { return };
        let over = Arc::<AtomicBool>::default();
        self.running.lock().unwrap_or_else(PoisonError::into_inner).insert(name.into(), over.clone());
        let (peers, name) = (self.peers.clone(), name.to_owned());
        thread::spawn(move || {
            let flap = flap(&*peers, peer, &name, seed, &over);
            say(&Event::Flapped { peer: name, flap });
        });
    }

    pub(crate) fn end(&self, name: &str) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        running.iter().for_each(|over| over.store(true, Relaxed));
    }
}

/// Reports whatever connection there is to `peer` until it is `over`.
fn flap(peers: &dyn Peers, peer: PeerIndex, name: &str, seed: u64, over: &AtomicBool) -> Flapped {
    let mut random = Random::new(seed);
    let connects = || peers.net().inner().peer(name).map_or(0, |counts| counts.connects_begun);
    let (begun, before, mut errors) = (Instant::now(), connects(), 0);
    loop {
        thread::sleep(Duration::from_secs_f64(random.between(EVERY.0, EVERY.1)));
        if over.load(Relaxed) {
            let connects = connects() - before;
            return Flapped { errors, connects, micros: begun.elapsed().as_micros() as u64 };
        }
        if let Some(used) = peers.link_if_up(peer).map(|link| link.generation()) {
            peers.report(peer, used, &Transient);
            errors += 1;
        }
    }
}
