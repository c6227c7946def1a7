//! The example as a user starts it, and plain HTTP to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// For anything that has to come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// `cargo test` builds the examples beside its tests.
pub(crate) fn example() -> Command {
    let test = std::env::current_exe().unwrap();
    let profile = test.ancestors().nth(2).expect("target/<profile>/deps/<test>");
    let name = format!("status{}", std::env::consts::EXE_SUFFIX);
    Command::new(profile.join("examples").join(name))
}

pub(crate) const BUILT: &str = "run all of `cargo test` with the features serde and metrics, or first \
                                `cargo build --example status --features serde,metrics`: the example is not built";

pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Server {
    pub(crate) fn start(listen: &str) -> Server {
        Server::try_start(listen).expect("it says where it listens")
    }

    fn try_start(listen: &str) -> Option<Server> {
        let mut child = example().args(["--listen", listen]).stdout(Stdio::piped()).spawn().expect(BUILT);
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        match url.trim_end().strip_prefix("http://").and_then(|url| url.strip_suffix('/')) {
            Some(address) => Some(Server { child, address: address.parse().unwrap() }),
            None => {
                child.wait().unwrap();
                None
            }
        }
    }

    /// At an address that was just given up: for a moment the port may be in another's hands.
    pub(crate) fn start_again(address: SocketAddr) -> Server {
        wait_for("it listens there again", || Server::try_start(&address.to_string()))
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// An open connection that has asked for `path`.
    pub(crate) fn ask(&self, path: &str) -> TcpStream {
        let mut socket = TcpStream::connect(self.address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(socket, "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address).unwrap();
        socket
    }

    /// Head and body.
    pub(crate) fn get(&self, path: &str) -> (String, String) {
        let mut answer = String::new();
        self.ask(path).read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer of HTTP");
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        (head.to_lowercase(), body.to_owned())
    }

    #[cfg(unix)]
    pub(crate) fn signal(&mut self, signal: rustix::process::Signal) -> ExitStatus {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
        wait_for("it ends", || self.child.try_wait().unwrap())
    }

    /// Without a word, as a crash would.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

pub(crate) fn wait_for<V>(what: &str, mut look: impl FnMut() -> Option<V>) -> V {
    let give_up = Instant::now() + PATIENCE;
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < give_up, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
