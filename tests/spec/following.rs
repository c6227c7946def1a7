//! Promise 12, as it happens: who subscribes hears of every peer's state, then of each transition once and in order.

use crate::common::*;
use peerage::transport::memory::MemoryAddress;
use peerage::{Change, Event, Events, PeerTable, Phase, Transport};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// Name and phase of what was heard; the test's own helpers are left out.
fn heard(events: &mut Events) -> Vec<(String, Phase)> {
    let told = events.try_iter().map(|event| match event {
        Event::Current(change) | Event::Changed(change) => (change.name.to_string(), change.transition.phase),
        other => panic!("{other:?}"),
    });
    told.filter(|(name, _)| !name.starts_with("settle")).collect()
}

fn pairs(of: &[(&str, Phase)]) -> Vec<(String, Phase)> {
    of.iter().map(|(name, phase)| (name.to_string(), *phase)).collect()
}

#[test]
fn a_subscription_begins_with_every_peers_state_and_goes_on_with_each_transition() {
    let world = world();
    let (peer, _idle) = (world.connected("p"), world.peer("q"));
    block_on(world.peer("gone").remove(world.after(SECOND)));
    let mut events = world.table.events();
    let first: Vec<_> = events.try_iter().collect();
    assert!(first.iter().all(|event| matches!(event, Event::Current(_))));
    let of = |name| {
        first.iter().find_map(|event| match event {
            Event::Current(change) if change.name.as_str() == name => Some(change.clone()),
            _ => None,
        })
    };
    let (p, q) = (of("p").unwrap(), of("q").unwrap());
    assert_eq!((p.id, p.transition.phase, p.transition.generation), (peer.id(), Phase::Ready, peer.generation()));
    assert_eq!((q.transition.phase, of("gone")), (Phase::Idle, None));

    peer.report(peer.generation(), &broken());
    world.reconnect(&peer);
    let late = world.peer("late");
    block_on(late.remove(world.after(SECOND)));
    let expected = [
        ("p", Phase::Failed),
        ("p", Phase::Connecting),
        ("p", Phase::Ready),
        ("late", Phase::Idle),
        ("late", Phase::Removing),
        ("late", Phase::Removed),
    ];
    assert_eq!(heard(&mut events), pairs(&expected));
}

#[test]
fn each_subscription_hears_everything_and_a_dropped_one_nothing_more() {
    let world = world();
    let (mut one, mut two, three) = (world.table.events(), world.table.events(), world.table.events());
    drop(three);
    world.peer("p");
    let expected = pairs(&[("p", Phase::Idle)]);
    assert_eq!((heard(&mut one), heard(&mut two)), (expected.clone(), expected));
}

#[test]
fn a_slow_reader_is_told_how_many_it_missed_and_finds_the_newest() {
    let world = world();
    let mut events = world.table.events();
    for at in 0..400 {
        let name = format!("p{at}");
        let peer = world.table.insert(name.as_str(), MemoryAddress::new(&name)).unwrap();
        block_on(peer.remove(world.after(SECOND)));
    }
    assert_eq!(events.try_recv(), Some(Event::Missed(3 * 400 - 1024)));
    assert_eq!(events.try_iter().filter(|event| matches!(event, Event::Changed(_))).count(), 1024);
    world.peer("p");
    assert_eq!(heard(&mut events), pairs(&[("p", Phase::Idle)]));
}

#[test]
fn a_reader_may_wait_by_thread_and_by_future_until_the_table_ends() {
    let world = world();
    let (table, mut by_future) = (world.table.clone(), world.table.events());
    let mut by_thread = table.events();
    assert_eq!(by_thread.recv(world.clock.now()), None, "the deadline is over");
    let deadline = world.after(3600 * SECOND);
    let reader = thread::spawn(move || by_thread.iter_until(deadline).count());
    let reader_two = thread::spawn(move || {
        let mut heard = 0;
        while block_on(by_future.next()).is_some() {
            heard += 1;
        }
        heard
    });
    world.connected("p");
    let report = table.shutdown(deadline).wait().unwrap();
    assert!(report.is_clean());
    drop((table, world));
    let five = 5; // Idle, Connecting, Ready, Removing, Removed
    assert_eq!((reader.join().unwrap(), reader_two.join().unwrap()), (five, five));
}

/// What one reader knows of each peer by what it heard.
#[derive(Default)]
struct Follower(HashMap<u64, Change>);

impl Follower {
    fn hear(&mut self, event: Event) {
        match event {
            Event::Current(change) => assert_eq!(self.0.insert(change.id.to_bits(), change), None),
            Event::Changed(change) => {
                let before = self.0.get(&change.id.to_bits()).map(|known| known.transition);
                assert_eq!(change.transition.before, before.map(|known| known.phase), "{change:?}");
                let known_since = before.map(|known| change.transition.since - known.since);
                assert_eq!(change.transition.lasted, known_since, "{change:?}");
                if change.transition.phase == Phase::Removed {
                    self.0.remove(&change.id.to_bits());
                } else {
                    self.0.insert(change.id.to_bits(), change);
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Ends the churn, also when the test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Inserts, fails and removes peers until `over`.
fn churn<T: Transport>(table: &PeerTable<T>, name: &str, address: T::Address, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        let peer = table.insert(name, address.clone()).unwrap();
        if peer.wait_ready(far()).is_ok() {
            peer.report(peer.generation(), &broken());
        }
        block_on(peer.remove(far()));
    }
}

#[test]
fn whenever_a_subscription_begins_no_transition_is_lost_told_twice_or_out_of_order() {
    let fleet = InMemory::of(&["a", "b", "c"]);
    let (table, over) = (table_of(&fleet), AtomicBool::new(false));
    thread::scope(|scope| {
        for name in ["a", "b", "c"] {
            let (table, address, over) = (&table, fleet.address(name), &over);
            scope.spawn(move || churn(table, name, address, over));
        }
        let _over = Over(&over);
        for _ in 0..100 {
            let (mut events, mut follower) = (table.events(), Follower::default());
            for _ in 0..30 {
                follower.hear(events.recv(far()).expect("the churn goes on"));
            }
        }
    });
}
