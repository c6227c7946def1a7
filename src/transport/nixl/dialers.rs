//! The agents that dial. NIXL holds an agent's one lock for as long as it loads a peer, so peers are spread over several: one that
//! connects slowly holds up the few that share its agent.

use super::capi::Status;
use super::mailbox::{Mailbox, OfOurs};
use super::moving::Graveyard;
use super::native::Agent;
use super::senders::Senders;
use crate::name::PeerName;
use crate::sync::lock;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};

pub(super) struct Dialer {
    pub(super) agent: Arc<Agent>,
    /// Without keys: how it is answered.
    pub(super) metadata: Vec<u8>,
    /// Of its thread.
    pub(super) mailbox: Arc<Mailbox<OfOurs>>,
    pub(super) graveyard: Mutex<Graveyard>,
    pub(super) senders: Senders,
    /// Which one it is.
    pub(super) place: usize,
}

impl Dialer {
    /// Before memory is registered with it: who answers gets no keys.
    pub(super) fn new(agent: Arc<Agent>, place: usize) -> Result<Arc<Self>, Status> {
        let metadata = agent.local_metadata()?;
        let (mailbox, graveyard) = (Arc::new(Mailbox::new()), Mutex::default());
        Ok(Arc::new(Dialer { agent, metadata, mailbox, graveyard, senders: Senders::default(), place }))
    }

    /// How many transfers NIXL has not let go of, or not in a way that proves anything.
    pub(super) fn leaked(&self) -> usize {
        lock(&self.graveyard).len() + self.agent.leaked()
    }
}

/// All of them, one at least.
pub(super) struct Dialers(pub(super) Box<[Arc<Dialer>]>);

impl Dialers {
    /// Whose this peer is, always: NIXL has one place for a name in an agent, and who is called takes a newer connection of an
    /// agent for the end of its older ones.
    pub(super) fn of(&self, peer: &PeerName) -> &Arc<Dialer> {
        let mut hasher = DefaultHasher::new();
        peer.hash(&mut hasher);
        &self.0[(hasher.finish() % self.0.len() as u64) as usize]
    }
}
