//! Peers that have nothing to do with the storm, and a thread that sends to them all the while.

use crate::wire::Wire;
use peerage::{Generation, Peer};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

pub(crate) struct Healthy {
    over: Arc<AtomicBool>,
    sender: JoinHandle<Sent>,
}

#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) granted: u64,
    /// Leases that were refused, or of another generation than before the storm.
    pub(crate) disturbed: u64,
}

impl Healthy {
    pub(crate) fn of(peers: Vec<Peer<Wire>>) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let peers: Vec<_> = peers.into_iter().map(|peer| (peer.generation(), peer)).collect();
        let is_over = over.clone();
        let sender = thread::spawn(move || {
            let mut sent = Sent { granted: 0, disturbed: 0 };
            while !is_over.load(Ordering::Relaxed) {
                send(&peers, &mut sent);
                thread::sleep(Duration::from_micros(200)); // the storm has only the cores that are left
            }
            send(&peers, &mut sent);
            sent
        });
        Healthy { over, sender }
    }

    pub(crate) fn end(self) -> Sent {
        self.over.store(true, Ordering::Relaxed);
        self.sender.join().unwrap()
    }
}

fn send(peers: &[(Generation, Peer<Wire>)], sent: &mut Sent) {
    for (generation, peer) in peers {
        match peer.lease() {
            Ok(lease) if lease.generation() == *generation => sent.granted += 1,
            _ => sent.disturbed += 1,
        }
    }
}
