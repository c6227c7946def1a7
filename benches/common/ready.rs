//! Tables whose peers are connected.

use crate::wait::wait;
use crate::wire::{Anywhere, Wire};
use peerage::{NameError, PeerTable};
use std::error::Error;

pub(crate) type Peer = peerage::Peer<Wire>;
pub(crate) type Table = PeerTable<Wire>;

/// A table of `builder` with these peers, all of them connected.
pub(crate) fn ready(builder: peerage::Builder<Wire>, names: &[String]) -> Result<(Table, Vec<Peer>), Box<dyn Error>> {
    let table = builder.build()?;
    let named: Result<Vec<_>, NameError> = names.iter().map(|name| Ok((name.as_str().try_into()?, Anywhere))).collect();
    let peers = table.insert_many(named?)?;
    for peer in &peers {
        let _ = peer.lease(); // asks
    }
    for peer in &peers {
        wait(peer)?;
    }
    Ok((table, peers))
}

/// So many names of the length that deployments have.
pub(crate) fn names(peers: usize) -> Vec<String> {
    (0..peers).map(|peer| format!("prefill-{peer:05}:9000")).collect()
}
