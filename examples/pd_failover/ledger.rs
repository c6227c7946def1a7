//! The parent's book of requests and faults: every request that was handed out has exactly one end.

use crate::faults::{Kind, RECOVERY};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A process, by its place in the parent's list.
pub(crate) type Process = usize;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Ok,
    Failed,
    /// A page did not hold what it must. Counts as failed too.
    Corrupt,
}

#[derive(Debug)]
struct Entry {
    /// `None`: there was no decode process to hand it to.
    decode: Option<Process>,
    prefill: Option<Process>,
    start: Instant,
    end: Option<(Instant, End)>,
    why: String,
    /// It is the first to say where its prefill is now.
    first: bool,
}

#[derive(Debug)]
struct Broken {
    kind: Kind,
    target: Process,
    start: Instant,
    /// When the peer was whole again.
    end: Option<Instant>,
    recovered: Option<Duration>,
    /// A request may fail because of it.
    excuses: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    requests: BTreeMap<u64, Entry>,
    faults: Vec<Broken>,
    ended_twice: u64,
}

/// What the book says at the end.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Totals {
    pub(crate) requests: u64,
    pub(crate) ok: u64,
    pub(crate) failed: u64,
    /// Failed, and none of its processes was broken: which request, and why it says it failed.
    pub(crate) without_fault: Vec<(u64, String)>,
    /// Requests without an end, and requests that ended twice.
    pub(crate) lost: u64,
    pub(crate) corrupt: u64,
    /// By [`Kind`], in its order.
    pub(crate) faults: [u64; Kind::NAMES.len()],
    pub(crate) recoverable: u64,
    pub(crate) recovered: u64,
    /// Sorted.
    pub(crate) recovery: Vec<Duration>,
    /// Requests that were the first to say where a restarted prefill is, and those of them that ended ok.
    pub(crate) firsts: u64,
    pub(crate) firsts_ok: u64,
}

impl Ledger {
    /// A request was handed to a decode process.
    pub(crate) fn handed(&mut self, request: u64, decode: Process, now: Instant) {
        let why = String::new();
        let entry = Entry { decode: Some(decode), prefill: None, start: now, end: None, why, first: false };
        self.requests.insert(request, entry);
    }

    /// A request that was handed out is the first to say where its prefill is now.
    pub(crate) fn is_first(&mut self, request: u64) {
        self.requests.get_mut(&request).into_iter().for_each(|entry| entry.first = true);
    }

    /// There was no decode process to hand it to: it failed.
    pub(crate) fn not_handed(&mut self, request: u64, now: Instant) {
        let end = Some((now, End::Failed));
        let why = "no decode is up".into();
        self.requests.insert(request, Entry { decode: None, prefill: None, start: now, end, why, first: false });
    }

    /// A decode process says how a request ended, and which prefill process it was sent to.
    pub(crate) fn ended(&mut self, request: u64, prefill: Option<Process>, end: End, why: &str, now: Instant) {
        let Some(entry) = self.requests.get_mut(&request).filter(|entry| entry.end.is_none()) else {
            self.ended_twice += 1;
            return;
        };
        entry.prefill = prefill;
        entry.end = Some((now, end));
        entry.why = why.into();
        if end != End::Ok {
            return;
        }
        for fault in &mut self.faults {
            let met = Some(fault.target) == entry.decode || Some(fault.target) == prefill;
            let Some(whole) = fault.end.filter(|whole| met && entry.start >= *whole) else { continue };
            if fault.recovered.is_none() {
                fault.recovered = Some(now - whole);
            }
        }
    }

    /// A decode process died: what it had not ended has failed, because its owner died.
    pub(crate) fn owner_died(&mut self, decode: Process, now: Instant) {
        let open = self.requests.values_mut().filter(|entry| entry.decode == Some(decode) && entry.end.is_none());
        open.for_each(|entry| {
            entry.end = Some((now, End::Failed));
            entry.why = "its owner died".into();
        });
    }

    pub(crate) fn open_requests(&self) -> usize {
        self.requests.values().filter(|entry| entry.end.is_none()).count()
    }

    /// Gives the fault's number.
    pub(crate) fn fault_began(&mut self, kind: Kind, target: Process, excuses: bool, now: Instant) -> usize {
        self.faults.push(Broken { kind, target, start: now, end: None, recovered: None, excuses });
        self.faults.len() - 1
    }

    pub(crate) fn fault_ended(&mut self, fault: usize, now: Instant) {
        self.faults[fault].end.get_or_insert(now);
    }

    /// A process is whole again: what was wrong with it is over.
    pub(crate) fn mended(&mut self, process: Process, now: Instant) {
        let open = self.faults.iter_mut().filter(|fault| fault.target == process && fault.end.is_none());
        open.for_each(|fault| fault.end = Some(now));
    }

    /// How many requests there are, and how many of them have not ended.
    pub(crate) fn progress(&self) -> (usize, usize) {
        (self.requests.len(), self.open_requests())
    }

    /// Whether a fault of this process is not over.
    pub(crate) fn is_broken(&self, process: Process) -> bool {
        self.faults.iter().any(|fault| fault.target == process && fault.end.is_none())
    }

    /// Whether every fault is over and has recovered, or had its time to.
    pub(crate) fn nothing_more_recovers(&self, now: Instant) -> bool {
        let done = |fault: &Broken| fault.end.is_some_and(|end| fault.recovered.is_some() || end + RECOVERY < now);
        self.faults.iter().all(done)
    }

    /// The faults of this process so far: their kinds, and whether a request may fail because of them.
    pub(crate) fn faults_of(&self, process: Process) -> impl Iterator<Item = (Kind, bool)> {
        self.faults.iter().filter(move |fault| fault.target == process).map(|fault| (fault.kind, fault.excuses))
    }

    /// Counts. `prefills` are all processes a request may have been sent to, `now` is the end of the run.
    pub(crate) fn totals(&self, prefills: &[Process], now: Instant) -> Totals {
        let mut totals = Totals { requests: self.requests.len() as u64, lost: self.ended_twice, ..Totals::default() };
        for (request, entry) in &self.requests {
            if entry.first {
                totals.firsts += 1;
                totals.firsts_ok += u64::from(entry.end.is_some_and(|(_, end)| end == End::Ok));
            }
            match entry.end {
                None => totals.lost += 1,
                Some((_, End::Ok)) => totals.ok += 1,
                Some((end, how)) => {
                    totals.failed += 1;
                    totals.corrupt += u64::from(how == End::Corrupt);
                    if !self.explained(entry, end, prefills) {
                        totals.without_fault.push((*request, entry.why.clone()));
                    }
                }
            }
        }
        for fault in &self.faults {
            totals.faults[fault.kind as usize] += 1;
            if fault.end.is_some_and(|end| fault.recovered.is_some() || end + RECOVERY <= now) {
                totals.recoverable += 1;
                totals.recovery.extend(fault.recovered.filter(|after| *after <= RECOVERY));
            }
        }
        totals.recovered = totals.recovery.len() as u64;
        totals.recovery.sort();
        totals
    }

    /// Whether a fault of one of its two processes explains why a request failed. One that was sent nowhere is explained
    /// only by its decode process, or by a fault of every prefill process.
    fn explained(&self, entry: &Entry, end: Instant, prefills: &[Process]) -> bool {
        let touched = |process: Process| {
            let of_it = self.faults.iter().filter(move |fault| fault.target == process && fault.excuses);
            of_it
                .into_iter()
                .any(|fault| fault.start <= end && fault.end.is_none_or(|over| entry.start <= over + RECOVERY))
        };
        entry.decode.is_none_or(touched)
            || match entry.prefill {
                Some(prefill) => touched(prefill),
                None => prefills.iter().all(|prefill| touched(*prefill)),
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECODE: Process = 9;
    const PREFILLS: [Process; 2] = [0, 1];

    struct Book {
        ledger: Ledger,
        start: Instant,
    }

    impl Book {
        fn new() -> Self {
            Book { ledger: Ledger::default(), start: Instant::now() }
        }

        fn at(&self, second: u64) -> Instant {
            self.start + Duration::from_secs(second)
        }

        fn request(&mut self, id: u64, from: u64, to: u64, prefill: Option<Process>, end: End) {
            self.ledger.handed(id, DECODE, self.at(from));
            self.ledger.ended(id, prefill, end, "because", self.at(to));
        }

        fn fault(&mut self, target: Process, from: u64, to: u64) {
            let fault = self.ledger.fault_began(Kind::Stop, target, true, self.at(from));
            self.ledger.fault_ended(fault, self.at(to));
        }

        fn totals(&self) -> Totals {
            self.ledger.totals(&PREFILLS, self.at(100))
        }
    }

    #[test]
    fn a_request_without_an_end_is_lost_and_so_is_one_that_ends_twice() {
        let mut book = Book::new();
        book.ledger.handed(1, DECODE, book.at(0));
        assert_eq!(book.ledger.open_requests(), 1);
        book.request(2, 0, 1, Some(0), End::Ok);
        book.ledger.ended(2, Some(0), End::Ok, "", book.at(2));
        let totals = book.totals();
        assert_eq!((totals.requests, totals.ok, totals.lost), (2, 1, 2));
    }

    #[test]
    fn requests_of_a_killed_decode_fail_and_are_not_lost() {
        let mut book = Book::new();
        book.ledger.handed(1, DECODE, book.at(0));
        book.request(2, 0, 1, Some(0), End::Ok);
        book.fault(DECODE, 1, 2);
        book.ledger.owner_died(DECODE, book.at(1));
        let totals = book.totals();
        assert_eq!((totals.ok, totals.failed, totals.lost, totals.without_fault.len()), (1, 1, 0, 0));
    }

    #[test]
    fn a_failure_is_explained_by_its_own_two_processes_only_and_for_ten_seconds() {
        let mut book = Book::new();
        book.fault(0, 20, 25);
        book.request(1, 18, 21, Some(0), End::Failed); // explained
        book.request(2, 35, 36, Some(0), End::Failed); // explained: ten seconds later
        book.request(3, 36, 37, Some(0), End::Failed); // not
        book.request(4, 18, 19, Some(0), End::Failed); // not: over before the fault
        book.request(5, 21, 22, Some(1), End::Failed); // not: another prefill
        book.request(6, 21, 22, None, End::Failed); // not: the other prefill was well
        let unexplained: Vec<_> = book.totals().without_fault.iter().map(|(request, _)| *request).collect();
        assert_eq!(unexplained, [3, 4, 5, 6]);
        book.fault(1, 22, 23);
        assert_eq!(book.totals().without_fault.len(), 2, "the fifth and the sixth are explained now");
        book.fault(DECODE, 0, 99);
        assert_eq!(book.totals().without_fault.len(), 0);
    }

    #[test]
    fn a_fault_is_recovered_by_a_request_that_began_after_it() {
        let mut book = Book::new();
        book.fault(0, 20, 25);
        book.request(1, 24, 26, Some(0), End::Ok); // began before it was over
        book.request(2, 26, 27, Some(1), End::Ok); // another prefill
        assert_eq!((book.totals().recoverable, book.totals().recovered), (1, 0));
        book.request(3, 26, 28, Some(0), End::Ok);
        assert_eq!(book.totals().recovery, [Duration::from_secs(3)]);
        book.fault(0, 40, 41);
        book.request(4, 51, 52, Some(0), End::Ok); // too late
        assert_eq!((book.totals().recoverable, book.totals().recovered), (2, 1));
        book.fault(0, 91, 92); // ends too near to the end of the run
        assert_eq!((book.totals().recoverable, book.totals().faults), (2, [0, 3, 0, 0, 0, 0, 0]));
        assert!(!book.ledger.nothing_more_recovers(book.at(101)) && book.ledger.nothing_more_recovers(book.at(103)));
        book.request(5, 92, 93, Some(0), End::Ok);
        assert!(book.ledger.nothing_more_recovers(book.at(94)));
        assert_eq!((book.totals().recoverable, book.totals().recovered), (3, 2));
    }

    #[test]
    fn a_fault_that_excuses_nothing_explains_no_failure_and_a_first_request_is_counted_apart() {
        let mut book = Book::new();
        let fault = book.ledger.fault_began(Kind::Stop, 0, false, book.at(20));
        book.ledger.fault_ended(fault, book.at(22));
        book.request(1, 20, 21, Some(0), End::Failed);
        book.request(2, 23, 24, Some(0), End::Ok);
        book.request(3, 23, 24, Some(0), End::Ok);
        (1..3).for_each(|request| book.ledger.is_first(request));
        let totals = book.totals();
        assert_eq!((totals.without_fault.len(), totals.recovered), (1, 1));
        assert_eq!((totals.firsts, totals.firsts_ok), (2, 1));
        assert_eq!(book.ledger.faults_of(0).collect::<Vec<_>>(), [(Kind::Stop, false)]);
    }

    #[test]
    fn corrupt_counts_as_failed_too() {
        let mut book = Book::new();
        book.request(1, 0, 1, Some(0), End::Corrupt);
        assert_eq!((book.totals().corrupt, book.totals().failed), (1, 1));
    }
}
