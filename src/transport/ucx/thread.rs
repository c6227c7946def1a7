//! The thread of the transport: progress, events, and everything that opens or closes an endpoint.
//!
//! Events are looked at after progress, outside of libucp. Endpoints are closed after all events of a round: an event names
//! its endpoint by a key that may come again once it is closed.

mod transfers;

use super::endpoint::{Closing, Endpoint, EndpointKey, Received};
use super::error::UcxError;
use super::inbound::{Inbound, Serving, Unusable};
use super::link::{Dial, Link, UcxConnection};
use super::mailbox::{Ending, Event};
use super::message::{Head, Kind};
use super::moving::Moving;
use super::native::{Listener, Status, Stranger, Worker};
use super::{Counts, Shared};
use crate::transfer::TransferId;
use crate::transport::Connected;
use crate::transport::frame::{Answer, Decoded, Farewell, FrameError, Hello, Verdict};
use crate::transport::tcp::InboundKey;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

/// How long a goodbye waits for the peer.
const LINGER: Duration = Duration::from_secs(1);
/// How long the thread sleeps at most while operations are under way: not every device tells when one could go on.
const NAP: Duration = Duration::from_millis(1);
/// How long the end of the transport waits for what it closes.
const UNDO: Duration = Duration::from_secs(1);
/// Those who have dialled and not said hello, beside those who have.
const STRANGERS: usize = 128;

struct Outbound {
    link: Arc<Link>,
    endpoint: Arc<Endpoint>,
    moving: Moving,
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
    listener: Option<Listener>,
    outbound: HashMap<EndpointKey, Outbound>,
    inbound: HashMap<EndpointKey, Inbound>,
    to_close: Vec<EndpointKey>,
    closing: Vec<(Closing, After)>,
    /// Accesses that are over, for the owners of the pages; empty where transfers may only have their turn.
    to_tell: HashMap<EndpointKey, Vec<TransferId>>,
    /// Nobody is let in any more.
    refuses: bool,
    timers: BTreeSet<(Instant, EndpointKey)>,
    /// Last, after all that uses it.
    worker: Arc<Worker>,
}

impl Thread {
    pub(super) fn new(shared: Arc<Shared>, worker: Arc<Worker>, listener: Listener) -> Self {
        Thread {
            shared,
            listener: Some(listener),
            outbound: HashMap::new(),
            inbound: HashMap::new(),
            to_close: Vec::new(),
            closing: Vec::new(),
            to_tell: HashMap::new(),
            refuses: false,
            timers: BTreeSet::new(),
            worker,
        }
    }

    pub(super) fn run(mut self) {
        let mut events = Vec::new();
        let door = self.shared.door.clone();
        loop {
            let inside = door.enter();
            let moved = self.worker.progress();
            self.shared.mailbox.take(&mut events);
            let looked = !events.is_empty();
            for event in events.drain(..) {
                if matches!(event, Event::Stop) {
                    return self.stop();
                }
                self.look_at(event);
            }
            self.look_at_the_clock();
            self.tell();
            self.close();
            if !moved && !looked && !self.shared.settings.polling {
                self.sleep(inside);
            }
        }
    }

    fn sleep(&self, inside: MutexGuard<'_, ()>) {
        let mailbox = &self.shared.mailbox;
        // Before libucp is armed: who hands it an operation from here on rings.
        if !mailbox.falls_asleep() {
            return;
        }
        let timer = self.timers.first().map(|(at, _)| at.saturating_duration_since(Instant::now()));
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
                let received = Received { endpoint: from, head, bytes: vec![0; len] };
                match inbound.endpoint.receive(parked, received) {
                    Ok(None) => {}
                    Ok(Some(received)) => self.received(received),
                    Err(_) => self.misbehaved(from),
                }
            }
            Event::Received(received, Ok(())) => self.received(received),
            Event::Received(received, Err(status)) => self.broke(received.endpoint, status),
            Event::Broken(endpoint, status) => self.broke(endpoint, status),
            Event::Accessed(access, outcome) => self.accessed(access, outcome),
            Event::Paged(endpoint, id) => self.paged(endpoint, id),
            Event::Dial(dial) => self.dial(dial),
            Event::GiveUp(link) => {
                let found = self.outbound.iter_mut().find(|(_, outbound)| Arc::ptr_eq(&outbound.link, &link));
                if let Some((key, outbound)) = found {
                    (outbound.is_leaving, outbound.dial) = (true, None);
                    self.to_close.push(*key);
                }
            }
            Event::Close(link, endpoint, ending) => self.leave(link, endpoint, ending),
            Event::EndInbound(which, farewell) => {
                let until = Instant::now() + if farewell == Farewell::Shutdown { 60 * UNDO } else { LINGER };
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
            Event::Stop => {}
        }
    }

    fn accept(&mut self, stranger: Stranger) {
        let Some(listener) = &self.listener else { return };
        if self.refuses {
            return listener.reject(stranger);
        }
        if self.inbound.len() >= self.shared.settings.max_inbound + STRANGERS {
            return listener.reject(stranger);
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
        let Received { endpoint, head, bytes } = received;
        let Some(inbound) = self.inbound.get_mut(&endpoint) else { return };
        if inbound.notified(head.number, bytes, &self.shared).is_err() {
            self.misbehaved(endpoint);
        }
    }

    fn misbehaved(&mut self, endpoint: EndpointKey) {
        Counts::add(&self.shared.counts.misbehaved);
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
                    link.max_notification.store(max, Ordering::Relaxed);
                    let endpoint = outbound.endpoint.clone();
                    let connection = UcxConnection::new(link, endpoint, self.shared.mailbox.clone());
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
        let outbound =
            Outbound { link, endpoint, moving: Moving::default(), dial: Some(dial), is_leaving: false, until: None };
        self.outbound.insert(key, outbound);
        if let Err(status) = said {
            self.broke(key, status);
        }
    }

    /// Nothing more will get through.
    fn broke(&mut self, endpoint: EndpointKey, status: Status) {
        if self.inbound.contains_key(&endpoint) {
            Counts::add(&self.shared.counts.lost);
            self.to_close.push(endpoint);
        } else if let Some(outbound) = self.outbound.get(&endpoint) {
            let error = outbound.link.broken(status);
            self.fail(endpoint, error);
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
                (0..outbound.moving.broken()).for_each(|_| link.ran());
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
            if let Some(Inbound { endpoint, serving }) = self.inbound.remove(&key) {
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
            Event::Stranger(stranger) => {
                self.listener.as_ref().inspect(|listener| listener.reject(stranger));
            }
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

/// Lets a dialer in, or says why not. `Err`: it is no dialer of ours.
fn greet(inbound: &mut Inbound, body: &[u8], shared: &Shared) -> Result<(), Unusable> {
    let (verdict, key) = match Hello::decode(body) {
        Ok(Decoded::Frame(hello, _)) => {
            let key = InboundKey { name: hello.name, incarnation: hello.incarnation, generation: hello.generation };
            let verdict = match () {
                () if hello.nonce.is_some() => Verdict::SecretUnused,
                () if hello.target != shared.name => Verdict::WrongName,
                () if shared.registry.len() >= shared.settings.max_inbound => Verdict::Full,
                () if !shared.registry.enter(&key) => Verdict::Duplicate,
                () => Verdict::Welcome,
            };
            (verdict, Some(key))
        }
        Err(FrameError::Version { .. }) => (Verdict::WrongVersion, None),
        _ => return Err(Unusable),
    };
    if verdict == Verdict::Welcome {
        Counts::add(&shared.counts.accepted);
        inbound.serving.key = key;
        inbound.serving.until = None;
    } else {
        Counts::add(&shared.counts.refused);
    }
    let mut answer = Vec::new();
    Answer {
        verdict,
        name: shared.name.clone(),
        incarnation: shared.incarnation(),
        max_notification: shared.settings.max_notification as u32,
        token: None,
    }
    .encode(&mut answer);
    let now = Instant::now();
    inbound.serving.answer = Some((now + shared.settings.accept_delay, answer));
    inbound.answer(now)
}

fn welcomed(link: &Link, body: &[u8]) -> Result<Answer, UcxError> {
    let (peer, address) = (link.peer.clone(), link.address.clone());
    match Answer::decode(body) {
        Ok(Decoded::Frame(answer, _)) => match answer.verdict {
            Verdict::Welcome if answer.name == peer => Ok(answer),
            Verdict::Welcome | Verdict::WrongName => Err(UcxError::WrongName { peer, address, actual: answer.name }),
            verdict => Err(UcxError::Refused { peer, address, verdict }),
        },
        Err(FrameError::Version { .. }) => Err(UcxError::Refused { peer, address, verdict: Verdict::WrongVersion }),
        _ => Err(link.misbehaved()),
    }
}
