//! The `Memory` transport by itself, without a table: what a test of a table may rely on.
#![cfg(not(peerage_loom))]

use peerage::transport::memory::{
    CloseAnswer, Ending, Fabric, Memory, MemoryAddress, MemoryConnection, MemoryError, Misuse, MisuseKind, Step,
};
use peerage::transport::{Counted, Counting, PeerCounts};
use peerage::{
    Access, Capabilities, Clock, CloseContext, CloseReason, Closed, ConnectContext, DataPlane, ErrorClass, Generation,
    Grant, Liveness, Outcome, PeerName, Post, ProbeContext, Refusal, Region, Reported, Slice, Transfer, TransferError,
    TransferKind, Transport, TransportError,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

const G1: Generation = Generation(1);
const G2: Generation = Generation(2);

fn far() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

fn name(name: &str) -> PeerName {
    PeerName::new(name).unwrap()
}

fn connect<T: Transport<Address = MemoryAddress>>(
    transport: &T,
    peer: &str,
    generation: Generation,
) -> Result<T::Connection, T::Error> {
    let cx = ConnectContext::standalone(name(peer), generation, far());
    transport.connect(&cx, &MemoryAddress::new(peer)).map(|connected| connected.connection)
}

fn close<T: Transport>(transport: &T, generation: Generation, connection: T::Connection) -> Closed<T::Connection> {
    let cx = CloseContext { name: name("p"), generation, deadline: far() };
    transport.disconnect(&cx, connection, CloseReason::Removed)
}

/// Two nodes of one fabric, `d` that dials and `p` that is dialled.
struct Pair {
    fabric: Fabric,
    d: Memory,
    p: Memory,
}

fn pair_with(capabilities: Capabilities) -> Pair {
    let fabric = Fabric::new();
    let d = fabric.builder("d").capabilities(capabilities).build();
    let p = fabric.node("p");
    Pair { fabric, d, p }
}

fn pair() -> Pair {
    let fabric = Fabric::new();
    let (d, p) = (fabric.node("d"), fabric.node("p"));
    Pair { fabric, d, p }
}

impl Pair {
    fn connected(&self) -> MemoryConnection {
        connect(&self.d, "p", G1).unwrap()
    }

    /// A write of eight ones from `d` into a page of `p` that is lent to it.
    fn write(&self, connection: &MemoryConnection) -> (Transfer, Grant) {
        let local = page();
        local.write(0, &[1; 8]).unwrap();
        self.d.register(local.region()).unwrap();
        let grant = self.p.grants().lend(&name("d"), &page(), Access::Write);
        let (post, transfer) = Post::standalone(TransferKind::Write, local, grant.remote());
        self.d.post(connection, post).unwrap();
        (transfer, grant)
    }

    fn misused(&self, kind: MisuseKind) {
        assert_eq!(self.d.misuses(), [Misuse { peer: Some(name("p")), generation: Some(G1), kind }]);
    }
}

fn page() -> Slice {
    Region::zeroed(8).slice(0..8).unwrap()
}

fn received(memory: &Memory) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| memory.inbox().try_recv()).map(|note| note.bytes).collect()
}

#[test]
fn a_connect_answers_with_the_incarnation_of_the_node_it_reached() {
    let Pair { fabric, d, p } = pair();
    let cx = ConnectContext::standalone(name("p"), G1, far());
    let first = d.connect(&cx, &p.address()).unwrap();
    assert_eq!(first.incarnation, Some(p.incarnation()));
    fabric.restart("p");
    let second = d.connect(&cx, &p.address()).unwrap();
    assert_eq!(second.incarnation, Some(p.incarnation()));
    assert_ne!(first.incarnation, second.incarnation);
}

#[test]
fn an_address_shows_its_node_and_its_life() {
    let address = MemoryAddress::new("p").with_incarnation(peerage::Incarnation(10));
    assert_eq!(address.to_string(), "memory:p@000000000000000a");
    assert_ne!(address, MemoryAddress::new("p"));
    assert_eq!(MemoryAddress::new("p").to_string(), "memory:p");
}

#[test]
fn a_node_that_does_not_exist_or_is_killed_refuses_until_it_is_revived() {
    let Pair { fabric, d, .. } = pair();
    let refused = connect(&d, "nobody", G1).unwrap_err();
    assert_eq!(refused.class(), ErrorClass::PeerBroken);
    assert!(matches!(refused, MemoryError::Refused { .. }), "{refused}");
    fabric.kill("p");
    assert!(matches!(connect(&d, "p", G1), Err(MemoryError::Refused { .. })));
    fabric.revive("p");
    assert!(connect(&d, "p", G2).is_ok());
    fabric.kill("d");
    assert!(connect(&d, "p", G2).is_err(), "the dead connect to nobody");
}

#[test]
fn messages_arrive_in_order_with_who_sent_them() {
    let pair = pair();
    let connection = pair.connected();
    for byte in 0..3 {
        pair.d.notify(&connection, &[byte]).unwrap();
    }
    let first = pair.p.inbox().try_recv().expect("a message that is not held is there at once");
    assert_eq!((first.from.as_str(), first.generation), ("d", Some(G1)));
    assert_eq!(first.incarnation, Some(pair.d.incarnation()));
    assert_eq!(received(&pair.p), [[1], [2]]);
}

#[test]
fn a_held_message_is_accepted_and_keeps_its_place() {
    let pair = pair();
    let connection = pair.connected();
    let hold = pair.d.steps().hold(Step::Notify, "p");
    for byte in 0..3 {
        pair.d.notify(&connection, &[byte]).unwrap();
    }
    hold.wait_reached(1);
    assert!(pair.p.inbox().is_empty());
    hold.release();
    pair.d.notify(&connection, &[3]).unwrap();
    let all: Vec<_> = (0..4).map(|_| pair.p.inbox().recv(far()).unwrap().bytes[0]).collect();
    assert_eq!(all, [0, 1, 2, 3]);
}

#[test]
fn messages_of_many_threads_over_one_connection_all_arrive_each_threads_in_order() {
    let pair = pair();
    let connection = pair.connected();
    thread::scope(|scope| {
        for sender in 0..4_u8 {
            let (d, connection) = (&pair.d, &connection);
            scope.spawn(move || {
                for number in 0..200_u8 {
                    d.notify(connection, &[sender, number]).unwrap();
                }
            });
        }
        let mut expected = [0; 4];
        for _ in 0..800 {
            let note = pair.p.inbox().recv(far()).expect("all arrive");
            assert_eq!(note.bytes[1], expected[note.bytes[0] as usize]);
            expected[note.bytes[0] as usize] += 1;
        }
    });
    assert!(pair.p.inbox().is_empty());
}

#[test]
fn a_receiver_that_is_woken_may_send_over_the_same_connection() {
    struct Reply(Mutex<Option<Box<dyn FnOnce() + Send>>>);
    impl Wake for Reply {
        fn wake(self: Arc<Self>) {
            let reply = self.0.lock().unwrap().take();
            reply.into_iter().for_each(|reply| reply());
        }
    }
    let pair = pair();
    let connection = Arc::new(pair.connected());
    let reply = {
        let (d, connection) = (pair.d.clone(), connection.clone());
        let other = Pair { fabric: pair.fabric.clone(), d: pair.d.clone(), p: pair.p.clone() };
        move || {
            d.notify(&connection, b"second").unwrap();
            let later = connect(&d, "p", G2).unwrap();
            // When this is done, the fabric's thread has looked at the first connection, too early.
            assert_eq!(other.write(&later).0.wait(far()), Some(Outcome::Done));
        }
    };
    let waker = Waker::from(Arc::new(Reply(Mutex::new(Some(Box::new(reply))))));
    let inbox = pair.p.inbox().clone();
    let next = pin!(inbox.next());
    assert!(next.poll(&mut Context::from_waker(&waker)).is_pending());
    pair.d.notify(&connection, b"first").unwrap();
    assert_eq!(inbox.recv(far()).unwrap().bytes, b"first");
    assert_eq!(inbox.recv(far()).unwrap().bytes, b"second");
}

#[test]
fn a_full_receiver_answers_busy_and_nothing_was_sent() {
    let fabric = Fabric::new();
    let (d, p) = (fabric.node("d"), fabric.builder("p").capacity(2).build());
    let connection = connect(&d, "p", G1).unwrap();
    d.notify(&connection, &[0]).unwrap();
    d.notify(&connection, &[1]).unwrap();
    let busy = d.notify(&connection, &[9]).unwrap_err();
    assert!(matches!(busy.class(), ErrorClass::Busy { .. }), "{busy}");
    assert_eq!(p.inbox().try_recv().unwrap().bytes, [0]);
    d.notify(&connection, &[2]).unwrap();
    assert_eq!(received(&p), [[1], [2]]);
}

#[test]
fn held_messages_that_find_their_receiver_full_wait_for_room() {
    let fabric = Fabric::new();
    let (d, p, q) = (fabric.node("d"), fabric.builder("p").capacity(1).build(), fabric.node("q"));
    let (connection, later) = (connect(&d, "p", G1).unwrap(), connect(&d, "q", G2).unwrap());
    let (hold, hold_later) = (d.steps().hold(Step::Notify, "p"), d.steps().hold(Step::Notify, "q"));
    for byte in 0..3 {
        d.notify(&connection, &[byte]).unwrap();
    }
    d.notify(&later, b"the fabric has looked at the other connection before this one").unwrap();
    drop(hold);
    drop(hold_later);
    q.inbox().recv(far()).unwrap();
    let all: Vec<_> = (0..3).map(|_| p.inbox().recv(far()).unwrap().bytes[0]).collect();
    assert_eq!(all, [0, 1, 2]);
}

#[test]
fn an_over_long_message_is_a_local_error() {
    let fabric = Fabric::new();
    let (d, _p) = (fabric.builder("d").max_notification(4).build(), fabric.node("p"));
    let connection = connect(&d, "p", G1).unwrap();
    assert_eq!(d.notify(&connection, &[0; 5]).unwrap_err().class(), ErrorClass::Local);
    assert!(d.notify(&connection, &[0; 4]).is_ok());
}

#[test]
fn a_write_lands_in_the_page_lent_and_a_read_brings_it_back() {
    let pair = pair();
    let connection = pair.connected();
    let (write, grant) = pair.write(&connection);
    assert_eq!(write.wait(far()), Some(Outcome::Done));
    assert!(write.is_quiescent());
    assert_eq!(grant.page().to_vec(), [1; 8]);

    let long = Region::zeroed(10_000).slice(0..10_000).unwrap();
    let pattern: Vec<u8> = (0..10_000).map(|at| (at % 251) as u8).collect();
    long.write(0, &pattern).unwrap();
    let lent = pair.p.grants().lend(&name("d"), &long, Access::Read);
    let local = Region::zeroed(10_000).slice(0..10_000).unwrap();
    pair.d.register(local.region()).unwrap();
    let (post, read) = Post::standalone(TransferKind::Read, local.clone(), lent.remote());
    pair.d.post(&connection, post).unwrap();
    assert_eq!(read.wait(far()), Some(Outcome::Done));
    assert_eq!(local.to_vec(), pattern);
}

#[test]
fn what_was_not_lent_to_this_node_or_was_taken_back_is_refused() {
    let pair = pair();
    let connection = pair.connected();
    let local = page();
    pair.d.register(local.region()).unwrap();
    let post = |grant: &Grant| {
        let (post, transfer) = Post::standalone(TransferKind::Write, local.clone(), grant.remote());
        pair.d.post(&connection, post).unwrap();
        transfer.wait(far())
    };
    let refused = |refusal| Some(Outcome::Failed(TransferError::Refused(refusal)));
    let other = pair.p.grants().lend(&name("somebody"), &page(), Access::Write);
    assert_eq!(post(&other), refused(Refusal::NotYours));
    let gone = pair.p.grants().lend(&name("d"), &page(), Access::Write);
    drop(gone.revoke());
    assert_eq!(post(&gone), refused(Refusal::NoSuchGrant));
    assert_eq!(gone.page().to_vec(), [0; 8]);
}

#[test]
fn a_region_that_is_not_registered_is_refused_before_anything_moves() {
    let pair = pair();
    let connection = pair.connected();
    let grant = pair.p.grants().lend(&name("d"), &page(), Access::Write);
    let (post, _transfer) = Post::standalone(TransferKind::Write, page(), grant.remote());
    assert_eq!(pair.d.post(&connection, post).unwrap_err().class(), ErrorClass::Local);
    assert_eq!(pair.d.deregister(page().region()).unwrap_err().class(), ErrorClass::Local);
}

#[test]
fn a_transfer_is_completed_by_the_fabrics_thread_and_never_by_its_poster() {
    struct Tell(mpsc::Sender<Option<String>>);
    impl Wake for Tell {
        fn wake(self: Arc<Self>) {
            self.0.send(thread::current().name().map(str::to_owned)).unwrap();
        }
    }
    let pair = pair();
    let connection = pair.connected();
    let hold = pair.d.steps().hold(Step::Complete, "p");
    let (mut transfer, grant) = pair.write(&connection);
    let (tell, told) = mpsc::channel();
    let waker = Waker::from(Arc::new(Tell(tell)));
    assert!(Pin::new(&mut transfer).poll(&mut Context::from_waker(&waker)).is_pending());
    hold.wait_reached(1);
    assert_eq!(grant.page().to_vec(), [1; 8], "the bytes have moved, the completion is held");
    drop(hold);
    assert_eq!(told.recv_timeout(Duration::from_secs(30)).unwrap().as_deref(), Some("peerage-memory"));
}

#[test]
fn a_held_post_is_accepted_and_moves_after_its_release() {
    let pair = pair();
    let connection = pair.connected();
    let hold = pair.d.steps().hold(Step::Post, "p");
    let (transfer, grant) = pair.write(&connection);
    hold.wait_reached(1);
    pair.d.notify(&connection, b"not behind it").unwrap();
    assert_eq!(received(&pair.p), [b"not behind it".to_vec()]);
    assert_eq!((transfer.try_outcome(), grant.page().to_vec()), (None, vec![0; 8]));
    drop(hold);
    assert_eq!(transfer.wait(far()), Some(Outcome::Done));
}

#[test]
fn a_dead_connection_ends_a_held_post_as_not_sent_and_a_moved_one_as_unknown() {
    let pair = pair();
    let connection = pair.connected();
    let held = pair.d.steps().hold(Step::Complete, "p");
    let (moved, _page) = pair.write(&connection);
    held.wait_reached(1);
    let stopped = pair.d.steps().hold(Step::Post, "p");
    let (unsent, _page) = pair.write(&connection);
    stopped.wait_reached(1);
    pair.d.break_connection("p", MemoryError::peer_broken("cable pulled")).wait();
    assert_eq!((moved.try_outcome(), unsent.try_outcome()), (None, None), "their completions are still held");
    drop(held);
    assert_eq!(moved.wait(far()), Some(Outcome::Unknown));
    assert_eq!(unsent.wait(far()), Some(Outcome::Failed(TransferError::NotSent)));
    assert_eq!(pair.d.notify(&connection, b"x").unwrap_err().class(), ErrorClass::PeerBroken);
    drop(stopped);
}

#[test]
fn a_close_that_quiesces_ends_held_transfers_before_it_returns() {
    let pair = pair();
    let connection = pair.connected();
    let complete = pair.d.steps().hold(Step::Complete, "p");
    let (moved, _page) = pair.write(&connection);
    complete.wait_reached(1);
    let _post = pair.d.steps().hold(Step::Post, "p");
    let (unsent, page) = pair.write(&connection);
    assert!(matches!(close(&pair.d, G1, connection), Closed::Released));
    assert_eq!(moved.try_outcome(), Some(Outcome::Unknown));
    assert_eq!(unsent.try_outcome(), Some(Outcome::Failed(TransferError::NotSent)));
    assert!(moved.is_quiescent() && unsent.is_quiescent());
    assert_eq!(page.page().to_vec(), [0; 8]);
    assert_eq!(pair.d.misuses(), []);
}

#[test]
fn a_close_that_does_not_quiesce_leaves_transfers_running_and_says_that_it_was_wrong() {
    let pair = pair_with(Capabilities::OVERLAP.with(Capabilities::NATIVE_CLOSE));
    let connection = pair.connected();
    let hold = pair.d.steps().hold(Step::Post, "p");
    let (late, grant) = pair.write(&connection);
    hold.wait_reached(1);
    assert!(matches!(close(&pair.d, G1, connection), Closed::Released));
    pair.misused(MisuseKind::ClosedUnderTransfer);
    assert_eq!((late.try_outcome(), grant.is_quiesced()), (None, false));
    drop(hold);
    assert_eq!(late.wait(far()), Some(Outcome::Done), "a late write lands");
    assert_eq!(grant.page().to_vec(), [1; 8]);
    assert!(grant.revoke().wait(far()));

    let connection = connect(&pair.d, "p", G2).unwrap();
    let (in_time, grant) = pair.write(&connection);
    assert_eq!(in_time.wait(far()), Some(Outcome::Done));
    close(&pair.d, G2, connection);
    assert!(grant.is_quiesced());
    assert_eq!(pair.d.misuses().len(), 1, "after its transfers a connection may be closed");
}

#[test]
fn grants_bound_to_a_connection_are_quiesced_by_its_close_and_by_its_death() {
    let pair = pair();
    let connection = pair.connected();
    let (write, grant) = pair.write(&connection);
    write.wait(far());
    assert!(!grant.is_quiesced());
    close(&pair.d, G1, connection);
    assert!(grant.is_quiesced());

    let connection = connect(&pair.d, "p", G2).unwrap();
    let (write, grant) = pair.write(&connection);
    write.wait(far());
    pair.fabric.kill("d");
    assert!(grant.is_quiesced(), "when the writer is dead");
}

#[test]
fn a_grant_is_bound_to_the_connection_that_presented_it_first() {
    let pair = pair();
    let (old, new) = (pair.connected(), connect(&pair.d, "p", G2).unwrap());
    let (write, grant) = pair.write(&old);
    assert_eq!(write.wait(far()), Some(Outcome::Done));
    let local = page();
    pair.d.register(local.region()).unwrap();
    let (post, second) = Post::standalone(TransferKind::Write, local, grant.remote());
    pair.d.post(&new, post).unwrap();
    assert_eq!(second.wait(far()), Some(Outcome::Failed(TransferError::Refused(Refusal::BoundElsewhere))));
}

#[test]
fn a_held_connect_is_a_black_hole_for_its_peer_alone() {
    let pair = pair();
    pair.fabric.node("q");
    let hold = pair.d.steps().hold(Step::Connect, "p");
    thread::scope(|scope| {
        let stuck = scope.spawn(|| connect(&pair.d, "p", G1));
        hold.wait_reached(1);
        let healthy = connect(&pair.d, "q", G2).unwrap();
        pair.d.notify(&healthy, b"x").unwrap();
        assert_eq!((pair.d.counts("p").connecting, pair.d.counts("q").open), (1, 1));
        hold.release();
        assert!(stuck.join().unwrap().is_ok());
    });
}

#[test]
fn a_connect_that_minds_its_deadline_gives_up_there() {
    let clock = Clock::manual();
    let fabric = Fabric::with_clock(clock.clone());
    let (d, _p) = (fabric.node("d"), fabric.node("p"));
    let hold = d.steps().hold_until_cancelled(Step::Connect, "p");
    let cx = ConnectContext::standalone(name("p"), G1, clock.now() + Duration::from_secs(5));
    thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        let connecting = || d.connect(&cx, &MemoryAddress::new("p"));
        scope.spawn(move || tell.send(connecting()).unwrap());
        hold.wait_reached(1);
        clock.advance(Duration::from_secs(5));
        let answer = told.recv_timeout(Duration::from_secs(30));
        hold.release();
        assert!(matches!(answer, Ok(Err(MemoryError::NoAnswer { .. }))), "{answer:?}");
    });
    assert_eq!(d.counts("p").connects_failed, 1);
}

#[test]
fn a_delay_is_on_the_fabrics_clock() {
    let clock = Clock::manual();
    let fabric = Fabric::with_clock(clock.clone());
    let (d, p) = (fabric.node("d"), fabric.node("p"));
    let connection = connect(&d, "p", G1).unwrap();
    d.steps().delay(Step::Notify, "p", Duration::from_secs(3600));
    d.notify(&connection, b"late").unwrap();
    clock.advance(Duration::from_secs(3599));
    assert_eq!(p.inbox().recv(clock.now()), None);
    clock.advance(Duration::from_secs(1));
    let give_up = clock.now() + Duration::from_secs(3600);
    assert_eq!(p.inbox().recv(give_up).unwrap().bytes, b"late");
}

#[test]
fn every_call_fails_and_panics_when_a_test_asks_for_it_and_then_works_again() {
    let pair = pair();
    let asked = MemoryError::new(ErrorClass::OutcomeUnknown, "asked").with_native_code(-7);
    assert_eq!((asked.class(), asked.native_code()), (ErrorClass::OutcomeUnknown, Some(-7)));
    for step in [Step::Connect, Step::Notify, Step::Post, Step::Probe, Step::Close] {
        pair.d.steps().fail_next(step, "p", 1, asked.clone());
        pair.d.steps().panic_next(step, "p");
    }
    assert_eq!(connect(&pair.d, "p", G1).unwrap_err(), asked);
    assert!(catch_unwind(AssertUnwindSafe(|| connect(&pair.d, "p", G1))).is_err());
    let connection = connect(&pair.d, "p", G1).unwrap();

    assert_eq!(pair.d.notify(&connection, b"x").unwrap_err(), asked);
    assert!(catch_unwind(AssertUnwindSafe(|| pair.d.notify(&connection, b"x"))).is_err());
    pair.d.notify(&connection, b"y").unwrap();
    assert_eq!(received(&pair.p), [b"y"]);

    let grant = pair.p.grants().lend(&name("d"), &page(), Access::Write);
    let post = || Post::standalone(TransferKind::Write, page(), grant.remote());
    assert_eq!(pair.d.post(&connection, post().0).unwrap_err(), asked);
    assert!(catch_unwind(AssertUnwindSafe(|| pair.d.post(&connection, post().0))).is_err());
    assert_eq!(pair.write(&connection).0.wait(far()), Some(Outcome::Done));

    let cx = ProbeContext { name: name("p"), generation: G1, deadline: far() };
    assert_eq!(pair.d.probe(&cx, &connection), Liveness::Unknown);
    assert!(catch_unwind(AssertUnwindSafe(|| pair.d.probe(&cx, &connection))).is_err());
    assert_eq!(pair.d.probe(&cx, &connection), Liveness::Alive);

    assert!(matches!(close(&pair.d, G1, connection), Closed::Leaked("asked")));
    let connection = connect(&pair.d, "p", G2).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| close(&pair.d, G2, connection))).is_err());
    let counts = pair.d.counts("p");
    assert_eq!((counts.leaked, counts.dropped, counts.open), (1, 1, 0));
    assert_eq!(pair.d.misuses(), []);
    let log = pair.d.log();
    let ends = |step| log.iter().filter(|call| call.step == step).filter_map(|call| call.ending).collect::<Vec<_>>();
    let all = [Ending::Failed, Ending::Panicked, Ending::Done];
    assert_eq!((ends(Step::Notify), ends(Step::Post), ends(Step::Probe)), (all.into(), all.into(), all.into()));
    assert_eq!(ends(Step::Close), [Ending::Leaked, Ending::Panicked]);
}

#[test]
fn a_completion_can_fail_end_unknown_or_get_lost() {
    let pair = pair();
    let connection = pair.connected();
    let steps = pair.d.steps();
    steps.fail_next(Step::Complete, "p", 1, MemoryError::new(ErrorClass::Local, "descriptor gone"));
    steps.fail_next(Step::Complete, "p", 1, MemoryError::peer_broken("reset"));
    steps.panic_next(Step::Complete, "p");
    let run = || {
        let (transfer, _grant) = pair.write(&connection);
        (transfer.wait(far()).unwrap(), transfer)
    };
    let (failed, _) = run();
    assert_eq!(failed, Outcome::Failed(TransferError::Local("descriptor gone".into())));
    assert_eq!(run().0, Outcome::Unknown);
    let (lost, transfer) = run();
    assert_eq!((lost, transfer.is_quiescent()), (Outcome::Unknown, false), "the pages stay in quarantine");
    assert_eq!(run().0, Outcome::Done, "the fabric's thread goes on");
}

#[test]
fn a_close_answers_what_a_test_asks_for() {
    let pair = pair();
    pair.d.steps().close_next("p", 2, CloseAnswer::Retry);
    pair.d.steps().close_next("p", 1, CloseAnswer::AlreadyGone);
    pair.d.steps().close_next("p", 1, CloseAnswer::Leaked("busy descriptors"));
    let mut connection = pair.connected();
    let mut retries = 0;
    loop {
        match close(&pair.d, G1, connection) {
            Closed::Retry(again) => connection = again,
            Closed::AlreadyGone => break,
            other => panic!("{other:?}"),
        }
        retries += 1;
        assert_eq!(pair.d.counts("p").open, 1, "not yet closed");
    }
    assert_eq!(retries, 2);
    let connection = connect(&pair.d, "p", G2).unwrap();
    assert!(matches!(close(&pair.d, G2, connection), Closed::Leaked("busy descriptors")));
    let counts = pair.d.counts("p");
    assert_eq!((counts.closes, counts.leaked, counts.open, counts.duplicate_connects), (2, 1, 0, 0));
}

#[test]
fn without_native_close_every_close_leaks() {
    let pair = pair_with(Capabilities::NONE);
    let connection = pair.connected();
    assert!(matches!(close(&pair.d, G1, connection), Closed::Leaked(_)));
}

#[test]
fn a_probe_tells_alive_from_dead_and_minds_its_deadline() {
    let pair = pair();
    let connection = pair.connected();
    let cx = ProbeContext { name: name("p"), generation: G1, deadline: far() };
    assert_eq!(pair.d.probe(&cx, &connection), Liveness::Alive);
    let hold = pair.d.steps().hold_until_cancelled(Step::Probe, "p");
    assert_eq!(pair.d.probe(&ProbeContext { deadline: Instant::now(), ..cx.clone() }, &connection), Liveness::Dead);
    drop(hold);
    pair.fabric.kill("p");
    assert_eq!(pair.d.probe(&cx, &connection), Liveness::Dead);
}

#[test]
fn a_kill_reports_every_connection_to_the_node_and_from_it_and_no_other() {
    let pair = pair();
    let q = pair.fabric.node("q");
    let _to = pair.connected();
    let _from = connect(&pair.p, "q", G2).unwrap();
    let other = connect(&pair.d, "q", Generation(3)).unwrap();
    let mut reported = pair.fabric.kill("p").wait();
    reported.sort_by_key(|(generation, _)| *generation);
    assert_eq!(reported, [(G1, Reported::Stale), (G2, Reported::Stale)], "nobody listens, everybody is told");
    pair.d.notify(&other, b"still well").unwrap();
    assert_eq!(received(&q), [b"still well"]);
    assert_eq!(pair.fabric.kill("p").wait(), [], "it is dead already");
    let call = |memory: &Memory| memory.log().iter().filter(|call| call.step == Step::NativeError).count();
    assert_eq!((call(&pair.d), call(&pair.p)), (1, 1));
}

#[test]
fn a_native_error_may_come_before_its_connect_has_returned() {
    let pair = pair();
    let hold = pair.d.steps().hold(Step::Connect, "p");
    thread::scope(|scope| {
        let early = scope.spawn(|| connect(&pair.d, "p", G1));
        hold.wait_reached(1);
        let reports = pair.d.break_connection("p", MemoryError::peer_broken("too soon"));
        assert_eq!(reports.wait(), [(G1, Reported::Stale)]);
        hold.release();
        let connection = early.join().unwrap().expect("native connects do not know of the error");
        assert!(matches!(pair.d.notify(&connection, b"x"), Err(MemoryError::Broken { .. })));
    });
}

#[test]
fn native_errors_are_held_replaced_and_survive_their_own_panic() {
    let pair = pair();
    let connection = pair.connected();
    let hold = pair.d.steps().hold(Step::NativeError, "p");
    let held = pair.d.break_connection("p", MemoryError::peer_broken("held"));
    hold.wait_reached(1);
    assert!(pair.d.log().iter().all(|call| call.step != Step::NativeError));
    hold.release();
    assert_eq!(held.wait().len(), 1);
    pair.d.steps().panic_next(Step::NativeError, "p");
    assert_eq!(pair.d.report_late("p", G1, MemoryError::peer_broken("panics")).wait(), []);
    close(&pair.d, G1, connection);
    let late = pair.d.report_late("p", G1, MemoryError::peer_broken("long closed"));
    assert_eq!(late.wait(), [(G1, Reported::Stale)]);
}

#[test]
fn a_close_under_a_running_call_is_remembered() {
    let pair = pair();
    let connection = pair.connected();
    let call = connection.native_call();
    close(&pair.d, G1, connection);
    pair.misused(MisuseKind::ClosedInUse);
    drop(call);
    let connection = connect(&pair.d, "p", G2).unwrap();
    drop(connection.native_call());
    close(&pair.d, G2, connection);
    assert_eq!(pair.d.misuses().len(), 1, "a call that has ended minds no close");
}

#[test]
fn a_call_on_a_connection_that_is_being_closed_is_remembered() {
    let pair = pair();
    pair.d.steps().close_next("p", 1, CloseAnswer::Retry);
    let Closed::Retry(connection) = close(&pair.d, G1, pair.connected()) else { panic!("not asked for") };
    assert!(matches!(pair.d.notify(&connection, b"x"), Err(MemoryError::Broken { .. })));
    pair.misused(MisuseKind::UsedAfterClose);
    drop(connection.native_call());
    assert_eq!(pair.d.misuses().len(), 2);
}

#[test]
fn a_region_deregistered_under_a_transfer_is_remembered() {
    let pair = pair();
    let connection = pair.connected();
    let hold = pair.d.steps().hold(Step::Post, "p");
    let (transfer, _grant) = pair.write(&connection);
    pair.d.deregister(transfer.local().region()).unwrap();
    assert_eq!(pair.d.misuses().first().map(|misuse| misuse.kind), Some(MisuseKind::DeregisteredUnderTransfer));
    drop(hold);
    let (after, _grant) = pair.write(&connection);
    after.wait(far());
    pair.d.deregister(after.local().region()).unwrap();
    assert_eq!(pair.d.misuses().len(), 1, "after its transfer a region may go");
}

#[test]
fn the_log_orders_calls_across_the_fabric() {
    let pair = pair();
    let there = pair.connected();
    let back = connect(&pair.p, "d", G2).unwrap();
    close(&pair.d, G1, there);
    close(&pair.p, G2, back);
    let mut calls = pair.d.log();
    calls.extend(pair.p.log());
    calls.sort_by_key(|call| call.begun);
    let steps: Vec<_> = calls.iter().map(|call| (call.step, call.peer.as_str().to_owned())).collect();
    let expected = [(Step::Connect, "p"), (Step::Connect, "d"), (Step::Close, "p"), (Step::Close, "d")];
    assert_eq!(steps, expected.map(|(step, peer)| (step, peer.to_owned())));
    let ends: Vec<_> = calls.iter().flat_map(|call| [Some(call.begun), call.ended]).flatten().collect();
    assert_eq!(ends, (0..8).collect::<Vec<_>>());
}

#[test]
fn a_posted_transfer_ends_when_its_fabric_does() {
    let pair = pair();
    let connection = pair.connected();
    let hold = pair.d.steps().hold(Step::Post, "p");
    let (transfer, grant) = pair.write(&connection);
    let inbox = pair.p.inbox().clone();
    let Pair { fabric, d, p } = pair;
    drop((fabric, d, p));
    assert_eq!(transfer.try_outcome(), Some(Outcome::Failed(TransferError::NotSent)));
    let next = pin!(inbox.next());
    assert_eq!(next.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(None), "the inbox ends");
    assert_eq!(grant.page().to_vec(), [0; 8]);
    drop((connection, hold));
}

#[test]
fn a_counted_transport_is_the_one_inside_and_counts_what_is_done_to_it() {
    let Pair { fabric, d, p } = pair();
    let counting = Counting::new(d);
    assert_eq!(counting.local_name(), Some(&name("d")));
    assert_eq!(counting.peer("p"), None);
    let connection: Counted<MemoryConnection> = connect(&counting, "p", G1).unwrap();
    assert_eq!(connection.generation(), G1, "it derefs");
    counting.notify(&connection, b"x").unwrap();
    assert_eq!(received(&p), [b"x"]);
    counting.inner().steps().close_next("p", 1, CloseAnswer::Retry);
    let Closed::Retry(connection) = close(&counting, G1, connection) else { panic!("not asked for") };
    assert_eq!(counting.total().open, 1);
    drop(connect(&counting, "p", G2).unwrap());
    close(&counting, G1, connection);
    connect(&counting, "nobody", G2).unwrap_err();
    counting.inner().steps().panic_next(Step::Connect, "p");
    assert!(catch_unwind(AssertUnwindSafe(|| connect(&counting, "p", G2))).is_err());

    let expected = |counts: PeerCounts| {
        assert_eq!((counts.connects_ok, counts.duplicate_connects, counts.open, counts.open_max), (2, 1, 0, 2));
        assert_eq!((counts.closes, counts.leaked, counts.dropped, counts.notifies), (1, 0, 1, 1));
        assert_eq!((counts.connecting, counts.connecting_max), (0, 1));
    };
    expected(counting.peer("p").unwrap());
    expected(counting.total());
    assert_eq!(counting.peer("p").unwrap().connects_failed, 1);
    assert_eq!(counting.total().connects_failed, 2);
    assert_eq!(counting.connects_running(), 0);
    drop(fabric);
}

#[test]
fn a_running_connect_is_counted_while_it_runs() {
    let Pair { d, .. } = pair();
    let counting = Counting::new(d);
    let hold = counting.inner().steps().hold(Step::Connect, "p");
    thread::scope(|scope| {
        let first = scope.spawn(|| connect(&counting, "p", G1));
        hold.wait_reached(1);
        let second = scope.spawn(|| connect(&counting, "p", G2));
        hold.wait_reached(2);
        assert_eq!((counting.connects_running(), counting.total().duplicate_connects), (2, 1));
        hold.release();
        let _ = (first.join().unwrap(), second.join().unwrap());
    });
    assert_eq!((counting.connects_running(), counting.total().connecting_max), (0, 2));
}

#[test]
fn every_transfer_ends_and_every_connection_is_closed_once_when_nodes_die_under_load() {
    let pair = pair();
    let next = std::sync::atomic::AtomicU64::new(1);
    thread::scope(|scope| {
        let dialer = || {
            let (mut done, mut broken) = (0, 0);
            while done < 50 || broken < 2 {
                let generation = Generation(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
                let Ok(connection) = connect(&pair.d, "p", generation) else { continue };
                let mut last = None;
                while pair.d.notify(&connection, b"x").is_ok() && (done < 50 || broken < 2) {
                    let grant = pair.p.grants().lend(&name("d"), &page(), Access::Write);
                    let local = page();
                    pair.d.register(local.region()).unwrap();
                    let (post, transfer) = Post::standalone(TransferKind::Write, local, grant.remote());
                    if pair.d.post(&connection, post).is_err() {
                        break;
                    }
                    done += usize::from(done % 2 == 1 || transfer.wait(far()).expect("it ends") == Outcome::Done);
                    last = Some(transfer);
                    pair.p.inbox().try_recv();
                }
                broken += 1;
                assert!(matches!(close(&pair.d, generation, connection), Closed::Released));
                assert!(last.is_none_or(|last| last.is_quiescent() && last.try_outcome().is_some()));
            }
        };
        let dialers: Vec<_> = (0..3).map(|_| scope.spawn(dialer)).collect();
        while dialers.iter().any(|dialer| !dialer.is_finished()) {
            pair.fabric.restart("p").wait();
            pair.d.break_connection("p", MemoryError::peer_broken("cut")).wait();
            thread::yield_now();
        }
    });
    let counts = pair.d.counts("p");
    assert_eq!((counts.open, counts.connecting, counts.dropped, counts.leaked), (0, 0, 0, 0));
    assert_eq!(counts.closes, counts.connects_ok);
    assert_eq!(pair.d.misuses(), []);
    assert!(pair.p.grants().is_empty());
}
