//! The inbound connections, for those who ask.

use crate::name::{Incarnation, PeerName};
use crate::state::Generation;
use crate::sync::lock;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What tells inbound connections apart. The dialer names all three; NIXL authenticates nobody, so that is a claim.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct InboundKey {
    /// The dialer's name.
    pub name: PeerName,
    /// Its boot id.
    pub incarnation: Incarnation,
    /// Its generation of this connection.
    pub generation: Generation,
}

#[derive(Default)]
pub(super) struct Registry {
    open: Mutex<Open>,
    left: Condvar,
}

#[derive(Default)]
struct Open {
    since: HashMap<InboundKey, Instant>,
    /// How many connections each boot of each peer has open, and the newest generation that it has had since it had none.
    boots: HashMap<(PeerName, Incarnation), (usize, Generation)>,
}

impl Registry {
    /// `false`: there is one of this key.
    pub(super) fn enter(&self, key: &InboundKey) -> bool {
        let Open { since, boots } = &mut *lock(&self.open);
        if since.contains_key(key) {
            return false;
        }
        since.insert(key.clone(), Instant::now());
        let (open, newest) = boots.entry((key.name.clone(), key.incarnation)).or_insert((0, key.generation));
        (*open, *newest) = (*open + 1, key.generation.max(*newest));
        true
    }

    pub(super) fn leave(&self, key: &InboundKey) {
        let Open { since, boots } = &mut *lock(&self.open);
        if since.remove(key).is_none() {
            return;
        }
        if let Entry::Occupied(mut boot) = boots.entry((key.name.clone(), key.incarnation)) {
            boot.get_mut().0 -= 1;
            if boot.get().0 == 0 {
                boot.remove();
            }
        }
        self.left.notify_all();
    }

    /// Whether the same boot of the same peer has connected again since: what comes over this one is old.
    pub(super) fn is_outdated(&self, key: &InboundKey) -> bool {
        let open = lock(&self.open);
        open.boots.get(&(key.name.clone(), key.incarnation)).is_some_and(|(_, newest)| key.generation < *newest)
    }

    pub(super) fn list(&self) -> Vec<(InboundKey, Duration)> {
        lock(&self.open).since.iter().map(|(key, since)| (key.clone(), since.elapsed())).collect()
    }

    pub(super) fn has(&self, key: &InboundKey) -> bool {
        lock(&self.open).since.contains_key(key)
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.open).since.len()
    }

    /// Blocks this thread until there is none, or `left` says that the time is over.
    pub(super) fn wait_until_empty(&self, left: impl Fn() -> Option<Duration>) {
        let mut open = lock(&self.open);
        while !open.since.is_empty() {
            let Some(left) = left() else { return };
            open = self.left.wait_timeout(open, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
