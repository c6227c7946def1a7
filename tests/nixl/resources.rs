//! What the transport takes from the operating system.

use crate::bypassed::Naive;
use crate::support::*;
use peerage::{CloseReason, DataPlane};

const CYCLES: usize = 50;

/// NIXL keeps a descriptor for each peer that it has added and removed, on both sides, until that peer's process ends.
///
/// fails if: a peer is loaded more often than once for each connection and side.
#[test]
fn a_reconnect_costs_no_more_descriptors_than_nixl_itself_keeps() {
    alone(a_reconnect_costs_no_more_descriptors_than_nixl_itself_keeps, || {
        let mut served = Served::start();
        let naive = Naive::new(&served.address);
        let (mut before, mut theirs) = (0, 0);
        let mut cycles = |served: &mut Served, cycle: &mut dyn FnMut()| {
            for n in 0..CYCLES + 5 {
                if n == 5 {
                    (before, theirs) = (descriptors(), served.descriptors());
                }
                cycle();
            }
            (descriptors().saturating_sub(before), served.descriptors().saturating_sub(theirs))
        };
        let native = cycles(&mut served, &mut || assert!(naive.add() && naive.notify() && naive.remove()));
        let (here, address) = (nixl("here"), served.address.clone());
        let ours = cycles(&mut served, &mut || {
            let connection = try_dial(&here, &address).unwrap();
            here.notify(&connection, b"x").unwrap();
            disconnect(&here, connection, CloseReason::Removed);
        });
        println!("{CYCLES} cycles, descriptors here and there: {native:?} of NIXL, {ours:?} of connections");
        // When the other side of an add without an answer opens and closes is not ours to say.
        let most = native.0.max(native.1) + CYCLES / 10;
        assert!(ours.0 <= most && ours.1 <= most, "more than NIXL's own");
    });
}

/// fails if: the thread keeps what it serves, or who drops the transport does not wait for it.
#[test]
fn its_threads_have_a_name_and_end_with_it() {
    alone(its_threads_have_a_name_and_end_with_it, || {
        let (a, b) = (nixl("a"), nixl("b"));
        let connection = dial(&a, &b);
        assert_eq!(threads(), 4);
        drop(a);
        assert_eq!(threads(), 2);
        eventually("it ends there too", || b.inbound().is_empty());
        drop((b, connection));
        assert_eq!(threads(), 0);
    });
}

fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.trim() == "peerage-nixl").count()
}
