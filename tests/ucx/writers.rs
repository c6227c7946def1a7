//! A process that is killed while it writes to a page of ours, and sends us messages that libucp fetches.

use crate::support::*;
use peerage::transport::ucx::Ucx;
use peerage::{Access, ConnectContext, DataPlane, Post, Region, RemoteSlice, TransferKind, Transport};
use std::time::Duration;

const WRITES: &str = "PEERAGE_TEST_WRITES";
const PAGE: usize = 256 << 10;
const KILLS: usize = 30;

/// It may take its own process along, so it has one. With `one_sided(true)` in [`writes`] it did in 3 of 3 runs over TCP.
///
/// fails if: libucp is asked for puts where it emulates them.
#[test]
fn a_writer_that_is_killed_takes_nobody_along() {
    alone("writers::a_writer_that_is_killed_takes_nobody_along", || {
        let here = ucx("here");
        let page = Region::zeroed(PAGE);
        here.register(&page).unwrap();
        for kill in 0..KILLS {
            let grant = here.grants().lend(&name("writer"), &page.slice(0..PAGE).unwrap(), Access::Write);
            let last = page.slice(PAGE - 8..PAGE).unwrap();
            last.write(0, &[0; 8]).unwrap();
            let remote: String = grant.remote().to_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
            let mut command = this_binary("writers::writes");
            let mut writer = command.env(WRITES, format!("{} {remote}", here.local_addr())).spawn().unwrap();
            eventually("it writes, and sends", || last.to_vec() != [0; 8] && here.inbox().try_recv().is_some());
            std::thread::sleep(Duration::from_millis(kill as u64 % 7));
            writer.kill().unwrap();
            writer.wait().unwrap();
            eventually("its connection is found broken", || {
                while here.inbox().try_recv().is_some() {}
                here.inbound().is_empty()
            });
            assert!(grant.revoke().wait(soon()), "nothing of it is under way");
        }
    });
}

/// The body of such a process; nothing in any other.
#[test]
fn writes() {
    let Ok(to) = std::env::var(WRITES) else { return };
    let (addr, remote) = to.split_once(' ').unwrap();
    let bytes: Vec<u8> =
        (0..remote.len() / 2).map(|at| u8::from_str_radix(&remote[2 * at..2 * at + 2], 16).unwrap()).collect();
    let remote = RemoteSlice::from_bytes(&bytes.try_into().unwrap());
    let ucx = Ucx::builder().name(name("writer")).bind("127.0.0.1:0").unwrap();
    let cx = ConnectContext::standalone(name("here"), generation(), soon());
    let addr: std::net::SocketAddr = addr.parse().unwrap();
    let connection = ucx.connect(&cx, &addr.into()).unwrap().connection;
    let local = Region::zeroed(PAGE);
    local.slice(0..PAGE).unwrap().write(0, &[7; PAGE]).unwrap();
    ucx.register(&local).unwrap();
    let mut running = std::collections::VecDeque::new();
    // Until it is killed; not for ever if nobody does.
    let end = soon();
    while std::time::Instant::now() < end {
        let (post, transfer) = Post::standalone(TransferKind::Write, local.slice(0..PAGE).unwrap(), remote);
        ucx.post(&connection, post).unwrap();
        // Or it has to wait until some are taken.
        let _ = ucx.notify(&connection, &[7; 60_000]);
        running.push_back(transfer);
        if running.len() > 16 {
            assert!(running.pop_front().unwrap().wait(soon()).is_some());
        }
    }
}
