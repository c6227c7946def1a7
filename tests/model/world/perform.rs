//! Doing one operation to the table.

use super::{Moving, PAGE, Waiting, World, name};
use crate::model::op::{At, CloseEnd, ConnectEnd, NAMES, Op, SendEnd, Which, pick};
use crate::model::sequential::{
    Answer, BUSY, CONNECT_TIMEOUT, Gen, LATE_CODE, NATIVE_CODE, NOTIFY_CODE, Refusal, step,
};
use peerage::transport::memory::{CloseAnswer, Memory, MemoryAddress, MemoryError, Step};
use peerage::{
    Access, ConnectContext, DataPlane, ErrorClass, Generation, GrantError, IncarnationError, InsertError, Lease,
    NotElected, NotReady, NotifyError, Outcome, Peer, PeerName, Post, PostError, PublishError, ReadyError, Region,
    RegisterError, Reported, Slice, Ticket, TransferError, TransferKind, Transport, UpdateError, Updated,
};
use std::time::{Duration, Instant};
use std::{io, thread};

impl World {
    pub(super) fn perform(&mut self, op: Op) -> Answer {
        match op {
            Op::Insert { name: number, address } => {
                let number = usize::from(number) % NAMES;
                match self.table.insert(name(number), self.address(number, address)) {
                    Ok(peer) => self.handle(peer),
                    Err(InsertError::NameConflict { .. }) => Answer::Error("NameConflict"),
                    Err(InsertError::TooManyPeers { .. }) => Answer::Error("TooManyPeers"),
                    Err(InsertError::ShutDown { .. }) => Answer::Error("ShutDown"),
                    Err(_) => Answer::Error("another error"),
                }
            }
            Op::Find { name: number } => match self.table.peer(&name(usize::from(number) % NAMES)) {
                Some(peer) => self.handle(peer),
                None => Answer::Error("Nobody"),
            },
            Op::CloneHandle { handle } => self.handle(self.handle_at(handle).clone()),
            Op::DropHandle { handle } => {
                let at = pick(handle, self.handles.len()).expect("the model has one");
                drop(self.handles.remove(at));
                Answer::Done
            }
            Op::Lease { handle, elsewhere } => {
                let peer = self.handle_at(handle);
                let leased = match elsewhere {
                    true => thread::scope(|scope| scope.spawn(|| peer.lease()).join().expect("it does not panic")),
                    false => peer.lease(),
                };
                self.leased(leased)
            }
            Op::LeaseByName { name: number } => self.leased(self.table.lease(&name(usize::from(number) % NAMES))),
            Op::LeaseById { peer } => {
                let peer = pick(peer, self.ids.len()).expect("the model has one");
                self.leased(self.table.lease_by_id(self.ids[peer]))
            }
            Op::DropLease { lease, elsewhere } => {
                let at = pick(lease, self.leases.len()).expect("the model has one");
                let (lease, call) = self.leases.remove(at);
                drop(call);
                match elsewhere {
                    true => thread::scope(|scope| scope.spawn(|| drop(lease)).join().expect("it does not panic")),
                    false => drop(lease),
                }
                Answer::Done
            }
            Op::Notify { lease, end } => self.notify(lease, end),
            Op::Report { handle, which } => {
                let peer = self.handle_at(handle);
                let generation = self.which(handle, which);
                self.reported([(generation, peer.report(generation, &by_hand()))])
            }
            Op::ReportLease { lease } => {
                let lease = self.lease_at(lease);
                self.reported([(lease.generation(), lease.report(&by_hand()))])
            }
            Op::NativeError { name: number } => {
                let peer = name(usize::from(number) % NAMES);
                self.reported(self.us.break_connection(&peer, broken(NATIVE_CODE)).wait())
            }
            Op::LateError { link } => {
                let link = &self.model.links[pick(link, self.model.links.len()).expect("the model has one")];
                let (peer, generation) = (name(self.model.peers[link.peer].name), self.known(link.generation));
                self.reported(self.us.report_late(&peer, generation, broken(LATE_CODE)).wait())
            }
            Op::Ready { handle } => {
                self.waiters.push(Waiting::new(self.handle_at(handle).ready()));
                Answer::Done
            }
            Op::ForgetWaiter { waiter } => {
                self.waiters.remove(pick(waiter, self.waiters.len()).expect("the model has one"));
                Answer::Done
            }
            Op::Hold { at, name: number } => {
                let (at, number) = (step_of(at), usize::from(number) % NAMES);
                self.holds.insert((at, number), self.us.steps().hold(at, &name(number)));
                Answer::Done
            }
            Op::Release { at, name: number } => {
                drop(self.holds.remove(&(step_of(at), usize::from(number) % NAMES)));
                Answer::Done
            }
            Op::NextConnect { name: number, end } => {
                let (steps, peer) = (self.us.steps(), name(usize::from(number) % NAMES));
                let fail = |class| steps.fail_next(Step::Connect, &peer, 1, MemoryError::new(class, "asked for"));
                match end {
                    ConnectEnd::Broken => fail(ErrorClass::PeerBroken),
                    ConnectEnd::Busy => fail(ErrorClass::Busy { retry_after: BUSY }),
                    ConnectEnd::Incompatible => fail(ErrorClass::Incompatible),
                    ConnectEnd::Panic => steps.panic_next(Step::Connect, &peer),
                }
                Answer::Done
            }
            Op::NextClose { name: number, end } => {
                let (steps, peer) = (self.us.steps(), name(usize::from(number) % NAMES));
                match end {
                    CloseEnd::Leaked => steps.close_next(&peer, 1, CloseAnswer::Leaked("asked for")),
                    CloseEnd::AlreadyGone => steps.close_next(&peer, 1, CloseAnswer::AlreadyGone),
                    CloseEnd::Panic => steps.panic_next(Step::Close, &peer),
                }
                Answer::Done
            }
            Op::Kill { node } => self.reported(self.fabric.kill(&name(usize::from(node) % NAMES)).wait()),
            Op::Restart { node } => self.reported(self.fabric.restart(&name(usize::from(node) % NAMES)).wait()),
            Op::Revive { node } => {
                self.fabric.revive(&name(usize::from(node) % NAMES));
                Answer::Done
            }
            Op::Remove { handle, within } => {
                let removal = self.handle_at(handle).remove(self.clock.now() + step(within));
                self.removers.push(Waiting::new(removal));
                Answer::Done
            }
            Op::RemoveIf { handle, which, within } => {
                let generation = self.which(handle, which);
                match self.handle_at(handle).remove_if(generation, self.clock.now() + step(within)) {
                    Ok(removal) => {
                        self.removers.push(Waiting::new(removal));
                        Answer::Done
                    }
                    Err(refused) => self.refused(refused),
                }
            }
            Op::Update { handle, address } => self.update(handle, address),
            Op::Elect { handle } => self.elect(handle),
            Op::Publish { ticket } => self.publish(ticket),
            Op::FailTicket { ticket } => {
                self.ticket(ticket).fail(MemoryError::peer_broken("given up"));
                Answer::Done
            }
            Op::DropTicket { ticket } => {
                drop(self.ticket(ticket));
                Answer::Done
            }
            Op::Write { lease } => self.write(lease, None),
            Op::WriteUntil { lease, within } => self.write(lease, Some(self.clock.now() + step(within))),
            Op::Cancel { transfer, within } => {
                let moving = &self.transfers[pick(transfer, self.transfers.len()).expect("the model has one")];
                self.cancels.push(Waiting::new(moving.transfer.cancel(self.clock.now() + step(within))));
                Answer::Done
            }
            Op::Grant { handle } => match self.table.grant(self.handle_at(handle), &self.page(), Access::Write) {
                Ok(grant) => {
                    self.grants.push(grant);
                    Answer::Done
                }
                Err(GrantError::ShutDown { .. }) => Answer::Error("ShutDown"),
                Err(GrantError::NotRegistered { .. }) => Answer::Error("NotRegistered"),
                Err(_) => Answer::Error("another error"),
            },
            Op::Revoke { grant } => {
                drop(self.grants[pick(grant, self.grants.len()).expect("the model has one")].revoke());
                Answer::Done
            }
            Op::DropGrant { grant } => {
                drop(self.grants.remove(pick(grant, self.grants.len()).expect("the model has one")));
                Answer::Done
            }
            Op::Borrow { grant, node } => self.borrow(grant, node),
            Op::Register => match self.table.register(&self.region) {
                Ok(()) => Answer::Done,
                Err(RegisterError::ShutDown { .. }) => Answer::Error("ShutDown"),
                Err(_) => Answer::Error("another error"),
            },
            Op::Deregister => match self.table.deregister(&self.region) {
                Ok(()) => Answer::Done,
                Err(RegisterError::InUse { transfers, grants, .. }) => Answer::InUse { transfers, grants },
                Err(RegisterError::NotRegistered { .. }) => Answer::Error("NotRegistered"),
                Err(_) => Answer::Error("another error"),
            },
            Op::Renew => match self.table.new_incarnation() {
                Ok(_) => Answer::Done,
                Err(IncarnationError::ShutDown) => Answer::Error("ShutDown"),
                Err(error) => panic!("{error}"),
            },
            Op::Advance { by } => {
                self.clock.advance(step(by));
                Answer::Done
            }
            Op::Shutdown { within } => {
                self.shutdowns.push(Waiting::new(self.table.shutdown(self.clock.now() + step(within))));
                Answer::Done
            }
        }
    }

    fn handle(&mut self, peer: Peer<Memory>) -> Answer {
        let id = peer.id();
        self.handles.push(peer);
        let known = self.ids.iter().position(|known| *known == id);
        Answer::Handle(known.unwrap_or_else(|| {
            self.ids.push(id);
            self.ids.len() - 1
        }))
    }

    fn leased(&mut self, leased: Result<Lease<Memory>, NotReady>) -> Answer {
        match leased {
            Ok(lease) => {
                let generation = self.symbol(lease.generation());
                let call = lease.native_call();
                self.leases.push((lease, call));
                Answer::Leased(generation)
            }
            Err(refused) => self.refused(refused),
        }
    }

    fn refused(&self, refused: NotReady) -> Answer {
        let generation = (refused.generation != Generation(0)).then(|| self.symbol(refused.generation));
        let retry_at = refused.retry_at.map(|at| at - self.start);
        Answer::NotReady(Refusal { phase: refused.phase, generation, reason: refused.reason, retry_at, or: None })
    }

    fn reported(&self, reports: impl IntoIterator<Item = (Generation, Reported)>) -> Answer {
        let mut reports: Vec<_> =
            reports.into_iter().map(|(generation, reported)| (self.symbol(generation), reported)).collect();
        reports.sort_by_key(|(generation, _)| *generation);
        Answer::Reported(reports)
    }

    fn notify(&self, lease: u8, end: SendEnd) -> Answer {
        let lease = self.lease_at(lease);
        let (steps, peer) = (self.us.steps(), lease.name());
        if lease.is_current() {
            match end {
                SendEnd::Accepted => {}
                SendEnd::Broken => steps.fail_next(Step::Notify, peer.as_str(), 1, broken(NOTIFY_CODE)),
                SendEnd::Local => {
                    let error = MemoryError::new(ErrorClass::Local, "asked for");
                    steps.fail_next(Step::Notify, peer.as_str(), 1, error);
                }
                SendEnd::Panic => steps.panic_next(Step::Notify, peer.as_str()),
            }
        }
        match lease.notify(b"hello") {
            Ok(()) => Answer::Done,
            Err(NotifyError::StaleGeneration { .. }) => Answer::Error("Stale"),
            Err(NotifyError::Local { .. }) => Answer::Error("Local"),
            Err(NotifyError::PeerBroken { .. }) => Answer::Error("PeerBroken"),
            Err(NotifyError::Panicked { .. }) => Answer::Error("Panicked"),
            Err(_) => Answer::Error("another error"),
        }
    }

    /// What an operation means by an address's number.
    fn address(&self, number: usize, address: u8) -> MemoryAddress {
        let node = if address == 1 { (number + 1) % NAMES } else { number };
        let to = MemoryAddress::new(&name(node));
        if address == 2 { to.with_incarnation(self.nodes[node].incarnation()) } else { to }
    }

    fn update(&self, handle: u8, address: u8) -> Answer {
        let peer = self.handle_at(handle);
        let of = self.model.handles[pick(handle, self.handles.len()).expect("the model has one")];
        match peer.update(self.address(self.model.peers[of].name, address)) {
            Ok(Updated::Same) => Answer::Updated("Same"),
            Ok(Updated::Stored) => Answer::Updated("Stored"),
            Ok(Updated::Kept(_)) => Answer::Updated("Kept"),
            Ok(Updated::Retired(_)) => Answer::Updated("Retired"),
            Err(UpdateError::Removed { .. }) => Answer::Error("Removed"),
            Err(UpdateError::ShutDown { .. }) => Answer::Error("ShutDown"),
            other => panic!("{other:?}"),
        }
    }

    fn elect(&mut self, handle: u8) -> Answer {
        match self.handle_at(handle).try_elect() {
            Ok(ticket) => {
                self.tickets.push(ticket);
                Answer::Done
            }
            Err(NotElected::Ready { .. }) => Answer::Error("Ready"),
            Err(NotElected::Connecting { .. }) => Answer::Error("Connecting"),
            Err(NotElected::NotNow(error)) => Answer::Error(match error {
                ReadyError::BackingOff { .. } => "BackingOff",
                ReadyError::Busy { .. } => "Busy",
                ReadyError::Undrained { .. } => "Undrained",
                ReadyError::WaitingForPredecessor { .. } => "WaitingForPredecessor",
                ReadyError::Removed { .. } => "Removed",
                ReadyError::ShutDown { .. } => "ShutDown",
                _ => "another error",
            }),
            Err(_) => Answer::Error("another error"),
        }
    }

    fn publish(&mut self, ticket: u8) -> Answer {
        let ticket = self.ticket(ticket);
        match self.us.connect(ticket.context(), ticket.address()) {
            Ok(connected) => match ticket.publish(connected) {
                Ok(_) => Answer::Done,
                Err(PublishError::Superseded { .. }) => Answer::Error("Superseded"),
                Err(PublishError::WrongIncarnation { .. }) => Answer::Error("WrongIncarnation"),
                Err(_) => Answer::Error("another error"),
            },
            Err(error) => {
                ticket.fail(error);
                Answer::Error("Failed")
            }
        }
    }

    fn ticket(&mut self, number: u8) -> Ticket<Memory> {
        let at = pick(number, self.tickets.len()).expect("the model has one");
        self.tickets.remove(at)
    }

    fn write(&mut self, lease: u8, deadline: Option<Instant>) -> Answer {
        let at = pick(lease, self.leases.len()).expect("the model has one");
        let node = self.model.links[self.model.leases[at]].node;
        let theirs = Region::zeroed(PAGE.len()).slice(0..PAGE.len()).expect("all of it");
        let us = PeerName::new("us").expect("a name");
        let lent = self.nodes[node].grants().lend(&us, &theirs, Access::Write);
        let lease = &self.leases[at].0;
        let posted = match deadline {
            None => lease.write(&self.page(), lent.remote()),
            Some(deadline) => lease.write_until(&self.page(), lent.remote(), deadline),
        };
        match posted {
            Ok(transfer) => {
                self.transfers.push(Moving { transfer, theirs, _lent: lent });
                Answer::Done
            }
            Err(PostError::StaleGeneration { .. }) => Answer::Error("Stale"),
            Err(PostError::NotRegistered { .. }) => Answer::Error("NotRegistered"),
            Err(_) => Answer::Error("another error"),
        }
    }

    /// A peer writes into a page of ours over a connection of its own, and hangs up.
    fn borrow(&self, grant: u8, node: u8) -> Answer {
        let remote = self.grants[pick(grant, self.grants.len()).expect("the model has one")].remote();
        let node = &self.nodes[usize::from(node) % NAMES];
        let us = PeerName::new("us").expect("a name");
        let cx = ConnectContext::standalone(us, Generation(1), self.clock.now() + CONNECT_TIMEOUT);
        let Ok(connected) = node.connect(&cx, &MemoryAddress::new("us")) else {
            return Answer::Error("NotConnected");
        };
        let theirs = Region::zeroed(PAGE.len());
        node.register(&theirs).expect("Memory takes every region");
        let slice = theirs.slice(0..PAGE.len()).expect("all of it");
        slice.write(0, &PAGE).expect("it fits");
        let (post, transfer) = Post::standalone(TransferKind::Write, slice, remote);
        node.post(&connected.connection, post).expect("an open connection");
        match transfer.wait(far()) {
            Some(Outcome::Done) => Answer::Done,
            Some(Outcome::Failed(TransferError::Refused(peerage::Refusal::NoSuchGrant))) => {
                Answer::Error("NoSuchGrant")
            }
            Some(Outcome::Failed(TransferError::Refused(peerage::Refusal::RegionGone))) => Answer::Error("RegionGone"),
            Some(Outcome::Failed(TransferError::Refused(peerage::Refusal::NotYours))) => Answer::Error("NotYours"),
            _ => Answer::Error("another end"),
        }
    }

    fn page(&self) -> Slice {
        self.region.slice(0..PAGE.len()).expect("all of it")
    }

    fn handle_at(&self, number: u8) -> &Peer<Memory> {
        &self.handles[pick(number, self.handles.len()).expect("the model has one")]
    }

    fn lease_at(&self, number: u8) -> &Lease<Memory> {
        &self.leases[pick(number, self.leases.len()).expect("the model has one")].0
    }

    fn which(&self, handle: u8, which: Which) -> Generation {
        let peer = &self.model.peers[self.model.handles[pick(handle, self.handles.len()).expect("one")]];
        match which {
            Which::Current => self.known(peer.generation),
            Which::Old(number) => self.known(peer.had[pick(number, peer.had.len()).expect("it stood at one")]),
        }
    }

    fn known(&self, generation: Gen) -> Generation {
        self.chosen[generation.0].expect("learned when it came")
    }

    pub(super) fn symbol(&self, generation: Generation) -> Gen {
        Gen(self.chosen.iter().position(|chosen| *chosen == Some(generation)).unwrap_or(usize::MAX))
    }
}

fn step_of(at: At) -> Step {
    match at {
        At::Connect => Step::Connect,
        At::Close => Step::Close,
        At::Complete => Step::Complete,
    }
}

fn by_hand() -> io::Error {
    io::Error::other("reported by hand")
}

fn broken(code: i64) -> MemoryError {
    MemoryError::peer_broken("asked for").with_native_code(code)
}

fn far() -> Instant {
    Instant::now() + Duration::from_secs(60)
}
