//! Promise 10. A restarted peer is a new incarnation; the old generation is retired first, and closed first where the
//! native side has one slot per name. (Restarts themselves: `tests/cases/b.rs`.)

use crate::common::*;
use peerage::transport::memory::MemoryAddress;

#[test]
fn an_address_that_names_the_right_incarnation_connects() {
    let world = world();
    let incarnation = world.fabric.node("p").incarnation();
    let address = MemoryAddress::new("p").with_incarnation(incarnation);
    let peer = world.table.insert("p", address).unwrap();
    assert_eq!(peer.record().unwrap().incarnation, Some(incarnation), "known before it is connected");
    block_on(peer.ready()).unwrap();
}
