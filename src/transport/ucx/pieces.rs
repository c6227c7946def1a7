//! A page that goes as messages: how it is cut, and what of it has come.

/// The most bytes of a page in one message: large against its head, small against what a peer may have to put together.
pub(super) const PIECE: usize = 64 << 10;

/// What has come of a page: each piece once, in any order.
pub(super) struct Pieces {
    came: Vec<bool>,
    missing: usize,
    len: usize,
}

/// It is no piece of this page, or one that has come already.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Misplaced;

impl Pieces {
    /// Of a page of so many bytes. An empty one is one empty piece.
    pub(super) fn of(len: usize) -> Self {
        let pieces = len.div_ceil(PIECE).max(1);
        Pieces { came: vec![false; pieces], missing: pieces, len }
    }

    /// Where this piece belongs.
    pub(super) fn take(&mut self, offset: u64, len: usize) -> Result<usize, Misplaced> {
        let at = usize::try_from(offset).map_err(|_| Misplaced)?;
        let came = self.came.get_mut(at / PIECE).ok_or(Misplaced)?;
        if at % PIECE != 0 || len != PIECE.min(self.len - at) || std::mem::replace(came, true) {
            return Err(Misplaced);
        }
        self.missing -= 1;
        Ok(at)
    }

    pub(super) fn are_all_here(&self) -> bool {
        self.missing == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_whole_when_each_of_its_pieces_has_come_once() {
        let mut pieces = Pieces::of(2 * PIECE + 10);
        let at = |nth: usize| (nth * PIECE) as u64;
        assert_eq!(pieces.take(at(2), 10), Ok(2 * PIECE));
        assert_eq!(pieces.take(at(2), 10), Err(Misplaced), "twice");
        assert_eq!(pieces.take(at(0), PIECE), Ok(0));
        for (offset, len) in [(at(1), 10), (at(1) + 1, PIECE), (at(3), 0), (u64::MAX, 1), (at(1), PIECE + 1)] {
            assert_eq!(pieces.take(offset, len), Err(Misplaced), "{offset} {len}");
        }
        assert!(!pieces.are_all_here());
        assert_eq!(pieces.take(at(1), PIECE), Ok(PIECE));
        assert!(pieces.are_all_here());
    }

    #[test]
    fn an_empty_page_is_one_piece() {
        let mut pieces = Pieces::of(0);
        assert!(!pieces.are_all_here());
        assert_eq!(pieces.take(0, 1), Err(Misplaced));
        assert_eq!(pieces.take(0, 0), Ok(0));
        assert!(pieces.are_all_here());
        assert_eq!(Pieces::of(PIECE).take(PIECE as u64, 0), Err(Misplaced));
    }
}
