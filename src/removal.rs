//! Removing a peer, and what who asked for it is told.

use crate::error::{NotReady, WouldDeadlock};
use crate::peer::Peer;
use crate::slow::locked;
use crate::state::{Generation, Word};
use crate::transport::{CloseReason, Transport};
use crate::wait::{AfterFork, Cell, Pending};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

impl<T: Transport> Peer<T> {
    /// Removes the peer: no lease from here on, the connection is closed when its leases are back. The name is free at once,
    /// or when the removal has resolved if a second connection would be in the way of this one. The future resolves with
    /// what really happened, at `deadline` (by the table's clock) at the latest; the work goes on after that. May be called again, by anybody,
    /// with the same end. Dropping the future cancels nothing.
    pub fn remove(&self, deadline: Instant) -> Removal {
        match self.start_removal(None, deadline) {
            Ok(removal) => removal,
            Err(_) => unreachable!("a removal without a condition is not refused"),
        }
    }

    /// Removes the peer only if it stands at `generation`.
    ///
    /// # Errors
    /// [`NotReady`] with where it stands; nothing was changed.
    pub fn remove_if(&self, generation: Generation, deadline: Instant) -> Result<Removal, NotReady> {
        self.start_removal(Some(generation), deadline).map_err(|now| self.slot().explain(now))
    }

    fn start_removal(&self, expected: Option<Generation>, deadline: Instant) -> Result<Removal, Word> {
        let home = self.slot().home();
        let cell = Arc::new(Cell::new());
        if !self.slot().is_here() {
            if expected.is_some() {
                return Err(self.slot().word());
            }
            cell.resolve(Removed::UsedAfterFork);
            return Ok(Removal(Pending::new(cell)));
        }
        let (began, ended) = locked(self.slot(), |lane| {
            let began = lane.begin_removal(CloseReason::Removed, expected)?;
            Ok((began, lane.await_removal(deadline, &cell)))
        })?;
        if began {
            home.leaves(self.name(), self.slot());
        }
        if let Some(ended) = ended {
            cell.resolve(ended);
        } else if home.driver_died() {
            cell.resolve(Removed::DriverDied);
        }
        Ok(Removal(Pending::new(cell)))
    }
}

/// A future of how a removal ended, or of where it stood at its deadline.
#[derive(Debug)]
pub struct Removal(Pending<Removed>);

impl Removal {
    /// Blocks this thread until the removal's deadline at the latest.
    ///
    /// # Errors
    /// [`WouldDeadlock`] on a thread of a table; the removal goes on.
    pub fn wait(self) -> Result<Removed, WouldDeadlock> {
        self.0.wait()
    }
}

impl Future for Removal {
    type Output = Removed;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Removed> {
        Pin::new(&mut self.0).poll(cx)
    }
}

/// What really happened to a peer that was removed.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removed {
    /// Nothing of it is left.
    Removed,
    /// The native side did not take everything back; why.
    Leaked(&'static str),
    /// At the caller's deadline something was still in use. The removal goes on.
    #[non_exhaustive]
    StillBusy {
        /// Leases not given back.
        leases: u64,
        /// Transfers that are not quiescent.
        transfers: u64,
        /// How long ago the removal began.
        oldest: Duration,
        /// Whether a native connect, or the close of one that came too late, has not returned.
        connecting: bool,
        /// Whether a native close has not returned.
        closing: bool,
    },
    /// The table's driver thread died; nothing more will be closed.
    DriverDied,
    /// This is a forked child, the table is the parent's: [`UsedAfterFork`](crate::UsedAfterFork).
    UsedAfterFork,
}

impl AfterFork for Removed {
    fn after_fork() -> Self {
        Removed::UsedAfterFork
    }
}
