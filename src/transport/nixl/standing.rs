//! Permissions that last. The owner's go is for the whole page that was lent, until we give it back; so who writes to parts of one
//! page, one after the other, asks once, and the rest is NIXL's own one-sided transfer, begun by the thread that wants it.
//!
//! We give a page back when nothing of ours has used it for a while, when its owner recalls it, which a revoked grant does, and
//! with the connection. Until then its owner holds it: [`Revoked`](crate::Revoked) resolves when it is back.

use super::message::Go;
use super::native::{Memory, MemoryKind};
use crate::transfer::{RemoteSlice, TransferId, TransferKind};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How many a connection keeps.
pub(super) const MOST: usize = 32;
/// A page that was not used for so long is given back: longer than the pauses of a sender that streams, short for an owner.
const IDLE: Duration = Duration::from_millis(5);

/// By grant. Which direction it is for its owner says by the first go; what goes the other way is asked for, and refused.
#[derive(Default)]
pub(super) struct Standing(HashMap<u128, Page>);

struct Page {
    /// The one that asked, by which it is given back.
    ask: TransferId,
    kind: TransferKind,
    /// Where the page begins in its region.
    from: u64,
    /// Of its beginning.
    memory: Memory,
    users: usize,
    used: Instant,
    recalled: bool,
}

impl Standing {
    /// Where this part of a page is, if it may be accessed now; [`leave`](Self::leave) when that is over.
    pub(super) fn enter(&mut self, part: &RemoteSlice, kind: TransferKind) -> Option<Memory> {
        let page = self.0.get_mut(&part.grant).filter(|page| !page.recalled && page.kind == kind)?;
        let at = usize::try_from(part.offset.checked_sub(page.from)?).ok()?;
        let len = usize::try_from(part.len).ok()?;
        let memory = page.memory.part(at..at.checked_add(len)?)?;
        page.users += 1;
        Some(memory)
    }

    /// Keeps a go for the page of `part`, and enters it. `false`: it is for this one transfer.
    pub(super) fn open(&mut self, part: &RemoteSlice, kind: TransferKind, go: &Go) -> bool {
        let is_in = go.from <= part.offset && part.offset.checked_add(part.len).is_some_and(|end| end <= go.to);
        if !is_in || self.0.len() >= MOST || self.0.contains_key(&part.grant) {
            return false;
        }
        let begin = go.address.checked_sub(part.offset - go.from).and_then(|begin| usize::try_from(begin).ok());
        let (Some(address), Ok(len)) = (begin, usize::try_from(go.to - go.from)) else { return false };
        let memory = Memory { kind: MemoryKind(go.kind), address, len, device: go.device };
        let Go { transfer: ask, from, .. } = *go;
        self.0.insert(part.grant, Page { ask, kind, from, memory, users: 1, used: Instant::now(), recalled: false });
        true
    }

    pub(super) fn leave(&mut self, grant: u128) {
        if let Some(page) = self.0.get_mut(&grant) {
            page.users -= 1;
            page.used = Instant::now();
        }
    }

    /// Its owner wants it back.
    pub(super) fn recall(&mut self, ask: TransferId) {
        self.0.values_mut().filter(|page| page.ask == ask).for_each(|page| page.recalled = true);
    }

    /// Those to give back now.
    pub(super) fn returns(&mut self, now: Instant) -> Vec<TransferId> {
        let is_over =
            |page: &Page| page.users == 0 && (page.recalled || now.saturating_duration_since(page.used) >= IDLE);
        self.0.extract_if(|_, page| is_over(page)).map(|(_, page)| page.ask).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITE: TransferKind = TransferKind::Write;
    const GRANT: RemoteSlice = RemoteSlice { grant: 7, region: 1, offset: 1000, len: 100 };

    fn go() -> Go {
        Go {
            transfer: TransferId(1),
            keys: 0,
            kind: 1,
            device: 3,
            address: 5000,
            from: 1000,
            to: 2000,
            metadata: vec![],
        }
    }

    #[test]
    fn a_go_is_good_for_all_of_its_page_and_nothing_else() {
        let mut standing = Standing::default();
        assert_eq!(standing.enter(&GRANT, WRITE), None);
        assert!(standing.open(&RemoteSlice { offset: 1200, ..GRANT }, WRITE, &Go { address: 5200, ..go() }));
        assert!(!standing.open(&GRANT, WRITE, &go()), "there is one");
        let part = standing.enter(&RemoteSlice { offset: 1900, ..GRANT }, WRITE).unwrap();
        assert_eq!((part.address, part.len, part.device, part.kind.0), (5900, 100, 3, 1));
        let other_way = standing.enter(&RemoteSlice { offset: 1900, ..GRANT }, TransferKind::Read);
        assert_eq!(other_way, None, "it was lent for writing");
        for outside in [
            RemoteSlice { offset: 999, ..GRANT },
            RemoteSlice { offset: 1901, ..GRANT },
            RemoteSlice { offset: u64::MAX, ..GRANT },
            RemoteSlice { grant: 8, ..GRANT },
        ] {
            assert_eq!(standing.enter(&outside, WRITE), None, "{outside:?}");
        }
    }

    #[test]
    fn a_go_that_is_not_for_what_was_asked_does_not_last() {
        for go in [Go { from: 1001, ..go() }, Go { to: 1099, ..go() }, Go { from: 0, address: 5, ..go() }] {
            assert!(!Standing::default().open(&GRANT, WRITE, &go), "{go:?}");
        }
    }

    #[test]
    fn what_is_used_stays_and_what_is_idle_or_recalled_goes() {
        let mut standing = Standing::default();
        assert!(standing.open(&GRANT, WRITE, &go()));
        let later = Instant::now() + 2 * IDLE;
        assert_eq!(standing.returns(later), [], "in use");
        standing.leave(GRANT.grant);
        assert_eq!(standing.returns(Instant::now()), [], "just used");
        standing.recall(TransferId(2));
        assert!(standing.enter(&GRANT, WRITE).is_some(), "another was recalled");
        standing.recall(TransferId(1));
        assert_eq!(standing.enter(&GRANT, WRITE), None, "nothing new");
        assert_eq!(standing.returns(Instant::now()), [], "in use");
        standing.leave(GRANT.grant);
        assert_eq!(standing.returns(Instant::now()), [TransferId(1)]);
        assert_eq!(standing.returns(later), [], "it is gone");
    }
}
