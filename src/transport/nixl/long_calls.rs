//! Calls that may keep NIXL's exclusive lock of an agent for long, and who must not wait for them.
//!
//! NIXL holds it while it connects a peer, minutes where the network swallows. A sender gets in its line; who waits for a transfer
//! has a deadline, which a call in that line would outlast, and has nothing to do there: what runs moves no more meanwhile.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};

#[derive(Default)]
pub(super) struct LongCalls(RwLock<()>);

impl LongCalls {
    /// Around one. NIXL has them wait for each other anyway.
    pub(super) fn begin(&self) -> RwLockWriteGuard<'_, ()> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until it is dropped, none begins. `None`: one is under way, or about to be.
    pub(super) fn try_keep_out(&self) -> Option<RwLockReadGuard<'_, ()>> {
        match self.0.try_read() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}
