//! What is in an inbox.

use crate::name::{Incarnation, PeerName};
use crate::state::Generation;

/// One message.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notification {
    /// The name the sender gave itself. On an unauthenticated transport that is a claim.
    pub from: PeerName,
    /// The sender's boot id, if the transport learns it.
    pub incarnation: Option<Incarnation>,
    /// The sender's own generation of the connection it came over, if the transport learns it.
    pub generation: Option<Generation>,
    /// Its number on that connection, if the transport counts them: it grows from message to message.
    pub sequence: Option<u64>,
    /// The message.
    pub bytes: Vec<u8>,
}

impl Notification {
    /// For transports.
    pub fn new(
        from: PeerName,
        incarnation: Option<Incarnation>,
        generation: Option<Generation>,
        bytes: Vec<u8>,
    ) -> Self {
        Notification { from, incarnation, generation, sequence: None, bytes }
    }

    /// The same with its number on the connection.
    #[must_use]
    pub fn with_sequence(self, sequence: u64) -> Self {
        Notification { sequence: Some(sequence), ..self }
    }
}
