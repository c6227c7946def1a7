//! A peer that moves or restarts: the only way to replace the address of a live peer.

use crate::error::{ReadyError, UpdateError};
use crate::peer::Peer;
use crate::slow::{NewAddress, locked};
use crate::state::Generation;
use crate::sync::Arc;
use crate::table::PeerTable;
use crate::transport::{Address, Transport};

/// What an update did.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Updated {
    /// The peer has this address already. Nothing changed.
    Same,
    /// There is no connection. The next attempt goes to the new address, when somebody asks for one.
    Stored,
    /// The same process: this generation's connection, or attempt, goes on.
    Kept(Generation),
    /// This generation is retired and its connection is closed after its last lease; a connect to the new address has
    /// been asked for.
    Retired(Generation),
}

impl<T: Transport> Peer<T> {
    /// Replaces the peer's address: for a peer that restarted or moved, or whose metadata changed.
    ///
    /// If both the new address and what is known of the peer name one [incarnation](crate::Incarnation), it is the same
    /// process: its backoff stays as it is, and its connection stays if the transport says
    /// [`UPDATES_IN_PLACE`](crate::Capabilities::UPDATES_IN_PLACE). Otherwise it may be another process: the current
    /// generation is retired as if it had been reported, but no failure is counted, a connect is asked for, and the
    /// backoff is forgotten, so that the first request after a restart finds the peer. Who waits in
    /// [`ready`](Self::ready) goes on waiting, for the attempt at the new address.
    ///
    /// Runs the address's `Eq` and `Display` on this thread, under no lock. Takes the peer's mutex, never waits for a native
    /// call.
    ///
    /// # Errors
    /// [`UpdateError`]; nothing was changed.
    pub fn update(&self, address: T::Address) -> Result<Updated, UpdateError> {
        if !self.slot().is_here() {
            return Err(UpdateError::UsedAfterFork { peer: self.name().clone() });
        }
        let (text, incarnation) = (address.to_string().into(), address.incarnation());
        let new = NewAddress { address: Arc::new(address), text, incarnation };
        loop {
            let live = locked(self.slot(), |lane| lane.address()).map_err(not_updated)?;
            if *live == *new.address {
                return Ok(Updated::Same);
            }
            // `None`: somebody else's update came first.
            if let Some(updated) = locked(self.slot(), |lane| lane.update(&live, &new)) {
                return updated.map_err(not_updated);
            }
        }
    }
}

fn not_updated(error: ReadyError) -> UpdateError {
    match error {
        ReadyError::ShutDown { peer } => UpdateError::ShutDown { peer },
        other => UpdateError::Removed { peer: other.peer().clone() },
    }
}

impl<T: Transport> PeerTable<T> {
    /// [`Peer::update`] by name.
    ///
    /// # Errors
    /// [`UpdateError`]; nothing was changed.
    pub fn update(&self, name: &str, address: T::Address) -> Result<Updated, UpdateError> {
        match self.peer(name) {
            Some(peer) => peer.update(address),
            None => Err(UpdateError::Unknown { name: name.to_owned() }),
        }
    }
}
