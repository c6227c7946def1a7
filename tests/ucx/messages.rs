//! Messages of all lengths, probes, and who is not let in.

use crate::support::*;
use peerage::transport::ucx::{Ucx, UcxBindError, UcxError};
use peerage::{
    Access, CloseReason, DataPlane, ErrorClass, Liveness, Outcome, Post, ProbeContext, Region, TransferKind, Transport,
    TransportError,
};
use std::time::{Duration, Instant};

/// Short ones come at once, long ones are fetched and overtaken.
///
/// fails if: messages go into the inbox as they come.
#[test]
fn messages_of_all_lengths_come_whole_and_in_order() {
    if elsewhere(messages_of_all_lengths_come_whole_and_in_order) {
        return;
    }
    const MAX: usize = 1 << 20;
    let large = |called| Ucx::builder().name(name(called)).max_notification(MAX).bind("127.0.0.1:0").unwrap();
    let (a, b) = (large("a"), large("b"));
    let connection = dial(&a, &b);
    let lens = [0, 1, MAX, 8, 200, 8192, 65_536, 3, 300_000, 0, 5, MAX - 1, 17];
    for round in 0..8_u8 {
        for (at, len) in lens.into_iter().enumerate() {
            a.notify(&connection, &vec![round ^ at as u8; len]).unwrap();
        }
        for (at, len) in lens.into_iter().enumerate() {
            let got = b.inbox().recv(soon()).unwrap();
            assert_eq!(got.bytes.len(), len, "round {round}, message {at}");
            assert!(got.bytes.iter().all(|byte| *byte == round ^ at as u8), "round {round}, message {at}");
            assert_eq!(got.sequence, Some(u64::from(round) * lens.len() as u64 + at as u64 + 1));
        }
    }
    let error = a.notify(&connection, &vec![0; MAX + 1]).unwrap_err();
    assert!(matches!(error, UcxError::TooLong { max: MAX, .. }), "{error:?}");
    disconnect(&a, connection, CloseReason::Removed);
}

/// fails if: what waits for room in the inbox has no bound, or is never told to be taken.
#[test]
fn who_is_not_received_is_refused_as_busy_and_goes_on_once_it_is() {
    if elsewhere(who_is_not_received_is_refused_as_busy_and_goes_on_once_it_is) {
        return;
    }
    let (a, b) = (ucx("a"), ucx("b"));
    let connection = dial(&a, &b);
    let mut sent = 0_u32;
    let busy = loop {
        match a.notify(&connection, &sent.to_le_bytes()) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
        assert!(sent < 100_000, "nothing holds it back");
    };
    assert!(matches!(busy.class(), ErrorClass::Busy { .. }), "{busy:?}");
    let (all, mut next, end) = (3 * sent, 0_u32, soon());
    while next < all {
        assert!(Instant::now() < end, "{next} of {all} came");
        if let Some(message) = b.inbox().recv(Instant::now() + Duration::from_millis(10)) {
            assert_eq!(message.bytes, next.to_le_bytes());
            next += 1;
        }
        // What is received makes room for more, sooner or later: also when all that was sent has come.
        while sent < all && a.notify(&connection, &sent.to_le_bytes()).is_ok() {
            sent += 1;
        }
    }
}

/// What was sent before a removal comes, and a close by force ends what is under way.
///
/// fails if: a goodbye is not waited for.
#[test]
fn what_was_sent_before_a_removal_comes() {
    if elsewhere(what_was_sent_before_a_removal_comes) {
        return;
    }
    let (here, mut served) = (ucx("here"), Served::start(0));
    for round in 1..=20 {
        let connection = try_dial(&here, "served", served.addr).unwrap();
        for _ in 0..100 {
            here.notify(&connection, &[1; 3000]).unwrap();
        }
        disconnect(&here, connection, CloseReason::Removed);
        eventually("all are received", || served.messages() == 100 * round);
    }
}

#[test]
fn a_probe_is_answered_and_one_of_a_dead_connection_is_not() {
    if elsewhere(a_probe_is_answered_and_one_of_a_dead_connection_is_not) {
        return;
    }
    let (a, b) = (ucx("a"), ucx("b"));
    let connection = dial(&a, &b);
    let probe = |limit| {
        let cx = ProbeContext { name: name("b"), generation: generation(), deadline: Instant::now() + limit };
        a.probe(&cx, &connection)
    };
    assert_eq!(probe(LONG), Liveness::Alive);
    drop(b);
    eventually("it is found dead", || probe(Duration::from_millis(100)) == Liveness::Dead);
    let error = a.notify(&connection, b"late").unwrap_err();
    assert_eq!(error.class(), ErrorClass::PeerBroken, "{error:?}");
}

/// Three answers before one large page has gone: a peer that is written to is as alive as another.
///
/// fails if: libucp is given all of a page at once.
#[test]
fn a_probe_does_not_wait_for_a_page_that_is_on_its_way() {
    if elsewhere(a_probe_does_not_wait_for_a_page_that_is_on_its_way) {
        return;
    }
    const LEN: usize = 512 << 20;
    let (a, b) = (ucx("a"), ucx("b"));
    let connection = dial(&a, &b);
    let (local, page) = (Region::zeroed(LEN), Region::zeroed(LEN));
    a.register(&local).unwrap();
    b.register(&page).unwrap();
    let grant = b.grants().lend(&name("a"), &page.slice(0..LEN).unwrap(), Access::Write);
    let (post, transfer) = Post::standalone(TransferKind::Write, local.slice(0..LEN).unwrap(), grant.remote());
    a.post(&connection, post).unwrap();
    eventually("it runs", || grant.running() > 0);
    for _ in 0..3 {
        let cx = ProbeContext { name: name("b"), generation: generation(), deadline: soon() };
        assert_eq!(a.probe(&cx, &connection), Liveness::Alive);
    }
    assert_eq!(transfer.try_outcome(), None, "the answers waited for the page");
    assert_eq!(transfer.wait(soon()), Some(Outcome::Done));
}

/// fails if: an inbound connection that breaks stays open here.
#[test]
fn a_connection_that_is_closed_by_force_ends_on_the_other_side_too() {
    if elsewhere(a_connection_that_is_closed_by_force_ends_on_the_other_side_too) {
        return;
    }
    let (a, b) = (ucx("a"), ucx("b"));
    let connection = dial(&a, &b);
    assert_eq!(b.inbound().len(), 1);
    disconnect(&a, connection, CloseReason::Failed);
    eventually("it ends there too", || b.inbound().is_empty());
}

/// The one that listens ends first, so the operating system keeps its side of the connection, and the port, for a minute.
///
/// fails if: libucp is not told to take an address that is in use.
#[test]
fn who_ends_first_gets_its_port_back_at_once_and_is_reached_there() {
    if elsewhere(who_ends_first_gets_its_port_back_at_once_and_is_reached_there) {
        return;
    }
    let a = ucx("a");
    let mut b = ucx("b");
    let addr = b.local_addr();
    for _ in 0..3 {
        let connection = dial(&a, &b);
        drop(b);
        eventually("the end is seen", || a.notify(&connection, b"late").is_err());
        disconnect(&a, connection, CloseReason::Failed);
        b = Ucx::builder().name(name("b")).bind(addr).unwrap();
    }
    let connection = dial(&a, &b);
    a.notify(&connection, b"again").unwrap();
    assert_eq!(b.inbox().recv(soon()).unwrap().bytes, b"again");
    disconnect(&a, connection, CloseReason::Removed);
}

/// fails if: the time is added to a moment as it is, on the thread that serves everybody.
#[test]
fn a_dialer_may_have_for_ever_to_say_who_it_is() {
    if elsewhere(a_dialer_may_have_for_ever_to_say_who_it_is) {
        return;
    }
    let a = ucx("a");
    let b = Ucx::builder().name(name("b")).handshake_timeout(Duration::MAX).bind("127.0.0.1:0").unwrap();
    let connection = dial(&a, &b);
    a.notify(&connection, b"hello").unwrap();
    assert_eq!(b.inbox().recv(soon()).unwrap().bytes, b"hello");
    disconnect(&a, connection, CloseReason::Removed);
}

#[test]
fn a_connect_waits_as_long_as_the_acceptor_was_told_to_delay() {
    if elsewhere(a_connect_waits_as_long_as_the_acceptor_was_told_to_delay) {
        return;
    }
    let delay = Duration::from_millis(80);
    let (a, b) = (ucx("a"), Ucx::builder().name(name("b")).accept_delay(delay).bind("127.0.0.1:0").unwrap());
    let start = Instant::now();
    disconnect(&a, dial(&a, &b), CloseReason::Removed);
    assert!(start.elapsed() >= delay);
}

/// fails if: the thread that serves everybody sleeps for the delay, or adds it to a moment as it was given.
#[test]
fn who_delays_an_acceptance_for_ever_goes_on_meanwhile() {
    if elsewhere(who_delays_an_acceptance_for_ever_goes_on_meanwhile) {
        return;
    }
    let (a, slow) = (ucx("a"), Ucx::builder().name(name("b")).accept_delay(Duration::MAX).bind("127.0.0.1:0").unwrap());
    let at = slow.local_addr();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| try_dial(&a, "b", at));
        eventually("it is greeted", || slow.inbound().len() == 1);
        disconnect(&slow, dial(&slow, &a), CloseReason::Removed);
        assert!(!waits.is_finished());
        drop(slow);
        let error = waits.join().unwrap().unwrap_err();
        assert!(matches!(error, UcxError::Unreachable { .. }), "{error:?}");
    });
}

#[test]
fn who_dials_the_wrong_one_or_nobody_is_told() {
    if elsewhere(who_dials_the_wrong_one_or_nobody_is_told) {
        return;
    }
    let (a, b) = (ucx("a"), ucx("b"));
    match try_dial(&a, "c", b.local_addr()).unwrap_err() {
        error @ UcxError::WrongName { .. } => assert_eq!(error.class(), ErrorClass::Incompatible),
        other => panic!("{other:?}"),
    }
    assert!(b.inbound().is_empty());
    let gone = b.local_addr();
    drop(b);
    let error = try_dial(&a, "b", gone).unwrap_err();
    assert!(matches!(error, UcxError::Unreachable { .. }), "{error:?}");
    assert_eq!(error.class(), ErrorClass::PeerBroken);
    assert!(error.native_code().is_some_and(|code| code < 0), "{error:?}");
}

/// fails if: what is newest is forgotten when it is closed.
#[test]
fn a_message_of_a_connection_that_was_replaced_is_dropped_also_when_the_newer_one_has_gone() {
    if elsewhere(a_message_of_a_connection_that_was_replaced_is_dropped_also_when_the_newer_one_has_gone) {
        return;
    }
    let (a, b) = (ucx("a"), ucx("b"));
    let old = dial(&a, &b);
    a.notify(&old, b"in time").unwrap();
    assert_eq!(b.inbox().recv(soon()).unwrap().bytes, b"in time");
    disconnect(&a, dial(&a, &b), CloseReason::Removed);
    eventually("the newer one has gone", || b.inbound().len() == 1);
    a.notify(&old, b"late").unwrap();
    eventually("it is dropped", || b.inbound_counts().outdated == 1);
    assert!(b.inbox().is_empty());
    drop(old);
    eventually("the old one has gone, too", || b.inbound().is_empty());
    assert_eq!((b.inbound_counts().misbehaved, b.inbound_counts().lost), (0, 0));
}

#[test]
fn a_setting_that_libucp_does_not_take_and_a_network_that_is_not_trusted_are_refused() {
    if elsewhere(a_setting_that_libucp_does_not_take_and_a_network_that_is_not_trusted_are_refused) {
        return;
    }
    let not_taken = |name: &str, value| match Ucx::builder().config(name, value).bind("127.0.0.1:0") {
        Err(UcxBindError::Configuration { setting, .. }) => setting,
        other => panic!("{other:?}"),
    };
    assert_eq!(not_taken("MAX_RNDV_LANES", "many").as_deref(), Some("MAX_RNDV_LANES"));
    assert_eq!(not_taken("NO_NAME\0", "x").as_deref(), Some("NO_NAME\0"));
    assert_eq!(not_taken("TLS", "no_such_device"), None, "each is taken, and there is no such device");
    let error = Ucx::bind("0.0.0.0:0").unwrap_err();
    assert!(matches!(error, UcxBindError::NotLoopback { .. }), "{error:?}");
    let taken = ucx("a");
    let error = Ucx::bind(taken.local_addr()).unwrap_err();
    assert!(matches!(error, UcxBindError::Listen { .. }), "{error:?}");
    let error = Ucx::builder().handshake_timeout(Duration::ZERO).bind("127.0.0.1:0").unwrap_err();
    assert!(matches!(error, UcxBindError::NoTimeForHandshakes), "{error:?}");
}
