//! Comparing what can be seen of the table with the model.

use super::{PAGE, World, name};
use crate::model::op::NAMES;
use crate::model::sequential::{Counts, Ended, Gen, Gone, Leftovers, Retry};
use peerage::transport::memory::{Hold, Step};
use peerage::{Generation, PeerName, PeerStatus, Phase, ReadyError, Removed, ShutdownReport};

impl World {
    /// Compares everything that can be seen; learns what the table has chosen.
    pub(super) fn check(&mut self) -> Result<(), String> {
        let snapshot = self.table.snapshot();
        let misuses = self.us.misuses();
        if !misuses.is_empty() {
            return Err(format!("misuse of the transport: {misuses:?}"));
        }
        for number in 0..self.model.peers.len() {
            let status = snapshot.peers.iter().find(|status| status.id == self.ids[number]);
            self.check_peer(number, status)
                .map_err(|error| format!("peer {number} (\"{}\"): {error}", name(self.model.peers[number].name)))?;
        }
        let strange = snapshot.peers.iter().find(|status| !self.ids.contains(&status.id));
        if let Some(status) = strange {
            return Err(format!("a peer nobody inserted: {status:?}"));
        }
        same("elections", self.model.elections, snapshot.elections)?;
        same("elections without connect", 0, snapshot.elections_without_connect)?;
        same("leaked", self.model.leaked, snapshot.leaked)?;
        same("stuck connects", self.model.stuck(), snapshot.stuck_connects)?;
        let [least, most] = self.model.stale_reports;
        if !(least..=most).contains(&snapshot.stale_reports) {
            return Err(format!("stale reports: expected {least} to {most}, found {}", snapshot.stale_reports));
        }
        self.model.stale_reports = [snapshot.stale_reports; 2];
        self.check_native()?;
        self.check_waiting()?;
        self.check_transfers()
    }

    fn check_peer(&mut self, number: usize, status: Option<&PeerStatus>) -> Result<(), String> {
        let peer = &self.model.peers[number];
        let of_peer = self.model.handles.iter().position(|of| *of == number);
        if let Some(handle) = of_peer.map(|at| &self.handles[at]) {
            same("phase by handle", peer.phase, handle.phase())?;
            let found = self.table.peer_by_id(self.ids[number]).is_some();
            same("found by id", peer.phase != Phase::Removed, found)?;
        }
        let Some(status) = status else { return same("phase", peer.phase, Phase::Removed) };
        same("phase", peer.phase, status.phase)?;
        let symbol = peer.generation;
        self.learn(symbol, status.generation)?;
        let peer = &self.model.peers[number];
        let Some(record) = &status.record else { return Err("the record is not settled".to_owned()) };
        same("reason", peer.reason, record.reason)?;
        same("attempts", peer.attempts, record.attempts)?;
        same("failures in a row", peer.failures, record.failures)?;
        same("an error's text", peer.has_error, record.last_error.is_some())?;
        same("incarnation", peer.incarnation, record.incarnation.map(|incarnation| incarnation.0))?;
        same("since", peer.since, record.since - self.start)?;
        same("name", name(peer.name).as_str(), record.name.as_str())?;
        same("leases, current and older", self.model.leases_of(number), (status.leases, status.draining))?;
        let transfers = (status.transfers, status.quarantined);
        same("transfers, running and quarantined", self.model.in_flight(number), transfers)?;
        same("grants", self.model.grants_of(number), status.grants)?;
        let retry_at = record.retry_at.map(|at| at - self.start);
        match (peer.retry_at, retry_at) {
            (Some(Retry::Within { from, window }), Some(at)) if at >= from && at < from + window => {
                self.model.peers[number].retry_at = Some(Retry::At(at));
                Ok(())
            }
            (Some(Retry::At(at)), found) => same("retry_at", Some(at), found),
            (None, found) => same("retry_at", None, found),
            (expected, found) => Err(format!("retry_at: expected {expected:?}, found {found:?}")),
        }
    }

    /// A new generation is greater than all before this operation, and nobody else's.
    fn learn(&mut self, symbol: Gen, found: Generation) -> Result<(), String> {
        if self.chosen.len() <= symbol.0 {
            self.chosen.resize(symbol.0 + 1, None);
        }
        match self.chosen[symbol.0] {
            Some(known) => same("generation", known, found),
            None if found <= self.newest => Err(format!("generation fell: {found} after {}", self.newest)),
            None if self.chosen.contains(&Some(found)) => Err(format!("{found} is another peer's, or an older one")),
            None => {
                self.chosen[symbol.0] = Some(found);
                Ok(())
            }
        }
    }

    fn check_native(&self) -> Result<(), String> {
        for number in 0..NAMES {
            let (native, found) = (&self.model.native[number], self.us.counts(&name(number)));
            let counts = Counts {
                begun: found.connects_begun,
                ok: found.connects_ok,
                failed: found.connects_failed,
                connecting: found.connecting,
                open: found.open,
                closes: found.closes,
                leaked: found.leaked,
                dropped: found.dropped,
            };
            same(&format!("native calls of \"{}\"", name(number)), native.counts, counts)?;
            for (step, expected) in [(Step::Connect, native.connect_held), (Step::Close, native.close_held)] {
                let found = self.holds.get(&(step, number)).map(Hold::reached);
                same(&format!("calls held at {step:?} of \"{}\"", name(number)), expected, found)?;
            }
        }
        Ok(())
    }

    fn check_waiting(&mut self) -> Result<(), String> {
        for number in 0..self.waiters.len() {
            let said = self.waiters[number].poll().cloned();
            let said = said.map(|said| self.ended(&said)).transpose()?;
            same(&format!("waiter {number}"), self.model.waiters[number].outcome, said)?;
        }
        for (number, (waiting, expected)) in self.removers.iter_mut().zip(&self.model.removers).enumerate() {
            let said = waiting.poll().map(|removed| match *removed {
                Removed::Removed => Ok(Gone::Removed),
                Removed::Leaked(_) => Ok(Gone::Leaked),
                Removed::StillBusy { leases, oldest, connecting, .. } => {
                    Ok(Gone::StillBusy { leases, oldest, connecting })
                }
                ref other => Err(format!("remover {number}: {other:?}")),
            });
            same(&format!("remover {number}"), expected.outcome, said.transpose()?)?;
        }
        for (number, (waiting, expected)) in self.shutdowns.iter_mut().zip(&self.model.shutdowns).enumerate() {
            let said = waiting.poll().map(leftovers);
            same(&format!("shutdown {number}"), &expected.outcome, &said)?;
        }
        Ok(())
    }

    fn check_transfers(&mut self) -> Result<(), String> {
        for (number, (waiting, expected)) in self.cancels.iter_mut().zip(&self.model.cancels).enumerate() {
            same(&format!("cancel {number}"), expected.answer.as_ref(), waiting.poll())?;
        }
        for (number, (moving, expected)) in self.transfers.iter().zip(&self.model.transfers).enumerate() {
            let landed = moving.theirs.to_vec() == PAGE;
            same(&format!("bytes of transfer {number} have landed"), true, landed)?;
            let found = (moving.transfer.try_outcome(), moving.transfer.is_quiescent());
            same(&format!("transfer {number}"), &(expected.outcome.clone(), expected.quiescent), &found)?;
        }
        for (number, (grant, expected)) in self.grants.iter().zip(&self.model.grants).enumerate() {
            same(&format!("grant {number} is quiesced"), expected.quiesced, grant.is_quiesced())?;
        }
        Ok(())
    }

    fn ended(&self, said: &Result<Generation, ReadyError>) -> Result<Ended, String> {
        Ok(match said {
            Ok(generation) => Ended::Ready(self.symbol(*generation)),
            Err(ReadyError::Failed { generation, .. }) => Ended::Failed(self.symbol(*generation)),
            Err(ReadyError::Reported { generation, .. }) => Ended::Reported(self.symbol(*generation)),
            Err(ReadyError::TimedOut { generation, .. }) => Ended::TimedOut(self.symbol(*generation)),
            Err(ReadyError::Panicked { .. }) => Ended::Panicked,
            Err(ReadyError::WrongIncarnation { .. }) => Ended::WrongIncarnation,
            Err(ReadyError::BackingOff { retry_at, .. }) => Ended::BackingOff(*retry_at - self.start),
            Err(ReadyError::Busy { .. }) => Ended::Busy,
            Err(ReadyError::Undrained { leases, transfers, .. }) => {
                Ended::Undrained { leases: *leases, transfers: *transfers }
            }
            Err(ReadyError::WaitingForPredecessor { .. }) => Ended::WaitingForPredecessor,
            Err(ReadyError::Removed { .. }) => Ended::Removed,
            Err(ReadyError::ShutDown { .. }) => Ended::ShutDown,
            Err(other) => return Err(format!("a waiter got {other:?}")),
        })
    }
}

fn leftovers(report: &ShutdownReport) -> Leftovers {
    let number = |name: &PeerName| name.as_str()[1..].parse::<usize>().expect("a name of ours");
    let counted = |counted: &[(PeerName, u64)]| {
        let mut counted: Vec<_> = counted.iter().map(|(name, count)| (number(name), *count)).collect();
        counted.sort();
        counted
    };
    let mut connects: Vec<_> = report.stuck_connects.iter().map(number).collect();
    connects.sort();
    Leftovers {
        leases: counted(&report.leaked_leases),
        connects,
        transfers: counted(&report.quarantined),
        leaked: report.leaked_connections,
        registered: !report.still_registered.is_empty(),
    }
}

fn same<V: PartialEq + std::fmt::Debug>(what: &str, expected: V, found: V) -> Result<(), String> {
    if expected == found { Ok(()) } else { Err(format!("{what}: expected {expected:?}, found {found:?}")) }
}
