//! A table that is idle holds two threads, and one that is gone holds nothing: no thread, no descriptor, no place of a
//! peer. In a target of its own, because it counts what the whole process holds.
#![cfg(target_os = "linux")]

use peerage::transport::memory::{Fabric, Memory, MemoryAddress};
use peerage::{Peer, PeerTable, Removed, Reported, Transport};
use std::cell::RefCell;
use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};
use std::{fmt, fs};

const PATIENCE: Duration = Duration::from_secs(30);

fn far() -> Instant {
    Instant::now() + PATIENCE
}

/// The names of the library's threads, as the system shows them.
fn threads() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    let mut ours: Vec<_> =
        names.map(|name| name.trim().to_owned()).filter(|name| name.starts_with("peerage")).collect();
    ours.sort();
    ours
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

fn eventually_same<V: PartialEq + std::fmt::Debug>(expected: V, look: impl Fn() -> V) {
    let give_up = far();
    loop {
        let now = look();
        if now == expected {
            return;
        }
        assert!(Instant::now() < give_up, "{now:?} after {PATIENCE:?}, not {expected:?}");
        thread::sleep(Duration::from_millis(10));
    }
}

fn connect_and_remove<T: Transport>(peer: Peer<T>) {
    peer.wait_ready(far()).unwrap();
    let lease = peer.lease().unwrap();
    let removal = peer.remove(far());
    drop(lease);
    assert_eq!(removal.wait(), Ok(Removed::Removed));
}

/// One test: what the process holds is counted while nothing else runs.
#[test]
fn a_thousand_peers_that_came_and_went_leave_nothing_behind() {
    over_memory();
    reported_until_after_the_end();
    #[cfg(feature = "tcp")]
    over_tcp();
}

fn over_memory() {
    let before = descriptors();
    assert_eq!(threads(), [""; 0]);
    let fabric = Fabric::new();
    fabric.node("p");
    let memory = fabric.node("here");
    let table = PeerTable::builder(memory.clone()).build().unwrap();
    let mut places = 0;
    for round in 0..1_000 {
        let peer = table.insert(format!("p{round}"), MemoryAddress::new("p")).unwrap();
        places = places.max(peer.id().to_bits() as u32);
        connect_and_remove(peer);
    }
    let counts = memory.total_counts();
    assert_eq!((counts.connects_ok, counts.closes, counts.open, counts.dropped), (1_000, 1_000, 0, 0));
    assert!(places < 64, "places are used again: {places}");
    assert!(table.snapshot().peers.is_empty());
    eventually_same(vec!["peerage-driver".to_owned(), "peerage-memory".to_owned()], threads);
    assert_eq!(descriptors(), before);
    drop((table, memory, fabric));
    eventually_same(Vec::new(), threads);
}

/// Its table ends while its text is asked for: between the word's change and the news of it.
#[derive(Debug)]
struct EndsTheTable(RefCell<Option<PeerTable<Memory>>>);

impl fmt::Display for EndsTheTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = self.0.take().expect("shown once");
        assert!(table.shutdown(far()).wait().unwrap().is_clean());
        drop(table);
        eventually_same(vec!["peerage-memory".to_owned()], threads);
        f.write_str("late")
    }
}

impl Error for EndsTheTable {}

fn reported_until_after_the_end() {
    let fabric = Fabric::new();
    fabric.node("p");
    let table = PeerTable::builder(fabric.node("here")).build().unwrap();
    let peer = table.insert("p", MemoryAddress::new("p")).unwrap();
    let generation = peer.wait_ready(far()).unwrap();
    assert_eq!(peer.report(generation, &EndsTheTable(RefCell::new(Some(table)))), Reported::Failed);
    drop((peer, fabric));
    eventually_same(Vec::new(), threads); // the transport is gone, and with it the fabric
}

#[cfg(feature = "tcp")]
fn over_tcp() {
    one_life_over_tcp(); // the runtime below it keeps a pair of descriptors for the process, from its first use on
    eventually_same(Vec::new(), threads);
    let before = descriptors();
    one_life_over_tcp();
    eventually_same(Vec::new(), threads);
    eventually_same(before, descriptors);
}

#[cfg(feature = "tcp")]
fn one_life_over_tcp() {
    use peerage::transport::tcp::{Tcp, TcpAddress};
    let p = Tcp::builder().name("p".try_into().unwrap()).bind("127.0.0.1:0").unwrap();
    let table = PeerTable::builder(Tcp::bind("127.0.0.1:0").unwrap()).build().unwrap();
    let round = || connect_and_remove(table.insert("p", TcpAddress::from(p.local_addr())).unwrap());
    round();
    eventually_same(0, || p.inbound().len());
    let open = descriptors();
    for _ in 0..200 {
        round();
    }
    eventually_same(0, || p.inbound().len());
    eventually_same(open, descriptors);
}
