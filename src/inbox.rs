//! Messages from whoever connected to us, in one queue with a bound per source.
//!
//! Each inbound connection is a [`Source`] with its own credits, so a peer that floods fills its own share and stops being
//! read, while everybody else's messages go on.

use crate::clock::Clock;
use crate::name::{Incarnation, PeerName};
use crate::state::Generation;
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Instant;

/// One message.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notification {
    /// The name the sender gave itself. On an unauthenticated transport that is a claim.
    pub from: PeerName,
    /// The sender's boot id, if the transport learns it.
    pub incarnation: Option<Incarnation>,
    /// The sender's own generation of the connection it came over, if the transport learns it.
    pub generation: Option<Generation>,
    /// The message.
    pub bytes: Vec<u8>,
}

impl Notification {
    /// For transports.
    pub fn new(
        from: PeerName,
        incarnation: Option<Incarnation>,
        generation: Option<Generation>,
        bytes: Vec<u8>,
    ) -> Self {
        Notification { from, incarnation, generation, bytes }
    }
}

/// The receiving end. Clones share one queue: each message goes to one of them.
#[derive(Clone)]
pub struct Inbox {
    shared: Arc<Shared>,
    clock: Clock,
}

struct Shared {
    queue: Mutex<Queue>,
    arrived: Condvar,
}

#[derive(Default)]
struct Queue {
    messages: VecDeque<(Arc<Credits>, Notification)>,
    receivers: Vec<Waker>,
    closed: bool,
}

struct Credits {
    left: Mutex<(usize, Option<Waker>)>,
}

impl Inbox {
    /// An empty one.
    pub fn new(clock: Clock) -> Self {
        Inbox { shared: Arc::new(Shared { queue: Mutex::default(), arrived: Condvar::new() }), clock }
    }

    /// The next message if there is one. Never waits.
    pub fn try_recv(&self) -> Option<Notification> {
        let next = lock(&self.shared.queue).messages.pop_front();
        next.map(taken)
    }

    /// Blocks this thread for the next message; `None` if the deadline passes first, or if the inbox is closed and empty.
    pub fn recv(&self, deadline: Instant) -> Option<Notification> {
        let mut queue = lock(&self.shared.queue);
        loop {
            if let Some(next) = queue.messages.pop_front() {
                drop(queue);
                return Some(taken(next));
            }
            if queue.closed {
                return None;
            }
            let left = self.clock.real_wait_until(deadline)?;
            queue = self.shared.arrived.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits for the next message on any runtime; `None` once the inbox is closed and empty. Dropping the future loses nothing.
    pub async fn next(&self) -> Option<Notification> {
        poll_fn(|cx| {
            let mut queue = lock(&self.shared.queue);
            if let Some(next) = queue.messages.pop_front() {
                drop(queue);
                return Poll::Ready(Some(taken(next)));
            }
            if queue.closed {
                return Poll::Ready(None);
            }
            if !queue.receivers.iter().any(|waker| waker.will_wake(cx.waker())) {
                queue.receivers.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await
    }

    /// No message will come any more: receivers get what is queued, then `None`. For transports, when they are dropped.
    pub fn close(&self) {
        let mut queue = lock(&self.shared.queue);
        queue.closed = true;
        let receivers = std::mem::take(&mut queue.receivers);
        drop(queue);
        self.shared.arrived.notify_all();
        receivers.into_iter().for_each(Waker::wake);
    }

    /// For transports: one inbound connection, which may have `capacity` messages waiting.
    pub fn source(&self, capacity: usize) -> Source {
        Source { shared: self.shared.clone(), credits: Arc::new(Credits { left: Mutex::new((capacity.max(1), None)) }) }
    }

    /// How many messages wait.
    pub fn len(&self) -> usize {
        lock(&self.shared.queue).messages.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// The sending end of one inbound connection.
pub struct Source {
    shared: Arc<Shared>,
    credits: Arc<Credits>,
}

impl Source {
    /// Queues a message. Never waits; gives it back if this source's share is full.
    pub fn try_push(&self, message: Notification) -> Result<(), Notification> {
        {
            let mut left = lock(&self.credits.left);
            if left.0 == 0 {
                return Err(message);
            }
            left.0 -= 1;
        }
        let mut queue = lock(&self.shared.queue);
        queue.messages.push_back((self.credits.clone(), message));
        let receivers = std::mem::take(&mut queue.receivers);
        drop(queue);
        self.shared.arrived.notify_one();
        receivers.into_iter().for_each(Waker::wake);
        Ok(())
    }

    /// Queues a message, waiting on any runtime until this source's share has room.
    pub async fn push(&self, message: Notification) {
        let mut message = Some(message);
        poll_fn(|cx| {
            let Some(next) = message.take() else { return Poll::Ready(()) };
            let Err(back) = self.try_push(next) else { return Poll::Ready(()) };
            message = Some(back);
            let mut left = lock(&self.credits.left);
            if left.0 > 0 {
                cx.waker().wake_by_ref();
            } else {
                left.1 = Some(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("room", &lock(&self.credits.left).0).finish_non_exhaustive()
    }
}

fn taken((credits, message): (Arc<Credits>, Notification)) -> Notification {
    let mut left = lock(&credits.left);
    left.0 += 1;
    let pusher = left.1.take();
    drop(left);
    if let Some(pusher) = pusher {
        pusher.wake();
    }
    message
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn message(byte: u8) -> Notification {
        Notification::new(PeerName::new("p").unwrap(), None, None, vec![byte])
    }

    #[test]
    fn a_source_that_floods_fills_only_its_own_share() {
        let inbox = Inbox::new(Clock::system());
        let (flood, calm) = (inbox.source(2), inbox.source(2));
        flood.try_push(message(1)).unwrap();
        flood.try_push(message(2)).unwrap();
        assert_eq!(flood.try_push(message(3)), Err(message(3)));
        calm.try_push(message(9)).unwrap();
        assert_eq!(inbox.try_recv(), Some(message(1)));
        flood.try_push(message(3)).unwrap();
        let rest: Vec<_> = std::iter::from_fn(|| inbox.try_recv()).map(|message| message.bytes[0]).collect();
        assert_eq!(rest, [2, 9, 3]);
    }

    #[test]
    fn recv_ends_at_its_deadline_and_at_close() {
        let clock = Clock::manual();
        let inbox = Inbox::new(clock.clone());
        assert_eq!(inbox.recv(clock.now()), None);
        let far = clock.now() + Duration::from_secs(1000);
        inbox.source(1).try_push(message(1)).unwrap();
        inbox.close();
        assert_eq!(inbox.recv(far), Some(message(1)));
        assert_eq!(inbox.recv(far), None);
    }

    #[tokio::test]
    async fn a_full_source_waits_for_room_and_nothing_is_lost() {
        let inbox = Inbox::new(Clock::system());
        let source = inbox.source(1);
        let pusher = tokio::spawn(async move {
            for byte in 0..100 {
                source.push(message(byte)).await;
            }
        });
        for byte in 0..100 {
            assert_eq!(inbox.next().await, Some(message(byte)));
        }
        pusher.await.unwrap();
    }
}
