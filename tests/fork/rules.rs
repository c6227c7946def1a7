//! The rules, each with a parent that goes on.

use crate::fork::{Child, PATIENCE, eventually, far, fork, live};
use crate::parts::{Names, Parts, poll_once, publish, use_up};
use peerage::transport::memory::{Fabric, Memory, MemoryAddress, Step};
use peerage::transport::tcp::{Tcp, TcpAddress, TcpError};
use peerage::{
    Access, CloseContext, CloseReason, Closed, ConnectContext, DataPlane, Generation, Grant, Inbox, Lease, Liveness,
    Outcome, Peer, PeerTable, ProbeContext, Reason, Region, RemoteSlice, Removed, Transport,
};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

macro_rules! rules {
    ($($rule:ident),+ $(,)?) => { [$((stringify!($rule), $rule as fn())),+] };
}

/// The first one counts the threads there are.
pub(crate) const ALL: [(&str, fn()); 7] = rules![
    in_a_child_no_last_handle_closes_ends_or_drops_what_the_transport_has,
    case_k5_in_a_child_everything_over_memory_answers_at_once_and_the_parent_goes_on,
    case_k5_in_a_child_everything_over_tcp_answers_at_once_and_the_parents_sockets_go_on,
    a_tcp_without_a_table_is_the_parents_too,
    what_the_parent_says_goodbye_to_is_closed_while_a_child_lives,
    a_childs_own_table_works_and_is_not_its_own_childs,
    a_fabric_without_a_table_is_the_parents_too,
];

/// How often a table is forked whose threads are at work.
const FORKS: usize = 50;

const NAMES: Names = Names { ready: "ready", slow: "slow", leaving: "leaving", idle: "idle" };

/// Threads that take every lock there is, again and again, while the table is forked.
fn forked_at_work<T: DataPlane>(table: &PeerTable<T>, address: &T::Address, remote: &Inbox, mut round: impl FnMut()) {
    let done = AtomicBool::new(false);
    let (peer, slow) = (table.peer(NAMES.ready).unwrap(), table.peer(NAMES.slow).unwrap());
    let at_work: [Box<dyn Fn() + Send + '_>; 5] = [
        Box::new(|| drop(poll_once(&mut slow.ready()))),
        Box::new(|| drop(peer.lease().unwrap().notify(b"busy"))),
        Box::new(|| {
            let _ = table.insert("transient", address.clone()).map(|peer| peer.remove(far()).wait());
        }),
        Box::new(|| {
            let region = Region::zeroed(8);
            table.register(&region).unwrap();
            drop(table.grant(&peer, &region.slice(0..8).unwrap(), Access::Read));
            drop((peer.history(), table.events(), table.snapshot()));
            table.deregister(&region).unwrap();
        }),
        Box::new(|| drop((table.inbox().try_recv(), remote.try_recv()))),
    ];
    thread::scope(|scope| {
        for work in at_work {
            let done = &done;
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    work();
                }
            });
        }
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (0..FORKS).for_each(|_| round())));
        done.store(true, Ordering::Relaxed);
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// The parent's side of [`use_up`]: the connection is the same one, and works.
fn goes_on<T: DataPlane>(table: &PeerTable<T>, peer: &Peer<T>, generation: Generation, remote: &T) {
    assert_eq!(peer.wait_ready(far()).unwrap(), generation);
    eventually("there is room", || {
        let _ = remote.inbox().try_recv();
        peer.lease().unwrap().notify(b"goes on").is_ok()
    });
    while remote.inbox().recv(far()).expect("it comes").bytes != b"goes on" {}
    let back = peer.lease().unwrap();
    assert!(back.is_current() && table.snapshot().reports == 0);
}

fn never() -> RemoteSlice {
    RemoteSlice { grant: 1, region: 1, offset: 0, len: 8 }
}

/// What a remote process lends, and a transfer into it.
fn lend<T: DataPlane>(remote: &T, here: &str) -> (Region, Grant) {
    let page = Region::zeroed(8);
    remote.register(&page).unwrap();
    let grant = remote.grants().lend(&here.try_into().unwrap(), &page.slice(0..8).unwrap(), Access::Write);
    (page, grant)
}

/// fails if: k5 (a call takes a lock or waits before it looks which process this is; a drop does)
fn case_k5_in_a_child_everything_over_memory_answers_at_once_and_the_parent_goes_on() {
    let fabric = Fabric::new();
    let memory = fabric.node("here");
    let table = PeerTable::builder(memory.clone()).connect_timeout(100 * PATIENCE).build().unwrap();
    let mut remotes = Vec::new();
    for name in [NAMES.ready, NAMES.slow, NAMES.leaving, NAMES.idle] {
        remotes.push(fabric.node(name));
        table.insert(name, MemoryAddress::new(name)).unwrap();
    }
    let hold = memory.steps().hold(Step::Connect, NAMES.slow);
    let transfers = memory.steps().hold(Step::Post, NAMES.ready);
    let peer = table.peer(NAMES.ready).unwrap();
    let generation = peer.wait_ready(far()).unwrap();
    table.peer(NAMES.leaving).unwrap().wait_ready(far()).unwrap();
    let (_page, grant) = lend(&remotes[0], "here");
    let mut parts =
        Some(Parts::of(&table, &NAMES, |lease: &Lease<Memory>, local| lease.write(local, grant.remote()).unwrap()));
    let address = MemoryAddress::new("elsewhere");
    forked_at_work(&table, &address, remotes[0].inbox(), || match fork() {
        None => {
            let parts = parts.take().expect("a child lives once");
            live(|| use_up(parts, &address, never()))
        }
        Some(child) => child.join(),
    });
    goes_on(&table, &peer, generation, &remotes[0]);
    transfers.release();
    hold.release();
    let Parts { transfer, slow, lease, ticket, grant: lent, events, waiter, removal, .. } = parts.unwrap();
    assert_eq!(transfer.wait(far()), Some(Outcome::Done));
    slow.wait_ready(far()).unwrap();
    assert!(!lent.is_quiesced(), "the child's drop revoked nothing");
    drop((lease, ticket, lent, events, waiter, removal, slow));
    assert_eq!(peer.remove(far()).wait(), Ok(Removed::Removed));
    let counts = memory.counts(NAMES.ready);
    assert_eq!((counts.connects_begun, counts.closes, counts.dropped), (1, 1, 0));
    assert!(memory.misuses().is_empty());
}

fn tcp(name: &str) -> Tcp {
    Tcp::builder().name(name.try_into().unwrap()).bind("127.0.0.1:0").unwrap()
}

fn at(tcp: &Tcp) -> TcpAddress {
    tcp.local_addr().into()
}

/// fails if: k5 (dropping a table, a peer or a connection in the child touches a socket, the runtime or its poll, or waits)
fn case_k5_in_a_child_everything_over_tcp_answers_at_once_and_the_parents_sockets_go_on() {
    let (here, ready, leaving) = (tcp("here"), tcp(NAMES.ready), tcp(NAMES.leaving));
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let table = PeerTable::builder(here).connect_timeout(100 * PATIENCE).build().unwrap();
    let peer = table.insert(NAMES.ready, at(&ready)).unwrap();
    table.insert(NAMES.leaving, at(&leaving)).unwrap().wait_ready(far()).unwrap();
    for name in [NAMES.slow, NAMES.idle] {
        table.insert(name, TcpAddress::from(mute.local_addr().unwrap())).unwrap();
    }
    let generation = peer.wait_ready(far()).unwrap();
    let (_page, grant) = lend(&ready, "here");
    let post = |lease: &Lease<Tcp>, local: &peerage::Slice| lease.write(local, grant.remote()).unwrap();
    let mut parts = Some(Parts::of(&table, &NAMES, post));
    let address = at(&leaving);
    forked_at_work(&table, &address, ready.inbox(), || match fork() {
        None => {
            let parts = parts.take().expect("a child lives once");
            live(|| {
                calls_on_tcp(parts.table.transport(), &parts.lease, &address);
                use_up(parts, &address, never());
            })
        }
        Some(child) => child.join(),
    });
    goes_on(&table, &peer, generation, &ready);
    let counts = ready.inbound_counts();
    assert_eq!((ready.inbound().len(), counts.accepted, counts.goodbyes, counts.lost), (1, 1, 0, 0));
    let parts = parts.unwrap();
    assert_eq!(parts.transfer.wait(far()), Some(Outcome::Done));
    // It still listens.
    let back = PeerTable::builder(ready).build().unwrap();
    back.insert("here", at(table.transport())).unwrap().wait_ready(far()).unwrap();
    drop(parts);
    assert_eq!(peer.remove(far()).wait(), Ok(Removed::Removed));
    eventually("its dialer has said goodbye", || back.transport().inbound_counts().goodbyes == 1);
}

/// Calls of the transport itself, past the table.
fn calls_on_tcp(tcp: &Tcp, connection: &peerage::transport::tcp::TcpConnection, to: &TcpAddress) {
    let name = || "leaving".try_into().unwrap();
    let cx = ConnectContext::standalone(name(), Generation(u64::MAX), far());
    assert!(matches!(tcp.connect(&cx, to), Err(TcpError::UsedAfterFork(_))));
    assert!(matches!(tcp.notify(connection, b"x"), Err(TcpError::UsedAfterFork(_))));
    assert!(matches!(tcp.register(&Region::zeroed(8)), Err(TcpError::UsedAfterFork(_))));
    let cx = ProbeContext { name: name(), generation: Generation(1), deadline: far() };
    assert_eq!(tcp.probe(&cx, connection), Liveness::Unknown);
    connection.cut();
    tcp.end(far());
    assert!(tcp.inbound().is_empty() && tcp.cut_inbound_of(&name()) == 0 && tcp.inbox().is_closed());
}

/// fails if: dropping a `Tcp` or a connection in the child ends the runtime, says goodbye, or waits.
fn a_tcp_without_a_table_is_the_parents_too() {
    let (a, b) = (tcp("a"), tcp("b"));
    let other = tcp("other");
    let dial = |from: &Tcp| {
        let cx = ConnectContext::standalone("b".try_into().unwrap(), Generation(1), far());
        from.connect(&cx, &at(&b)).unwrap().connection
    };
    let (mut disconnected, mut drops) = (Some(dial(&a)), Some((dial(&other), other)));
    for _ in 0..FORKS {
        match fork() {
            None => {
                let connection = disconnected.take().unwrap();
                let drops = drops.take().unwrap();
                live(|| {
                    let cx = CloseContext { name: "b".try_into().unwrap(), generation: Generation(1), deadline: far() };
                    assert!(matches!(a.disconnect(&cx, connection, CloseReason::Shutdown), Closed::Leaked(_)));
                    drop(drops);
                    drop((a, b));
                })
            }
            Some(child) => child.join(),
        }
    }
    let ((dropped, other), disconnected) = (drops.unwrap(), disconnected.unwrap());
    for (from, connection) in [(&other, &dropped), (&a, &disconnected)] {
        from.notify(connection, b"goes on").unwrap();
        assert_eq!(b.inbox().recv(far()).unwrap().bytes, b"goes on");
    }
    let cx = ConnectContext::standalone("other".try_into().unwrap(), Generation(2), far());
    a.connect(&cx, &at(&other)).unwrap();
    assert_eq!(b.inbound_counts().lost + b.inbound_counts().goodbyes, 0);
}

/// A child that lives until it is let go.
fn lingering_child() -> (std::io::PipeWriter, Child) {
    let (mut held, release) = std::io::pipe().unwrap();
    match fork() {
        None => {
            drop(release);
            live(|| drop(std::io::Read::read(&mut held, &mut [0])))
        }
        Some(child) => (release, child),
    }
}

/// fails if: a goodbye rests on the close of the descriptor, of which the child has a copy.
fn what_the_parent_says_goodbye_to_is_closed_while_a_child_lives() {
    let p = tcp("p");
    let table = PeerTable::builder(tcp("here")).build().unwrap();
    let peer = table.insert("p", at(&p)).unwrap();
    peer.wait_ready(far()).unwrap();
    let (release, child) = lingering_child();
    assert_eq!(peer.remove(far()).wait(), Ok(Removed::Removed));
    eventually("the other side is closed too", || p.inbound().is_empty());
    assert_eq!((p.inbound_counts().goodbyes, p.inbound_counts().lost), (1, 0));
    drop(release);
    child.join();
}

/// fails if: a fork is taken for the end of every table there will be, or the second one is not noticed.
fn a_childs_own_table_works_and_is_not_its_own_childs() {
    let p = tcp("p");
    let table = PeerTable::builder(tcp("here")).build().unwrap();
    match fork() {
        None => live(|| {
            let own = PeerTable::builder(tcp("child")).build().unwrap();
            let peer = own.insert("p", at(&p)).unwrap();
            peer.wait_ready(far()).unwrap();
            peer.lease().unwrap().notify(b"from the child").unwrap();
            assert_eq!(table.lease("p").unwrap_err().reason, Reason::UsedAfterFork);
            match fork() {
                None => live(|| assert_eq!(peer.lease().unwrap_err().reason, Reason::UsedAfterFork)),
                Some(child) => child.join(),
            }
            peer.lease().unwrap().notify(b"again").unwrap();
            assert!(own.shutdown(far()).wait().unwrap().is_clean());
        }),
        Some(child) => {
            for said in [&b"from the child"[..], b"again"] {
                assert_eq!(p.inbox().recv(far()).unwrap().bytes, said);
            }
            child.join();
        }
    }
}

/// fails if: the child joins the fabric's thread, or publishes the parent's attempt.
fn a_fabric_without_a_table_is_the_parents_too() {
    let fabric = Fabric::new();
    let node = fabric.node("p");
    let table = PeerTable::builder(fabric.node("here")).build().unwrap();
    let peer = table.insert("p", MemoryAddress::new("p")).unwrap();
    let ticket = peer.try_elect().unwrap();
    let connected = table.transport().connect(ticket.context(), ticket.address()).unwrap();
    let own = Fabric::new();
    match fork() {
        None => live(|| {
            publish(ticket, connected.connection);
            drop((own, node, fabric));
        }),
        Some(child) => child.join(),
    }
    ticket.publish(connected).unwrap();
    peer.lease().unwrap().notify(b"goes on").unwrap();
    assert_eq!(node.inbox().recv(far()).unwrap().bytes, b"goes on");
}

/// A transport, and its connections, whose end is noted.
struct Noted;

static ENDED: AtomicBool = AtomicBool::new(false);

impl Drop for Noted {
    fn drop(&mut self) {
        ENDED.store(true, Ordering::Relaxed);
    }
}

#[derive(Clone, PartialEq, Eq)]
struct Anywhere;

impl std::fmt::Display for Anywhere {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("anywhere")
    }
}

impl peerage::Address for Anywhere {}

impl Transport for Noted {
    type Address = Anywhere;
    type Connection = Noted;
    type Error = TcpError;

    fn capabilities(&self) -> peerage::Capabilities {
        peerage::Capabilities::NATIVE_CLOSE
    }
    fn connect(&self, _: &ConnectContext, _: &Anywhere) -> Result<peerage::Connected<Noted>, TcpError> {
        Ok(peerage::Connected { connection: Noted, incarnation: None })
    }
    fn disconnect(&self, _: &CloseContext, connection: Noted, _: CloseReason) -> Closed<Noted> {
        drop(connection);
        Closed::Released
    }
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count)
}

/// fails if: the last table, lease or peer that is dropped in a child starts a thread, closes a connection, or drops the
/// transport.
fn in_a_child_no_last_handle_closes_ends_or_drops_what_the_transport_has() {
    let table = PeerTable::builder(Noted).build().unwrap();
    let peer = table.insert("p", Anywhere).unwrap();
    peer.wait_ready(far()).unwrap();
    let lease = peer.lease().unwrap();
    let ended = || ENDED.load(Ordering::Relaxed);
    match fork() {
        None => live(|| {
            drop((table, lease, peer));
            assert!(threads() == 1 && !ended());
        }),
        Some(child) => child.join(),
    }
    drop(lease);
    assert_eq!(peer.remove(far()).wait(), Ok(Removed::Removed));
    assert!(ended(), "the parent closed it");
    ENDED.store(false, Ordering::Relaxed);
    drop(table);
    eventually("nothing but the handle is left", || threads() == 1 || !cfg!(target_os = "linux"));
    match fork() {
        None => live(|| {
            drop(peer);
            assert!(!ended());
        }),
        Some(child) => child.join(),
    }
    drop(peer);
    assert!(ended() || !cfg!(target_os = "linux"), "the parent's last handle drops the transport");
}
