//! The thread of one agent that dials: what the peers say over the connections that we opened, transfers, beginnings and ends.
//!
//! What is notified is taken before events are: whoever dials puts an event before it says hello, so the answer finds it.

use super::dialers::Dialer;
use super::error::NixlError;
use super::helping::Left;
use super::link::{Dial, Link, remove};
use super::mailbox::{Ending, OfOurs};
use super::message::{Answer, Farewell, Go, Head, Kind, decode_transfer, encode_transfers};
use super::moving::{Broken, Over, Permission, Way, begin};
use super::native::{Memory, MemoryKind};
use super::remote::Remote;
use super::senders::Taking;
use super::shared::Shared;
use super::thread::{Look, TICK, Work};
use crate::grant::Refusal;
use crate::name::PeerName;
use crate::state::Generation;
use crate::sync::lock;
use crate::transfer::{Outcome, TransferError, TransferId};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

/// How long a goodbye waits for the peer.
pub(super) const LINGER: Duration = Duration::from_secs(1);
/// How often a peer that owes us something is asked for a sign of life; twice as rarely each time.
const ASK_AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

struct Outbound {
    link: Arc<Link>,
    remote: Arc<Remote>,
    /// The attempt, until it has its answer.
    dial: Option<SyncSender<Result<Answer, NixlError>>>,
    /// Its transfers, to who waits for them.
    left: Left,
    /// Goes whose keys have not come.
    parked: Vec<Go>,
    /// Which of the peer's registrations NIXL knows.
    keys: u64,
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

type Key = (PeerName, Generation);

pub(super) struct Dialing {
    shared: Arc<Shared>,
    dialer: Arc<Dialer>,
    outbound: HashMap<Key, Outbound>,
    /// An answer is due.
    expects: bool,
    taking: Taking,
    tick: Instant,
}

impl Work for Dialing {
    fn look(&mut self) -> Look {
        // An error has taken nothing, and is there again at the next look, if it is no moment's.
        let is_due = self.taking.is_due(&self.dialer.senders, self.expects, Instant::now());
        let answers = if is_due { self.dialer.agent.take_notifications().unwrap_or_default() } else { Vec::new() };
        let events = self.dialer.mailbox.take();
        let moved = !(answers.is_empty() && events.is_empty());
        for event in events {
            match event {
                OfOurs::Dial(dial) => self.dial(*dial),
                OfOurs::Close(link, ending) => self.leave(&link, ending),
                OfOurs::Waits => {}
                OfOurs::Stop => {
                    self.stop();
                    return Look::Last;
                }
            }
        }
        answers.into_iter().for_each(|(from, bytes)| self.answered(&from, &bytes));
        let now = Instant::now();
        let (ended, moves) = self.look_at_transfers(now);
        if now >= self.tick {
            self.tick = now + TICK;
            self.look_at_the_clock(now);
        }
        self.close(now);
        Look::Again { moved: moved || ended, moves, waits: moves || self.expects }
    }

    fn sleep(&self, at_most: Duration) {
        self.dialer.mailbox.sleep(at_most);
    }
}

impl Dialing {
    pub(super) fn new(shared: Arc<Shared>, dialer: Arc<Dialer>) -> Self {
        let now = Instant::now();
        Dialing { shared, dialer, outbound: HashMap::new(), expects: false, taking: Taking::new(now), tick: now }
    }

    fn dial(&mut self, dial: Dial) {
        let Dial { link, remote, keys, done } = dial;
        let outbound = Outbound {
            link: link.clone(),
            remote,
            dial: Some(done),
            left: Left::default(),
            parked: Vec::new(),
            keys,
            leaving: None,
            told: false,
            ask: (Instant::now() + ASK_AGAIN.0, ASK_AGAIN.0),
        };
        self.outbound.insert((link.peer.clone(), link.generation), outbound);
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
                if let Some(post) = link.refused(TransferId(head.number)) {
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
                goes.into_iter().for_each(|go| go_on(outbound, go, &self.dialer, &self.shared));
            }
            Kind::Recall => {
                let mut rest = body;
                while !rest.is_empty() {
                    let Some(ask) = decode_transfer(&mut rest) else { return fail(outbound, link.misbehaved()) };
                    link.recalled(ask);
                }
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

    /// Polls what runs, tells owners of pages what is over, asks for the next. Answers whether anything has ended, and whether
    /// anything runs.
    fn look_at_transfers(&mut self, now: Instant) -> (bool, bool) {
        let (mut has_ended, mut moves) = (false, false);
        self.expects = false;
        for outbound in self.outbound.values_mut() {
            let (link, remote) = (outbound.link.clone(), outbound.remote.clone());
            if !outbound.left.leave_to_who_waits(&link.helped, link.is_crowded(), now) {
                let (mut moving, mut broken) = (lock(&link.moving), Broken::default());
                moving.take_over(link.take_begun());
                let way = Way { link: &link, remote: &remote, dialer: &self.dialer, shared: &self.shared };
                let (is_left, mut over) = (link.helped.is_left(), Vec::new());
                if !is_left || outbound.left.is_stuck(moving.oldest()) {
                    over = moving.poll(&way, &mut broken);
                    // It stays awake for those that nobody helps.
                    has_ended |= !over.is_empty() && !is_left;
                    moves |= !moving.is_empty() && !is_left;
                }
                let spent = moving.take_spent();
                drop(moving);
                drop(spent);
                over.into_iter().for_each(Over::tell);
                take_in(outbound, broken);
            }
            tell(outbound, now, &self.dialer, &self.shared);
            self.expects |= outbound.link.is_owed() || outbound.dial.is_some() || outbound.leaving.is_some();
        }
        (has_ended, moves)
    }

    fn look_at_the_clock(&mut self, now: Instant) {
        for outbound in self.outbound.values_mut() {
            let (at, pause) = outbound.ask;
            let is_owed = outbound.dial.is_some() || outbound.link.is_owed();
            if now >= at && outbound.leaving.is_none() && is_owed {
                let pause = (2 * pause).min(ASK_AGAIN.1);
                outbound.ask = (now + pause, pause);
                if let Err(status) = outbound.link.ping(&outbound.remote) {
                    let error = outbound.link.judge(&outbound.remote, status);
                    fail_if_broken(outbound, error);
                }
            }
        }
        lock(&self.dialer.graveyard).dig_up();
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
            && !link.is_running()
        {
            tell(outbound, now, &self.dialer, &self.shared);
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
            |outbound: &Outbound| outbound.leaving.is_some_and(|until| until <= now) && !outbound.link.is_running();
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
    }

    /// Ends everything, and says so.
    fn stop(&mut self) {
        for (_, mut outbound) in self.outbound.drain() {
            let link = outbound.link.clone();
            let (peer, address) = (link.peer.clone(), link.address.clone());
            let gone = NixlError::TransportGone { peer, address };
            match outbound.dial.take() {
                Some(dial) => drop(dial.send(Err(gone))),
                None => {
                    tell(&mut outbound, Instant::now(), &self.dialer, &self.shared);
                    let was_open = link.end(Some(Arc::new(gone)));
                    if was_open && !link.is_running() {
                        let last = link.last_sequence().to_le_bytes();
                        let _ = outbound.say(Kind::Goodbye, Farewell::Shutdown as u64, &last);
                    }
                }
            }
            let mut moving = lock(&link.moving);
            moving.take_over(link.take_begun());
            let (unknown, spent) = (moving.leak(&self.dialer), moving.take_spent());
            drop(moving);
            drop((unknown, spent));
            drop(remove(outbound.remote));
            link.done();
        }
        drop(self.dialer.mailbox.close());
    }
}

/// A go, for the transfer that waits for it.
fn go_on(outbound: &mut Outbound, mut go: Go, dialer: &Dialer, shared: &Shared) {
    if !go.metadata.is_empty() {
        let loaded = outbound.remote.refresh(&std::mem::take(&mut go.metadata));
        if loaded.is_ok() {
            outbound.keys = outbound.keys.max(go.keys);
        } else {
            // Then NIXL knows what it knew, and what it does not know fails by itself.
            outbound.keys = go.keys;
        }
        for parked in std::mem::take(&mut outbound.parked) {
            go_on(outbound, parked, dialer, shared);
        }
    }
    if go.keys > outbound.keys {
        return outbound.parked.push(go);
    }
    let link = outbound.link.clone();
    let Some((post, permission)) = link.allowed(&go) else { return };
    let Go { kind, device, address, .. } = go;
    let (kind, address) = (MemoryKind(kind), address as usize);
    let there = Memory { kind, address, len: post.local.len(), device };
    let way = Way { link: &link, remote: &outbound.remote, dialer, shared };
    let broken = begin(post, there, permission, &way);
    take_in(outbound, broken);
}

fn take_in(outbound: &mut Outbound, Broken(error): Broken) {
    if let Some(error) = error {
        fail(outbound, error);
    }
}

/// Tells the owner of pages what we no longer access, and goes on with the next: a message each, for all of a round.
fn tell(outbound: &mut Outbound, now: Instant, dialer: &Dialer, shared: &Shared) {
    let (link, remote) = (outbound.link.clone(), outbound.remote.clone());
    let due = link.due(now);
    for (post, there) in due.begin {
        let permission = Permission::Standing(post.remote.grant);
        let way = Way { link: &link, remote: &remote, dialer, shared };
        let broken = begin(post, there, permission, &way);
        take_in(outbound, broken);
    }
    let mut said = if due.over.is_empty() { Ok(()) } else { outbound.say(Kind::Over, 0, &encode_transfers(&due.over)) };
    if said.is_ok() && !due.asks.is_empty() {
        said = outbound.say(Kind::Ask, 0, &due.asks);
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
