//! The transfers of one peer that are not quiescent: for the drain deadline, for a close that quiesces, for listing, for
//! deadlines of their own, and for telling which of them stand still.
//!
//! Deadlines and stalls are the driver's: it looks when the slot's timer says so, and skips a slot that has neither without
//! a lock. A transfer stands still for as many looks as find no byte moved; a look that comes late counts as one, so a
//! process that was stopped itself suspects nobody.

use crate::cancel::Cancelled;
use crate::quarantine::{Kept, Quarantine};
use crate::sync::{Arc, Mutex, MutexGuard};
use crate::transfer::{Core, TransferId};
use crate::wait::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// In so many looks that find no byte moved a transfer becomes stalled.
const LOOKS: u32 = 4;

#[derive(Default)]
pub(crate) struct InFlight {
    flights: Mutex<Flights>,
    /// How many there are. The limit is kept by any order of read-modify-writes; publishes nothing.
    all: AtomicUsize,
    pub(crate) quarantine: std::sync::Arc<Quarantine>,
    /// How many timers there are. Publishes nothing: who sets one tells the driver.
    timed: AtomicUsize,
    /// Looks for stalls go on. Written under the mutex; read without it by the lane, which whoever begins them tells.
    watched: AtomicBool,
    /// Of each bay. A moment's answer.
    stalled: [AtomicUsize; 2],
}

#[derive(Default)]
struct Flights {
    by_id: HashMap<TransferId, Flight>,
    /// By time, and by a number for those of one time.
    timers: BTreeMap<Timer, Due>,
    timers_set: u64,
    /// The last look for stalls, and the next one.
    looks: Option<(Instant, Instant)>,
}

type Timer = (Instant, u64);

struct Flight {
    bay: usize,
    core: Arc<Core>,
    timers: BTreeSet<Timer>,
    /// What had moved at the last look; `None`: nothing was to be told.
    moved: Option<u64>,
    still_for: Duration,
    stalled: bool,
}

/// Whose deadline has passed.
pub(crate) enum Due {
    /// The transfer's own.
    Transfer(Arc<Core>),
    /// Of somebody who gave it up.
    Cancel(Arc<Core>, Arc<Cell<Cancelled>>),
}

impl Due {
    fn transfer(&self) -> &Core {
        let (Due::Transfer(core) | Due::Cancel(core, _)) = self;
        core
    }
}

impl InFlight {
    /// Counts one more in, unless there are `limit`.
    pub(crate) fn count_in(&self, limit: usize) -> bool {
        let fits = |all: usize| (all < limit).then(|| all + 1);
        self.all.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    pub(crate) fn count_out(&self) {
        self.all.fetch_sub(1, Ordering::Relaxed);
    }

    /// Lists one that was counted in. Answers whether the driver must be told, for its deadline or because it is `watched`
    /// for standing still.
    #[must_use]
    pub(crate) fn add(&self, bay: usize, core: &Arc<Core>, deadline: Option<Instant>, watched: bool) -> bool {
        let mut flights = self.lock();
        let (moved, still_for, stalled) = (None, Duration::ZERO, false);
        let flight = Flight { bay, core: core.clone(), timers: BTreeSet::new(), moved, still_for, stalled };
        flights.by_id.insert(core.id(), flight);
        let is_first = deadline.is_some_and(|at| self.set_timer(&mut flights, at, Due::Transfer(core.clone())));
        // Under the lock, as where the looks end.
        let begins = watched && !self.watched.swap(true, Ordering::Relaxed);
        is_first || begins
    }

    /// Has `cell` answered at the deadline, if nobody has by then. Answers whether the driver must be told. One that is not
    /// listed any more is quiescent, and `cell` resolved or about to be.
    #[must_use]
    pub(crate) fn answer_at(&self, at: Instant, core: &Arc<Core>, cell: &Arc<Cell<Cancelled>>) -> bool {
        let mut flights = self.lock();
        flights.by_id.contains_key(&core.id())
            && self.set_timer(&mut flights, at, Due::Cancel(core.clone(), cell.clone()))
    }

    /// Answers whether it is the first to fire.
    fn set_timer(&self, flights: &mut Flights, at: Instant, due: Due) -> bool {
        flights.timers_set += 1;
        let timer = (at, flights.timers_set);
        if let Some(flight) = flights.by_id.get_mut(&due.transfer().id()) {
            flight.timers.insert(timer);
        }
        flights.timers.insert(timer, due);
        self.timed.store(flights.timers.len(), Ordering::Relaxed);
        flights.timers.first_key_value().is_some_and(|(first, _)| *first == timer)
    }

    pub(crate) fn quarantined(&self, bytes: usize) {
        self.quarantine.enter(Kept::Transfer, bytes);
    }

    /// One that is quiescent; `kept` says how many bytes it held in quarantine, if it did.
    pub(crate) fn remove(&self, id: TransferId, kept: Option<usize>) {
        let mut flights = self.lock();
        let gone = flights.by_id.remove(&id);
        let timers = gone.iter().flat_map(|flight| &flight.timers);
        let due: Vec<_> = timers.filter_map(|timer| flights.timers.remove(timer)).collect();
        self.timed.store(flights.timers.len(), Ordering::Relaxed);
        drop(flights);
        if let Some(flight) = gone.as_ref().filter(|flight| flight.stalled) {
            self.stalled[flight.bay].fetch_sub(1, Ordering::Relaxed);
            flight.core.set_stalled(false);
        }
        drop((gone, due));
        if let Some(bytes) = kept {
            self.quarantine.leave(Kept::Transfer, bytes);
        }
    }

    /// Those of one bay, the oldest first.
    pub(crate) fn of_bay(&self, bay: usize) -> Vec<Arc<Core>> {
        let flights = self.lock();
        let mut of_bay: Vec<_> =
            flights.by_id.values().filter(|flight| flight.bay == bay).map(|flight| flight.core.clone()).collect();
        drop(flights);
        of_bay.sort_by_key(|core| core.id());
        of_bay
    }

    /// What time has brought: whose deadlines have passed, in their order; and which transfers stand still, if that is
    /// looked for.
    pub(crate) fn look(&self, now: Instant, stalled_after: Option<Duration>) -> Vec<Due> {
        let mut due = Vec::new();
        let watched = stalled_after.filter(|_| self.watched.load(Ordering::Relaxed));
        if watched.is_none() && self.timed.load(Ordering::Relaxed) == 0 {
            return due;
        }
        let mut flights = self.lock();
        while let Some(first) = flights.timers.first_entry().filter(|first| first.key().0 <= now) {
            let (timer, is_due) = first.remove_entry();
            if let Some(flight) = flights.by_id.get_mut(&is_due.transfer().id()) {
                flight.timers.remove(&timer);
            }
            due.push(is_due);
        }
        self.timed.store(flights.timers.len(), Ordering::Relaxed);
        if let Some(after) = watched {
            self.look_for_stalls(&mut flights, now, after);
        }
        due
    }

    fn look_for_stalls(&self, flights: &mut Flights, now: Instant, after: Duration) {
        if flights.by_id.is_empty() {
            flights.looks = None;
            self.watched.store(false, Ordering::Relaxed);
            return;
        }
        let interval = interval(after);
        let passed = match flights.looks {
            Some((_, next)) if now < next => return,
            Some((last, _)) => interval.min(now - last),
            None => Duration::ZERO,
        };
        flights.looks = Some((now, now + interval));
        for flight in flights.by_id.values_mut() {
            let last = std::mem::replace(&mut flight.moved, flight.core.moved());
            let still = flight.moved.is_some() && flight.moved == last;
            flight.still_for = if still { flight.still_for + passed } else { Duration::ZERO };
            let stalled = still && flight.still_for >= after;
            if std::mem::replace(&mut flight.stalled, stalled) != stalled {
                flight.core.set_stalled(stalled);
                match stalled {
                    true => self.stalled[flight.bay].fetch_add(1, Ordering::Relaxed),
                    false => self.stalled[flight.bay].fetch_sub(1, Ordering::Relaxed),
                };
            }
        }
    }

    /// When [`look`](Self::look) has something to do.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        if !self.watched.load(Ordering::Relaxed) && self.timed.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let flights = self.lock();
        let timer = flights.timers.first_key_value().map(|((at, _), _)| *at);
        timer.into_iter().chain(flights.looks.map(|(_, next)| next)).min()
    }

    /// Nobody will look any more: everything that waits for its time.
    pub(crate) fn take_timers(&self) -> Vec<Due> {
        std::mem::take(&mut self.lock().timers).into_values().collect()
    }

    /// How many run, and how many have ended for their caller but hold their pages. A moment's answer, without a lock.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let quarantined = self.quarantine.counts().transfers as usize;
        (self.all.load(Ordering::Relaxed).saturating_sub(quarantined), quarantined)
    }

    /// How many of a bay stand still.
    pub(crate) fn stalled(&self, bay: usize) -> usize {
        self.stalled[bay].load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Flights> {
        self.flights.lock()
    }
}

impl fmt::Debug for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InFlight").field(&self.counts()).finish()
    }
}

/// Between two looks.
fn interval(stalled_after: Duration) -> Duration {
    (stalled_after / LOOKS).max(Duration::from_millis(1))
}

#[cfg(all(test, not(peerage_loom)))]
mod tests {
    use super::*;
    use crate::region::Region;
    use crate::transfer::{Post, RemoteSlice, Transfer, TransferKind};

    const SECOND: Duration = Duration::from_secs(1);

    fn post() -> (Post, Transfer) {
        let remote = RemoteSlice { grant: 1, region: 1, offset: 0, len: 8 };
        Post::standalone(TransferKind::Write, Region::zeroed(8).slice(0..8).unwrap(), remote)
    }

    #[test]
    fn no_more_are_counted_in_than_the_limit_until_one_is_counted_out() {
        let in_flight = InFlight::default();
        assert!(!in_flight.count_in(0));
        assert!(in_flight.count_in(2) && in_flight.count_in(2));
        assert!(!in_flight.count_in(2) && !in_flight.count_in(1));
        assert_eq!(in_flight.counts(), (2, 0));
        in_flight.count_out();
        assert!(in_flight.count_in(2));
    }

    #[test]
    fn what_is_in_quarantine_is_counted_apart_until_it_is_removed() {
        let in_flight = InFlight::default();
        let ids = [(); 3].map(|()| {
            assert!(in_flight.count_in(usize::MAX));
            post().1.id()
        });
        in_flight.quarantined(8);
        in_flight.quarantined(8);
        assert_eq!(in_flight.counts(), (1, 2));
        assert_eq!(format!("{in_flight:?}"), "InFlight((1, 2))");
        in_flight.remove(ids[0], Some(8));
        in_flight.remove(ids[2], None);
        assert_eq!((in_flight.counts().1, in_flight.quarantine.counts().bytes), (1, 8));
    }

    #[test]
    fn the_transfers_of_a_bay_are_listed_the_oldest_first_until_they_are_removed() {
        let in_flight = InFlight::default();
        let cores = [(); 9].map(|()| post().1.core().clone());
        for (at, core) in cores.iter().enumerate() {
            assert!(!in_flight.add(at % 2, core, None, false));
        }
        let listed = |bay| in_flight.of_bay(bay).iter().map(|core| core.id()).collect::<Vec<_>>();
        assert_eq!(listed(0), [0, 2, 4, 6, 8].map(|at: usize| cores[at].id()));
        assert_eq!(listed(1), [1, 3, 5, 7].map(|at: usize| cores[at].id()));
        in_flight.remove(cores[3].id(), None);
        assert_eq!(listed(1), [1, 5, 7].map(|at: usize| cores[at].id()));
    }

    #[test]
    fn deadlines_pass_in_their_order_and_leave_with_their_transfer() {
        // fails if: a transfer that is over leaves its timer, and with it its pages; or a timer that has fired its time.
        let (in_flight, now) = (InFlight::default(), Instant::now());
        let at = |seconds: u32| Some(now + SECOND * seconds);
        let cores = [(); 4].map(|()| post().1.core().clone());
        assert!(in_flight.add(0, &cores[0], at(3), false), "it is the first");
        assert!(!in_flight.add(0, &cores[1], at(4), false));
        assert!(in_flight.add(0, &cores[2], at(1), false));
        assert!(!in_flight.add(0, &cores[3], None, false));
        let cell = Arc::new(Cell::new());
        assert!(!in_flight.answer_at(now + 2 * SECOND, &cores[3], &cell));
        in_flight.remove(cores[0].id(), None);
        assert_eq!((in_flight.next_look(), in_flight.look(now, None).len()), (at(1), 0));
        let due = in_flight.look(now + 5 * SECOND, None);
        assert!(matches!(&due[..], [Due::Transfer(first), Due::Cancel(second, _), Due::Transfer(third)]
            if (first.id(), second.id(), third.id()) == (cores[2].id(), cores[3].id(), cores[1].id())));
        assert_eq!(in_flight.next_look(), None);
        assert!(
            in_flight.lock().by_id.values().all(|flight| flight.timers.is_empty()),
            "one that has fired leaves nothing"
        );
        in_flight.remove(cores[3].id(), None);
        assert!(!in_flight.answer_at(now, &cores[3], &cell), "it is quiescent, and has said so");
        assert!(in_flight.take_timers().is_empty());
    }

    #[test]
    fn one_that_has_begun_stands_still_after_so_many_looks_and_moves_again() {
        // fails if: waiting for its turn counts as standing still, or one late look as many.
        let (in_flight, begin) = (InFlight::default(), Instant::now());
        let (post, transfer) = post();
        let mut now = begin;
        let mut look = |passes: Duration| {
            now += passes;
            assert!(in_flight.look(now, Some(SECOND)).is_empty());
            (in_flight.stalled(1), transfer.is_stalled())
        };
        assert!(in_flight.add(1, transfer.core(), None, true));
        assert!(!in_flight.add(0, self::post().1.core(), None, true), "it is looked already");
        post.completion.waits();
        assert_eq!([(); 9].map(|()| look(SECOND / 4)), [(0, false); 9]);
        assert!(post.completion.begins());
        assert_eq!([(); 4].map(|()| look(SECOND / 4)), [(0, false); 4]);
        assert_eq!(look(SECOND / 4), (1, true));
        post.completion.progress(1);
        assert_eq!(look(SECOND / 4), (0, false));
        assert_eq!(look(3600 * SECOND), (0, false), "an hour is one look");
        assert_eq!([(); 2].map(|()| look(SECOND / 4)), [(0, false); 2]);
        assert_eq!(look(SECOND / 4), (1, true));
        for moved in 2..20 {
            post.completion.progress(moved);
            assert_eq!([(); 3].map(|()| look(SECOND / 4)), [(0, false); 3], "slow progress is progress");
        }
        look(SECOND / 4);
        assert_eq!(look(SECOND / 4), (1, true));
        in_flight.remove(transfer.id(), None);
        assert_eq!((in_flight.stalled(1), transfer.is_stalled()), (0, false));
    }

    #[test]
    fn looks_end_when_nothing_is_in_flight_and_begin_with_the_next_transfer() {
        let (in_flight, now) = (InFlight::default(), Instant::now());
        let [first, second] = [(); 2].map(|()| post().1);
        assert!(in_flight.add(0, first.core(), None, true));
        in_flight.look(now, Some(SECOND));
        assert_eq!(in_flight.next_look(), Some(now + SECOND / 4));
        in_flight.remove(first.id(), None);
        in_flight.look(now + SECOND, Some(SECOND));
        assert_eq!(in_flight.next_look(), None);
        assert!(in_flight.add(0, second.core(), None, true));
    }
}
