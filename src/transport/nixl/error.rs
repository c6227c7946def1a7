//! What may go wrong with the `Nixl` transport, and what an error of NIXL's means for a peer.
//!
//! # Whose fault an error is
//! NIXL's C API says "backend error" for nearly everything, a peer that is gone included (see [`Status`]). So what an error
//! means follows from the call, on a handle of which peer it was made, and where that leaves a doubt, from a second call:
//!
//! | call | status | means |
//! |---|---|---|
//! | load a peer's metadata | invalid parameter | [`BadMetadata`](NixlError::BadMetadata): incompatible, no retry helps |
//! | load a peer's metadata | any other | [`Unreachable`](NixlError::Unreachable): the peer's |
//! | notify a peer | not found | [`Broken`](NixlError::Broken): NIXL has removed the peer by itself, as it does when it is gone |
//! | notify a peer | invalid parameter | [`Rejected`](NixlError::Rejected): ours |
//! | notify a peer, make, post or poll a transfer with it | any other | in doubt: the peer is pinged. A peer that is gone stays so, so that call fails too, and it is [`Broken`](NixlError::Broken); otherwise it was about this call alone, [`Rejected`](NixlError::Rejected), and the peer is well |
//! | anything else | any | ours: it names no peer |
//!
//! The second call does not wait, and asks nothing of the peer's threads: NIXL knows by itself that a connection is reset. It
//! says nothing of a peer that is stopped, or whose network swallows; [probes](crate::Heartbeat) do.

use super::capi::Status;
use super::library::NixlLibraryError;
use super::message::{Farewell, Verdict};
use super::native::NotMade;
use crate::error::UsedAfterFork;
use crate::name::PeerName;
use crate::region::RegionId;
use crate::state::Generation;
use crate::transport::limits::{FULL_RETRY, QUEUE_RETRY};
use crate::transport::{ErrorClass, TransportError};
use std::io;
use std::sync::Arc;

/// Why a `Nixl` was not made. Nothing is left behind.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum NixlBuildError {
    /// NIXL is not here, or not whole.
    #[error(transparent)]
    Library(#[from] NixlLibraryError),
    /// NIXL made no agent.
    #[error("NIXL made no agent")]
    Agent(#[source] Status),
    /// There is no such backend. Is its plugin installed, and does `NIXL_PLUGIN_DIR`, if it is set, name its folder?
    #[error("NIXL has no backend \"{backend}\"")]
    Backend {
        /// Its name.
        backend: String,
        /// What NIXL said.
        #[source]
        status: Status,
    },
    /// The backend does not take this setting, or, if NIXL said nothing, this library of NIXL takes none at all.
    #[error("the backend takes no setting \"{setting}\"")]
    Setting {
        /// Its name.
        setting: String,
        /// What NIXL said.
        #[source]
        status: Option<Status>,
    },
    /// The backend was not made: a setting has a value that it does not take, or there is no device for it.
    #[error("the backend could not be made")]
    BackendNotMade(#[source] Status),
    /// A setting of ours is 0 or too large.
    #[error("{limit} is {given}, it must be 1 to {max}")]
    Limit {
        /// Which.
        limit: &'static str,
        /// What was given.
        given: usize,
        /// The most.
        max: usize,
    },
    /// The operating system gave no thread.
    #[error("no thread for the transport")]
    Thread(#[source] io::Error),
    /// The operating system gave no memory to notice forks.
    #[error("forks can't be noticed")]
    Fork(#[source] io::Error),
    /// The operating system gave no memory for a handler that keeps the transport's threads out of NIXL when the process exits.
    #[error("the end of the process can't be noticed")]
    Exit(#[source] io::Error),
}

impl NixlBuildError {
    pub(super) fn of(not_made: NotMade, backend: &str) -> Self {
        match not_made {
            NotMade::Agent(status) => NixlBuildError::Agent(status),
            NotMade::Plugin(status) => NixlBuildError::Backend { backend: backend.to_owned(), status },
            NotMade::Setting { setting, status } => NixlBuildError::Setting { setting, status },
            NotMade::Backend(status) => NixlBuildError::BackendNotMade(status),
            NotMade::Exit(error) => NixlBuildError::Exit(error),
        }
    }
}

/// Why a call of the `Nixl` transport failed.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum NixlError {
    /// NIXL could not connect it, or it could not be told who we are. Does it run, and is the address of this boot of it?
    #[error("peer \"{peer}\" at {address} can't be reached")]
    Unreachable {
        /// The peer.
        peer: PeerName,
        /// Its address.
        address: Arc<str>,
        /// What NIXL said.
        #[source]
        status: Status,
    },
    /// NIXL can't read the metadata in the address, or has no backend for it. Do both sides run the same NIXL, with the same
    /// backend?
    #[error("peer \"{peer}\": NIXL does not take the metadata in {address}")]
    BadMetadata {
        /// The peer.
        peer: PeerName,
        /// Its address.
        address: Arc<str>,
        /// What NIXL said.
        #[source]
        status: Status,
    },
    /// It did not answer before the attempt's deadline. It may be stopped.
    #[error("peer \"{peer}\" at {address} did not answer in time")]
    TimedOut {
        /// The peer.
        peer: PeerName,
        /// Its address.
        address: Arc<str>,
    },
    /// Nobody wants the connection any more.
    #[error("the attempt to connect peer \"{peer}\" at {address} was cancelled")]
    Cancelled {
        /// The peer.
        peer: PeerName,
        /// Its address.
        address: Arc<str>,
    },
    /// It does not let us in.
    #[error("peer \"{peer}\" at {address} refused: {verdict:?}")]
    Refused {
        /// The peer.
        peer: PeerName,
        /// Its address.
        address: Arc<str>,
        /// Why.
        verdict: Verdict,
    },
    /// The address is another peer's.
    #[error("peer \"{peer}\": \"{actual}\" is at {address}; insert it by that name")]
    WrongName {
        /// The peer.
        peer: PeerName,
        /// Its address.
        address: Arc<str>,
        /// Who is there.
        actual: String,
    },
    /// NIXL has one place for a name, and an earlier connection of this one is not taken back yet.
    #[error("peer \"{peer}\": NIXL has not let go of an earlier connection")]
    NameTaken {
        /// The peer.
        peer: PeerName,
    },
    /// What it sent is not of this protocol. Is it the same version of the library?
    #[error("peer \"{peer}\" at {address} broke the protocol")]
    Misbehaved {
        /// The peer.
        peer: PeerName,
        /// Its address.
        address: Arc<str>,
    },
    /// The connection broke. What was accepted before may be lost: fail those requests; the table connects again.
    #[error("connection to peer \"{peer}\" at {address} broke")]
    Broken {
        /// The peer.
        peer: PeerName,
        /// Its address.
        address: Arc<str>,
        /// What NIXL said.
        #[source]
        status: Status,
    },
    /// NIXL did not take this call, and the peer is well. Nothing was sent.
    #[error("NIXL did not take a call for peer \"{peer}\"")]
    Rejected {
        /// The peer.
        peer: PeerName,
        /// What NIXL said.
        #[source]
        status: Status,
    },
    /// The peer ended the connection and said so. A peer that has shut down may come back with another boot id.
    #[error("peer \"{peer}\" at {address} {}", farewell.text())]
    SaidGoodbye {
        /// The peer.
        peer: PeerName,
        /// Its address.
        address: Arc<str>,
        /// Why.
        farewell: Farewell,
    },
    /// The transport was dropped.
    #[error("connection to peer \"{peer}\" at {address} ended with its transport")]
    TransportGone {
        /// The peer.
        peer: PeerName,
        /// Its address.
        address: Arc<str>,
    },
    /// The connection had ended before this call. Nothing was sent; fail the request.
    #[error("peer \"{peer}\": the connection of {generation} has ended")]
    Ended {
        /// The peer.
        peer: PeerName,
        /// The connection's generation.
        generation: Generation,
        /// How it ended; `None` if it was disconnected from this side.
        #[source]
        source: Option<Arc<NixlError>>,
    },
    /// 1,024 messages or 4 MiB of them are not taken yet, or 16,384 transfers wait for their turn. Nothing was sent; try again.
    #[error("peer \"{peer}\": as much is under way as may be")]
    QueueFull {
        /// The peer.
        peer: PeerName,
    },
    /// Longer than both sides take. Nothing was sent; split it, or write it into a granted page.
    #[error("peer \"{peer}\": {len} bytes, a notification on this connection has at most {max}")]
    TooLong {
        /// The peer.
        peer: PeerName,
        /// What was given.
        len: usize,
        /// What fits.
        max: usize,
    },
    /// The local and the remote slice differ in length. Nothing was sent; give slices of one length.
    #[error("transfer with \"{peer}\": {local} bytes here, {remote} there")]
    Length {
        /// The peer.
        peer: PeerName,
        /// Of the local slice.
        local: u64,
        /// Of the remote slice.
        remote: u64,
    },
    /// NIXL did not register the region: no device takes it, or it is too much locked memory; then raise `ulimit -l`.
    #[error("region {} can't be registered", region.0)]
    Register {
        /// The region.
        region: RegionId,
        /// What NIXL said.
        #[source]
        status: Status,
    },
    /// The region was never registered with this transport.
    #[error("region {} is not registered", region.0)]
    NotRegistered {
        /// The region.
        region: RegionId,
    },
    /// NIXL has not let go of a transfer of this region, whose peer lives and may still move bytes. It stays registered.
    #[error("region {} stays registered: NIXL has not let go of {transfers} of its transfers or loans", region.0)]
    StillInUse {
        /// The region.
        region: RegionId,
        /// How many.
        transfers: usize,
    },
    /// NIXL gave no metadata of ours, or more than an address may carry.
    #[error("NIXL gave no metadata for an address")]
    NoMetadata(#[source] Status),
    /// This is a forked child, the transport is the parent's. Nothing was sent, and NIXL was not called.
    #[error(transparent)]
    UsedAfterFork(#[from] UsedAfterFork),
}

impl TransportError for NixlError {
    fn class(&self) -> ErrorClass {
        match self {
            NixlError::TooLong { .. }
            | NixlError::Length { .. }
            | NixlError::Register { .. }
            | NixlError::NotRegistered { .. }
            | NixlError::StillInUse { .. }
            | NixlError::NoMetadata(_)
            | NixlError::Rejected { .. }
            | NixlError::UsedAfterFork(_) => ErrorClass::Local,
            NixlError::QueueFull { .. } => ErrorClass::Busy { retry_after: QUEUE_RETRY },
            NixlError::NameTaken { .. } | NixlError::Refused { verdict: Verdict::Full, .. } => {
                ErrorClass::Busy { retry_after: FULL_RETRY }
            }
            NixlError::Refused { verdict: Verdict::WrongName, .. }
            | NixlError::WrongName { .. }
            | NixlError::BadMetadata { .. } => ErrorClass::Incompatible,
            _ => ErrorClass::PeerBroken,
        }
    }

    /// A reset and a refused connection are what NIXL says most of the backend errors for.
    fn process_is_gone(&self) -> bool {
        match self {
            NixlError::Unreachable { .. } | NixlError::Broken { .. } => true,
            NixlError::Ended { source: Some(source), .. } => source.process_is_gone(),
            _ => false,
        }
    }

    fn native_code(&self) -> Option<i64> {
        match self {
            NixlError::Unreachable { status, .. }
            | NixlError::BadMetadata { status, .. }
            | NixlError::Broken { status, .. }
            | NixlError::Rejected { status, .. }
            | NixlError::NoMetadata(status)
            | NixlError::Register { status, .. } => Some(status.0.into()),
            NixlError::Ended { source: Some(source), .. } => source.native_code(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_connection_is_the_peers_and_what_nixl_did_not_take_is_ours_whatever_the_status() {
        for code in -100..0 {
            let (peer, address, status) = (PeerName::new("p").unwrap(), "nixl:p".into(), Status(code));
            let broken = NixlError::Broken { peer: peer.clone(), address, status };
            assert_eq!((broken.class(), broken.native_code()), (ErrorClass::PeerBroken, Some(code.into())));
            let rejected = NixlError::Rejected { peer, status };
            assert_eq!((rejected.class(), rejected.native_code()), (ErrorClass::Local, Some(code.into())));
        }
    }
}
