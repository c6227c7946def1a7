//! What one process has sent, received and begun, and how it ended.

use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};

/// Of how many past connections, and of how many past lives of a peer, the book is kept.
const KEPT: usize = 16;
const NOTES_PER_PAGE: u64 = 8;

#[derive(Default)]
pub(crate) struct Ledger {
    tallies: BTreeMap<String, Tally>,
    received: BTreeMap<String, VecDeque<Life>>,
    /// Notifications that did not come in order, or came twice.
    out_of_order: u64,
}

/// About one name, through all its lives.
#[derive(Default)]
pub(crate) struct Tally {
    /// A lease was granted before, so a refused one is an error.
    pub(crate) met: bool,
    errors: u64,
    first_error: String,
    /// Notifications accepted, in all and by generation.
    notes: u64,
    accepted: BTreeMap<u64, u64>,
    /// Pages lent, and how that ended.
    pub(crate) begun: u64,
    pub(crate) answered: u64,
    pub(crate) failed: u64,
    pub(crate) corrupt: u64,
    /// Transfers posted, ended, and ended otherwise than they had before.
    pub(crate) posted: u64,
    pub(crate) ended: u64,
    pub(crate) ended_twice: u64,
}

/// What came from one process, by its generation and thread: the next number.
struct Life {
    incarnation: String,
    next: BTreeMap<u64, BTreeMap<u64, u64>>,
}

impl Ledger {
    pub(crate) fn of(&mut self, peer: &str) -> &mut Tally {
        if !self.tallies.contains_key(peer) {
            self.tallies.insert(peer.to_owned(), Tally::default());
        }
        self.tallies.get_mut(peer).expect("inserted above")
    }

    /// A notification came. Over one connection every thread's come in order and without a gap.
    pub(crate) fn note(&mut self, from: &str, incarnation: &str, generation: u64, thread: u64, nth: u64) {
        let lives = self.received.entry(from.to_owned()).or_default();
        if !lives.iter().any(|life| life.incarnation == incarnation) {
            lives.push_back(Life { incarnation: incarnation.to_owned(), next: BTreeMap::new() });
        }
        if lives.len() > KEPT {
            lives.pop_front();
        }
        let Some(life) = lives.iter_mut().find(|life| life.incarnation == incarnation) else { return };
        let next = life.next.entry(generation).or_default().entry(thread).or_default();
        self.out_of_order += u64::from(*next != nth);
        *next = nth + 1;
        if life.next.len() > KEPT {
            life.next.pop_first();
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        let tallies: BTreeMap<_, _> = self.tallies.iter().map(|(peer, tally)| (peer, tally.to_json())).collect();
        let received = self.received.iter().map(|(from, lives)| {
            let lives: BTreeMap<_, BTreeMap<_, u64>> = lives
                .iter()
                .map(|life| {
                    let sums = life.next.iter().map(|(of, threads)| (of.to_string(), threads.values().sum()));
                    (&life.incarnation, sums.collect())
                })
                .collect();
            (from, json!(lives))
        });
        let received: BTreeMap<_, _> = received.collect();
        json!({"tallies": tallies, "received": received, "out_of_order": self.out_of_order})
    }
}

impl Tally {
    pub(crate) fn error(&mut self, why: impl ToString) {
        if self.met {
            self.errors += 1;
            if self.errors == 1 {
                self.first_error = why.to_string();
            }
        }
    }

    /// Whether one more notification keeps to the measure: so many for each page lent. Pages are lent as they come back, so
    /// on a machine that is slow nothing piles up.
    pub(crate) fn may_note(&self) -> bool {
        self.notes < NOTES_PER_PAGE * (self.begun + 1)
    }

    pub(crate) fn accepted(&mut self, generation: u64) {
        self.notes += 1;
        *self.accepted.entry(generation).or_default() += 1;
        if self.accepted.len() > KEPT {
            self.accepted.pop_first();
        }
    }

    fn to_json(&self) -> Value {
        let accepted: BTreeMap<_, _> = self.accepted.iter().map(|(of, n)| (of.to_string(), n)).collect();
        json!({
            "errors": self.errors, "first_error": self.first_error, "accepted": accepted,
            "begun": self.begun, "answered": self.answered, "failed": self.failed, "corrupt": self.corrupt,
            "posted": self.posted, "ended": self.ended, "ended_twice": self.ended_twice,
        })
    }
}

#[test]
fn a_notification_that_is_missing_or_comes_twice_shows() {
    let mut ledger = Ledger::default();
    for (thread, nth) in [(0, 0), (1, 0), (0, 1)] {
        ledger.note("a", "ff", 3, thread, nth);
    }
    ledger.note("a", "ff", 4, 0, 0);
    assert_eq!(ledger.out_of_order, 0);
    assert_eq!(ledger.to_json()["received"]["a"]["ff"], json!({"3": 3, "4": 1}));
    ledger.note("a", "ff", 4, 0, 2);
    assert_eq!(ledger.out_of_order, 1, "one is missing");
    ledger.note("a", "ff", 4, 0, 2);
    assert_eq!(ledger.out_of_order, 2, "one came twice");
}
