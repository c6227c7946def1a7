//! Steady traffic to all peers: a notification each turn, a page to be written every few turns. Nothing here waits.

use super::message::Message;
use super::{Worker, clerk, lock};
use crate::transport::{Net, Wire};
use peerage::{NotifyError, Peer};
use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

const TURN: Duration = Duration::from_millis(4);
/// Turns from one page to the next.
const PAGE_TURNS: u64 = 5;

pub(super) fn send_for_ever<W: Wire>(worker: &Worker<W>, thread: u64) {
    let mut numbers = Numbers::default();
    for turn in 0.. {
        if worker.rest.load(Relaxed) {
            worker.resting.fetch_add(1, Relaxed);
            return;
        }
        let mates = lock(&worker.mates).clone();
        for (nth, mate) in mates.iter().enumerate() {
            note(worker, &mate.peer, thread, &mut numbers);
            if (turn + thread + nth as u64).is_multiple_of(PAGE_TURNS) {
                clerk::lend(worker, mate);
            }
        }
        thread::sleep(TURN);
    }
}

/// The next number of this thread, by peer: of which generation, and which.
type Numbers = HashMap<String, (u64, u64)>;

fn note<W: Wire>(worker: &Worker<W>, mate: &Peer<Net<W>>, thread: u64, numbers: &mut Numbers) {
    let name = mate.name().as_str();
    if !lock(&worker.ledger).of(name).may_note() {
        return;
    }
    let lease = match mate.lease() {
        Ok(lease) => lease,
        Err(not_ready) => return lock(&worker.ledger).of(name).error(not_ready),
    };
    let generation = lease.generation().0;
    let number = numbers.entry(name.to_owned()).or_default();
    if number.0 != generation {
        *number = (generation, 0);
    }
    let sent = lease.notify(&Message::Note { thread, nth: number.1 }.to_bytes());
    let mut ledger = lock(&worker.ledger);
    let tally = ledger.of(name);
    tally.met = true;
    match sent {
        Ok(()) => {
            number.1 += 1;
            tally.accepted(generation);
        }
        // Nothing was sent, and nothing is wrong.
        Err(NotifyError::Busy { .. }) => {}
        Err(error) => tally.error(error),
    }
}
