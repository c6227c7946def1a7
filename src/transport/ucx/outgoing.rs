//! The pages that one connection sends as messages: in pieces, a bounded part of them under way.
//!
//! What libucp was given is sent in order, so a probe waits for all that is before it. A page given whole would make its peer
//! look dead for as long as it takes.

use super::endpoint::{Endpoint, Page};
use super::native::Status;
use super::pieces::PIECE;
use crate::state::Generation;
use crate::transfer::TransferId;
use std::collections::VecDeque;
use std::sync::Arc;

/// How many pieces are under way at most: 1 MiB, which keeps a device busy while the thread does something else, and is over
/// within 10 ms at 1 Gbit/s.
const UNDER_WAY: usize = 16;

#[derive(Default)]
pub(super) struct Outgoing {
    /// Each with the offset of the next piece.
    pages: VecDeque<(Arc<Page>, usize)>,
    under_way: usize,
}

impl Outgoing {
    pub(super) fn push(&mut self, page: Page) {
        self.pages.push_back((Arc::new(page), 0));
    }

    /// Whether a piece may be sent now.
    pub(super) fn may_go(&self) -> bool {
        !self.pages.is_empty() && self.under_way < UNDER_WAY
    }

    /// Sends some pieces, and tells which have left already. Stops after some in any case: others have their turn.
    pub(super) fn send(
        &mut self,
        endpoint: &Endpoint,
        generation: Generation,
        sent: &mut Vec<Sent>,
    ) -> Result<(), Status> {
        for _ in 0..UNDER_WAY {
            if !self.may_go() {
                break;
            }
            let Some((page, at)) = self.pages.front_mut() else { break };
            let len = PIECE.min(page.part.len() - *at);
            let is_over = endpoint.send_piece(generation, page, *at, len)?;
            let transfer = page.transfer;
            *at += len;
            self.under_way += usize::from(!is_over);
            let was_last = *at == page.part.len();
            let page = if was_last { self.pages.pop_front() } else { None };
            let whole = page.is_some_and(|(page, _)| Arc::into_inner(page).is_some());
            if is_over || whole {
                sent.push(Sent { transfer, len: if is_over { len } else { 0 }, whole });
            }
        }
        Ok(())
    }

    /// A piece that was under way is so no more.
    pub(super) fn ended(&mut self, page: Arc<Page>, len: usize) -> Sent {
        self.under_way -= 1;
        Sent { transfer: page.transfer, len, whole: Arc::into_inner(page).is_some() }
    }

    /// Nothing more is sent. Answers the transfers of which nothing is under way either.
    pub(super) fn give_up(&mut self) -> Vec<TransferId> {
        let pages = std::mem::take(&mut self.pages);
        pages.into_iter().filter_map(|(page, _)| Arc::into_inner(page)).map(|page| page.transfer).collect()
    }
}

/// Bytes of a page that have left.
pub(super) struct Sent {
    pub(super) transfer: TransferId,
    pub(super) len: usize,
    /// libucp touches nothing of it any more.
    pub(super) whole: bool,
}
