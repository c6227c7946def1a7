//! A table whose peers restart together, moved tick by tick in virtual time.

use crate::callers::{Asked, Callers};
use crate::eventually;
use crate::healthy::{Healthy, Sent};
use crate::wire::{Dial, Place, Wire};
use peerage::{Builder, Clock, Peer, PeerName, PeerTable, Phase, Removed, Reported};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::thread;
use std::time::{Duration, Instant};

const HEALTHY: usize = 100;
const HOUR: Duration = Duration::from_secs(3600);
const BUCKET: Duration = Duration::from_millis(100);

pub(crate) struct Storm {
    clock: Clock,
    table: PeerTable<Wire>,
    callers: Vec<Callers>,
    healthy: Healthy,
    /// Peers whose callers were told to come again, and when.
    retries: BinaryHeap<Reverse<(Instant, usize)>>,
    /// Peers whose callers wait.
    waiting: usize,
    began: Instant,
    generations_before: u64,
}

/// What a storm was like.
pub(crate) struct Seen {
    /// That restarted.
    pub(crate) peers: usize,
    /// From the restart to the last peer's recovery.
    pub(crate) took: Duration,
    pub(crate) log: Vec<Dial>,
    pub(crate) most_running: usize,
    /// After each tick: connects that ran, and peers whose callers waited.
    pub(crate) ticks: Vec<(usize, usize)>,
    pub(crate) sent: Sent,
    /// Bytes of the process while every caller of every peer that is not dialed waits; where the system says so.
    pub(crate) memory: Option<u64>,
}

impl Storm {
    /// `peers` that are connected and stable, and some more that will stay so.
    pub(crate) fn over(peers: usize, callers: usize, set: impl FnOnce(Builder<Wire>) -> Builder<Wire>) -> Self {
        let clock = Clock::manual();
        let builder = PeerTable::builder(Wire::new(clock.clone())).clock(clock.clone()).seed(7);
        let table = set(builder).build().unwrap();
        let named = (0..peers + HEALTHY).map(|peer| (PeerName::new(&format!("p{peer}")).unwrap(), Place(peer)));
        let mut all = table.insert_many(named).unwrap();
        all.iter().for_each(|peer| assert!(peer.lease().is_err()));
        let ready = |peer: &Peer<Wire>| peer.phase() == Phase::Ready;
        eventually(
            || {
                clock.advance(BUCKET); // a limit of connects per second holds here too
                thread::sleep(Duration::from_millis(1)); // or attempts would be over before their threads have run
                all.iter().all(|peer| ready(peer) || peer.lease().is_ok())
            },
            || "not all connected before the storm".into(),
        );
        clock.advance(HOUR); // stable: earlier failures are forgiven
        let healthy = Healthy::of(all.split_off(peers));
        let callers = all.into_iter().map(|peer| Callers::new(peer, callers)).collect();
        let (retries, began) = (BinaryHeap::new(), clock.now());
        let generations_before = table.snapshot().elections;
        Storm { clock, table, callers, healthy, retries, waiting: 0, began, generations_before }
    }

    /// All restart now, refuse connects for as long as they are `down`, and are connected again.
    pub(crate) fn run(mut self, down: Duration, tick: Duration) -> Seen {
        self.restart(down);
        let (mut left, mut last) = (self.callers.len(), self.began);
        let (mut ticks, mut memory) = (Vec::new(), None);
        while left > 0 {
            self.clock.advance(tick);
            for dial in self.wire().end_due() {
                self.ended(dial);
                left -= usize::from(dial.accepted);
                last = last.max(dial.ends);
            }
            self.ask_again();
            self.settle();
            ticks.push((self.wire().running(), self.waiting));
            if self.clock.now() >= self.began + BUCKET {
                memory.get_or_insert_with(resident);
            }
        }
        let wire = self.wire();
        assert_eq!(wire.doubles(), 0, "a second connect or connection of one peer");
        let (log, most_running) = (wire.log(), wire.most_running());
        let sent = self.healthy.end();
        assert!(self.table.snapshot().peers.iter().all(|peer| peer.phase == Phase::Ready));
        let report = self.table.shutdown(self.clock.now() + HOUR).wait().unwrap();
        assert!(report.is_clean(), "{report:?}");
        Seen {
            peers: self.callers.len(),
            took: last - self.began,
            log,
            most_running,
            ticks,
            sent,
            memory: memory.flatten(),
        }
    }

    fn restart(&mut self, down: Duration) {
        self.wire().restart(self.began + down);
        for (number, callers) in self.callers.iter().enumerate() {
            let generation = callers.peer().generation();
            // Here the native side notices first, there a caller.
            let native = number.is_multiple_of(2) && self.wire().break_connection(number) == Reported::Failed;
            assert_eq!(usize::from(native) + callers.report(generation), 1, "one report is the first");
        }
        eventually(|| self.wire().open() == HEALTHY, || "old connections are not closed".into());
        self.settle();
        (0..self.callers.len()).for_each(|number| self.ask(number));
        self.settle();
    }

    /// A native connect has returned: its callers have its outcome, and ask again if it is a bad one.
    fn ended(&mut self, dial: Dial) {
        assert!(dial.peer < self.callers.len(), "a healthy peer was dialed");
        assert_eq!(self.callers[dial.peer].outcome(), (dial.generation, dial.accepted), "another attempt's outcome");
        self.waiting -= 1;
        if !dial.accepted {
            if dial.peer.is_multiple_of(4) {
                // One that does not wait asks too: the table connects by itself when the backoff is over.
                assert!(self.callers[dial.peer].peer().lease().is_err());
            }
            self.ask(dial.peer);
        }
    }

    fn ask_again(&mut self) {
        let now = self.clock.now();
        while self.retries.peek().is_some_and(|Reverse((at, _))| *at <= now) {
            let Reverse((_, peer)) = self.retries.pop().expect("there is one");
            self.ask(peer);
        }
    }

    fn ask(&mut self, peer: usize) {
        match self.callers[peer].ask() {
            Asked::Waits => self.waiting += 1,
            Asked::BackingOff(until) => self.retries.push(Reverse((until, peer))),
        }
    }

    /// Returns when the driver has done all that it can at this time, and every attempt it started is in its native connect.
    fn settle(&self) {
        // One turn sees what was told, the next one what the timers told; one more for what a held mutex put off.
        for _ in 0..3 {
            let peer = self.table.insert("settle", Place(usize::MAX)).unwrap();
            assert_eq!(peer.remove(self.clock.now() + HOUR).wait(), Ok(Removed::Removed));
        }
        let snapshot = self.table.snapshot();
        let started = snapshot.elections - self.generations_before - snapshot.elections_without_connect;
        let dials = || self.wire().dials() as u64;
        eventually(|| dials() == started, || format!("{} dials for {started} attempts", dials()));
    }

    fn wire(&self) -> &Wire {
        self.table.transport()
    }
}

impl Seen {
    /// Dials in each tenth of a second, from the first one on.
    pub(crate) fn buckets(&self) -> Vec<usize> {
        let first = self.log.iter().map(|dial| dial.at).min().expect("there were dials");
        let bucket = |dial: &Dial| ((dial.at - first).as_nanos() / BUCKET.as_nanos()) as usize;
        let mut buckets = vec![0; self.log.iter().map(bucket).max().map_or(0, |last| last + 1)];
        self.log.iter().for_each(|dial| buckets[bucket(dial)] += 1);
        buckets
    }

    /// The fullest bucket, in means of all.
    pub(crate) fn peak(&self) -> f64 {
        let buckets = self.buckets();
        let fullest = *buckets.iter().max().expect("there were dials");
        (fullest * buckets.len()) as f64 / self.log.len() as f64
    }

    /// Dials of a generation that had been dialed before.
    pub(crate) fn repeated_generations(&self) -> usize {
        let mut seen = HashSet::new();
        self.log.iter().filter(|dial| !seen.insert(dial.generation)).count()
    }

    /// The time that the accepted connects take on `at_once` threads that are never idle.
    pub(crate) fn connecting_on(&self, at_once: usize) -> Duration {
        let accepted = self.log.iter().filter(|dial| dial.accepted);
        accepted.map(|dial| Wire::connect_time(dial.peer)).sum::<Duration>() / at_once as u32
    }
}

#[cfg(target_os = "linux")]
fn resident() -> Option<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse::<u64>().ok()?;
    Some(pages * 4096)
}

#[cfg(not(target_os = "linux"))]
fn resident() -> Option<u64> {
    None
}
