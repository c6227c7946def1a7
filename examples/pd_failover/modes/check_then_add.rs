//! Today's usual fault: look, and if there is no connection, make one and add it. Nothing holds the lock from the look to
//! the addition, so two threads that both see a peer absent both connect to it.

use super::direct::{Direct, DirectLink, Open};
use super::{Link, Net, PeerIndex, Peers, Policy, Refused, WireAddress, counts_without_table};
use crate::lines::Counts;
use peerage::{Generation, Grant, PeerName, Region, Slice};
use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) struct CheckThenAdd {
    direct: Direct,
    connections: Mutex<HashMap<PeerIndex, Arc<Open>>>,
}

impl CheckThenAdd {
    pub(crate) fn new(net: Net, peers: &[(PeerName, WireAddress)], policy: Policy) -> Self {
        CheckThenAdd { direct: Direct::new(net, peers, policy), connections: Mutex::default() }
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

impl Peers for CheckThenAdd {
    fn link(&self, to: PeerIndex) -> Result<Box<dyn Link + '_>, Refused> {
        let found = self.connections().get(&to).cloned();
        let open = match found {
            Some(open) => open,
            None => {
                let open = self.direct.connect(to)?;
                let replaced = self.connections().insert(to, open.clone());
                drop(replaced); // closed here, if nobody else uses it
                open
            }
        };
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
