//! Messages from whoever connected to us, in one queue with a bound per source.
//!
//! Each inbound connection is a [`Source`] with its own credits, so a peer that floods fills its own share and stops being
//! read, while everybody else's messages go on.

mod notification;
mod source;
mod waiting;

pub use notification::Notification;
pub use source::Source;

use crate::clock::Clock;
use crate::fork::Process;
use crate::sync::lock;
use source::{Credits, taken};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;
use waiting::{Waiting, wake};

/// The receiving end. Clones share one queue: each message goes to one of them. In a forked child it is closed and empty: what
/// is queued is for the parent.
#[derive(Clone)]
pub struct Inbox {
    shared: Arc<Shared>,
    clock: Clock,
}

struct Shared {
    process: Process,
    queue: Mutex<Queue>,
    arrived: Condvar,
}

#[derive(Default)]
struct Queue {
    messages: VecDeque<(Arc<Credits>, Notification)>,
    /// Of all messages.
    bytes: usize,
    receivers: Waiting,
    /// Threads in [`Inbox::recv`]: to wake none costs a system call, too.
    blocked: usize,
    closed: bool,
}

impl Queue {
    fn pop(&mut self) -> Option<(Arc<Credits>, Notification)> {
        let next = self.messages.pop_front()?;
        self.bytes -= next.1.bytes.len();
        Some(next)
    }
}

impl Inbox {
    /// An empty one.
    pub fn new(clock: Clock) -> Self {
        let shared = Shared { process: Process::this(), queue: Mutex::default(), arrived: Condvar::new() };
        Inbox { shared: Arc::new(shared), clock }
    }

    /// The next message if there is one. Never waits.
    pub fn try_recv(&self) -> Option<Notification> {
        let next = self.queue()?.pop();
        next.map(taken)
    }

    /// Blocks this thread for the next message; `None` if the deadline (by the table's clock) passes first, or if the inbox is closed and empty.
    pub fn recv(&self, deadline: Instant) -> Option<Notification> {
        let mut queue = self.queue()?;
        loop {
            if let Some(next) = queue.pop() {
                drop(queue);
                return Some(taken(next));
            }
            if queue.closed {
                return None;
            }
            let left = self.clock.real_wait_until(deadline)?;
            queue.blocked += 1;
            queue = self.shared.arrived.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
            queue.blocked -= 1;
        }
    }

    /// Waits for the next message on any runtime; `None` once the inbox is closed and empty. Dropping the future loses nothing.
    pub async fn next(&self) -> Option<Notification> {
        Next { shared: &self.shared, turn: None }.await
    }

    /// No message will come any more: receivers get what is queued, then `None`. For transports, when they end.
    pub fn close(&self) {
        let Some(mut queue) = self.queue() else { return };
        queue.closed = true;
        let receivers = queue.receivers.take();
        drop(queue);
        self.shared.arrived.notify_all();
        wake(receivers);
    }

    /// For transports: one inbound connection, which may have `capacity` messages waiting, and no more than 1 MiB of them
    /// unless it is a single one.
    pub fn source(&self, capacity: usize) -> Source {
        Source::new(self.shared.clone(), capacity)
    }

    /// Whether no message will come any more. What is queued can still be received.
    pub fn is_closed(&self) -> bool {
        self.queue().is_none_or(|queue| queue.closed)
    }

    /// How many messages wait.
    pub fn len(&self) -> usize {
        self.queue().map_or(0, |queue| queue.messages.len())
    }

    /// How many bytes they have.
    pub fn bytes(&self) -> usize {
        self.queue().map_or(0, |queue| queue.bytes)
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn queue(&self) -> Option<MutexGuard<'_, Queue>> {
        self.shared.queue()
    }
}

impl Shared {
    /// `None` in a forked child.
    fn queue(&self) -> Option<MutexGuard<'_, Queue>> {
        self.process.is_this().then(|| lock(&self.queue))
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").field("len", &self.len()).finish_non_exhaustive()
    }
}

struct Next<'a> {
    shared: &'a Shared,
    turn: Option<u64>,
}

impl Future for Next<'_> {
    type Output = Option<Notification>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Notification>> {
        let waker = cx.waker().clone(); // other people's code: before the lock
        let Some(mut queue) = self.shared.queue() else { return Poll::Ready(None) };
        if let Some(next) = queue.pop() {
            drop(queue);
            return Poll::Ready(Some(taken(next)));
        }
        if queue.closed {
            return Poll::Ready(None);
        }
        let old = queue.receivers.wait(&mut self.turn, waker);
        drop(queue);
        drop(old);
        Poll::Pending
    }
}

impl Drop for Next<'_> {
    fn drop(&mut self) {
        let old = self.shared.queue().and_then(|mut queue| queue.receivers.leave(self.turn));
        drop(old);
    }
}

#[cfg(test)]
mod tests {
    use super::source::SOURCE_BYTES;
    use super::*;
    use crate::name::PeerName;
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};
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
    fn a_source_may_have_a_mebibyte_waiting_or_one_message() {
        let inbox = Inbox::new(Clock::system());
        let source = inbox.source(100);
        let of = |len| Notification::new(PeerName::new("p").unwrap(), None, None, vec![0; len]);
        source.try_push(of(2 * SOURCE_BYTES)).unwrap();
        assert!(source.try_push(of(1)).is_err());
        assert_eq!(inbox.bytes(), 2 * SOURCE_BYTES);
        inbox.try_recv().unwrap();
        source.try_push(of(SOURCE_BYTES / 2)).unwrap();
        source.try_push(of(SOURCE_BYTES / 2)).unwrap();
        assert!(source.try_push(of(1)).is_err());
        assert_eq!((inbox.try_recv().is_some(), inbox.bytes()), (true, SOURCE_BYTES / 2));
        source.try_push(of(1)).unwrap();
    }

    /// fails if: who sends takes a blocked receiver for none, or counts it after it has left.
    #[test]
    fn a_thread_that_is_blocked_for_a_message_is_woken_by_it() {
        let inbox = Inbox::new(Clock::system());
        let source = inbox.source(2);
        let blocked = || inbox.shared.queue().map(|queue| queue.blocked);
        let (said, heard) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| said.send(inbox.recv(Instant::now() + Duration::from_secs(3600))).unwrap());
            }
            while blocked() != Some(2) {
                std::thread::yield_now();
            }
            for byte in 1..=2 {
                source.try_push(message(byte)).unwrap();
            }
            let got = [(); 2].map(|()| heard.recv_timeout(Duration::from_secs(60)));
            inbox.close(); // ends what nothing has woken
            assert!(got.iter().all(|message| matches!(message, Ok(Some(_)))), "{got:?}");
        });
        assert_eq!(blocked(), Some(0));
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

    /// Counts wake-ups, or panics at each.
    #[derive(Default)]
    struct Woken {
        times: AtomicUsize,
        panics: bool,
    }

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.times.fetch_add(1, Ordering::SeqCst);
            assert!(!self.panics, "a waker that panics");
        }
    }

    fn poll_once<F: Future>(future: Pin<&mut F>, woken: &Arc<Woken>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(&Waker::from(woken.clone())))
    }

    #[test]
    fn a_receiver_that_is_dropped_leaves_nothing_in_an_idle_inbox() {
        let inbox = Inbox::new(Clock::system());
        let tasks: Vec<_> = (0..1000).map(|_| Arc::<Woken>::default()).collect();
        let stays = Arc::<Woken>::default();
        let mut next = pin!(inbox.next());
        assert!(poll_once(next.as_mut(), &stays).is_pending());
        for task in &tasks {
            assert!(poll_once(pin!(inbox.next()), task).is_pending());
        }
        assert!(tasks.iter().all(|task| Arc::strong_count(task) == 1), "no task is kept");
        inbox.source(1).try_push(message(1)).unwrap();
        assert_eq!(stays.times.load(Ordering::SeqCst), 1);
        assert_eq!(poll_once(next, &stays), Poll::Ready(Some(message(1))));
        assert!(tasks.iter().all(|task| task.times.load(Ordering::SeqCst) == 0));
    }

    #[test]
    fn a_pusher_that_is_dropped_leaves_nothing_in_a_full_source() {
        let inbox = Inbox::new(Clock::system());
        let (source, task) = (inbox.source(1), Arc::<Woken>::default());
        source.try_push(message(1)).unwrap();
        assert!(poll_once(pin!(source.push(message(2))), &task).is_pending());
        assert_eq!(Arc::strong_count(&task), 1);
    }

    #[test]
    fn a_waker_that_panics_harms_neither_the_sender_nor_another_receiver() {
        let inbox = Inbox::new(Clock::system());
        let source = inbox.source(1);
        let bad = Arc::new(Woken { panics: true, ..Woken::default() });
        let good = Arc::<Woken>::default();
        let (mut first, mut second) = (pin!(inbox.next()), pin!(inbox.next()));
        assert!(poll_once(first.as_mut(), &bad).is_pending());
        assert!(poll_once(second.as_mut(), &good).is_pending());
        source.try_push(message(1)).unwrap();
        assert_eq!((bad.times.load(Ordering::SeqCst), good.times.load(Ordering::SeqCst)), (1, 1));

        let mut push = pin!(source.push(message(2)));
        assert!(poll_once(push.as_mut(), &bad).is_pending());
        assert_eq!(inbox.try_recv(), Some(message(1)), "the pusher's waker panics on the receiver's thread");
        assert!(poll_once(push, &good).is_ready());
        assert_eq!(inbox.try_recv(), Some(message(2)));
        assert!(poll_once(first.as_mut(), &bad).is_pending());
        assert!(poll_once(second.as_mut(), &good).is_pending());
        inbox.close();
        assert_eq!((bad.times.load(Ordering::SeqCst), good.times.load(Ordering::SeqCst)), (3, 2));
    }

    #[tokio::test]
    async fn several_pushers_of_one_source_all_get_through() {
        let inbox = Inbox::new(Clock::system());
        let source = Arc::new(inbox.source(1));
        let pushers: Vec<_> = (0..10)
            .map(|byte| {
                let source = source.clone();
                tokio::spawn(async move { source.push(message(byte)).await })
            })
            .collect();
        for _ in 0..10 {
            let next = tokio::time::timeout(Duration::from_secs(30), inbox.next()).await;
            assert!(next.expect("no pusher is forgotten").is_some());
        }
        for pusher in pushers {
            pusher.await.unwrap();
        }
    }
}
