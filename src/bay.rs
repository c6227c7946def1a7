//! A type-stable place in a slot for one connection: its transfer count, the connection itself. Its gate is in the slot's
//! `Gates`.
//!
//! | field | written by | read by |
//! |---|---|---|
//! | transfers | who posts, inside a lease; who ends a transfer; the lane looks by RMW | everybody |
//! | connection | `fill`, before the gate opens; `take`, after the gate drained and no visit runs | leases, between enter and leave; visits |
//!
//! Users and transfers are counted apart, so "only transfers are left" is one look at one word (loom-tests/closing.rs).

use crate::sync::{AtomicU64, Ordering, UnsafeCell};
use crossbeam_utils::CachePadded;

pub(crate) struct Bay<C> {
    transfers: CachePadded<AtomicU64>,
    connection: UnsafeCell<Option<C>>,
}

// SAFETY: 1. the connection is shared (`&C`) by all who are inside the gate: `C: Sync`.
//         2. it is put in by one thread and taken out by another: `C: Send`.
//         Ends if: a bay gives out `&mut C`.
unsafe impl<C: Send + Sync> Sync for Bay<C> {}
// SAFETY: the bay owns its connection, `C: Send`; the counters are atomics.
unsafe impl<C: Send> Send for Bay<C> {}

impl<C> Bay<C> {
    /// Belongs behind a closed gate.
    pub(crate) fn empty() -> Self {
        Bay { transfers: CachePadded::new(AtomicU64::new(0)), connection: UnsafeCell::new(None) }
    }

    /// Puts a connection in; the gate opens after that.
    ///
    /// # Safety
    /// The gate is closed and drained, its connection was taken, and the slot's mutex is held.
    pub(crate) unsafe fn fill(&self, connection: C) {
        self.connection.with_mut(|place| {
            // SAFETY: nobody is inside a drained gate, and the mutex excludes another `fill` or `take`.
            let place = unsafe { &mut *place };
            debug_assert!(place.is_none(), "a bay is filled once");
            *place = Some(connection);
        });
    }

    /// Takes the connection out.
    ///
    /// # Safety
    /// The gate was reported drained to the caller, through DRAINED, since it was last opened; nobody visits the connection;
    /// the slot's mutex is held.
    pub(crate) unsafe fn take(&self) -> C {
        self.connection.with_mut(|place| {
            // SAFETY: a drained gate has nobody inside and admits nobody; the mutex excludes another `take`.
            unsafe { &mut *place }.take().expect("a drained bay holds its connection until it is taken")
        })
    }

    /// The connection.
    ///
    /// # Safety
    /// The caller entered the gate, read the word again and found it unchanged, and stays inside while it uses this; or it
    /// visits, under the slot's mutex found the connection there, and its visit does not end meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn connection(&self) -> &C {
        self.connection.with(|place| {
            // SAFETY: `take` waits for the caller to leave, `fill` came before the gate opened, and before a visit.
            match unsafe { &*place } {
                Some(connection) => connection,
                None => unreachable!("an open bay holds a connection"),
            }
        })
    }

    /// Counts a transfer in. The caller is inside the gate.
    pub(crate) fn transfer_posted(&self) {
        self.transfers.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a transfer out; true if it was the last.
    pub(crate) fn transfer_quiescent(&self) -> bool {
        // ord! AcqRel: Release, the transfer's last touch of its pages comes before the lane's look. Acquire, if the lane
        //      looked first, the word it had changed before is seen by whoever got true here.
        //      model: closing::the_last_transfer_or_the_lane_notices   fails if: relaxed-quiescent,
        //      transfers-looked-at-by-load
        self.transfers.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// How many are not quiescent, for the lane, which changed the word first. An RMW, see `transfer_quiescent`.
    pub(crate) fn transfers_by_lane(&self) -> u64 {
        self.transfers.fetch_add(0, Ordering::AcqRel)
    }

    /// How many are not quiescent; a moment's answer, for people and limits.
    pub(crate) fn transfers(&self) -> u64 {
        self.transfers.load(Ordering::Relaxed)
    }
}
