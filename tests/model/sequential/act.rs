//! The operations: what each changes at once, and what it answers.

use super::follow::{Blame, Failure};
use super::*;
use crate::model::op::{At, Op, SendEnd, Which, pick};

impl Model {
    /// Does one operation and everything that follows from it.
    pub(crate) fn apply(&mut self, op: Op) -> Answer {
        let asked: Vec<_> =
            self.native.iter().map(|native| [!native.connects.is_empty(), !native.closes.is_empty()]).collect();
        self.native.iter_mut().for_each(|native| native.passed = [0; 2]);
        let answer = self.act(op).unwrap_or(Answer::Skipped);
        if answer != Answer::Skipped {
            self.settle();
        }
        // Which of two calls meets what was asked of the next one?
        let several = |(native, asked): (&Native, &[bool; 2])| (0..2).any(|at| asked[at] && native.passed[at] > 1);
        self.ambiguous = self.native.iter().zip(&asked).any(several);
        answer
    }

    fn act(&mut self, op: Op) -> Option<Answer> {
        Some(match op {
            Op::Insert { name, address } => self.insert(usize::from(name) % NAMES, address),
            Op::Find { name } => match self.names[usize::from(name) % NAMES] {
                Entry::Live(peer) if !self.shut_down => self.handle(peer),
                _ => Answer::Error("Nobody"),
            },
            Op::CloneHandle { handle } => self.handle(self.handles[pick(handle, self.handles.len())?]),
            Op::DropHandle { handle } => {
                self.handles.remove(pick(handle, self.handles.len())?);
                Answer::Done
            }
            Op::Lease { handle, .. } => self.lease(self.handles[pick(handle, self.handles.len())?]),
            Op::LeaseByName { name } => self.lease_by_name(usize::from(name) % NAMES),
            Op::LeaseById { peer } => {
                let peer = pick(peer, self.peers.len())?;
                match self.lease(peer) {
                    Answer::NotReady(refusal) if refusal.phase == Phase::Removed => {
                        Answer::NotReady(Refusal { or: Some(Reason::Unknown), ..refusal })
                    }
                    answer => answer,
                }
            }
            Op::DropLease { lease, .. } => {
                let link = self.leases.remove(pick(lease, self.leases.len())?);
                self.links[link].leases -= 1;
                Answer::Done
            }
            Op::Notify { lease, end } => self.notify(self.leases[pick(lease, self.leases.len())?], end),
            Op::Report { handle, which } => {
                let peer = self.handles[pick(handle, self.handles.len())?];
                let generation = self.which(peer, which);
                self.reported(vec![(peer, generation)], None)
            }
            Op::ReportLease { lease } => {
                let link = &self.links[self.leases[pick(lease, self.leases.len())?]];
                self.reported(vec![(link.peer, link.generation)], None)
            }
            Op::NativeError { name } => {
                let name = usize::from(name) % NAMES;
                let of_name =
                    |model: &Model, link: &Link| model.peers[link.peer].name == name && link.begun && !link.ended;
                self.break_links(of_name, Some(NATIVE_CODE))
            }
            Op::LateError { link } => {
                let link = &self.links[pick(link, self.links.len())?];
                if !link.begun {
                    return None;
                }
                self.reported(vec![(link.peer, link.generation)], Some(LATE_CODE))
            }
            Op::Ready { handle } => self.ready(self.handles[pick(handle, self.handles.len())?]),
            Op::ForgetWaiter { waiter } => {
                self.waiters.remove(pick(waiter, self.waiters.len())?);
                Answer::Done
            }
            Op::Hold { at, name } => self.hold(at, usize::from(name) % NAMES)?,
            Op::Release { at, name } => self.release(at, usize::from(name) % NAMES)?,
            Op::NextConnect { name, end } => {
                self.native[usize::from(name) % NAMES].connects.push_back(end);
                Answer::Done
            }
            Op::NextClose { name, end } => {
                self.native[usize::from(name) % NAMES].closes.push_back(end);
                Answer::Done
            }
            Op::Kill { node } => self.kill(usize::from(node) % NAMES),
            Op::Restart { node } => {
                let node = usize::from(node) % NAMES;
                let reports = self.kill(node);
                self.revive(node);
                reports
            }
            Op::Revive { node } => {
                self.revive(usize::from(node) % NAMES);
                Answer::Done
            }
            Op::Remove { handle, within } => self.remove(self.handles[pick(handle, self.handles.len())?], within),
            Op::RemoveIf { handle, which, within } => {
                let peer = self.handles[pick(handle, self.handles.len())?];
                let leaving = matches!(self.peers[peer].phase, Phase::Removing | Phase::Removed);
                if leaving || self.which(peer, which) == self.peers[peer].generation {
                    self.remove(peer, within)
                } else {
                    Answer::NotReady(self.explain(peer))
                }
            }
            Op::Update { handle, address } => {
                let peer = self.handles[pick(handle, self.handles.len())?];
                let address = self.address(self.peers[peer].name, address);
                self.update(peer, address)
            }
            Op::Elect { handle } => self.elect_by_hand(self.handles[pick(handle, self.handles.len())?]),
            Op::Publish { ticket } => {
                let ticket = pick(ticket, self.tickets.len())?;
                let native = &self.native[self.peers[self.links[self.tickets[ticket]].peer].name];
                if native.connect_held.is_some() || native.connects.front() == Some(&ConnectEnd::Panic) {
                    return None; // it would hold or end the test
                }
                self.publish(ticket)
            }
            Op::FailTicket { ticket } => {
                let ticket = pick(ticket, self.tickets.len())?;
                self.give_up(ticket, Ended::Failed)
            }
            Op::DropTicket { ticket } => {
                let ticket = pick(ticket, self.tickets.len())?;
                self.give_up(ticket, Ended::Reported)
            }
            Op::Write { lease } => self.write(self.leases[pick(lease, self.leases.len())?], None),
            Op::WriteUntil { lease, within } => {
                self.write(self.leases[pick(lease, self.leases.len())?], Some(step(within)))
            }
            Op::Cancel { transfer, within } => {
                let transfer = pick(transfer, self.transfers.len())?;
                let deadline = self.timer(step(within));
                self.cancels.push(Cancelling { transfer, deadline, answer: None });
                self.answer_cancels(); // its bytes have moved, so the transport does nothing
                Answer::Done
            }
            Op::Grant { handle } => {
                let peer = self.handles[pick(handle, self.handles.len())?];
                match (self.shut_down, self.registered) {
                    (true, _) => Answer::Error("ShutDown"),
                    (false, false) => Answer::Error("NotRegistered"),
                    (false, true) => {
                        self.grants.push(Grant { peer, quiesced: false });
                        Answer::Done
                    }
                }
            }
            Op::Revoke { grant } => {
                let grant = pick(grant, self.grants.len())?;
                self.grants[grant].quiesced = true;
                Answer::Done
            }
            Op::DropGrant { grant } => {
                self.grants.remove(pick(grant, self.grants.len())?);
                Answer::Done
            }
            Op::Borrow { grant, node } => {
                let (grant, node) = (pick(grant, self.grants.len())?, usize::from(node) % NAMES);
                let peer = self.grants[grant].peer;
                match () {
                    () if !self.nodes[node].alive => Answer::Error("NotConnected"),
                    () if self.grants[grant].quiesced && !self.registered => Answer::Error("RegionGone"),
                    () if self.grants[grant].quiesced => Answer::Error("NoSuchGrant"),
                    () if self.peers[peer].name != node => Answer::Error("NotYours"),
                    () => {
                        self.grants[grant].quiesced = true; // its connection has ended
                        Answer::Done
                    }
                }
            }
            Op::Register if self.shut_down => Answer::Error("ShutDown"),
            Op::Register => {
                self.registered = true;
                Answer::Done
            }
            Op::Deregister => match self.region_in_use() {
                _ if !self.registered => Answer::Error("NotRegistered"),
                (0, 0) => {
                    self.registered = false;
                    Answer::Done
                }
                (transfers, grants) => Answer::InUse { transfers, grants },
            },
            Op::Advance { by } => {
                self.now += step(by);
                Answer::Done
            }
            Op::Renew => self.renew(),
            Op::Shutdown { within } => self.shutdown(within),
        })
    }

    fn address(&self, name: usize, number: u8) -> Address {
        let node = if number == 1 { (name + 1) % NAMES } else { name };
        Address { node, incarnation: (number == 2).then(|| self.nodes[node].incarnation) }
    }

    fn insert(&mut self, name: usize, address: u8) -> Answer {
        let address = self.address(name, address);
        let predecessor = match self.names[name] {
            _ if self.shut_down => return Answer::Error("ShutDown"),
            Entry::Live(peer) if self.peers[peer].address == address => return self.handle(peer),
            Entry::Live(_) => return Answer::Error("NameConflict"),
            Entry::Leaving(peer) => Some(Predecessor { peer, overdue: false }),
            Entry::Free => None,
        };
        if self.live() >= MAX_PEERS {
            return Answer::Error("TooManyPeers");
        }
        let generation = self.new_generation();
        self.peers.push(Peer {
            name,
            address,
            phase: Phase::Idle,
            generation,
            since: self.now,
            reason: Reason::NotAsked,
            attempts: 0,
            failures: 0,
            retry_at: None,
            has_error: false,
            incarnation: address.incarnation,
            had: vec![generation],
            wanted: None,
            began: self.now,
            ready_since: None,
            connect: None,
            predecessor,
            removal: None,
        });
        let peer = self.peers.len() - 1;
        self.names[name] = Entry::Live(peer);
        self.handle(peer)
    }

    fn update(&mut self, peer: usize, address: Address) -> Answer {
        let Peer { phase, incarnation: known, .. } = self.peers[peer];
        if matches!(phase, Phase::Removing | Phase::Removed) {
            return Answer::Error(if self.removed(peer) == Ended::ShutDown { "ShutDown" } else { "Removed" });
        }
        if self.peers[peer].address == address {
            return Answer::Updated("Same");
        }
        let same_life = known.is_some() && known == address.incarnation;
        let at = &mut self.peers[peer];
        at.address = address;
        at.incarnation = address.incarnation.or(known);
        let keeps = same_life && self.setup.overlap;
        Answer::Updated(self.move_on(peer, keeps, same_life, Reason::Replaced))
    }

    fn renew(&mut self) -> Answer {
        if self.shut_down {
            return Answer::Error("ShutDown");
        }
        for peer in 0..self.peers.len() {
            if !matches!(self.peers[peer].phase, Phase::Removing | Phase::Removed) {
                self.move_on(peer, false, false, Reason::NewIncarnation);
            }
        }
        Answer::Done
    }

    fn move_on(&mut self, peer: usize, keeps: bool, same_life: bool, why: Reason) -> &'static str {
        let Peer { phase, generation, reason, .. } = self.peers[peer];
        let updated = match phase {
            Phase::Ready | Phase::Connecting if keeps => "Kept",
            Phase::Ready | Phase::Connecting => {
                self.shut(peer);
                let at = &mut self.peers[peer];
                (at.ready_since, at.retry_at, at.has_error) = (None, None, false);
                at.wanted = Some(generation);
                self.change(peer, Phase::Failed, generation, why);
                "Retired"
            }
            _ => {
                self.change(peer, phase, generation, reason);
                "Stored"
            }
        };
        if !same_life {
            (self.peers[peer].failures, self.peers[peer].retry_at) = (0, None);
        }
        updated
    }

    fn elect_by_hand(&mut self, peer: usize) -> Answer {
        let at = &self.peers[peer];
        match at.phase {
            Phase::Ready => return Answer::Error("Ready"),
            Phase::Connecting => return Answer::Error("Connecting"),
            Phase::Removing | Phase::Removed => {
                return Answer::Error(if self.removed(peer) == Ended::ShutDown { "ShutDown" } else { "Removed" });
            }
            _ => {}
        }
        match self.not_now(peer) {
            Some(Ended::BackingOff(_)) => return Answer::Error("BackingOff"),
            Some(Ended::Busy) => return Answer::Error("Busy"),
            Some(_) => return Answer::Error("WaitingForPredecessor"),
            None if self.predecessor(peer).is_some() => return Answer::Error("WaitingForPredecessor"),
            None if at.connect.is_some() => return Answer::Error("Connecting"),
            None => {}
        }
        let Some(bay) = self.free_bay(peer) else { return Answer::Error("Undrained") };
        self.tickets.push(self.links.len());
        self.start(peer, bay, true);
        Answer::Done
    }

    fn publish(&mut self, ticket: usize) -> Answer {
        let link = self.tickets.remove(ticket);
        let Link { peer, generation, .. } = self.links[link];
        let current = self.is_attempt(peer, generation);
        self.begin_connect(link);
        self.pass_connects(peer);
        match self.links[link].stage {
            Stage::Live => Answer::Done,
            Stage::Over => Answer::Error("Failed"),
            _ if current || self.wrong(link) => Answer::Error("WrongIncarnation"),
            _ => Answer::Error("Superseded"),
        }
    }

    /// A ticket that is not published.
    fn give_up(&mut self, ticket: usize, ended: impl Fn(Gen) -> Ended) -> Answer {
        let link = self.tickets.remove(ticket);
        let Link { peer, generation, .. } = self.links[link];
        self.links[link].ended = true;
        self.links[link].stage = Stage::Over;
        self.links[link].bay = None;
        if self.is_attempt(peer, generation) {
            let (reason, ended) = (Reason::ConnectFailed(None), ended(generation));
            self.fail(peer, Failure { reason, retry: Blame::Peer, ended });
        }
        self.peers[peer].connect = None;
        Answer::Done
    }

    fn handle(&mut self, peer: usize) -> Answer {
        self.handles.push(peer);
        Answer::Handle(peer)
    }

    fn lease(&mut self, peer: usize) -> Answer {
        let at = &self.peers[peer];
        if at.phase == Phase::Ready {
            let (link, _) = self.links_of(peer).find(|(_, link)| link.stage == Stage::Live).expect("Ready has one");
            let generation = at.generation;
            self.links[link].leases += 1;
            self.leases.push(link);
            return Answer::Leased(generation);
        }
        let refusal = self.explain(peer);
        let at = &mut self.peers[peer];
        if matches!(at.phase, Phase::Idle | Phase::Failed) {
            at.wanted = Some(at.generation);
        }
        Answer::NotReady(refusal)
    }

    fn lease_by_name(&mut self, name: usize) -> Answer {
        let nobody = |reason| {
            Answer::NotReady(Refusal { phase: Phase::Removed, generation: None, reason, retry_at: None, or: None })
        };
        match self.names[name] {
            _ if self.shut_down => nobody(Reason::ShutDown),
            Entry::Live(peer) => self.lease(peer),
            Entry::Leaving(_) => nobody(Reason::Removed),
            Entry::Free => nobody(Reason::Unknown),
        }
    }

    fn explain(&self, peer: usize) -> Refusal {
        let Peer { phase, generation, reason, .. } = self.peers[peer];
        let retry_at = self.retry_at(peer);
        Refusal { phase, generation: Some(generation), reason, retry_at, or: None }
    }

    fn retry_at(&self, peer: usize) -> Option<Time> {
        self.peers[peer].retry_at.map(|retry| match retry {
            Retry::At(at) => at,
            Retry::Within { .. } => unreachable!("learned before the next operation"),
        })
    }

    fn notify(&mut self, link: usize, end: SendEnd) -> Answer {
        if !self.is_current(link) {
            return Answer::Error("Stale");
        }
        let (code, answer) = match end {
            SendEnd::Accepted => return Answer::Done,
            SendEnd::Local => return Answer::Error("Local"),
            SendEnd::Broken => (Some(NOTIFY_CODE), Answer::Error("PeerBroken")),
            SendEnd::Panic => (None, Answer::Error("Panicked")),
        };
        self.report(self.links[link].peer, self.links[link].generation, code);
        answer
    }

    fn write(&mut self, link: usize, within: Option<Time>) -> Answer {
        match (self.is_current(link), self.registered) {
            (false, _) => Answer::Error("Stale"),
            (true, false) => Answer::Error("NotRegistered"),
            (true, true) => {
                let deadline = within.map(|within| self.timer(within));
                self.transfers.push(Transfer { link, deadline, outcome: None, quiescent: false });
                Answer::Done
            }
        }
    }

    fn timer(&mut self, within: Time) -> Timer {
        self.timers += 1;
        (self.now + within, self.timers)
    }

    fn is_current(&self, link: usize) -> bool {
        let Link { peer, generation, .. } = self.links[link];
        self.peers[peer].phase == Phase::Ready && self.peers[peer].generation == generation
    }

    fn which(&self, peer: usize, which: Which) -> Gen {
        let Peer { generation, had, .. } = &self.peers[peer];
        match which {
            Which::Current => *generation,
            Which::Old(number) => had[pick(number, had.len()).expect("it stood at one at least")],
        }
    }

    fn reported(&mut self, reports: Vec<(usize, Gen)>, code: Option<i64>) -> Answer {
        let report = |(peer, generation)| (generation, self.report(peer, generation, code));
        let mut answers: Vec<_> = reports.into_iter().map(report).collect();
        answers.sort_by_key(|(generation, _)| *generation);
        Answer::Reported(answers)
    }

    fn report(&mut self, peer: usize, generation: Gen, code: Option<i64>) -> Reported {
        let at = &self.peers[peer];
        if at.generation != generation || !matches!(at.phase, Phase::Ready | Phase::Connecting) {
            self.stale_reports[0] += u64::from(at.phase != Phase::Removed);
            self.stale_reports[1] += 1;
            return Reported::Stale;
        }
        let failure = Failure { reason: Reason::Broken(code), retry: Blame::Peer, ended: Ended::Reported(generation) };
        self.fail(peer, failure);
        Reported::Failed
    }

    fn break_links(&mut self, broken: impl Fn(&Model, &Link) -> bool, code: Option<i64>) -> Answer {
        let broken: Vec<_> = (0..self.links.len()).filter(|link| broken(self, &self.links[*link])).collect();
        let reports = broken.iter().map(|link| (self.links[*link].peer, self.links[*link].generation)).collect();
        broken.iter().for_each(|link| self.links[*link].dead = true);
        self.reported(reports, code)
    }

    fn kill(&mut self, node: usize) -> Answer {
        self.nodes[node].alive = false;
        self.break_links(|_, link| link.made && !link.dead && link.node == node, None)
    }

    fn revive(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        node.incarnation += u64::from(!node.alive);
        node.alive = true;
    }

    fn ready(&mut self, peer: usize) -> Answer {
        let outcome = self.join(peer);
        self.waiters.push(Waiter { peer, outcome });
        Answer::Done
    }

    fn join(&mut self, peer: usize) -> Option<Ended> {
        let at = &self.peers[peer];
        match at.phase {
            Phase::Ready => return Some(Ended::Ready(at.generation)),
            Phase::Removing | Phase::Removed => return Some(self.removed(peer)),
            Phase::Idle | Phase::Failed => {
                if let Some(ended) = self.not_now(peer).or_else(|| self.undrained(peer)) {
                    return Some(ended);
                }
                let at = &mut self.peers[peer];
                at.wanted = Some(at.generation);
            }
            // An attempt runs: its outcome is waited for, the one after it is not asked for.
            _ => {}
        }
        None
    }

    /// Why no attempt may start.
    fn not_now(&self, peer: usize) -> Option<Ended> {
        let late = |connect: Connect| !connect.young;
        match self.retry_at(peer).filter(|at| *at > self.now) {
            Some(retry_at) => Some(Ended::BackingOff(retry_at)),
            None if self.predecessor(peer).is_some_and(|before| before.overdue) => Some(Ended::WaitingForPredecessor),
            None => self.peers[peer].connect.is_some_and(late).then_some(Ended::Busy),
        }
    }

    pub(super) fn removed(&self, peer: usize) -> Ended {
        match self.peers[peer].removal {
            Some(Removal { shutdown: true, .. }) => Ended::ShutDown,
            _ => Ended::Removed,
        }
    }

    /// What an overdue connection answers to those who wait for its bay.
    pub(super) fn undrained(&self, peer: usize) -> Option<Ended> {
        if self.free_bay(peer).is_some() {
            return None;
        }
        (0..2).filter_map(|bay| self.links_of(peer).find(|(_, link)| link.bay == Some(bay))).find_map(
            |(number, link)| match link.stage {
                Stage::Draining { overdue: true, .. } | Stage::Closing { overdue: true, .. } => {
                    Some(Ended::Undrained { leases: link.leases, transfers: self.transfers_of(number) })
                }
                Stage::Quiescing { ends_at: None } if self.transfers_of(number) > 0 => {
                    Some(Ended::Undrained { leases: 0, transfers: self.transfers_of(number) })
                }
                _ => None,
            },
        )
    }

    fn hold(&mut self, at: At, name: usize) -> Option<Answer> {
        let native = &mut self.native[name];
        let held = match at {
            At::Connect => &mut native.connect_held,
            At::Close => &mut native.close_held,
            At::Complete => return (!std::mem::replace(&mut native.complete_held, true)).then_some(Answer::Done),
        };
        held.is_none().then(|| {
            *held = Some(0);
            Answer::Done
        })
    }

    fn release(&mut self, at: At, name: usize) -> Option<Answer> {
        let native = &mut self.native[name];
        let held = match at {
            At::Connect => native.connect_held.take().is_some(),
            At::Close => native.close_held.take().is_some(),
            At::Complete => std::mem::replace(&mut native.complete_held, false),
        };
        held.then_some(Answer::Done)
    }

    fn remove(&mut self, peer: usize, within: u8) -> Answer {
        self.begin_removal(peer, false);
        let outcome = (self.peers[peer].phase == Phase::Removed).then(|| self.gone(peer));
        self.removers.push(Remover { peer, deadline: self.now + step(within), outcome });
        Answer::Done
    }

    fn begin_removal(&mut self, peer: usize, shutdown: bool) {
        let Peer { phase, generation, name, .. } = self.peers[peer];
        if matches!(phase, Phase::Removing | Phase::Removed) {
            return;
        }
        self.peers[peer].removal = Some(Removal { since: self.now, shutdown, leaked: false });
        self.shut(peer);
        self.resolve_waiters(peer, self.removed(peer));
        self.change(peer, Phase::Removing, generation, if shutdown { Reason::ShutDown } else { Reason::Removed });
        let in_the_way = !self.setup.overlap || self.peers[peer].connect.is_some();
        self.names[name] = match self.predecessor(peer) {
            Some(before) => Entry::Leaving(before.peer), // handed on
            None if in_the_way => Entry::Leaving(peer),
            None => Entry::Free,
        };
    }

    pub(super) fn gone(&self, peer: usize) -> Gone {
        match self.peers[peer].removal {
            Some(Removal { leaked: true, .. }) => Gone::Leaked,
            _ => Gone::Removed,
        }
    }

    fn shutdown(&mut self, within: u8) -> Answer {
        if !self.shut_down {
            for name in 0..NAMES {
                if let Entry::Live(peer) = self.names[name] {
                    self.begin_removal(peer, true);
                }
            }
            self.shut_down = true;
        }
        self.grants.iter_mut().for_each(|grant| grant.quiesced = true);
        self.shutdowns.push(Shutdown { deadline: self.now + step(within), outcome: None });
        Answer::Done
    }
}
