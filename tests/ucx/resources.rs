//! What the transport takes from the operating system, it gives back: on both sides.

use crate::processes::{ready_again, table};
use crate::support::*;
use peerage::transport::ucx::UcxError;
use peerage::{CloseReason, ConnectContext, DataPlane, ErrorClass, Phase, Transport, TransportError};
use rustix::process::{Resource, Rlimit};
use std::time::{Duration, Instant};

/// How many descriptors more than at the start are no leak: what libucp makes once, when it is first needed.
pub(crate) const ONCE: usize = 4;

/// fails if: an endpoint that we dialled is forgotten in place of closed.
#[test]
fn a_hundred_reconnects_leave_no_descriptor_behind_on_either_side() {
    alone("resources::a_hundred_reconnects_leave_no_descriptor_behind_on_either_side", || {
        let (here, mut served) = (ucx("here"), Served::start(0));
        let (mut before, mut theirs) = (0, 0);
        for cycle in 0..110 {
            if cycle == 10 {
                (before, theirs) = (descriptors(), served.descriptors());
            }
            let connection = try_dial(&here, "served", served.addr).unwrap();
            here.notify(&connection, b"x").unwrap();
            let why = if cycle % 2 == 0 { CloseReason::Failed } else { CloseReason::Removed };
            disconnect(&here, connection, why);
        }
        eventually("theirs are back", || served.descriptors() <= theirs + ONCE);
        println!("here {before} to {}, there {theirs} to {}", descriptors(), served.descriptors());
        assert!(descriptors() <= before + ONCE, "{before} to {}", descriptors());
    });
}

/// As many as `PEERAGE_TEST_UCX_KILLS` says, 30 by default.
#[test]
fn kills_and_restarts_of_a_peer_leave_no_descriptor_behind() {
    alone("resources::kills_and_restarts_of_a_peer_leave_no_descriptor_behind", || {
        let cycles = std::env::var("PEERAGE_TEST_UCX_KILLS").map_or(30, |cycles| cycles.parse().unwrap());
        let table = table("here");
        let mut served = Served::start(0);
        let addr = served.addr;
        let peer = table.insert("served", addr.into()).unwrap();
        let mut before = 0;
        for cycle in 0..cycles + 5 {
            ready_again(&peer);
            if cycle == 5 {
                before = descriptors();
            }
            peer.lease().unwrap().notify(b"x").unwrap();
            served.kill();
            eventually("it is found dead", || peer.phase() == Phase::Failed);
            served = Served::start(addr.port());
        }
        ready_again(&peer);
        println!("{cycles} kills: descriptors {before} to {}", descriptors());
        assert!(descriptors() <= before + ONCE, "{before} to {}", descriptors());
    });
}

/// fails if: what libucp says of an attempt is taken for the peer's fault.
#[test]
fn a_process_without_descriptors_blames_itself() {
    alone("resources::a_process_without_descriptors_blames_itself", || {
        let served = Served::start(0);
        let here = ucx("here");
        let connection = try_dial(&here, "served", served.addr).unwrap();
        let before = rustix::process::getrlimit(Resource::Nofile);
        let limit = |current| Rlimit { current: Some(current), maximum: before.maximum };
        rustix::process::setrlimit(Resource::Nofile, limit(descriptors() as u64 + 20)).unwrap();
        let mut taken: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
        // None; and one, which the handshake takes and the data lacks.
        for left in 0..2 {
            taken.truncate(taken.len() - usize::from(left > 0));
            // libucp itself may wait for ever then.
            let cx = ConnectContext::standalone(name("served"), generation(), Instant::now() + Duration::from_secs(1));
            let error = here.connect(&cx, &served.addr.into()).unwrap_err();
            assert!(matches!(error, UcxError::NoDescriptor { .. }), "{left} left: {error:?}");
            assert_eq!(error.class(), ErrorClass::Local);
        }
        here.notify(&connection, b"goes on").unwrap();
        drop(taken);
        try_dial(&here, "served", served.addr).unwrap();
    });
}

#[test]
fn its_thread_has_a_name_and_ends_with_it() {
    alone("resources::its_thread_has_a_name_and_ends_with_it", || {
        drop(ucx("first"));
        let before = descriptors();
        let (a, b) = (ucx("a"), ucx("b"));
        let connection = dial(&a, &b);
        assert_eq!(threads(), 2);
        drop(a);
        assert_eq!(threads(), 1);
        eventually("it ends there too", || b.inbound().is_empty());
        drop((b, connection));
        assert_eq!(threads(), 0);
        eventually("all descriptors are back", || descriptors() <= before);
    });
}

fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.trim() == "peerage-ucx").count()
}
