//! The hot path, to be counted by instructions: ci/callgrind.sh runs this under callgrind, one case each time, and counts only
//! what happens inside the function of the case.

#[path = "../common/ready.rs"]
mod ready;
#[path = "../common/wait.rs"]
mod wait;
#[path = "../common/wire.rs"]
mod wire;

use peerage::{PeerId, PeerTable};
use ready::{Peer, Table, names, ready};
use std::error::Error;
use std::hint::black_box;
use wire::Wire;

/// So many that the call of the function itself is lost in rounding.
const TIMES: usize = 10_000;
const PEERS: usize = 64;

fn main() -> Result<(), Box<dyn Error>> {
    let case = std::env::args().nth(1).ok_or("which case?")?;
    let names = names(PEERS);
    let (table, peers) = ready(PeerTable::builder(Wire::new(|_| {})).stripes(4), &names)?;
    let peer = &peers[3];
    let _ = peer.lease()?; // gives this thread its stripe
    match case.as_str() {
        "by_handle" => count_by_handle(peer),
        "by_id" => count_by_id(&table, peer.id()),
        "by_name" => count_by_name(&table, &names),
        "phase" => count_phase(peer),
        other => return Err(format!("there is no case {other:?}").into()),
    }
    println!("{TIMES}");
    Ok(())
}

#[inline(never)]
fn count_by_handle(peer: &Peer) {
    for _ in 0..TIMES {
        black_box(peer).lease().expect("ready").touch();
    }
}

#[inline(never)]
fn count_by_id(table: &Table, id: PeerId) {
    for _ in 0..TIMES {
        black_box(table).lease_by_id(black_box(id)).expect("ready").touch();
    }
}

#[inline(never)]
fn count_by_name(table: &Table, names: &[String]) {
    // All of them: how deep a name lies depends on the run's hash keys.
    for name in names.iter().cycle().take(TIMES) {
        black_box(table).lease(black_box(name)).expect("ready").touch();
    }
}

#[inline(never)]
fn count_phase(peer: &Peer) {
    for _ in 0..TIMES {
        black_box(black_box(peer).phase());
    }
}
