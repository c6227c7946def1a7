//! Pages that are written and read, here and between processes.

use crate::support::*;
use peerage::{Access, DataPlane, Liveness, Outcome, Phase, Post, Region, TransferKind};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn pattern(seed: usize) -> Vec<u8> {
    (0..PAGE).map(|at| (at * 31 + at / 251 + seed) as u8).collect()
}

#[test]
fn pages_of_another_process_are_written_and_read() {
    alone(pages_of_another_process_are_written_and_read, || {
        let (table, mut served) = (table("here"), Served::start());
        let peer = table.insert("served", served.address.clone()).unwrap();
        ready_again(&peer);
        let (out, back) = (Region::zeroed(PAGE), Region::zeroed(PAGE));
        table.register(&out).unwrap();
        table.register(&back).unwrap();
        for round in 0..10 {
            let (out, back) = (out.slice(0..PAGE).unwrap(), back.slice(0..PAGE).unwrap());
            out.write(0, &pattern(round)).unwrap();
            let (to_write, to_read) = (served.lends(Access::Write), served.lends(Access::Read));
            let write = peer.lease().unwrap().write(&out, to_write).unwrap();
            assert_eq!(write.wait(soon()), Some(Outcome::Done));
            let read = peer.lease().unwrap().read(&back, to_read).unwrap();
            assert_eq!(read.wait(soon()), Some(Outcome::Done));
            assert_eq!(back.to_vec(), pattern(round), "round {round}");
        }
        assert_eq!(table.transport().leaked_transfers(), 0);
        assert!(table.shutdown(soon()).wait().unwrap().is_clean());
    });
}

/// The keys to it go with the permission.
///
/// fails if: the metadata of the address is all that a peer ever knows.
#[test]
fn memory_that_is_registered_after_the_connect_or_never_can_be_lent() {
    alone(memory_that_is_registered_after_the_connect_or_never_can_be_lent, || {
        let (a, b) = (nixl("a"), nixl("b"));
        let connection = dial(&a, &b);
        for round in 0..4 {
            let (local, page) = (Region::zeroed(PAGE), Region::zeroed(PAGE));
            if round % 2 == 0 {
                b.register(&page).unwrap();
            }
            local.slice(0..PAGE).unwrap().write(0, &pattern(round)).unwrap();
            let grant = b.grants().lend(&name("a"), &page.slice(0..PAGE).unwrap(), Access::Write);
            let (post, transfer) = Post::standalone(TransferKind::Write, local.slice(0..PAGE).unwrap(), grant.remote());
            a.post(&connection, post).unwrap();
            assert_eq!(transfer.wait(soon()), Some(Outcome::Done), "round {round}");
            assert!(grant.revoke().wait(soon()));
            assert_eq!(page.slice(0..PAGE).unwrap().to_vec(), pattern(round), "round {round}");
        }
        assert_eq!(a.leaked_transfers(), 0);
    });
}

/// More than run at once, and more than one message asks for.
#[test]
fn many_transfers_at_once_all_end() {
    alone(many_transfers_at_once_all_end, || {
        const SMALL: usize = 4096;
        let (a, b) = (nixl("a"), nixl("b"));
        let connection = dial(&a, &b);
        let (local, page) = (Region::zeroed(PAGE), Region::zeroed(PAGE));
        a.register(&local).unwrap();
        b.register(&page).unwrap();
        local.slice(0..PAGE).unwrap().write(0, &pattern(1)).unwrap();
        let (mut grants, mut transfers) = (Vec::new(), Vec::new());
        for part in (0..PAGE).step_by(SMALL) {
            let part = part..part + SMALL;
            let grant = b.grants().lend(&name("a"), &page.slice(part.clone()).unwrap(), Access::Write);
            let (post, transfer) = Post::standalone(TransferKind::Write, local.slice(part).unwrap(), grant.remote());
            a.post(&connection, post).unwrap();
            grants.push(grant);
            transfers.push(transfer);
        }
        assert!(transfers.into_iter().all(|transfer| transfer.wait(soon()) == Some(Outcome::Done)));
        assert!(grants.into_iter().all(|grant| grant.revoke().wait(soon())));
        assert_eq!(page.slice(0..PAGE).unwrap().to_vec(), pattern(1));
    });
}

/// Nobody calls it meanwhile, so the transport itself has to notice.
///
/// fails if: a peer that owes an answer is not asked for a sign of life.
#[test]
fn a_transfer_with_a_killed_peer_ends_and_breaks_the_connection() {
    alone(a_transfer_with_a_killed_peer_ends_and_breaks_the_connection, || {
        let table = table("here");
        let page = Region::zeroed(PAGE);
        table.register(&page).unwrap();
        for _ in 0..5 {
            let mut served = Served::start();
            let peer = table.insert("served", served.address.clone()).unwrap();
            let generation = ready_again(&peer);
            let grant = served.lends(Access::Write);
            served.kill();
            if let Ok(transfer) = peer.lease().unwrap().write(&page.slice(0..PAGE).unwrap(), grant) {
                assert_ne!(transfer.wait(soon()), Some(Outcome::Done));
                eventually("the connection is broken", || {
                    peer.phase() != Phase::Ready || peer.generation() != generation
                });
            }
            assert!(peer.remove(soon()).wait().is_ok());
        }
        assert_eq!(table.transport().leaked_transfers(), 0);
        assert!(table.shutdown(soon()).wait().unwrap().is_clean());
    });
}

/// fails if: an address that was made while memory was deregistered is kept.
#[test]
fn an_address_is_not_kept_that_offers_memory_which_was_deregistered_meanwhile() {
    alone(an_address_is_not_kept_that_offers_memory_which_was_deregistered_meanwhile, || {
        // Many, as an address with many takes longer to make.
        let (nixl, rest): (_, Vec<_>) = (nixl("a"), (0..400).map(|_| Region::zeroed(4096)).collect());
        rest.iter().for_each(|region| nixl.register(region).unwrap());
        let over = AtomicBool::new(false);
        let kept = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    nixl.local_address().unwrap();
                }
            });
            let kept = (0..500).find(|_| {
                let region = Region::zeroed(4096);
                nixl.register(&region).unwrap();
                nixl.deregister(&region).unwrap();
                // What it has begun to make by now is made.
                std::thread::sleep(Duration::from_millis(3));
                nixl.local_address().unwrap().memory().len() > rest.len()
            });
            over.store(true, Ordering::Relaxed);
            kept
        });
        assert_eq!(kept, None, "in which round");
    });
}

/// What NIXL copies from process to process asks nobody here.
///
/// fails if: the thread gives back what it has lent when it ends.
#[test]
fn a_page_that_is_written_is_not_given_back_when_its_transport_is_dropped() {
    alone(a_page_that_is_written_is_not_given_back_when_its_transport_is_dropped, || {
        const LARGE: usize = 128 << 20;
        let (a, b) = (nixl("a"), nixl("b"));
        let connection = dial(&a, &b);
        let (local, page) = (Region::zeroed(LARGE), Region::zeroed(LARGE));
        a.register(&local).unwrap();
        b.register(&page).unwrap();
        // The last byte of each part: a look must be quick.
        let parts: Vec<_> = (0..LARGE).step_by(PAGE).map(|at| at + PAGE - 1..at + PAGE).collect();
        parts.iter().for_each(|part| local.slice(part.clone()).unwrap().write(0, &[7]).unwrap());
        let is_written = |part: &Range<usize>| page.slice(part.clone()).unwrap().to_vec() == [7];
        let written = || parts.iter().filter(|part| is_written(part)).count();
        let grant = b.grants().lend(&name("a"), &page.slice(0..LARGE).unwrap(), Access::Write);
        let (post, transfer) = Post::standalone(TransferKind::Write, local.slice(0..LARGE).unwrap(), grant.remote());
        a.post(&connection, post).unwrap();
        eventually("it begins", || is_written(&parts[0]));
        drop(b);
        let given_back = grant.revoke().wait(Instant::now() + Duration::from_millis(1));
        let before = written();
        println!("given back: {given_back}, {before} parts of {} were written", parts.len());
        assert!(!given_back || before == parts.len(), "what is given back is written on");
        drop((a, connection));
        assert_ne!(transfer.wait(soon()), None);
    });
}

/// fails if: where many signs of life are owed, none is asked for any more.
#[test]
fn a_killed_peer_is_found_also_when_it_has_owed_many_answers() {
    alone(a_killed_peer_is_found_also_when_it_has_owed_many_answers, || {
        let (here, mut served) = (nixl("here"), Served::start());
        let page = served.lends(Access::Write);
        let connection = try_dial(&here, &served.address).unwrap();
        served.stop();
        for _ in 0..100 {
            assert_eq!(probe(&here, &connection, Duration::from_millis(1)), Liveness::Dead);
        }
        let local = Region::zeroed(PAGE);
        let (post, transfer) = Post::standalone(TransferKind::Write, local.slice(0..PAGE).unwrap(), page);
        here.post(&connection, post).unwrap();
        served.kill();
        assert!(matches!(transfer.wait(soon()), Some(Outcome::Failed(_))));
    });
}
