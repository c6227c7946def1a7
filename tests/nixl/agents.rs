//! Several agents that dial, behind one transport.

use crate::support::*;
use peerage::transport::nixl::{Nixl, NixlBuildError};
use peerage::{Access, Outcome, Region};

const PEERS: usize = 5;

/// fails if: memory is registered with some of them only, or a peer's messages are taken by another's thread.
#[test]
fn peers_are_spread_over_agents_and_none_can_tell() {
    alone(peers_are_spread_over_agents_and_none_can_tell, || {
        let table = table_of(Nixl::builder().name(name("here")).agents(3).build().unwrap());
        let local = Region::zeroed(PAGE);
        table.register(&local).unwrap();
        let mut peers: Vec<_> = (0..PEERS).map(|at| Served::called(&format!("served-{at}"))).collect();
        for served in &mut peers {
            let peer = table.insert(served.address.name().as_str(), served.address.clone()).unwrap();
            ready_again(&peer);
            let lease = peer.lease().unwrap();
            lease.notify(b"x").unwrap();
            let write = lease.write(&local.slice(0..PAGE).unwrap(), served.lends(Access::Write)).unwrap();
            assert_eq!(write.wait(soon()), Some(Outcome::Done), "{}", served.address);
            eventually("its message is there", || served.messages() == 1);
        }
        // One that dies, and its successor, in the same agent.
        let first = table.peer("served-0").unwrap();
        let generation = first.generation();
        peers[0].kill();
        peers[0] = Served::called("served-0");
        first.update(peers[0].address.clone()).unwrap();
        assert!(ready_again(&first) > generation);
        table.deregister(&local).unwrap();
        assert_eq!(table.transport().leaked_transfers(), 0);
        assert!(table.shutdown(soon()).wait().unwrap().is_clean());
    });
}

#[test]
fn agents_are_1_to_64() {
    for given in [0, 65] {
        let refused = Nixl::builder().agents(given).build();
        assert!(matches!(refused, Err(NixlBuildError::Limit { limit: "agents", max: 64, .. })), "{given}");
    }
}
