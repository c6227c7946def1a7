//! What the transports that listen have in common: limits, and what one is called that was given no name.

use crate::inbox::Inbox;
use crate::name::{Incarnation, PeerName};
use std::time::Duration;

/// The most that one notification may ever carry: every inbound connection may need a buffer of it.
#[cfg(feature = "tcp")]
pub(super) const MAX_NOTIFICATION: usize = 16 * 1024 * 1024;
/// How many bytes of messages may wait before nobody new is let in: what is undrained for that long is no burst.
const MAX_QUEUED_BYTES: usize = 256 << 20;

/// How long a caller should wait for room in a full outbound queue.
pub(super) const QUEUE_RETRY: Duration = Duration::from_millis(1);
/// How long a dialer should wait for a place at a full acceptor.
pub(super) const FULL_RETRY: Duration = Duration::from_millis(100);

/// Messages of connections that are gone count too, so a peer can't pile them up by connecting again and again.
pub(super) fn is_overfull(inbox: &Inbox, max_inbound: usize, inbox_capacity: usize) -> bool {
    inbox.len() >= max_inbound.saturating_mul(inbox_capacity) || inbox.bytes() >= MAX_QUEUED_BYTES
}

pub(super) fn nameless(incarnation: Incarnation) -> PeerName {
    PeerName::new(&format!("peerage-{}-{incarnation}", std::process::id())).expect("digits and dashes, 40 bytes")
}
