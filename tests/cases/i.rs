//! I: the end of a table.

use crate::common::*;
use peerage::transport::memory::Step;
use peerage::{Access, Capabilities, DataPlane, Outcome, Region};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// Nothing new is admitted, transfers end before their connection is closed, and connections before their regions are taken
/// back: by the order in which the transport was called.
///
/// fails if: i3 (registrations are taken back while connections are open)
#[test]
fn case_i3_transfers_end_before_their_connection_is_closed_and_connections_before_their_regions_are_taken_back() {
    let world = world_of(Capabilities::NATIVE_CLOSE, |builder| builder);
    let peer = world.connected("p");
    let (region, unused) = (Region::zeroed(8), Region::zeroed(8));
    world.table.register(&region).unwrap();
    world.table.register(&unused).unwrap();
    let p = world.fabric.node("p");
    let grant = p.grants().lend(&"here".try_into().unwrap(), &Region::zeroed(8).slice(0..8).unwrap(), Access::Write);
    let hold = world.memory.steps().hold(Step::Complete, "p");
    let closes = world.memory.steps().hold(Step::Close, "p");
    let transfer = peer.lease().unwrap().write(&region.slice(0..8).unwrap(), grant.remote()).unwrap();
    hold.wait_reached(1);
    let mut shutdown = world.table.shutdown(world.after(HOUR));
    assert!(peer.lease().is_err() && world.table.register(&Region::zeroed(8)).is_err());
    world.settle_by(&peer);
    assert_eq!(closes.reached(), 0);
    hold.release();
    closes.wait_reached(1);
    assert!(poll_once(&mut shutdown).is_pending());
    for region in [&region, &unused] {
        let still = world.table.deregister(region);
        assert!(still.is_ok(), "the shutdown had taken it back before the connection: {still:?}");
    }
    closes.release();
    assert!(block_on(shutdown).is_clean());
    assert_eq!(block_on(transfer), Outcome::Done);
    let log: Vec<_> = world.memory.log().into_iter().map(|call| call.step).collect();
    assert_eq!(log, [Step::Connect, Step::Post, Step::Complete, Step::Close]);
}

#[cfg(all(feature = "tcp", not(peerage_loom)))]
mod over_sockets {
    use super::*;
    use crate::support;
    use peerage::{PeerTable, ReadyError};
    use std::net::TcpListener;
    use std::thread;

    /// Who waits for a connect that does not come, and who waits for a message, are told of the shutdown.
    ///
    /// fails if: i2 (who waits for a connect is not told of the end), i2-inbox (who waits for a message is not)
    #[test]
    fn case_i2_who_waits_for_a_connect_and_who_waits_for_a_message_are_told_of_the_shutdown() {
        let mute = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = support::builder("here").handshake_timeout(HOUR).bind("127.0.0.1:0").unwrap();
        let table = PeerTable::builder(here).connect_timeout(HOUR).build().unwrap();
        let peer = table.insert("mute", mute.local_addr().unwrap().into()).unwrap();
        let connecting = thread::spawn(move || block_on(peer.ready()));
        let inbox = table.inbox();
        let receiving = thread::spawn(move || block_on(inbox.next()));
        let _handshake = mute.accept().unwrap();
        let report = table.shutdown(far()).wait().unwrap();
        assert!(report.is_clean(), "{report:?}");
        assert!(matches!(connecting.join().unwrap(), Err(ReadyError::ShutDown { .. })));
        assert_eq!(receiving.join().unwrap(), None);
    }
}
