//! The transport that the processes talk over. Nothing else in the suite names one.

use peerage::transport::Counting;
use peerage::transport::tcp::{BindError, Tcp, TcpAddress};
use peerage::{PeerName, Transport};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Counted, so that a second connect to one peer shows.
pub(crate) type Net = Counting<Tcp>;
pub(crate) type Address = <Net as Transport>::Address;

/// How long a restarted process tries to get its port back.
const BIND: Duration = Duration::from_secs(10);

/// Listens at `at`; port 0 lets the operating system choose.
pub(crate) fn listen(name: &PeerName, at: SocketAddr, accept_delay: Duration) -> Result<Net, String> {
    let deadline = Instant::now() + BIND;
    loop {
        // One connection to a peer at a time: then a second one is a duplicate, whatever its reason.
        let tcp = Tcp::builder().name(name.clone()).overlap(false).accept_delay(accept_delay).bind(at);
        match tcp {
            Err(BindError::Listen { .. }) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(20));
            }
            tcp => return tcp.map(Counting::new).map_err(|error| error.to_string()),
        }
    }
}

/// Where a process listens, as others are told.
pub(crate) fn listens_at(net: &Net) -> SocketAddr {
    net.inner().local_addr()
}

pub(crate) fn address(at: SocketAddr) -> Address {
    TcpAddress::from(at)
}

pub(crate) fn incarnation(net: &Net) -> String {
    net.inner().incarnation().to_string()
}

/// Resets every connection that `peer` has made to us.
pub(crate) fn cut(net: &Net, peer: &PeerName) {
    net.inner().cut_inbound_of(peer);
}
