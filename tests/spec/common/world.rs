//! One process and its peers in memory, on a clock that stands still until the test moves it.

use super::block_on;
use peerage::transport::memory::{Fabric, Memory, MemoryAddress, MemoryError};
use peerage::{Builder, Capabilities, Clock, Generation, Peer, PeerTable, ReadyError, Removed, Transport};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A table called `here` over `Memory`, in virtual time. When it is dropped, nothing may have been misused.
pub(crate) struct World {
    pub(crate) clock: Clock,
    pub(crate) fabric: Fabric,
    pub(crate) memory: Memory,
    pub(crate) table: PeerTable<Memory>,
}

/// With default settings.
pub(crate) fn world() -> World {
    world_with(|builder| builder)
}

/// With other settings of the table.
pub(crate) fn world_with(set: impl FnOnce(Builder<Memory>) -> Builder<Memory>) -> World {
    let all = Fabric::new().node("any").capabilities();
    world_of(all, set)
}

/// Over a transport that can only do this.
pub(crate) fn world_of(capabilities: Capabilities, set: impl FnOnce(Builder<Memory>) -> Builder<Memory>) -> World {
    let clock = Clock::manual();
    let fabric = Fabric::with_clock(clock.clone());
    let memory = fabric.builder("here").capabilities(capabilities).build();
    let table = set(PeerTable::builder(memory.clone()).clock(clock.clone()).seed(7)).build().unwrap();
    World { clock, fabric, memory, table }
}

impl World {
    /// A peer that lives and is not connected yet.
    pub(crate) fn peer(&self, name: &str) -> Peer<Memory> {
        self.fabric.node(name);
        self.table.insert(name, MemoryAddress::new(name)).unwrap()
    }

    /// A peer that is ready.
    pub(crate) fn connected(&self, name: &str) -> Peer<Memory> {
        let peer = self.peer(name);
        block_on(peer.ready()).unwrap();
        peer
    }

    /// Connects a failed peer again, when its backoff is over.
    pub(crate) fn reconnect(&self, peer: &Peer<Memory>) -> Generation {
        self.wait_out_backoff(peer);
        loop {
            match block_on(peer.ready()) {
                Ok(generation) => return generation,
                // The clock was moved over the close of the old connection, which is still at work.
                Err(ReadyError::Undrained { leases: 0, .. }) => self.settle(),
                Err(error) => panic!("{error:?}"),
            }
        }
    }

    /// Moves the clock to where the peer's next attempt may start.
    pub(crate) fn wait_out_backoff(&self, peer: &Peer<Memory>) {
        self.settle();
        // Between the word's change and the record's another thread may be at work.
        super::eventually("its failure is accounted for", || peer.record().is_some());
        let retry_at = peer.record().and_then(|record| record.retry_at);
        let left = retry_at.map(|at| at.saturating_duration_since(self.clock.now()));
        self.clock.advance(left.unwrap_or_default());
    }

    /// This long from now, in virtual time.
    pub(crate) fn after(&self, time: Duration) -> Instant {
        self.clock.now() + time
    }

    /// Moves the clock, and lets everything that is due by then happen on the driver.
    pub(crate) fn advance(&self, time: Duration) {
        self.clock.advance(time);
        self.settle();
    }

    /// Returns when the driver has looked at everything it was told and at every timer that is due. What it handed to
    /// other threads may still run.
    pub(crate) fn settle(&self) {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // One turn sees what was told, the next one what the timers told; one more for what a held mutex put off.
        for _ in 0..3 {
            let name = format!("settle-{}", NEXT.fetch_add(1, Ordering::Relaxed));
            let peer = self.table.insert(name.as_str(), MemoryAddress::new(&name)).unwrap();
            assert_eq!(block_on(peer.remove(self.after(Duration::from_secs(3600)))), Removed::Removed);
        }
    }

    /// As `settle`, when no peer can be inserted any more: one whose removal can't end yet.
    pub(crate) fn settle_by(&self, busy: &Peer<Memory>) {
        for _ in 0..3 {
            assert!(matches!(block_on(busy.remove(self.clock.now())), Removed::StillBusy { .. }));
        }
    }

    /// How many native connects to `peer` have begun.
    pub(crate) fn connects(&self, peer: &str) -> u64 {
        self.memory.counts(peer).connects_begun
    }

    /// How many closes of `peer` have finished.
    pub(crate) fn closes(&self, peer: &str) -> u64 {
        self.memory.counts(peer).closes
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if !thread::panicking() {
            assert_eq!(self.memory.misuses(), []);
            if !self.memory.capabilities().contains(Capabilities::OVERLAP) {
                assert_eq!(self.memory.total_counts().duplicate_connects, 0);
            }
        }
    }
}

/// The error of a dead peer.
pub(crate) fn broken() -> MemoryError {
    MemoryError::peer_broken("cable pulled")
}
