//! Two processes that dial each other at the same moment, where one connection serves both directions.
//!
//! The table connects each peer once; what the peer dials is none of its connects. Over a transport whose connections are
//! directed (all of this crate: what is sent goes over the connection that the sender opened) two that cross are one for each
//! direction, and nothing is to be decided. A native library that has one endpoint for both ends up with two of them, and both
//! sides must let go of the same one, without another message: a side that closes what the other keeps has none.

use crate::name::{Incarnation, PeerName};

/// One of the two processes, as the handshake of either connection tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct End<'a> {
    /// Its boot id. Compared first: it is random, so no name always wins.
    pub incarnation: Incarnation,
    /// Its name.
    pub name: &'a PeerName,
}

/// Which of two connections that crossed goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crossed {
    /// The one this process dialled. The one that came in is refused, or closed if it was open.
    KeepOurs,
    /// The one that came in: `connect` answers it, as if it had dialled it, and closes its own.
    KeepTheirs,
}

/// Decides which of two connections goes on when `ours` and `theirs` dialled each other: the one of the lesser end. Each side
/// asks this with itself first; then exactly one of them is answered [`Crossed::KeepOurs`], and both keep the same connection.
/// `None`: both ends are one process, which has dialled itself; refuse it. A pure function, for transports: call it when a
/// handshake comes in from the process that one's own handshake is on the way to, or open with.
pub fn crossed(ours: End<'_>, theirs: End<'_>) -> Option<Crossed> {
    match ours.cmp(&theirs) {
        std::cmp::Ordering::Less => Some(Crossed::KeepOurs),
        std::cmp::Ordering::Greater => Some(Crossed::KeepTheirs),
        std::cmp::Ordering::Equal => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// fails if: the two sides keep different connections, both or none; a name decides alone.
    #[test]
    fn both_sides_keep_the_same_one_of_two_connections_that_crossed() {
        let names = ["a", "b", "é"].map(|name| PeerName::new(name).unwrap());
        let boots = [0, 1, 2, u64::MAX].map(Incarnation);
        let ends: Vec<_> = names.iter().flat_map(|name| boots.map(|incarnation| End { incarnation, name })).collect();
        let mut won = [0; 3];
        for here in &ends {
            for there in &ends {
                match (crossed(*here, *there), crossed(*there, *here)) {
                    (None, None) => assert_eq!(here, there),
                    (Some(Crossed::KeepOurs), Some(Crossed::KeepTheirs)) => {
                        won[names.iter().position(|name| name == here.name).unwrap()] += 1;
                    }
                    (Some(Crossed::KeepTheirs), Some(Crossed::KeepOurs)) => {}
                    other => panic!("{here:?} and {there:?}: {other:?}"),
                }
            }
        }
        assert!(won.iter().all(|won| *won > 0), "each name wins over others with some boots: {won:?}");
    }
}
