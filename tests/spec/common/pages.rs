//! Pages of both sides, and a write between them.

use super::World;
use peerage::transport::memory::Memory;
use peerage::{Access, DataPlane, Grant, Peer, Region, Slice, Transfer};

/// Bytes of a page: three chunks of `Memory`.
pub(crate) const PAGE: usize = 10_000;

pub(crate) fn page_of(byte: u8) -> Slice {
    let page = Region::zeroed(PAGE).slice(0..PAGE).unwrap();
    page.write(0, &[byte; PAGE]).unwrap();
    page
}

/// A page of the remote process `p`, lent to `here`.
pub(crate) fn lend<T: DataPlane>(p: &T, page: &Slice, access: Access) -> Grant {
    p.register(page.region()).unwrap();
    p.grants().lend(&"here".try_into().unwrap(), page, access)
}

/// A registered page of ones, and a grant of one of `p`'s to write it to.
pub(crate) fn ready_to_write(world: &World) -> (Slice, Grant) {
    let local = page_of(1);
    world.table.register(local.region()).unwrap();
    (local, lend(&world.fabric.node("p"), &page_of(0), Access::Write))
}

pub(crate) fn write(world: &World, peer: &Peer<Memory>) -> (Slice, Grant, Transfer) {
    let (local, grant) = ready_to_write(world);
    let transfer = peer.lease().unwrap().write(&local, grant.remote()).unwrap();
    (local, grant, transfer)
}
