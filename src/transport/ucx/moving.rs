//! The transfers of one connection that we opened whose bytes are messages, from the peer's go, or its first bytes, to their end.
//!
//! A write ends when two things are so: libucp no longer touches our page, and the peer has said what became of it, or can't
//! any more. A read touches our page only here, where its bytes are copied, so it ends with the last of them.

use super::pieces::{Misplaced, Pieces};
use crate::grant::Refusal;
use crate::transfer::{Completion, Outcome, Post, TransferError, TransferId};
use std::collections::HashMap;

#[derive(Default)]
pub(super) struct Moving(HashMap<TransferId, Run>);

enum Run {
    Write { completion: Completion, left: u64, is_touched: bool, outcome: Option<Outcome> },
    Read { post: Post, came: u64, pieces: Pieces },
}

impl Moving {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Its page is about to be sent.
    pub(super) fn write(&mut self, id: TransferId, completion: Completion) {
        self.0.insert(id, Run::Write { completion, left: 0, is_touched: true, outcome: None });
    }

    /// The first bytes of it have come.
    pub(super) fn read(&mut self, post: Post) {
        let pieces = Pieces::of(post.local.len());
        self.0.insert(post.id, Run::Read { post, came: 0, pieces });
    }

    /// So many bytes more of a write have left.
    pub(super) fn left(&mut self, id: TransferId, len: usize) {
        if let Some(Run::Write { completion, left, .. }) = self.0.get_mut(&id) {
            *left += len as u64;
            completion.progress(*left);
        }
    }

    /// libucp no longer touches its page. Answers, as all of these, how many transfers this has ended.
    pub(super) fn sent(&mut self, id: TransferId) -> usize {
        if let Some(Run::Write { is_touched, .. }) = self.0.get_mut(&id) {
            *is_touched = false;
        }
        self.end_if_over(id)
    }

    /// The peer has it, in its page.
    pub(super) fn landed(&mut self, id: TransferId) -> Result<usize, Misplaced> {
        match self.0.get(&id) {
            Some(Run::Read { .. }) => Err(Misplaced),
            _ => Ok(self.decide(id, Outcome::Done)),
        }
    }

    /// The peer takes, or gives, no more of it.
    pub(super) fn refused(&mut self, id: TransferId, refusal: Refusal) -> usize {
        self.decide(id, Outcome::Failed(TransferError::Refused(refusal)))
    }

    /// Bytes of a read; of one that is not known they are dropped.
    pub(super) fn came(&mut self, id: TransferId, offset: u64, bytes: &[u8]) -> Result<usize, Misplaced> {
        let Some(run) = self.0.get_mut(&id) else { return Ok(0) };
        let Run::Read { post, came, pieces } = run else { return Err(Misplaced) };
        let at = pieces.take(offset, bytes.len())?;
        post.local.write(at, bytes).map_err(|_| Misplaced)?;
        *came += bytes.len() as u64;
        post.completion.progress(*came);
        if pieces.are_all_here() { Ok(self.decide(id, Outcome::Done)) } else { Ok(0) }
    }

    /// Nothing more will come. What libucp still touches ends when it has been [`sent`](Self::sent).
    pub(super) fn broken(&mut self) -> usize {
        let all: Vec<TransferId> = self.0.keys().copied().collect();
        all.into_iter().map(|id| self.decide(id, Outcome::Unknown)).sum()
    }

    /// The connection is closed, and libucp touches nothing of it.
    pub(super) fn closed(&mut self) -> usize {
        for run in self.0.values_mut() {
            if let Run::Write { is_touched, .. } = run {
                *is_touched = false;
            }
        }
        self.broken()
    }

    /// The first word about its end counts.
    fn decide(&mut self, id: TransferId, how: Outcome) -> usize {
        match self.0.get_mut(&id) {
            Some(Run::Write { outcome, .. }) => {
                outcome.get_or_insert(how);
                self.end_if_over(id)
            }
            Some(Run::Read { .. }) => {
                if let Some(Run::Read { post, .. }) = self.0.remove(&id) {
                    post.completion.complete(how);
                }
                1
            }
            None => 0,
        }
    }

    fn end_if_over(&mut self, id: TransferId) -> usize {
        if !matches!(self.0.get(&id), Some(Run::Write { is_touched: false, outcome: Some(_), .. })) {
            return 0;
        }
        if let Some(Run::Write { completion, outcome: Some(outcome), .. }) = self.0.remove(&id) {
            completion.complete(outcome);
        }
        1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::Region;
    use crate::transfer::{RemoteSlice, Transfer, TransferKind};

    fn post(kind: TransferKind) -> (Post, Transfer) {
        let page = Region::zeroed(16);
        let remote = RemoteSlice::from_bytes(&[0; RemoteSlice::ENCODED]);
        Post::standalone(kind, page.slice(0..16).unwrap(), remote)
    }

    fn write(moving: &mut Moving) -> (TransferId, Transfer) {
        let (post, transfer) = post(TransferKind::Write);
        let id = post.id;
        moving.write(id, post.completion);
        (id, transfer)
    }

    #[test]
    fn a_write_ends_when_it_is_sent_and_has_landed_in_any_order() {
        for sent_first in [true, false] {
            let mut moving = Moving::default();
            let (id, transfer) = write(&mut moving);
            let landed: fn(&mut Moving, TransferId) -> usize = |moving, id| moving.landed(id).unwrap();
            let steps = if sent_first { [Moving::sent, landed] } else { [landed, Moving::sent] };
            assert_eq!(steps[0](&mut moving, id), 0);
            assert_eq!(transfer.try_outcome(), None);
            assert_eq!(steps[1](&mut moving, id), 1);
            assert_eq!((transfer.try_outcome(), moving.len()), (Some(Outcome::Done), 0));
        }
    }

    #[test]
    fn a_write_of_a_broken_connection_ends_when_its_page_is_no_longer_touched() {
        let mut moving = Moving::default();
        let (id, transfer) = write(&mut moving);
        assert_eq!(moving.broken(), 0);
        assert_eq!(transfer.try_outcome(), None, "libucp may still read the page");
        assert_eq!(moving.landed(id), Ok(0), "too late to change it");
        assert_eq!(moving.sent(id), 1);
        assert_eq!(transfer.try_outcome(), Some(Outcome::Unknown));

        let (_, transfer) = write(&mut moving);
        assert_eq!(moving.closed(), 1);
        assert_eq!(transfer.try_outcome(), Some(Outcome::Unknown));
    }

    #[test]
    fn a_refused_write_ends_as_refused() {
        let mut moving = Moving::default();
        let (id, transfer) = write(&mut moving);
        moving.refused(id, Refusal::Revoked);
        moving.sent(id);
        let refused = Outcome::Failed(TransferError::Refused(Refusal::Revoked));
        assert_eq!(transfer.try_outcome(), Some(refused));
    }

    #[test]
    fn a_read_is_put_together_and_takes_nothing_that_does_not_fit() {
        let mut moving = Moving::default();
        let (post, transfer) = post(TransferKind::Read);
        let id = post.id;
        assert_eq!(moving.came(id, 0, &[1]), Ok(0), "it is not known yet");
        moving.read(post);
        for (offset, len) in [(0, 15), (0, 17), (8, 8), (u64::MAX, 16)] {
            assert_eq!(moving.came(id, offset, &vec![2; len]), Err(Misplaced), "{offset} {len}");
        }
        assert_eq!(moving.landed(id), Err(Misplaced), "it is no write");
        assert_eq!(transfer.try_outcome(), None);
        assert_eq!(moving.came(id, 0, &[1; 16]), Ok(1));
        assert_eq!(transfer.try_outcome(), Some(Outcome::Done));
        assert_eq!(transfer.local().to_vec(), [1; 16]);
    }

    #[test]
    fn bytes_for_a_write_are_misplaced() {
        let mut moving = Moving::default();
        let (id, _transfer) = write(&mut moving);
        assert_eq!(moving.came(id, 0, &[1]), Err(Misplaced));
    }
}
