//! A process that ends with everything in use: nothing waits for a thread, panics, or aborts. Each test ends a process of its own:
//! the test binary starts itself again.
#![cfg(not(peerage_loom))]

use peerage::transport::memory::{Fabric, MemoryAddress};
use peerage::{Access, DataPlane, Lease, Peer, PeerTable, Region};
use std::any::Any;
use std::cell::RefCell;
use std::process::{Child, Command, exit};
use std::time::{Duration, Instant};

const ENDS: &str = "PEERAGE_TEST_ENDS";
const PATIENCE: Duration = Duration::from_secs(60);

fn far() -> Instant {
    Instant::now() + PATIENCE
}

fn wait(mut child: Child) -> bool {
    let give_up = far();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.success();
        }
        if Instant::now() > give_up {
            child.kill().unwrap();
            panic!("it hangs");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Runs `body` in a process of its own, which it must end well.
fn ends_well(test: &str, body: impl FnOnce()) {
    if std::env::var(ENDS).as_deref() == Ok(test) {
        body();
        unreachable!("it ends the process");
    }
    let mut this = Command::new(std::env::current_exe().unwrap());
    let child = this.args(["--exact", test, "--nocapture", "--test-threads", "1"]).env(ENDS, test).spawn().unwrap();
    assert!(wait(child), "{test}");
}

thread_local! { static KEPT: RefCell<Vec<Box<dyn Any>>> = const { RefCell::new(Vec::new()) } }

/// Everything that a sender may hold, of a peer that is ready.
fn in_use<T: DataPlane>(table: &PeerTable<T>, peer: &Peer<T>) -> (Lease<T>, Box<dyn Any>) {
    peer.wait_ready(far()).unwrap();
    let region = Region::zeroed(8);
    table.register(&region).unwrap();
    let grant = table.grant(peer, &region.slice(0..8).unwrap(), Access::Read).unwrap();
    let removal = table.peer("other").map(|other| other.remove(far()));
    (peer.lease().unwrap(), Box::new((grant, removal, table.events(), table.inbox(), region)))
}

fn keep<T: DataPlane>(table: PeerTable<T>, peer: Peer<T>) {
    let (lease, others) = in_use(&table, &peer);
    // The table before its lease: its end begins first.
    KEPT.with_borrow_mut(|kept| {
        kept.extend([Box::new(table) as Box<dyn Any>, Box::new(peer), others, Box::new(lease)])
    });
}

fn over_memory() -> (PeerTable<peerage::transport::memory::Memory>, Peer<peerage::transport::memory::Memory>) {
    let fabric = Fabric::new();
    fabric.node("p");
    let table = PeerTable::builder(fabric.node("here")).build().unwrap();
    table.insert("other", MemoryAddress::new("nobody")).unwrap();
    let peer = table.insert("p", MemoryAddress::new("p")).unwrap();
    (table, peer)
}

/// fails if: the drop of a handle in a thread-local, while the process ends, waits for a thread or panics.
#[test]
fn a_process_may_exit_with_everything_in_thread_locals() {
    ends_well("a_process_may_exit_with_everything_in_thread_locals", || {
        let (table, peer) = over_memory();
        keep(table, peer);
        exit(0);
    });
}

/// fails if: the same over sockets.
#[cfg(feature = "tcp")]
#[test]
fn a_process_may_exit_with_open_sockets_in_thread_locals() {
    use peerage::transport::tcp::Tcp;
    ends_well("a_process_may_exit_with_open_sockets_in_thread_locals", || {
        let tcp = |name: &str| Tcp::builder().name(name.try_into().unwrap()).bind("127.0.0.1:0").unwrap();
        let remote = tcp("p");
        let table = PeerTable::builder(tcp("here")).build().unwrap();
        let peer = table.insert("p", remote.address().clone()).unwrap();
        keep(table, peer);
        KEPT.with_borrow_mut(|kept| kept.push(Box::new(remote)));
        exit(0);
    });
}

/// fails if: the end of a process waits for threads of a table that others still use.
#[test]
fn a_process_may_exit_while_other_threads_use_the_table() {
    ends_well("a_process_may_exit_while_other_threads_use_the_table", || {
        let (table, peer) = over_memory();
        let kept = in_use(&table, &peer);
        for _ in 0..4 {
            let (table, peer) = (table.clone(), peer.clone());
            std::thread::spawn(move || {
                loop {
                    drop(peer.lease().map(|lease| lease.notify(b"x")));
                    drop((table.snapshot(), peer.history(), table.insert("transient", MemoryAddress::new("p"))));
                    drop(table.peer("transient").map(|peer| peer.remove(far())));
                }
            });
        }
        std::thread::sleep(Duration::from_millis(50));
        drop(kept);
        exit(0);
    });
}
