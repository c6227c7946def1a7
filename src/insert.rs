//! Adding peers to a table: all of a call, or none.
//!
//! New slots are made first, one for each name that is not live; then all names are added in one replacement of the names'
//! snapshot (names.rs). If somebody else has changed one of them meanwhile, the slots are discarded and all begins again.

use crate::error::{GroupError, GroupMember, InsertError};
use crate::name::{PeerId, PeerName};
use crate::names::{Found, New, NotAdded};
use crate::peer::Peer;
use crate::shared::Shared;
use crate::slot::{Slot, SlotRef};
use crate::slow::{Group, Slow, locked};
use crate::state::Phase;
use crate::table::PeerTable;
use crate::transport::{Address, Transport};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

impl<T: Transport> PeerTable<T> {
    /// Adds a peer; makes no native call. A live name with the same address answers the existing peer. A name whose former
    /// peer is still being removed may be inserted at once; where a second connection would be in its way, the new peer
    /// connects when the old one is gone. Runs the address's `Eq` and `Display` on this thread, under no lock. May wait
    /// while another insert makes room: a sixteenth more places than there are.
    ///
    /// # Errors
    /// [`InsertError`]; the table is unchanged.
    pub fn insert<N>(&self, name: N, address: T::Address) -> Result<Peer<T>, InsertError>
    where
        N: TryInto<PeerName>,
        InsertError: From<N::Error>,
    {
        let mut peers = self.insert_many([(name.try_into()?, address)])?;
        Ok(peers.pop().expect("one peer for one name"))
    }

    /// Adds many peers at the cost of one copy of the names: all or none. Runs code and may wait as
    /// [`insert`](Self::insert).
    ///
    /// # Errors
    /// [`InsertError`] of the first that can't be added; the table is unchanged.
    pub fn insert_many(
        &self,
        peers: impl IntoIterator<Item = (PeerName, T::Address)>,
    ) -> Result<Vec<Peer<T>>, InsertError> {
        let wanted: Vec<_> = peers.into_iter().map(|(name, address)| (name, Arc::new(address))).collect();
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        if !self.shared().is_here() {
            return Err(InsertError::UsedAfterFork { name: wanted[0].0.clone() });
        }
        self.check_batch(&wanted)?;
        loop {
            if let Some(peers) = self.try_insert(&wanted)? {
                return Ok(peers);
            }
        }
    }

    /// Adds the ranks of one engine, each a peer of its own: all or none. When an error of one says that its
    /// [process is gone](crate::TransportError::process_is_gone), the others that are Ready are probed at once, as by a
    /// [heartbeat](crate::Builder::heartbeat) that is due; without heartbeats nobody is. A member that is in the table already
    /// with this address joins the group, and leaves its last one. Runs code and may wait as [`insert`](Self::insert).
    ///
    /// # Errors
    /// [`GroupError`]: as [`insert_many`](Self::insert_many), or two addresses name different
    /// [engines](crate::Address::engine); the table is unchanged. An address that names none fits with any.
    pub fn insert_group(
        &self,
        group: &str,
        members: impl IntoIterator<Item = (PeerName, T::Address)>,
    ) -> Result<Vec<Peer<T>>, GroupError> {
        let group = PeerName::new(group).map_err(InsertError::from)?;
        let members: Vec<_> = members.into_iter().collect();
        check_engines(&group, &members)?;
        let peers = self.insert_many(members)?;
        let group = Arc::new(Group { name: group, members: peers.iter().map(Peer::id).collect() });
        peers.iter().for_each(|peer| locked(peer.slot(), |lane| lane.join_group(group.clone())));
        Ok(peers)
    }

    /// Names in one batch may repeat only with one address, and none may be ours.
    fn check_batch(&self, wanted: &[(PeerName, Arc<T::Address>)]) -> Result<(), InsertError> {
        let own = self.shared().transport.local_name();
        let mut seen: HashMap<&PeerName, &Arc<T::Address>> = HashMap::new();
        for (name, address) in wanted {
            if own == Some(name) {
                return Err(InsertError::OwnName { name: name.clone() });
            }
            match seen.insert(name, address) {
                Some(before) if **before != **address => return Err(conflict(name, before, address)),
                _ => {}
            }
        }
        Ok(())
    }

    /// `None`: somebody else changed one of the names meanwhile.
    fn try_insert(&self, wanted: &[(PeerName, Arc<T::Address>)]) -> Result<Option<Vec<Peer<T>>>, InsertError> {
        let mut slots: HashMap<PeerName, SlotRef<T>> = HashMap::with_capacity(wanted.len());
        let mut new = NotListed(Vec::new());
        for (name, address) in wanted {
            if slots.contains_key(name) {
                continue;
            }
            let slot = match self.existing(name, address)? {
                Existing::Live(slot) => slot,
                Existing::Nobody { after } => {
                    let slot = self.new_slot(name, address, after)?;
                    new.0.push(New { name: name.clone(), slot: slot.clone(), after });
                    slot
                }
            };
            slots.insert(name.clone(), slot);
        }
        match self.shared().names.add(&new.0) {
            Ok(()) => {
                new.0.clear();
                let peer = |name: &PeerName| Peer::new(name.clone(), slots[name].clone());
                Ok(Some(wanted.iter().map(|(name, _)| peer(name)).collect()))
            }
            Err(NotAdded::Taken) => Ok(None),
            Err(NotAdded::ShutDown) => Err(InsertError::ShutDown { name: wanted[0].0.clone() }),
        }
    }

    /// The live slot of `name`, if there is one and it has this address.
    fn existing(&self, name: &PeerName, address: &Arc<T::Address>) -> Result<Existing<T>, InsertError> {
        let shared = self.shared();
        let slot = shared.names.with(name.as_str(), |found| match found {
            Found::Slot(slot) => Ok(Existing::Live(slot.clone())),
            Found::Nothing => Ok(Existing::Nobody { after: None }),
            Found::Leaving(id) => Ok(Existing::Nobody { after: Some(id) }),
            Found::ShutDown => Err(InsertError::ShutDown { name: name.clone() }),
        })?;
        let Existing::Live(slot) = slot else { return Ok(slot) };
        slot.mark_asked();
        let (live, phase) = locked(&slot, |lane| (lane.slow.address.clone(), lane.word().phase()));
        match live {
            Some(live) if !matches!(phase, Phase::Removing | Phase::Removed) => match *live == **address {
                true => Ok(Existing::Live(slot)),
                false => Err(conflict(name, &live, address)),
            },
            // Its remover has not come to the names yet.
            _ => {
                shared.leaves(name, &slot);
                Ok(Existing::Nobody { after: shared.names.leaving(name.as_str()) })
            }
        }
    }

    fn new_slot(
        &self,
        name: &PeerName,
        address: &Arc<T::Address>,
        after: Option<PeerId>,
    ) -> Result<SlotRef<T>, InsertError> {
        let shared = self.shared();
        let limit = shared.config.max_peers;
        let too_many = || InsertError::TooManyPeers { name: name.clone(), limit };
        let generation = shared.next_generation();
        // Before the peer is counted: it shows the address, which may panic.
        let slow = Slow::new(name.clone(), address.clone(), generation, shared.clock.now(), after);
        if !shared.count_peer() {
            return Err(too_many());
        }
        let home: *const Shared<T> = Arc::as_ptr(shared);
        let Some(place) = shared.slab.claim(|index| Slot::new(index, shared.config.stripes, home)) else {
            shared.peer_removed();
            return Err(too_many());
        };
        let slot = place.begin_life(shared, generation, slow);
        locked(&slot, |lane| lane.start_lane(slot.clone()));
        Ok(slot)
    }
}

/// What a name stands for when it is to be inserted.
enum Existing<T: Transport> {
    Live(SlotRef<T>),
    Nobody {
        /// The slot that has to be Removed before a new one may connect.
        after: Option<PeerId>,
    },
}

/// New slots that are not in the names yet. They end with this, also when a user's address panics.
struct NotListed<T: Transport>(Vec<New<T>>);

impl<T: Transport> Drop for NotListed<T> {
    fn drop(&mut self) {
        for New { slot, .. } in self.0.drain(..) {
            locked(&slot, |lane| lane.discard());
        }
    }
}

fn conflict<A: fmt::Display>(name: &PeerName, live: &A, given: &A) -> InsertError {
    InsertError::NameConflict { name: name.clone(), live: live.to_string(), given: given.to_string() }
}

/// Addresses that name an engine must name one start of it.
fn check_engines<A: Address>(group: &PeerName, members: &[(PeerName, A)]) -> Result<(), GroupError> {
    let engines: Vec<_> = members.iter().map(|(_, address)| address.engine()).collect();
    let mut named = engines.iter().flatten();
    let first = named.next();
    if named.all(|engine| Some(engine) == first) {
        return Ok(());
    }
    let member = |((name, address), engine): (&(PeerName, A), _)| GroupMember {
        name: name.clone(),
        engine,
        address: address.to_string(),
    };
    let members = members.iter().zip(engines).map(member).collect();
    Err(GroupError::Mixed { group: group.clone(), members })
}
