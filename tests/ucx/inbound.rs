//! Who is let in, how often, and how one of them is sent away.

use crate::support::*;
use peerage::transport::frame::Verdict;
use peerage::transport::ucx::{Ucx, UcxConnection, UcxError};
use peerage::{CloseReason, ConnectContext, DataPlane, ErrorClass, Transport, TransportError};

fn refused(dialed: Result<UcxConnection, UcxError>) -> (Verdict, ErrorClass) {
    let error = dialed.unwrap_err();
    let class = error.class();
    match error {
        UcxError::Refused { verdict, .. } => (verdict, class),
        other => panic!("{other:?}"),
    }
}

/// fails if: `max_inbound` is not asked.
#[test]
fn a_dialer_beyond_max_inbound_is_refused_as_busy_until_one_leaves() {
    if elsewhere(a_dialer_beyond_max_inbound_is_refused_as_busy_until_one_leaves) {
        return;
    }
    let (a, b) = (ucx("a"), Ucx::builder().name(name("b")).max_inbound(2).bind("127.0.0.1:0").unwrap());
    let (first, _second) = (dial(&a, &b), dial(&a, &b));
    let (verdict, class) = refused(try_dial(&a, "b", b.local_addr()));
    assert_eq!(verdict, Verdict::Full);
    assert!(matches!(class, ErrorClass::Busy { .. }), "{class:?}");
    let counts = b.inbound_counts();
    assert_eq!((counts.accepted, counts.refused), (2, 1), "{counts:?}");
    disconnect(&a, first, CloseReason::Removed);
    eventually("there is a place again", || try_dial(&a, "b", b.local_addr()).is_ok());
    assert_eq!(b.inbound_counts().goodbyes, 1);
}

/// fails if: the places of strangers are added to a limit that has no room for them.
#[test]
fn without_a_limit_everybody_is_let_in() {
    if elsewhere(without_a_limit_everybody_is_let_in) {
        return;
    }
    let (a, b) = (ucx("a"), Ucx::builder().name(name("b")).max_inbound(usize::MAX).bind("127.0.0.1:0").unwrap());
    let _two = (dial(&a, &b), dial(&a, &b));
    assert_eq!(b.inbound().len(), 2);
}

/// fails if: only messages of connections that are open count.
#[test]
fn messages_left_behind_by_connections_that_are_gone_count_against_new_ones() {
    if elsewhere(messages_left_behind_by_connections_that_are_gone_count_against_new_ones) {
        return;
    }
    let b = Ucx::builder().name(name("b")).max_inbound(1).inbox_capacity(1).bind("127.0.0.1:0").unwrap();
    let a = ucx("a");
    let connection = dial(&a, &b);
    a.notify(&connection, b"left behind").unwrap();
    disconnect(&a, connection, CloseReason::Removed);
    eventually("it has gone", || b.inbound().is_empty() && b.inbox().len() == 1);
    assert_eq!(refused(try_dial(&a, "b", b.local_addr())).0, Verdict::Full);
    b.inbox().try_recv().unwrap();
    assert!(try_dial(&a, "b", b.local_addr()).is_ok());
}

/// fails if: the registry takes a key twice.
#[test]
fn the_same_generation_is_not_let_in_twice() {
    if elsewhere(the_same_generation_is_not_let_in_twice) {
        return;
    }
    let (a, b) = (ucx("a"), ucx("b"));
    let cx = ConnectContext::standalone(name("b"), generation(), soon());
    let again = || a.connect(&cx, &b.local_addr().into()).map(|connected| connected.connection);
    let first = again().unwrap();
    assert_eq!(refused(again()).0, Verdict::Duplicate);
    a.notify(&first, b"still there").unwrap();
    assert_eq!(b.inbox().recv(soon()).unwrap().bytes, b"still there");
    disconnect(&a, first, CloseReason::Removed);
    eventually("the key is free again", || again().is_ok());
}

/// fails if: every inbound connection of a dialer is ended, or none.
#[test]
fn inbound_connections_are_listed_and_can_be_dropped_one_by_one() {
    if elsewhere(inbound_connections_are_listed_and_can_be_dropped_one_by_one) {
        return;
    }
    let (a, b) = (ucx("a"), ucx("b"));
    let first = dial(&a, &b);
    let (key, _) = b.inbound().pop().unwrap();
    assert_eq!((&key.name, key.incarnation), (&name("a"), a.incarnation()));
    let second = dial(&a, &b);
    assert_eq!(b.inbound().len(), 2);
    assert!(b.drop_inbound(&key));
    eventually("its dialer is told", || a.notify(&first, b"x").is_err());
    eventually("it is listed no more", || b.inbound().len() == 1);
    assert!(!b.drop_inbound(&key), "there is none of this key any more");
    a.notify(&second, b"y").unwrap();
    eventually("the other one goes on", || b.inbox().try_recv().is_some_and(|message| message.bytes == b"y"));
}
