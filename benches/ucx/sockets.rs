//! What a connection of its own for each way costs, without libucp: the same messages over one TCP connection, and over two.
//!
//! Over one, an answer carries the acknowledgement of what it answers. Over two nothing goes back on either, and Linux
//! acknowledges every second short message by a segment of its own, in the calls of who sends and receives.

use crate::cores;
use std::error::Error;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Instant;

/// A notification of 64 bytes, as it goes over a socket.
const BYTES: usize = 110;
/// After how many a few bytes go back all the same, as a table says how much it has taken.
const TAKEN_EVERY: usize = 128;

/// Half a round trip in microseconds, over as many connections as are asked for.
pub(crate) fn run(connections: usize, cores: [usize; 2], times: usize) -> Result<f64, Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let connect = || -> Result<[TcpStream; 2], Box<dyn Error>> {
        let ends = [TcpStream::connect(listener.local_addr()?)?, listener.accept()?.0];
        for end in &ends {
            end.set_nodelay(true)?;
            end.set_nonblocking(true)?;
        }
        Ok(ends)
    };
    let [out, their_in] = connect()?;
    let [answers, their_out] = match connections {
        1 => [out.try_clone()?, their_in.try_clone()?],
        _ => connect()?,
    };
    let two = connections > 1;
    let rounds = times / 10 + times;
    let server = thread::spawn(move || -> Result<(), String> {
        cores::pin(cores[0]).map_err(|error| error.to_string())?;
        for nth in 1..=rounds {
            (take(&their_in, two, nth).and_then(|()| say(&their_out, &[1; BYTES])))
                .map_err(|error| error.to_string())?;
        }
        Ok(())
    });
    let client = thread::spawn(move || -> Result<f64, String> {
        cores::pin(cores[1]).map_err(|error| error.to_string())?;
        let mut start = Instant::now();
        for nth in 1..=rounds {
            if nth == times / 10 + 1 {
                start = Instant::now();
            }
            (say(&out, &[1; BYTES]).and_then(|()| take(&answers, two, nth))).map_err(|error| error.to_string())?;
        }
        Ok(start.elapsed().as_secs_f64() * 1e6 / times as f64 / 2.0)
    });
    let took = client.join().map_err(|_| "the client of the sockets panicked")??;
    server.join().map_err(|_| "the server of the sockets panicked")??;
    Ok(took)
}

/// Takes one message, looking again and again as a thread that polls does.
fn take(mut from: &TcpStream, says_taken: bool, nth: usize) -> Result<(), std::io::Error> {
    let (mut bytes, mut got) = ([0; BYTES], 0);
    while got < BYTES {
        match from.read(&mut bytes[got..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(more) => got += more,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    if says_taken && nth.is_multiple_of(TAKEN_EVERY) { say(from, &[2]) } else { Ok(()) }
}

fn say(mut to: &TcpStream, bytes: &[u8]) -> Result<(), std::io::Error> {
    to.write_all(bytes)
}
