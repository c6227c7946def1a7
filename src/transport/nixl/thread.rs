//! The thread of the transport: takes what peers notify, polls transfers, and does everything that is for no sender to do.
//!
//! NIXL has nothing to sleep on, so the thread looks, and sleeps a little between looks: the shorter, the more recently
//! something has moved. Each look takes NIXL's exclusive lock of an agent for a moment.
//!
//! What is notified is taken before events are: whoever dials puts an event before it says hello, so the answer finds it.

use super::address::MAX_METADATA;
use super::builder::Settings;
use super::callers::Callers;
use super::error::NixlError;
use super::inbound::{Inbound, Unusable};
use super::link::{Dial, Link, remove};
use super::mailbox::{Ending, Event};
use super::message::{Answer, Farewell, Go, Head, Hello, Kind, Verdict, encode_transfers};
use super::moving::{Ended, Moving};
use super::registry::InboundKey;
use super::remote::Remote;
use super::{Counts, Shared};
use crate::grant::Refusal;
use crate::name::PeerName;
use crate::state::Generation;
use crate::sync::lock;
use crate::transfer::{Outcome, TransferError, TransferId};
use crate::transport::limits::is_overfull;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

/// How long a goodbye waits for the peer.
pub(super) const LINGER: Duration = Duration::from_secs(1);
/// How long the thread looks without a pause after something has moved, about what it takes to be woken.
const AWAKE: Duration = Duration::from_micros(50);
/// It naps so long while something has moved lately or is under way, and so long otherwise.
const NAP: Duration = Duration::from_micros(50);
const LATELY: Duration = Duration::from_millis(5);
const LONG_NAP: Duration = Duration::from_micros(500);
/// How often it looks at the clock for others.
const TICK: Duration = Duration::from_millis(20);
/// How often a peer that owes us something is asked for a sign of life; twice as rarely each time.
const ASK_AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

struct Outbound {
    link: Arc<Link>,
    remote: Arc<Remote>,
    /// The attempt, until it has its answer.
    dial: Option<SyncSender<Result<Answer, NixlError>>>,
    moving: Moving,
    /// Goes whose keys have not come.
    parked: Vec<Go>,
    /// Which of the peer's registrations NIXL knows.
    keys: u64,
    /// Accesses that are over, for the owner of the pages.
    over: Vec<TransferId>,
    /// Transfers may have their turn.
    turns: bool,
    /// Its user has no more use for it, and a goodbye is waited for until then.
    leaving: Option<Instant>,
    /// The peer was told that it ends.
    told: bool,
    /// When it is asked for a sign of life if it owes us something, and how long after that again.
    ask: (Instant, Duration),
}

impl Outbound {
    fn say(&self, kind: Kind, number: u64, body: &[u8]) -> Result<(), NixlError> {
        let message = Head::new(kind, self.link.generation, number).with(body);
        self.remote.notify(&message).map_err(|status| self.link.judge(&self.remote, status))
    }
}

type OutboundKey = (PeerName, Generation);
type InboundAt = (Arc<str>, Generation);

pub(super) struct Thread {
    shared: Arc<Shared>,
    outbound: HashMap<OutboundKey, Outbound>,
    inbound: HashMap<InboundAt, Inbound>,
    callers: Callers,
    /// Nobody is let in any more.
    refuses: bool,
    tick: Instant,
}

impl Thread {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let callers = Callers::new(shared.server.clone());
        let (outbound, inbound) = (HashMap::new(), HashMap::new());
        Thread { shared, outbound, inbound, callers, refuses: false, tick: Instant::now() }
    }

    pub(super) fn run(mut self) {
        let (mut events, mut moved_at) = (Vec::new(), Instant::now());
        let caller = self.shared.caller.clone();
        loop {
            let inside = caller.door.enter_or_sleep();
            // An error has taken nothing, and is there again at the next look, if it is no moment's.
            let answers = self.shared.caller.take_notifications().unwrap_or_default();
            let calls = self.shared.server.take_notifications().unwrap_or_default();
            self.shared.mailbox.take(&mut events);
            let moved = !(answers.is_empty() && calls.is_empty() && events.is_empty());
            for event in events.drain(..) {
                if matches!(event, Event::Stop) {
                    return self.stop();
                }
                self.look_at(event);
            }
            answers.into_iter().for_each(|(from, bytes)| self.answered(&from, &bytes));
            calls.into_iter().for_each(|(from, bytes)| self.called(&from, &bytes));
            let moves = self.look_at_transfers();
            let now = Instant::now();
            if now >= self.tick {
                self.tick = now + TICK;
                self.look_at_the_clock(now);
            }
            self.close(now);
            drop(inside);
            if moved {
                moved_at = now;
            }
            let idle = now.saturating_duration_since(moved_at);
            if self.shared.settings.polling || idle < AWAKE {
                std::thread::yield_now();
            } else {
                self.shared.mailbox.sleep(if moves || idle < LATELY { NAP } else { LONG_NAP });
            }
        }
    }

    fn look_at(&mut self, event: Event) {
        match event {
            Event::Dial(dial) => {
                let Dial { link, remote, keys, done } = *dial;
                let outbound = Outbound {
                    link: link.clone(),
                    remote,
                    dial: Some(done),
                    moving: Moving::default(),
                    parked: Vec::new(),
                    keys,
                    over: Vec::new(),
                    turns: false,
                    leaving: None,
                    told: false,
                    ask: (Instant::now() + ASK_AGAIN.0, ASK_AGAIN.0),
                };
                self.outbound.insert((link.peer.clone(), link.generation), outbound);
            }
            Event::Close(link, ending) => self.leave(&link, ending),
            Event::EndInbound(which, farewell, until) => {
                let callers = &self.callers;
                for inbound in self.inbound.values_mut().filter(|inbound| !inbound.is_over) {
                    let is_meant = which.as_ref().is_none_or(|which| *which == inbound.key);
                    if is_meant && inbound.leave(farewell, until, callers).is_err() {
                        lose(inbound, &self.shared);
                    }
                }
            }
            Event::CutInbound(which) => {
                for inbound in self.inbound.values_mut().filter(|inbound| !inbound.is_over) {
                    if which.as_ref().is_none_or(|which| *which == inbound.key) {
                        inbound.ends(false, self.shared.settings.settle);
                        self.shared.registry.leave(&inbound.key);
                    }
                }
            }
            Event::Refuse => self.refuses = true,
            Event::Look => {
                for inbound in self.inbound.values_mut().filter(|inbound| inbound.is_held_up()) {
                    let moved = inbound.move_on(&self.callers, &self.shared);
                    judge(inbound, moved, &self.shared);
                }
            }
            Event::Waits | Event::Stop => {}
        }
    }

    /// What an acceptor says. Whoever has that name may say it, so what does not fit is nobody's.
    fn answered(&mut self, from: &str, bytes: &[u8]) {
        let Some((head, body)) = Head::split(bytes) else { return };
        let Ok(name) = PeerName::new(from) else { return };
        let key = (name, head.generation);
        let Some(outbound) = self.outbound.get_mut(&key) else { return };
        let link = outbound.link.clone();
        outbound.ask = (Instant::now() + ASK_AGAIN.0, ASK_AGAIN.0);
        match head.kind {
            Kind::Answer => {
                if let Some(dial) = outbound.dial.take() {
                    let answer = Answer::decode(head.number, body).ok_or_else(|| link.misbehaved());
                    // If nobody waits any more, they have it ended.
                    drop(dial.send(answer));
                }
            }
            Kind::Taken => link.taken(head.number),
            Kind::Pong => link.pong(head.number),
            Kind::Still => {}
            Kind::Refused => {
                let refusal = body.first().and_then(|code| Refusal::from_code(*code)).unwrap_or(Refusal::NoSuchGrant);
                outbound.turns = true;
                if let Some(post) = link.answered(TransferId(head.number), false) {
                    post.completion.complete(Outcome::Failed(TransferError::Refused(refusal)));
                }
            }
            Kind::Go => {
                let mut rest = body;
                let mut goes = Vec::new();
                while !rest.is_empty() {
                    let Some(go) = Go::decode(&mut rest) else { return fail(outbound, link.misbehaved()) };
                    goes.push(go);
                }
                goes.into_iter().for_each(|go| go_on(outbound, go, &self.shared));
            }
            Kind::Goodbye => {
                let farewell = Farewell::from_code(head.number);
                let (peer, address) = (link.peer.clone(), link.address.clone());
                fail(outbound, NixlError::SaidGoodbye { peer, address, farewell });
            }
            Kind::Bye => outbound.leaving = outbound.leaving.map(|_| Instant::now()),
            _ => fail(outbound, link.misbehaved()),
        }
    }

    /// What a dialer says.
    fn called(&mut self, from: &str, bytes: &[u8]) {
        let Some((head, body)) = Head::split(bytes) else { return Counts::add(&self.shared.counts.misbehaved) };
        if head.kind == Kind::Hello {
            return self.greet(from, head.generation, body);
        }
        let at: InboundAt = (from.into(), head.generation);
        let Some(inbound) = self.inbound.get_mut(&at) else {
            // It is told once it asks for an answer, if we know how to answer it.
            if matches!(head.kind, Kind::Notify | Kind::Ping | Kind::Ask) && self.callers.is_loaded(from) {
                let goodbye = Head::new(Kind::Goodbye, head.generation, Farewell::Unknown as u64).with(&[]);
                let _ = self.callers.say(from, &goodbye);
            }
            return;
        };
        if inbound.is_over && matches!(head.kind, Kind::Notify | Kind::Ping | Kind::Ask) {
            let goodbye = Head::new(Kind::Goodbye, head.generation, Farewell::Unknown as u64).with(&[]);
            let _ = self.callers.say(from, &goodbye);
            return;
        }
        let taken = inbound.take(head, body, &self.callers, &self.shared);
        judge(inbound, taken, &self.shared);
    }

    /// Lets a dialer in, or says why not.
    fn greet(&mut self, from: &str, generation: Generation, body: &[u8]) {
        let shared = self.shared.clone();
        let hello = Hello::decode(body).filter(|hello| hello.metadata.len() <= MAX_METADATA);
        let Some(Hello { incarnation, keys, name, target, metadata }) = hello else {
            return Counts::add(&shared.counts.misbehaved);
        };
        if self.refuses {
            return;
        }
        let (agent, key): (Arc<str>, _) = (from.into(), InboundKey { name, incarnation, generation });
        // Its agent has one place for us, so whatever it had before has ended there, with all of its transfers.
        for inbound in self.inbound.values_mut().filter(|inbound| inbound.agent == agent) {
            if inbound.key.generation < generation {
                inbound.ends(true, None);
                shared.registry.leave(&inbound.key);
            }
        }
        self.close(Instant::now());
        if self.callers.load(&agent, metadata).is_err() {
            return Counts::add(&shared.counts.unanswerable);
        }
        let Settings { max_inbound, inbox_capacity, .. } = shared.settings;
        let verdict = match () {
            () if target != shared.name => Verdict::WrongName,
            () if shared.registry.len() >= max_inbound => Verdict::Full,
            () if is_overfull(&shared.inbox, max_inbound, inbox_capacity) => Verdict::Full,
            () if self.inbound.contains_key(&(agent.clone(), generation)) || !shared.registry.enter(&key) => {
                Verdict::Duplicate
            }
            () => Verdict::Welcome,
        };
        if verdict == Verdict::Welcome {
            Counts::add(&shared.counts.accepted);
            self.inbound.insert((agent.clone(), generation), Inbound::new(agent.clone(), key, keys, &shared));
        } else {
            Counts::add(&shared.counts.refused);
        }
        let max_notification = shared.settings.max_notification as u32;
        let answer = Answer { verdict, incarnation: shared.incarnation(), max_notification, name: shared.name.clone() };
        let (verdict, body) = answer.encode();
        let said = self.callers.say(&agent, &Head::new(Kind::Answer, generation, verdict).with(&body));
        if said.is_err()
            && let Some(inbound) = self.inbound.get_mut(&(agent, generation))
        {
            lose(inbound, &shared);
        }
    }

    /// Polls what runs, tells owners of pages what is over, asks for the next. Answers whether anything runs, here or on a page of
    /// ours, or is waited for.
    fn look_at_transfers(&mut self) -> bool {
        let mut any = false;
        for outbound in self.outbound.values_mut() {
            if !outbound.moving.is_empty() {
                any = true;
                let mut ended = Ended::default();
                outbound.moving.poll(&outbound.link, &outbound.remote, &self.shared, &mut ended);
                take_in(outbound, ended);
            }
            tell(outbound);
            any |= outbound.link.waits_for_the_peer() || outbound.dial.is_some();
        }
        any || self.inbound.values().any(|inbound| !inbound.is_over && inbound.lent() > 0)
    }

    fn look_at_the_clock(&mut self, now: Instant) {
        for outbound in self.outbound.values_mut() {
            let (at, pause) = outbound.ask;
            if now >= at && outbound.leaving.is_none() && outbound.link.is_owed() {
                let pause = (2 * pause).min(ASK_AGAIN.1);
                outbound.ask = (now + pause, pause);
                if let Err(status) = outbound.link.ping(&outbound.remote) {
                    let error = outbound.link.judge(&outbound.remote, status);
                    fail_if_broken(outbound, error);
                }
            }
        }
        for inbound in self.inbound.values_mut() {
            let said = inbound.look_at_the_clock(now, &self.callers);
            judge(inbound, said, &self.shared);
            if inbound.until.is_some_and(|until| until <= now) {
                if inbound.is_over {
                    inbound.has_settled();
                } else {
                    inbound.ends(false, self.shared.settings.settle);
                    self.shared.registry.leave(&inbound.key);
                }
            }
        }
        lock(&self.shared.graveyard).dig_up();
    }

    /// Its user has given it back, or gives up the wait for it.
    fn leave(&mut self, link: &Arc<Link>, ending: Ending) {
        let key = (link.peer.clone(), link.generation);
        let Some(outbound) = self.outbound.get_mut(&key).filter(|outbound| Arc::ptr_eq(&outbound.link, link)) else {
            return;
        };
        outbound.dial = None;
        let was_open = link.end(None);
        let now = Instant::now();
        if let Ending::Goodbye(farewell) = ending
            && was_open
            && outbound.moving.is_empty()
        {
            tell(outbound);
            outbound.told = outbound.say(Kind::Goodbye, farewell as u64, &link.last_sequence().to_le_bytes()).is_ok();
            if outbound.told {
                outbound.leaving = Some(now + LINGER);
                return;
            }
        }
        outbound.leaving = match ending {
            Ending::Now => Some(now),
            Ending::Goodbye(_) => Some(outbound.leaving.unwrap_or(now)),
        };
    }

    /// Ends what has nothing more to wait for.
    fn close(&mut self, now: Instant) {
        let is_over =
            |outbound: &Outbound| outbound.leaving.is_some_and(|until| until <= now) && outbound.moving.is_empty();
        for (_, outbound) in self.outbound.extract_if(|_, outbound| is_over(outbound)) {
            if !outbound.told {
                // NIXL tells a peer of no removal. Of what was sent it may take what it has by now.
                let _ = outbound.say(Kind::Goodbye, Farewell::Other as u64, &0_u64.to_le_bytes());
            }
            let Outbound { link, remote, .. } = outbound;
            // Requests are gone. Its user removes the peer; who has dropped the connection leaves that to us.
            drop(remove(remote));
            link.done();
        }
        let gone: Vec<InboundAt> = self
            .inbound
            .iter()
            .filter(|(_, inbound)| inbound.is_over && inbound.lent() == 0)
            .map(|(at, _)| at.clone())
            .collect();
        for at in gone {
            if let Some(inbound) = self.inbound.remove(&at) {
                inbound.closed(&self.shared);
            }
        }
    }

    /// Ends everything, and says so.
    fn stop(mut self) {
        for inbound in self.inbound.values_mut().filter(|inbound| !inbound.is_over && !inbound.is_leaving) {
            let _ = inbound.leave(Farewell::Shutdown, Instant::now(), &self.callers);
        }
        for (_, mut outbound) in self.outbound.drain() {
            let link = outbound.link.clone();
            let (peer, address) = (link.peer.clone(), link.address.clone());
            let gone = NixlError::TransportGone { peer, address };
            match outbound.dial.take() {
                Some(dial) => drop(dial.send(Err(gone))),
                None => {
                    tell(&mut outbound);
                    let was_open = link.end(Some(Arc::new(gone)));
                    if was_open && outbound.moving.is_empty() {
                        let last = link.last_sequence().to_le_bytes();
                        let _ = outbound.say(Kind::Goodbye, Farewell::Shutdown as u64, &last);
                    }
                }
            }
            outbound.moving.leak(&self.shared);
            drop(remove(outbound.remote));
            link.done();
        }
        drop(self.shared.mailbox.close());
    }
}

/// A go, for the transfer that waits for it.
fn go_on(outbound: &mut Outbound, mut go: Go, shared: &Shared) {
    if !go.metadata.is_empty() {
        let loaded = outbound.remote.refresh(&std::mem::take(&mut go.metadata));
        if loaded.is_ok() {
            outbound.keys = outbound.keys.max(go.keys);
        } else {
            // Then NIXL knows what it knew, and what it does not know fails by itself.
            outbound.keys = go.keys;
        }
        for parked in std::mem::take(&mut outbound.parked) {
            go_on(outbound, parked, shared);
        }
    }
    if go.keys > outbound.keys {
        return outbound.parked.push(go);
    }
    let link = outbound.link.clone();
    let mut ended = Ended::default();
    match link.answered(go.transfer, true) {
        Some(post) => outbound.moving.begin(post, &go, &link, &outbound.remote, shared, &mut ended),
        // It was given up meanwhile, and nothing was moved.
        None => ended.over.push(go.transfer),
    }
    take_in(outbound, ended);
}

fn take_in(outbound: &mut Outbound, Ended { mut over, broken }: Ended) {
    outbound.turns |= !over.is_empty();
    outbound.over.append(&mut over);
    if let Some(error) = broken {
        fail(outbound, error);
    }
}

/// Tells the owner of pages what we no longer access, and goes on with the next: a message each, for all of a round.
fn tell(outbound: &mut Outbound) {
    let over = std::mem::take(&mut outbound.over);
    let mut said = if over.is_empty() { Ok(()) } else { outbound.say(Kind::Over, 0, &encode_transfers(&over)) };
    if said.is_ok() && std::mem::take(&mut outbound.turns) {
        let asks = outbound.link.turns();
        if !asks.is_empty() {
            said = outbound.say(Kind::Ask, 0, &asks);
        }
    }
    if let Err(error) = said {
        fail_if_broken(outbound, error);
    }
}

fn fail_if_broken(outbound: &mut Outbound, error: NixlError) {
    if !matches!(error, NixlError::Rejected { .. }) {
        fail(outbound, error);
    }
}

/// Nothing more will get through.
fn fail(outbound: &mut Outbound, error: NixlError) {
    let link = outbound.link.clone();
    outbound.parked.clear();
    if let Some(dial) = outbound.dial.take() {
        return drop(dial.send(Err(error)));
    }
    let error = Arc::new(error);
    if link.end(Some(error.clone())) {
        link.reporter.report(&*error);
    }
    outbound.leaving = outbound.leaving.map(|_| Instant::now());
}

/// What became of a message of an inbound connection.
fn judge(inbound: &mut Inbound, taken: Result<(), Unusable>, shared: &Shared) {
    match taken {
        Ok(()) => {
            if inbound.is_over {
                shared.registry.leave(&inbound.key);
            }
        }
        Err(Unusable::Lost) => lose(inbound, shared),
        Err(Unusable::Misbehaved) => {
            if !inbound.is_over {
                Counts::add(&shared.counts.misbehaved);
            }
            inbound.ends(false, shared.settings.settle);
            shared.registry.leave(&inbound.key);
        }
    }
}

/// Its dialer is gone, says NIXL.
fn lose(inbound: &mut Inbound, shared: &Shared) {
    if !inbound.is_over {
        Counts::add(&shared.counts.lost);
        inbound.ends(false, shared.settings.settle);
        shared.registry.leave(&inbound.key);
    }
}
