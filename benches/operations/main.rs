//! Every operation of the fast path on one thread, by criterion: `cargo bench --bench operations`.
//!
//! Wall time, so a busy machine shows. Criterion keeps each run and compares the next one with it: this is for whoever
//! changes the code; `lease` is for whoever chooses a library. With `-- --json FILE` a line for each median.

#[path = "../common/ready.rs"]
mod ready;
#[path = "../common/wait.rs"]
mod wait;
#[path = "../common/wire.rs"]
mod wire;

use criterion::Criterion;
use peerage::transport::memory::{Fabric, MemoryAddress};
use peerage::{Generation, PeerTable};
use ready::{names, ready};
use serde_json::{Value, json};
use std::error::Error;
use std::fs::File;
use std::hint::black_box;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use wire::Wire;

const PEERS: usize = 64;

fn main() -> Result<(), Box<dyn Error>> {
    let home = PathBuf::from(std::env::var_os("CARGO_TARGET_DIR").unwrap_or("target".into())).join("criterion");
    let mut criterion = Criterion::default()
        .output_directory(&home)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    leases(&mut criterion)?;
    looks(&mut criterion)?;
    notifications(&mut criterion)?;
    criterion.final_summary();

    let mut arguments = std::env::args().skip_while(|argument| argument != "--json").skip(1);
    match arguments.next() {
        Some(file) => leave_lines(&home, &mut File::create(file)?),
        None => Ok(()),
    }
}

fn leases(criterion: &mut Criterion) -> Result<(), Box<dyn Error>> {
    let names = names(PEERS);
    let (table, peers) = ready(PeerTable::builder(Wire::new(|_| {})), &names)?;
    let (peer, id, name) = (&peers[3], peers[3].id(), names[3].as_str());
    criterion.bench_function("lease by handle", |b| b.iter(|| peer.lease().expect("ready").touch()));
    criterion.bench_function("lease by id", |b| b.iter(|| table.lease_by_id(black_box(id)).expect("ready").touch()));
    criterion.bench_function("lease by name", |b| b.iter(|| table.lease(black_box(name)).expect("ready").touch()));
    criterion.bench_function("refused lease by name", |b| b.iter(|| table.lease(black_box("nobody")).is_err()));
    Ok(())
}

fn looks(criterion: &mut Criterion) -> Result<(), Box<dyn Error>> {
    let (table, peers) = ready(PeerTable::builder(Wire::new(|_| {})), &names(PEERS))?;
    let peer = &peers[3];
    let stale = Generation(0);
    let late = std::io::Error::other("its socket was reset");
    criterion.bench_function("phase", |b| b.iter(|| peer.phase()));
    criterion.bench_function("status", |b| b.iter(|| peer.status()));
    criterion.bench_function("snapshot of 64 peers", |b| b.iter(|| table.snapshot()));
    criterion.bench_function("stale report", |b| b.iter(|| peer.report(black_box(stale), &late)));
    Ok(())
}

fn notifications(criterion: &mut Criterion) -> Result<(), Box<dyn Error>> {
    let fabric = Fabric::new();
    let table = PeerTable::builder(fabric.node("decode-0")).build()?;
    let other = PeerTable::builder(fabric.node("prefill-0")).build()?;
    let peer = table.insert("prefill-0", MemoryAddress::new("prefill-0"))?;
    peer.wait_ready(Instant::now() + Duration::from_secs(10))?;
    let inbox = other.inbox();
    criterion.bench_function("lease, notify over Memory, receive", |b| {
        b.iter(|| {
            peer.lease().expect("ready").notify(b"pages ready").expect("accepted");
            inbox.try_recv().expect("it is there when notify has returned")
        });
    });
    Ok(())
}

/// A line for each estimate that criterion left under `home`.
fn leave_lines(home: &Path, lines: &mut File) -> Result<(), Box<dyn Error>> {
    let mut cases: Vec<_> = std::fs::read_dir(home)?.collect::<Result<_, _>>()?;
    cases.sort_by_key(std::fs::DirEntry::file_name);
    for case in cases {
        let of = |file: &str| -> Result<Value, Box<dyn Error>> {
            Ok(serde_json::from_reader(File::open(case.path().join("new").join(file))?)?)
        };
        let (Ok(named), Ok(estimates)) = (of("benchmark.json"), of("estimates.json")) else { continue };
        let ns = &estimates["median"]["point_estimate"];
        let line = json!({ "bench": "operations", "case": named["full_id"], "value": ns, "unit": "ns" });
        writeln!(lines, "{line}")?;
    }
    Ok(())
}
