//! A peer in another process that is killed, restarted and stopped.

use crate::support::*;
use peerage::transport::ucx::Ucx;
use peerage::{Backoff, Generation, Liveness, Peer, PeerTable, Phase, ProbeContext, ReadyError, Transport};
use rustix::process::{Pid, Signal, kill_process};
use std::time::{Duration, Instant};

pub(crate) fn table(called: &str) -> PeerTable<Ucx> {
    let short = Duration::from_millis(1);
    let backoff = Backoff { base: short, cap: 10 * short, ..Backoff::default() };
    PeerTable::builder(ucx(called)).backoff(backoff).breaker(None).build().unwrap()
}

/// Through backoffs, and attempts that fail because the peer is not back yet.
pub(crate) fn ready_again(peer: &Peer<Ucx>) -> Generation {
    let end = soon();
    loop {
        match peer.wait_ready(end) {
            Ok(generation) => return generation,
            Err(ReadyError::BackingOff { retry_at, .. }) => {
                std::thread::sleep(retry_at.saturating_duration_since(Instant::now()));
            }
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
    }
}

/// Nobody sends, so only libucp's own error tells.
#[test]
fn a_killed_peer_is_reported_and_comes_back_on_its_port() {
    if elsewhere(a_killed_peer_is_reported_and_comes_back_on_its_port) {
        return;
    }
    let table = table("here");
    let mut served = Served::start(0);
    let addr = served.addr;
    let peer = table.insert("served", addr.into()).unwrap();
    let mut last = None;
    for _ in 0..5 {
        ready_again(&peer);
        let incarnation = peer.record().unwrap().incarnation;
        assert_ne!(incarnation, last, "each process is another incarnation");
        last = incarnation;
        peer.lease().unwrap().notify(b"hello").unwrap();
        served.kill();
        eventually("it is found dead", || peer.phase() == Phase::Failed);
        served = Served::start(addr.port());
        assert_eq!(served.addr, addr);
    }
    ready_again(&peer);
    assert!(table.shutdown(soon()).wait().unwrap().is_clean());
}

/// fails if: a probe takes what libucp has accepted for an answer.
#[test]
fn a_stopped_peer_raises_no_error_and_a_probe_finds_it() {
    if elsewhere(a_stopped_peer_raises_no_error_and_a_probe_finds_it) {
        return;
    }
    let (here, served) = (ucx("here"), Served::start(0));
    let connection = try_dial(&here, "served", served.addr).unwrap();
    let probe = |limit| {
        let cx = ProbeContext { name: name("served"), generation: generation(), deadline: Instant::now() + limit };
        here.probe(&cx, &connection)
    };
    assert_eq!(probe(LONG), Liveness::Alive);
    let pid = Pid::from_child(&served.child);
    kill_process(pid, Signal::STOP).unwrap();
    // Each of its threads stops when it hears of it.
    let is_stopped = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.unwrap().path().join("stat")).is_ok_and(|stat| stat.contains(") T "))
    };
    let tasks = format!("/proc/{}/task", served.child.id());
    eventually("it is stopped", || std::fs::read_dir(&tasks).unwrap().all(is_stopped));
    assert_eq!(probe(Duration::from_millis(500)), Liveness::Dead);
    kill_process(pid, Signal::CONT).unwrap();
    assert_eq!(probe(LONG), Liveness::Alive, "it was only stopped");
}
