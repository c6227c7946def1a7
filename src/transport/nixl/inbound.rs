//! One connection that somebody opened to us, as the thread of the agent that serves has it: messages in order into the inbox,
//! pages lent.
//!
//! Whatever comes in costs its sender the connection if it may not be sent, and nobody else anything. A sender keeps to a
//! [window](super::link::WINDOW), so what waits here for room in the inbox has a bound.
//!
//! # When a page that was lent is ours again
//! NIXL's agents write to each other's memory by themselves, and nothing that the owner can call stops one. So the page is held
//! until its borrower has said that it is over: of the page, which it keeps while it [goes on](super::standing), with a goodbye,
//! or by opening a newer connection, which it does not before all transfers of the older one have ended. A borrower that died
//! says nothing: its pages stay in quarantine, unless [`settle`](super::NixlBuilder::settle) says after how long they are taken
//! back.

use super::callers::Callers;
use super::capi::Status;
use super::counts::Counts;
use super::link::{TAKEN_EVERY, TRANSFERS, WINDOW};
use super::mailbox::{Mailbox, OfTheirs};
use super::message::{Ask, Farewell, Go, Head, Kind, decode_transfer, encode_transfers};
use super::native::Registration;
use super::registry::InboundKey;
use super::shared::Shared;
use super::standing;
use crate::grant::{Access, HeldLoan, Loan, Refusal};
use crate::inbox::{Notification, Source};
use crate::transfer::{TransferId, TransferKind};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// The most pages that one connection may access at once: twice what our own side does, as the end of an access is told late.
const LOANS: usize = 2 * (TRANSFERS + standing::MOST);
/// How often a silent dialer is told that we are here: whether that can be sent says whether it is. Twice as rarely each time.
const STILL: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// It may not be sent: the connection is of no more use.
pub(super) enum Unusable {
    Misbehaved,
    /// It can't be answered.
    Lost,
}

impl From<Status> for Unusable {
    fn from(_: Status) -> Self {
        Unusable::Lost
    }
}

pub(super) struct Inbound {
    /// The name of the agent that called.
    pub(super) agent: Arc<str>,
    pub(super) key: InboundKey,
    /// What a grant binds to: unique in this process.
    id: u64,
    /// It has ended; what is left are pages whose borrower has not said that it is over.
    pub(super) is_over: bool,
    /// We have said goodbye.
    pub(super) is_leaving: bool,
    /// When it ends if nothing happens; once it is over, when its pages are taken back.
    pub(super) until: Option<Instant>,
    /// It has said goodbye, and this was its last message.
    goodbye: Option<u64>,
    /// Which of our registrations it knows.
    keys: u64,
    source: Arc<Source>,
    room: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// The number of the next message for `ready`.
    next: u64,
    /// Those that came before their turn. `None`: there is no such message.
    early: BTreeMap<u64, Option<Vec<u8>>>,
    /// Those that wait for room in the inbox.
    ready: VecDeque<Notification>,
    /// Of both.
    bytes: usize,
    /// Taken since we said so: messages, bytes.
    untold: (usize, usize),
    loans: HashMap<TransferId, Lent>,
    /// When it is told that we are here, and how long after that again.
    still: (Instant, Duration),
}

/// In the order in which it ends: the registration is let go before the page counts as quiesced.
struct Lent {
    _registration: Arc<Registration>,
    held: HeldLoan,
    loan: Loan,
    /// Its borrower was told that its owner wants it back.
    is_recalled: bool,
}

impl Drop for Inbound {
    /// Its thread ends before those that borrow have. They may write on, whatever is taken down here: a kernel copies from
    /// process to process. So their pages stay in quarantine.
    fn drop(&mut self) {
        self.loans.drain().for_each(|(_, lent)| std::mem::forget(lent.held));
    }
}

impl Inbound {
    pub(super) fn new(agent: Arc<str>, key: InboundKey, keys: u64, shared: &Shared) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Inbound {
            agent,
            key,
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            is_over: false,
            is_leaving: false,
            until: None,
            goodbye: None,
            keys,
            source: Arc::new(shared.inbox.source(shared.settings.inbox_capacity)),
            room: None,
            next: 1,
            early: BTreeMap::new(),
            ready: VecDeque::new(),
            bytes: 0,
            untold: (0, 0),
            loans: HashMap::new(),
            still: (Instant::now() + STILL.0, STILL.0),
        }
    }

    fn say(&self, kind: Kind, number: u64, body: &[u8], callers: &Callers) -> Result<(), Unusable> {
        Ok(callers.say(&self.agent, &Head::new(kind, self.key.generation, number).with(body))?)
    }

    /// A message after the hello.
    pub(super) fn take(&mut self, head: Head, body: &[u8], callers: &Callers, shared: &Shared) -> Result<(), Unusable> {
        if !self.is_over {
            self.still = (Instant::now() + STILL.0, STILL.0);
        }
        match head.kind {
            Kind::Over => {
                let mut rest = body;
                while !rest.is_empty() {
                    self.loans.remove(&decode_transfer(&mut rest).ok_or(Unusable::Misbehaved)?);
                }
                Ok(())
            }
            Kind::Goodbye => {
                let last: [u8; 8] = body.try_into().map_err(|_| Unusable::Misbehaved)?;
                // It says so when nothing of it runs.
                self.loans.clear();
                self.goodbye = Some(u64::from_le_bytes(last));
                self.move_on(callers, shared)
            }
            _ if self.is_over || self.is_leaving => Ok(()),
            Kind::Notify => self.notified(head.number, Some(body), callers, shared),
            Kind::Skip => self.notified(head.number, None, callers, shared),
            Kind::Ping => self.say(Kind::Pong, head.number, &[], callers),
            // It is not waited for any more.
            Kind::Ask if self.goodbye.is_some() => Ok(()),
            Kind::Ask => self.lend(body, callers, shared),
            _ => Err(Unusable::Misbehaved),
        }
    }

    /// Puts a message in its place: NIXL does not promise an order.
    fn notified(
        &mut self,
        sequence: u64,
        message: Option<&[u8]>,
        callers: &Callers,
        shared: &Shared,
    ) -> Result<(), Unusable> {
        let (len, longest) = (message.map_or(0, <[u8]>::len), shared.settings.max_notification);
        let waiting = self.ready.len() + self.early.len();
        if len > longest || waiting > WINDOW.0 || self.bytes + len > WINDOW.1 + TAKEN_EVERY.1 + longest {
            return Err(Unusable::Misbehaved);
        }
        if sequence < self.next || self.early.contains_key(&sequence) {
            Counts::add(&shared.counts.duplicates);
            return Ok(());
        }
        self.bytes += len;
        self.early.insert(sequence, message.map(<[u8]>::to_vec));
        while let Some(message) = self.early.remove(&self.next) {
            if let Some(message) = message {
                let InboundKey { name, incarnation, generation } = self.key.clone();
                let next = Notification::new(name, Some(incarnation), Some(generation), message);
                self.ready.push_back(next.with_sequence(self.next));
            }
            self.next += 1;
        }
        self.move_on(callers, shared)
    }

    /// Moves what is ready into the inbox, as far as there is room, and tells the sender.
    pub(super) fn move_on(&mut self, callers: &Callers, shared: &Shared) -> Result<(), Unusable> {
        let is_old = !self.ready.is_empty() && shared.registry.is_outdated(&self.key);
        let mut last = None;
        while let Some(next) = self.ready.pop_front() {
            let (len, sequence) = (next.bytes.len(), next.sequence);
            if is_old {
                Counts::add(&shared.counts.outdated);
            } else if let Err(back) = self.source.try_push(next) {
                self.ready.push_front(back);
                if self.waits_for_room(len, &shared.mailbox) {
                    break;
                }
                continue;
            }
            self.bytes -= len;
            self.untold = (self.untold.0 + 1, self.untold.1 + len);
            last = sequence;
        }
        let (messages, bytes) = self.untold;
        if let Some(last) = last
            && (messages >= TAKEN_EVERY.0 || bytes >= TAKEN_EVERY.1)
        {
            self.untold = (0, 0);
            self.say(Kind::Taken, last, &[], callers)?;
        }
        if self.goodbye.is_some_and(|last| last < self.next) && self.ready.is_empty() {
            self.goodbye = None;
            let was_open = !std::mem::replace(&mut self.is_over, true);
            if was_open {
                Counts::add(&shared.counts.goodbyes);
            }
            self.say(Kind::Bye, 0, &[], callers)?;
        }
        Ok(())
    }

    /// Whether it waits for room in the inbox.
    pub(super) fn is_held_up(&self) -> bool {
        !self.is_over && !self.ready.is_empty()
    }

    /// Tells a silent dialer that we are here, if that is due: an error says that it is not.
    pub(super) fn look_at_the_clock(&mut self, now: Instant, callers: &Callers) -> Result<(), Unusable> {
        let (at, pause) = self.still;
        if self.is_over || now < at {
            return Ok(());
        }
        let pause = (2 * pause).min(STILL.1);
        self.still = (now + pause, pause);
        self.say(Kind::Still, 0, &[], callers)
    }

    /// Answers each of these asks.
    fn lend(&mut self, mut asks: &[u8], callers: &Callers, shared: &Shared) -> Result<(), Unusable> {
        let mut goes = Vec::new();
        while !asks.is_empty() {
            let ask = Ask::decode(&mut asks).ok_or(Unusable::Misbehaved)?;
            let lent = self.present(&ask, shared)?.and_then(|loan| self.lend_one(ask.transfer, loan, shared));
            match lent {
                Ok(go) => go.encode(&mut goes),
                Err(refusal) => self.say(Kind::Refused, ask.transfer.0, &[refusal as u8], callers)?,
            }
        }
        if goes.is_empty() { Ok(()) } else { self.say(Kind::Go, 0, &goes, callers) }
    }

    /// The page that is asked for, or why not. `Unusable`: it is more than may be lent at once.
    fn present(&self, ask: &Ask, shared: &Shared) -> Result<Result<Loan, Refusal>, Unusable> {
        if self.loans.len() >= LOANS {
            return Err(Unusable::Misbehaved);
        }
        if self.loans.contains_key(&ask.transfer) {
            return Ok(Err(Refusal::DuplicateTransfer));
        }
        let access = if ask.kind == TransferKind::Write { Access::Write } else { Access::Read };
        Ok(shared.grants.present(&self.key.name, self.id, ask.page, access))
    }

    /// Where the page is, and the keys to it.
    fn lend_one(&mut self, transfer: TransferId, loan: Loan, shared: &Shared) -> Result<Go, Refusal> {
        // Before the peer may begin: it reads and writes by itself.
        let held = loan.hold()?;
        let part = loan.part();
        let registration = shared.offered(part.region()).map_err(|_| Refusal::RegionGone)?;
        let range = part.offset()..part.offset() + part.len();
        let memory = registration.memory().part(range).ok_or(Refusal::OutOfBounds)?;
        let keys = shared.keys.load(Ordering::Acquire);
        let metadata = if keys > self.keys {
            let published = shared.publish().map_err(|_| Refusal::RegionGone)?;
            self.keys = published.keys();
            published.metadata().to_vec()
        } else {
            Vec::new()
        };
        let (address, device) = (memory.address as u64, memory.device);
        let (from, to) = (loan.page().offset() as u64, (loan.page().offset() + loan.page().len()) as u64);
        self.loans.insert(transfer, Lent { _registration: registration, held, loan, is_recalled: false });
        Ok(Go { transfer, keys, kind: memory.kind.0, device, address, from, to, metadata })
    }

    /// Tells the borrower which of its pages their owner wants back.
    pub(super) fn recall(&mut self, callers: &Callers) -> Result<(), Unusable> {
        if self.is_over {
            return Ok(());
        }
        let mut wanted = Vec::new();
        for (transfer, lent) in self.loans.iter_mut().filter(|(_, lent)| !lent.is_recalled && lent.loan.is_revoked()) {
            lent.is_recalled = true;
            wanted.push(*transfer);
        }
        if wanted.is_empty() { Ok(()) } else { self.say(Kind::Recall, 0, &encode_transfers(&wanted), callers) }
    }

    /// Says goodbye; it ends when its dialer has left, or when the time is over.
    pub(super) fn leave(&mut self, farewell: Farewell, until: Instant, callers: &Callers) -> Result<(), Unusable> {
        self.is_leaving = true;
        self.until = Some(until);
        self.say(Kind::Goodbye, farewell as u64, &[], callers)
    }

    /// It has ended. Whether its borrower has said so decides about its pages.
    pub(super) fn ends(&mut self, all_is_over: bool, settle: Option<Duration>) {
        self.is_over = true;
        self.ready.clear();
        self.early.clear();
        if all_is_over {
            self.loans.clear();
        }
        self.until = settle.and_then(|settle| Instant::now().checked_add(settle));
    }

    /// Their borrower can't write any more, says who made the transport.
    pub(super) fn has_settled(&mut self) {
        self.loans.clear();
    }

    /// How many pages are lent over it.
    pub(super) fn lent(&self) -> usize {
        self.loans.len()
    }

    /// Nothing can land over it any more.
    pub(super) fn closed(self, shared: &Shared) {
        shared.registry.leave(&self.key);
        shared.grants.inbound_closed(self.id);
    }

    /// `false`: there is room again.
    fn waits_for_room(&mut self, len: usize, mailbox: &Arc<Mailbox<OfTheirs>>) -> bool {
        struct Looks(Arc<Mailbox<OfTheirs>>);
        impl Wake for Looks {
            fn wake(self: Arc<Self>) {
                self.0.put(OfTheirs::Look);
            }
        }
        let waker = Waker::from(Arc::new(Looks(mailbox.clone())));
        let source = self.source.clone();
        let room = self.room.get_or_insert_with(|| Box::pin(async move { source.room(len).await }));
        let waits = room.as_mut().poll(&mut Context::from_waker(&waker)) == Poll::Pending;
        if !waits {
            self.room = None;
        }
        waits
    }
}
