//! Processes that serve, names, and waits that are generous and never timed.

use peerage::transport::nixl::{Nixl, NixlAddress, NixlBuildError, NixlConnection, NixlError, NixlLibraryError};
use peerage::{
    Access, Backoff, CloseContext, CloseReason, Closed, ConnectContext, DataPlane, Generation, Liveness, Peer,
    PeerName, PeerTable, ProbeContext, ReadyError, Region, RemoteSlice, Transport,
};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Long enough for anything that happens at all on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// Bytes of the pages that a served process lends.
pub(crate) const PAGE: usize = 1 << 20;
const SERVES: &str = "PEERAGE_TEST_SERVES";
const ALONE: &str = "PEERAGE_TEST_ALONE";

pub(crate) fn soon() -> Instant {
    Instant::now() + LONG
}

pub(crate) fn name(name: &str) -> PeerName {
    PeerName::new(name).unwrap()
}

pub(crate) fn generation() -> Generation {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    Generation(NEXT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn nixl(called: &str) -> Nixl {
    Nixl::named(name(called)).unwrap()
}

pub(crate) fn try_dial(from: &Nixl, to: &NixlAddress) -> Result<NixlConnection, NixlError> {
    let cx = ConnectContext::standalone(to.name().clone(), generation(), soon());
    from.connect(&cx, to).map(|connected| connected.connection)
}

pub(crate) fn dial(from: &Nixl, to: &Nixl) -> NixlConnection {
    try_dial(from, &to.local_address().unwrap()).unwrap()
}

pub(crate) fn disconnect(from: &Nixl, connection: NixlConnection, why: CloseReason) {
    let cx = CloseContext { name: name("peer"), generation: Generation(0), deadline: soon() };
    assert!(matches!(from.disconnect(&cx, connection, why), Closed::Released));
}

pub(crate) fn probe(from: &Nixl, connection: &NixlConnection, limit: Duration) -> Liveness {
    let cx = ProbeContext { name: name("peer"), generation: generation(), deadline: Instant::now() + limit };
    from.probe(&cx, connection)
}

/// A table whose backoff does not hold a test up.
pub(crate) fn table(called: &str) -> PeerTable<Nixl> {
    table_of(nixl(called))
}

pub(crate) fn table_of<T: Transport>(transport: T) -> PeerTable<T> {
    let short = Duration::from_millis(1);
    let backoff = Backoff { base: short, cap: 10 * short, ..Backoff::default() };
    PeerTable::builder(transport).backoff(backoff).breaker(None).build().unwrap()
}

/// How many generations have come to a connect.
pub(crate) fn generations<T: Transport>(table: &PeerTable<T>) -> u64 {
    let snapshot = table.snapshot();
    snapshot.elections - snapshot.elections_without_connect
}

/// Through backoffs, and attempts that fail.
pub(crate) fn ready_again<T: Transport>(peer: &Peer<T>) -> Generation {
    let end = soon();
    loop {
        match peer.wait_ready(end) {
            Ok(generation) => return generation,
            Err(ReadyError::BackingOff { retry_at, .. }) => {
                std::thread::sleep(retry_at.saturating_duration_since(Instant::now()));
            }
            Err(error) => assert!(Instant::now() < end, "{error:?}"),
        }
    }
}

pub(crate) fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let end = soon();
    while !is() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Runs a test in a process that runs nothing else, if NIXL is here: descriptors, threads and what is loaded belong to a process.
pub(crate) fn alone<T>(test: T, body: impl FnOnce()) {
    alone_over(None, test, body);
}

/// As `alone`, over one of UCX's ways to move bytes.
pub(crate) fn alone_over<T>(tls: Option<&str>, _test: T, body: impl FnOnce()) {
    let test = std::any::type_name::<T>().split_once("::").expect("the crate comes first").1;
    if std::env::var(ALONE).as_deref() != Ok(test) {
        let mut command = this_binary(test);
        let ended = command.env(ALONE, test).envs(tls.map(|tls| ("UCX_TLS", tls))).status().unwrap();
        assert!(ended.success(), "{test}: {ended}");
        return;
    }
    match Nixl::named(name("looks")).map(drop) {
        Ok(()) => body(),
        Err(NixlBuildError::Library(error @ NixlLibraryError::NotFound { .. })) => println!("SKIPPED: {test}: {error}"),
        Err(error) => panic!("{error:?}"),
    }
}

pub(crate) fn this_binary(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--include-ignored", "--nocapture", "--test-threads", "1"]);
    if std::env::var_os("UCX_MODULES").is_none() {
        // Beside Debian's libucx NIXL's own may crash the process at its end.
        command.env("UCX_MODULES", "^ib");
    }
    command
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn from_hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// Another process that has a `Nixl`.
pub(crate) struct Served {
    pub(crate) child: Child,
    pub(crate) address: NixlAddress,
    lines: BufReader<std::process::ChildStdout>,
}

impl Served {
    pub(crate) fn start() -> Served {
        Self::called("served")
    }

    pub(crate) fn called(called: &str) -> Served {
        let mut command = this_binary("support::serves");
        command.env_remove(ALONE).env(SERVES, called).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let address = NixlAddress::from_bytes(&from_hex(&line_of(&mut lines, "served at "))).unwrap();
        Served { child, address, lines }
    }

    fn asked(&mut self, what: &str) -> String {
        writeln!(self.child.stdin.as_mut().unwrap(), "{what}").unwrap();
        line_of(&mut self.lines, &format!("{what} "))
    }

    /// How many descriptors it has.
    pub(crate) fn descriptors(&mut self) -> usize {
        self.asked("descriptors").parse().unwrap()
    }

    /// How many messages it has received.
    pub(crate) fn messages(&mut self) -> usize {
        self.asked("messages").parse().unwrap()
    }

    /// The page of [`PAGE`] bytes that it lends to `here`.
    pub(crate) fn lends(&mut self, access: Access) -> RemoteSlice {
        let how = if access == Access::Write { "write" } else { "read" };
        RemoteSlice::from_bytes(&from_hex(&self.asked(how)).try_into().unwrap())
    }

    /// Each of its threads, when it hears of it.
    pub(crate) fn stop(&self) {
        kill_process(Pid::from_child(&self.child), Signal::STOP).unwrap();
        let is_stopped = |task: std::io::Result<std::fs::DirEntry>| {
            std::fs::read_to_string(task.unwrap().path().join("stat")).is_ok_and(|stat| stat.contains(") T "))
        };
        let tasks = format!("/proc/{}/task", self.child.id());
        eventually("it is stopped", || std::fs::read_dir(&tasks).unwrap().all(is_stopped));
    }

    pub(crate) fn go_on(&self) {
        kill_process(Pid::from_child(&self.child), Signal::CONT).unwrap();
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the next line with this beginning says.
fn line_of(lines: &mut impl BufRead, begin: &str) -> String {
    loop {
        let mut line = String::new();
        assert!(lines.read_line(&mut line).unwrap() > 0, "it has ended before it said {begin:?}");
        // The harness begins a line of its own, which it does not end.
        if let Some((_, rest)) = line.split_once(begin) {
            return rest.trim().to_owned();
        }
    }
}

/// The body of such a process.
#[test]
#[ignore = "is run by the tests that start such a process"]
fn serves() {
    let called = std::env::var(SERVES).expect("its name");
    let nixl = nixl(&called);
    let page = Region::zeroed(PAGE);
    nixl.register(&page).unwrap();
    println!("served at {}", to_hex(&nixl.local_address().unwrap().to_bytes()));
    let (messages, mut lent) = (AtomicU64::new(0), Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while nixl.inbox().recv(Instant::now() + 100 * LONG).is_some() {
                messages.fetch_add(1, Ordering::Relaxed);
            }
        });
        for line in std::io::stdin().lines().map_while(Result::ok) {
            match line.as_str() {
                "descriptors" => println!("descriptors {}", descriptors()),
                "messages" => println!("messages {}", messages.load(Ordering::Relaxed)),
                how => {
                    let access = if how == "write" { Access::Write } else { Access::Read };
                    let grant = nixl.grants().lend(&name("here"), &page.slice(0..PAGE).unwrap(), access);
                    println!("{how} {}", to_hex(&grant.remote().to_bytes()));
                    lent.push(grant);
                }
            }
        }
        std::process::exit(0);
    });
}

/// What a test says of a connection that is well.
#[derive(Debug)]
pub(crate) struct Told;

impl std::fmt::Display for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a test says that it is broken")
    }
}

impl std::error::Error for Told {}

impl peerage::TransportError for Told {
    fn class(&self) -> peerage::ErrorClass {
        peerage::ErrorClass::PeerBroken
    }
}
