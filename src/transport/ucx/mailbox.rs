//! What the thread of the transport is told: by libucp's callbacks, and by those who call the transport.
//!
//! A callback runs inside libucp, under its lock, on whichever thread has called it. So it does nothing but put an event
//! here. The lock of the mailbox is held over nothing else. What is put when the thread has ended is dropped where it is put.

use super::endpoint::{Access, Endpoint, EndpointKey, Origin, Page, Parked, Received};
use super::link::{Dial, Link};
use super::message::Head;
use super::native::{Status, Stranger};
use crate::sync::lock;
use crate::transport::frame::Farewell;
use crate::transport::tcp::InboundKey;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// What the thread has to look at.
pub(super) enum Event {
    /// Somebody dialled our listener.
    Stranger(Stranger),
    /// A message came whole.
    Message(EndpointKey, Head, Vec<u8>),
    /// A message was announced that is too long to come by itself.
    Announced(EndpointKey, Head, Parked, usize),
    /// Such a message is here, or will not come.
    Received(Received, Result<(), Status>),
    /// Nothing more will get through.
    Broken(EndpointKey, Status),
    /// So says the end of an operation.
    Failed(Origin, Status),
    /// A read or a write has ended here, or its flush has.
    Accessed(Access, Result<(), Status>),
    /// A piece of a page was sent, or could not be: libucp no longer touches it. And its length.
    Piece(Origin, Arc<Page>, usize),
    /// Open a connection.
    Dial(Box<Dial>),
    /// Nobody waits for this attempt, or for this goodbye, any more.
    GiveUp(Arc<Link>),
    /// Close a connection: this was the last reference of its user.
    Close(Arc<Link>, Arc<Endpoint>, Ending),
    /// Close inbound connections, of which key or all. Who is told is waited for until then.
    EndInbound(Option<InboundKey>, Farewell, Instant),
    /// Lets nobody in any more.
    Refuse,
    /// There is room in the inbox for who waited for it.
    Look,
    /// The transport is dropped.
    Stop,
}

/// How a connection is to be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// The peer is told, and what it was sent before gets through if it takes it.
    Goodbye(Farewell),
    /// At once.
    Now,
}

pub(super) struct Mailbox {
    inner: Mutex<Inner>,
    bell: OwnedFd,
    /// Operations of all endpoints that have not ended.
    pub(super) under_way: AtomicUsize,
}

#[derive(Default)]
struct Inner {
    events: Vec<Event>,
    asleep: bool,
    closed: bool,
}

impl Mailbox {
    pub(super) fn new() -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Mailbox { inner: Mutex::default(), bell, under_way: AtomicUsize::new(0) })
    }

    /// Never waits. What is put after the thread has ended is dropped.
    pub(super) fn put(&self, event: Event) {
        let mut inner = lock(&self.inner);
        if inner.closed {
            drop(inner);
            return drop(event);
        }
        inner.events.push(event);
        let rings = std::mem::take(&mut inner.asleep);
        drop(inner);
        self.ring_if(rings);
    }

    /// Wakes the thread if it sleeps, for what libucp needs it for.
    pub(super) fn ring(&self) {
        let rings = std::mem::take(&mut lock(&self.inner).asleep);
        self.ring_if(rings);
    }

    fn ring_if(&self, rings: bool) {
        if rings {
            // Fails only when it rings already.
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        }
    }

    /// Swaps what there is into `events`, which is empty.
    pub(super) fn take(&self, events: &mut Vec<Event>) {
        std::mem::swap(&mut lock(&self.inner).events, events);
    }

    /// Whoever puts an event from here on rings the bell. `false`: there is one already.
    pub(super) fn falls_asleep(&self) -> bool {
        let mut inner = lock(&self.inner);
        inner.asleep = inner.events.is_empty();
        inner.asleep
    }

    /// `rang`: the bell was heard, and is silenced. One that rings later ends the next sleep at once.
    pub(super) fn is_awake(&self, rang: bool) {
        lock(&self.inner).asleep = false;
        if rang {
            let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        }
    }

    /// The thread has ended. Answers what it has not looked at.
    pub(super) fn close(&self) -> Vec<Event> {
        let mut inner = lock(&self.inner);
        inner.closed = true;
        std::mem::take(&mut inner.events)
    }

    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
