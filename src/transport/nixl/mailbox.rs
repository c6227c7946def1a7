//! What the thread is told by those who call the transport, and where it sleeps. The lock is held over nothing else.

use super::link::{Dial, Link};
use super::message::Farewell;
use super::registry::InboundKey;
use crate::sync::lock;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What the thread has to look at.
pub(super) enum Event {
    /// Somebody is about to say hello: what is answered is for this.
    Dial(Box<Dial>),
    /// End a connection; again, if it was told before.
    Close(Arc<Link>, Ending),
    /// End inbound connections, of which key or all. Who is told is waited for until then.
    EndInbound(Option<InboundKey>, Farewell, Instant),
    /// End them without a word.
    CutInbound(Option<InboundKey>),
    /// Lets nobody in any more.
    Refuse,
    /// There is room in the inbox for who waited for it.
    Look,
    /// A transfer was asked for: there is something to wait for.
    Waits,
    /// The transport is dropped.
    Stop,
}

/// How a connection is to be ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// The peer is told, and what it was sent before gets through if it takes it.
    Goodbye(Farewell),
    /// At once.
    Now,
}

#[derive(Default)]
pub(super) struct Mailbox {
    inner: Mutex<Inner>,
    rings: Condvar,
}

#[derive(Default)]
struct Inner {
    events: Vec<Event>,
    asleep: bool,
    closed: bool,
}

impl Mailbox {
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
        if rings {
            self.rings.notify_one();
        }
    }

    /// Swaps what there is into `events`, which is empty.
    pub(super) fn take(&self, events: &mut Vec<Event>) {
        std::mem::swap(&mut lock(&self.inner).events, events);
    }

    /// Sleeps until an event is put, or for so long.
    pub(super) fn sleep(&self, at_most: Duration) {
        let mut inner = lock(&self.inner);
        if inner.events.is_empty() {
            inner.asleep = true;
            inner = self.rings.wait_timeout(inner, at_most).unwrap_or_else(PoisonError::into_inner).0;
            inner.asleep = false;
        }
    }

    /// The thread has ended. Answers what it has not looked at.
    pub(super) fn close(&self) -> Vec<Event> {
        let mut inner = lock(&self.inner);
        inner.closed = true;
        std::mem::take(&mut inner.events)
    }
}
