//! The sending end of an inbox, and what one sender may have waiting there.

use super::waiting::{Waiting, wake};
use super::{Notification, Shared};
use crate::sync::lock;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

/// What one source may have waiting: enough for a burst of small messages, and little enough for a thousand sources.
pub(super) const SOURCE_BYTES: usize = 1 << 20;

/// The sending end of one inbound connection.
pub struct Source {
    shared: Arc<Shared>,
    credits: Arc<Credits>,
}

impl Source {
    pub(super) fn new(shared: Arc<Shared>, capacity: usize) -> Self {
        let share = Share { room: capacity.max(1), bytes: 0, pushers: Waiting::default() };
        Source { shared, credits: Arc::new(Credits { share: Mutex::new(share) }) }
    }

    /// Queues a message and wakes who waits for one. Never waits; a waker that panics is caught.
    ///
    /// # Errors
    /// The message, if this source's share is full. Try again once a receiver has taken one of its messages, or wait for
    /// that with [`push`](Self::push).
    pub fn try_push(&self, message: Notification) -> Result<(), Notification> {
        self.try_push_if(message, || true).map(|_| ())
    }

    /// The same, unless `admits` says no at the moment at which the message would be queued: then it is dropped, and the
    /// answer is `false`. `admits` runs under the queue's lock.
    pub(crate) fn try_push_if(
        &self,
        message: Notification,
        admits: impl FnOnce() -> bool,
    ) -> Result<bool, Notification> {
        {
            let mut share = lock(&self.credits.share);
            if !share.has_room(message.bytes.len()) {
                return Err(message);
            }
            share.room -= 1;
            share.bytes += message.bytes.len();
        }
        let mut queue = lock(&self.shared.queue);
        if !admits() {
            drop(queue);
            drop(taken((self.credits.clone(), message)));
            return Ok(false);
        }
        queue.bytes += message.bytes.len();
        queue.messages.push_back((self.credits.clone(), message));
        let (receivers, blocked) = (queue.receivers.take(), queue.blocked);
        drop(queue);
        if blocked > 0 {
            self.shared.arrived.notify_one();
        }
        wake(receivers);
        Ok(true)
    }

    /// Queues a message, waiting on any runtime until this source's share has room. Dropping the future before that drops
    /// the message.
    pub async fn push(&self, mut message: Notification) {
        while let Err(back) = self.try_push(message) {
            self.room(back.bytes.len()).await;
            message = back;
        }
    }

    /// Waits until a message of `len` bytes fits. If others push too, it may not fit any more a moment later.
    pub(crate) async fn room(&self, len: usize) {
        Room { source: self, len, turn: None }.await;
    }
}

struct Room<'a> {
    source: &'a Source,
    len: usize,
    turn: Option<u64>,
}

impl Future for Room<'_> {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let waker = cx.waker().clone(); // other people's code: before the lock
        let mut share = lock(&self.source.credits.share);
        if share.has_room(self.len) {
            return Poll::Ready(());
        }
        let old = share.pushers.wait(&mut self.turn, waker);
        drop(share);
        drop(old);
        Poll::Pending
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        let old = lock(&self.source.credits.share).pushers.leave(self.turn);
        drop(old);
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("room", &lock(&self.credits.share).room).finish_non_exhaustive()
    }
}

pub(super) struct Credits {
    share: Mutex<Share>,
}

struct Share {
    /// How many more messages.
    room: usize,
    /// Of the messages that wait.
    bytes: usize,
    pushers: Waiting,
}

impl Share {
    /// A message of any length fits into an empty share.
    fn has_room(&self, len: usize) -> bool {
        self.room > 0 && (self.bytes == 0 || self.bytes + len <= SOURCE_BYTES)
    }
}

/// A message that leaves the queue gives its share back.
pub(super) fn taken((credits, message): (Arc<Credits>, Notification)) -> Notification {
    let mut share = lock(&credits.share);
    share.room += 1;
    share.bytes -= message.bytes.len();
    let pushers = share.pushers.take();
    drop(share);
    wake(pushers);
    message
}
