//! A process that goes on from a snapshot of itself, perhaps beside the one that was taken: another process to its peers.

use crate::error::{IncarnationError, UsedAfterFork};
use crate::name::Incarnation;
use crate::slow::locked;
use crate::sync::caught;
use crate::table::PeerTable;
use crate::transport::Transport;

impl<T: Transport> PeerTable<T> {
    /// Makes this process another [incarnation](Incarnation) of itself, for one that was restored from a snapshot (of its
    /// machine, or by CRIU). Its memory says that connections are open which the network has forgotten, and peers may have
    /// gone on with the process the snapshot was taken of. Call it before anything else, with no call of the table running.
    ///
    /// From here on the transport introduces us with the new boot id, which is answered. Every generation that is Ready or
    /// connecting is retired as by an [update](crate::Peer::update): leases of it answer `StaleGeneration`, no failure is
    /// counted, backoffs are forgotten, and a connect is asked for, so all peers shake hands again. Connections that others
    /// opened to us are closed. Pages lent over them are quiesced; transfers under way end with their connections. Messages
    /// that wait in the inbox stay. The jitter's random sequence is moved, so that restored copies do not dial in step.
    ///
    /// Takes the mutex of each peer in turn. May block as the transport's
    /// [`new_incarnation`](Transport::new_incarnation) may.
    ///
    /// # Errors
    /// [`IncarnationError`]; no peer was touched.
    pub fn new_incarnation(&self) -> Result<Incarnation, IncarnationError> {
        let shared = self.shared();
        if !shared.is_here() {
            return Err(UsedAfterFork.into());
        }
        if shared.names.is_shut_down() {
            return Err(IncarnationError::ShutDown);
        }
        let new = caught(|| shared.transport.new_incarnation());
        let new =
            new.map_err(|message| IncarnationError::Panicked { message })?.ok_or(IncarnationError::Unsupported)?;
        shared.stir(new.0);
        // After the transport: an attempt that introduced us as we were has begun, and is retired here.
        for slot in shared.slab.lives() {
            locked(&slot, |lane| lane.renew());
        }
        Ok(new)
    }
}
