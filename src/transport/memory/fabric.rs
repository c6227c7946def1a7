//! The fabric and its nodes: who lives, who is connected to whom, and the thread that carries things.

use super::link::{Answers, Link, Report};
use super::log::{Log, MisuseKind};
use super::yard::Yard;
use super::{Memory, MemoryError, Steps};
use crate::clock::Clock;
use crate::fork::{self, Process};
use crate::grant::GrantBook;
use crate::inbox::Inbox;
use crate::name::{Incarnation, PeerName};
use crate::region::{Region, RegionId};
use crate::state::Generation;
use crate::sync::lock;
use crate::transport::counting::Tallies;
use crate::transport::{Capabilities, ConnectContext, Reported};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

/// A network inside this process. Clones are one fabric. It has one thread, `peerage-memory`, which ends with the last clone
/// and the last [`Memory`]. It remembers every connection there was, a few hundred bytes each.
#[derive(Clone)]
pub struct Fabric {
    life: Arc<Life>,
}

impl Fabric {
    /// An empty one, on the system's clock.
    ///
    /// # Panics
    /// If the operating system gives no thread.
    pub fn new() -> Self {
        Self::with_clock(Clock::system())
    }

    /// An empty one whose delays and deadlines are on this clock: give the table the same one.
    ///
    /// # Panics
    /// If the operating system gives no thread.
    pub fn with_clock(clock: Clock) -> Self {
        fork::watch().expect("the operating system has memory to notice forks");
        let yard = Arc::new(Yard::new());
        let thread = std::thread::Builder::new()
            .name("peerage-memory".to_owned())
            .spawn({
                let (yard, clock) = (yard.clone(), clock.clone());
                move || yard.run(&clock)
            })
            .expect("the operating system gives a thread");
        let core = Core { clock, yard, order: Arc::default(), nodes: Mutex::default(), links: Mutex::default() };
        Fabric { life: Arc::new(Life { process: Process::this(), core, thread: Some(thread) }) }
    }

    /// The node of this name, made with default settings if there is none. It lives as long as the fabric.
    ///
    /// # Panics
    /// If `name` is not a [`PeerName`].
    pub fn node(&self, name: &str) -> Memory {
        self.builder(name).build()
    }

    /// A node with settings of its own.
    ///
    /// # Panics
    /// If `name` is not a [`PeerName`].
    pub fn builder(&self, name: &str) -> NodeBuilder {
        let name = PeerName::new(name).unwrap_or_else(|error| panic!("not a node's name: {error}"));
        NodeBuilder { fabric: self.clone(), name, settings: Settings::default() }
    }

    /// Kills a node: connects to it are refused, every connection to it or from it dies and is reported by the fabric's
    /// thread. Returns when nothing is copied over them any more; unknown and dead nodes are let be.
    pub fn kill(&self, name: &str) -> Reports {
        match self.life.core.node(name) {
            Some(node) => self.life.core.kill(&node),
            None => Reports::default(),
        }
    }

    /// Gives a killed node its life back, as a new incarnation. Its inbox, its registrations and the grants nobody had
    /// presented are still there.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn revive(&self, name: &str) -> Incarnation {
        let node = self.life.core.node(name).unwrap_or_else(|| panic!("no node \"{name}\" in the fabric"));
        let mut life = node.life();
        if !life.alive {
            *life = NodeLife { alive: true, incarnation: Incarnation(life.incarnation.0 + 1) };
        }
        life.incarnation
    }

    /// Kills and revives: the process has restarted.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn restart(&self, name: &str) -> Reports {
        let reports = self.kill(name);
        self.revive(name);
        reports
    }

    /// The clock of its delays.
    pub fn clock(&self) -> &Clock {
        &self.life.core.clock
    }
}

impl Default for Fabric {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = lock(&self.life.core.nodes).keys().cloned().collect();
        f.debug_struct("Fabric").field("nodes", &names).finish_non_exhaustive()
    }
}

/// Settings of one node.
#[derive(Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct NodeBuilder {
    fabric: Fabric,
    name: PeerName,
    settings: Settings,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    pub(super) capabilities: Capabilities,
    pub(super) capacity: usize,
    pub(super) max_notification: usize,
}

impl Default for Settings {
    fn default() -> Self {
        let capabilities = Capabilities::OVERLAP
            .with(Capabilities::CLOSE_QUIESCES)
            .with(Capabilities::NATIVE_CLOSE)
            .with(Capabilities::PROBE)
            .with(Capabilities::UPDATES_IN_PLACE);
        Settings { capabilities, capacity: 1024, max_notification: 65_536 }
    }
}

impl NodeBuilder {
    /// What the transport says it can do, and then does: without `CLOSE_QUIESCES` a close leaves transfers running, without
    /// `NATIVE_CLOSE` every close leaks, without `PROBE` no probe can tell. Default: all.
    pub fn capabilities(mut self, capabilities: Capabilities) -> Self {
        self.settings.capabilities = capabilities;
        self
    }

    /// How many messages may wait in this node's inbox per connection, and how many messages or transfers may be held back
    /// on each of its own connections. Default 1024, at least 1.
    pub fn capacity(mut self, capacity: usize) -> Self {
        self.settings.capacity = capacity.max(1);
        self
    }

    /// The most bytes of one notification. Default 65,536.
    pub fn max_notification(mut self, bytes: usize) -> Self {
        self.settings.max_notification = bytes;
        self
    }

    /// The node. If there is one of this name already, that one, with the settings it was made with.
    pub fn build(self) -> Memory {
        let NodeBuilder { fabric: Fabric { life }, name, settings } = self;
        let core = &life.core;
        let make = || {
            Arc::new(Node {
                name: name.clone(),
                settings,
                life: Mutex::new(NodeLife { alive: true, incarnation: Incarnation::random() }),
                inbox: Inbox::new(core.clock.clone()),
                grants: GrantBook::new(core.clock.clone()),
                regions: Mutex::default(),
                steps: Steps::new(core.yard.clone(), core.clock.clone()),
                log: Log::new(core.order.clone()),
                tallies: Tallies::default(),
            })
        };
        let node = lock(&core.nodes).entry(name.clone()).or_insert_with(make).clone();
        Memory::new(life, node)
    }
}

/// The errors a test has sent on their way to reporters.
#[derive(Clone, Default)]
pub struct Reports(Arc<Answers>);

impl Reports {
    /// Blocks this thread until the fabric's thread has called every reporter, and says what each answered. One that was
    /// made to panic has no answer.
    ///
    /// # Panics
    /// If that takes more than 30 s: they are held, or this is a callback on the fabric's thread.
    pub fn wait(&self) -> Vec<(Generation, Reported)> {
        self.0.wait(Instant::now() + PATIENCE).unwrap_or_else(|| panic!("errors not reported in {PATIENCE:?}: held?"))
    }
}

impl fmt::Debug for Reports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reports").field(&self.0.wait(Instant::now())).finish()
    }
}

/// Ends the thread when the last user of the fabric is gone, unless that is a forked child.
pub(super) struct Life {
    /// Where its thread is.
    process: Process,
    pub(super) core: Core,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Life {
    fn drop(&mut self) {
        if !self.process.is_this() {
            std::mem::forget(self.thread.take()); // nobody is there to join, and what links carry is the parent's
            return;
        }
        self.core.links().iter().for_each(Link::cut);
        lock(&self.core.nodes).values().for_each(|node| node.inbox.close());
        self.core.yard.stop();
        if let Some(thread) = self.thread.take().filter(|_| !self.core.yard.is_current()) {
            let _ = thread.join();
        }
    }
}

/// How many links that have ended are remembered at least.
const REMEMBERED: usize = 4096;

pub(super) struct Core {
    pub(super) clock: Clock,
    pub(super) yard: Arc<Yard>,
    order: Arc<AtomicU64>,
    nodes: Mutex<HashMap<PeerName, Arc<Node>>>,
    /// The links that live and many that have ended: a late error of an old one is what tests are about.
    links: Mutex<Vec<Arc<Link>>>,
}

impl Core {
    pub(super) fn node(&self, name: &str) -> Option<Arc<Node>> {
        lock(&self.nodes).get(name).cloned()
    }

    pub(super) fn link(&self, from: &Arc<Node>, cx: &ConnectContext) -> Arc<Link> {
        let link = Arc::new(Link::new(from, &self.yard, cx));
        let mut links = lock(&self.links);
        if links.len() >= 2 * REMEMBERED {
            let recent = links.len() - REMEMBERED;
            let mut at = 0;
            links.retain(|link| {
                at += 1;
                at > recent || !link.has_ended()
            });
        }
        links.push(link.clone());
        link
    }

    /// A copy, so that no link is called under the lock.
    pub(super) fn links(&self) -> Vec<Arc<Link>> {
        lock(&self.links).clone()
    }

    /// Breaks these links and waits until nothing is copied over them.
    pub(super) fn break_links(
        &self,
        links: impl Iterator<Item = Arc<Link>>,
        error: impl Fn(&Link) -> MemoryError,
    ) -> Reports {
        let reports = Reports::default();
        let links: Vec<_> = links.collect();
        links.iter().for_each(|link| link.break_now(Report::new(error(link), &reports.0)));
        links.iter().for_each(|link| link.wait_settled());
        reports
    }

    pub(super) fn report(&self, link: &Arc<Link>, error: MemoryError) -> Reports {
        let reports = Reports::default();
        link.report(Report::new(error, &reports.0));
        reports
    }

    /// The node goes on as another incarnation: who is connected to it has to come again.
    pub(super) fn renew(&self, node: &Arc<Node>) -> Incarnation {
        let new = {
            let mut life = node.life();
            life.incarnation.0 += 1;
            life.incarnation
        };
        let inbound = self.links().into_iter().filter(|link| link.touches(node) && !Arc::ptr_eq(&link.from, node));
        self.break_links(inbound, |link| MemoryError::Broken { peer: link.peer.clone(), generation: link.generation });
        new
    }

    fn kill(&self, node: &Arc<Node>) -> Reports {
        node.life().alive = false;
        let touched = self.links().into_iter().filter(|link| link.touches(node));
        self.break_links(touched, |link| MemoryError::Broken { peer: link.peer.clone(), generation: link.generation })
    }
}

/// One process of the fabric.
pub(super) struct Node {
    pub(super) name: PeerName,
    pub(super) settings: Settings,
    life: Mutex<NodeLife>,
    pub(super) inbox: Inbox,
    pub(super) grants: GrantBook,
    /// Registered regions and how many posted transfers use each.
    regions: Mutex<HashMap<RegionId, usize>>,
    pub(super) steps: Steps,
    pub(super) log: Log,
    pub(super) tallies: Tallies,
}

struct NodeLife {
    alive: bool,
    incarnation: Incarnation,
}

impl Node {
    /// Its incarnation, if it lives.
    pub(super) fn living(&self) -> Option<Incarnation> {
        let life = self.life();
        life.alive.then_some(life.incarnation)
    }

    pub(super) fn incarnation(&self) -> Incarnation {
        self.life().incarnation
    }

    pub(super) fn register(&self, region: &Region) {
        lock(&self.regions).entry(region.id()).or_default();
    }

    pub(super) fn deregister(&self, region: &Region) -> Result<(), MemoryError> {
        let transfers =
            lock(&self.regions).remove(&region.id()).ok_or(MemoryError::NotRegistered { region: region.id() })?;
        if transfers > 0 {
            self.log.misuse(None, MisuseKind::DeregisteredUnderTransfer);
        }
        Ok(())
    }

    pub(super) fn use_region(&self, region: &Region) -> Result<(), MemoryError> {
        let mut regions = lock(&self.regions);
        *regions.get_mut(&region.id()).ok_or(MemoryError::NotRegistered { region: region.id() })? += 1;
        Ok(())
    }

    pub(super) fn release_region(&self, region: &Region) {
        if let Some(transfers) = lock(&self.regions).get_mut(&region.id()) {
            *transfers = transfers.saturating_sub(1);
        }
    }

    fn life(&self) -> MutexGuard<'_, NodeLife> {
        lock(&self.life)
    }
}
