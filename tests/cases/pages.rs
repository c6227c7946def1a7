//! A page here and a page that another process lends, for the cases in which bytes move.

use crate::common::World;
use peerage::{Access, DataPlane, Grant, Region, Slice};

/// A registered page of ours, and a grant of one of `name`'s to write it to.
pub(crate) fn pages(world: &World, name: &str) -> (Slice, Grant) {
    let [ours, theirs] = [(); 2].map(|()| Region::zeroed(64));
    world.table.register(&ours).unwrap();
    let owner = world.fabric.node(name);
    owner.register(&theirs).unwrap();
    let whole = |region: &Region| region.slice(0..64).unwrap();
    whole(&ours).write(0, &[1; 64]).unwrap();
    (whole(&ours), owner.grants().lend(&"here".try_into().unwrap(), &whole(&theirs), Access::Write))
}
