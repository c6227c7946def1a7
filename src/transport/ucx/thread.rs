//! The thread of the transport: progress, events, and everything that opens or closes an endpoint.
//!
//! Events are looked at after progress, outside of libucp. Endpoints are closed after all events of a round: a message names
//! its endpoint by a key that may come again once it is closed. The end of an operation may come after that, and names more.

mod handshake;
mod transfers;

use super::endpoint::{Closing, Endpoint, EndpointKey, Origin, Received};
use super::error::UcxError;
use super::inbound::{Inbound, Serving, Unusable};
use super::link::{Dial, Link, UcxConnection};
use super::mailbox::{Ending, Event};
use super::message::{Head, Kind};
use super::moving::Moving;
use super::native::{Listener, Status, Stranger, Worker};
use super::outgoing::Outgoing;
use super::{Counts, Shared};
use crate::transfer::TransferId;
use crate::transport::Connected;
use crate::transport::exit::Inside;
use crate::transport::frame::Farewell;
use handshake::{greet, welcomed};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long a goodbye waits for the peer.
pub(super) const LINGER: Duration = Duration::from_secs(1);
/// How long the thread sleeps at most while operations are under way: not every device tells when one could go on.
const NAP: Duration = Duration::from_millis(1);
/// How long the thread looks for more before it sleeps, after something has moved: about what it takes to be woken, so that it
/// wastes no more than sleeping would have cost (Karlin and others, Empirical Studies of Competitive Spinning, 1991).
const AWAKE: Duration = Duration::from_micros(20);
/// How long the end of the transport waits for what it closes.
const UNDO: Duration = Duration::from_secs(1);
/// Those who have dialled and not said hello, beside those who have.
const STRANGERS: usize = 128;

struct Outbound {
    link: Arc<Link>,
    endpoint: Arc<Endpoint>,
    moving: Moving,
    outgoing: Outgoing,
    /// The attempt, until it has its answer.
    dial: Option<Box<Dial>>,
    /// Its user has no more use for it.
    is_leaving: bool,
    /// When a goodbye is no longer waited for.
    until: Option<Instant>,
}

enum After {
    Outbound(Arc<Link>, Moving),
    Inbound(Box<Serving>),
}

pub(super) struct Thread {
    shared: Arc<Shared>,
    listener: Listener,
    outbound: HashMap<EndpointKey, Outbound>,
    inbound: HashMap<EndpointKey, Inbound>,
    to_close: Vec<EndpointKey>,
    closing: Vec<(Closing, After)>,
    /// Accesses that are over, for the owners of the pages; empty where transfers may only have their turn.
    to_tell: HashMap<EndpointKey, Vec<TransferId>>,
    /// Where pieces of pages may go.
    to_send: HashSet<EndpointKey>,
    /// Nobody is let in any more.
    refuses: bool,
    /// The transport is dropped.
    stops: bool,
    timers: BTreeSet<(Instant, EndpointKey)>,
    /// Last, after all that uses it.
    worker: Arc<Worker>,
}

impl Thread {
    pub(super) fn new(shared: Arc<Shared>, worker: Arc<Worker>, listener: Listener) -> Self {
        Thread {
            shared,
            listener,
            outbound: HashMap::new(),
            inbound: HashMap::new(),
            to_close: Vec::new(),
            closing: Vec::new(),
            to_tell: HashMap::new(),
            to_send: HashSet::new(),
            refuses: false,
            stops: false,
            timers: BTreeSet::new(),
            worker,
        }
    }

    pub(super) fn run(mut self) {
        let (mut events, mut idle) = (Vec::new(), None);
        let door = self.shared.door.clone();
        loop {
            let inside = door.enter_or_sleep();
            let moved = self.worker.progress();
            self.shared.mailbox.take(&mut events);
            let looked = !events.is_empty();
            for event in events.drain(..) {
                // Also what came with the stop is given back, while there is a worker.
                if self.stops { self.take_back(event) } else { self.look_at(event) }
            }
            if self.stops {
                return self.stop();
            }
            self.look_at_the_clock();
            self.tell();
            let sent = self.send_pages();
            self.close();
            if moved || sent || looked || self.shared.settings.polling {
                idle = None;
            } else if idle.get_or_insert_with(Instant::now).elapsed() > AWAKE {
                self.sleep(inside);
            }
        }
    }

    fn sleep(&self, inside: Inside<'_>) {
        let mailbox = &self.shared.mailbox;
        // Before libucp is armed: who hands it an operation from here on rings.
        if !mailbox.falls_asleep() {
            return;
        }
        let timer = self.timers.first().map(|(at, _)| at.saturating_duration_since(Instant::now()));
        // ord! Relaxed: read after `falls_asleep`. What was counted before that, the mailbox's lock shows; who counts later takes
        //      the same lock when it rings, sees that the thread sleeps, and wakes it.
        let busy = mailbox.under_way.load(Ordering::Relaxed) > 0 || !self.closing.is_empty();
        let nap = match self.worker.arm() {
            Ok(true) if !busy => timer,
            Ok(true) => Some(timer.map_or(NAP, |timer| timer.min(NAP))),
            Ok(false) => Some(Duration::ZERO),
            Err(_) => Some(NAP),
        };
        drop(inside);
        let mut rang = false;
        if nap != Some(Duration::ZERO) {
            let nap = nap.and_then(|nap| Timespec::try_from(nap).ok());
            let bell = mailbox.bell();
            let worker = self.worker.event_fd();
            let mut ready = [PollFd::new(&bell, PollFlags::IN), PollFd::new(&worker, PollFlags::IN)];
            // An interrupted sleep is one that is over.
            let _ = poll(&mut ready, nap.as_ref());
            rang = !ready[0].revents().is_empty();
        }
        mailbox.is_awake(rang);
    }

    fn look_at(&mut self, event: Event) {
        match event {
            Event::Stranger(stranger) => self.accept(stranger),
            Event::Message(from, head, body) => self.message(from, head, body),
            Event::Announced(from, head, parked, len) => {
                let Some(inbound) = self.inbound.get_mut(&from) else { return parked.refuse(&self.worker) };
                let fits = inbound.knows(head) && head.kind == Kind::Notify;
                if !fits || inbound.make_room_for(len, &self.shared).is_err() {
                    parked.refuse(&self.worker);
                    return self.misbehaved(from);
                }
                let received = Received { of: inbound.endpoint.origin(), head, bytes: vec![0; len] };
                match inbound.endpoint.receive(parked, received) {
                    Ok(None) => {}
                    Ok(Some(received)) => self.received(received),
                    Err(_) => self.misbehaved(from),
                }
            }
            Event::Received(received, Ok(())) => self.received(received),
            Event::Received(received, Err(status)) => self.failed(received.of, status),
            Event::Broken(endpoint, status) => self.broke(endpoint, status),
            Event::Failed(of, status) => self.failed(of, status),
            Event::Accessed(access, outcome) => self.accessed(access, outcome),
            Event::Piece(of, page, len) => self.piece(of, page, len),
            Event::Dial(dial) => self.dial(dial),
            Event::GiveUp(link) => {
                let found = self.outbound.iter_mut().find(|(_, outbound)| Arc::ptr_eq(&outbound.link, &link));
                if let Some((key, outbound)) = found {
                    (outbound.is_leaving, outbound.dial) = (true, None);
                    self.to_close.push(*key);
                }
            }
            Event::Close(link, endpoint, ending) => self.leave(link, endpoint, ending),
            Event::EndInbound(which, farewell, until) => {
                for (at, inbound) in &mut self.inbound {
                    let key = inbound.serving.key.as_ref();
                    if which.is_some() && which.as_ref() != key {
                        continue;
                    }
                    if farewell == Farewell::Failed || key.is_none() || inbound.leave(farewell, until).is_err() {
                        self.to_close.push(*at);
                    } else {
                        self.timers.insert((until, *at));
                    }
                }
            }
            Event::Refuse => self.refuses = true,
            Event::Look => {
                let held_up = self.inbound.iter_mut().filter(|(_, inbound)| inbound.is_held_up());
                for (key, inbound) in held_up {
                    if inbound.move_on(&self.shared).is_err() {
                        self.to_close.push(*key);
                    }
                }
            }
            Event::Stop => self.stops = true,
        }
    }

    fn accept(&mut self, stranger: Stranger) {
        if self.refuses || self.inbound.len() >= self.shared.settings.max_inbound.saturating_add(STRANGERS) {
            return self.listener.reject(stranger);
        }
        if let Ok(endpoint) = Endpoint::accept(&self.worker, stranger) {
            let (key, inbound) = (endpoint.key(), Inbound::new(endpoint, &self.shared));
            self.timers.extend(inbound.serving.until.map(|until| (until, key)));
            self.inbound.insert(key, inbound);
        }
    }

    fn message(&mut self, from: EndpointKey, head: Head, body: Vec<u8>) {
        if self.outbound.contains_key(&from) {
            return self.answered(from, head, &body);
        }
        let Some(inbound) = self.inbound.get_mut(&from) else { return };
        if inbound.serving.is_leaving && !matches!(head.kind, Kind::Over | Kind::Page) {
            return;
        }
        let taken = match head.kind {
            Kind::Hello if inbound.serving.key.is_none() => {
                let greeted = greet(inbound, &body, &self.shared);
                self.timers.extend(inbound.serving.answer.as_ref().map(|(at, _)| (*at, from)));
                greeted
            }
            _ if inbound.knows(head) => inbound.take(head, body, &self.shared),
            _ => Err(Unusable),
        };
        self.to_send.extend(inbound.outgoing.may_go().then_some(from));
        if taken.is_err() {
            return self.misbehaved(from);
        }
        if head.kind == Kind::Goodbye {
            // It closes the connection itself, if it can.
            let until = Instant::now() + 2 * LINGER;
            inbound.serving.until = Some(until);
            self.timers.insert((until, from));
        }
    }

    fn received(&mut self, received: Received) {
        let Received { of, head, bytes } = received;
        let Some(inbound) = self.find(of).and_then(|key| self.inbound.get_mut(&key)) else { return };
        if inbound.notified(head.number, bytes, &self.shared).is_err() {
            self.misbehaved(of.key);
        }
    }

    /// Where the endpoint of an operation is, unless it is closed.
    fn find(&self, of: Origin) -> Option<EndpointKey> {
        let inbound = self.inbound.get(&of.key).map(|inbound| inbound.endpoint.origin());
        let outbound = self.outbound.get(&of.key).map(|outbound| outbound.endpoint.origin());
        (inbound.or(outbound) == Some(of)).then_some(of.key)
    }

    fn misbehaved(&mut self, endpoint: EndpointKey) {
        if let Some(inbound) = self.inbound.get_mut(&endpoint)
            && !std::mem::replace(&mut inbound.serving.is_over, true)
        {
            Counts::add(&self.shared.counts.misbehaved);
        }
        self.to_close.push(endpoint);
    }

    /// What an acceptor says.
    fn answered(&mut self, from: EndpointKey, head: Head, body: &[u8]) {
        let Some(outbound) = self.outbound.get_mut(&from) else { return };
        let link = outbound.link.clone();
        if head.kind == Kind::Answer {
            if let Some(dial) = outbound.dial.take() {
                let connected = welcomed(&link, body).map(|answer| {
                    let max = self.shared.settings.max_notification.min(answer.max_notification as usize);
                    let endpoint = outbound.endpoint.clone();
                    let connection = UcxConnection::new(link, endpoint, max, self.shared.mailbox.clone());
                    Connected { connection, incarnation: Some(answer.incarnation) }
                });
                let failed = connected.is_err();
                // If nobody waits any more, the connection closes itself when it is dropped.
                drop(dial.done.send(connected));
                if failed {
                    outbound.is_leaving = true;
                    self.to_close.push(from);
                }
            }
            return;
        }
        if head.generation != link.generation {
            return self.fail(from, link.misbehaved());
        }
        match head.kind {
            Kind::Taken => link.taken(head.number),
            Kind::Pong => link.pong(head.number),
            Kind::Refused => self.refused(from, TransferId(head.number), body),
            Kind::Go => self.goes(from, body),
            Kind::Page => self.came(from, head, body),
            Kind::Landed => self.landed(from, body),
            Kind::Goodbye => {
                let farewell = Farewell::from_code(head.number as u8);
                let (peer, address) = (link.peer.clone(), link.address.clone());
                self.fail(from, UcxError::SaidGoodbye { peer, address, farewell });
            }
            Kind::Bye => self.to_close.extend(outbound.is_leaving.then_some(from)),
            _ => self.fail(from, link.misbehaved()),
        }
    }

    fn dial(&mut self, dial: Box<Dial>) {
        let link = dial.link.clone();
        let endpoint = match Endpoint::dial(&self.worker, dial.to) {
            Ok(endpoint) => Arc::new(endpoint),
            Err(status) => {
                link.closed();
                return drop(dial.done.send(Err(unreachable(&link, status))));
            }
        };
        let mut hello = Vec::new();
        dial.hello.encode(&mut hello);
        let said = endpoint.send(Head::new(Kind::Hello, link.generation, 0), &hello);
        let key = endpoint.key();
        let outbound = Outbound {
            link,
            endpoint,
            moving: Moving::default(),
            outgoing: Outgoing::default(),
            dial: Some(dial),
            is_leaving: false,
            until: None,
        };
        self.outbound.insert(key, outbound);
        if let Err(status) = said {
            self.broke(key, status);
        }
    }

    /// Nothing more will get through.
    fn broke(&mut self, endpoint: EndpointKey, status: Status) {
        if let Some(Inbound { serving, .. }) = self.inbound.get_mut(&endpoint) {
            // Everything under way on it says so, and a stranger is nobody's loss.
            if !std::mem::replace(&mut serving.is_over, true) && serving.key.is_some() {
                Counts::add(&self.shared.counts.lost);
            }
            self.to_close.push(endpoint);
        } else if let Some(outbound) = self.outbound.get(&endpoint) {
            let error = outbound.link.broken(status);
            self.fail(endpoint, error);
        }
    }

    /// An operation has failed.
    fn failed(&mut self, of: Origin, status: Status) {
        if let Some(endpoint) = self.find(of) {
            self.broke(endpoint, status);
        }
    }

    fn fail(&mut self, endpoint: EndpointKey, error: UcxError) {
        let Some(outbound) = self.outbound.get_mut(&endpoint) else { return };
        if outbound.is_leaving {
            // Also one that did not come about, of which its attempt has told already.
            return self.to_close.push(endpoint);
        }
        let link = outbound.link.clone();
        if let Some(dial) = outbound.dial.take() {
            outbound.is_leaving = true;
            let error = match error {
                UcxError::Broken { status, .. } => unreachable(&link, status),
                other => other,
            };
            drop(dial.done.send(Err(error)));
            self.to_close.push(endpoint);
        } else {
            let error = Arc::new(error);
            let first = link.end(Some(error.clone()));
            // Who says goodbye still takes what is under way.
            if !matches!(*error, UcxError::SaidGoodbye { .. }) {
                let unsent = outbound.outgoing.give_up();
                let ended: usize = unsent.into_iter().map(|id| outbound.moving.sent(id)).sum();
                (0..ended + outbound.moving.broken()).for_each(|_| link.ran());
            }
            if first {
                link.reporter.report(&*error);
            }
        }
    }

    /// Its user has given it back.
    fn leave(&mut self, link: Arc<Link>, endpoint: Arc<Endpoint>, ending: Ending) {
        let key = endpoint.key();
        // What is left is ours alone: now it can be closed.
        drop(endpoint);
        let Some(outbound) = self.outbound.get_mut(&key).filter(|outbound| Arc::ptr_eq(&outbound.link, &link)) else {
            return;
        };
        let was_open = link.end(None);
        let waits = !outbound.is_leaving && was_open;
        outbound.is_leaving = true;
        if let Ending::Goodbye(farewell) = ending
            && waits
        {
            let head = Head::new(Kind::Goodbye, link.generation, farewell as u64);
            if outbound.endpoint.send(head, &link.last_sequence().to_le_bytes()).is_ok() {
                let until = Instant::now() + LINGER;
                outbound.until = Some(until);
                self.timers.insert((until, key));
                return;
            }
        }
        self.to_close.push(key);
    }

    fn look_at_the_clock(&mut self) {
        while let Some(&(at, key)) = self.timers.first() {
            if at > Instant::now() {
                return;
            }
            self.timers.pop_first();
            if let Some(inbound) = self.inbound.get_mut(&key)
                && inbound.answer(at).is_err()
            {
                self.to_close.push(key);
            }
            let inbound = self.inbound.get(&key).and_then(|inbound| inbound.serving.until);
            let outbound = self.outbound.get(&key).and_then(|outbound| outbound.until);
            self.to_close.extend(inbound.or(outbound).filter(|until| *until <= at).map(|_| key));
        }
    }

    fn close(&mut self) {
        while let Some(key) = self.to_close.pop() {
            if let Some(Inbound { endpoint, serving, .. }) = self.inbound.remove(&key) {
                self.timers.retain(|(_, of)| *of != key);
                self.closing.push((endpoint.close(), After::Inbound(Box::new(serving))));
            } else if let Some(mut outbound) = self.outbound.remove(&key) {
                match Arc::try_unwrap(outbound.endpoint) {
                    Ok(endpoint) => {
                        self.closing.push((endpoint.close(), After::Outbound(outbound.link, outbound.moving)))
                    }
                    // Its user still has it, and gives it back.
                    Err(endpoint) => {
                        outbound.endpoint = endpoint;
                        self.outbound.insert(key, outbound);
                    }
                }
            }
        }
        let mut at = 0;
        while let Some((closing, after)) = self.closing.get_mut(at) {
            // Ends of transfers that are in the mailbox come first.
            let is_running = matches!(after, After::Outbound(link, moving) if link.running() > moving.len());
            if is_running || !closing.is_over() {
                at += 1;
                continue;
            }
            match self.closing.swap_remove(at).1 {
                After::Inbound(serving) => serving.closed(&self.shared),
                After::Outbound(link, mut moving) => {
                    (0..moving.closed()).for_each(|_| link.ran());
                    link.end(None);
                    link.closed();
                }
            }
        }
    }

    /// Closes everything, and forgets what does not end in time.
    fn stop(mut self) {
        for outbound in self.outbound.values_mut() {
            let (peer, address) = (outbound.link.peer.clone(), outbound.link.address.clone());
            if let Some(dial) = outbound.dial.take() {
                drop(dial.done.send(Err(UcxError::TransportGone { peer, address })));
            } else {
                outbound.link.end(Some(Arc::new(UcxError::TransportGone { peer, address })));
            }
        }
        self.to_close.extend(self.outbound.keys().chain(self.inbound.keys()));
        self.close();
        // What is left has users, who close it when they drop it.
        for Outbound { link, endpoint, .. } in self.outbound.values() {
            let head = Head::new(Kind::Goodbye, link.generation, Farewell::Other as u64);
            let _ = endpoint.send(head, &link.last_sequence().to_le_bytes());
        }
        let (mut events, end) = (Vec::new(), Instant::now() + UNDO);
        loop {
            self.shared.mailbox.take(&mut events);
            events.drain(..).for_each(|event| self.take_back(event));
            self.tell();
            self.close();
            let goodbyes = !self.outbound.is_empty() && self.shared.mailbox.under_way.load(Ordering::Relaxed) > 0;
            if self.closing.is_empty() && !goodbyes || Instant::now() > end {
                break;
            }
            if !self.worker.progress() {
                std::thread::sleep(NAP / 10);
            }
        }
        for event in self.shared.mailbox.close() {
            self.take_back(event);
        }
    }

    /// An event that comes too late to be looked at.
    fn take_back(&mut self, event: Event) {
        match event {
            Event::Stranger(stranger) => self.listener.reject(stranger),
            Event::Announced(_, _, parked, _) => parked.refuse(&self.worker),
            Event::Accessed(access, outcome) => self.accessed(access, outcome),
            Event::Close(link, endpoint, _) => self.leave(link, endpoint, Ending::Now),
            other => drop(other),
        }
    }
}

fn unreachable(link: &Link, status: Status) -> UcxError {
    UcxError::Unreachable { peer: link.peer.clone(), address: link.address.clone(), status }
}
