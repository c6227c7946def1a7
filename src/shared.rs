//! What all parts of one table share. Nothing here is on the path of a granted lease but the queue's head, which the last
//! one out of a closed gate touches.

use crate::builder::Config;
use crate::clock::Clock;
use crate::connects::Connects;
use crate::counters::Counters;
use crate::events::Hub;
use crate::fork::Process;
use crate::grant;
use crate::latest::Latest;
use crate::local_faults::LocalFaults;
use crate::name::PeerId;
use crate::names::Names;
use crate::policy::Breaker;
use crate::pool::{Job, Pool};
use crate::probe::ProbeRequest;
use crate::queue::Queue;
use crate::region::RegionId;
use crate::registration::Registration;
use crate::shutdown::ShutdownRequest;
use crate::slab::Slab;
use crate::slot::{Slot, SlotRef};
use crate::state::Generation;
use crate::sync::{AtomicBool, Mutex};
use crate::transport::{Capabilities, CloseReason, Transport};
use rpds::HashTrieMapSync;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

pub(crate) struct Shared<T: Transport> {
    /// The only one that may use the table.
    process: Process,
    pub(crate) transport: Arc<T>,
    pub(crate) capabilities: Capabilities,
    pub(crate) config: Config,
    pub(crate) clock: Clock,
    pub(crate) names: Names<T>,
    pub(crate) slab: Slab<T>,
    pub(crate) queue: Queue<Slot<T>>,
    pub(crate) connectors: Arc<Pool>,
    pub(crate) closers: Arc<Pool>,
    /// Closes for removed peers.
    pub(crate) last_closers: Arc<Pool>,
    /// Asks peers: one that does not answer must not hold up a close.
    pub(crate) probers: Arc<Pool>,
    /// Asks peers for their heartbeats: they need no place among the probes that somebody waits for.
    pub(crate) beaters: Arc<Pool>,
    /// Ends tables: a close that hangs must not hold up a shutdown.
    pub(crate) enders: Arc<Pool>,
    pub(crate) connects: Connects,
    pub(crate) counters: Counters,
    pub(crate) hub: Arc<Hub>,
    /// Probes that the driver has not seen yet.
    pub(crate) probes: Mutex<Vec<ProbeRequest>>,
    pub(crate) probes_running: AtomicUsize,
    /// Held while the transport registers or deregisters, so that its answer and the list agree.
    pub(crate) registering: Mutex<()>,
    pub(crate) registered: Latest<HashTrieMapSync<RegionId, Registration>>,
    /// Grants that are not quiesced.
    pub(crate) lent: Mutex<HashMap<u128, Arc<grant::Core>>>,
    pub(crate) shutdown: Mutex<Vec<ShutdownRequest>>,
    /// The last table handle is gone.
    pub(crate) abandoned: AtomicBool,
    pub(crate) driver_died: AtomicBool,
    /// Peers that are not Removed.
    live: AtomicUsize,
    generations: AtomicU64,
    /// Numbers of jobs. Publishes nothing, like `random`: a job is handed over under its pool's mutex.
    jobs: AtomicU64,
    random: AtomicU64,
    pub(crate) local_faults: LocalFaults,
    /// Peers whose breaker is open.
    open_breakers: AtomicUsize,
    pub(crate) no_text: Arc<str>,
    pub(crate) timed_out_text: Arc<str>,
    pub(crate) unresponsive_text: Arc<str>,
}

impl<T: Transport> Shared<T> {
    /// Starts no thread; the builder does.
    pub(crate) fn new(transport: T, config: Config, clock: Clock, seed: u64) -> Arc<Self> {
        let pool = |name, places, max_overdue| Pool::new(name, places, max_overdue, clock.clone());
        // Connects that outlive their permit are counted by the driver.
        let connectors = pool("peerage-conn", config.max_concurrent_connects.saturating_add(config.max_stuck), 0);
        // A peer in the table has at most three closes that hang, one for each bay and a late one, so each may cost a
        // thread. Removed and inserted again for ever it has any number: those share a bound, and only with each other.
        let closers = pool("peerage-close", config.max_concurrent_closes, usize::MAX);
        let last_closers = pool("peerage-last", config.max_concurrent_closes, config.max_stuck);
        let probers = pool("peerage-probe", config.max_stuck.max(1), 0);
        let beaters = pool("peerage-beat", config.max_stuck.max(1), config.max_stuck);
        let enders = pool("peerage-end", 1, 0);
        let connects = Connects::new(&config, clock.now());
        Arc::new(Shared {
            process: Process::this(),
            capabilities: transport.capabilities(),
            transport: Arc::new(transport),
            config,
            clock,
            names: Names::new(),
            slab: Slab::new(),
            queue: Queue::new(),
            connectors,
            closers,
            last_closers,
            probers,
            beaters,
            enders,
            connects,
            counters: Counters::default(),
            hub: Arc::default(),
            probes: Mutex::default(),
            probes_running: AtomicUsize::new(0),
            registering: Mutex::default(),
            registered: Latest::new(HashTrieMapSync::new_sync()),
            lent: Mutex::default(),
            shutdown: Mutex::default(),
            abandoned: AtomicBool::new(false),
            driver_died: AtomicBool::new(false),
            live: AtomicUsize::new(0),
            generations: AtomicU64::new(1),
            jobs: AtomicU64::new(1),
            random: AtomicU64::new(seed),
            local_faults: LocalFaults::default(),
            open_breakers: AtomicUsize::new(0),
            no_text: "".into(),
            timed_out_text: "the attempt did not end before connect_timeout".into(),
            unresponsive_text: "no heartbeat was answered for dead_after".into(),
        })
    }

    /// Whether this process built the table; if not, its threads are not here.
    pub(crate) fn is_here(&self) -> bool {
        self.process.is_this()
    }

    /// Greater than every one before, in the whole table.
    pub(crate) fn next_generation(&self) -> Generation {
        // ord! Relaxed: one location, so every draw is greater than the ones before it; a word that shows a generation publishes
        //      what belongs to it.
        //      model: ids::a_stale_id_never_reaches_the_next_peer   fails if: generations-are-not-table-wide
        Generation(self.generations.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn next_job(&self) -> u64 {
        self.jobs.fetch_add(1, Ordering::Relaxed)
    }

    /// 64 bits of the seed's sequence (splitmix64: S. Vigna, public domain reference).
    pub(crate) fn random(&self) -> u64 {
        let mut z = self.random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Moves the seed's sequence elsewhere.
    pub(crate) fn stir(&self, by: u64) {
        self.random.fetch_xor(by, Ordering::Relaxed);
    }

    /// The peer that `id` names, if its life goes on.
    pub(crate) fn upgrade(&self, id: PeerId) -> Option<SlotRef<T>> {
        SlotRef::upgrade(self.slab.place(id.index)?, id.version)
    }

    /// Drops replaced snapshots that nobody looks at; answers whether some are still looked at.
    pub(crate) fn sweep(&self) -> bool {
        self.names.sweep() | self.registered.sweep()
    }

    /// Peers that are not Removed.
    pub(crate) fn live(&self) -> usize {
        // ord! Acquire: a driver that reads zero reports what the removals left, which came before each subtraction in
        //      `peer_removed`. loom does not see the count (loom-tests/README.md); that it was read too early costs a report that
        //      names what is not left.
        //      test: shutting_down::a_shutdown_with_nothing_in_use_takes_everything_back_and_may_be_repeated
        self.live.load(Ordering::Acquire)
    }

    /// Counts one more peer in, unless there are `max_peers`.
    pub(crate) fn count_peer(&self) -> bool {
        let fits = |live: usize| (live < self.config.max_peers).then(|| live + 1);
        // ord! AcqRel is more than it needs: the bound is kept by any order of read-modify-writes, and who is counted in has
        //      done nothing yet.
        self.live.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).is_ok()
    }

    /// A peer is Removed, or was counted and not inserted.
    pub(crate) fn peer_removed(&self) {
        // ord! Release: see `live`. The waking comes after it, by a push that the driver acquires: a driver that read one more
        //      than zero looks again.
        if self.live.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.queue.wake();
        }
    }

    /// Whether the peer of `id` is Removed.
    pub(crate) fn has_ended(&self, id: PeerId) -> bool {
        self.slab.place(id.index).is_none_or(|slot| slot.has_ended(id.version))
    }

    /// Whether the native side has one slot per name.
    pub(crate) fn has_one_slot_per_name(&self) -> bool {
        !self.capabilities.contains(Capabilities::OVERLAP)
    }

    /// Lets a closing thread run somebody's destructor.
    pub(crate) fn drop_elsewhere<V: Send + 'static>(&self, value: V) {
        self.close_later(self.next_job(), Box::new(move || drop(value)));
    }

    pub(crate) fn pools(&self) -> [&Arc<Pool>; 6] {
        [&self.connectors, &self.closers, &self.last_closers, &self.probers, &self.beaters, &self.enders]
    }

    /// Hands a native close to the threads for it.
    pub(crate) fn close_connection(&self, why: CloseReason, id: u64, job: Job) {
        match why {
            CloseReason::Removed | CloseReason::Shutdown => {
                self.last_closers.submit(id, job);
                self.queue.wake(); // it watches that none takes too long
            }
            _ => self.close_later(id, job),
        }
    }

    /// Closes that have taken longer than `close_timeout` and go on.
    pub(crate) fn stuck_closes(&self) -> usize {
        self.closers.overdue() + self.last_closers.overdue()
    }

    /// Hands a job to the closing threads.
    pub(crate) fn close_later(&self, id: u64, job: Job) {
        self.closers.submit(id, job);
        self.queue.wake(); // it watches that none takes too long
    }

    /// Counts one more open breaker, unless there are as many as there may be.
    pub(crate) fn breaker_opens(&self, breaker: &Breaker) -> bool {
        let limit = breaker.may_open(self.live());
        let fits = |open: usize| (open < limit).then(|| open + 1);
        // ord! AcqRel and Acquire are more than the bound needs, which any order of read-modify-writes keeps. It publishes nothing:
        //      what a breaker does is under its slot's mutex.
        self.open_breakers.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).is_ok()
    }

    pub(crate) fn breaker_closes(&self) {
        self.open_breakers.fetch_sub(1, Ordering::AcqRel);
    }
}
