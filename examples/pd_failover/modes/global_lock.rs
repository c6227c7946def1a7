//! Today's usual fix: one lock around the map of connections, held through connect, so that nobody connects twice. One
//! peer's connect now makes every send to every other peer wait. A rare duplicate is left: a connection that was removed
//! from the map is still open while its last user has not let go of it.

use super::direct::{Direct, DirectLink, Open};
use super::{Link, Net, PeerIndex, Peers, Policy, Refused, WireAddress, counts_without_table};
use crate::lines::Counts;
use peerage::{Generation, Grant, PeerName, Region, Slice};
use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) struct GlobalLock {
    direct: Direct,
    connections: Mutex<HashMap<PeerIndex, Arc<Open>>>,
}

impl GlobalLock {
    pub(crate) fn new(net: Net, peers: &[(PeerName, WireAddress)], policy: Policy) -> Self {
        GlobalLock { direct: Direct::new(net, peers, policy), connections: Mutex::default() }
    }

    fn connections(&self) -> MutexGuard<'_, HashMap<PeerIndex, Arc<Open>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn link_over(&self, to: PeerIndex, open: Arc<Open>) -> Box<dyn Link + '_> {
        Box::new(DirectLink { open, remove: Box::new(move || self.remove(to)) })
    }

    fn remove(&self, to: PeerIndex) {
        let gone = self.connections().remove(&to);
        if gone.is_some() {
            self.direct.failed(to);
        }
    }
}

impl Peers for GlobalLock {
    fn link(&self, to: PeerIndex) -> Result<Box<dyn Link + '_>, Refused> {
        let mut connections = self.connections();
        let open = match connections.get(&to) {
            Some(open) => open.clone(),
            None => {
                let open = self.direct.connect(to)?;
                connections.insert(to, open.clone());
                open
            }
        };
        drop(connections);
        Ok(self.link_over(to, open))
    }

    fn link_if_up(&self, to: PeerIndex) -> Option<Box<dyn Link + '_>> {
        let open = self.connections().get(&to).cloned()?;
        Some(self.link_over(to, open))
    }

    fn link_within(&self, to: PeerIndex, deadline: Instant) -> Result<Box<dyn Link + '_>, Refused> {
        loop {
            match self.link(to) {
                Err(_) if Instant::now() < deadline => thread::sleep(Duration::from_millis(2)),
                linked => return linked,
            }
        }
    }

    fn report(&self, to: PeerIndex, _used: Generation, _why: &dyn Error) {
        self.remove(to);
    }

    fn register(&self, region: &Region) -> Result<(), Refused> {
        self.direct.register(region)
    }

    fn lend(&self, to: PeerIndex, page: &Slice) -> Result<Grant, Refused> {
        Ok(self.direct.lend(to, page))
    }

    fn all_ready(&self) -> bool {
        self.connections().len() == self.direct.len()
    }

    fn net(&self) -> &Net {
        &self.direct.net
    }

    fn counts(&self) -> Option<Counts> {
        counts_without_table(&self.direct.net)
    }

    fn shutdown(&self, _deadline: Instant) -> String {
        self.connections().clear();
        String::new()
    }
}
