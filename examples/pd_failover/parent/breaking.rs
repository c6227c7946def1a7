//! Breaks children as planned, and mends them.

use super::{Command, Fault, Mute, Run, RunError, free_ports};
use crate::faults::{Kind, Target};
use crate::lines::View;
use crate::random::mix;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long a supervisor takes to start a dead process again.
const RESTART: Duration = Duration::from_millis(200);
/// How long a prefill may take to get into the middle of a request; then it is stopped wherever it is.
const INTO_A_PAGE: Duration = Duration::from_millis(700);
/// How long a decode may take to stop measuring: time in which it is stopped is not latency.
const PROBES_OFF: Duration = Duration::from_millis(50);
/// How long the children may take to cut what they are told to cut.
const CUTTING: Duration = Duration::from_millis(50);
/// How long errors of a live peer may go on after they were called off.
const CALMING: Duration = Duration::from_millis(250);
/// How soon a dead process is looked at again whose last words have not been heard yet.
const A_MOMENT: Duration = Duration::from_millis(20);
/// How soon a fault is tried again that would leave too few peers whole.
const LATER: Duration = Duration::from_millis(200);

pub(crate) struct Breaking {
    faults: Vec<Fault>,
    plan: VecDeque<(Instant, Fault)>,
    steps: Vec<(Instant, Step)>,
    /// Stops that wait for their process to be in the middle of a request.
    arming: Vec<Stop>,
    /// Those that say nothing now.
    silent: Vec<Silent>,
    mutes: Vec<(usize, Mute)>,
    /// Those that start at another port.
    moved: Vec<usize>,
}

/// The next thing to do about a fault that has begun.
#[derive(Clone, Copy)]
enum Step {
    /// Stop it wherever it is, if it was not in the middle of a request before.
    StopAnyway(usize),
    /// Let it run again; the fault is over.
    Resume(usize, usize),
    /// The fault is over without mending.
    Over(usize),
    Unmute(usize),
    Restart(usize),
    /// Start it at another port.
    Move(usize),
    /// No more errors of it; the fault is over.
    Calm(usize, usize),
    /// Bytes to and from it go through again; the fault is over.
    LetThrough(usize, usize),
}

struct Stop {
    child: usize,
    fault: usize,
    hold: Duration,
    until: Option<View>,
}

struct Silent {
    child: usize,
    since: Instant,
    until: Option<View>,
}

impl Breaking {
    pub(crate) fn new(faults: Vec<Fault>) -> Self {
        let (plan, steps) = (VecDeque::new(), Vec::new());
        Breaking { faults, plan, steps, arming: vec![], silent: vec![], mutes: vec![], moved: vec![] }
    }

    /// Faults are due from here on.
    pub(crate) fn start(&mut self, start: Instant) {
        self.plan = self.faults.drain(..).map(|fault| (start + fault.at, fault)).collect();
    }

    pub(crate) fn silent_since(&self, child: usize) -> Option<Instant> {
        self.silent.iter().find(|silent| silent.child == child).map(|silent| silent.since)
    }

    /// Whether it has just started at another port; asked once.
    pub(crate) fn has_moved(&mut self, child: usize) -> bool {
        let moved = self.moved.iter().position(|moved| *moved == child);
        moved.map(|at| self.moved.swap_remove(at)).is_some()
    }

    fn is_heard(&mut self, child: usize) {
        self.silent.retain(|silent| silent.child != child);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.plan.is_empty() && self.steps.is_empty()
    }

    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.plan.iter().map(|(at, _)| *at).chain(self.steps.iter().map(|(at, _)| *at)).min()
    }
}

impl Run<'_> {
    pub(super) fn break_what_is_due(&mut self, now: Instant) -> Result<(), RunError> {
        while let Some(at) = self.breaking.steps.iter().position(|(at, _)| *at <= now) {
            let (_, step) = self.breaking.steps.swap_remove(at);
            self.step(step, now)?;
        }
        while self.breaking.plan.front().is_some_and(|(at, _)| *at <= now) {
            let Some((_, fault)) = self.breaking.plan.pop_front() else { break };
            let child = match fault.target {
                Target::Prefill(nth) => nth,
                Target::Decode(nth) => self.args.prefill + nth,
            };
            if self.may_break(child) {
                self.begin(child, &fault, now)?;
            } else {
                // All that follows comes later too.
                self.breaking.plan.push_front((now + LATER, fault));
            }
        }
        Ok(())
    }

    /// A process is broken once at a time, and one prefill is left whole if there are more than one; but a scenario knows what
    /// it breaks.
    fn may_break(&self, child: usize) -> bool {
        let whole = |child: &usize| !self.ledger.is_broken(*child);
        if self.args.scenario.is_some() {
            return whole(&child) && self.children[child].up;
        }
        let left = (0..self.args.prefill).filter(|prefill| *prefill != child).filter(whole).count();
        whole(&child) && self.children[child].up && (left > 0 || self.args.prefill == 1 || child >= self.args.prefill)
    }

    fn begin(&mut self, child: usize, fault: &Fault, now: Instant) -> Result<(), RunError> {
        let number = self.ledger.fault_began(fault.kind, child, fault.excuses(), now);
        match fault.kind {
            Kind::Kill => {
                self.kill(child);
                self.breaking.steps.push((now + RESTART.max(fault.hold), Step::Restart(child)));
            }
            Kind::Move => {
                self.kill(child);
                self.breaking.steps.push((now + RESTART, Step::Move(child)));
            }
            Kind::Flap => {
                let peer = self.children[child].setup.name.clone();
                for decode in self.decodes() {
                    let seed = mix(self.args.seed ^ mix((child as u64) << 32 | decode as u64));
                    self.tell(decode, Command::Flap { peer: peer.clone(), seed });
                }
                self.breaking.steps.push((now + fault.hold, Step::Calm(child, number)));
            }
            Kind::Blackhole => {
                self.ways.iter().for_each(|way| way.mute(true, true));
                self.breaking.silent.push(Silent { child, since: now, until: fault.until });
                self.breaking.steps.push((now + fault.hold, Step::LetThrough(child, number)));
            }
            Kind::Stop => {
                let decode = child >= self.args.prefill;
                let (command, patience) =
                    if decode { (Command::Probe(false), PROBES_OFF) } else { (Command::PauseInWrite, INTO_A_PAGE) };
                self.tell(child, command);
                self.breaking.arming.push(Stop { child, fault: number, hold: fault.hold, until: fault.until });
                self.breaking.steps.push((now + patience, Step::StopAnyway(child)));
            }
            Kind::Cut => {
                // Both ways: what it has opened, and what was opened to it.
                let name = self.children[child].setup.name.clone();
                self.tell(child, Command::Cut(None));
                self.tell_all(|_| Some(Command::Cut(Some(name.clone()))));
                self.breaking.steps.push((now + CUTTING, Step::Over(number)));
            }
            Kind::Mute => {
                self.kill(child);
                let mute = Mute::start(self.children[child].setup.listen);
                let mute = mute.map_err(|error| RunError::Io { what: "a dead process's port is not free", error })?;
                self.breaking.mutes.push((child, mute));
                self.breaking.steps.push((now + fault.hold, Step::Unmute(child)));
            }
        }
        Ok(())
    }

    fn step(&mut self, step: Step, now: Instant) -> Result<(), RunError> {
        match step {
            Step::StopAnyway(child) => self.stop(child, now),
            Step::Resume(child, fault) => {
                self.breaking.is_heard(child);
                if let Some(process) = &self.children[child].process {
                    process.resume();
                    process.tell(Command::Probe(true));
                }
                self.ledger.fault_ended(fault, now);
            }
            Step::Over(fault) => self.ledger.fault_ended(fault, now),
            Step::Unmute(child) => {
                self.breaking.mutes.retain(|(muted, _)| *muted != child);
                self.step(Step::Restart(child), now)?;
            }
            Step::Calm(child, fault) => {
                let peer = self.children[child].setup.name.clone();
                self.decodes().for_each(|decode| self.tell(decode, Command::Calm(peer.clone())));
                self.breaking.steps.push((now + CALMING, Step::Over(fault)));
            }
            Step::LetThrough(child, fault) => {
                self.breaking.is_heard(child);
                self.ways.iter().for_each(|way| way.mute(false, false));
                self.ledger.fault_ended(fault, now);
            }
            Step::Move(child) if self.children[child].heard_out => {
                let ports = free_ports(1).map_err(|error| RunError::Io { what: "no free port", error })?;
                let name = self.children[child].setup.name.clone();
                self.children[child].setup.listen = ports[0];
                let peers = self.children.iter_mut().flat_map(|other| &mut other.setup.peers);
                peers.filter(|(peer, _)| *peer == name).for_each(|(_, address)| *address = ports[0]);
                self.breaking.moved.push(child);
                self.spawn(child)?;
            }
            Step::Restart(child) if self.children[child].heard_out => self.spawn(child)?,
            Step::Restart(_) | Step::Move(_) => self.breaking.steps.push((now + A_MOMENT, step)),
        }
        Ok(())
    }

    /// Stops a process that is to be stopped, and has not been yet.
    pub(super) fn stop(&mut self, child: usize, now: Instant) {
        let Some(at) = self.breaking.arming.iter().position(|stop| stop.child == child) else { return };
        let Stop { fault, hold, until, .. } = self.breaking.arming.swap_remove(at);
        if let Some(process) = &self.children[child].process {
            process.stop();
        }
        self.breaking.silent.push(Silent { child, since: now, until });
        self.breaking.steps.push((now + hold, Step::Resume(child, fault)));
    }

    /// Lets a process run again as soon as all decode processes have seen of it what they are to see.
    pub(super) fn resume_if_seen(&mut self, child: usize, now: Instant) -> Result<(), RunError> {
        let silent = self.breaking.silent.iter().find(|silent| silent.child == child);
        let Some(view) = silent.and_then(|silent| silent.until) else { return Ok(()) };
        let resume = |(_, step): &(Instant, Step)| matches!(step, Step::Resume(of, _) if *of == child);
        match self.breaking.steps.iter().position(resume) {
            Some(at) if self.seen.all_see(self.decodes(), child, view) => {
                let (_, step) = self.breaking.steps.swap_remove(at);
                self.step(step, now)
            }
            _ => Ok(()),
        }
    }
}
