//! Our handle of one remote agent, and what it can be asked.

use crate::error::NotReady;
use crate::lease::Lease;
use crate::name::{PeerId, PeerName};
use crate::note::Note;
use crate::record::Record;
use crate::slot::SlotRef;
use crate::state::{Generation, Phase};
use crate::transport::{Reported, Transport};
use std::error::Error;
use std::fmt;

/// A handle of one remote agent. Cheap to clone; counts a reference to the peer's slot, not a connection.
pub struct Peer<T: Transport> {
    name: PeerName,
    slot: SlotRef<T>,
}

impl<T: Transport> Clone for Peer<T> {
    fn clone(&self) -> Self {
        Peer { name: self.name.clone(), slot: self.slot.clone() }
    }
}

impl<T: Transport> Peer<T> {
    pub(crate) fn new(name: PeerName, slot: SlotRef<T>) -> Self {
        Peer { name, slot }
    }

    pub(crate) fn of(slot: SlotRef<T>) -> Self {
        let name = slot.name();
        Peer { name, slot }
    }

    pub(crate) fn slot(&self) -> &SlotRef<T> {
        &self.slot
    }

    /// The peer in 8 bytes, for [`PeerTable::lease_by_id`](crate::PeerTable::lease_by_id).
    pub fn id(&self) -> PeerId {
        self.slot.id()
    }

    /// The peer's name.
    pub fn name(&self) -> &PeerName {
        &self.name
    }

    /// Where it stands, now. In a forked child: where it stood at the fork, like all that only reads.
    pub fn phase(&self) -> Phase {
        self.slot.word().phase()
    }

    /// At which generation, now.
    pub fn generation(&self) -> Generation {
        self.slot.word().generation()
    }

    /// Whether it is Ready and has not answered for a [heartbeat](crate::Heartbeat)'s interval, or a transfer of this generation
    /// is [stalled](crate::Builder::stalled_after). Leases are granted all the same; who has a choice sends elsewhere first.
    /// Where neither is asked for always false. Wait-free.
    pub fn is_suspect(&self) -> bool {
        self.slot.is_suspect()
    }

    /// The right to use the current generation's connection. Never waits, takes no lock, allocates nothing. Refused, it
    /// has asked for one reconnect, which starts when the backoff allows.
    ///
    /// # Errors
    /// [`NotReady`]; nothing was sent. Fail the request, or wait with [`ready`](Self::ready).
    #[inline]
    pub fn lease(&self) -> Result<Lease<T>, NotReady> {
        Lease::enter(&self.slot)
    }

    /// Reports `generation` as broken. A generation that is not the current one changes nothing, and the answer says so.
    /// After this returns no new send is admitted on it, whatever the answer. Connects nothing. Never waits; allocates
    /// one note. The error is taken as text: its class is not asked, so busy and local errors are not for this.
    pub fn report(&self, generation: Generation, error: &dyn Error) -> Reported {
        let note = || Note::of_text(generation, error.to_string().into());
        self.slot.home().report(&self.slot, generation, note)
    }

    /// The full state as plain data: what the last transition was and why. `None` between two transitions, for a moment.
    pub fn record(&self) -> Option<Record> {
        self.slot.record_of(self.slot.word())
    }
}

impl<T: Transport> fmt::Debug for Peer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer").field("name", &self.name).field("at", &self.slot.word()).finish_non_exhaustive()
    }
}
