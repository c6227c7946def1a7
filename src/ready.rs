//! Waiting for a peer to be ready: look, join the attempt, look whether the driver died, wait.

use crate::error::ReadyError;
use crate::peer::Peer;
use crate::pool::is_table_thread;
use crate::slot::SlotRef;
use crate::slow::{Ended, Join, locked};
use crate::state::Generation;
use crate::transport::Transport;
use crate::wait::Wait;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

impl<T: Transport> Peer<T> {
    /// Waits, on any runtime, until the peer is ready, and asks for a connect if none runs. Resolves with the outcome of
    /// the first attempt that ends after the question; never sleeps through a backoff. Dropping it cancels nothing.
    pub fn ready(&self) -> Ready<T> {
        Ready { slot: self.slot().clone(), wait: None }
    }

    /// The same, blocking this thread, until `deadline` (by the table's clock) at the latest. Like `ready`, it answers at once
    /// while the peer backs off; who wants to sit that out says so:
    ///
    /// ```
    /// # use peerage::{Generation, Peer, ReadyError, Transport};
    /// # use std::time::Instant;
    /// fn wait_through<T: Transport>(peer: &Peer<T>, deadline: Instant) -> Result<Generation, ReadyError> {
    ///     loop {
    ///         match peer.wait_ready(deadline) {
    ///             Err(ReadyError::BackingOff { retry_at, .. }) if retry_at < deadline => {
    ///                 std::thread::sleep(retry_at.saturating_duration_since(Instant::now()));
    ///             }
    ///             answer => return answer,
    ///         }
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// [`ReadyError`]; [`ReadyError::WouldDeadlock`] inside a transport's calls.
    pub fn wait_ready(&self, deadline: Instant) -> Result<Generation, ReadyError> {
        let word = self.slot().word();
        if word.bay().is_some() && self.slot().is_here() {
            return Ok(word.generation());
        }
        if is_table_thread() {
            return Err(ReadyError::WouldDeadlock { peer: self.name().clone() });
        }
        match join(self.slot()) {
            Join::Ended(ended) => ended,
            Join::Wait(cell) => match cell.wait_until(deadline, &self.slot().home().clock) {
                Some(ended) => ended,
                None => Err(ReadyError::Deadline { peer: self.name().clone() }),
            },
        }
    }
}

pub(crate) fn join<T: Transport>(slot: &SlotRef<T>) -> Join {
    if !slot.is_here() {
        return Join::Ended(Err(ReadyError::UsedAfterFork { peer: slot.name() }));
    }
    let word = slot.word();
    if word.bay().is_some() {
        return Join::Ended(Ok(word.generation()));
    }
    slot.mark_asked();
    let joined = locked(slot, |lane| lane.join());
    if matches!(joined, Join::Wait(_)) && slot.home().driver_died() {
        let peer = slot.name();
        return Join::Ended(Err(ReadyError::DriverDied { peer }));
    }
    joined
}

/// A future: the peer is ready, or why it is not. Asks for a connect when it is first polled.
#[must_use = "nothing is asked for until it is polled"]
pub struct Ready<T: Transport> {
    slot: SlotRef<T>,
    wait: Option<Wait<Ended>>,
}

impl<T: Transport> Future for Ready<T> {
    type Output = Result<Generation, ReadyError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.wait.is_none() || !self.slot.is_here() {
            match join(&self.slot) {
                Join::Ended(ended) => return Poll::Ready(ended),
                Join::Wait(cell) => self.wait = Some(Wait::new(cell)),
            }
        }
        Pin::new(self.wait.as_mut().expect("joined above")).poll(cx)
    }
}

impl<T: Transport> fmt::Debug for Ready<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ready").field("at", &self.slot.word()).field("wait", &self.wait).finish()
    }
}
