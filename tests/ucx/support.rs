//! Processes that serve, names, and waits that are generous and never timed.

#[path = "../spec/common/elsewhere.rs"]
mod elsewhere;

use peerage::transport::ucx::{Ucx, UcxConnection, UcxError};
use peerage::{CloseContext, CloseReason, Closed, ConnectContext, DataPlane, Generation, PeerName, Transport};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Long enough for anything that happens at all on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(30);
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

pub(crate) fn ucx(called: &str) -> Ucx {
    Ucx::builder().name(name(called)).bind("127.0.0.1:0").unwrap()
}

pub(crate) fn try_dial(from: &Ucx, called: &str, to: SocketAddr) -> Result<UcxConnection, UcxError> {
    let cx = ConnectContext::standalone(name(called), generation(), soon());
    from.connect(&cx, &to.into()).map(|connected| connected.connection)
}

pub(crate) fn dial(from: &Ucx, to: &Ucx) -> UcxConnection {
    try_dial(from, to.local_name().unwrap().as_str(), to.local_addr()).unwrap()
}

pub(crate) fn disconnect(from: &Ucx, connection: UcxConnection, why: CloseReason) {
    let cx = CloseContext { name: name("peer"), generation: Generation(0), deadline: soon() };
    assert!(matches!(from.disconnect(&cx, connection, why), Closed::Released));
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

/// Runs `body` in a process that runs nothing else: descriptors and threads belong to a process.
pub(crate) fn alone(test: &str, body: impl FnOnce()) {
    if std::env::var(ALONE).as_deref() == Ok(test) {
        return body();
    }
    let ended = this_binary(test).env(ALONE, test).status().unwrap();
    assert!(ended.success(), "{test}: {ended}");
}

/// For a test that has several transports. `true`: another process has run it.
pub(crate) fn elsewhere<T>(_test: T) -> bool {
    let test = std::any::type_name::<T>();
    elsewhere::elsewhere(test.split_once("::").expect("the crate comes first").1)
}

pub(crate) fn this_binary(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--include-ignored", "--nocapture", "--test-threads", "1"]);
    command
}

/// Another process that has a `Ucx`, called `served` if nothing else is said.
pub(crate) struct Served {
    pub(crate) child: Child,
    pub(crate) addr: SocketAddr,
    lines: BufReader<std::process::ChildStdout>,
}

impl Served {
    /// At this port; 0: any.
    pub(crate) fn start(port: u16) -> Served {
        Self::start_by(this_binary("support::serves"), "served", ([127, 0, 0, 1], port).into())
    }

    /// Of this name at this address, by a command that ends up with the test [`serves`].
    pub(crate) fn start_by(mut command: Command, called: &str, addr: SocketAddr) -> Served {
        command.env(SERVES, format!("{called} {addr}")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let mut served = Served { child, addr, lines };
        served.addr = served.line("listens at ").parse().unwrap();
        served
    }

    /// What its next line with this beginning says.
    fn line(&mut self, begin: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "it has ended");
            // The harness begins a line of its own, which it does not end.
            if let Some((_, rest)) = line.split_once(begin) {
                return rest.trim().to_owned();
            }
        }
    }

    /// How many descriptors it has.
    pub(crate) fn descriptors(&mut self) -> usize {
        self.child.stdin.as_mut().unwrap().write_all(b"?\n").unwrap();
        self.line("descriptors ").parse().unwrap()
    }

    /// How many messages it has received.
    pub(crate) fn messages(&mut self) -> usize {
        self.child.stdin.as_mut().unwrap().write_all(b"!\n").unwrap();
        self.line("messages ").parse().unwrap()
    }

    pub(crate) fn kill(mut self) {
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

/// The body of such a process.
#[test]
#[ignore = "is run by the tests that start such a process"]
fn serves() {
    let serves = std::env::var(SERVES).expect("who starts it says as whom");
    let (called, addr) = serves.split_once(' ').unwrap();
    let addr: SocketAddr = addr.parse().unwrap();
    let ucx = Ucx::builder().name(name(called)).trust_network(!addr.ip().is_loopback()).bind(addr).unwrap();
    println!("listens at {}", ucx.local_addr());
    let messages = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while ucx.inbox().recv(Instant::now() + 100 * LONG).is_some() {
                messages.fetch_add(1, Ordering::Relaxed);
            }
        });
        for line in std::io::stdin().lines().map_while(Result::ok) {
            match line.as_str() {
                "?" => println!("descriptors {}", descriptors()),
                _ => println!("messages {}", messages.load(Ordering::Relaxed)),
            }
        }
        std::process::exit(0);
    });
}
