//! What is broken when, and what must be true afterwards: a plan, as `plans/*.json` has it.
//!
//! ```json
//! {
//!   "about": "one sentence",
//!   "processes": {"survivor": {}, "a": {"accept_delay_ms": 300}, "b": {}},
//!   "steps": [
//!     {"do": "kill", "process": "a"},
//!     {"after_ms": 200, "do": "restart", "process": "a", "address": "same"},
//!     {"when": {"peer": "a", "answered": 5}, "do": "cut", "process": "a"}
//!   ],
//!   "expect": [
//!     {"peer": "a", "phase": "Ready", "incarnation": "changed", "generations": [2, 50]},
//!     {"peer": "b", "untouched": true}
//!   ]
//! }
//! ```
//!
//! The survivor and each other process have each other as peers and send to each other all the time. A request that a process
//! has not answered within its `answer_within_ms` is given up, and the connection reported: where nothing else shows that it
//! is gone. A process waits `accept_delay_ms` before it answers a connect.
//!
//! | step | does |
//! |---|---|
//! | `kill` | SIGKILL |
//! | `stop`, `continue` | SIGSTOP, SIGCONT |
//! | `cut` | resets its connections, both ways |
//! | `mute`, `unmute` | drops silently what is sent `"to"` it, `"from"` it, or `"both"` (`direction`) |
//! | `restart` | starts a dead one at the `"same"` address or at `"another"` |
//! | `remove`, `insert` | the survivor removes it, or takes it in again where it listens now |
//! | `wait` | nothing |
//! | `repeat` | `steps`, so many `times` |
//!
//! `process` is a name, or a list of names to be broken at once. A step waits until `when` is so, then for `after_ms`.
//! `when` looks `at` one process (the survivor, if it does not say) and one `peer` of it: its `phase` is this; at least so
//! many `transfers` are in flight to it; so many `generations` are drawn for it; so many more requests are `answered` by
//! its process of now than before; it is `connecting`.
//!
//! A row of `expect` is about one peer, as `at` sees it. Whatever it says, at the end every living process must have no
//! leases, transfers and grants, no duplicate connect, no request without an end, no transfer without exactly one, no wrong
//! byte, and no notification lost that a connection should have brought. An `untouched` one has the generation that it
//! began with, and no error at all.

use crate::field::Field;
use serde_json::Value;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::time::Duration;

pub(crate) const SURVIVOR: &str = "survivor";
/// More than a healthy peer needs on a machine that is overloaded.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) processes: Vec<Node>,
    pub(crate) steps: Vec<Step>,
    pub(crate) expect: Vec<Row>,
}

/// A process, and by its place in the plan's list the way to name one.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) accept_delay: Duration,
    /// How long it may take to answer a request; then the connection to it is reported.
    pub(crate) answer_within: Duration,
    /// Connections to it go over a way that can be muted.
    pub(crate) muted: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) when: Option<When>,
    pub(crate) after: Duration,
    pub(crate) act: Act,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Act {
    Kill(Vec<usize>),
    Stop(Vec<usize>),
    Continue(Vec<usize>),
    Cut(Vec<usize>),
    /// Whether what is sent to them, and what they send, is dropped.
    Mute(Vec<usize>, Direction),
    Restart(Vec<usize>, Where),
    Remove(Vec<usize>),
    Insert(Vec<usize>),
    Wait,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Direction {
    pub(crate) to: bool,
    pub(crate) from: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Where {
    Same,
    Another,
}

#[derive(Debug, Clone)]
pub(crate) struct When {
    pub(crate) at: usize,
    pub(crate) peer: usize,
    pub(crate) sign: Sign,
}

#[derive(Debug, Clone)]
pub(crate) enum Sign {
    Phase(&'static str),
    Transfers(u64),
    Generations(u64),
    Answered(u64),
    Connecting,
}

#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) at: usize,
    pub(crate) peer: usize,
    pub(crate) must: Must,
}

#[derive(Debug, Clone)]
pub(crate) enum Must {
    Untouched,
    /// No longer in the table.
    Gone,
    Be {
        phase: &'static str,
        same_incarnation: bool,
        generations: RangeInclusive<u64>,
    },
}

impl Plan {
    /// Reads `text`; `file` is for errors.
    pub(crate) fn parse(file: &str, text: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| format!("{file}: not JSON: {error}"))?;
        let plan = Field::root(file, &value);
        plan.object(&["about", "processes", "steps", "expect"])?;
        plan.of("about")?.text()?;
        let mut reading =
            Reading { plan: Plan::with(&plan.of("processes")?)?, dead: vec![], stopped: vec![], out: vec![] };
        reading.steps(&plan.of("steps")?)?;
        if let Some(process) = reading.stopped.first() {
            let name = &reading.plan.processes[*process].name;
            return Err(plan.of("steps")?.wrong(format!("\"{name}\" is left stopped")));
        }
        reading.expect(&plan.of("expect")?)?;
        Ok(reading.plan)
    }

    pub(crate) fn survivor(&self) -> usize {
        self.index(SURVIVOR).expect("checked when it was read")
    }

    fn index(&self, name: &str) -> Option<usize> {
        self.processes.iter().position(|node| node.name == name)
    }

    fn with(processes: &Field) -> Result<Self, String> {
        let mut nodes = Vec::new();
        for (name, node) in processes.entries()? {
            node.object(&["accept_delay_ms", "answer_within_ms"])?;
            if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
                return Err(node.wrong("a name has letters and digits"));
            }
            let millis = |field, default: Duration| match node.find(field)? {
                Some(given) => Ok::<_, String>(Duration::from_millis(given.number(0..=60_000)?)),
                None => Ok(default),
            };
            nodes.push(Node {
                name: name.into(),
                accept_delay: millis("accept_delay_ms", Duration::ZERO)?,
                answer_within: millis("answer_within_ms", ANSWER_WITHIN)?,
                muted: false,
            });
        }
        let plan = Plan { processes: nodes, steps: Vec::new(), expect: Vec::new() };
        if plan.index(SURVIVOR).is_none() || plan.processes.len() < 2 {
            return Err(processes.wrong("there must be a \"survivor\" and another one"));
        }
        Ok(plan)
    }
}

/// A plan, and what its steps so far have left.
struct Reading {
    plan: Plan,
    dead: Vec<usize>,
    stopped: Vec<usize>,
    /// Removed from the survivor's table.
    out: Vec<usize>,
}

impl Reading {
    fn steps(&mut self, steps: &Field) -> Result<(), String> {
        for step in steps.list()? {
            if step.of("do")?.text()? == "repeat" {
                step.object(&["do", "times", "steps"])?;
                for _ in 0..step.of("times")?.number(1..=100)? {
                    self.steps(&step.of("steps")?)?;
                }
            } else {
                let step = self.step(&step)?;
                self.plan.steps.push(step);
            }
        }
        Ok(())
    }

    fn step(&mut self, step: &Field) -> Result<Step, String> {
        let what = step.of("do")?.text()?;
        let own: &[&str] = match what {
            "mute" => &["do", "after_ms", "when", "process", "direction"],
            "restart" => &["do", "after_ms", "when", "process", "address"],
            "wait" => &["do", "after_ms", "when"],
            _ => &["do", "after_ms", "when", "process"],
        };
        step.object(own)?;
        let when = step.find("when")?.map(|when| self.when(&when)).transpose()?;
        let after = step.find("after_ms")?.map_or(Ok(0), |after| after.number(0..=60_000))?;
        let who = || self.names(&step.of("process")?);
        let act = match what {
            "kill" => Act::Kill(who()?),
            "stop" => Act::Stop(who()?),
            "continue" => Act::Continue(who()?),
            "cut" => Act::Cut(who()?),
            "mute" => {
                let direction = |to, from| Direction { to, from };
                let words = [("to", direction(true, false)), ("from", direction(false, true))];
                let words = [words[0], words[1], ("both", direction(true, true))];
                Act::Mute(who()?, step.of("direction")?.one_of(&words)?)
            }
            "unmute" => Act::Mute(who()?, Direction { to: false, from: false }),
            "restart" => {
                let words = [("same", Where::Same), ("another", Where::Another)];
                Act::Restart(who()?, step.of("address")?.one_of(&words)?)
            }
            "remove" => Act::Remove(who()?),
            "insert" => Act::Insert(who()?),
            "wait" => Act::Wait,
            _ => {
                let all = "kill, stop, continue, cut, mute, unmute, restart, remove, insert, wait, repeat";
                return Err(step.of("do")?.wrong(format!("\"{}\" is none of {all}", what.escape_debug())));
            }
        };
        self.follow(&act).map_err(|why| step.find("process").ok().flatten().unwrap_or(step.clone()).wrong(why))?;
        Ok(Step { when, after: Duration::from_millis(after), act })
    }

    /// Whether the step makes sense after those before it.
    fn follow(&mut self, act: &Act) -> Result<(), String> {
        let Reading { plan, dead, stopped, out } = self;
        let survivor = plan.survivor();
        let change = |who: &[usize], set: &mut Vec<usize>, to: bool, must: &str| {
            for process in who {
                if set.contains(process) == to {
                    return Err(format!("\"{}\" must {must}", plan.processes[*process].name));
                }
                set.retain(|other| other != process);
                set.extend(to.then_some(*process));
            }
            Ok(())
        };
        match act {
            Act::Kill(who) => {
                stopped.retain(|process| !who.contains(process));
                change(who, dead, true, "be alive")
            }
            Act::Restart(who, _) => change(who, dead, false, "be dead"),
            Act::Stop(who) if who.iter().any(|process| dead.contains(process)) => {
                Err("a dead one can't be stopped".into())
            }
            Act::Stop(who) => change(who, stopped, true, "run"),
            Act::Continue(who) => change(who, stopped, false, "be stopped"),
            Act::Remove(who) | Act::Insert(who) if who.contains(&survivor) => {
                Err("the survivor is not in its own table".into())
            }
            Act::Remove(who) => change(who, out, true, "be in the survivor's table"),
            Act::Insert(who) => change(who, out, false, "be removed"),
            Act::Mute(who, _) => {
                who.iter().for_each(|process| plan.processes[*process].muted = true);
                Ok(())
            }
            Act::Cut(_) | Act::Wait => Ok(()),
        }
    }

    fn when(&self, when: &Field) -> Result<When, String> {
        when.object(&["at", "peer", "phase", "transfers", "generations", "answered", "connecting"])?;
        let at = when.find("at")?.map_or(Ok(self.plan.survivor()), |at| self.name(&at))?;
        let peer = self.peer(at, &when.of("peer")?)?;
        let mut signs = Vec::new();
        for (name, sign) in when.entries()? {
            match name {
                "phase" => signs.push(Sign::Phase(phase(&sign)?)),
                "transfers" => signs.push(Sign::Transfers(sign.number(1..=1_000)?)),
                "generations" => signs.push(Sign::Generations(sign.number(1..=1_000)?)),
                "answered" => signs.push(Sign::Answered(sign.number(1..=1_000)?)),
                "connecting" if sign.flag()? => signs.push(Sign::Connecting),
                _ => {}
            }
        }
        match signs.pop() {
            Some(sign) if signs.is_empty() => Ok(When { at, peer, sign }),
            _ => Err(when.wrong("must have one of phase, transfers, generations, answered, connecting")),
        }
    }

    fn expect(&mut self, expect: &Field) -> Result<(), String> {
        let survivor = self.plan.survivor();
        let touched = self.touched();
        for row in expect.list()? {
            let at = row.find("at")?.map_or(Ok(survivor), |at| self.name(&at))?;
            let peer = self.peer(at, &row.of("peer")?)?;
            if self.plan.expect.iter().any(|other| (other.at, other.peer) == (at, peer)) {
                return Err(row.of("peer")?.wrong("there is a row before about it"));
            }
            let must = if let Some(untouched) = row.find("untouched")? {
                row.object(&["at", "peer", "untouched"])?;
                if !untouched.flag()? {
                    return Err(untouched.wrong("is true or left out"));
                }
                if touched.contains(&at) || touched.contains(&peer) {
                    return Err(untouched.wrong("a step touches it"));
                }
                Must::Untouched
            } else if row.of("phase")?.text()? == "Removed" {
                row.object(&["at", "peer", "phase"])?;
                Must::Gone
            } else {
                row.object(&["at", "peer", "phase", "incarnation", "generations"])?;
                let bounds = row.of("generations")?;
                let [least, most] = &bounds.list()?[..] else { return Err(bounds.wrong("must be [least, most]")) };
                let least = least.number(0..=100_000)?;
                Must::Be {
                    phase: phase(&row.of("phase")?)?,
                    same_incarnation: row.of("incarnation")?.one_of(&[("same", true), ("changed", false)])?,
                    generations: least..=most.number(least..=100_000)?,
                }
            };
            self.plan.expect.push(Row { at, peer, must });
        }
        for (peer, node) in self.plan.processes.iter().enumerate().filter(|(peer, _)| *peer != survivor) {
            if !self.plan.expect.iter().any(|row| row.at == survivor && row.peer == peer) {
                return Err(expect.wrong(format!("has no row about \"{}\"", node.name)));
            }
        }
        Ok(())
    }

    fn touched(&self) -> BTreeSet<usize> {
        let acts = self.plan.steps.iter().flat_map(|step| match &step.act {
            Act::Kill(who) | Act::Stop(who) | Act::Continue(who) | Act::Cut(who) | Act::Mute(who, _) => &who[..],
            Act::Restart(who, _) | Act::Remove(who) | Act::Insert(who) => who,
            Act::Wait => &[],
        });
        acts.copied().collect()
    }

    fn names(&self, field: &Field) -> Result<Vec<usize>, String> {
        match field.list() {
            Ok(names) if names.is_empty() => Err(field.wrong("names nobody")),
            Ok(names) => names.iter().map(|name| self.name(name)).collect(),
            Err(_) => Ok(vec![self.name(field)?]),
        }
    }

    fn name(&self, field: &Field) -> Result<usize, String> {
        let name = field.text()?;
        self.plan.index(name).ok_or_else(|| field.wrong(format!("no process \"{}\"", name.escape_debug())))
    }

    fn peer(&self, at: usize, field: &Field) -> Result<usize, String> {
        let (peer, survivor) = (self.name(field)?, self.plan.survivor());
        match (at == survivor) != (peer == survivor) {
            true => Ok(peer),
            false => Err(field.wrong(format!("is no peer of \"{}\"", self.plan.processes[at].name))),
        }
    }
}

fn phase(field: &Field) -> Result<&'static str, String> {
    field.one_of(&["Idle", "Connecting", "Ready", "Failed"].map(|phase| (phase, phase)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{
        "about": "x",
        "processes": {"survivor": {}, "a": {"accept_delay_ms": 5}, "b": {}},
        "steps": [
            {"do": "kill", "process": "a"},
            {"after_ms": 2, "do": "restart", "process": "a", "address": "same"},
            {"do": "repeat", "times": 2, "steps": [{"when": {"peer": "a", "answered": 1}, "do": "cut", "process": ["a"]}]},
            {"do": "mute", "process": "a", "direction": "to"}
        ],
        "expect": [
            {"peer": "a", "phase": "Ready", "incarnation": "changed", "generations": [2, 9]},
            {"peer": "b", "untouched": true}
        ]
    }"#;

    #[test]
    fn a_plan_is_read_whole() {
        let plan = Plan::parse("x.json", GOOD).unwrap();
        assert_eq!(plan.processes.iter().map(|node| node.muted).collect::<Vec<_>>(), [true, false, false]);
        let acts: Vec<_> = plan.steps.iter().map(|step| step.act.clone()).collect();
        assert_eq!(acts[0], Act::Kill(vec![0]));
        assert_eq!(acts[1], Act::Restart(vec![0], Where::Same));
        assert_eq!(acts[2..4], [Act::Cut(vec![0]), Act::Cut(vec![0])]);
        assert!(plan.steps[3].when.is_some() && plan.steps[1].after == Duration::from_millis(2));
    }

    #[test]
    fn what_is_wrong_in_a_plan_is_named_with_its_file_and_field() {
        for (what, with, says) in [
            (r#""about": "x","#, "", "x.json: about: missing"),
            (
                r#""b": {}"#,
                r#""b": {"delay": 1}"#,
                "x.json: processes.b.delay: unknown; there is accept_delay_ms, answer_within_ms",
            ),
            (r#""survivor""#, r#""hero""#, "x.json: processes: there must be a \"survivor\" and another one"),
            (
                r#""accept_delay_ms": 5"#,
                r#""accept_delay_ms": "5""#,
                "x.json: processes.a.accept_delay_ms: must be a number from",
            ),
            (r#""do": "kill""#, r#""do": "murder""#, "x.json: steps[0].do: \"murder\" is none of kill, stop,"),
            (r#""do": "kill", "process": "a""#, r#""do": "kill""#, "x.json: steps[0].process: missing"),
            (
                r#""do": "kill", "process": "a""#,
                r#""do": "kill", "process": "z""#,
                "x.json: steps[0].process: no process \"z\"",
            ),
            (r#""do": "kill""#, r#""do": "stop""#, "x.json: steps[1].process: \"a\" must be dead"),
            (r#", "address": "same""#, "", "x.json: steps[1].address: missing"),
            (
                r#""address": "same""#,
                r#""address": "here""#,
                "x.json: steps[1].address: \"here\" is none of same, another",
            ),
            (r#""after_ms": 2"#, r#""after_ms": -2"#, "x.json: steps[1].after_ms: must be a number from 0 to 60000"),
            (r#""after_ms": 2"#, r#""after": 2"#, "x.json: steps[1].after: unknown"),
            (r#""answered": 1"#, r#""answered": 0"#, "x.json: steps[2].steps[0].when.answered: must be a number"),
            (r#""peer": "a", "answered": 1"#, r#""peer": "a""#, "x.json: steps[2].steps[0].when: must have one of"),
            (r#""direction": "to""#, r#""direction": 1"#, "x.json: steps[3].direction: must be a text"),
            (r#"{"peer": "b", "untouched": true}"#, "", "x.json: not JSON"),
            (
                r#""generations": [2, 9]"#,
                r#""generations": [2]"#,
                "x.json: expect[0].generations: must be [least, most]",
            ),
            (
                r#""generations": [2, 9]"#,
                r#""generations": [2, 1]"#,
                "x.json: expect[0].generations[1]: must be a number from 2",
            ),
            (r#""phase": "Ready""#, r#""phase": "Alive""#, "x.json: expect[0].phase: \"Alive\" is none of Idle,"),
            (
                r#""peer": "b", "untouched": true"#,
                r#""peer": "a", "untouched": true"#,
                "x.json: expect[1].peer: there is a row before",
            ),
            (
                r#""peer": "b", "untouched": true"#,
                r#""at": "a", "peer": "survivor", "untouched": true"#,
                "x.json: expect[1].untouched: a step touches it",
            ),
            (
                r#""peer": "b", "untouched": true"#,
                r#""at": "a", "peer": "b", "untouched": true"#,
                "x.json: expect[1].peer: is no peer of \"a\"",
            ),
            (
                r#"{"peer": "b", "untouched": true}"#,
                r#"{"at": "b", "peer": "survivor", "untouched": true}"#,
                "x.json: expect: has no row about \"b\"",
            ),
            (
                r#"{"do": "mute", "process": "a", "direction": "to"}"#,
                r#"{"do": "stop", "process": "a"}"#,
                "x.json: steps: \"a\" is left stopped",
            ),
        ] {
            let text = GOOD.replacen(what, with, 1);
            assert_ne!(text, GOOD, "{what}");
            let error = Plan::parse("x.json", &text).unwrap_err();
            assert!(error.starts_with(says), "{with}: {error}");
        }
    }
}
