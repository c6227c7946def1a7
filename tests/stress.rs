//! Many threads do everything to a few peers at once, over a fabric that watches: no call on a closed connection, no two
//! connects of one peer, nothing left at the end.

use peerage::transport::memory::{Fabric, Memory, MemoryAddress, MemoryError};
use peerage::{Backoff, Capabilities, Peer, PeerTable, Removed};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PEERS: usize = 3;
const THREADS: usize = 6;
const ROUNDS: u64 = 3_000;

fn patience() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// A small generator with a seed per thread, so that a failing run can be tried again.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

fn peer(table: &PeerTable<Memory>, at: u64) -> Peer<Memory> {
    let name = format!("p{at}");
    let insert = || table.insert(name.as_str(), MemoryAddress::new(&name)).expect("also while the one before leaves");
    table.peer(&name).unwrap_or_else(insert)
}

fn everything_at_once(capabilities: Capabilities) {
    let fabric = Fabric::new();
    let others: Vec<_> = (0..PEERS).map(|at| fabric.node(&format!("p{at}"))).collect();
    let memory = fabric.builder("us").capabilities(capabilities).build();
    let backoff = Backoff { base: Duration::from_micros(50), cap: Duration::from_micros(200), ..Backoff::default() };
    let table = PeerTable::builder(memory).backoff(backoff).breaker(None).seed(1).build().expect("sound settings");
    let uses = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS as u64 {
            let (table, uses) = (&table, &uses);
            scope.spawn(move || {
                let mut random = Random(0x9e37_79b9 + thread);
                let mut kept = Vec::new();
                for _ in 0..ROUNDS {
                    let at = random.below(PEERS as u64);
                    let peer = peer(table, at);
                    match random.below(100) {
                        0..60 => {
                            if let Ok(lease) = peer.lease() {
                                let call = lease.native_call();
                                uses.fetch_add(1, Ordering::Relaxed);
                                drop(call);
                                if random.below(8) == 0 {
                                    kept.push(lease); // given back later, or by another round
                                }
                            }
                        }
                        60..70 => kept.clear(),
                        70..80 => drop(table.lease_by_id(peer.id()).map(|lease| drop(lease.native_call()))),
                        80..86 => {
                            kept.clear();
                            let _ = peer.wait_ready(Instant::now() + Duration::from_millis(20));
                        }
                        86..92 => drop(peer.report(peer.generation(), &std::io::Error::other("planted"))),
                        92..95 => {
                            let error = MemoryError::peer_broken("planted");
                            table.transport().break_connection(peer.name().as_str(), error);
                        }
                        95..97 => drop(peer.remove(Instant::now())),
                        97..99 => drop(peer.remove_if(peer.generation(), Instant::now())),
                        _ => drop(table.snapshot()),
                    }
                }
            });
        }
    });
    assert!(uses.load(Ordering::Relaxed) > 0, "nothing was tested");
    assert_eq!(table.transport().misuses(), []);
    for at in 0..PEERS as u64 {
        let peer = loop {
            match peer(&table, at) {
                peer if peer.lease().is_ok() => break peer,
                peer => drop(peer.wait_ready(patience())),
            }
        };
        assert_eq!(peer.remove(patience()).wait(), Ok(Removed::Removed));
    }
    assert!(table.shutdown(patience()).wait().expect("not a thread of the table").is_clean());
    for at in 0..PEERS {
        let counts = table.transport().counts(&format!("p{at}"));
        assert_eq!(counts.open, 0, "closed as often as opened: {counts:?}");
        let one_slot = !capabilities.contains(Capabilities::OVERLAP);
        assert!(!one_slot || counts.duplicate_connects == 0, "one connection per name: {counts:?}");
    }
    drop(others);
}

/// Inserts, removals, leases, uses, reports and waits from many threads at once, with no setting that would be less safe.
///
/// fails if: k1 (a connect begins beside a running one)
#[test]
fn case_k1_everything_at_once_with_overlap() {
    everything_at_once(Capabilities::OVERLAP.with(Capabilities::CLOSE_QUIESCES).with(Capabilities::NATIVE_CLOSE));
}

/// The same where the native side has one connection per name.
///
/// fails if: k1 (a connect begins beside a running one)
#[test]
fn case_k1_everything_at_once_with_one_connection_per_name() {
    everything_at_once(Capabilities::NATIVE_CLOSE);
}
