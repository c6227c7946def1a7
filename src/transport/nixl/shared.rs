//! What the threads of a transport and those who call it share: its book of registrations, and its address.

use super::address::{MAX_METADATA, NixlAddress, OfferedMemory};
use super::builder::Settings;
use super::capi::Status;
use super::counts::Counts;
use super::dialers::{Dialer, Dialers};
use super::library::Library;
use super::mailbox::{Mailbox, OfTheirs};
use super::native::{Agent, Registration};
use super::registry::Registry;
use crate::clock::Clock;
use crate::error::UsedAfterFork;
use crate::fork::Process;
use crate::grant::GrantBook;
use crate::inbox::Inbox;
use crate::name::{Incarnation, PeerName};
use crate::region::{Region, RegionId};
use crate::sync::lock;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// What the threads and callers share.
pub(super) struct Shared {
    pub(super) process: Process,
    pub(super) name: PeerName,
    pub(super) incarnation: AtomicU64,
    pub(super) settings: Settings,
    pub(super) clock: Clock,
    pub(super) inbox: Inbox,
    pub(super) grants: GrantBook,
    pub(super) counts: Counts,
    pub(super) registry: Registry,
    pub(super) registered: Mutex<HashMap<RegionId, Registered>>,
    /// Of regions that are lent or moved without being registered.
    pub(super) momentary: Mutex<HashMap<(RegionId, Side), Weak<Registration>>>,
    /// How often the server has registered.
    pub(super) keys: AtomicU64,
    pub(super) published: Mutex<Current>,
    /// Of the server's thread.
    pub(super) mailbox: Arc<Mailbox<OfTheirs>>,
    pub(super) dialers: Dialers,
    pub(super) server: Arc<Agent>,
    pub(super) library: Arc<Library>,
}

/// The address, unless it is outdated.
#[derive(Default)]
pub(super) struct Current {
    pub(super) address: Option<NixlAddress>,
    /// How often it has been outdated.
    pub(super) changes: u64,
}

pub(super) struct Registered {
    /// With each dialer, in order.
    pub(super) ours: Vec<Arc<Registration>>,
    pub(super) offered: Arc<Registration>,
}

/// Which agent has registered it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Side {
    Dialer(usize),
    Server,
}

impl Shared {
    pub(super) fn check_process(&self) -> Result<(), UsedAfterFork> {
        if self.process.is_this() { Ok(()) } else { Err(UsedAfterFork) }
    }

    pub(super) fn incarnation(&self) -> Incarnation {
        Incarnation(self.incarnation.load(Ordering::Acquire))
    }

    /// A region for a transfer of ours.
    pub(super) fn ours(&self, region: &Region, dialer: &Dialer) -> Result<Arc<Registration>, Status> {
        let ours = |registered: &Registered| registered.ours[dialer.place].clone();
        let registered = lock(&self.registered).get(&region.id()).map(ours);
        registered.map_or_else(|| self.for_the_moment(region, Side::Dialer(dialer.place)), Ok)
    }

    /// A region for a peer's.
    pub(super) fn offered(&self, region: &Region) -> Result<Arc<Registration>, Status> {
        let registered = lock(&self.registered).get(&region.id()).map(|registered| registered.offered.clone());
        registered.map_or_else(|| self.for_the_moment(region, Side::Server), Ok)
    }

    /// For as long as somebody uses it, if it was not registered.
    pub(super) fn for_the_moment(&self, region: &Region, side: Side) -> Result<Arc<Registration>, Status> {
        let known = lock(&self.momentary).get(&(region.id(), side)).and_then(Weak::upgrade);
        if let Some(known) = known {
            return Ok(known);
        }
        let agent = match side {
            Side::Dialer(place) => &self.dialers.0[place].agent,
            Side::Server => &self.server,
        };
        let registration = agent.register_region(region)?;
        let mut momentary = lock(&self.momentary);
        momentary.retain(|_, registration| registration.strong_count() > 0);
        momentary.insert((region.id(), side), Arc::downgrade(&registration));
        drop(momentary);
        if side == Side::Server {
            self.offers_more();
        }
        Ok(registration)
    }

    pub(super) fn offers_more(&self) {
        self.keys.fetch_add(1, Ordering::AcqRel);
        self.address_changes();
    }

    /// After the change: who makes an address meanwhile does not keep it.
    pub(super) fn address_changes(&self) {
        let mut published = lock(&self.published);
        published.address = None;
        published.changes += 1;
    }

    /// The address, made anew when registrations have changed.
    pub(super) fn publish(&self) -> Result<NixlAddress, Status> {
        let changes = {
            let published = lock(&self.published);
            if let Some(address) = &published.address {
                return Ok(address.clone());
            }
            published.changes
        };
        // Before NIXL is asked: what is registered meanwhile may be in it, and is told again.
        let keys = self.keys.load(Ordering::Acquire);
        let offered =
            |(region, registered): (&RegionId, &Registered)| OfferedMemory::new(*region, registered.offered.memory());
        let mut memory: Vec<_> = lock(&self.registered).iter().map(offered).collect();
        memory.sort_by_key(|memory| memory.region.0);
        let metadata = self.server.local_metadata()?;
        if metadata.len() > MAX_METADATA {
            return Err(Status::INVALID_PARAM);
        }
        let address = NixlAddress::new(self.name.clone(), self.incarnation(), keys, memory, metadata);
        let mut published = lock(&self.published);
        if changes == published.changes {
            published.address = Some(address.clone());
        }
        Ok(address)
    }
}
