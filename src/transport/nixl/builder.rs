//! Settings of a `Nixl`, and how it is made.

use super::Nixl;
use super::counts::Counts;
use super::dialers::{Dialer, Dialers};
use super::dialing::Dialing;
use super::error::NixlBuildError;
use super::library::Library;
use super::mailbox::Mailbox;
use super::native::Agent;
use super::registry::Registry;
use super::serving::Serving;
use super::shared::Shared;
use super::thread::{self, Work};
use crate::clock::Clock;
use crate::fork::{self, Own, Process};
use crate::grant::GrantBook;
use crate::inbox::Inbox;
use crate::name::{Incarnation, PeerName};
use crate::transport::limits::nameless;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The most that one notification may ever carry.
const MAX_NOTIFICATION: usize = 1024 * 1024;

/// The most agents that dial.
const MAX_AGENTS: usize = 64;

/// Settings of a [`Nixl`]. [`build`](Self::build) makes it.
#[derive(Debug)]
#[must_use = "`build` makes the transport"]
pub struct NixlBuilder {
    name: Option<PeerName>,
    library: Option<PathBuf>,
    backend: String,
    params: Vec<(String, String)>,
    progress_thread: bool,
    agents: usize,
    clock: Clock,
    settings: Settings,
}

#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) max_inbound: usize,
    pub(super) inbox_capacity: usize,
    pub(super) max_notification: usize,
    pub(super) polling: bool,
    pub(super) settle: Option<Duration>,
}

impl Default for NixlBuilder {
    fn default() -> Self {
        NixlBuilder {
            name: None,
            library: None,
            backend: "UCX".into(),
            params: Vec::new(),
            progress_thread: false,
            agents: 1,
            clock: Clock::system(),
            settings: Settings {
                max_inbound: 1024,
                inbox_capacity: 256,
                max_notification: 64 * 1024,
                polling: false,
                settle: None,
            },
        }
    }
}

impl NixlBuilder {
    /// What this process is called: the name of its agent, by which tables of others must know it. Default:
    /// `peerage-<process id>-<incarnation>`.
    pub fn name(mut self, name: PeerName) -> Self {
        self.name = Some(name);
        self
    }

    /// Where NIXL's `libnixl_capi.so` is, or the folder that it is in. Default: where `PEERAGE_NIXL_LIB` says, else where the
    /// loader has it, or the environment of `VIRTUAL_ENV` or `CONDA_PREFIX`, of the `python3`s in `PATH`, or the user's own.
    pub fn library(mut self, path: impl Into<PathBuf>) -> Self {
        self.library = Some(path.into());
        self
    }

    /// Which of NIXL's backends moves the bytes. Both sides need the same, and it must carry notifications. Default: `UCX`.
    pub fn backend(mut self, backend: impl Into<String>) -> Self {
        self.backend = backend.into();
        self
    }

    /// A setting of the backend, by NIXL's name for it: `param("ucx_error_handling_mode", "peer")`. Default: the backend's own.
    pub fn param(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.params.push((name.into(), value.into()));
        self
    }

    /// Whether NIXL has threads of its own, two, that move what peers do to us. Without them the transport's thread does, which
    /// looks every half millisecond when it is idle, and every 50 us while a page is lent to a peer that accesses it. With them
    /// it is woken for each message beside ours and takes UCX's lock against it: on two cores, writes of 64 KiB went at a third
    /// of the rate. Default: no.
    pub fn progress_thread(mut self, progress: bool) -> Self {
        self.progress_thread = progress;
        self
    }

    /// How many of NIXL's agents dial, 1 to 64. NIXL holds an agent's one lock for as long as it loads a peer; each peer has its
    /// agent by its name, so one that connects slowly holds up only the peers that share it. Each has a thread here, and memory
    /// is registered with each. Default: 1.
    pub fn agents(mut self, agents: usize) -> Self {
        self.agents = agents;
        self
    }

    /// Whether the transport's threads never sleep, for latency: each takes a core then, all the time. Default: no.
    pub fn polling(mut self, polling: bool) -> Self {
        self.settings.polling = polling;
        self
    }

    /// How many messages of one inbound connection may wait in the inbox. Default: 256.
    pub fn inbox_capacity(mut self, messages: usize) -> Self {
        self.settings.inbox_capacity = messages;
        self
    }

    /// The most bytes of one notification, 1 to 1 MiB. Default: 64 KiB.
    pub fn max_notification(mut self, bytes: usize) -> Self {
        self.settings.max_notification = bytes;
        self
    }

    /// How many connections others may have open to us. Default: 1024.
    pub fn max_inbound(mut self, connections: usize) -> Self {
        self.settings.max_inbound = connections;
        self
    }

    /// After how long pages are taken back whose borrower has not given them back at the end of its connection: it has died, was
    /// cut off, or did not leave in time. Nothing proves that nothing more lands in them: NIXL says that a connection broke, not
    /// that its peer can't write; what the network or a socket still holds may come, and a peer that is stopped may go on. With
    /// a time, you say that all of that is over by then. Default: never, they stay in quarantine.
    pub fn settle(mut self, after: Duration) -> Self {
        self.settings.settle = Some(after);
        self
    }

    /// The clock of deadlines. Default: the system's.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Loads NIXL if this process has not done so, makes its agents and starts their threads. May block.
    ///
    /// # Errors
    /// [`NixlBuildError::Library`]: NIXL is not installed; the error says where it was looked for. Others say which setting NIXL
    /// did not take.
    pub fn build(self) -> Result<Nixl, NixlBuildError> {
        let NixlBuilder { name, library, backend, params, progress_thread, agents, clock, settings } = self;
        for (limit, given, max) in [
            ("max_notification", settings.max_notification, MAX_NOTIFICATION),
            ("inbox_capacity", settings.inbox_capacity, usize::MAX),
            ("max_inbound", settings.max_inbound, usize::MAX),
            ("agents", agents, MAX_AGENTS),
        ] {
            if given == 0 || given > max {
                return Err(NixlBuildError::Limit { limit, given, max });
            }
        }
        fork::watch().map_err(NixlBuildError::Fork)?;
        let library = Library::load(library.as_deref())?;
        let incarnation = Incarnation::random();
        let name = name.unwrap_or_else(|| nameless(incarnation));
        let agent = |name: &str| {
            Agent::new(&library, name, progress_thread, &backend, &params)
                .map_err(|not_made| NixlBuildError::of(not_made, &backend))
        };
        let server = agent(name.as_str())?;
        let dialer = |place| {
            // Its own for each that is made: who is called has a place for each boot of a caller.
            let agent = agent(&format!("{name}/{}", Incarnation::random()))?;
            Dialer::new(agent, place).map_err(NixlBuildError::Agent)
        };
        let dialers = Dialers((0..agents).map(dialer).collect::<Result<_, _>>()?);
        let shared = Arc::new(Shared {
            process: Process::this(),
            name,
            incarnation: AtomicU64::new(incarnation.0),
            inbox: Inbox::new(clock.clone()),
            grants: GrantBook::new(clock.clone()),
            clock,
            counts: Counts::default(),
            registry: Registry::default(),
            registered: Mutex::default(),
            momentary: Mutex::default(),
            keys: AtomicU64::new(1),
            published: Mutex::default(),
            mailbox: Arc::new(Mailbox::new()),
            settings,
            dialers,
            server,
            library,
        });
        // If one does not start, the drop ends those that have.
        let mut nixl = Nixl { threads: Own::new(Vec::new()), shared: shared.clone() };
        nixl.starts(shared.server.clone(), Serving::new(shared.clone()))?;
        for dialer in shared.dialers.0.iter().cloned() {
            nixl.starts(dialer.agent.clone(), Dialing::new(shared.clone(), dialer))?;
        }
        Ok(nixl)
    }
}

impl Nixl {
    fn starts(&mut self, agent: Arc<Agent>, work: impl Work + Send + 'static) -> Result<(), NixlBuildError> {
        let polling = self.shared.settings.polling;
        let thread = std::thread::Builder::new().name("peerage-nixl".into());
        let thread = thread.spawn(move || thread::run(&agent, work, polling)).map_err(NixlBuildError::Thread)?;
        self.threads.push(thread);
        Ok(())
    }
}
