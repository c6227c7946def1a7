//! Settings of a `Ucx`, and how it is made.

use super::error::UcxBindError;
use super::inbound::Registry;
use super::mailbox::Mailbox;
use super::native::{Context, Listener, Worker};
use super::thread::Thread;
use super::{Counts, Shared, Ucx};
use crate::builder::FOREVER;
use crate::clock::Clock;
use crate::fork::{self, Own, Process};
use crate::grant::GrantBook;
use crate::inbox::Inbox;
use crate::name::{Incarnation, PeerName};
use crate::transport::exit::{self, Door, Registered};
use crate::transport::limits::{MAX_NOTIFICATION, nameless};
use std::io;
use std::net::ToSocketAddrs;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

static EXIT: Registered = Registered::new();

/// Settings of a [`Ucx`]. [`bind`](Self::bind) makes it.
#[derive(Debug, Default)]
#[must_use = "`bind` makes the transport"]
pub struct UcxBuilder {
    name: Option<PeerName>,
    clock: Clock,
    config: Vec<(String, String)>,
    settings: Settings,
}

#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) max_inbound: usize,
    pub(super) handshake_timeout: Duration,
    pub(super) inbox_capacity: usize,
    pub(super) max_notification: usize,
    pub(super) trust_network: bool,
    pub(super) polling: bool,
    pub(super) overlap: bool,
    pub(super) accept_delay: Duration,
    pub(super) one_sided: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            max_inbound: 1024,
            handshake_timeout: Duration::from_secs(5),
            inbox_capacity: 256,
            max_notification: 64 * 1024,
            trust_network: false,
            polling: false,
            overlap: true,
            accept_delay: Duration::ZERO,
            one_sided: false,
        }
    }
}

/// Settings of libucp that are ours unless the environment has the variable, or the user the setting.
const OURS: [(&str, &str, &str); 2] = [
    // Who waits for libucp's lock sleeps: there may be more threads than processors, and a holder that has lost its own.
    ("USE_MT_MUTEX", "UCX_USE_MT_MUTEX", "y"),
    // A restarted process takes its port back, which its old connections hold for a minute.
    ("CM_REUSEADDR", "UCX_TCP_CM_REUSEADDR", "y"),
];

/// The same unless pages are moved by put and get.
const COPIES: [(&str, &str, &str); 2] = [
    // What libucp of 1.13.1 sends over TCP without a copy of its own aborts the process when the peer is killed meanwhile
    // (`uct_iface.h`, "comp->count > 0").
    ("ZCOPY_THRESH", "UCX_ZCOPY_THRESH", "inf"),
    // It copies into pieces of this, and gives the system one at a time: 8 KiB by default, half as fast. What others receive
    // at most is 64 KiB by default.
    ("TX_SEG_SIZE", "UCX_TCP_TX_SEG_SIZE", "64k"),
];

impl UcxBuilder {
    /// What this process is called; peers must dial it by this name. Default: `peerage-<process id>-<incarnation>`.
    pub fn name(mut self, name: PeerName) -> Self {
        self.name = Some(name);
        self
    }

    /// A setting of libucp, by its name without `UCX_`: `config("TLS", "rc,tcp")`. It goes over what the environment says;
    /// `UCX_` variables count for everything that is not set here. Those that concern listening and connecting have their prefix
    /// in the environment only, with UCX 1.13: `UCX_TCP_CM_REUSEADDR` there is `config("CM_REUSEADDR", …)` here. UCX 1.22 takes
    /// `TX_SEG_SIZE` as `TCP_TX_SEG_SIZE`. Default: `CM_REUSEADDR` and `USE_MT_MUTEX` are `y`, and where pages are moved by
    /// messages `ZCOPY_THRESH` is `inf` and `TX_SEG_SIZE` `64k`, unless the environment says otherwise; everything else is
    /// libucp's own. libucp refuses a value that it can't read; a name that it does not know UCX 1.13 takes without a word, and
    /// UCX 1.22 refuses.
    pub fn config(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.config.push((name.into(), value.into()));
        self
    }

    /// Whether addresses beyond loopback may be bound and dialled. UCX authenticates nobody and protects nothing: say so only where
    /// nobody reaches the network whom you do not trust. Default: no.
    pub fn trust_network(mut self, trust: bool) -> Self {
        self.settings.trust_network = trust;
        self
    }

    /// Whether the thread never sleeps, for latency: it takes a core then, all the time. Default: no,
    /// it sleeps once nothing has moved for 20 us.
    pub fn polling(mut self, polling: bool) -> Self {
        self.settings.polling = polling;
        self
    }

    /// Whether a new connection to a peer may be opened while the old one drains. Default: yes.
    pub fn overlap(mut self, overlap: bool) -> Self {
        self.settings.overlap = overlap;
        self
    }

    /// How long the acceptor waits before it answers a hello: for measuring what slow connects cost. Nobody else waits for it.
    /// More than 30 years is taken as 30 years. Default: not at all.
    pub fn accept_delay(mut self, delay: Duration) -> Self {
        self.settings.accept_delay = FOREVER.min(delay);
        self
    }

    /// Whether pages that we read and write at peers are moved by libucp's one-sided operations, put and get. Say so where every
    /// device between the processes reads and writes memory by itself, as InfiniBand does. Elsewhere libucp emulates them by
    /// messages, and aborts the process of a page's owner when who writes is killed meanwhile (UCX 1.13.1). Default: no, the
    /// bytes are messages of this transport.
    pub fn one_sided(mut self, one_sided: bool) -> Self {
        self.settings.one_sided = one_sided;
        self
    }

    /// The most inbound connections at once; further dialers are refused. Default: 1,024.
    pub fn max_inbound(mut self, limit: usize) -> Self {
        self.settings.max_inbound = limit;
        self
    }

    /// How long a dialer may take to say who it is. More than 30 years is taken as 30 years. Default: 5 s.
    pub fn handshake_timeout(mut self, limit: Duration) -> Self {
        self.settings.handshake_timeout = FOREVER.min(limit);
        self
    }

    /// How many messages of one inbound connection may wait in the inbox. Further ones wait beside it, as many as the sender
    /// may have sent without being told that they were taken, 4 MiB or 1,024 of them; then it is told that its queue is full.
    /// Nothing else of the connection waits for them. Default: 256.
    pub fn inbox_capacity(mut self, messages: usize) -> Self {
        self.settings.inbox_capacity = messages;
        self
    }

    /// The most bytes of one notification, sent or received, up to 16 MiB. Each connection uses the lesser of both sides.
    /// libucp sends short ones at once and has long ones fetched by the peer. Default: 64 KiB.
    pub fn max_notification(mut self, bytes: usize) -> Self {
        self.settings.max_notification = bytes;
        self
    }

    /// The clock of deadlines that callers give, and of the inbox and the grants. Limits of handshakes are in real time.
    /// Default: the system's.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Listens. May resolve a host name, which blocks; libucp looks for devices, which takes some milliseconds.
    ///
    /// # Errors
    /// Nothing is left behind.
    /// - [`UcxBindError::Limit`]: a setting is 0 or too large; the error names it and the most.
    /// - [`UcxBindError::NoTimeForHandshakes`]: give them some.
    /// - [`UcxBindError::Unresolvable`], [`UcxBindError::Listen`]: about the address. End what listens there, or choose
    ///   another port.
    /// - [`UcxBindError::NotLoopback`]: say [`trust_network`](Self::trust_network), if that is so.
    /// - [`UcxBindError::Configuration`], [`UcxBindError::Worker`]: libucp takes a setting not, or can't serve several threads.
    /// - [`UcxBindError::Thread`], [`UcxBindError::Fork`], [`UcxBindError::Exit`]: the operating system gave no thread, or no memory
    ///   to notice forks or the process's end.
    pub fn bind(self, address: impl ToSocketAddrs) -> Result<Ucx, UcxBindError> {
        let UcxBuilder { name, clock, config, settings } = self;
        let within = |limit: &'static str, given: usize, max: usize| match given {
            given if (1..=max).contains(&given) => Ok(()),
            _ => Err(UcxBindError::Limit { limit, given, max }),
        };
        within("max_inbound", settings.max_inbound, usize::MAX)?;
        within("inbox_capacity", settings.inbox_capacity, usize::MAX)?;
        within("max_notification", settings.max_notification, MAX_NOTIFICATION)?;
        if settings.handshake_timeout.is_zero() {
            return Err(UcxBindError::NoTimeForHandshakes);
        }
        let resolved = address.to_socket_addrs().and_then(|mut all| all.next().ok_or(io::ErrorKind::NotFound.into()));
        let address = resolved.map_err(UcxBindError::Unresolvable)?;
        if !address.ip().to_canonical().is_loopback() && !settings.trust_network {
            return Err(UcxBindError::NotLoopback { address });
        }
        fork::watch().map_err(UcxBindError::Fork)?;
        exit::watch(&EXIT).map_err(UcxBindError::Exit)?;
        let is_free = |(_, variable, _): &(&str, &str, &str)| std::env::var_os(variable).is_none();
        let copies = COPIES.into_iter().filter(|_| !settings.one_sided);
        let wishes: Vec<_> = OURS.into_iter().chain(copies).filter(is_free).collect();
        let context = Context::new(&wishes, &config);
        let context =
            context.map_err(|not| UcxBindError::Configuration { setting: not.setting, status: not.status })?;
        let mailbox = Arc::new(Mailbox::new().map_err(UcxBindError::Thread)?);
        let worker = Worker::new(&context, mailbox.clone()).map_err(UcxBindError::Worker)?;
        let listener = Listener::new(&worker, address);
        let (listener, local_addr) = listener.map_err(|status| UcxBindError::Listen { address, status })?;
        let incarnation = Incarnation::random();
        let name = name.unwrap_or_else(|| nameless(incarnation));
        let shared = Arc::new(Shared {
            process: Process::this(),
            name,
            incarnation: AtomicU64::new(incarnation.0),
            inbox: Inbox::new(clock.clone()),
            grants: GrantBook::new(clock.clone()),
            clock,
            counts: Counts::default(),
            registry: Registry::new(),
            registered: Mutex::default(),
            mailbox,
            context,
            settings,
            door: Door::new(),
        });
        let thread = Thread::new(shared.clone(), worker, listener);
        let thread = std::thread::Builder::new().name("peerage-ucx".into()).spawn(move || thread.run());
        let thread = Own::new(Some(thread.map_err(UcxBindError::Thread)?));
        Ok(Ucx { shared, local_addr, address: local_addr.into(), thread })
    }
}
