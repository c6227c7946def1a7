//! Many callers that wait for the same few peers.

use super::{Setup, say};
use crate::lines::{Event, Tally};
use crate::modes::{PeerIndex, Peers};
use crate::random::Random;
use crate::scenario::STORM_CALLERS;
use crate::wire::Message;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than any prefill is away.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two sends of one caller.
const REST: Duration = Duration::from_millis(50);
/// A caller needs little.
const STACK: usize = 256 * 1024;

pub(crate) struct Callers(Arc<Shared>);

struct Shared {
    peers: Arc<dyn Peers>,
    over: AtomicBool,
    waits: AtomicU64,
    in_vain: AtomicU64,
}

impl Callers {
    pub(crate) fn start(setup: &Setup, peers: &Arc<dyn Peers>) -> Result<Self, String> {
        let names: Vec<_> = setup.peers.iter().map(|(name, _)| name.clone()).collect();
        let targets: Vec<_> = super::prefills(&names).collect();
        let over = AtomicBool::new(false);
        let shared = Shared { peers: peers.clone(), over, waits: AtomicU64::new(0), in_vain: AtomicU64::new(0) };
        let shared = Arc::new(shared);
        for nth in 0..STORM_CALLERS {
            let (shared, targets) = (shared.clone(), targets.clone());
            let caller = thread::Builder::new().stack_size(STACK);
            caller.spawn(move || shared.call(nth, &targets)).map_err(|error| error.to_string())?;
        }
        Ok(Callers(shared))
    }

    pub(crate) fn end(&self) {
        self.0.over.store(true, Relaxed);
        say(&Event::Tally(Tally::Waits, self.0.waits.load(Relaxed)));
        say(&Event::Tally(Tally::WaitsInVain, self.0.in_vain.load(Relaxed)));
    }
}

impl Shared {
    fn call(&self, nth: usize, targets: &[PeerIndex]) {
        let mut random = Random::new(nth as u64);
        let message = Message::Probe.to_bytes();
        while !self.over.load(Relaxed) {
            let to = targets[random.below(targets.len() as u64) as usize];
            let link = self.peers.link(to).or_else(|_| {
                self.waits.fetch_add(1, Relaxed);
                self.peers.link_within(to, Instant::now() + PATIENCE)
            });
            match link {
                // Whether it arrives is not the caller's question.
                Ok(link) => drop(link.notify(&message)),
                Err(_) => {
                    self.in_vain.fetch_add(1, Relaxed);
                }
            }
            thread::sleep(REST.mul_f64(random.between(0.5, 1.5)));
        }
    }
}
