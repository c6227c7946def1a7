//! Every transition of every peer, told to whoever subscribed.
//!
//! - A transition is put into each subscription's queue under its peer's mutex, by `write_record`: so per peer the queue has
//!   the order of the transitions. It is one clone of a name and one move, under leaf locks; the queue was made with its full
//!   capacity. Wakers, which are other people's code, run after unlock.
//! - A full queue gives up its oldest entry and counts it: nobody waits for a reader, and a reader that comes late finds the
//!   newest.
//! - Subscriptions are numbered, and begin one at a time. A new one is listed first; then it visits each peer under that
//!   peer's mutex, takes its newest transition and leaves its number there. A peer tells only subscriptions up to the number
//!   it has: what came before the visit is in the answer of the visit, what comes after is told, nothing twice.
//! - A peer that is being inserted takes the newest number when it gets its first record. If a subscription is listed later
//!   than that look, its visit comes later too, and finds the peer; a visit that finds its own number there has been told.

use crate::clock::Clock;
use crate::fork::Process;
use crate::history::Transition;
use crate::name::{PeerId, PeerName};
use crate::slow::locked;
use crate::sync::{came_through, lock};
use crate::table::PeerTable;
use crate::transport::Transport;
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// How many transitions may wait for one reader: an outage of hundreds of peers at once, in little memory.
const CAPACITY: usize = 1024;

/// What a subscription hears.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Where a peer stood when the subscription began: once for each, before anything else.
    Current(Change),
    /// A peer's next transition, of its phase or generation. One that is inserted later begins with Idle.
    Changed(Change),
    /// The reader was too slow: so many transitions were dropped, the oldest ones, which would have come next. What they
    /// led to is in [`PeerTable::snapshot`].
    Missed(u64),
}

/// A peer and its transition.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The peer's name.
    pub name: PeerName,
    /// Its id, which tells it from an earlier or later peer of that name.
    pub id: PeerId,
    /// What changed, why, and when.
    pub transition: Transition,
}

/// A subscription to a table's transitions: first every peer's current state, then each transition of each peer once and
/// in its order. (Between peers there is no order.) Does not keep the table alive; ends when the table does. Dropping it
/// ends the subscription.
pub struct Events {
    current: VecDeque<Change>,
    feed: Arc<Feed>,
    hub: Weak<Hub>,
    clock: Clock,
}

impl<T: Transport> PeerTable<T> {
    /// Subscribes to every peer's transitions. At most 1,024 wait for the reader: a slow one is told how many it
    /// [missed](Event::Missed), and nobody ever waits for it. Takes the mutex of each peer in turn; a table that was never
    /// subscribed to pays nothing. In a forked child the subscription has ended, also one from before the fork.
    ///
    /// ```
    /// # use peerage::{Event, PeerTable, Transport};
    /// # use std::time::Instant;
    /// fn log_until<T: Transport>(table: &PeerTable<T>, deadline: Instant) {
    ///     let mut events = table.events();
    ///     while let Some(event) = events.recv(deadline) {
    ///         match event {
    ///             Event::Changed(change) => println!("{}: {}", change.name, change.transition.phase),
    ///             Event::Missed(many) => println!("{many} transitions missed"),
    ///             _ => {}
    ///         }
    ///     }
    /// }
    /// ```
    pub fn events(&self) -> Events {
        let shared = self.shared();
        if !shared.is_here() {
            let feed = Arc::new(Feed::new(0, 0));
            lock(&feed.queue).ended = true;
            return Events { current: VecDeque::new(), feed, hub: Weak::new(), clock: shared.clock.clone() };
        }
        let mut current = VecDeque::new();
        let feed = shared.hub.subscribe(CAPACITY, |number| {
            let slots = shared.slab.lives();
            current.extend(slots.filter_map(|slot| locked(&slot, |lane| lane.follow(number))));
        });
        Events { current, feed, hub: Arc::downgrade(&shared.hub), clock: shared.clock.clone() }
    }
}

impl Events {
    /// The next event if there is one. Never waits.
    pub fn try_recv(&mut self) -> Option<Event> {
        if self.is_elsewhere() {
            return None;
        }
        self.current.pop_front().map(Event::Current).or_else(|| lock(&self.feed.queue).pop())
    }

    /// Blocks this thread for the next event; `None` if `deadline` (by the table's clock) passes first, or at the
    /// [end](Self::is_ended). Not for a table's own threads, which would wait for themselves.
    pub fn recv(&mut self, deadline: Instant) -> Option<Event> {
        if self.is_elsewhere() {
            return None;
        }
        if let Some(change) = self.current.pop_front() {
            return Some(Event::Current(change));
        }
        let mut queue = lock(&self.feed.queue);
        loop {
            if let Some(event) = queue.pop() {
                return Some(event);
            }
            if queue.ended {
                return None;
            }
            let left = self.clock.real_wait_until(deadline)?;
            queue = self.feed.arrived.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits for the next event on any runtime; `None` at the [end](Self::is_ended). Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Event> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// The same for a hand-written future or stream.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        if self.is_elsewhere() {
            return Poll::Ready(None);
        }
        if let Some(change) = self.current.pop_front() {
            return Poll::Ready(Some(Event::Current(change)));
        }
        let waker = cx.waker().clone(); // other people's code: before the lock
        let mut queue = lock(&self.feed.queue);
        if let Some(event) = queue.pop() {
            return Poll::Ready(Some(event));
        }
        if queue.ended {
            return Poll::Ready(None);
        }
        let old = queue.waker.replace(waker);
        drop(queue);
        drop(old);
        Poll::Pending
    }

    /// The events that are there, without waiting for more.
    pub fn try_iter(&mut self) -> impl Iterator<Item = Event> + '_ {
        std::iter::from_fn(|| self.try_recv())
    }

    /// The events until `deadline`, blocking this thread as [`recv`](Self::recv) does.
    pub fn iter_until(&mut self, deadline: Instant) -> impl Iterator<Item = Event> + '_ {
        std::iter::from_fn(move || self.recv(deadline))
    }

    /// Whether the table is gone: its last handle is dropped and nothing of it is in use. What waits can still be received.
    pub fn is_ended(&self) -> bool {
        self.is_elsewhere() || lock(&self.feed.queue).ended
    }

    fn is_elsewhere(&self) -> bool {
        !self.feed.process.is_this()
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        if self.is_elsewhere() {
            return;
        }
        if let Some(hub) = self.hub.upgrade() {
            hub.forget(&self.feed);
        }
        let waker = lock(&self.feed.queue).waker.take();
        drop(waker);
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queued = if self.is_elsewhere() { 0 } else { lock(&self.feed.queue).changes.len() };
        let waiting = self.current.len() + queued;
        f.debug_struct("Events").field("waiting", &waiting).finish_non_exhaustive()
    }
}

/// A table's subscriptions.
#[derive(Default)]
pub(crate) struct Hub {
    /// Held while one begins.
    subscribing: Mutex<()>,
    feeds: Mutex<Feeds>,
}

#[derive(Default)]
struct Feeds {
    list: Vec<Arc<Feed>>,
    /// The newest subscription's number; 0 if there was none yet.
    newest: u64,
}

/// One subscription.
struct Feed {
    process: Process,
    number: u64,
    queue: Mutex<Queue>,
    arrived: Condvar,
}

impl Feed {
    fn new(number: u64, capacity: usize) -> Self {
        let changes = VecDeque::with_capacity(capacity);
        let queue = Queue { changes, capacity, missed: 0, ended: false, waker: None };
        Feed { process: Process::this(), number, queue: Mutex::new(queue), arrived: Condvar::new() }
    }
}

struct Queue {
    changes: VecDeque<Change>,
    capacity: usize,
    missed: u64,
    ended: bool,
    waker: Option<Waker>,
}

impl Hub {
    /// Lists a subscription, then lets `visit` take it to every peer.
    fn subscribe(&self, capacity: usize, visit: impl FnOnce(u64)) -> Arc<Feed> {
        let _one_at_a_time = lock(&self.subscribing);
        let (number, others) = {
            let feeds = lock(&self.feeds);
            (feeds.newest + 1, feeds.list.len())
        };
        let feed = Arc::new(Feed::new(number, capacity));
        let mut list = Vec::with_capacity(others + 1); // before the lock, which a peer's transition may wait for
        {
            let mut feeds = lock(&self.feeds);
            list.append(&mut feeds.list);
            list.push(feed.clone());
            std::mem::swap(&mut feeds.list, &mut list);
            feeds.newest = number;
        }
        visit(number);
        feed
    }

    /// Up to which subscription a peer tells that gets its first record now.
    pub(crate) fn newest(&self) -> u64 {
        lock(&self.feeds).newest
    }

    /// Puts a transition into the queue of each subscription up to number `told`. Under the peer's mutex: wakes nobody.
    pub(crate) fn tell(&self, told: u64, change: &Change) {
        for feed in lock(&self.feeds).list.iter().filter(|feed| feed.number <= told) {
            lock(&feed.queue).push(change.clone());
        }
    }

    /// Wakes every reader that has something to read. After unlock.
    pub(crate) fn wake(&self) {
        lock(&self.feeds).list.iter().for_each(|feed| feed.arrived.notify_all());
        while let Some(waker) = self.next_waker() {
            came_through(|| waker.wake());
        }
    }

    fn next_waker(&self) -> Option<Waker> {
        let feeds = lock(&self.feeds);
        feeds.list.iter().find_map(|feed| {
            let mut queue = lock(&feed.queue);
            let has_news = queue.ended || !queue.changes.is_empty();
            queue.waker.take_if(|_| has_news)
        })
    }

    fn forget(&self, feed: &Arc<Feed>) {
        let mut feeds = lock(&self.feeds);
        let at = feeds.list.iter().position(|listed| Arc::ptr_eq(listed, feed));
        let listed = at.map(|at| feeds.list.swap_remove(at));
        drop(feeds);
        drop(listed);
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        lock(&self.feeds).list.iter().for_each(|feed| lock(&feed.queue).ended = true);
        self.wake();
    }
}

impl Queue {
    fn push(&mut self, change: Change) {
        if self.changes.len() == self.capacity {
            self.changes.pop_front();
            self.missed += 1;
        }
        self.changes.push_back(change);
    }

    fn pop(&mut self) -> Option<Event> {
        match std::mem::take(&mut self.missed) {
            0 => self.changes.pop_front().map(Event::Changed),
            missed => Some(Event::Missed(missed)),
        }
    }
}

#[cfg(all(test, not(peerage_loom)))]
mod tests {
    use super::*;
    use crate::error::Reason;
    use crate::state::{Generation, Phase};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    fn change(generation: u64) -> Change {
        let (phase, reason) = (Phase::Failed, Reason::TimedOut);
        let generation = Generation(generation);
        let transition = Transition { before: None, lasted: None, phase, generation, reason, since: Instant::now() };
        Change { name: PeerName::new("p").unwrap(), id: PeerId::from_bits(0), transition }
    }

    fn subscribed(hub: &Arc<Hub>, capacity: usize) -> Events {
        let feed = hub.subscribe(capacity, |_| ());
        Events { current: VecDeque::new(), feed, hub: Arc::downgrade(hub), clock: Clock::system() }
    }

    /// Generations, and minus the number of what was missed.
    fn heard(events: &mut Events) -> Vec<i64> {
        let number = |event| match event {
            Event::Changed(change) => change.transition.generation.0 as i64,
            Event::Missed(many) => -(many as i64),
            Event::Current(_) => panic!("there was no peer"),
        };
        events.try_iter().map(number).collect()
    }

    #[test]
    fn a_full_queue_gives_up_its_oldest_and_says_how_many() {
        let hub = Arc::new(Hub::default());
        let (mut slow, mut fast) = (subscribed(&hub, 3), subscribed(&hub, 3));
        let room = lock(&slow.feed.queue).changes.capacity();
        for generation in 1..=8 {
            hub.tell(2, &change(generation));
            assert_eq!(heard(&mut fast), [generation as i64]);
        }
        assert_eq!(heard(&mut slow), [-5, 6, 7, 8]);
        hub.tell(2, &change(9));
        assert_eq!(heard(&mut slow), [9], "told once");
        assert_eq!(lock(&slow.feed.queue).changes.capacity(), room);
    }

    #[test]
    fn a_peer_tells_only_the_subscriptions_that_have_visited_it() {
        let hub = Arc::new(Hub::default());
        let (mut first, mut second) = (subscribed(&hub, 3), subscribed(&hub, 3));
        hub.tell(1, &change(7));
        assert_eq!((heard(&mut first), heard(&mut second)), (vec![7], vec![]));
        assert_eq!(hub.newest(), 2);
    }

    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    struct Bombs;
    impl Wake for Bombs {
        fn wake(self: Arc<Self>) {
            std::panic::resume_unwind(Box::new(()));
        }
    }

    #[test]
    fn who_waits_is_woken_once_for_news_and_for_the_end_past_one_whose_waker_panics() {
        let hub = Arc::new(Hub::default());
        let (mut bad, mut good) = (subscribed(&hub, 3), subscribed(&hub, 3));
        let woken = Arc::new(Count(AtomicUsize::new(0)));
        let waker = Waker::from(woken.clone());
        let mut cx = Context::from_waker(&waker);
        assert!(bad.poll_next(&mut Context::from_waker(&Waker::from(Arc::new(Bombs)))).is_pending());
        assert!(good.poll_next(&mut cx).is_pending());
        hub.wake();
        assert_eq!(woken.0.load(Ordering::SeqCst), 0, "there is nothing");
        hub.tell(2, &change(1));
        (0..2).for_each(|_| hub.wake());
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);
        assert!(matches!(good.poll_next(&mut cx), Poll::Ready(Some(Event::Changed(_)))));
        assert!(good.poll_next(&mut cx).is_pending());
        drop(hub);
        assert_eq!(woken.0.load(Ordering::SeqCst), 2);
        assert_eq!((good.poll_next(&mut cx), good.is_ended()), (Poll::Ready(None), true));
    }

    #[test]
    fn a_dropped_subscription_is_forgotten_and_its_waker_with_it() {
        let hub = Arc::new(Hub::default());
        let mut events = subscribed(&hub, 3);
        let woken = Arc::new(Count(AtomicUsize::new(0)));
        assert!(events.poll_next(&mut Context::from_waker(&Waker::from(woken.clone()))).is_pending());
        drop(events);
        assert!(lock(&hub.feeds).list.is_empty());
        assert_eq!(Arc::strong_count(&woken), 1);
    }
}
