//! What a lease costs: `cargo bench --bench lease`, and with `-- --check` exit status 1 when a bound is broken.
//!
//! One operation is: get the right to use the connection, touch the connection, give the right back. The floor is what any
//! counted right costs: one CAS in and one `fetch_sub` out on a cache line that only this thread writes. Everything is
//! compared with the floor of the same round, so a machine that is busy or changes its clock shifts both.
//!
//! No criterion: it measures wall time of one thread, and these rows are CPU time of pinned pairs of threads.

mod pinned;
mod rounds;
mod wire;

use crossbeam_utils::CachePadded;
use dashmap::DashMap;
use peerage::{Peer, PeerTable};
use rounds::{Group, Rounds};
use std::collections::HashMap;
use std::error::Error;
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use wire::{Anywhere, Endpoint, Wire};

const NAME: &str = "prefill-3";
const HANDLE_BOUND: f64 = 1.4;
const BY_ID_BOUND: f64 = 1.6;
const TWO_THREADS_BOUND: f64 = 1.2;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut check = false;
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--check" => check = true,
            "--bench" => {} // cargo's own
            other => return Err(format!("unknown argument {other:?}; there is only --check").into()),
        }
    }
    let measured = measure()?;
    measured.print();
    Ok(if judge(&measured) || !check { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn measure() -> Result<Rounds, Box<dyn Error>> {
    let lines: [CachePadded<AtomicU64>; 2] = Default::default();
    let (table, peer) = ready(PeerTable::builder(Wire))?;
    let (_one, one_stripe) = ready(PeerTable::builder(Wire).stripes(1))?;
    let id = peer.id();
    let mutex_map = Mutex::new(HashMap::from([(NAME.to_owned(), Arc::new(Endpoint(7)))]));
    let dash_map: DashMap<String, Endpoint> = DashMap::from_iter([(NAME.to_owned(), Endpoint(7))]);

    let groups = [
        Group::new("floor/two_rmw", |thread, ops| {
            for _ in 0..ops {
                two_rmw(&lines[thread]);
            }
        }),
        Group::new("lease/handle", |_, ops| {
            for _ in 0..ops {
                touch(&peer.lease().expect("ready"));
            }
        }),
        Group::new("lease/by_id", |_, ops| {
            for _ in 0..ops {
                touch(&table.lease_by_id(id).expect("ready"));
            }
        }),
        Group::new("lease/by_name", |_, ops| {
            for _ in 0..ops {
                touch(&table.lease(NAME).expect("ready"));
            }
        }),
        Group::new("one_stripe_control", |_, ops| {
            for _ in 0..ops {
                touch(&one_stripe.lease().expect("ready"));
            }
        }),
        Group::new("mutex_map", |_, ops| {
            for _ in 0..ops {
                touch(&mutex_map.lock().expect("nobody panics")[NAME]);
            }
        }),
        Group::new("dashmap", |_, ops| {
            for _ in 0..ops {
                touch(&dash_map.get(NAME).expect("inserted"));
            }
        }),
    ];
    Ok(Rounds::run(&groups, "floor/two_rmw", "one_stripe_control")?)
}

/// What a lease cannot do without.
#[inline(always)]
fn two_rmw(line: &AtomicU64) {
    let mut seen = line.load(Ordering::Acquire);
    while let Err(now) = line.compare_exchange_weak(seen, seen + 1, Ordering::Acquire, Ordering::Acquire) {
        seen = now;
    }
    line.fetch_sub(1, Ordering::Release);
}

/// The use of the connection: one load that the compiler cannot leave out.
#[inline(always)]
fn touch(endpoint: &Endpoint) {
    black_box(endpoint.0);
}

/// A table with one peer whose connection is open.
fn ready(builder: peerage::Builder<Wire>) -> Result<(PeerTable<Wire>, Peer<Wire>), Box<dyn Error>> {
    let table = builder.build()?;
    let peer = table.insert(NAME, Anywhere)?;
    peer.wait_ready(Instant::now() + Duration::from_secs(10))?;
    Ok((table, peer))
}

/// Says which bounds hold; true if all do.
fn judge(measured: &Rounds) -> bool {
    let mut all_hold = true;
    let mut bound = |what: &str, ratio: Option<f64>, bound: f64| {
        let (holds, shown) = match ratio {
            Some(ratio) => (ratio <= bound, format!("{ratio:.2}")),
            None => (false, "no overlap".into()),
        };
        all_hold &= holds;
        println!("{} {what}: {shown}, bound {bound}", if holds { "ok    " } else { "BROKEN" });
    };
    bound("lease/handle against the floor", Some(measured.to_floor("lease/handle")), HANDLE_BOUND);
    bound("lease/by_id against the floor", Some(measured.to_floor("lease/by_id")), BY_ID_BOUND);
    if measured.has_pairs() {
        for name in ["lease/handle", "lease/by_id"] {
            let what = format!("{name}, 2 threads on one peer against 1 thread");
            bound(&what, measured.pair_to_one(name), TWO_THREADS_BOUND);
        }
    }
    all_hold
}
