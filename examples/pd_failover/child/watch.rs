//! Looks at what becomes of the peers all the time, and tells the parent: what a scenario is judged by.

use super::{Role, Setup, say, unix_micros};
use crate::lines::{Dial, Event, GroupAsked, Tally, View};
use crate::modes::{Peerage, Peers};
use crate::scenario::Scenario;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

const LOOK: Duration = Duration::from_millis(2);
/// How long the others of a group may take to be probed before it is told that they were not.
const ASKED_WITHIN: Duration = Duration::from_secs(10);

/// Leases that were looked at, and those that were half open.
pub(crate) struct Watch {
    looks: Arc<[AtomicU64; 2]>,
}

impl Watch {
    pub(crate) fn say_tallies(&self) {
        let [looks, half_open] = &*self.looks;
        say(&Event::Tally(Tally::Looks, looks.load(Relaxed)));
        say(&Event::Tally(Tally::HalfOpen, half_open.load(Relaxed)));
    }
}

pub(crate) fn start(scenario: Scenario, setup: &Setup, peers: Arc<dyn Peers>) -> Watch {
    let looks = Arc::<[AtomicU64; 2]>::default();
    let watch = Watch { looks: looks.clone() };
    let names: Vec<_> = setup.peers.iter().map(|(name, _)| name.clone()).collect();
    let decode = setup.role == Role::Decode;
    if !decode && scenario != Scenario::CrossDial {
        return watch;
    }
    thread::spawn(move || {
        let Some(table) = peers.peerage() else { return };
        let mut views = Views::new(&names);
        loop {
            thread::sleep(LOOK);
            if decode {
                views.look(table, &names, scenario == Scenario::OneRankDown);
            }
            if scenario == Scenario::CrossDial {
                say_dials(table);
                (0..names.len()).filter_map(|peer| table.is_half_open(peer)).for_each(|half_open| {
                    looks[0].fetch_add(1, Relaxed);
                    looks[1].fetch_add(u64::from(half_open), Relaxed);
                });
            }
        }
    });
    watch
}

/// How each peer looked last.
struct Views {
    last: Vec<Option<View>>,
    /// When each was last seen Ready.
    ready: Vec<Instant>,
    asking: Vec<Asking>,
}

/// A rank is gone; the others, who were Ready, are to be probed.
struct Asking {
    gone: String,
    /// It was not gone before.
    since: Instant,
    others: Vec<String>,
}

impl Views {
    fn new(names: &[String]) -> Self {
        Views { last: vec![None; names.len()], ready: vec![Instant::now(); names.len()], asking: vec![] }
    }

    fn look(&mut self, table: &Peerage, names: &[String], group: bool) {
        for (peer, name) in names.iter().enumerate() {
            let now = Instant::now();
            let view = table.view(peer);
            let last = self.last[peer].replace(view);
            if last != Some(view) {
                say(&Event::Saw { peer: name.clone(), view });
            }
            if group && view == View::Down && last.is_some_and(|last| last != View::Down) {
                let ready = |other: &usize| *other != peer && self.last[*other] == Some(View::Ready);
                let others = (0..names.len()).filter(ready).map(|other| names[other].clone()).collect();
                self.asking.push(Asking { gone: name.clone(), since: self.ready[peer], others });
            }
            if view != View::Down {
                self.ready[peer] = now;
            }
        }
        self.asking.retain(|asking| !asking.is_answered(table));
    }
}

impl Asking {
    /// Tells it too.
    fn is_answered(&self, table: &Peerage) -> bool {
        let probe = |name: &String| table.net().last_probe(name).filter(|at| *at >= self.since);
        let probes: Vec<_> = self.others.iter().filter_map(probe).collect();
        if probes.len() < self.others.len() && self.since.elapsed() < ASKED_WITHIN {
            return false;
        }
        let last = probes.iter().max().map_or(Duration::ZERO, |last| *last - self.since);
        let (ready, probed) = (self.others.len() as u64, probes.len() as u64);
        let asked = GroupAsked { ready, probed, micros: last.as_micros() as u64 };
        say(&Event::GroupAsked { gone: self.gone.clone(), asked });
        true
    }
}

fn say_dials(table: &Peerage) {
    for ran in table.net().ended_connects() {
        let Some(ended) = ran.ended else { continue };
        let (begun, ended) = (unix_micros(ran.begun), unix_micros(ended));
        say(&Event::Dialed(Dial { to: ran.to.as_str().to_owned(), begun, ended, made: ran.made }));
    }
}
