//! The side that answers: lends a page to who says hello, and then sends every message back.

use crate::process::wait_for_the_end;
use crate::{cores, drive};
use peerage::transport::ucx::Ucx;
use peerage::{Access, Inbox, Notification, Peer, PeerName, PeerTable, Region};
use std::error::Error;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

pub(crate) type Table = PeerTable<Ucx>;
pub(crate) const LONG: Duration = Duration::from_secs(30);
pub(crate) const SERVER: &str = "server";
pub(crate) const DRIVER: &str = "driver";

/// A table that lives as long as its process.
pub(crate) fn table(called: &str, polling: bool) -> Result<&'static Table, Box<dyn Error>> {
    let ucx = Ucx::builder().name(PeerName::new(called)?).polling(polling).bind("127.0.0.1:0")?;
    Ok(Box::leak(Box::new(PeerTable::builder(ucx).build()?)))
}

pub(crate) fn reach(table: &'static Table, called: &str, at: SocketAddr) -> Result<Peer<Ucx>, Box<dyn Error>> {
    let peer = table.insert(called, at.into())?;
    peer.wait_ready(Instant::now() + LONG)?;
    Ok(peer)
}

pub(crate) fn serve(core: usize, polling: bool) -> Result<(), Box<dyn Error>> {
    cores::pin(core)?;
    let table = table(SERVER, polling)?;
    println!("listens at {}", table.transport().local_addr());
    let inbox = table.inbox();
    let hello = inbox.recv(Instant::now() + LONG).ok_or("nobody says hello")?;
    let (address, bytes) = drive::read_hello(&hello)?;
    let peer = reach(table, DRIVER, address)?;
    let page = Region::zeroed(bytes);
    table.register(&page)?;
    let grant = table.grant(&peer, &page.slice(0..bytes)?, Access::Write)?;
    OnWake::start(inbox.clone(), {
        let peer = peer.clone();
        move |message| peer.lease().expect("nothing breaks here").notify(&message.bytes).expect("there is room")
    });
    peer.lease()?.notify(&grant.remote().to_bytes())?;
    wait_for_the_end()
}

type React = Box<dyn Fn(Notification) + Send + Sync>;
type Next = Pin<Box<dyn Future<Output = Option<Notification>> + Send>>;

/// Reacts to each message on the thread that puts it in the inbox, which is the transport's.
pub(crate) struct OnWake {
    inbox: Inbox,
    react: React,
    next: Mutex<Option<Next>>,
}

impl OnWake {
    pub(crate) fn start(inbox: Inbox, react: impl Fn(Notification) + Send + Sync + 'static) {
        Arc::new(OnWake { inbox, react: Box::new(react), next: Mutex::default() }).wake();
    }
}

impl Wake for OnWake {
    fn wake(self: Arc<Self>) {
        let waker = Waker::from(self.clone());
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let inbox = self.inbox.clone();
            let waiting = next.get_or_insert_with(|| Box::pin(async move { inbox.next().await }));
            let Poll::Ready(message) = waiting.as_mut().poll(&mut Context::from_waker(&waker)) else { return };
            *next = None;
            match message {
                Some(message) => (self.react)(message),
                None => return,
            }
        }
    }
}
