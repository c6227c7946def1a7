//! A way between two processes that can be muted: bytes are taken and dropped, and so is the end of a connection. A
//! connection that has lost bytes is reset when the way is mended, as a real network would never deliver what follows a
//! hole.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How soon a thread that waits for a socket looks at the switches.
const LOOK: Duration = Duration::from_millis(5);

/// Ends when it is dropped, with every connection over it.
pub(crate) struct Proxy {
    at: SocketAddr,
    way: Arc<Way>,
    acceptor: Option<JoinHandle<()>>,
}

struct Way {
    to: Mutex<SocketAddr>,
    /// What the dialer sends.
    mute_forth: AtomicBool,
    /// What the acceptor sends.
    mute_back: AtomicBool,
    over: AtomicBool,
}

impl Proxy {
    pub(crate) fn start(to: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let at = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let way = Arc::new(Way {
            to: Mutex::new(to),
            mute_forth: AtomicBool::new(false),
            mute_back: AtomicBool::new(false),
            over: AtomicBool::new(false),
        });
        let accepting = way.clone();
        let acceptor = thread::spawn(move || accepting.accept(&listener));
        Ok(Proxy { at, way, acceptor: Some(acceptor) })
    }

    /// What the dialer dials.
    pub(crate) fn at(&self) -> SocketAddr {
        self.at
    }

    /// The acceptor listens elsewhere now.
    pub(crate) fn lead_to(&self, to: SocketAddr) {
        *self.way.to.lock().unwrap() = to;
    }

    /// Drops what the dialer sends (`forth`), what the acceptor sends (`back`), or lets it through.
    pub(crate) fn mute(&self, forth: bool, back: bool) {
        self.way.mute_forth.store(forth, Relaxed);
        self.way.mute_back.store(back, Relaxed);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.way.over.store(true, Relaxed);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

impl Way {
    fn accept(self: Arc<Self>, listener: &TcpListener) {
        let mut pumps: Vec<JoinHandle<()>> = Vec::new();
        while !self.over.load(Relaxed) {
            match listener.accept() {
                Ok((dialer, _)) => {
                    let way = self.clone();
                    pumps.push(thread::spawn(move || way.serve(dialer)));
                }
                Err(_) => thread::sleep(LOOK),
            }
            pumps.retain(|pump| !pump.is_finished());
        }
        pumps.into_iter().for_each(|pump| drop(pump.join()));
    }

    fn serve(&self, dialer: TcpStream) {
        let to = *self.to.lock().unwrap();
        let Ok(acceptor) = TcpStream::connect(to) else {
            // Who dials a way that is muted does not even hear that nobody is there.
            self.hold_while(&self.mute_back);
            return reset_on_close(&dialer);
        };
        for socket in [&dialer, &acceptor] {
            let set = socket
                .set_nonblocking(false)
                .and_then(|()| socket.set_nodelay(true))
                .and_then(|()| socket.set_read_timeout(Some(LOOK)))
                .and_then(|()| socket.set_write_timeout(Some(LOOK)));
            if set.is_err() {
                return;
            }
        }
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| self.pump(&dialer, &acceptor, &self.mute_forth, &ended));
            self.pump(&acceptor, &dialer, &self.mute_back, &ended);
        });
    }

    /// Carries one direction until either ends.
    fn pump(&self, mut from: &TcpStream, mut to: &TcpStream, mute: &AtomicBool, ended: &AtomicBool) {
        let mut buffer = vec![0; 64 << 10];
        let mut lost = false;
        while !ended.load(Relaxed) && !self.over.load(Relaxed) {
            if lost && !mute.load(Relaxed) {
                reset_on_close(from);
                reset_on_close(to);
                break;
            }
            match from.read(&mut buffer) {
                Ok(0) => {
                    self.hold_while(mute);
                    break;
                }
                Ok(_) if lost || mute.load(Relaxed) => lost = true,
                Ok(n) => {
                    let mut left = &buffer[..n];
                    while !left.is_empty() && !ended.load(Relaxed) && !self.over.load(Relaxed) {
                        match to.write(left) {
                            Ok(n) => left = &left[n..],
                            Err(error) if waits(&error) => {}
                            Err(_) => ended.store(true, Relaxed),
                        }
                    }
                }
                Err(error) if waits(&error) => {}
                Err(_) => {
                    self.hold_while(mute);
                    reset_on_close(to);
                    break;
                }
            }
        }
        ended.store(true, Relaxed);
    }

    fn hold_while(&self, mute: &AtomicBool) {
        while mute.load(Relaxed) && !self.over.load(Relaxed) {
            thread::sleep(LOOK);
        }
    }
}

fn waits(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn reset_on_close(socket: &TcpStream) {
    // Without it the close is an ordinary one, which ends the connection too.
    let _ = socket2::SockRef::from(socket).set_linger(Some(Duration::ZERO));
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    fn pair() -> (Proxy, TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Proxy::start(listener.local_addr().unwrap()).unwrap();
        let dialer = TcpStream::connect(proxy.at()).unwrap();
        let (acceptor, _) = listener.accept().unwrap();
        for socket in [&dialer, &acceptor] {
            socket.set_read_timeout(Some(LONG)).unwrap();
        }
        (proxy, dialer, acceptor)
    }

    fn carries(mut from: &TcpStream, mut to: &TcpStream) {
        from.write_all(b"x").unwrap();
        to.read_exact(&mut [0]).unwrap();
    }

    #[test]
    fn one_direction_is_muted_and_the_connection_is_reset_when_that_ends() {
        let (proxy, mut dialer, mut acceptor) = pair();
        carries(&dialer, &acceptor);
        carries(&acceptor, &dialer);
        proxy.mute(true, false);
        dialer.write_all(b"lost").unwrap();
        carries(&acceptor, &dialer);
        acceptor.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        assert!(waits(&acceptor.read(&mut [0]).unwrap_err()));
        acceptor.set_read_timeout(Some(LONG)).unwrap();
        proxy.mute(false, false);
        assert!(matches!(acceptor.read(&mut [0]), Ok(0) | Err(_)), "what follows a hole is not delivered");
        assert!(matches!(dialer.read(&mut [0]), Ok(0) | Err(_)));
    }

    #[test]
    fn a_connection_that_lost_nothing_goes_on() {
        let (proxy, dialer, acceptor) = pair();
        carries(&dialer, &acceptor);
        proxy.mute(true, true);
        proxy.mute(false, false);
        carries(&dialer, &acceptor);
        carries(&acceptor, &dialer);
    }

    #[test]
    fn an_end_is_passed_on_unless_the_way_is_muted() {
        let (proxy, mut dialer, acceptor) = pair();
        carries(&dialer, &acceptor);
        proxy.mute(false, true);
        drop(acceptor);
        dialer.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        assert!(waits(&dialer.read(&mut [0]).unwrap_err()));
        dialer.set_read_timeout(Some(LONG)).unwrap();
        proxy.mute(false, false);
        assert!(matches!(dialer.read(&mut [0]), Ok(0) | Err(_)));
    }
}
