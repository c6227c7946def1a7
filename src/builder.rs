//! Settings of a table, their defaults, and what starts it.

use crate::clock::Clock;
use crate::driver::Driver;
use crate::error::BuildError;
use crate::fork;
use crate::policy::{Backoff, Breaker, Heartbeat};
#[cfg(not(peerage_loom))]
use crate::record;
use crate::shared::Shared;
use crate::table::PeerTable;
use crate::transport::{Capabilities, Transport};
use std::fmt;
use std::thread;
use std::time::Duration;

/// Settings of a table. Each setter states its default. A time of more than 30 years is taken as 30 years: for ever.
pub struct Builder<T> {
    transport: T,
    config: Config,
    clock: Clock,
    seed: Option<u64>,
}

/// Times are added to `Instant`s, which have an end.
pub(crate) const FOREVER: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) stripes: usize,
    pub(crate) connect_timeout: Duration,
    pub(crate) close_timeout: Duration,
    pub(crate) drain_deadline: Duration,
    pub(crate) max_concurrent_connects: usize,
    pub(crate) max_connects_per_second: Option<u32>,
    pub(crate) max_concurrent_closes: usize,
    pub(crate) max_stuck: usize,
    pub(crate) max_peers: usize,
    pub(crate) max_transfers_per_peer: usize,
    pub(crate) max_quarantined_bytes: u64,
    pub(crate) stalled_after: Option<Duration>,
    pub(crate) max_waiters_per_peer: usize,
    pub(crate) backoff: Backoff,
    pub(crate) breaker: Option<Breaker>,
    pub(crate) heartbeat: Option<Heartbeat>,
    pub(crate) remove_failed_after: Option<Duration>,
    pub(crate) idle_ttl: Option<Duration>,
}

impl Default for Config {
    fn default() -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Config {
            stripes: cores.next_power_of_two().clamp(4, 16),
            connect_timeout: Duration::from_secs(5),
            close_timeout: Duration::from_secs(5),
            drain_deadline: Duration::from_secs(5),
            max_concurrent_connects: 32,
            max_connects_per_second: None,
            max_concurrent_closes: 8,
            max_stuck: 32,
            max_peers: 1 << 20,
            max_transfers_per_peer: 1 << 16,
            max_quarantined_bytes: 1 << 30,
            stalled_after: None,
            max_waiters_per_peer: 1 << 16,
            backoff: Backoff::default(),
            breaker: Some(Breaker::default()),
            heartbeat: None,
            remove_failed_after: None,
            idle_ttl: None,
        }
    }
}

impl<T: Transport> Builder<T> {
    pub(crate) fn new(transport: T) -> Self {
        Builder { transport, config: Config::default(), clock: Clock::system(), seed: None }
    }

    /// Cache lines a peer's leases are counted on: a power of two from 1 to 64. As many as threads send to one peer at
    /// once; each costs 128 bytes per peer (on x86-64 and arm64). Default: the cores there are, from 4 to 16.
    pub fn stripes(mut self, stripes: usize) -> Self {
        self.config.stripes = stripes;
        self
    }

    /// How long one attempt may take before it fails and gives up its permit. Default 5 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.config.connect_timeout = timeout;
        self
    }

    /// How long one native close may take before another thread takes its place; it goes on. Default 5 s.
    pub fn close_timeout(mut self, timeout: Duration) -> Self {
        self.config.close_timeout = timeout;
        self
    }

    /// How long an old connection may stay in use before its transfers end as `Unknown`, and before who waits for a
    /// reconnect that needs it closed is answered `Undrained`. Leases are never broken. Default 5 s.
    pub fn drain_deadline(mut self, after: Duration) -> Self {
        self.config.drain_deadline = after;
        self
    }

    /// Attempts younger than `connect_timeout` at once, in the whole table; the others wait in line. Default 32.
    pub fn max_concurrent_connects(mut self, limit: usize) -> Self {
        self.config.max_concurrent_connects = limit;
        self
    }

    /// Attempts that start in one second, in the whole table; the others wait in line. A hundredth of it may start at the same
    /// moment. Spreads the dials after many peers were lost together: each refusal is quick and gives its permit
    /// back at once, so `max_concurrent_connects` alone does not. Default: no limit.
    pub fn max_connects_per_second(mut self, limit: u32) -> Self {
        self.config.max_connects_per_second = Some(limit);
        self
    }

    /// Native closes at once. Default 8.
    pub fn max_concurrent_closes(mut self, limit: usize) -> Self {
        self.config.max_concurrent_closes = limit;
        self
    }

    /// How many native calls of each kind may hang, each on a thread of its own: connects beyond their deadline, after which
    /// new connects are answered `Busy`; closes of removed peers beyond `close_timeout`, after which other removed peers'
    /// closes wait for their place; and probes (at least one), after which new probes are answered `Unknown`. Closes of
    /// peers in the table are not limited by it: a peer has at most three that hang. Of heartbeats so many run at once, and as
    /// many more may hang; then peers are not watched until a place is free. Default 32.
    pub fn max_stuck(mut self, limit: usize) -> Self {
        self.config.max_stuck = limit;
        self
    }

    /// Peers in the table, those being removed included. Default 1,048,576.
    pub fn max_peers(mut self, limit: usize) -> Self {
        self.config.max_peers = limit;
        self
    }

    /// Transfers of one peer that are in flight or in quarantine; more are refused. Default 65,536.
    pub fn max_transfers_per_peer(mut self, limit: usize) -> Self {
        self.config.max_transfers_per_peer = limit;
        self
    }

    /// Bytes of ours that one peer may keep in quarantine: pages of transfers that have ended for their callers, and of grants
    /// that were revoked, before nothing touches them any more. When there are as many, new transfers and grants of this peer
    /// are refused with [`Quarantined`](crate::PostError::Quarantined); those that run may still add theirs. Default 1 GiB:
    /// a peer that hangs in hundreds of large pages has no use for more, and the process can do without them.
    pub fn max_quarantined_bytes(mut self, limit: u64) -> Self {
        self.config.max_quarantined_bytes = limit;
        self
    }

    /// How long a transfer may stand still, once it has begun, until it is [stalled](crate::Transfer::is_stalled), and its peer
    /// [Suspect](crate::Peer::is_suspect); the first byte that moves returns both to normal. It is noticed a quarter of this
    /// time later at most, refuses and ends nothing, and a process that was stopped itself suspects nobody for it. Less than
    /// 1 ms is taken as 1 ms. For transports that say how far a transfer is, as `Tcp` and `Memory` do.
    ///
    /// Default `None`: how long a healthy peer may take a page's bytes, or hold back its answer while it works, only its user
    /// knows, and who has a choice sends past a Suspect. Where peers can be stopped, 5 s is recommended: longer than any
    /// pause of a process that is well, shorter than what a request waits.
    pub fn stalled_after(mut self, time: impl Into<Option<Duration>>) -> Self {
        self.config.stalled_after = time.into();
        self
    }

    /// Callers that wait for one peer at once, in [`Peer::ready`](crate::Peer::ready) and
    /// [`Peer::wait_ready`](crate::Peer::wait_ready); more are answered [`Busy`](crate::ReadyError::Busy). Default 65,536.
    pub fn max_waiters_per_peer(mut self, limit: usize) -> Self {
        self.config.max_waiters_per_peer = limit;
        self
    }

    /// What a peer gets that goes on failing; `None`: no more than the backoff. Default [`Breaker::default`].
    pub fn breaker(mut self, breaker: impl Into<Option<Breaker>>) -> Self {
        self.config.breaker = breaker.into();
        self
    }

    /// Whether Ready peers are asked, again and again, if they are alive. A peer that stops answering is
    /// [Suspect](crate::Peer::is_suspect) first, which refuses nothing, and fails after `dead_after`; one that answers again
    /// before that is as before. Only where the transport can [`PROBE`](crate::Capabilities::PROBE).
    ///
    /// Default `None`: a probe of an idle table is traffic that nobody asked for, and how long a healthy peer may be silent
    /// only its user knows. For peers that can be stopped, or cut off without a word, [`Heartbeat::default`] is
    /// recommended: 1 s and 3 s.
    pub fn heartbeat(mut self, heartbeat: impl Into<Option<Heartbeat>>) -> Self {
        self.config.heartbeat = heartbeat.into();
        self
    }

    /// How long a peer may go on without a connection, from the failure that ended the last one or of its first attempt, until
    /// the table removes it by itself, as [`Peer::remove`](crate::Peer::remove) would and with
    /// [`Reason::FailedTooLong`](crate::Reason::FailedTooLong). Nothing has to happen for that; an attempt that runs may end
    /// first, and an address given by an update starts the time anew. For tables whose peers come and go under new names.
    /// Default `None`: a peer stays until it is removed.
    pub fn remove_failed_after(mut self, time: impl Into<Option<Duration>>) -> Self {
        self.config.remove_failed_after = time.into();
        self
    }

    /// How long a peer may go unused until the table removes it by itself, with
    /// [`Reason::IdleTooLong`](crate::Reason::IdleTooLong). A use is a lease, granted or refused, a wait for the peer, and an
    /// insert of its name; a probe is none. It is removed when it was unused for this long, at the latest when for twice as
    /// long; never while it connects, is waited for, or has leases, transfers or grants. A lease that is taken in the very
    /// moment of the removal goes on, as at any removal. Less than 1 ms is taken as 1 ms. Default `None`: a peer stays.
    pub fn idle_ttl(mut self, time: impl Into<Option<Duration>>) -> Self {
        self.config.idle_ttl = time.into();
        self
    }

    /// When to try again. Default [`Backoff::default`].
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.config.backoff = backoff;
        self
    }

    /// Where the jitter's random sequence starts; for repeatable tests. Default: random.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The clock of the driver and of all deadlines. Default: the system's.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Starts the table and its driver thread, `peerage-driver`. Connecting, closing and probing threads start
    /// when needed.
    ///
    /// # Errors
    /// [`BuildError`] if a setting makes no sense, or the system gives no thread or no memory to notice forks.
    ///
    /// # Panics
    /// If the operating system gives no random bytes, which it does once booted.
    pub fn build(self) -> Result<PeerTable<T>, BuildError> {
        let Config { stripes, max_concurrent_connects, max_connects_per_second, .. } = self.config;
        let Config { max_concurrent_closes, max_peers, max_waiters_per_peer, .. } = self.config;
        if !stripes.is_power_of_two() || stripes > 64 {
            return Err(BuildError::Stripes { given: stripes });
        }
        for (limit, name) in [
            (max_concurrent_connects, "max_concurrent_connects"),
            (max_concurrent_closes, "max_concurrent_closes"),
            (max_peers, "max_peers"),
            (max_waiters_per_peer, "max_waiters_per_peer"),
            (max_connects_per_second.map_or(1, |limit| limit as usize), "max_connects_per_second"),
        ] {
            if limit == 0 {
                return Err(BuildError::Zero { limit: name });
            }
        }
        let mut config = self.config;
        let Backoff { base, cap, min_stable } = &mut config.backoff;
        let open_for = config.breaker.iter_mut().map(|breaker| &mut breaker.open_for);
        for wait in
            [&mut config.connect_timeout, &mut config.close_timeout, &mut config.drain_deadline, base, cap, min_stable]
                .into_iter()
                .chain(open_for)
        {
            *wait = FOREVER.min(*wait);
        }
        if let Some(Heartbeat { interval, dead_after }) = &mut config.heartbeat {
            *interval = (*interval).clamp(Duration::from_millis(1), FOREVER);
            *dead_after = (*dead_after).clamp(*interval, FOREVER);
        }
        for wait in [&mut config.remove_failed_after, &mut config.idle_ttl].into_iter().flatten() {
            *wait = FOREVER.min(*wait);
        }
        config.idle_ttl = config.idle_ttl.map(|ttl| ttl.max(Duration::from_millis(1)));
        config.stalled_after = config.stalled_after.map(|after| after.clamp(Duration::from_millis(1), FOREVER));
        if !self.transport.capabilities().contains(Capabilities::PROBE) {
            config.heartbeat = None;
        }
        fork::watch().map_err(BuildError::Fork)?;
        #[cfg(not(peerage_loom))]
        record::prepare();
        let seed = self.seed.unwrap_or_else(|| crate::name::Incarnation::random().0);
        let shared = Shared::new(self.transport, config, self.clock, seed);
        let driver = Driver::new(shared.clone());
        let driver = thread::Builder::new()
            .name("peerage-driver".into())
            .spawn(move || driver.run())
            .map_err(BuildError::Thread)?;
        #[cfg(not(peerage_loom))]
        shared.queue.driven_by(driver.thread().clone());
        // The thread alone: a hook that held the table might be the one to end it, under the clock's lock.
        let sleeper = driver.thread().clone();
        shared.clock.on_advance(move || sleeper.unpark());
        Ok(PeerTable::new(shared))
    }
}

impl<T> fmt::Debug for Builder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("config", &self.config).field("clock", &self.clock).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(peerage_loom)))]
mod tests {
    use super::*;

    fn time(of: Duration) -> String {
        match (of.as_millis(), of.subsec_millis()) {
            (_, 0) => format!("{} s", of.as_secs()),
            (millis, _) => format!("{millis} ms"),
        }
    }

    /// With a comma before every three digits.
    fn number(n: usize) -> String {
        match n {
            0..1000 => n.to_string(),
            _ => format!("{},{:03}", number(n / 1000), n % 1000),
        }
    }

    fn or(nothing: &str, value: Option<String>) -> String {
        value.unwrap_or_else(|| nothing.into())
    }

    /// Every setting as `docs::policy` names it, and its default as it shows it. Taken apart, so that a new one is not forgotten.
    fn defaults() -> Vec<(&'static str, String)> {
        let Config {
            stripes: _, // depends on the machine; the page says how
            connect_timeout,
            close_timeout,
            drain_deadline,
            max_concurrent_connects,
            max_connects_per_second,
            max_concurrent_closes,
            max_stuck,
            max_peers,
            max_transfers_per_peer,
            max_quarantined_bytes,
            max_waiters_per_peer,
            backoff: Backoff { base, cap, min_stable },
            breaker,
            heartbeat,
            stalled_after,
            remove_failed_after,
            idle_ttl,
        } = Config::default();
        let Breaker { after, open_for, max_open_percent } = breaker.expect("on");
        let Heartbeat { interval, dead_after } = Heartbeat::default();
        vec![
            ("stripes", "the cores, 4 to 16".into()),
            ("connect_timeout", time(connect_timeout)),
            ("close_timeout", time(close_timeout)),
            ("drain_deadline", time(drain_deadline)),
            ("max_concurrent_connects", number(max_concurrent_connects)),
            ("max_connects_per_second", or("no limit", max_connects_per_second.map(|limit| number(limit as usize)))),
            ("max_concurrent_closes", number(max_concurrent_closes)),
            ("max_stuck", number(max_stuck)),
            ("max_peers", number(max_peers)),
            ("max_transfers_per_peer", number(max_transfers_per_peer)),
            ("max_quarantined_bytes", format!("{} GiB", max_quarantined_bytes >> 30)),
            ("max_waiters_per_peer", number(max_waiters_per_peer)),
            ("Backoff::base", time(base)),
            ("Backoff::cap", time(cap)),
            ("Backoff::min_stable", time(min_stable)),
            ("Breaker::after", number(after as usize)),
            ("Breaker::open_for", time(open_for)),
            ("Breaker::max_open_percent", number(max_open_percent.into())),
            ("heartbeat", or("off", heartbeat.map(|heartbeat| time(heartbeat.interval)))),
            ("Heartbeat::interval", time(interval)),
            ("Heartbeat::dead_after", time(dead_after)),
            ("stalled_after", or("off", stalled_after.map(time))),
            ("remove_failed_after", or("off", remove_failed_after.map(time))),
            ("idle_ttl", or("off", idle_ttl.map(time))),
        ]
    }

    /// The page of defaults says what the code does: in its own tables and beside the numbers of others.
    /// fails if: a default is changed, or a setting added, without the page.
    #[test]
    fn the_page_of_defaults_shows_each_setting_with_the_default_it_has() {
        let defaults = defaults();
        let page = include_str!("docs/policy.rs");
        let rows = page.lines().filter_map(|line| line.strip_prefix("//! | "));
        // A row is about the setting that its first cell names; its second cell is ours.
        let row = |row: &'static str| {
            let mut cells = row.split(" | ");
            let name = cells.next()?.split('`').nth(1)?;
            Some((name, cells.next()?))
        };
        let rows: Vec<_> = rows.filter_map(row).collect();
        for (name, shown) in &rows {
            let (_, default) = defaults.iter().find(|(setting, _)| setting == name).unwrap_or_else(|| panic!("{name}"));
            assert_eq!(shown, default, "{name}");
        }
        for (setting, _) in &defaults {
            assert!(rows.iter().any(|(name, _)| name == setting), "{setting} is not on the page");
        }
    }

    #[test]
    fn there_are_from_4_to_16_stripes_whatever_the_machine() {
        let stripes = Config::default().stripes;
        assert!(stripes.is_power_of_two() && (4..=16).contains(&stripes), "{stripes}");
    }
}
