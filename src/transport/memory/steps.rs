//! How a test interferes: at each step of each peer it holds, delays, fails or panics.
//!
//! A step that its caller may wait at (connect, close, probe) blocks while it is held. One that must not wait (notify,
//! post, chunk, complete, native error) is accepted and withheld: what it does happens after the release.

use super::MemoryError;
use super::yard::Yard;
use crate::builder::FOREVER;
use crate::clock::Clock;
use crate::sync::lock;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a test waits for a call to arrive before it says that none will.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often a held call looks whether it is cancelled.
const LOOK: Duration = Duration::from_millis(1);

/// Where a test may interfere.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// `connect`. Held, it blocks.
    Connect,
    /// `disconnect`. Held, it blocks; failed, it leaks.
    Close,
    /// `probe`. Held, it blocks; failed with [`ErrorClass::PeerBroken`](crate::ErrorClass::PeerBroken) it says dead, with
    /// another class that it cannot tell.
    Probe,
    /// `notify`. Held, it is accepted and delivered after the release.
    Notify,
    /// `post`. Held, it is accepted and its bytes move after the release.
    Post,
    /// The next chunk of a transfer that the owner of the page has admitted, also the first: 4,096 bytes, or what is left. Held,
    /// it moves after the release; delayed, the transfer makes slow progress. It can't be failed.
    Chunk,
    /// The end of a transfer whose bytes have moved. Failed with [`ErrorClass::Local`](crate::ErrorClass::Local) the
    /// transfer ends as failed, with another class as unknown; panicked, its completion is lost.
    Complete,
    /// `cancel`. Held, it is forgotten, as by a transport that can't; failed likewise.
    Cancel,
    /// An error from the fabric's own thread. Failed, that error is reported instead.
    NativeError,
}

/// How a close ends when a test says so.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseAnswer {
    /// The native side keeps it: grants bound to it are not quiesced, its transfers do not end.
    Leaked(&'static str),
    /// It was gone already.
    AlreadyGone,
    /// Not yet.
    Retry,
}

/// The hand of a test on one node's calls. Peers are named as in the table; clones are the same hand. What is asked for
/// holds from the next call on; a held call that is released is failed by what was asked for meanwhile.
#[derive(Clone)]
pub struct Steps(Arc<Shared>);

struct Shared {
    rules: Mutex<Rules>,
    changed: Condvar,
    yard: Arc<Yard>,
    clock: Clock,
}

#[derive(Default)]
struct Rules {
    of: HashMap<Step, HashMap<String, Rule>>,
    last_hold: u64,
}

#[derive(Default)]
struct Rule {
    holds: Vec<Held>,
    delay: Duration,
    acts: VecDeque<Act>,
}

struct Held {
    id: u64,
    reached: usize,
    gives_up: bool,
}

/// What the next call does instead of its work.
pub(super) enum Act {
    Fail(MemoryError),
    Panic,
    Close(CloseAnswer),
}

/// One call's way through its step.
#[derive(Default)]
pub(super) struct Pass {
    due: Option<Instant>,
    /// Holds that have counted it.
    counted: Vec<u64>,
}

/// Whether a call may go on.
pub(super) enum Look {
    Go,
    Held { gives_up: bool },
    Until(Instant),
}

impl Steps {
    pub(super) fn new(yard: Arc<Yard>, clock: Clock) -> Self {
        Steps(Arc::new(Shared { rules: Mutex::default(), changed: Condvar::new(), yard, clock }))
    }

    /// Holds every call at this step of this peer until the [`Hold`] is released or dropped. A held connect ignores that
    /// it is cancelled, like a black-holed native call.
    pub fn hold(&self, step: Step, peer: &str) -> Hold {
        self.add_hold(step, peer, false)
    }

    /// As [`hold`](Self::hold), but a held connect fails once it is cancelled or its deadline has passed, a close leaks and
    /// a probe says dead at its deadline: a native call that minds its time.
    pub fn hold_until_cancelled(&self, step: Step, peer: &str) -> Hold {
        self.add_hold(step, peer, true)
    }

    /// Makes each of the next `calls` calls fail with `error`, after those already asked for.
    pub fn fail_next(&self, step: Step, peer: &str, calls: usize, error: MemoryError) {
        self.ask(step, peer, std::iter::repeat_with(|| Act::Fail(error.clone())).take(calls));
    }

    /// Makes the next call panic, after those already asked for. A panic of a step that runs on the fabric's thread is
    /// caught there.
    pub fn panic_next(&self, step: Step, peer: &str) {
        self.ask(step, peer, [Act::Panic]);
    }

    /// Gives the next `calls` closes this answer, after those already asked for.
    pub fn close_next(&self, peer: &str, calls: usize, answer: CloseAnswer) {
        self.ask(Step::Close, peer, std::iter::repeat_with(|| Act::Close(answer)).take(calls));
    }

    /// Delays every call that arrives from now on by this much, on the fabric's clock; zero ends it. A delay does not mind
    /// cancellation.
    pub fn delay(&self, step: Step, peer: &str, by: Duration) {
        self.change(step, peer, |rule| rule.delay = by.min(FOREVER));
    }

    fn add_hold(&self, step: Step, peer: &str, gives_up: bool) -> Hold {
        let mut rules = self.lock();
        rules.last_hold += 1;
        let id = rules.last_hold;
        drop(rules);
        self.change(step, peer, |rule| rule.holds.push(Held { id, reached: 0, gives_up }));
        Hold { steps: self.clone(), step, peer: peer.to_owned(), id }
    }

    fn ask(&self, step: Step, peer: &str, acts: impl IntoIterator<Item = Act>) {
        self.change(step, peer, |rule| rule.acts.extend(acts));
    }

    fn change(&self, step: Step, peer: &str, change: impl FnOnce(&mut Rule)) {
        change(self.lock().of.entry(step).or_default().entry(peer.to_owned()).or_default());
        self.0.changed.notify_all();
        self.0.yard.stir();
    }

    /// Looks once; for the fabric's thread and for calls that must not wait.
    pub(super) fn look(&self, step: Step, peer: &str, pass: &mut Pass) -> Look {
        self.look_at(&mut self.lock(), step, peer, pass)
    }

    /// Waits until the call may go on. `Err`: it was held by one that gives up, and `over` came true.
    pub(super) fn wait(&self, step: Step, peer: &str, over: impl Fn() -> bool) -> Result<(), ()> {
        let mut pass = Pass::default();
        let mut rules = self.lock();
        loop {
            let changed = &self.0.changed;
            let limit = match self.look_at(&mut rules, step, peer, &mut pass) {
                Look::Go => return Ok(()),
                Look::Held { gives_up: false } => PATIENCE,
                Look::Held { gives_up: true } if over() => return Err(()),
                Look::Held { gives_up: true } => LOOK,
                Look::Until(due) => self.0.clock.real_wait_until(due).unwrap_or_default(),
            };
            rules = changed.wait_timeout(rules, limit).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// What the test asked the next call to do.
    pub(super) fn next_act(&self, step: Step, peer: &str) -> Option<Act> {
        self.lock().of.get_mut(&step)?.get_mut(peer)?.acts.pop_front()
    }

    fn look_at(&self, rules: &mut Rules, step: Step, peer: &str, pass: &mut Pass) -> Look {
        let now = self.0.clock.now();
        let Some(rule) = rules.of.get_mut(&step).and_then(|of| of.get_mut(peer)) else { return Look::Go };
        let due = *pass.due.get_or_insert(now + rule.delay);
        for hold in &mut rule.holds {
            if !pass.counted.contains(&hold.id) {
                hold.reached += 1;
                pass.counted.push(hold.id);
                self.0.changed.notify_all();
            }
        }
        match () {
            () if !rule.holds.is_empty() => Look::Held { gives_up: rule.holds.iter().all(|hold| hold.gives_up) },
            () if now < due => Look::Until(due),
            () => Look::Go,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Rules> {
        lock(&self.0.rules)
    }
}

impl fmt::Debug for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules = self.lock();
        let held = rules.of.iter().flat_map(|(step, of)| of.iter().map(move |(peer, rule)| (step, peer, rule)));
        let held = held.filter(|(.., rule)| !rule.holds.is_empty()).map(|(step, peer, _)| (step, peer));
        f.debug_struct("Steps").field("held", &held.collect::<Vec<_>>()).finish_non_exhaustive()
    }
}

/// Calls are held while this lives.
#[must_use = "dropping a hold releases what it holds"]
pub struct Hold {
    steps: Steps,
    step: Step,
    peer: String,
    id: u64,
}

impl Hold {
    /// Blocks this thread until `calls` calls have been held here, those that gave up included.
    ///
    /// # Panics
    /// If they have not come after 30 s.
    pub fn wait_reached(&self, calls: usize) {
        let give_up = Instant::now() + PATIENCE;
        let mut rules = self.steps.lock();
        loop {
            let reached = self.held(&mut rules).map_or(0, |hold| hold.reached);
            if reached >= calls {
                return;
            }
            let left = give_up.saturating_duration_since(Instant::now());
            if left.is_zero() {
                drop(rules);
                panic!("{reached} of {calls} calls came to {:?} of \"{}\" in {PATIENCE:?}", self.step, self.peer);
            }
            rules = self.steps.0.changed.wait_timeout(rules, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// How many calls have been held here.
    pub fn reached(&self) -> usize {
        self.held(&mut self.steps.lock()).map_or(0, |hold| hold.reached)
    }

    /// Lets go of what is held; so does dropping it.
    pub fn release(self) {}

    fn held<'a>(&self, rules: &'a mut Rules) -> Option<&'a mut Held> {
        rules.of.get_mut(&self.step)?.get_mut(&self.peer)?.holds.iter_mut().find(|hold| hold.id == self.id)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.steps.change(self.step, &self.peer, |rule| rule.holds.retain(|hold| hold.id != self.id));
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reached = self.reached();
        f.debug_struct("Hold").field("step", &self.step).field("peer", &self.peer).field("reached", &reached).finish()
    }
}
