//! The regions that the transport knows, each listed with a count of the transfers that use it.
//!
//! A registration is taken back only if nothing uses it: it leaves the list first, so that no new transfer or grant finds it;
//! then its transfers and the grants of its region are looked for, and if there are some it is listed again. A post counts itself
//! in before it looks at the list, a grant is listed before that look (loom-tests/registering.rs).

use crate::error::RegisterError;
use crate::region::{Region, RegionId};
use crate::shared::Shared;
use crate::sync::{AtomicUsize, Ordering, caught, fence};
use crate::table::PeerTable;
use crate::transport::{DataPlane, Transport, TransportError};
use std::sync::Arc;

impl<T: DataPlane> PeerTable<T> {
    /// Makes a region known to the transport, so that its slices can be posted and lent. May block: in the native library,
    /// and for another thread that registers. Registering twice is one registration.
    ///
    /// # Errors
    /// [`RegisterError`]; nothing is registered.
    pub fn register(&self, region: &Region) -> Result<(), RegisterError<T::Error>> {
        let shared = self.shared();
        let id = region.id();
        if !shared.is_here() {
            return Err(RegisterError::UsedAfterFork { region: id });
        }
        let _one_at_a_time = shared.registering.lock();
        if shared.names.is_shut_down() {
            return Err(RegisterError::ShutDown { region: id });
        }
        native(id, || shared.transport.register(region))?;
        shared.transport.grants().region_is_known(id);
        let transport = shared.transport.clone();
        let registration = Registration {
            region: region.clone(),
            transfers: Arc::new(AtomicUsize::new(0)),
            take_back: Arc::new(move |region| take_back(&*transport, region).is_ok()),
        };
        let _ = shared.registered.update(|map| match map.contains_key(&id) {
            true => Err(()),
            false => Ok(map.insert(id, registration.clone())),
        });
        Ok(())
    }

    /// Takes a registration back. May block: in the native library, and for another thread that registers.
    ///
    /// # Errors
    /// [`RegisterError::InUse`] while transfers or grants use the region; it stays registered.
    pub fn deregister(&self, region: &Region) -> Result<(), RegisterError<T::Error>> {
        let shared = self.shared();
        let id = region.id();
        if !shared.is_here() {
            return Err(RegisterError::UsedAfterFork { region: id });
        }
        let _one_at_a_time = shared.registering.lock();
        let Some(registration) = shared.registered.load().get(&id).cloned() else {
            return Err(RegisterError::NotRegistered { region: id });
        };
        let taken = match unlist(shared, &registration) {
            Ok(()) => native(id, || take_back(&*shared.transport, region)),
            Err((transfers, grants)) => Err(RegisterError::InUse { region: id, transfers, grants }),
        };
        if taken.is_err() {
            list_again(shared, registration);
        }
        taken
    }
}

/// A region the transport knows, and how to take it back.
#[derive(Clone)]
pub(crate) struct Registration {
    region: Region,
    /// Transfers that are not quiescent.
    pub(crate) transfers: Arc<AtomicUsize>,
    /// Answers whether it was taken back. For who does not know that the transport has a data plane.
    take_back: Arc<dyn Fn(&Region) -> bool + Send + Sync>,
}

/// Takes back each registration that nothing uses. May block, in the native library.
pub(crate) fn deregister_all<T: Transport>(shared: &Shared<T>) {
    let _one_at_a_time = shared.registering.lock();
    let registrations: Vec<_> = shared.registered.load().values().cloned().collect();
    for registration in registrations {
        let taken = unlist(shared, &registration).is_ok() && {
            let call = || (registration.take_back)(&registration.region);
            caught(call) == Ok(true)
        };
        if !taken {
            list_again(shared, registration);
        }
    }
}

/// Takes a region out of the list: no new transfer or grant finds it. `Err`: how many transfers and grants use it. Under
/// the lock of registrations.
fn unlist<T: Transport>(shared: &Shared<T>, registration: &Registration) -> Result<(), (usize, usize)> {
    let id = registration.region.id();
    let _ = shared.registered.update::<()>(|map| Ok(map.remove(&id)));
    // ord! SeqCst fence between the list and the counts; `Lease::post` counts, fences and looks at the list: one of the two
    //      sees the other. Two locations, so no pair of acquire and release does.
    //      model: registering::a_post_is_refused_or_keeps_its_region   fails if: no-fence-in-post, no-fence-in-unlist
    fence(Ordering::SeqCst);
    let grants = shared.lent.lock().values().filter(|grant| grant.page().region().id() == id).count();
    // ord! Acquire: who read zero here has the last touch of the pages behind it. Pairs with the Release of each transfer that
    //      was counted out (`Held::uncount`).
    //      model: registering::the_last_touch_of_a_page_comes_before_its_deregistration   fails if: relaxed-unlist
    match (registration.transfers.load(Ordering::Acquire), grants) {
        (0, 0) => Ok(()),
        used => Err(used),
    }
}

/// Puts a region back that was not taken.
fn list_again<T: Transport>(shared: &Shared<T>, registration: Registration) {
    let id = registration.region.id();
    let _ = shared.registered.update::<()>(|map| Ok(map.insert(id, registration.clone())));
}

/// Has the transport forget the region.
fn take_back<T: DataPlane>(transport: &T, region: &Region) -> Result<(), T::Error> {
    transport.deregister(region)?;
    transport.grants().region_is_gone(region.id());
    Ok(())
}

/// One native call about a region, caught.
fn native<E: TransportError>(region: RegionId, call: impl FnOnce() -> Result<(), E>) -> Result<(), RegisterError<E>> {
    match caught(call) {
        Ok(done) => done.map_err(|source| RegisterError::Transport { region, source }),
        Err(message) => Err(RegisterError::Panicked { region, message }),
    }
}
