//! One connection that somebody opened to us, as the thread serves it: messages in order into the inbox, pages lent.
//!
//! Whatever comes in costs its sender the connection if it may not be sent, and nobody else anything. A sender keeps to a
//! [window](super::link::WINDOW), so what waits here for room in the inbox has a bound.

use super::endpoint::{Endpoint, Page};
use super::link::{TAKEN_EVERY, TRANSFERS, WINDOW};
use super::mailbox::{Event, Mailbox};
use super::message::{Ask, Go, Head, Kind, decode_transfer, encode_transfers};
use super::native::{Mapped, Status};
use super::outgoing::{Outgoing, Sent};
use super::pieces::{Misplaced, Pieces};
use super::{Counts, Shared};
use crate::grant::{Access, HeldLoan, Loan, Refusal};
use crate::inbox::{Notification, Source};
use crate::name::{Incarnation, PeerName};
use crate::state::Generation;
use crate::sync::lock;
use crate::transfer::{TransferId, TransferKind};
use crate::transport::frame::Farewell;
use crate::transport::tcp::InboundKey;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// The most pages that one connection may access at once: twice what our own side does, as the end of an access is told late.
const LOANS: usize = 2 * TRANSFERS;

/// It may not be sent, or can't be answered: the connection is of no more use.
pub(super) struct Unusable;

impl From<Status> for Unusable {
    fn from(_: Status) -> Self {
        Unusable
    }
}

impl From<Misplaced> for Unusable {
    fn from(_: Misplaced) -> Self {
        Unusable
    }
}

pub(super) struct Inbound {
    pub(super) endpoint: Endpoint,
    pub(super) outgoing: Outgoing,
    pub(super) serving: Serving,
}

/// What outlives the endpoint until nothing of it runs any more.
pub(super) struct Serving {
    /// What a grant binds to: unique in this transport.
    id: u64,
    /// `None`: a stranger.
    pub(super) key: Option<InboundKey>,
    /// What its hello is answered with, and when.
    pub(super) answer: Option<(Instant, Vec<u8>)>,
    /// When it is closed if nothing happens.
    pub(super) until: Option<Instant>,
    /// One of us said goodbye, or it was lost or has misbehaved, and that is counted.
    pub(super) is_over: bool,
    /// We have said goodbye.
    pub(super) is_leaving: bool,
    /// It has said goodbye, and this was its last message.
    goodbye: Option<u64>,
    source: Arc<Source>,
    room: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// The number of the next message for `ready`.
    next: u64,
    /// Those that came before their turn.
    early: BTreeMap<u64, Vec<u8>>,
    /// Those that wait for room in the inbox.
    ready: VecDeque<Notification>,
    /// Of both, and of long ones on their way.
    bytes: usize,
    /// Taken since we said so: messages, bytes.
    untold: (usize, usize),
    /// Pages that the peer reads or writes.
    loans: HashMap<TransferId, Lent>,
}

enum Lent {
    OneSided {
        _loan: Loan,
        _held: HeldLoan,
        _mapped: Arc<Mapped>,
    },
    /// By messages of the peer.
    Written(Loan, Pieces),
    /// By messages to the peer, until they have ended here.
    Read {
        _loan: Loan,
    },
}

impl Inbound {
    pub(super) fn new(endpoint: Endpoint, shared: &Shared) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let serving = Serving {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            key: None,
            answer: None,
            until: Some(Instant::now() + shared.settings.handshake_timeout + shared.settings.accept_delay),
            is_over: false,
            is_leaving: false,
            goodbye: None,
            source: Arc::new(shared.inbox.source(shared.settings.inbox_capacity)),
            room: None,
            next: 1,
            early: BTreeMap::new(),
            ready: VecDeque::new(),
            bytes: 0,
            untold: (0, 0),
            loans: HashMap::new(),
        };
        Inbound { endpoint, outgoing: Outgoing::default(), serving }
    }

    /// Answers its hello, if that is due.
    pub(super) fn answer(&mut self, now: Instant) -> Result<(), Unusable> {
        match self.serving.answer.take_if(|(at, _)| *at <= now) {
            Some((_, answer)) if !self.serving.is_leaving => self.say(Kind::Answer, 0, &answer),
            _ => Ok(()),
        }
    }

    fn say(&self, kind: Kind, number: u64, body: &[u8]) -> Result<(), Unusable> {
        Ok(self.endpoint.send(Head::new(kind, self.generation(), number), body)?)
    }

    fn generation(&self) -> Generation {
        self.serving.key.as_ref().map_or(Generation(0), |key| key.generation)
    }

    /// Whether a message belongs to this connection.
    pub(super) fn knows(&self, head: Head) -> bool {
        self.serving.key.as_ref().is_some_and(|key| key.generation == head.generation)
    }

    /// A message after the handshake, whole.
    pub(super) fn take(&mut self, head: Head, body: Vec<u8>, shared: &Shared) -> Result<(), Unusable> {
        match head.kind {
            Kind::Notify => {
                self.make_room_for(body.len(), shared)?;
                self.notified(head.number, body, shared)
            }
            Kind::Ping => self.say(Kind::Pong, head.number, &[]),
            Kind::Ask => self.lend(&body, shared),
            Kind::Page => self.written(head, &body),
            Kind::Over => {
                let mut rest = &body[..];
                while !rest.is_empty() {
                    self.serving.loans.remove(&decode_transfer(&mut rest).ok_or(Unusable)?);
                }
                Ok(())
            }
            Kind::Goodbye => {
                let last: [u8; 8] = body.try_into().map_err(|_| Unusable)?;
                self.serving.goodbye = Some(u64::from_le_bytes(last));
                self.move_on(shared)
            }
            _ => Err(Unusable),
        }
    }

    /// Counts a message that comes, unless it is more than the window allows.
    pub(super) fn make_room_for(&mut self, len: usize, shared: &Shared) -> Result<(), Unusable> {
        let (serving, longest) = (&mut self.serving, shared.settings.max_notification);
        let waiting = serving.ready.len() + serving.early.len();
        if len > longest || waiting > WINDOW.0 || serving.bytes + len > WINDOW.1 + TAKEN_EVERY.1 + longest {
            return Err(Unusable);
        }
        serving.bytes += len;
        Ok(())
    }

    /// Puts a message that was counted in its place. Long ones come later than short ones that were sent after them.
    pub(super) fn notified(&mut self, sequence: u64, message: Vec<u8>, shared: &Shared) -> Result<(), Unusable> {
        let serving = &mut self.serving;
        let Some(InboundKey { name, incarnation, generation }) = serving.key.clone() else { return Err(Unusable) };
        if sequence < serving.next || serving.early.contains_key(&sequence) {
            serving.bytes -= message.len();
            Counts::add(&shared.counts.duplicates);
            return Ok(());
        }
        serving.early.insert(sequence, message);
        while let Some(message) = serving.early.remove(&serving.next) {
            let next = Notification::new(name.clone(), Some(incarnation), Some(generation), message);
            serving.ready.push_back(next.with_sequence(serving.next));
            serving.next += 1;
        }
        self.move_on(shared)
    }

    /// Moves what is ready into the inbox, as far as there is room, and tells the sender.
    pub(super) fn move_on(&mut self, shared: &Shared) -> Result<(), Unusable> {
        let serving = &mut self.serving;
        let is_old =
            !serving.ready.is_empty() && serving.key.as_ref().is_some_and(|key| shared.registry.is_outdated(key));
        let mut last = None;
        while let Some(next) = serving.ready.pop_front() {
            let (len, sequence) = (next.bytes.len(), next.sequence);
            if is_old {
                Counts::add(&shared.counts.outdated);
            } else if let Err(back) = serving.source.try_push(next) {
                serving.ready.push_front(back);
                if serving.waits_for_room(len, &shared.mailbox) {
                    break;
                }
                continue;
            }
            serving.bytes -= len;
            serving.untold = (serving.untold.0 + 1, serving.untold.1 + len);
            last = sequence;
        }
        let (messages, bytes) = serving.untold;
        if let Some(last) = last
            && (messages >= TAKEN_EVERY.0 || bytes >= TAKEN_EVERY.1)
        {
            serving.untold = (0, 0);
            self.say(Kind::Taken, last, &[])?;
        }
        if self.serving.goodbye.is_some_and(|last| last < self.serving.next) && self.serving.ready.is_empty() {
            self.serving.goodbye = None;
            self.serving.is_over = true;
            Counts::add(&shared.counts.goodbyes);
            self.say(Kind::Bye, 0, &[])?;
        }
        Ok(())
    }

    /// Whether it waits for room in the inbox.
    pub(super) fn is_held_up(&self) -> bool {
        !self.serving.ready.is_empty()
    }

    /// Answers each of these asks.
    fn lend(&mut self, mut asks: &[u8], shared: &Shared) -> Result<(), Unusable> {
        let mut goes = Vec::new();
        while !asks.is_empty() {
            let ask = Ask::decode(&mut asks).ok_or(Unusable)?;
            let transfer = ask.transfer;
            let lent = self.serving.present(&ask, shared)?.and_then(|loan| match ask {
                // Only where both sides say so: what libucp emulates may take the owner along.
                Ask { one_sided: true, .. } if shared.settings.one_sided => {
                    let (address, mapped) = self.serving.lend(transfer, loan, shared)?;
                    Go { transfer, address, key: &mapped.key }.encode(&mut goes);
                    Ok(None)
                }
                Ask { kind: TransferKind::Write, .. } => {
                    let pieces = Pieces::of(loan.len());
                    self.serving.loans.insert(transfer, Lent::Written(loan, pieces));
                    Go { transfer, address: 0, key: &[] }.encode(&mut goes);
                    Ok(None)
                }
                Ask { kind: TransferKind::Read, .. } => {
                    let page = Page { transfer, _loan: Some(loan.hold()?), part: loan.part().clone() };
                    self.serving.loans.insert(transfer, Lent::Read { _loan: loan });
                    Ok(Some(page))
                }
            });
            match lent {
                Ok(None) => {}
                Ok(Some(page)) => self.outgoing.push(page),
                Err(refusal) => self.say(Kind::Refused, transfer.0, &[refusal as u8])?,
            }
        }
        if goes.is_empty() { Ok(()) } else { self.say(Kind::Go, 0, &goes) }
    }

    /// Sends pieces of the pages that the peer reads.
    pub(super) fn send_pages(&mut self, sent: &mut Vec<Sent>) -> Result<(), Status> {
        self.outgoing.send(&self.endpoint, self.generation(), sent)
    }

    /// A page that the peer reads has left.
    pub(super) fn sent(&mut self, transfer: TransferId) {
        self.serving.loans.remove(&transfer);
    }

    /// Bytes of a page that we lent.
    fn written(&mut self, head: Head, bytes: &[u8]) -> Result<(), Unusable> {
        let transfer = TransferId(head.number);
        let Some(lent) = self.serving.loans.get_mut(&transfer) else {
            return Ok(()); // Refused in the middle.
        };
        let Lent::Written(loan, pieces) = lent else { return Err(Unusable) };
        match loan.write(pieces.take(head.offset, bytes.len())?, bytes) {
            Ok(()) => {
                if !pieces.are_all_here() {
                    return Ok(());
                }
                self.serving.loans.remove(&transfer);
                self.say(Kind::Landed, 0, &encode_transfers(&[transfer]))
            }
            Err(refusal) => {
                self.serving.loans.remove(&transfer);
                self.say(Kind::Refused, transfer.0, &[refusal as u8])
            }
        }
    }

    /// Says goodbye; it is closed when its dialer has left, or when the time is over.
    pub(super) fn leave(&mut self, farewell: Farewell, until: Instant) -> Result<(), Unusable> {
        self.serving.is_leaving = true;
        self.serving.is_over = true;
        self.serving.until = Some(until);
        self.say(Kind::Goodbye, farewell as u64, &[])
    }
}

impl Serving {
    /// The page that is asked for, or why not. `Unusable`: it is more than may be lent at once.
    fn present(&self, ask: &Ask, shared: &Shared) -> Result<Result<Loan, Refusal>, Unusable> {
        let name = self.key.as_ref().map(|key| &key.name).ok_or(Unusable)?;
        if self.loans.len() >= LOANS {
            return Err(Unusable);
        }
        if self.loans.contains_key(&ask.transfer) {
            return Ok(Err(Refusal::DuplicateTransfer));
        }
        let access = if ask.kind == TransferKind::Write { Access::Write } else { Access::Read };
        Ok(shared.grants.present(name, self.id, ask.page, access))
    }

    /// Where the page is, and the mapping that has the key to it.
    fn lend(&mut self, transfer: TransferId, loan: Loan, shared: &Shared) -> Result<(u64, Arc<Mapped>), Refusal> {
        // Before the peer has the key: it reads and writes by itself.
        let held = loan.hold()?;
        let mapped = shared.mapped(loan.part().region()).map_err(|_| Refusal::RegionGone)?;
        let address = loan.part().as_ptr().addr() as u64;
        self.loans.insert(transfer, Lent::OneSided { _loan: loan, _held: held, _mapped: mapped.clone() });
        Ok((address, mapped))
    }

    /// `false`: there is room again.
    fn waits_for_room(&mut self, len: usize, mailbox: &Arc<Mailbox>) -> bool {
        struct Looks(Arc<Mailbox>);
        impl Wake for Looks {
            fn wake(self: Arc<Self>) {
                self.0.put(Event::Look);
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

    /// The connection is closed, and carries nothing more.
    pub(super) fn closed(self, shared: &Shared) {
        let Serving { id, key, loans, .. } = self;
        // No access of the dialer can land any more.
        drop(loans);
        shared.grants.inbound_closed(id);
        if let Some(key) = key {
            shared.registry.leave(&key);
        }
    }
}

/// The inbound connections, for those who ask.
pub(super) struct Registry {
    open: Mutex<Open>,
    left: Condvar,
}

#[derive(Default)]
struct Open {
    since: HashMap<InboundKey, Instant>,
    /// How many connections each boot of each peer has open, and the newest generation that it has had since it had none.
    boots: HashMap<(PeerName, Incarnation), (usize, Generation)>,
}

impl Registry {
    pub(super) fn new() -> Self {
        Registry { open: Mutex::default(), left: Condvar::new() }
    }

    /// `false`: there is one of this key.
    pub(super) fn enter(&self, key: &InboundKey) -> bool {
        let Open { since, boots } = &mut *lock(&self.open);
        if since.contains_key(key) {
            return false;
        }
        since.insert(key.clone(), Instant::now());
        let (open, newest) = boots.entry((key.name.clone(), key.incarnation)).or_insert((0, key.generation));
        (*open, *newest) = (*open + 1, key.generation.max(*newest));
        true
    }

    fn leave(&self, key: &InboundKey) {
        let Open { since, boots } = &mut *lock(&self.open);
        since.remove(key);
        if let Entry::Occupied(mut boot) = boots.entry((key.name.clone(), key.incarnation)) {
            boot.get_mut().0 -= 1;
            if boot.get().0 == 0 {
                boot.remove();
            }
        }
        self.left.notify_all();
    }

    /// Whether the same boot of the same peer has connected again since: what comes over this one is old.
    fn is_outdated(&self, key: &InboundKey) -> bool {
        let open = lock(&self.open);
        open.boots.get(&(key.name.clone(), key.incarnation)).is_some_and(|(_, newest)| key.generation < *newest)
    }

    pub(super) fn has(&self, key: &InboundKey) -> bool {
        lock(&self.open).since.contains_key(key)
    }

    pub(super) fn list(&self) -> Vec<(InboundKey, Duration)> {
        lock(&self.open).since.iter().map(|(key, since)| (key.clone(), since.elapsed())).collect()
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.open).since.len()
    }

    /// Blocks this thread until there is none, or `left` says that the time is over.
    pub(super) fn wait_until_empty(&self, left: impl Fn() -> Option<Duration>) {
        let mut open = lock(&self.open);
        while !open.since.is_empty() {
            let Some(left) = left() else { return };
            open = self.left.wait_timeout(open, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
