//! What the children have seen that a scenario is judged by.

use crate::bound::most_connects;
use crate::finding::{Bound, Finding};
use crate::ledger::{Process, Totals};
use crate::lines::{Dial, Flapped, GroupAsked, Tally, View};
use crate::scenario::{STORM_CONNECTS, Scenario};
use peerage::{Backoff, Heartbeat};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// That jitter alone exceeds the bound of a flap: less than one run in a billion.
const CHANCE: f64 = 1e-9;

#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// By who looks, and at whom.
    views: HashMap<(Process, Process), View>,
    /// From the moment a process said nothing any more until it was suspected, and until it was given up.
    suspected: Vec<Duration>,
    given_up: Vec<Duration>,
    /// Suspects that were well again.
    returned: u64,
    /// Peers that were not Ready any more although no fault had befallen them that excuses it.
    failed_without_cause: u64,
    dials: Vec<(Process, Process, Dial)>,
    /// By whom inbound connections were cut, and between which times.
    cuts: Vec<(Process, u64, u64)>,
    flaps: Vec<Flapped>,
    asked: Vec<GroupAsked>,
    tallies: HashMap<Tally, u64>,
    /// The run is over: tables that end are no news.
    is_over: bool,
}

/// What is known of a process that is looked at.
pub(crate) struct Fate {
    /// Since when it says nothing.
    pub(crate) silent_since: Option<Instant>,
    /// A fault befell it that may end its connections.
    pub(crate) excused: bool,
}

impl Seen {
    pub(crate) fn saw(&mut self, who: Process, whom: Process, view: View, fate: &Fate, now: Instant) {
        if self.is_over {
            return;
        }
        let silent_for = fate.silent_since.map(|since| now - since);
        match (self.views.insert((who, whom), view), view) {
            (Some(View::Ready), View::Suspect) => self.suspected.extend(silent_for),
            (Some(View::Suspect), View::Ready) => self.returned += 1,
            (Some(View::Ready | View::Suspect), View::Down) if !fate.excused => self.failed_without_cause += 1,
            (Some(View::Ready | View::Suspect), View::Down) => self.given_up.extend(silent_for),
            _ => {}
        }
    }

    /// What peers look like from here on does not count.
    pub(crate) fn end(&mut self) {
        self.is_over = true;
    }

    /// Whether all of `who` see it like this, or worse.
    pub(crate) fn all_see(&self, mut who: impl Iterator<Item = Process>, whom: Process, view: View) -> bool {
        who.all(|who| self.views.get(&(who, whom)).is_some_and(|now| *now >= view))
    }

    pub(crate) fn dialed(&mut self, from: Process, to: Process, dial: Dial) {
        self.dials.push((from, to, dial));
    }

    pub(crate) fn has_cut(&mut self, whose: Process, begun: u64, ended: u64) {
        self.cuts.push((whose, begun, ended));
    }

    pub(crate) fn flapped(&mut self, flap: Flapped) {
        self.flaps.push(flap);
    }

    pub(crate) fn group_asked(&mut self, asked: GroupAsked) {
        self.asked.push(asked);
    }

    pub(crate) fn tally(&mut self, of: Tally, n: u64) {
        let so_far = self.tallies.entry(of).or_default();
        *so_far = if of == Tally::ConnectsAtOnce { n.max(*so_far) } else { n + *so_far };
    }

    /// Dials of two processes to each other that ran at the same time, and how many of them both made their connection.
    /// Those whose other end cut connections meanwhile do not count.
    fn crossed(&self) -> (u64, u64) {
        let is_cut = |to: Process, dial: &Dial| {
            let mut cuts = self.cuts.iter().filter(|(whose, _, _)| *whose == to);
            cuts.any(|(_, begun, ended)| *begun <= dial.ended && dial.begun <= *ended)
        };
        let uncut: Vec<_> = self.dials.iter().filter(|(_, to, dial)| !is_cut(*to, dial)).collect();
        let (mut crossed, mut made) = (0, 0);
        for (from, to, dial) in uncut.iter().filter(|(from, to, _)| from < to) {
            let back = uncut.iter().filter(|(back_from, back_to, _)| (back_from, back_to) == (to, from));
            for (_, _, back) in back.filter(|(_, _, back)| back.begun <= dial.ended && dial.begun <= back.ended) {
                crossed += 1;
                made += u64::from(dial.made && back.made);
            }
        }
        (crossed, made)
    }

    /// `stops` and `holes`: how often a decode process looked at a prefill that was stopped for a moment, and at one that was
    /// silent until it was given up.
    pub(crate) fn findings(&self, scenario: Scenario, totals: &Totals, [stops, holes]: [u64; 2]) -> Vec<Finding> {
        use Bound::{AtLeast, AtMost, Expected};
        let tally = |of| self.tallies.get(&of).copied().unwrap_or(0);
        let count = |name, n: u64, bound| Finding::new(name, n as f64, bound);
        let longest = |name, times: &[Duration], bound| {
            let longest = times.iter().max().copied().unwrap_or_default();
            Finding::new(name, millis(longest), bound)
        };
        let Heartbeat { interval, dead_after } = Heartbeat::default();
        let suspect_within = Expected(millis(2 * interval));
        let dead_within = Expected(millis(interval + dead_after));
        let without_fault = count("failed_without_fault", totals.without_fault.len() as u64, AtMost(0.0));
        let without_cause = count("peers_failed_without_cause", self.failed_without_cause, AtMost(0.0));
        match scenario {
            Scenario::Storm => vec![
                count("connects_at_once", tally(Tally::ConnectsAtOnce), AtMost(STORM_CONNECTS as f64)),
                count("callers_waited", tally(Tally::Waits), AtLeast(1.0)),
                count("callers_waited_in_vain", tally(Tally::WaitsInVain), AtMost(0.0)),
            ],
            Scenario::Flap => {
                let most = self.flaps.iter().map(|flap| flap.connects).max().unwrap_or(0);
                let over = Duration::from_micros(self.flaps.iter().map(|flap| flap.micros).max().unwrap_or(0));
                let bound = most_connects(&Backoff::default(), over, CHANCE / self.flaps.len().max(1) as f64);
                vec![
                    Finding::new("flapping_s", (over.as_secs_f64() * 10.0).round() / 10.0, Bound::None),
                    count("errors_of_live_peers", self.flaps.iter().map(|flap| flap.errors).sum(), AtLeast(1.0)),
                    count("connects_meanwhile", self.flaps.iter().map(|flap| flap.connects).sum(), Bound::None),
                    count("connects_per_peer", most, AtMost(bound as f64)),
                ]
            }
            Scenario::Stopped => vec![
                without_fault,
                longest("suspect_after_ms", &self.suspected, suspect_within),
                count("well_again_after_suspicion", self.returned, AtLeast(stops as f64)),
                longest("given_up_after_ms", &self.given_up, dead_within),
                count("given_up", self.given_up.len() as u64, AtLeast(holes as f64)),
                without_cause,
            ],
            Scenario::Blackhole => vec![
                without_fault,
                longest("suspect_after_ms", &self.suspected, suspect_within),
                longest("given_up_after_ms", &self.given_up, dead_within),
                count("given_up", self.given_up.len() as u64, AtLeast(holes as f64)),
                without_cause,
            ],
            Scenario::RestartAll => vec![
                count("first_requests", totals.firsts, AtLeast(1.0)),
                count("first_requests_ok", totals.firsts_ok, AtLeast(totals.firsts as f64)),
            ],
            Scenario::CrossDial => {
                let (crossed, made) = self.crossed();
                vec![
                    count("crossed_dials", crossed, AtLeast(1.0)),
                    count("both_finished", made, AtLeast(crossed as f64)),
                    count("leases_looked_at", tally(Tally::Looks), AtLeast(1.0)),
                    count("half_open_handles", tally(Tally::HalfOpen), AtMost(0.0)),
                ]
            }
            Scenario::OneRankDown => {
                let sum = |of: fn(&GroupAsked) -> u64| self.asked.iter().map(of).sum::<u64>();
                let ready = sum(|asked| asked.ready);
                let times: Vec<_> = self.asked.iter().map(|asked| Duration::from_micros(asked.micros)).collect();
                vec![
                    count("ranks_ready_when_another_died", ready, AtLeast(1.0)),
                    count("ranks_probed", sum(|asked| asked.probed), AtLeast(ready as f64)),
                    longest("group_probed_after_ms", &times, Bound::None),
                    without_cause,
                ]
            }
        }
    }
}

fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 10_000.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(seen: &Seen, scenario: Scenario, totals: &Totals) -> Vec<String> {
        seen.findings(scenario, totals, [1, 1]).iter().filter_map(Finding::problem).collect()
    }

    #[test]
    fn a_suspect_that_is_well_again_and_one_that_is_given_up_are_told_apart() {
        let (mut seen, now) = (Seen::default(), Instant::now());
        let silent = |excused| Fate { silent_since: Some(now), excused };
        for view in [View::Ready, View::Suspect, View::Ready] {
            seen.saw(9, 0, view, &silent(false), now + Duration::from_secs(1));
        }
        assert_eq!(problems(&seen, Scenario::Stopped, &Totals::default()), ["given up is 0 (at least 1)"]);
        for view in [View::Ready, View::Suspect, View::Down, View::Ready] {
            seen.saw(9, 1, view, &silent(true), now + Duration::from_secs(2));
        }
        assert_eq!(problems(&seen, Scenario::Stopped, &Totals::default()), [""; 0]);
        assert!(seen.all_see([9].into_iter(), 0, View::Ready) && !seen.all_see([9].into_iter(), 0, View::Suspect));
        assert!(!seen.all_see([8, 9].into_iter(), 0, View::Ready));
        seen.saw(9, 0, View::Down, &Fate { silent_since: None, excused: false }, now);
        assert_eq!(problems(&seen, Scenario::Blackhole, &Totals::default()).len(), 1);
        seen.end();
        seen.saw(9, 2, View::Ready, &silent(false), now);
        seen.saw(9, 2, View::Down, &silent(false), now);
        assert_eq!(seen.failed_without_cause, 1);
    }

    #[test]
    fn dials_cross_if_they_overlap_go_both_ways_and_are_not_cut() {
        let mut seen = Seen::default();
        let dial = |begun, ended, made| Dial { to: String::new(), begun, ended, made };
        seen.dialed(0, 3, dial(10, 20, true));
        seen.dialed(3, 0, dial(15, 30, true)); // crosses
        seen.dialed(1, 3, dial(10, 20, true)); // another pair
        seen.dialed(0, 3, dial(40, 50, true));
        seen.dialed(3, 0, dial(51, 60, true)); // one after the other
        assert_eq!(seen.crossed(), (1, 1));
        seen.dialed(0, 3, dial(70, 90, false));
        seen.dialed(3, 0, dial(75, 80, true)); // crosses, and one was not made
        assert_eq!(seen.crossed(), (2, 1));
        seen.has_cut(0, 85, 86); // the one that was made, but it had ended before
        assert_eq!(seen.crossed(), (2, 1));
        seen.has_cut(3, 85, 86);
        assert_eq!(seen.crossed(), (1, 1));
    }

    #[test]
    fn each_scenario_has_what_it_must_not_show() {
        let bad = |scenario, change: fn(&mut Seen)| {
            let mut seen = Seen::default();
            change(&mut seen);
            problems(&seen, scenario, &Totals { firsts: 3, firsts_ok: 2, ..Totals::default() }).join("; ")
        };
        let storm = bad(Scenario::Storm, |seen| {
            seen.tally(Tally::ConnectsAtOnce, 4);
            seen.tally(Tally::ConnectsAtOnce, 1);
            seen.tally(Tally::Waits, 2);
            seen.tally(Tally::WaitsInVain, 1);
        });
        assert_eq!(storm, "connects at once is 4 (at most 3); callers waited in vain is 1 (at most 0)");
        let flap = bad(Scenario::Flap, |seen| {
            seen.flapped(Flapped { errors: 250, connects: 279, micros: 30_000_000 });
        });
        assert!(flap.starts_with("connects per peer is 279 (at most "), "{flap}");
        assert_eq!(bad(Scenario::RestartAll, |_| ()), "first requests ok is 2 (at least 3)");
        let rank = bad(Scenario::OneRankDown, |seen| {
            seen.group_asked(GroupAsked { ready: 3, probed: 2, micros: 5 });
        });
        assert_eq!(rank, "ranks probed is 2 (at least 3)");
        let cross = bad(Scenario::CrossDial, |seen| {
            seen.tally(Tally::Looks, 2);
            seen.tally(Tally::HalfOpen, 1);
        });
        assert_eq!(cross, "crossed dials is 0 (at least 1); half open handles is 1 (at most 0)");
    }
}
