//! What a transfer of a table holds until it is quiescent: its counts at the peer, the bay and the registration, and the way
//! back to its connection for who gives it up.

use crate::queue::LOOK;
use crate::sync::{AtomicUsize, Ordering};
use crate::transfer::{Reach, TransferHome, TransferId};
use crate::transport::{DataPlane, Transport};
use crate::visit::At;
use std::sync::Arc;

/// Where a transfer of a table is counted until it is quiescent.
pub(crate) struct Held<T: Transport> {
    at: At<T>,
    pub(crate) of_region: Arc<AtomicUsize>,
    bytes: usize,
}

impl<T: Transport> Held<T> {
    /// `None`: the peer has as many as it may.
    pub(crate) fn count(at: At<T>, of_region: Arc<AtomicUsize>, bytes: usize, limit: usize) -> Option<Self> {
        if !at.slot.in_flight.count_in(limit) {
            return None;
        }
        at.slot.bay(at.bay).transfer_posted();
        // ord! The fence in `post` orders this addition against the list; by itself it orders nothing, and Relaxed would do.
        //      model: registering::a_post_is_refused_or_keeps_its_region   fails if: no-fence-in-post
        of_region.fetch_add(1, Ordering::AcqRel);
        Some(Held { at, of_region, bytes })
    }

    pub(crate) fn uncount(&self) {
        let At { slot, word, bay } = &self.at;
        slot.in_flight.count_out();
        // ord! Release: the transfer's last touch of its pages comes before a deregistration that reads zero: pairs with the
        //      Acquire in `registration::unlist`, for all who left before too: each subtraction continues their releases. So the
        //      Acquire here is more than it needs.
        //      model: registering::the_last_touch_of_a_page_comes_before_its_deregistration   fails if: relaxed-uncount
        self.of_region.fetch_sub(1, Ordering::AcqRel);
        if slot.bay(*bay).transfer_quiescent() && slot.word() != *word {
            slot.tell(LOOK); // the lane may wait for this
        }
    }
}

impl<T: DataPlane> TransferHome for Held<T> {
    fn quarantined(&self) {
        self.at.slot.in_flight.quarantined(self.bytes);
    }

    fn quiescent(self: Box<Self>, transfer: TransferId, was_quarantined: bool) {
        self.at.slot.in_flight.remove(transfer, was_quarantined.then_some(self.bytes));
        self.uncount();
    }

    fn reach(&self) -> Box<dyn Reach> {
        Box::new(self.at.clone())
    }
}
