//! Peers that are ranks of one engine: when an error of one says that its process is gone, the others are asked at once.
//!
//! Who learns of it holds that one slot's mutex, and tells the others after unlock, by an event like any other: their lanes
//! let a heartbeat be due now. So nobody waits for another slot.

use super::Locked;
use crate::name::{PeerId, PeerName};
use crate::queue::ASK;
use crate::shared::Shared;
use crate::slot::Slot;
use crate::state::Phase;
use crate::sync::Arc;
use crate::transport::Transport;

pub(crate) struct Group {
    pub(crate) name: PeerName,
    /// By id, so that a group keeps nobody alive.
    pub(crate) members: Vec<PeerId>,
}

impl Group {
    pub(super) fn ask_all_but<T: Transport>(&self, gone: &Slot<T>, home: &Shared<T>) {
        for id in self.members.iter().filter(|id| **id != gone.id()) {
            if let Some(member) = home.upgrade(*id) {
                member.tell(ASK);
            }
        }
    }
}

impl<T: Transport> Locked<'_, T> {
    /// Makes it a member of `group`, and of no other.
    pub(crate) fn join_group(&mut self, group: Arc<Group>) {
        self.settle(None);
        self.slow.group = Some(group);
        if !matches!(self.word().phase(), Phase::Removing | Phase::Removed) {
            self.write_record(self.slow.settled, self.slow.reason);
        }
    }

    pub(super) fn ask_the_others(&mut self) {
        self.after.ask = self.slow.group.clone();
    }
}
