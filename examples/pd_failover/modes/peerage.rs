//! The lifecycle of this library: one table, shared by all threads. Nothing here waits, locks or connects, except where a
//! caller chooses to wait.

use super::{Link, Net, NetError, PeerIndex, Peers, Policy, Refused, WireAddress};
use crate::lines::{Counts, TableCounts, View};
use peerage::{
    Access, Generation, Grant, Lease, NotifyError, Peer, PeerName, PeerTable, Phase, PostError, ReadyError, Region,
    RemoteSlice, Slice, Snapshot, Transfer,
};
use std::error::Error;
use std::thread;
use std::time::Instant;

pub(crate) struct Peerage {
    table: PeerTable<Net>,
    peers: Vec<Peer<Net>>,
}

impl Peerage {
    pub(crate) fn new(net: Net, peers: &[(PeerName, WireAddress)], policy: Policy) -> Result<Self, String> {
        let mut builder = PeerTable::builder(net)
            .connect_timeout(policy.connect_timeout)
            .backoff(policy.backoff)
            .breaker(policy.breaker)
            .heartbeat(policy.heartbeat);
        if let Some(limit) = policy.max_concurrent_connects {
            builder = builder.max_concurrent_connects(limit);
        }
        let table = builder.build().map_err(|error| error.to_string())?;
        let peers = peers.iter().cloned();
        let peers = match policy.group {
            true => table.insert_group("engine-0", peers).map_err(|error| error.to_string()),
            false => table.insert_many(peers).map_err(|error| error.to_string()),
        };
        Ok(Peerage { peers: peers?, table })
    }

    /// The peer restarted, and this is where it is now: its old connection is retired, its backoff forgotten.
    pub(crate) fn update(&self, to: PeerIndex, address: WireAddress) -> Result<(), Refused> {
        self.peers[to].update(address).map(|_| ()).map_err(Refused::because)
    }

    pub(crate) fn view(&self, to: PeerIndex) -> View {
        let peer = &self.peers[to];
        match (peer.phase(), peer.is_suspect()) {
            (Phase::Ready, false) => View::Ready,
            (Phase::Ready, true) => View::Suspect,
            _ => View::Down,
        }
    }

    /// Whether a lease is granted now of a connection that is not whole: not published, or made with nobody knows whom.
    /// `None` if no lease is granted, or the connection is gone again before it could be looked at.
    pub(crate) fn is_half_open(&self, to: PeerIndex) -> Option<bool> {
        let lease = self.peers[to].lease().ok()?;
        let record = self.peers[to].record().filter(|record| record.generation == lease.generation())?;
        match record.phase {
            Phase::Ready => Some(record.incarnation.is_none()),
            Phase::Idle | Phase::Connecting => Some(true),
            _ => None,
        }
    }
}

impl Peers for Peerage {
    fn link(&self, to: PeerIndex) -> Result<Box<dyn Link + '_>, Refused> {
        // A lease answers at once. One that is refused has asked for a reconnect by itself.
        match self.peers[to].lease() {
            Ok(lease) => Ok(Box::new(lease)),
            Err(not_ready) => Err(Refused::because(not_ready)),
        }
    }

    fn link_if_up(&self, to: PeerIndex) -> Option<Box<dyn Link + '_>> {
        self.link(to).ok()
    }

    fn link_within(&self, to: PeerIndex, deadline: Instant) -> Result<Box<dyn Link + '_>, Refused> {
        let peer = &self.peers[to];
        loop {
            if let Ok(lease) = peer.lease() {
                return Ok(Box::new(lease));
            }
            match peer.wait_ready(deadline) {
                Ok(_) => {}
                // The table never sleeps for its caller; whoever has the time may.
                Err(ReadyError::BackingOff { retry_at, .. }) if retry_at < deadline => {
                    thread::sleep(retry_at.saturating_duration_since(Instant::now()));
                }
                Err(ReadyError::Failed { .. } | ReadyError::Reported { .. }) if Instant::now() < deadline => {}
                Err(error) => return Err(Refused::because(error)),
            }
        }
    }

    fn report(&self, to: PeerIndex, used: Generation, why: &dyn Error) {
        // Exact: if the peer has a newer connection by now, that one is left alone.
        self.peers[to].report(used, why);
    }

    fn register(&self, region: &Region) -> Result<(), Refused> {
        self.table.register(region).map_err(Refused::because)
    }

    fn lend(&self, to: PeerIndex, page: &Slice) -> Result<Grant, Refused> {
        self.table.grant(&self.peers[to], page, Access::Write).map_err(Refused::because)
    }

    fn all_ready(&self) -> bool {
        self.peers.iter().all(|peer| peer.phase() == Phase::Ready)
    }

    fn net(&self) -> &Net {
        self.table.transport()
    }

    fn peerage(&self) -> Option<&Peerage> {
        Some(self)
    }

    fn counts(&self) -> Option<Counts> {
        let before = self.table.snapshot();
        let total = self.net().inner().total();
        let after = self.table.snapshot();
        let at_rest = |now: &Snapshot| now.peers.iter().all(|peer| peer.phase != Phase::Connecting);
        let still = at_rest(&before) && at_rest(&after) && before.elections == after.elections;
        if !still || total.connecting > 0 {
            return None;
        }
        Some(Counts {
            table: Some(TableCounts {
                generations: after.elections,
                elections_without_connect: after.elections_without_connect,
                stale_reports: after.stale_reports,
            }),
            native_connects: total.connects_begun,
            duplicate_connects: total.duplicate_connects,
        })
    }

    fn shutdown(&self, deadline: Instant) -> String {
        match self.table.shutdown(deadline).wait() {
            Ok(report) if report.is_clean() => String::new(),
            Ok(report) => format!("{report:?}"),
            Err(error) => error.to_string(),
        }
    }
}

impl Link for Lease<Net> {
    fn generation(&self) -> Generation {
        Lease::generation(self)
    }

    fn notify(&self, message: &[u8]) -> Result<(), Refused> {
        // A broken connection has been reported by the lease itself, with its exact generation.
        Lease::notify(self, message).map_err(|error: NotifyError<NetError>| match error {
            NotifyError::Busy { retry_after, .. } => Refused::Busy(retry_after),
            error => Refused::because(error),
        })
    }

    fn write(&self, local: &Slice, remote: RemoteSlice) -> Result<Transfer, Refused> {
        Lease::write(self, local, remote).map_err(|error: PostError<NetError>| match error {
            PostError::Busy { retry_after, .. } => Refused::Busy(retry_after),
            error => Refused::because(error),
        })
    }
}
