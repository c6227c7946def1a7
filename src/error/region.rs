//! What is wrong with a range, and why a region was not registered or taken back.

use super::UsedAfterFork;
use crate::region::RegionId;
use std::error::Error;
use std::sync::Arc;

/// A range outside its region or slice. Nothing was copied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes at {offset} are outside region {} of {region_len} bytes", region.0)]
pub struct OutOfRegion {
    /// The region.
    pub region: RegionId,
    /// Start of the range asked for.
    pub offset: usize,
    /// Its length.
    pub len: usize,
    /// The region's length.
    pub region_len: usize,
}

/// Why a region was not registered or deregistered.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum RegisterError<E: Error + 'static> {
    /// The table is shut down, for ever. Register with another table.
    #[error("region {} not registered: the table is shut down", region.0)]
    ShutDown {
        /// The region.
        region: RegionId,
    },
    /// Transfers or grants still use it. Wait for them, revoke them.
    #[error("region {} is in use by {transfers} transfers and {grants} grants", region.0)]
    InUse {
        /// The region.
        region: RegionId,
        /// Transfers that are not quiescent.
        transfers: usize,
        /// Grants that are not quiesced.
        grants: usize,
    },
    /// It is not registered here, or no longer: there is nothing to take back.
    #[error("region {} is not registered, there is nothing to take back", region.0)]
    NotRegistered {
        /// The region.
        region: RegionId,
    },
    /// The transport panicked, a bug of it; the region is listed as it was before. Call again, or go on without it.
    #[error("region {}: the transport panicked: {message}", region.0)]
    Panicked {
        /// The region.
        region: RegionId,
        /// The panic's message.
        message: Arc<str>,
    },
    /// The transport refused; the region is listed as it was before. `source()` says why; when that is mended, call again.
    #[error("the transport refused for region {}", region.0)]
    Transport {
        /// The region.
        region: RegionId,
        /// Why.
        #[source]
        source: E,
    },
    /// This is a forked child, the table is the parent's: [`UsedAfterFork`](struct@UsedAfterFork).
    #[error("region {}: {}", region.0, UsedAfterFork)]
    UsedAfterFork {
        /// The region.
        region: RegionId,
    },
}
