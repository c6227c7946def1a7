//! What the `Tcp` transport takes from the operating system, it gives back. Descriptors and threads belong to a process, so
//! each test here runs in a process of its own: the test binary starts itself again.
#![cfg(all(feature = "tcp", target_os = "linux", not(peerage_loom)))]

use peerage::transport::tcp::{BindError, Tcp, TcpAddress, TcpConnection, TcpError};
use peerage::{
    CloseContext, CloseReason, Closed, ConnectContext, DataPlane, ErrorClass, Generation, PeerName, Transport,
    TransportError,
};
use std::fs::{File, read_dir, read_to_string};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

const ALONE: &str = "PEERAGE_TEST_ALONE";
const LONG: Duration = Duration::from_secs(30);

/// Runs `body` in a process that runs nothing else, with at most `descriptors`.
fn alone(test: &str, descriptors: usize, body: impl FnOnce()) {
    if std::env::var(ALONE).as_deref() == Ok(test) {
        return body();
    }
    let limit = format!("ulimit -n {descriptors} && exec \"$0\" --exact {test} --nocapture --test-threads 1");
    let binary = std::env::current_exe().unwrap();
    let ended = Command::new("sh").arg("-c").arg(limit).arg(binary).env(ALONE, test).status().unwrap();
    assert!(ended.success(), "{test}: {ended}");
}

fn tcp(name: &str) -> Tcp {
    let builder = Tcp::builder().name(PeerName::new(name).unwrap()).handshake_timeout(100 * LONG);
    builder.bind("127.0.0.1:0").unwrap()
}

fn dial(from: &Tcp, to: &Tcp, generation: u64) -> Result<TcpConnection, TcpError> {
    let name = to.local_name().unwrap().clone();
    let cx = ConnectContext::standalone(name, Generation(generation), Instant::now() + LONG);
    from.connect(&cx, &to.local_addr().into()).map(|connected| connected.connection)
}

fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !is() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn descriptors() -> usize {
    read_dir("/proc/self/fd").unwrap().count()
}

fn threads() -> Vec<String> {
    let tasks = read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| read_to_string(task.path().join("comm")).ok());
    names.map(|name| name.trim().to_owned()).filter(|name| name.starts_with("peerage-tcp-")).collect()
}

/// Hundreds of connections, ended in every way, and connects that fail leave no descriptor behind.
///
/// fails if: d1-sockets (a connection that is closed keeps its socket)
#[test]
fn case_d1_connections_and_failed_connects_leave_no_descriptor_behind() {
    alone("case_d1_connections_and_failed_connects_leave_no_descriptor_behind", 1024, || {
        let (a, b) = (tcp("a"), tcp("b"));
        let mute = TcpListener::bind("127.0.0.1:0").unwrap();
        let before = descriptors();
        for generation in 0..200 {
            let connection = dial(&a, &b, generation).unwrap();
            a.notify(&connection, b"x").unwrap();
            let cx = CloseContext {
                name: PeerName::new("b").unwrap(),
                generation: Generation(generation),
                deadline: Instant::now() + LONG,
            };
            match generation % 4 {
                0 => drop(connection),
                1 => connection.cut(),
                2 => drop(b.cut_inbound_of(&PeerName::new("a").unwrap())),
                _ => assert!(matches!(a.disconnect(&cx, connection, CloseReason::Failed), Closed::Released)),
            }
            b.inbox().try_recv();
        }
        for generation in 0..50 {
            let name = PeerName::new(if generation % 2 == 0 { "c" } else { "mute" }).unwrap();
            let deadline = Instant::now() + if generation % 2 == 0 { LONG } else { Duration::from_millis(10) };
            let cx = ConnectContext::standalone(name, Generation(generation), deadline);
            let to = if generation % 2 == 0 { b.local_addr() } else { mute.local_addr().unwrap() };
            a.connect(&cx, &to.into()).unwrap_err();
        }
        eventually("all descriptors are back", || descriptors() == before);
        eventually("all places are free", || b.inbound().is_empty());
    });
}

#[test]
fn its_threads_have_names_and_end_with_it() {
    alone("its_threads_have_names_and_end_with_it", 1024, || {
        // A runtime of a program that has signals on keeps descriptors of its own, once per process.
        drop(tcp("first"));
        eventually("the first has ended", || threads().is_empty());
        let before = descriptors();
        let (a, b) = (tcp("a"), tcp("b"));
        let connection = dial(&a, &b, 1).unwrap();
        eventually("two threads each", || threads().len() == 4);
        let mut names = threads();
        names.sort();
        assert_eq!(names, ["peerage-tcp-0", "peerage-tcp-0", "peerage-tcp-1", "peerage-tcp-1"]);
        drop(a);
        eventually("those of one end", || threads().len() == 2);
        eventually("its connection ends there too", || b.inbound().is_empty());
        drop((b, connection));
        eventually("all end", || threads().is_empty());
        eventually("all descriptors are back", || descriptors() <= before);
    });
}

/// Wherever they run out on the way, the error says so, and blames no other process for it.
///
/// fails if: the text of `BindError::Listen` guesses why; a runtime's panic is let through.
#[test]
fn a_bind_without_descriptors_says_what_ran_out_and_leaves_none_behind() {
    alone("a_bind_without_descriptors_says_what_ran_out_and_leaves_none_behind", 64, || {
        let hoard = || std::iter::from_fn(|| File::open("/dev/null").ok()).collect::<Vec<_>>();
        // First where tokio has made nothing of what it keeps for the whole process, then where it has.
        for has_all in [false, true] {
            let mut hoarded = hoard();
            let mut free = 0;
            while let Err(error) = Tcp::bind("127.0.0.1:0") {
                let (BindError::Listen { source, .. } | BindError::Threads(source)) = &error else {
                    panic!("{error:?}")
                };
                assert!(source.raw_os_error() == Some(24) || source.to_string().contains("code: 24"), "{error:?}");
                assert!(!error.to_string().contains("another process"), "{error}");
                if has_all {
                    eventually("as many can be had as before", || hoard().len() == free);
                }
                assert!(hoarded.pop().is_some(), "it is bound once there are enough: {error:?}");
                free += 1;
            }
            assert!(free > 0);
            drop(hoarded);
            eventually("its threads have ended", || threads().is_empty());
        }
    });
}

#[test]
fn descriptors_that_run_out_are_nobodys_fault_and_the_acceptor_rests() {
    alone("descriptors_that_run_out_are_nobodys_fault_and_the_acceptor_rests", 64, || {
        let (a, b) = (tcp("a"), tcp("b"));
        let open = dial(&a, &b, 1).unwrap();
        let mut hoard: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
        let local = dial(&a, &b, 2).unwrap_err();
        assert!(matches!(local, TcpError::NoSocket { .. }), "{local:?}");
        assert_eq!((local.class(), local.native_code()), (ErrorClass::Local, Some(24)));
        // fails if: what the resolver says is believed. It can't read where hosts are named, and says that there is none.
        let host: TcpAddress = format!("localhost:{}", b.local_addr().port()).parse().unwrap();
        let cx = ConnectContext::standalone(b.local_name().unwrap().clone(), Generation(2), Instant::now() + LONG);
        let local = a.connect(&cx, &host).unwrap_err();
        assert!(matches!(local, TcpError::NoSocket { .. }), "{local:?}");
        assert_eq!((local.class(), local.native_code()), (ErrorClass::Local, Some(24)));

        hoard.pop();
        let start = Instant::now();
        let waiting = TcpStream::connect(b.local_addr()).unwrap();
        eventually("the accept fails", || b.inbound_counts().accept_errors >= 3);
        std::thread::sleep(Duration::from_millis(300));
        let (errors, most) = (b.inbound_counts().accept_errors, start.elapsed().as_millis() as u64 / 5 + 1);
        assert!(errors <= most, "{errors} failed accepts: it spins");
        a.notify(&open, b"open connections go on").unwrap();
        assert_eq!(b.inbox().recv(Instant::now() + LONG).unwrap().bytes, b"open connections go on");

        drop((hoard, waiting));
        let late = dial(&a, &b, 3).unwrap();
        a.notify(&late, b"late").unwrap();
        assert_eq!(b.inbox().recv(Instant::now() + LONG).unwrap().bytes, b"late");
    });
}
