//! The thread of the agent that serves: who is let in, what they say, and their ends.

use super::address::MAX_METADATA;
use super::builder::Settings;
use super::callers::Callers;
use super::counts::Counts;
use super::inbound::{Inbound, Unusable};
use super::mailbox::OfTheirs;
use super::message::{Answer, Farewell, Head, Hello, Kind, Verdict};
use super::registry::InboundKey;
use super::shared::Shared;
use super::thread::{Look, TICK, Work};
use crate::state::Generation;
use crate::transport::limits::is_overfull;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

type Key = (Arc<str>, Generation);

pub(super) struct Serving {
    shared: Arc<Shared>,
    inbound: HashMap<Key, Inbound>,
    callers: Callers,
    /// Nobody is let in any more.
    refuses: bool,
    tick: Instant,
}

impl Work for Serving {
    fn look(&mut self) -> Look {
        // As in `dialing`.
        let calls = self.shared.server.take_notifications().unwrap_or_default();
        let events = self.shared.mailbox.take();
        let moved = !(calls.is_empty() && events.is_empty());
        for event in events {
            if matches!(event, OfTheirs::Stop) {
                self.stop();
                return Look::Last;
            }
            self.look_at(event);
        }
        calls.into_iter().for_each(|(from, bytes)| self.called(&from, &bytes));
        let now = Instant::now();
        if now >= self.tick {
            self.tick = now + TICK;
            self.look_at_the_clock(now);
        }
        self.close();
        let mut lends = false;
        for inbound in self.inbound.values_mut().filter(|inbound| !inbound.is_over && inbound.lent() > 0) {
            lends = true;
            let said = inbound.recall(&self.callers);
            judge(inbound, said, &self.shared);
        }
        Look::Again { moved, moves: false, waits: lends }
    }

    fn sleep(&self, at_most: Duration) {
        self.shared.mailbox.sleep(at_most);
    }
}

impl Serving {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let callers = Callers::new(shared.server.clone());
        Serving { shared, inbound: HashMap::new(), callers, refuses: false, tick: Instant::now() }
    }

    fn look_at(&mut self, event: OfTheirs) {
        match event {
            OfTheirs::End(which, farewell, until) => {
                let callers = &self.callers;
                for inbound in self.inbound.values_mut().filter(|inbound| !inbound.is_over) {
                    let is_meant = which.as_ref().is_none_or(|which| *which == inbound.key);
                    if is_meant && inbound.leave(farewell, until, callers).is_err() {
                        lose(inbound, &self.shared);
                    }
                }
            }
            OfTheirs::Cut(which) => {
                for inbound in self.inbound.values_mut().filter(|inbound| !inbound.is_over) {
                    if which.as_ref().is_none_or(|which| *which == inbound.key) {
                        inbound.ends(false, self.shared.settings.settle);
                        self.shared.registry.leave(&inbound.key);
                    }
                }
            }
            OfTheirs::Refuse => self.refuses = true,
            OfTheirs::Look => {
                for inbound in self.inbound.values_mut().filter(|inbound| inbound.is_held_up()) {
                    let moved = inbound.move_on(&self.callers, &self.shared);
                    judge(inbound, moved, &self.shared);
                }
            }
            OfTheirs::Stop => {}
        }
    }

    /// What a dialer says.
    fn called(&mut self, from: &str, bytes: &[u8]) {
        let Some((head, body)) = Head::split(bytes) else { return Counts::add(&self.shared.counts.misbehaved) };
        if head.kind == Kind::Hello {
            return self.greet(from, head.generation, body);
        }
        let at: Key = (from.into(), head.generation);
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
        self.close();
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

    fn look_at_the_clock(&mut self, now: Instant) {
        let connected: HashSet<&Arc<str>> = self.inbound.values().map(|inbound| &inbound.agent).collect();
        self.callers.look_at_the_clock(now, |agent| connected.contains(agent));
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
    }

    /// Ends what has nothing more to wait for.
    fn close(&mut self) {
        let gone: Vec<Key> = self
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
    fn stop(&mut self) {
        for inbound in self.inbound.values_mut().filter(|inbound| !inbound.is_over && !inbound.is_leaving) {
            let _ = inbound.leave(Farewell::Shutdown, Instant::now(), &self.callers);
        }
        drop(self.shared.mailbox.close());
    }
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
