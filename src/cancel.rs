//! Giving a transfer up, and the answer whether its pages are ours again.

use crate::error::WouldDeadlock;
use crate::transfer::{Outcome, Transfer};
use crate::wait::{AfterFork, Cell, Pending};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

/// Whether the local pages of a transfer that was given up may be used again.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cancelled {
    /// Nothing touches them any more. The outcome is the transfer's only one: `Done` if it had completed first, `Failed` with
    /// [`NotSent`](crate::TransferError::NotSent) or [`Refusal::Cancelled`](crate::Refusal::Cancelled) if it was cut short.
    Quiesced(Outcome),
    /// At the deadline they may still be read or written: they stay in quarantine. The transfer has ended as
    /// [`Outcome::Unknown`] for who waits for it, unless it had ended before. Ask
    /// [`Transfer::is_quiescent`] later; if it stays so, report the generation: the close of its connection gives them back.
    /// Also what a forked child is told of its parent's transfers.
    NotQuiesced,
}

impl AfterFork for Cancelled {
    fn after_fork() -> Self {
        Cancelled::NotQuiesced
    }
}

/// A future: whether the pages are ours again, at the cancel's deadline at the latest. Dropping it changes nothing: the
/// transfer stays given up, and is ended at the deadline.
#[derive(Debug)]
#[must_use = "the pages must not be used again before it says so"]
pub struct Cancel(Pending<Cancelled>);

impl Cancel {
    /// Blocks this thread until the cancel's deadline at the latest.
    ///
    /// # Errors
    /// [`WouldDeadlock`] on a thread of a table; the transfer stays given up.
    pub fn wait(self) -> Result<Cancelled, WouldDeadlock> {
        self.0.wait()
    }
}

impl Future for Cancel {
    type Output = Cancelled;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Cancelled> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl Transfer {
    /// Gives the transfer up: asks the transport, and with it the peer, to move no more of it, and resolves when nothing
    /// touches the local pages any more, or at `deadline` (by the table's clock). If the transfer completes first, it has
    /// completed. One that is still under way at the deadline ends as [`Outcome::Unknown`] and holds its pages. Never waits;
    /// may be called again, by anybody, and each caller is answered by its own deadline. On any thread.
    ///
    /// A [`standalone`](crate::Post::standalone) transfer has no table that could ask: unless it is quiescent already, the
    /// answer is `NotQuiesced` at once.
    pub fn cancel(&self, deadline: Instant) -> Cancel {
        let cell = Arc::new(Cell::new());
        let core = self.core();
        if let Some(reach) = core.await_quiescence(&cell) {
            reach.answer_at(deadline, core, &cell);
            reach.cancel(core.id());
        }
        Cancel(Pending::new(cell))
    }
}
