//! What follows by itself: elections, connects, deadlines, drains, closes, ends.

use super::*;

/// Why an attempt or a generation failed.
pub(super) struct Failure {
    pub(super) reason: Reason,
    pub(super) retry: Blame,
    pub(super) ended: Ended,
}

pub(super) enum Blame {
    Peer,
    After(Time),
}

impl Model {
    /// Makes every step that is due, until none is.
    pub(super) fn settle(&mut self) {
        loop {
            let before = self.clone();
            self.pass_deadlines();
            self.complete_transfers(|model, transfer| {
                let peer = model.links[transfer.link].peer;
                !model.native[model.peers[peer].name].complete_held
            });
            for peer in 0..self.peers.len() {
                self.pass_connects(peer);
                self.expire(peer);
                self.look_at_predecessor(peer);
                self.drain_and_close(peer);
                self.finish_removal(peer);
                self.elect(peer);
            }
            if *self == before {
                break;
            }
        }
        for remover in 0..self.removers.len() {
            let Remover { peer, deadline, outcome } = self.removers[remover];
            if outcome.is_none() && deadline <= self.now {
                let leases = self.links_of(peer).map(|(_, link)| link.leases).sum();
                let at = &self.peers[peer];
                let oldest = self.now - at.removal.expect("it is being removed").since;
                let busy = Gone::StillBusy { leases, oldest, connecting: at.connect.is_some() };
                self.removers[remover].outcome = Some(busy);
            }
        }
        for request in 0..self.shutdowns.len() {
            let Shutdown { deadline, outcome } = &self.shutdowns[request];
            if outcome.is_none() && (self.live() == 0 || *deadline <= self.now) {
                self.registered &= self.region_in_use() != (0, 0);
                self.shutdowns[request].outcome = Some(self.leftovers());
            }
        }
    }

    fn elect(&mut self, peer: usize) {
        let at = &self.peers[peer];
        let due = matches!(at.phase, Phase::Idle | Phase::Failed)
            && at.connect.is_none()
            && self.predecessor(peer).is_none()
            && at.wanted == Some(at.generation)
            && !at.retry_at.is_some_and(|retry| retry.is_after(self.now));
        let Some(bay) = self.free_bay(peer).filter(|_| due) else { return };
        let link = self.links.len();
        self.start(peer, bay, false);
        self.begin_connect(link);
    }

    /// An attempt, whoever makes it.
    pub(super) fn start(&mut self, peer: usize, bay: usize, by_hand: bool) {
        let generation = self.new_generation();
        self.elections += 1;
        let at = &mut self.peers[peer];
        at.attempts += 1;
        at.had.push(generation);
        at.began = self.now;
        let (link, deadline) = (self.links.len(), self.now + CONNECT_TIMEOUT);
        at.connect = Some(Connect { link, by_hand, deadline, young: true });
        self.links.push(Link {
            peer,
            generation,
            node: at.address.node,
            named: at.address.incarnation,
            begun: false,
            made: false,
            dead: false,
            ended: false,
            leases: 0,
            bay: Some(bay),
            stage: Stage::Ticket,
        });
        self.change(peer, Phase::Connecting, generation, Reason::Connecting);
    }

    pub(super) fn begin_connect(&mut self, link: usize) {
        let native = &mut self.native[self.peers[self.links[link].peer].name];
        native.counts.begun += 1;
        native.counts.connecting += 1;
        native.connect_held.iter_mut().for_each(|held| *held += 1);
        self.links[link].stage = Stage::Connecting;
        self.links[link].begun = true;
    }

    /// Whether `generation` is the peer's attempt, and goes on.
    pub(super) fn is_attempt(&self, peer: usize, generation: Gen) -> bool {
        self.peers[peer].phase == Phase::Connecting && self.peers[peer].generation == generation
    }

    /// Whether another life answers than the link's address named.
    pub(super) fn wrong(&self, link: usize) -> bool {
        let Link { node, named, .. } = self.links[link];
        named.is_some_and(|named| named != self.nodes[node].incarnation)
    }

    /// Who is in the peer's way, if anybody still is.
    pub(super) fn predecessor(&self, peer: usize) -> Option<Predecessor> {
        self.peers[peer].predecessor.filter(|before| self.peers[before.peer].phase != Phase::Removed)
    }

    fn look_at_predecessor(&mut self, peer: usize) {
        let Some(before) = self.peers[peer].predecessor else { return };
        let gone = self.predecessor(peer).is_none();
        let Peer { phase, generation, since, .. } = self.peers[peer];
        if gone {
            self.peers[peer].predecessor = None;
            if before.overdue && phase == Phase::Idle {
                self.change(peer, phase, generation, Reason::NotAsked);
            }
        } else if phase == Phase::Idle && !before.overdue && self.now >= since + DRAIN_DEADLINE {
            self.peers[peer].predecessor = Some(Predecessor { overdue: true, ..before });
            self.resolve_waiters(peer, Ended::WaitingForPredecessor);
            self.change(peer, phase, generation, Reason::WaitingForPredecessor);
        }
    }

    /// The bay an attempt would get.
    pub(super) fn free_bay(&self, peer: usize) -> Option<usize> {
        let free = |bay| !self.links_of(peer).any(|(_, link)| link.bay == Some(bay));
        if self.setup.overlap { (0..2).find(|bay| free(*bay)) } else { (free(0) && free(1)).then_some(0) }
    }

    pub(super) fn pass_connects(&mut self, peer: usize) {
        let Some(Connect { link, .. }) = self.peers[peer].connect else { return };
        let name = self.peers[peer].name;
        if self.links[link].stage != Stage::Connecting || self.native[name].connect_held.is_some() {
            return;
        }
        let (current, wrong) = (self.is_attempt(peer, self.links[link].generation), self.wrong(link));
        let native = &mut self.native[name];
        native.passed[0] += 1;
        native.counts.connecting -= 1;
        let (generation, node) = (self.links[link].generation, self.nodes[self.links[link].node]);
        let failed = |reason, retry, ended| Some(Failure { reason, retry, ended });
        let broken = || failed(Reason::ConnectFailed(None), Blame::Peer, Ended::Failed(generation));
        let failure = match native.connects.pop_front() {
            Some(ConnectEnd::Broken) => broken(),
            Some(ConnectEnd::Busy) => {
                failed(Reason::ConnectFailed(None), Blame::After(BUSY), Ended::Failed(generation))
            }
            Some(ConnectEnd::Incompatible) => {
                failed(Reason::Incompatible, Blame::After(CAP), Ended::Failed(generation))
            }
            Some(ConnectEnd::Panic) => failed(Reason::ConnectFailed(None), Blame::Peer, Ended::Panicked),
            None if !node.alive => broken(),
            None => None,
        };
        if let Some(failure) = failure {
            native.counts.failed += 1;
            self.links[link].ended = true;
            self.links[link].stage = Stage::Over;
            self.links[link].bay = None;
            if current {
                self.fail(peer, failure);
            }
            self.peers[peer].connect = None;
            return;
        }
        native.counts.ok += 1;
        native.counts.open += 1;
        self.links[link].made = true;
        match (current, wrong) {
            (true, false) => {
                self.links[link].stage = Stage::Live;
                let at = &mut self.peers[peer];
                at.connect = None;
                at.ready_since = Some(self.now);
                at.incarnation = Some(node.incarnation);
                at.has_error = false;
                at.retry_at = None;
                self.resolve_waiters(peer, Ended::Ready(generation));
                self.change(peer, Phase::Ready, generation, Reason::Ready);
            }
            (current, wrong) => {
                self.links[link].stage = Stage::ClosingLate;
                self.links[link].bay = None;
                self.count_held_close(name);
                if current && wrong {
                    let (reason, ended) = (Reason::WrongIncarnation, Ended::WrongIncarnation);
                    self.fail(peer, Failure { reason, retry: Blame::Peer, ended });
                }
            }
        }
    }

    fn expire(&mut self, peer: usize) {
        let Some(connect) = self.peers[peer].connect.as_mut() else { return };
        if !connect.young || connect.deadline > self.now {
            return;
        }
        connect.young = false;
        let generation = self.links[connect.link].generation;
        if self.peers[peer].phase == Phase::Connecting {
            let ended = Ended::TimedOut(generation);
            self.fail(peer, Failure { reason: Reason::TimedOut, retry: Blame::Peer, ended });
        } else if matches!(self.peers[peer].phase, Phase::Idle | Phase::Failed) {
            self.resolve_waiters(peer, Ended::Busy);
        }
    }

    /// The current generation is over; who waited for it is told.
    pub(super) fn fail(&mut self, peer: usize, Failure { reason, retry, ended }: Failure) {
        let was_attempt = self.peers[peer].phase == Phase::Connecting;
        self.shut(peer);
        let now = self.now;
        let at = &mut self.peers[peer];
        let stable = at.ready_since.take().is_some_and(|since| now - since >= MIN_STABLE);
        at.retry_at = Some(match retry {
            Blame::After(wait) => Retry::At(now + wait),
            Blame::Peer => {
                at.failures = if stable { 1 } else { at.failures + 1 };
                let window = BASE.saturating_mul(1 << (at.failures - 1).min(20)).min(CAP);
                Retry::Within { from: if was_attempt { at.began } else { now }, window }
            }
        });
        at.has_error = true;
        let generation = at.generation;
        if was_attempt {
            self.resolve_waiters(peer, ended);
        }
        self.change(peer, Phase::Failed, generation, reason);
    }

    /// Nobody enters the live connection any more, and no attempt has a place.
    pub(super) fn shut(&mut self, peer: usize) {
        let now = self.now;
        for link in self.links.iter_mut().filter(|link| link.peer == peer) {
            match link.stage {
                Stage::Live => link.stage = Stage::Draining { since: now, overdue: false },
                Stage::Ticket | Stage::Connecting => link.bay = None,
                _ => {}
            }
        }
    }

    fn drain_and_close(&mut self, peer: usize) {
        let name = self.peers[peer].name;
        let mut links: Vec<_> = self.links_of(peer).map(|(number, link)| (link.bay, number)).collect();
        links.sort();
        for (_, link) in links {
            let transfers = self.transfers_of(link);
            match self.links[link].stage {
                Stage::Draining { since, overdue } => {
                    if self.links[link].leases == 0 && (self.setup.quiesces || transfers == 0) {
                        let ends_at = (transfers > 0).then_some(since + DRAIN_DEADLINE);
                        self.links[link].stage = Stage::Closing { since: self.now, overdue: false, ends_at };
                        self.count_held_close(name);
                    } else if !overdue && self.now >= since + DRAIN_DEADLINE {
                        self.links[link].stage = Stage::Draining { since, overdue: true };
                        self.end_transfers(link);
                        self.tell_undrained(peer);
                    }
                }
                Stage::Closing { .. } | Stage::ClosingLate if self.native[name].close_held.is_none() => {
                    self.close(link)
                }
                Stage::Closing { since, overdue, ends_at } => {
                    let (ended, late) = (ends_at.is_some_and(|at| at <= self.now), self.now >= since + CLOSE_TIMEOUT);
                    let ends_at = ends_at.filter(|_| !ended);
                    self.links[link].stage = Stage::Closing { since, overdue: late, ends_at };
                    if ended {
                        self.end_transfers(link);
                    }
                    if late && !overdue {
                        self.tell_undrained(peer);
                    }
                }
                Stage::Quiescing { .. } if transfers == 0 => {
                    self.links[link].stage = Stage::Over;
                    self.links[link].bay = None;
                }
                Stage::Quiescing { ends_at: Some(at) } if at <= self.now => {
                    self.links[link].stage = Stage::Quiescing { ends_at: None };
                    self.end_transfers(link);
                    self.tell_undrained(peer);
                }
                _ => {}
            }
        }
    }

    fn count_held_close(&mut self, name: usize) {
        self.native[name].close_held.iter_mut().for_each(|held| *held += 1);
    }

    fn close(&mut self, number: usize) {
        let (peer, late) = (self.links[number].peer, self.links[number].stage == Stage::ClosingLate);
        let native = &mut self.native[self.peers[peer].name];
        native.passed[1] += 1;
        native.counts.open -= 1;
        let end = native.closes.pop_front();
        native.counts.closes += u64::from(end != Some(CloseEnd::Panic));
        native.counts.dropped += u64::from(end == Some(CloseEnd::Panic));
        native.counts.leaked += u64::from(end == Some(CloseEnd::Leaked));
        self.links[number].ended = true;
        if end != Some(CloseEnd::Leaked) {
            self.links[number].dead = true;
            self.complete_transfers(|_, transfer| transfer.link == number);
        }
        if matches!(end, Some(CloseEnd::Leaked | CloseEnd::Panic)) {
            self.leaked += 1;
            self.peers[peer].removal.iter_mut().for_each(|removal| removal.leaked = true);
        }
        self.links[number].stage = match self.links[number].stage {
            Stage::Closing { ends_at, .. } => Stage::Quiescing { ends_at },
            _ => Stage::Over,
        };
        if late {
            self.peers[peer].connect = None;
        }
    }

    fn tell_undrained(&mut self, peer: usize) {
        if !matches!(self.peers[peer].phase, Phase::Idle | Phase::Failed) {
            return;
        }
        if let Some(undrained) = self.undrained(peer) {
            self.resolve_waiters(peer, undrained);
            self.peers[peer].reason = Reason::Undrained;
        }
    }

    /// They end for their callers and keep their pages.
    fn end_transfers(&mut self, link: usize) {
        for transfer in self.transfers.iter_mut().filter(|transfer| transfer.link == link) {
            transfer.outcome.get_or_insert(Outcome::Unknown);
        }
    }

    /// Transfers that are late, and those whose pages did not come back in time.
    fn pass_deadlines(&mut self) {
        let late = self.transfers.iter().enumerate().filter(|(_, transfer)| !transfer.quiescent);
        let late = late.filter_map(|(number, transfer)| Some((transfer.deadline?, number, None)));
        let asked = self.cancels.iter().enumerate().filter(|(_, cancel)| cancel.answer.is_none());
        let asked = asked.map(|(number, cancel)| (cancel.deadline, cancel.transfer, Some(number)));
        let mut due: Vec<_> = late.chain(asked).filter(|((at, _), ..)| *at <= self.now).collect();
        due.sort();
        for (_, transfer, cancel) in due {
            let name = self.peers[self.links[self.transfers[transfer].link].peer].name;
            let ended = match cancel {
                None => {
                    let peer = PeerName::new(&format!("p{name}")).expect("a name");
                    Outcome::Failed(TransferError::Deadline { peer, sent: Sent::Maybe })
                }
                Some(cancel) => {
                    self.cancels[cancel].answer = Some(Cancelled::NotQuiesced);
                    Outcome::Unknown
                }
            };
            self.transfers[transfer].outcome.get_or_insert(ended);
        }
    }

    pub(super) fn answer_cancels(&mut self) {
        for cancel in self.cancels.iter_mut().filter(|cancel| cancel.answer.is_none()) {
            let transfer = &self.transfers[cancel.transfer];
            cancel.answer = transfer.outcome.clone().filter(|_| transfer.quiescent).map(Cancelled::Quiesced);
        }
    }

    fn complete_transfers(&mut self, complete: impl Fn(&Model, &Transfer) -> bool) {
        for number in 0..self.transfers.len() {
            let transfer = &self.transfers[number];
            if transfer.quiescent || !complete(self, transfer) {
                continue;
            }
            let outcome = if self.links[transfer.link].dead { Outcome::Unknown } else { Outcome::Done };
            self.transfers[number].outcome.get_or_insert(outcome);
            self.transfers[number].quiescent = true;
            self.answer_cancels();
        }
    }

    fn finish_removal(&mut self, peer: usize) {
        let Peer { phase, generation, reason: _, name, .. } = self.peers[peer];
        let busy = self.peers[peer].connect.is_some() || self.links_of(peer).any(|(_, link)| link.bay.is_some());
        if phase != Phase::Removing || busy {
            return;
        }
        let shutdown = self.peers[peer].removal.expect("it is being removed").shutdown;
        let reason = if shutdown { Reason::ShutDown } else { Reason::Removed };
        self.change(peer, Phase::Removed, generation, reason);
        if self.names[name] == Entry::Leaving(peer) {
            self.names[name] = Entry::Free;
        }
        let gone = self.gone(peer);
        for remover in self.removers.iter_mut().filter(|remover| remover.peer == peer) {
            remover.outcome.get_or_insert(gone);
        }
    }

    pub(super) fn resolve_waiters(&mut self, peer: usize, ended: Ended) {
        for waiter in self.waiters.iter_mut().filter(|waiter| waiter.peer == peer) {
            waiter.outcome.get_or_insert(ended);
        }
    }

    pub(super) fn change(&mut self, peer: usize, phase: Phase, generation: Gen, reason: Reason) {
        let now = self.now;
        let at = &mut self.peers[peer];
        if (at.phase, at.generation) != (phase, generation) {
            at.since = now;
        }
        (at.phase, at.generation, at.reason) = (phase, generation, reason);
    }
}
