//! A process that is killed while it writes and reads pages of ours, and sends us messages.

use crate::support::*;
use peerage::transport::ucx::Ucx;
use peerage::{Access, ConnectContext, DataPlane, Post, Region, RemoteSlice, TransferKind, Transport};
use std::time::Duration;

const BORROWS: &str = "PEERAGE_TEST_BORROWS";
const PAGE: usize = 4 << 20;
const KILLS: usize = 30;

/// It may take its own process along, so it has one. With `one_sided(true)` in [`borrows`] and here it did in 3 of 3 runs over TCP.
///
/// fails if: libucp is asked for puts where it emulates them.
#[test]
fn a_writer_that_is_killed_takes_nobody_along() {
    alone("killed::a_writer_that_is_killed_takes_nobody_along", || kill_some(256 << 10, 60_000, false));
}

/// fails if: libucp sends pieces of pages without a copy of its own.
#[test]
fn a_reader_that_is_killed_takes_nobody_along() {
    alone("killed::a_reader_that_is_killed_takes_nobody_along", || kill_some(PAGE, 3_000, true));
}

fn kill_some(page_len: usize, message: usize, reads: bool) {
    let here = ucx("here");
    let page = Region::zeroed(page_len);
    here.register(&page).unwrap();
    let hex = |remote: RemoteSlice| -> String { remote.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect() };
    for kill in 0..KILLS {
        let lend = |access| here.grants().lend(&name("borrower"), &page.slice(0..page_len).unwrap(), access);
        let (to_write, to_read) = (lend(Access::Write), lend(Access::Read));
        let last = page.slice(page_len - 8..page_len).unwrap();
        last.write(0, &[0; 8]).unwrap();
        let read = if reads { hex(to_read.remote()) } else { String::new() };
        let mut command = this_binary("killed::borrows");
        command.env(BORROWS, format!("{} {message} {} {read}", here.local_addr(), hex(to_write.remote())));
        let mut borrower = command.spawn().unwrap();
        eventually("it writes, and sends", || last.to_vec() != [0; 8] && here.inbox().try_recv().is_some());
        std::thread::sleep(Duration::from_millis(kill as u64 % 7));
        borrower.kill().unwrap();
        borrower.wait().unwrap();
        eventually("its connection is found broken", || {
            while here.inbox().try_recv().is_some() {}
            here.inbound().is_empty()
        });
        assert!(to_write.revoke().wait(soon()) && to_read.revoke().wait(soon()), "nothing of it is under way");
    }
}

/// The body of such a process.
#[test]
#[ignore = "is run by the tests that start such a process"]
fn borrows() {
    let how = std::env::var(BORROWS).expect("who starts it says how");
    let mut words = how.split(' ');
    let addr: std::net::SocketAddr = words.next().unwrap().parse().unwrap();
    let message: usize = words.next().unwrap().parse().unwrap();
    let mut remote = || -> Option<RemoteSlice> {
        let hex = words.next().filter(|hex| !hex.is_empty())?;
        let byte = |at: usize| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap();
        Some(RemoteSlice::from_bytes(&std::array::from_fn(byte)))
    };
    let to_write = remote().unwrap();
    let all = [Some((TransferKind::Write, to_write)), remote().map(|remote| (TransferKind::Read, remote))];
    let ucx = Ucx::builder().name(name("borrower")).bind("127.0.0.1:0").unwrap();
    let cx = ConnectContext::standalone(name("here"), generation(), soon());
    let connection = ucx.connect(&cx, &addr.into()).unwrap().connection;
    let len = to_write.len as usize;
    let local = Region::zeroed(len);
    local.slice(0..len).unwrap().write(0, &vec![7; len]).unwrap();
    ucx.register(&local).unwrap();
    let mut running = std::collections::VecDeque::new();
    // Until it is killed; not for ever if nobody does.
    let end = soon();
    while std::time::Instant::now() < end {
        for (kind, remote) in all.iter().flatten() {
            // What is read goes elsewhere: what is written is to be told from what was there.
            let local = if *kind == TransferKind::Read { Region::zeroed(len) } else { local.clone() };
            ucx.register(&local).unwrap();
            let (post, transfer) = Post::standalone(*kind, local.slice(0..len).unwrap(), *remote);
            ucx.post(&connection, post).unwrap();
            running.push_back(transfer);
        }
        // Or it has to wait until some are taken.
        let _ = ucx.notify(&connection, &vec![7; message]);
        if running.len() > 16 {
            assert!(running.pop_front().unwrap().wait(soon()).is_some());
        }
    }
}
