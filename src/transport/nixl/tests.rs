//! The native layer on the real library. Without it, these tests say that they are skipped.
//!
//! Each runs in a process of its own: NIXL is then never in a process with Debian's UCX for InfiniBand, which crashes at its end,
//! and threads, descriptors and what is loaded belong to one test. Nothing is timed.

use super::callers::{Callers, KEPT};
use super::capi::Status;
use super::library::{Library, NixlLibraryError};
use super::native::{Agent, Memory, MemoryKind, NotMade, Registration};
use super::remote::{NotLoaded, Remote};
use super::request::{Kind, Progress, Request};
use crate::region::Region;
use rustix::process::{Pid, Signal, kill_process};
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const ALONE: &str = "PEERAGE_TEST_NIXL_ALONE";
const SERVES: &str = "PEERAGE_TEST_NIXL_SERVES";
const MIB: usize = 1 << 20;
/// More than sockets hold.
const LARGE: usize = 32 << 20;

/// Runs `body` in a process that runs nothing else, if NIXL is here.
fn alone(test: &str, body: impl FnOnce(Arc<Library>)) {
    alone_over(None, test, body);
}

/// As `alone`, over one of UCX's ways to move bytes; those within a machine do it at once.
fn alone_over(tls: Option<&str>, test: &str, body: impl FnOnce(Arc<Library>)) {
    let test = format!("{}::{test}", module_path!().split_once("::").unwrap().1);
    if env::var(ALONE).as_deref() != Ok(&test) {
        let mut command = this_binary(&test);
        let ended = command.env(ALONE, &test).envs(tls.map(|tls| ("UCX_TLS", tls))).status().unwrap();
        assert!(ended.success(), "{test}: {ended}");
        return;
    }
    match Library::load(None) {
        Ok(library) => {
            println!("{test}: {}", library.path().display());
            body(library);
        }
        Err(error @ NixlLibraryError::NotFound { .. }) => println!("SKIPPED: {test}: {error}"),
        Err(error) => panic!("{error}"),
    }
}

fn this_binary(test: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads", "1"]);
    if env::var_os("UCX_MODULES").is_none() {
        command.env("UCX_MODULES", "^ib");
    }
    command
}

fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is() {
        assert!(Instant::now() < end, "never: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

fn agent(library: &Arc<Library>, name: &str) -> Arc<Agent> {
    Agent::new(library, name, true, "UCX", &[]).unwrap()
}

/// Both know each other, and each has a registered region.
struct Pair {
    to_b: Remote,
    to_a: Remote,
    memory_a: Arc<Registration>,
    memory_b: Arc<Registration>,
    region_a: Region,
    region_b: Region,
    a: Arc<Agent>,
    b: Arc<Agent>,
}

fn pair(library: &Arc<Library>) -> Pair {
    let (a, b) = (agent(library, "a"), agent(library, "b"));
    let (region_a, region_b) = (Region::zeroed(MIB), Region::zeroed(MIB));
    let (memory_a, memory_b) = (a.register_region(&region_a).unwrap(), b.register_region(&region_b).unwrap());
    let to_b = a.load("b", &b.local_metadata().unwrap()).unwrap();
    let to_a = b.load("a", &a.local_metadata().unwrap()).unwrap();
    Pair { to_b, to_a, memory_a, memory_b, region_a, region_b, a, b }
}

/// The next notification of `agent`.
fn next(agent: &Agent) -> (String, Vec<u8>) {
    let mut taken = Vec::new();
    eventually("a notification", || {
        taken = agent.take_notifications().unwrap();
        !taken.is_empty()
    });
    assert_eq!(taken.len(), 1);
    taken.remove(0)
}

fn finish(mut request: Request, to: &Remote) {
    request.post(to).unwrap();
    eventually("a transfer", || request.poll().unwrap() == Progress::Done);
    request.release().unwrap();
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251 + seed) as u8).collect()
}

fn bytes(region: &Region) -> Vec<u8> {
    region.slice(0..region.len()).unwrap().to_vec()
}

fn fill(region: &Region, bytes: &[u8]) {
    region.slice(0..bytes.len()).unwrap().write(0, bytes).unwrap();
}

#[test]
fn two_agents_notify_write_and_read() {
    alone("two_agents_notify_write_and_read", |library| {
        let pair = pair(&library);
        pair.to_b.notify(b"to b").unwrap();
        assert_eq!(next(&pair.b), ("a".into(), b"to b".to_vec()));
        pair.to_a.notify(b"").unwrap();
        assert_eq!(next(&pair.a), ("b".into(), Vec::new()));
        assert!(pair.a.take_notifications().unwrap().is_empty());

        let there = pair.memory_b.memory();
        for (seed, len) in [(0, 64 << 10), (1, MIB)] {
            let sent = pattern(len, seed);
            fill(&pair.region_a, &sent);
            let (from, to) = (pair.memory_a.slice(0..len).unwrap(), there.part(0..len).unwrap());
            finish(pair.to_b.transfer(Kind::WRITE, &[from], &[to], Some(b"written")).unwrap(), &pair.to_b);
            assert_eq!(next(&pair.b), ("a".into(), b"written".to_vec()));
            assert!(bytes(&pair.region_b)[..len] == sent[..]);
        }

        // A read, piece by piece, of what the peer has changed.
        let (sent, at) = (pattern(MIB, 7), [0..1000, 64 << 10..MIB]);
        fill(&pair.region_b, &sent);
        let here = at.clone().map(|range| pair.memory_a.slice(range).unwrap());
        let remote = at.map(|range| there.part(range).unwrap());
        finish(pair.to_b.transfer(Kind::READ, &here, &remote, None).unwrap(), &pair.to_b);
        let got = bytes(&pair.region_a);
        assert!(got[..1000] == sent[..1000] && got[64 << 10..] == sent[64 << 10..]);
        assert!(got[1000..64 << 10] == pattern(MIB, 1)[1000..64 << 10]);
        assert_eq!((pair.a.leaked(), pair.b.leaked()), (0, 0));
    });
}

#[test]
fn a_transfer_may_be_posted_again_once_it_is_done() {
    alone("a_transfer_may_be_posted_again_once_it_is_done", |library| {
        let pair = pair(&library);
        let (here, there) = (pair.memory_a.slice(0..4096).unwrap(), pair.memory_b.memory().part(0..4096).unwrap());
        let mut request = pair.to_b.transfer(Kind::WRITE, &[here], &[there], Some(b"again")).unwrap();
        for seed in 0..3 {
            let sent = pattern(4096, seed);
            fill(&pair.region_a, &sent);
            request.post(&pair.to_b).unwrap();
            eventually("a transfer", || request.poll().unwrap() == Progress::Done);
            assert_eq!(next(&pair.b), ("a".into(), b"again".to_vec()));
            assert!(bytes(&pair.region_b)[..4096] == sent[..]);
        }
        request.release().unwrap();
    });
}

#[test]
fn a_name_is_loaded_once_and_removal_may_come_second() {
    alone("a_name_is_loaded_once_and_removal_may_come_second", |library| {
        let Pair { a, b, to_b, .. } = pair(&library);
        let metadata = b.local_metadata().unwrap();
        assert!(matches!(a.load("b", &metadata), Err(NotLoaded::Taken)));
        // Another process of that name: NIXL itself refuses it.
        let other = agent(&library, "b").local_metadata().unwrap();
        assert_eq!(a.load_metadata(&other), Err(Status::BACKEND));
        to_b.notify(b"still").unwrap();
        assert_eq!(next(&b).1, b"still");

        assert_eq!(a.invalidate(c"b"), Status::SUCCESS);
        assert_eq!(a.invalidate(c"b"), Status::NOT_FOUND);
        assert_eq!(to_b.notify(b"gone"), Err(Status::NOT_FOUND));
        assert!(matches!(a.load("b", &metadata), Err(NotLoaded::Taken)));
        to_b.remove().unwrap();
        assert_eq!(a.notify(c"b", b"gone"), Err(Status::NOT_FOUND));
        let to_b = a.load("b", &metadata).unwrap();
        to_b.notify(b"back").unwrap();
        assert_eq!(next(&b).1, b"back");
        drop(to_b);
        assert_eq!(a.notify(c"b", b"gone"), Err(Status::NOT_FOUND));
    });
}

#[test]
fn who_has_called_is_kept_while_it_has_a_connection_and_for_some_time() {
    alone("who_has_called_is_kept_while_it_has_a_connection_and_for_some_time", |library| {
        let (server, caller) = (agent(&library, "server"), agent(&library, "caller"));
        let (mut callers, name, now) = (Callers::new(server), Arc::from("caller"), Instant::now());
        callers.load(&name, &caller.local_metadata().unwrap()).unwrap();
        callers.look_at_the_clock(now, |_| false);
        callers.look_at_the_clock(now + KEPT / 2, |agent| *agent == name);
        callers.look_at_the_clock(now + KEPT, |_| false);
        callers.look_at_the_clock(now + 2 * KEPT - Duration::from_nanos(1), |_| false);
        assert!(callers.say("caller", b"still").is_ok());
        callers.look_at_the_clock(now + 2 * KEPT, |_| false);
        assert_eq!(callers.say("caller", b"gone"), Err(Status::NOT_FOUND));
    });
}

#[test]
fn metadata_of_another_or_of_nobody_leaves_nothing() {
    alone("metadata_of_another_or_of_nobody_leaves_nothing", |library| {
        let (a, b) = (agent(&library, "a"), agent(&library, "b"));
        let metadata = b.local_metadata().unwrap();
        assert!(matches!(a.load("c", &metadata), Err(NotLoaded::OtherName(actual)) if actual == "b"));
        assert_eq!(a.notify(c"b", b""), Err(Status::NOT_FOUND));
        let to_b = a.load("b", &metadata).unwrap();
        // Also where the other is somebody's: then it stays.
        assert!(matches!(a.load("c", &metadata), Err(NotLoaded::OtherName(_))));
        to_b.notify(b"still").unwrap();
        assert_eq!(next(&b).1, b"still");
        // Nor does a peer have another's as its newer own.
        let c = agent(&library, "c");
        assert_eq!(to_b.refresh(&c.local_metadata().unwrap()), Err(Status::INVALID_PARAM));
        assert_eq!(a.notify(c"c", b""), Err(Status::NOT_FOUND));
        for none in [&b""[..], b"garbage", &metadata[..metadata.len() / 2]] {
            assert!(matches!(a.load("c", none), Err(NotLoaded::Native(_))));
        }
        assert!(matches!(a.load("a", &a.local_metadata().unwrap()), Err(NotLoaded::Native(Status::INVALID_PARAM))));
        assert!(matches!(a.load("b\0", &metadata), Err(NotLoaded::Native(Status::INVALID_PARAM))));
    });
}

#[test]
fn a_transfer_is_of_one_load_of_one_peer() {
    alone("a_transfer_is_of_one_load_of_one_peer", |library| {
        let pair = pair(&library);
        let (here, there) = (pair.memory_a.slice(0..4096).unwrap(), pair.memory_b.memory().part(0..4096).unwrap());
        let short = pair.memory_a.slice(0..4095).unwrap();
        assert_eq!(pair.to_b.transfer(Kind::WRITE, &[short], &[there], None).unwrap_err(), Status::INVALID_PARAM);
        assert_eq!(pair.to_b.transfer(Kind::WRITE, &[], &[], None).unwrap_err(), Status::INVALID_PARAM);
        assert_eq!(
            pair.to_a.transfer(Kind::WRITE, std::slice::from_ref(&here), &[there], None).unwrap_err(),
            Status::INVALID_PARAM
        );
        let transfer = |to: &Remote, there| to.transfer(Kind::WRITE, std::slice::from_ref(&here), &[there], None);
        for nowhere in
            [Memory { kind: MemoryKind(99), ..there }, Memory { device: 7, ..there }, Memory { address: 4096, ..there }]
        {
            assert_eq!(transfer(&pair.to_b, nowhere).unwrap_err(), Status::BACKEND);
        }

        let mut stale = transfer(&pair.to_b, there).unwrap();
        pair.to_b.remove().unwrap();
        let to_b = pair.a.load("b", &pair.b.local_metadata().unwrap()).unwrap();
        assert_eq!(stale.post(&to_b), Err(Status::INVALID_PARAM));
        // Whatever ends in whatever order.
        drop(to_b);
        stale.release().unwrap();
        drop((pair.a, pair.memory_a));
    });
}

#[test]
fn what_can_not_be_made_says_why() {
    alone("what_can_not_be_made_says_why", |library| {
        let with = |name, plugin, settings: &[(String, String)]| Agent::new(&library, name, true, plugin, settings);
        assert!(matches!(with("", "UCX", &[]), Err(NotMade::Agent(Status::BACKEND))));
        assert!(matches!(with("a\0b", "UCX", &[]), Err(NotMade::Agent(Status::INVALID_PARAM))));
        assert!(matches!(with("a", "NONE", &[]), Err(NotMade::Plugin(Status::BACKEND))));
        let setting = |value: &str| [("ucx_error_handling_mode".to_owned(), value.to_owned())];
        assert!(with("a", "UCX", &setting("peer")).is_ok());
        assert!(matches!(with("a", "UCX", &setting("\0")), Err(NotMade::Setting { status: Some(_), .. })));
        assert!(matches!(with("a", "UCX", &setting("nonsense")), Err(NotMade::Backend(Status::BACKEND))));

        let a = agent(&library, "a");
        assert!(a.register_region(&Region::zeroed(0)).is_ok());
        let again = Library::load(Some(library.path())).unwrap();
        assert!(Arc::ptr_eq(&again, &library));
        let other = Library::load(Some("/nowhere/libnixl_capi.so".as_ref())).unwrap_err();
        assert!(matches!(other, NixlLibraryError::Another { .. }));
    });
}

/// What a connect of one peer does to others inside NIXL costs time, never more.
#[test]
fn peers_come_and_go_while_others_are_sent_to() {
    alone("peers_come_and_go_while_others_are_sent_to", |library| {
        let pair = pair(&library);
        let (other, done) = (agent(&library, "c"), AtomicBool::new(false));
        let metadata = other.local_metadata().unwrap();
        thread::scope(|scope| {
            let senders: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        let mut sent = 0;
                        while !done.load(Ordering::Relaxed) {
                            let (here, there) = (pair.memory_a.slice(0..4096), pair.memory_b.memory().part(0..4096));
                            let request =
                                pair.to_b.transfer(Kind::WRITE, &[here.unwrap()], &[there.unwrap()], Some(b"x"));
                            finish(request.unwrap(), &pair.to_b);
                            sent += 1;
                        }
                        sent
                    })
                })
                .collect();
            let taker = scope.spawn(|| {
                let mut taken = 0;
                let mut take = || taken += pair.b.take_notifications().unwrap().len();
                while !done.load(Ordering::Relaxed) {
                    take();
                    thread::sleep(Duration::from_millis(1));
                }
                taken
            });
            for _ in 0..20 {
                let to_c = pair.a.load("c", &metadata).unwrap();
                to_c.notify(b"hello").unwrap();
                assert_eq!(next(&other).0, "a");
                to_c.remove().unwrap();
            }
            done.store(true, Ordering::Relaxed);
            let sent: usize = senders.into_iter().map(|sender| sender.join().unwrap()).sum();
            let mut taken = taker.join().unwrap();
            eventually("all that was sent", || {
                taken += pair.b.take_notifications().unwrap().len();
                taken == sent
            });
        });
    });
}

/// Another process with an agent called "served", which answers `ping` with `pong`.
struct Served {
    child: Child,
    metadata: Vec<u8>,
    memory: Memory,
    lines: BufReader<ChildStdout>,
}

impl Served {
    fn start() -> Served {
        let test = format!("{}::serves", module_path!().split_once("::").unwrap().1);
        let mut command = this_binary(&test);
        command.env_remove(ALONE).env(SERVES, "1").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let line = line_of(&mut lines, "served ");
        let (address, metadata) = line.split_once(' ').unwrap();
        let memory = Memory { kind: MemoryKind::DRAM, address: address.parse().unwrap(), len: LARGE, device: 0 };
        Served { child, metadata: from_hex(metadata), memory, lines }
    }

    /// Has it load `agent` and answer a ping over `to`.
    fn answers(&mut self, agent: &Agent, to: &Remote) {
        let hello = to_hex(&agent.local_metadata().unwrap());
        writeln!(self.child.stdin.as_mut().unwrap(), "{hello}").unwrap();
        line_of(&mut self.lines, "loaded");
        to.notify(b"ping").unwrap();
        assert_eq!(next(agent), ("served".into(), b"pong".to_vec()));
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.kill();
    }
}

fn line_of(lines: &mut impl BufRead, start: &str) -> String {
    let mut line = String::new();
    loop {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "the other process ended before it said {start:?}");
        // The harness says on the same line what it runs.
        if let Some((_, rest)) = line.split_once(start) {
            return rest.trim_end().to_owned();
        }
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// The other process; as a test by itself it does nothing.
#[test]
fn serves() {
    if env::var_os(SERVES).is_none() {
        return;
    }
    let library = Library::load(None).unwrap();
    let (served, region) = (agent(&library, "served"), Region::zeroed(LARGE));
    let memory = served.register_region(&region).unwrap();
    println!("served {} {}", memory.memory().address, to_hex(&served.local_metadata().unwrap()));
    // It ends with its input, which is its starter's: nobody is left behind.
    let (lines, received) = std::sync::mpsc::channel();
    thread::spawn(move || std::io::stdin().lines().map_while(Result::ok).for_each(|line| lines.send(line).unwrap()));
    let mut to = None;
    loop {
        match received.try_recv() {
            Ok(line) => {
                drop(to.take());
                to = Some(served.load("a", &from_hex(&line)).unwrap());
                println!("loaded");
            }
            Err(std::sync::mpsc::TryRecvError::Empty) => {}
            Err(std::sync::mpsc::TryRecvError::Disconnected) => return,
        }
        for (from, message) in served.take_notifications().unwrap() {
            assert_eq!(from, "a");
            if message == b"ping" {
                to.as_ref().unwrap().notify(b"pong").unwrap();
            }
        }
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_killed_peer_is_an_error_and_its_name_is_free_again() {
    alone("a_killed_peer_is_an_error_and_its_name_is_free_again", |library| {
        let (a, region) = (agent(&library, "a"), Region::zeroed(MIB));
        let memory = a.register_region(&region).unwrap();
        let mut served = Served::start();
        for round in 0..3 {
            let to = a.load("served", &served.metadata).unwrap();
            served.answers(&a, &to);
            let here = || [memory.slice(0..MIB).unwrap()];
            finish(to.transfer(Kind::WRITE, &here(), &[served.memory.part(0..MIB).unwrap()], None).unwrap(), &to);

            served.kill();
            let mut said = None;
            eventually("an error of the dead peer", || {
                said = to.notify(b"anybody?").err();
                said.is_some()
            });
            println!("round {round}: notify to the dead: {:?}", said.unwrap());
            assert!(to.notify(b"anybody?").is_err());
            match to.transfer(Kind::WRITE, &here(), &[served.memory.part(0..MIB).unwrap()], None) {
                Ok(mut request) => {
                    let posted = request.post(&to);
                    println!("round {round}: write to the dead: {posted:?}");
                    assert!(posted.is_err());
                    assert!(request.release().unwrap_err().abandon().is_ok());
                }
                Err(status) => println!("round {round}: no write to the dead: {status:?}"),
            }
            // What is dead is also in the way of its successor, until it is removed.
            let successor = Served::start();
            println!("round {round}: load over the dead: {:?}", a.load_metadata(&successor.metadata));
            to.remove().unwrap();
            let dead = a.load("served", &served.metadata);
            println!("round {round}: load of the dead: {dead:?}");
            drop(dead);
            served = successor;
        }
        assert_eq!(a.leaked(), 0);
    });
}

/// A transfer of all of `region` to a peer that is stopped before it is posted.
fn to_the_stopped(to: &Remote, memory: &Arc<Registration>, served: &Served) -> Request {
    served.signal(Signal::STOP);
    let here = memory.slice(0..LARGE).unwrap();
    let mut request = to.transfer(Kind::WRITE, &[here], &[served.memory], None).unwrap();
    assert_eq!(request.post(to), Ok(Progress::Running));
    assert_eq!(request.poll(), Ok(Progress::Running));
    request
}

#[test]
fn a_stopped_peer_keeps_its_transfer_and_what_it_may_touch() {
    alone_over(Some("tcp"), "a_stopped_peer_keeps_its_transfer_and_what_it_may_touch", |library| {
        let (a, region) = (agent(&library, "a"), Region::zeroed(LARGE));
        let memory = a.register_region(&region).unwrap();
        let mut served = Served::start();
        let to = a.load("served", &served.metadata).unwrap();
        served.answers(&a, &to);
        // It can't be released, nor posted twice; it ends when the peer goes on.
        let mut request = to_the_stopped(&to, &memory, &served).release().unwrap_err();
        assert_eq!(request.post(&to), Err(Status::INVALID_STATE));
        served.signal(Signal::CONT);
        eventually("the transfer", || request.poll().unwrap() == Progress::Done);
        request.release().unwrap();
        assert_eq!(Arc::strong_count(&memory), 1);
        // Dropped, it is leaked and counted, with its memory.
        drop(to_the_stopped(&to, &memory, &served));
        assert_eq!((a.leaked(), Arc::strong_count(&memory)), (1, 2));
    });
}

/// What `request` says of NIXL, for a page that is used again after NIXL let go of its transfer. It may have sent all of it by
/// then, on a busy machine, so it is tried some times.
fn is_still_sent(library: Arc<Library>, remove: bool) {
    assert!((0..5).any(|_| is_sent(&library, remove)), "it never was: is the page free now?");
}

fn is_sent(library: &Arc<Library>, remove: bool) -> bool {
    let (a, region) = (agent(library, "a"), Region::zeroed(LARGE));
    let memory = a.register_region(&region).unwrap();
    let mut served = Served::start();
    let mut to = Some(a.load("served", &served.metadata).unwrap());
    served.answers(&a, to.as_ref().unwrap());
    fill(&region, &vec![1; LARGE]);
    let mut request = to_the_stopped(to.as_ref().unwrap(), &memory, &served);
    if remove {
        to.take().unwrap().remove().unwrap();
        assert_eq!(request.poll(), Err(Status::NOT_FOUND));
    }
    let held = request.abandon().unwrap();
    assert_eq!(Arc::strong_count(&memory), 2);
    fill(&region, &vec![2; LARGE]);
    served.signal(Signal::CONT);
    let to = to.unwrap_or_else(|| a.load("served", &served.metadata).unwrap());
    served.answers(&a, &to);
    let copy = Region::zeroed(LARGE);
    let here = a.register_region(&copy).unwrap();
    let end = Instant::now() + Duration::from_secs(5);
    let is_sent = loop {
        let here = here.slice(0..LARGE).unwrap();
        finish(to.transfer(Kind::READ, &[here], &[served.memory], None).unwrap(), &to);
        if bytes(&copy).contains(&2) || Instant::now() >= end {
            break bytes(&copy).contains(&2);
        }
    };
    assert_eq!(a.leaked(), 0);
    // Nobody will ever say that it has ended.
    std::mem::forget(held);
    is_sent
}

#[test]
fn nixl_sends_from_a_page_after_it_let_go_of_its_transfer() {
    alone_over(Some("tcp"), "nixl_sends_from_a_page_after_it_let_go_of_its_transfer", |library| {
        is_still_sent(library, false);
    });
}

#[test]
fn nixl_sends_from_a_page_after_it_has_removed_the_peer_too() {
    alone_over(Some("tcp"), "nixl_sends_from_a_page_after_it_has_removed_the_peer_too", |library| {
        is_still_sent(library, true);
    });
}

#[test]
fn statuses_have_names_and_keep_their_numbers() {
    assert_eq!(Status::NOT_FOUND.to_string(), "not found (-6)");
    assert_eq!(format!("{:?}", Status(-99)), "Status(-99: a status without a name here)");
    assert_eq!(Status::check(0), Ok(()));
    assert_eq!(Status::check(1), Err(Status::IN_PROGRESS));
}
