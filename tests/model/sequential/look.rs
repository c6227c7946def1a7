//! What can be seen from outside.

use super::*;

impl Model {
    pub(super) fn new_generation(&mut self) -> Gen {
        self.generations += 1;
        Gen(self.generations - 1)
    }

    pub(super) fn links_of(&self, peer: usize) -> impl Iterator<Item = (usize, &Link)> {
        self.links.iter().enumerate().filter(move |(_, link)| link.peer == peer)
    }

    /// Transfers of a link that hold their pages.
    pub(super) fn transfers_of(&self, link: usize) -> u64 {
        self.transfers.iter().filter(|transfer| transfer.link == link && !transfer.quiescent).count() as u64
    }

    /// Peers that are not Removed.
    pub(crate) fn live(&self) -> usize {
        self.peers.iter().filter(|peer| peer.phase != Phase::Removed).count()
    }

    pub(crate) fn is_shut_down(&self) -> bool {
        self.shut_down
    }

    /// Leases of the current generation, and of older ones.
    pub(crate) fn leases_of(&self, peer: usize) -> (u64, u64) {
        let (live, old): (Vec<_>, Vec<_>) = self.links_of(peer).partition(|(_, link)| link.stage == Stage::Live);
        let sum = |links: Vec<(usize, &Link)>| links.iter().map(|(_, link)| link.leases).sum();
        (sum(live), sum(old))
    }

    /// Transfers of a peer that run, and that have ended and hold their pages.
    pub(crate) fn in_flight(&self, peer: usize) -> (u64, u64) {
        let of_peer = |transfer: &&Transfer| self.links[transfer.link].peer == peer && !transfer.quiescent;
        let (ended, running): (Vec<_>, Vec<_>) =
            self.transfers.iter().filter(of_peer).partition(|transfer| transfer.outcome.is_some());
        (running.len() as u64, ended.len() as u64)
    }

    pub(crate) fn grants_of(&self, peer: usize) -> u64 {
        self.grants.iter().filter(|grant| grant.peer == peer && !grant.quiesced).count() as u64
    }

    /// Native connects of the table's own threads that have outlived their attempt's deadline.
    pub(crate) fn stuck(&self) -> u64 {
        let stuck = |connect: Connect| !connect.young && !connect.by_hand;
        self.peers.iter().filter(|peer| peer.connect.is_some_and(stuck)).count() as u64
    }

    pub(super) fn region_in_use(&self) -> (usize, usize) {
        let transfers = self.transfers.iter().filter(|transfer| !transfer.quiescent).count();
        (transfers, self.grants.iter().filter(|grant| !grant.quiesced).count())
    }

    pub(super) fn leftovers(&self) -> Leftovers {
        let mut left = Leftovers { leaked: self.leaked, registered: self.registered, ..Leftovers::default() };
        for (number, peer) in self.peers.iter().enumerate().filter(|(_, peer)| peer.phase != Phase::Removed) {
            let leases = self.links_of(number).map(|(_, link)| link.leases).sum();
            let transfers = self.links_of(number).map(|(link, _)| self.transfers_of(link)).sum();
            left.leases.extend((leases > 0).then_some((peer.name, leases)));
            left.transfers.extend((transfers > 0).then_some((peer.name, transfers)));
            left.connects.extend(peer.connect.map(|_| peer.name));
        }
        left.leases.sort();
        left.transfers.sort();
        left.connects.sort();
        left
    }
}
