//! The side that measures.

use crate::process::{Role, Setting};
use crate::serve::{DRIVER, LONG, OnWake, SERVER, reach, table};
use crate::{Case, cores};
use peerage::transport::ucx::Ucx;
use peerage::{Notification, Outcome, Peer, Region, RemoteSlice, Transfer};
use std::collections::VecDeque;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Puts that are asked for before the first has ended.
const AHEAD: usize = 128;

/// One measurement, between two processes.
pub(crate) fn run(setting: &Setting, case: Case) -> Result<f64, Box<dyn Error>> {
    let [core, other] = setting.cores;
    let mut server = Role::start(setting, &format!("serve {core} {}", setting.polling))?;
    let to = server.address()?;
    let (kind, bytes, times) = match case {
        Case::Notification { bytes, times } => ("notify", bytes, times),
        Case::Put { bytes, times } => ("put", bytes, times),
    };
    let mut driver = Role::start(setting, &format!("drive {other} {} {kind} {bytes} {times} {to}", setting.polling))?;
    Ok(driver.says("measured ")?.parse()?)
}

pub(crate) fn drive(
    core: usize,
    polling: bool,
    kind: &str,
    (bytes, times): (usize, usize),
    to: SocketAddr,
) -> Result<(), Box<dyn Error>> {
    cores::pin(core)?;
    let table = table(DRIVER, polling)?;
    let peer = reach(table, SERVER, to)?;
    let inbox = table.inbox();
    peer.lease()?.notify(format!("{} {bytes}", table.transport().local_addr()).as_bytes())?;
    let lent = inbox.recv(Instant::now() + LONG).ok_or("no page is lent")?;
    let page = RemoteSlice::from_bytes(lent.bytes[..].try_into()?);
    let measured = match kind {
        "notify" => {
            let rounds = Rounds::start(peer, inbox, bytes);
            rounds.run(times / 10)?;
            rounds.run(times)?.as_secs_f64() * 1e6 / times as f64 / 2.0
        }
        _ => {
            let local = Region::zeroed(bytes);
            table.register(&local)?;
            let put = || Ok(peer.lease()?.write(&local.slice(0..bytes)?, page)?);
            puts(&put, times / 10)?;
            let took = puts(&put, times)?;
            (bytes * times) as f64 / took.as_secs_f64() / f64::from(1 << 20)
        }
    };
    println!("measured {measured}");
    Ok(())
}

/// Where the driver listens, and how large its page is to be.
pub(crate) fn read_hello(hello: &Notification) -> Result<(SocketAddr, usize), Box<dyn Error>> {
    let (address, bytes) = std::str::from_utf8(&hello.bytes)?.split_once(' ').ok_or("no hello")?;
    Ok((address.parse()?, bytes.parse()?))
}

struct Rounds {
    peer: Peer<Ucx>,
    message: Vec<u8>,
    left: &'static AtomicUsize,
    over: mpsc::Receiver<()>,
}

impl Rounds {
    fn start(peer: Peer<Ucx>, inbox: peerage::Inbox, bytes: usize) -> Self {
        let left: &'static AtomicUsize = Box::leak(Box::default());
        let (done, over) = mpsc::sync_channel(1);
        let answers = peer.clone();
        OnWake::start(inbox, move |message| {
            if left.fetch_sub(1, Ordering::Relaxed) > 1 {
                answers.lease().expect("nothing breaks here").notify(&message.bytes).expect("there is room");
            } else {
                done.send(()).expect("somebody waits");
            }
        });
        Rounds { peer, message: vec![7; bytes], left, over }
    }

    fn run(&self, times: usize) -> Result<Duration, Box<dyn Error>> {
        self.left.store(times, Ordering::Relaxed);
        let start = Instant::now();
        self.peer.lease()?.notify(&self.message)?;
        self.over.recv_timeout(2 * LONG)?;
        Ok(start.elapsed())
    }
}

fn puts(put: &dyn Fn() -> Result<Transfer, Box<dyn Error>>, times: usize) -> Result<Duration, Box<dyn Error>> {
    let mut running = VecDeque::new();
    let start = Instant::now();
    for _ in 0..times {
        if running.len() == AHEAD {
            ended(running.pop_front())?;
        }
        running.push_back(put()?);
    }
    while !running.is_empty() {
        ended(running.pop_front())?;
    }
    Ok(start.elapsed())
}

fn ended(transfer: Option<Transfer>) -> Result<(), Box<dyn Error>> {
    match transfer.and_then(|transfer| transfer.wait(Instant::now() + LONG)) {
        Some(Outcome::Done) => Ok(()),
        other => Err(format!("a put ended as {other:?}").into()),
    }
}
