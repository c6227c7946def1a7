//! Messages of all lengths, probes, and who is not let in.

use crate::support::*;
use peerage::transport::nixl::{Nixl, NixlBuildError, NixlError};
use peerage::{CloseReason, DataPlane, ErrorClass, Liveness, ProbeContext, Transport, TransportError};
use std::time::{Duration, Instant};

#[test]
fn messages_of_all_lengths_come_whole_and_in_order() {
    alone(messages_of_all_lengths_come_whole_and_in_order, || {
        const MAX: usize = 1 << 20;
        let large = |called| Nixl::builder().name(name(called)).max_notification(MAX).build().unwrap();
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
        assert!(matches!(error, NixlError::TooLong { max: MAX, .. }), "{error:?}");
        disconnect(&a, connection, CloseReason::Removed);
    });
}

/// fails if: what waits for room in the inbox has no bound, or is never told to be taken.
#[test]
fn who_is_not_received_is_refused_as_busy_and_goes_on_once_it_is() {
    alone(who_is_not_received_is_refused_as_busy_and_goes_on_once_it_is, || {
        let (a, b) = (nixl("a"), nixl("b"));
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
    });
}

/// fails if: a goodbye is not waited for.
#[test]
fn what_was_sent_before_a_removal_comes() {
    alone(what_was_sent_before_a_removal_comes, || {
        let (here, mut served) = (nixl("here"), Served::start());
        for round in 1..=20 {
            let connection = try_dial(&here, &served.address).unwrap();
            for _ in 0..100 {
                here.notify(&connection, &[1; 3000]).unwrap();
            }
            disconnect(&here, connection, CloseReason::Removed);
            eventually("all are received", || served.messages() == 100 * round);
        }
    });
}

#[test]
fn a_probe_is_answered_and_one_of_a_dead_connection_is_not() {
    alone(a_probe_is_answered_and_one_of_a_dead_connection_is_not, || {
        let (a, b) = (nixl("a"), nixl("b"));
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
    });
}

/// NIXL itself tells a peer of no removal.
///
/// fails if: only who has time for a goodbye says one.
#[test]
fn a_connection_that_is_closed_by_force_ends_on_the_other_side_too() {
    alone(a_connection_that_is_closed_by_force_ends_on_the_other_side_too, || {
        let (a, b) = (nixl("a"), nixl("b"));
        let connection = dial(&a, &b);
        assert_eq!(b.inbound().len(), 1);
        disconnect(&a, connection, CloseReason::Failed);
        eventually("it ends there too", || b.inbound().is_empty());
    });
}

#[test]
fn who_dials_the_wrong_one_or_nobody_is_told() {
    alone(who_dials_the_wrong_one_or_nobody_is_told, || {
        let (a, b) = (nixl("a"), nixl("b"));
        let address = b.local_address().unwrap();
        let cx = peerage::ConnectContext::standalone(name("c"), generation(), soon());
        match a.connect(&cx, &address).unwrap_err() {
            error @ NixlError::WrongName { .. } => assert_eq!(error.class(), ErrorClass::Incompatible),
            other => panic!("{other:?}"),
        }
        assert!(b.inbound().is_empty());
        // One place for a name: the second has to wait for the end of the first.
        let connection = dial(&a, &b);
        let error = try_dial(&a, &address).unwrap_err();
        assert!(matches!(error, NixlError::NameTaken { .. }), "{error:?}");
        disconnect(&a, connection, CloseReason::Removed);
        drop(b);
        for _ in 0..3 {
            let error = try_dial(&a, &address).unwrap_err();
            assert!(matches!(error, NixlError::Unreachable { .. }), "{error:?}");
            assert_eq!(error.class(), ErrorClass::PeerBroken);
            assert!(error.native_code().is_some_and(|code| code < 0), "{error:?}");
        }
    });
}

#[test]
fn a_setting_that_is_not_taken_is_named() {
    alone(a_setting_that_is_not_taken_is_named, || {
        let error = Nixl::builder().backend("NONE").build().unwrap_err();
        assert!(matches!(error, NixlBuildError::Backend { .. }), "{error:?}");
        let error = Nixl::builder().param("ucx_error_handling_mode", "nonsense").build().unwrap_err();
        assert!(matches!(error, NixlBuildError::BackendNotMade(_)), "{error:?}");
        let error = Nixl::builder().max_notification(0).build().unwrap_err();
        assert!(matches!(error, NixlBuildError::Limit { limit: "max_notification", .. }), "{error:?}");
    });
}

/// The message that says where it was looked for needs no NIXL.
#[test]
fn a_library_that_is_not_there_is_an_error_that_says_what_to_install() {
    let error = Nixl::builder().library("/nowhere/libnixl_capi.so").build().unwrap_err();
    let text = error.to_string();
    assert!(text.contains("/nowhere/libnixl_capi.so") && text.contains("pip install nixl-cu13"), "{text}");
}
