//! Settings of a `Tcp`, and its listening socket.

use super::accept::{Strangers, accept};
use super::alive::Keepalive;
use super::error::BindError;
use super::inbound::Registry;
use super::runtime::Threads;
use super::secret::{MIN_SECRET, Secret};
use super::{Counts, Shared, Tcp, TcpAddress};
use crate::builder::FOREVER;
use crate::clock::Clock;
use crate::fork::{self, Own, Process};
use crate::grant::GrantBook;
use crate::inbox::Inbox;
use crate::name::{Incarnation, PeerName};
use crate::transport::limits::{MAX_NOTIFICATION, nameless};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;

/// Connections that the operating system completes before we accept them.
const BACKLOG: i32 = 1024;

/// Settings of a [`Tcp`]. [`bind`](Self::bind) makes it. A time of more than 30 years is taken as 30 years: for ever.
#[derive(Debug, Default)]
#[must_use = "`bind` makes the transport"]
pub struct TcpBuilder {
    name: Option<PeerName>,
    handle: Option<Handle>,
    clock: Clock,
    advertised: Option<TcpAddress>,
    short_secret: Option<usize>,
    settings: Settings,
}

#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) max_inbound: usize,
    pub(super) handshake_timeout: Duration,
    pub(super) outbound_queue: usize,
    pub(super) inbox_capacity: usize,
    pub(super) max_notification: usize,
    pub(super) overlap: bool,
    pub(super) accept_delay: Duration,
    pub(super) secret: Option<Secret>,
    pub(super) keepalive: Option<Keepalive>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            max_inbound: 1024,
            handshake_timeout: Duration::from_secs(5),
            outbound_queue: 4 * 1024 * 1024,
            inbox_capacity: 256,
            max_notification: 64 * 1024,
            overlap: true,
            accept_delay: Duration::ZERO,
            secret: None,
            keepalive: Some(Keepalive { interval: Duration::from_secs(5), dead_timeout: Duration::from_secs(20) }),
        }
    }
}

impl Settings {
    /// No time is so long that a sum of it and the present overflows.
    fn bound_times(&mut self) {
        let Settings { handshake_timeout, accept_delay, keepalive, .. } = self;
        let silences = keepalive.iter_mut().flat_map(|alive| [&mut alive.interval, &mut alive.dead_timeout]);
        for time in [handshake_timeout, accept_delay].into_iter().chain(silences) {
            *time = FOREVER.min(*time);
        }
    }
}

impl TcpBuilder {
    /// What this process is called; peers must dial it by this name. Default: `peerage-<process id>-<incarnation>`.
    pub fn name(mut self, name: PeerName) -> Self {
        self.name = Some(name);
        self
    }

    /// What all processes share so that they know each other: at least 16 bytes, which should be random, like those of
    /// `openssl rand 32`. Each side of every connection proves to the other that it knows it, and whoever does not is
    /// refused. It is needed to listen or dial beyond loopback. It protects the handshake and nothing after it: frames are
    /// neither encrypted nor authenticated. Default: none.
    pub fn secret(mut self, secret: impl AsRef<[u8]>) -> Self {
        let secret = secret.as_ref();
        self.settings.secret = Secret::new(secret);
        self.short_secret = self.settings.secret.is_none().then_some(secret.len());
        self
    }

    /// The address that peers are to dial, for [`Tcp::address`]. Needed when it listens on every address of the machine
    /// (`0.0.0.0`, `[::]`), or behind something that forwards to it. Default: where it listens.
    pub fn advertise(mut self, address: TcpAddress) -> Self {
        self.advertised = Some(address);
        self
    }

    /// The runtime that serves sockets, with I/O and time enabled and more than one thread. Default: one of its own.
    pub fn handle(mut self, handle: Handle) -> Self {
        self.handle = Some(handle);
        self
    }

    /// How a peer that vanished without a word is found, on connections in both directions. A side that has sent nothing for
    /// `interval` (a quarter more or less) sends a ping; when nothing has come for `dead_timeout`, or up to two and a half
    /// intervals later, a connection we opened is reported as broken, and one that others opened is dropped, with what was
    /// lent over it. A peer that was stopped and goes on before that loses nothing. All processes should have the same
    /// interval: who has the longer one may be found dead by who has the shorter timeout while its inbox holds us back.
    ///
    /// Default: 5 s and 20 s. Twenty is gRPC's default wait for a keepalive's answer: longer than a stop for a core dump, a
    /// collection of garbage or a short migration of the machine, and four pings must be lost in a row; shorter than the
    /// deadline of a request that waits for its prefill, so its retry still helps. Five, because a ping of 21 bytes per
    /// connection costs nothing, and firewalls and load balancers forget connections that are idle for minutes.
    pub fn keepalive(mut self, interval: Duration, dead_timeout: Duration) -> Self {
        self.settings.keepalive = Some(Keepalive { interval, dead_timeout });
        self
    }

    /// Nobody is pinged and silence means nothing: whoever uses the connections finds the dead.
    pub fn without_keepalive(mut self) -> Self {
        self.settings.keepalive = None;
        self
    }

    /// The most inbound connections at once; further dialers are refused. Default: 1,024.
    pub fn max_inbound(mut self, limit: usize) -> Self {
        self.settings.max_inbound = limit;
        self
    }

    /// How long the handshake may take on either side. Default: 5 s.
    pub fn handshake_timeout(mut self, limit: Duration) -> Self {
        self.settings.handshake_timeout = limit;
        self
    }

    /// How many bytes of notifications may wait in one connection; a waiting transfer counts as 256, its pages do not. A
    /// send that finds no room is refused as busy. Default: 4 MiB.
    pub fn outbound_queue(mut self, bytes: usize) -> Self {
        self.settings.outbound_queue = bytes;
        self
    }

    /// How many messages of one inbound connection may wait in the inbox before that connection, and no other, is read no
    /// further. Then its remote writes, reads and probes wait too, so its dialer's probes end as
    /// [`Dead`](crate::Liveness::Dead), until messages are received: what comes behind a message can't be read without a
    /// buffer for the message, and this is that buffer's bound, with 1 MiB beside it. While 256 MiB wait in all, nobody new
    /// is let in. Default: 256.
    pub fn inbox_capacity(mut self, messages: usize) -> Self {
        self.settings.inbox_capacity = messages;
        self
    }

    /// The most bytes of one notification, sent or received, up to 16 MiB. Each connection uses the lesser of both sides.
    /// Default: 64 KiB.
    pub fn max_notification(mut self, bytes: usize) -> Self {
        self.settings.max_notification = bytes;
        self
    }

    /// Whether a new connection to a peer may be opened while the old one drains. Default: yes.
    pub fn overlap(mut self, overlap: bool) -> Self {
        self.settings.overlap = overlap;
        self
    }

    /// How long the acceptor waits before it answers a hello: for measuring what slow connects cost. Default: not at all.
    pub fn accept_delay(mut self, delay: Duration) -> Self {
        self.settings.accept_delay = delay;
        self
    }

    /// The clock of deadlines that callers give, and of the inbox and the grants. Limits of handshakes are in real time.
    /// Default: the system's.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Listens. Without a [`secret`](Self::secret) only a loopback address may be bound. May resolve a host name, which blocks.
    ///
    /// # Errors
    /// Nothing is left behind.
    /// - [`BindError::Limit`]: a setting is 0 or too large; the error names it and the most.
    /// - [`BindError::Unresolvable`], [`BindError::NotLoopback`], [`BindError::Listen`]: about the address. Write one like
    ///   `127.0.0.1:0`; end what listens there, or choose another port.
    /// - [`BindError::NoTimeForHandshakes`]: give them some.
    /// - [`BindError::Keepalive`]: allow for two pings at least.
    /// - [`BindError::ShortSecret`]: take a longer one.
    /// - [`BindError::NothingToAdvertise`], [`BindError::Unreachable`]: [`advertise`](Self::advertise) an address by which
    ///   other machines reach this process.
    /// - [`BindError::CurrentThreadRuntime`], [`BindError::RuntimeLacks`]: give the handle of a multi-thread runtime that has
    ///   I/O and time enabled, or none.
    /// - [`BindError::Threads`], [`BindError::Fork`]: the operating system gave no threads, or no memory to notice forks.
    pub fn bind(self, address: impl ToSocketAddrs) -> Result<Tcp, BindError> {
        let TcpBuilder { name, handle, clock, advertised, short_secret, mut settings } = self;
        if let Some(len) = short_secret {
            return Err(BindError::ShortSecret { len, min: MIN_SECRET });
        }
        let most = usize::MAX;
        within("max_inbound", settings.max_inbound, most)?;
        within("outbound_queue", settings.outbound_queue, most)?;
        within("inbox_capacity", settings.inbox_capacity, most)?;
        within("max_notification", settings.max_notification, MAX_NOTIFICATION)?;
        if settings.handshake_timeout.is_zero() {
            return Err(BindError::NoTimeForHandshakes);
        }
        if let Some(Keepalive { interval, dead_timeout }) = settings.keepalive
            && (interval.is_zero() || dead_timeout < interval.saturating_mul(2))
        {
            return Err(BindError::Keepalive { interval, dead_timeout });
        }
        settings.bound_times();
        let address = resolve(address)?;
        if !address.ip().to_canonical().is_loopback() && settings.secret.is_none() {
            return Err(BindError::NotLoopback { address });
        }
        let advertised = advertise(advertised, address)?;
        fork::watch().map_err(BindError::Fork)?;
        let listener = listen(address)?;
        let threads = handle.map_or_else(Threads::own, Threads::given)?;
        let incarnation = Incarnation::random();
        let name = name.unwrap_or_else(|| nameless(incarnation));
        let shared = Arc::new(Shared {
            process: Process::this(),
            name,
            incarnation: AtomicU64::new(incarnation.0),
            inbox: Inbox::new(clock.clone()),
            grants: GrantBook::new(clock.clone()),
            clock,
            inbound: Arc::new(Registry::new(settings.max_inbound)),
            strangers: Strangers::default(),
            counts: Counts::default(),
            registered: Mutex::default(),
            closing: watch::Sender::new(false),
            settings,
        });
        let (gone, until) = watch::channel(());
        let failed = |source| BindError::Listen { address, source };
        let local_addr = listener.local_addr().map_err(failed)?;
        let listener = threads.listen(listener)?.map_err(failed)?;
        threads.handle().spawn(accept(listener, shared.clone(), until));
        let address = advertised.unwrap_or_else(|| local_addr.into());
        Ok(Tcp { shared, local_addr, address, gone: Own::new(gone), threads: Own::new(threads) })
    }
}

fn within(limit: &'static str, given: usize, max: usize) -> Result<(), BindError> {
    if (1..=max).contains(&given) { Ok(()) } else { Err(BindError::Limit { limit, given, max }) }
}

fn resolve(address: impl ToSocketAddrs) -> Result<SocketAddr, BindError> {
    let address = address.to_socket_addrs().and_then(|mut all| all.next().ok_or(io::ErrorKind::NotFound.into()));
    address.map_err(BindError::Unresolvable)
}

/// What peers are told to dial; `None`: where it listens. One that means another process on each machine is refused: two
/// peers that advertise it would be taken for one.
fn advertise(advertised: Option<TcpAddress>, listens: SocketAddr) -> Result<Option<TcpAddress>, BindError> {
    let listens_on = listens.ip().to_canonical();
    match advertised.as_ref().map(TcpAddress::ip) {
        None if listens_on.is_unspecified() => Err(BindError::NothingToAdvertise { address: listens }),
        Some(Some(ip)) if ip.is_unspecified() || ip.is_loopback() && !listens_on.is_loopback() => {
            Err(BindError::Unreachable { advertised: advertised.expect("it has an address") })
        }
        _ => Ok(advertised),
    }
}

fn listen(address: SocketAddr) -> Result<TcpListener, BindError> {
    let open = || {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        // A restarted process takes its port back at once.
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        Ok(TcpListener::from(socket))
    };
    open().map_err(|source| BindError::Listen { address, source })
}
