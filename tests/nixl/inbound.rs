//! Who is let in, how often, and how one of them is sent away.

use crate::support::*;
use peerage::transport::nixl::{Nixl, NixlConnection, NixlError, Verdict};
use peerage::{CloseReason, DataPlane, ErrorClass, TransportError};

fn refused(dialed: Result<NixlConnection, NixlError>) -> (Verdict, ErrorClass) {
    let error = dialed.unwrap_err();
    let class = error.class();
    match error {
        NixlError::Refused { verdict, .. } => (verdict, class),
        other => panic!("{other:?}"),
    }
}

/// fails if: `max_inbound` is not asked.
#[test]
fn a_dialer_beyond_max_inbound_is_refused_as_busy_until_one_leaves() {
    alone(a_dialer_beyond_max_inbound_is_refused_as_busy_until_one_leaves, || {
        let b = Nixl::builder().name(name("b")).max_inbound(1).build().unwrap();
        let (first, second, address) = (nixl("first"), nixl("second"), b.local_address().unwrap());
        let connection = dial(&first, &b);
        let (verdict, class) = refused(try_dial(&second, &address));
        assert_eq!(verdict, Verdict::Full);
        assert!(matches!(class, ErrorClass::Busy { .. }), "{class:?}");
        let counts = b.inbound_counts();
        assert_eq!((counts.accepted, counts.refused), (1, 1), "{counts:?}");
        disconnect(&first, connection, CloseReason::Removed);
        eventually("there is a place again", || try_dial(&second, &address).is_ok());
        assert_eq!(b.inbound_counts().goodbyes, 1);
    });
}

/// fails if: only messages of connections that are open count.
#[test]
fn messages_left_behind_by_connections_that_are_gone_count_against_new_ones() {
    alone(messages_left_behind_by_connections_that_are_gone_count_against_new_ones, || {
        let b = Nixl::builder().name(name("b")).max_inbound(1).inbox_capacity(1).build().unwrap();
        let (a, address) = (nixl("a"), b.local_address().unwrap());
        let connection = dial(&a, &b);
        a.notify(&connection, b"left behind").unwrap();
        disconnect(&a, connection, CloseReason::Removed);
        eventually("it has gone", || b.inbound().is_empty() && b.inbox().len() == 1);
        assert_eq!(refused(try_dial(&a, &address)).0, Verdict::Full);
        b.inbox().try_recv().unwrap();
        assert!(try_dial(&a, &address).is_ok());
    });
}

/// fails if: every inbound connection is ended, or none, or nobody is told.
#[test]
fn inbound_connections_are_listed_and_can_be_dropped_one_by_one() {
    alone(inbound_connections_are_listed_and_can_be_dropped_one_by_one, || {
        let (first, second, b) = (nixl("first"), nixl("second"), nixl("b"));
        let (to_b, also_to_b) = (dial(&first, &b), dial(&second, &b));
        let (key, _) = b.inbound().into_iter().find(|(key, _)| key.name == name("first")).unwrap();
        assert_eq!((b.inbound().len(), key.incarnation), (2, first.incarnation()));
        assert!(b.drop_inbound(&key));
        eventually("its dialer is told", || first.notify(&to_b, b"x").is_err());
        disconnect(&first, to_b, CloseReason::Failed);
        eventually("it is listed no more", || b.inbound().len() == 1);
        assert!(!b.drop_inbound(&key), "there is none of this key any more");
        second.notify(&also_to_b, b"y").unwrap();
        eventually("the other one goes on", || b.inbox().try_recv().is_some_and(|message| message.bytes == b"y"));
    });
}

/// A cut says nothing, so its dialer hears of it when it says something.
///
/// fails if: what comes over a connection that has ended is dropped in silence.
#[test]
fn a_dialer_that_was_cut_is_told_when_it_sends() {
    alone(a_dialer_that_was_cut_is_told_when_it_sends, || {
        let (a, b) = (nixl("a"), nixl("b"));
        let connection = dial(&a, &b);
        let (key, _) = b.inbound().pop().unwrap();
        assert!(b.cut_inbound(&key));
        eventually("it is told", || {
            let sent = a.notify(&connection, b"x");
            sent.is_err_and(|error| matches!(error, NixlError::Ended { .. }) && error.class() == ErrorClass::PeerBroken)
        });
    });
}
