//! Waiting until a peer can be leased.

use crate::wire::Wire;
use peerage::{Peer, ReadyError};
use std::error::Error;
use std::hint::spin_loop;
use std::time::{Duration, Instant};

/// Sits out a backoff of zero, which may still be running when one asks.
pub(crate) fn wait(peer: &Peer<Wire>) -> Result<(), Box<dyn Error>> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match peer.wait_ready(deadline) {
            Ok(_) => return Ok(()),
            Err(ReadyError::BackingOff { retry_at, .. }) if retry_at < deadline => spin_loop(),
            Err(other) => return Err(other.into()),
        }
    }
}
