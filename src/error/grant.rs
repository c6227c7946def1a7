//! Why a page was not lent.

use super::UsedAfterFork;
use crate::name::PeerName;
use crate::region::RegionId;

/// Why a page was not lent.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    /// The page's region is not registered with this table. Register it first.
    #[error("page not lent to \"{peer}\": region {} is not registered; register it first", region.0)]
    NotRegistered {
        /// The peer.
        peer: PeerName,
        /// The region.
        region: RegionId,
    },
    /// The peer keeps as many bytes of ours in quarantine as it may: pages of grants that were revoked and of transfers that
    /// have ended, which it may still touch. Where they are of grants, the peer's own connection to us must end, as by its
    /// transport's keepalive; where they are of transfers, report its generation, or remove the peer.
    #[error("page not lent to \"{peer}\", which keeps {bytes} bytes in quarantine, of at most {limit}")]
    Quarantined {
        /// The peer.
        peer: PeerName,
        /// What it keeps.
        bytes: u64,
        /// The table's limit per peer.
        limit: u64,
    },
    /// The table is shut down, for ever. Lend it through another table.
    #[error("page not lent to \"{peer}\": the table is shut down")]
    ShutDown {
        /// The peer.
        peer: PeerName,
    },
    /// This is a forked child, the table is the parent's: [`UsedAfterFork`](struct@UsedAfterFork).
    #[error("page not lent to \"{peer}\": {}", UsedAfterFork)]
    UsedAfterFork {
        /// The peer.
        peer: PeerName,
    },
}
