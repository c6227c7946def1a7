//! What a thread is told by those who call the transport, and where it sleeps. The lock is held over nothing else.

use super::link::{Dial, Link};
use super::message::Farewell;
use super::registry::InboundKey;
use crate::sync::lock;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What the thread of a dialer has to look at.
pub(super) enum OfOurs {
    /// Somebody is about to say hello: what is answered is for this.
    Dial(Box<Dial>),
    /// End a connection; again, if it was told before.
    Close(Arc<Link>, Ending),
    /// A transfer was asked for, or begun: there is something to wait for.
    Waits,
    /// The transport is dropped.
    Stop,
}

/// What the thread of the server has to look at.
pub(super) enum OfTheirs {
    /// End inbound connections, of which key or all. Who is told is waited for until then.
    End(Option<InboundKey>, Farewell, Instant),
    /// End them without a word.
    Cut(Option<InboundKey>),
    /// Lets nobody in any more.
    Refuse,
    /// There is room in the inbox for who waited for it.
    Look,
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

pub(super) struct Mailbox<E> {
    inner: Mutex<Inner<E>>,
    rings: Condvar,
}

struct Inner<E> {
    events: Vec<E>,
    asleep: bool,
    closed: bool,
}

impl<E> Mailbox<E> {
    pub(super) fn new() -> Self {
        Mailbox { inner: Mutex::new(Inner { events: Vec::new(), asleep: false, closed: false }), rings: Condvar::new() }
    }

    /// Never waits. What is put after the thread has ended is dropped.
    pub(super) fn put(&self, event: E) {
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

    pub(super) fn take(&self) -> Vec<E> {
        std::mem::take(&mut lock(&self.inner).events)
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
    pub(super) fn close(&self) -> Vec<E> {
        let mut inner = lock(&self.inner);
        inner.closed = true;
        std::mem::take(&mut inner.events)
    }
}
