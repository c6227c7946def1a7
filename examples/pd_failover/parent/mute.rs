//! Something that takes over a dead process's port, accepts, and never answers.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Ends when it is dropped; then the port is free again.
pub(crate) struct Mute {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Mute {
    pub(crate) fn start(address: SocketAddr) -> io::Result<Self> {
        let listener = bind(address)?;
        listener.set_nonblocking(true)?;
        let over = Arc::new(AtomicBool::new(false));
        let asked = over.clone();
        let thread = thread::spawn(move || {
            let mut held = Vec::new();
            while !asked.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((socket, _)) => held.push(socket),
                    Err(_) => thread::sleep(Duration::from_millis(5)),
                }
            }
        });
        Ok(Mute { over, thread: Some(thread) })
    }
}

impl Drop for Mute {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The operating system may take a moment to free the port of a killed process.
fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let deadline = Instant::now() + Duration::from_secs(2);
    loop {
        match TcpListener::bind(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(10));
            }
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpStream;

    #[test]
    fn it_accepts_never_answers_and_leaves_the_port_free() {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mute = Mute::start(address).unwrap();
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let error = socket.read(&mut [0]).unwrap_err();
        assert!(matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut), "{error}");
        drop(mute);
        TcpListener::bind(address).unwrap();
    }
}
