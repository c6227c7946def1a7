//! What the models cannot see: the insides of arc-swap, under the names and the registrations, and of crossbeam-epoch, under
//! the records. Real threads do everything to a real table while its snapshots are replaced without a pause, over an
//! allocator that poisons what is freed (churn/quarantine.rs). Everything read is known beforehand: whose name, whose
//! address, whose error, whose connection.
//!
//! `PEERAGE_CHURN_SECONDS=600` makes each test that long. Under a sanitizer (`--cfg peerage_sanitizer`) the allocator is
//! the sanitizer's own, which finds what ours finds and says where.

#[cfg(not(peerage_sanitizer))]
#[path = "churn/quarantine.rs"]
mod quarantine;
#[path = "churn/wire.rs"]
mod wire;

use peerage::transport::memory::{Fabric, MemoryAddress};
use peerage::{
    Access, Backoff, DataPlane, Generation, Lease, Outcome, Peer, PeerId, PeerStatus, PeerTable, PostError, Record,
    Region, RegisterError,
};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use wire::{At, Wire};

#[cfg(not(peerage_sanitizer))]
#[global_allocator]
static ALLOCATOR: quarantine::Quarantine = quarantine::Quarantine;

/// How long each test lasts unless the environment says otherwise.
const SECONDS: u64 = 2;
/// Peers that are always there; they are reported and connected again.
const STEADY: u64 = 4;
/// Names that come and go.
const PASSING: u64 = 8;
/// Peers that nobody asks for. They make the names' map as deep as a real one.
const IDLE: u64 = 60;

fn seconds() -> Duration {
    let text = std::env::var("PEERAGE_CHURN_SECONDS").unwrap_or(SECONDS.to_string());
    Duration::from_secs(text.parse().unwrap_or_else(|_| panic!("PEERAGE_CHURN_SECONDS={text} is not a number")))
}

fn patience() -> Instant {
    Instant::now() + Duration::from_secs(120)
}

/// A small generator with a seed per thread.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }

    fn steady(&mut self) -> String {
        format!("steady-{}", self.below(STEADY))
    }

    fn passing(&mut self) -> String {
        format!("passing-{}", self.below(PASSING))
    }

    fn any(&mut self) -> String {
        if self.one_in(2) { self.steady() } else { self.passing() }
    }
}

/// Does `work` on a thread of the scope until the time is over and it has succeeded once; counts how often it did.
fn over_and_over<'s>(
    scope: &'s thread::Scope<'s, '_>,
    until: Instant,
    seed: u64,
    count: &'s AtomicU64,
    mut work: impl FnMut(&mut Random) -> bool + Send + 's,
) {
    scope.spawn(move || {
        let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ seed);
        let (mut done, give_up) = (0, patience());
        while Instant::now() < until || done == 0 {
            done += u64::from(work(&mut random));
            assert!(done > 0 || Instant::now() < give_up, "nothing was tested");
        }
        count.fetch_add(done, Ordering::Relaxed);
    });
}

/// Told of a peer, it says whose error it is.
#[derive(Debug)]
struct Broke(String, Generation);

impl fmt::Display for Broke {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} broke at {}", self.0, self.1)
    }
}

impl std::error::Error for Broke {}

fn check_record(record: &Record, name: &str) {
    assert_eq!(record.name.as_str(), name);
    assert_eq!(&*record.address, format!("at {name}"));
    let Some(error) = &record.last_error else { return };
    let (whose, when) = error.split_once(" broke at ").unwrap_or_else(|| panic!("of {name}: {error}"));
    assert!(whose == name && !when.is_empty(), "of {name}: {error}");
}

fn check_status(status: &PeerStatus) {
    let Some(record) = &status.record else { return };
    check_record(record, status.name.as_str());
    assert_eq!((record.phase, record.generation), (status.phase, status.generation));
}

fn check_peer(peer: &Peer<Wire>, name: &str) {
    assert_eq!(peer.name().as_str(), name);
    let status = peer.status();
    assert_eq!(status.name.as_str(), name);
    check_status(&status);
    if let Some(record) = peer.record() {
        check_record(&record, name);
    }
}

fn use_lease(lease: &Lease<Wire>, name: &str) {
    lease.connection().used_by(name, lease.generation());
    assert_eq!(lease.name().as_str(), name);
}

/// Inserts and removes: each replaces the names.
fn replace(table: &PeerTable<Wire>, random: &mut Random, wait: bool) -> bool {
    let name = random.passing();
    let peer = table.insert(name.as_str(), At(name.clone())).expect("a name may be used again at once");
    check_peer(&peer, &name);
    if wait && random.one_in(8) {
        let _ = peer.wait_ready(patience()); // or somebody removes it
    }
    drop(peer.remove(Instant::now()));
    true
}

fn by_name(table: &PeerTable<Wire>, random: &mut Random) -> bool {
    let name = random.any();
    if let Some(peer) = table.peer(&name) {
        check_peer(&peer, &name);
    }
    table.lease(&name).is_ok_and(|lease| {
        use_lease(&lease, &name);
        true
    })
}

/// Ids are kept until long after their peers are gone.
fn by_id(table: &PeerTable<Wire>, known: &mut VecDeque<(PeerId, String)>, random: &mut Random) -> bool {
    let name = random.any();
    if let Some(peer) = table.peer(&name) {
        known.push_back((peer.id(), name));
    }
    if known.len() > 256 {
        known.pop_front();
    }
    if known.is_empty() {
        return false;
    }
    let (id, name) = &known[random.below(known.len() as u64) as usize];
    if let Some(peer) = table.peer_by_id(*id) {
        check_peer(&peer, name);
    }
    table.lease_by_id(*id).is_ok_and(|lease| {
        use_lease(&lease, name);
        true
    })
}

/// Reports what it leases, which replaces records, and has it connected again.
fn report(table: &PeerTable<Wire>, kept: &mut Vec<Lease<Wire>>, random: &mut Random) -> bool {
    let name = random.steady();
    let peer = table.peer(&name).expect("it is never removed");
    let Ok(lease) = peer.lease() else {
        kept.clear(); // its old connection may wait for one of them
        let _ = peer.wait_ready(patience());
        return false;
    };
    use_lease(&lease, &name);
    let generation = lease.generation();
    if kept.len() < 4 {
        kept.push(lease); // used again below, by then of an old generation
    }
    let _ = peer.report(generation, &Broke(name.clone(), generation));
    kept.iter().for_each(|lease| use_lease(lease, lease.name().as_str()));
    check_peer(&peer, &name);
    true
}

fn list(table: &PeerTable<Wire>) -> bool {
    let listed = table.snapshot();
    listed.peers.iter().for_each(check_status);
    listed.peers.len() as u64 >= STEADY + IDLE
}

/// Reads when its thread's locals are taken apart, the collector's and arc-swap's among them.
struct AtTheEnd(PeerTable<Wire>, Peer<Wire>);

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        let AtTheEnd(table, peer) = self;
        let name = peer.name().as_str();
        check_peer(peer, name);
        let _ = table.lease(name).map(|lease| use_lease(&lease, name));
    }
}

thread_local! { static AT_THE_END: RefCell<Option<AtTheEnd>> = const { RefCell::new(None) } }

fn come_and_go(table: &PeerTable<Wire>, random: &mut Random) -> bool {
    let name = random.any();
    let Some(peer) = table.peer(&name) else { return false };
    let early = random.one_in(2); // a local that is set first is dropped last
    thread::scope(|scope| {
        scope.spawn(|| {
            let set = || AT_THE_END.set(Some(AtTheEnd(table.clone(), peer.clone())));
            if early {
                set();
            }
            check_peer(&peer, &name);
            let _ = table.lease(&name).map(|lease| use_lease(&lease, &name));
            if !early {
                set();
            }
        });
    });
    true
}

fn everybody_reads_what_is_replaced(overlap: bool) {
    let open = Arc::new(AtomicI64::new(0));
    let backoff = Backoff { base: Duration::ZERO, cap: Duration::ZERO, ..Backoff::default() };
    let table = PeerTable::builder(Wire { overlap, open: open.clone() })
        .backoff(backoff)
        .breaker(None)
        .seed(1)
        .connect_timeout(Duration::from_secs(120))
        .drain_deadline(Duration::from_secs(120))
        .build()
        .expect("sound settings");
    let steady = (0..STEADY).map(|at| format!("steady-{at}"));
    for name in steady.chain((0..IDLE).map(|at| format!("idle-{at}"))) {
        table.insert(name.as_str(), At(name.clone())).expect("a new name");
    }
    let counts: [AtomicU64; 6] = Default::default();
    let until = Instant::now() + seconds();
    thread::scope(|scope| {
        let (table, [replaced, named, ids, reports, lists, threads]) = (&table, &counts);
        over_and_over(scope, until, 1, replaced, |random| replace(table, random, false));
        over_and_over(scope, until, 2, replaced, |random| replace(table, random, true));
        over_and_over(scope, until, 3, named, |random| by_name(table, random));
        over_and_over(scope, until, 4, named, |random| by_name(table, random));
        let mut known = VecDeque::new();
        over_and_over(scope, until, 5, ids, move |random| by_id(table, &mut known, random));
        let mut kept = Vec::new();
        over_and_over(scope, until, 6, reports, move |random| report(table, &mut kept, random));
        over_and_over(scope, until, 7, lists, |_| list(table));
        over_and_over(scope, until, 8, threads, |random| come_and_go(table, random));
    });
    let [replaced, named, ids, reports, lists, threads] = counts.map(AtomicU64::into_inner);
    println!(
        "{replaced} inserts and removals, {named} leases by name, {ids} by id, {reports} reports, {lists} lists, \
         {threads} threads"
    );
    assert!(table.shutdown(patience()).wait().expect("not a thread of the table").is_clean());
    assert_eq!(open.load(Ordering::Relaxed), 0, "closed as often as opened");
    drop(table);
    look_through();
}

#[cfg(not(peerage_sanitizer))]
fn look_through() {
    assert!(quarantine::look_through() > 0, "nothing was freed");
}

/// The sanitizer looks by itself.
#[cfg(peerage_sanitizer)]
fn look_through() {}

#[test]
fn whoever_reads_gets_what_is_there_while_it_is_replaced() {
    everybody_reads_what_is_replaced(true);
}

#[test]
fn whoever_reads_gets_what_is_there_with_one_connection_per_name() {
    everybody_reads_what_is_replaced(false);
}

#[test]
fn whoever_posts_finds_the_regions_that_are_registered_while_others_come_and_go() {
    let fabric = Fabric::new();
    let remote = fabric.node("p");
    let table = PeerTable::builder(fabric.node("here")).build().expect("sound settings");
    let peer = table.insert("p", MemoryAddress::new("p")).expect("a new name");
    peer.wait_ready(patience()).expect("a connection");
    let (theirs, ours) = (Region::zeroed(64), Region::zeroed(64));
    remote.register(&theirs).expect("a new region");
    table.register(&ours).expect("a new region");
    let grant = remote.grants().lend(&"here".try_into().unwrap(), &theirs.slice(0..64).unwrap(), Access::Write);
    let counts: [AtomicU64; 3] = Default::default();
    let until = Instant::now() + seconds();
    thread::scope(|scope| {
        let (table, peer, ours, grant, [replaced, posted, refused]) = (&table, &peer, &ours, &grant, &counts);
        for seed in 1..3 {
            over_and_over(scope, until, seed, replaced, |_| {
                let passing = Region::zeroed(64);
                table.register(&passing).expect("a new region");
                match table.deregister(&passing) {
                    Ok(()) => true,
                    Err(RegisterError::InUse { .. }) => unreachable!("nobody else knows it"),
                    Err(other) => panic!("{other}"),
                }
            });
        }
        over_and_over(scope, until, 3, posted, |_| {
            let lease = peer.lease().expect("nothing breaks it");
            let transfer = lease.write(&ours.slice(0..64).unwrap(), grant.remote()).expect("it is registered");
            transfer.wait(patience()) == Some(Outcome::Done)
        });
        over_and_over(scope, until, 4, refused, |_| {
            let lease = peer.lease().expect("nothing breaks it");
            let nobodys = Region::zeroed(64).slice(0..64).unwrap();
            matches!(lease.write(&nobodys, grant.remote()), Err(PostError::NotRegistered { .. }))
        });
    });
    let [replaced, posted, refused] = counts.map(AtomicU64::into_inner);
    println!("{replaced} registrations, {posted} posts, {refused} refused");
    assert!(grant.revoke().wait(patience()));
    assert!(table.shutdown(patience()).wait().expect("not a thread of the table").is_clean());
    drop((table, peer, remote, fabric));
    look_through();
}

/// The allocator itself, tried on purpose: what is wrong ends its process, or is read as poison.
#[cfg(not(peerage_sanitizer))]
mod quarantine_notices {
    use super::quarantine;
    use std::process::{Command, exit};
    use std::sync::Arc;

    const CHILD: &str = "PEERAGE_CHURN_CHILD";

    /// Does `wrong` in a process of its own, which runs the calling test and no other; answers how it ended and what it said.
    fn end_of(test: &str, wrong: fn()) -> (Option<i32>, String) {
        if std::env::var_os(CHILD).is_some() {
            wrong();
            exit(0)
        }
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", &format!("quarantine_notices::{test}"), "--nocapture"]).env(CHILD, "1");
        let output = child.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// The address of a block that is free.
    fn freed() -> *mut u64 {
        let block = Box::into_raw(Box::new(7));
        // SAFETY: it came from a box just now.
        drop(unsafe { Box::from_raw(block) });
        block
    }

    #[test]
    fn a_write_to_what_was_freed() {
        let (status, said) = end_of("a_write_to_what_was_freed", || {
            // SAFETY: none. The quarantine keeps the block mapped, so this does what a wrong program does.
            unsafe { freed().write_volatile(7) };
            quarantine::look_through();
        });
        assert_eq!(status, None, "{said}");
        assert!(said.contains("somebody has written to a freed block"), "{said}");
    }

    #[test]
    fn what_is_freed_twice() {
        // SAFETY: none, as above.
        let (status, said) = end_of("what_is_freed_twice", || drop(unsafe { Box::from_raw(freed()) }));
        assert_eq!(status, None, "{said}");
        assert!(said.contains("what is freed is not allocated"), "{said}");
    }

    #[test]
    fn a_read_of_what_was_freed() {
        let (status, said) = end_of("a_read_of_what_was_freed", || {
            // SAFETY: none, as above.
            let read = unsafe { freed().read_volatile() };
            assert_eq!(read, u64::from_ne_bytes([quarantine::POISON; 8]));
        });
        assert_eq!(status, Some(0), "{said}");
    }

    #[test]
    fn a_clone_of_an_arc_that_was_freed() {
        let (status, said) = end_of("a_clone_of_an_arc_that_was_freed", || {
            let address = Arc::into_raw(Arc::new(7));
            // SAFETY: the first of the two frees it, as it should; the second does what a wrong program does.
            unsafe {
                drop(Arc::from_raw(address));
                Arc::increment_strong_count(address);
            }
        });
        assert_eq!(status, None, "{said}");
    }
}
