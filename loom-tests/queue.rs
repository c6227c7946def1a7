//! How a slot reaches the driver. The rules are at the head of src/queue.rs.

use crate::explore;
use crate::thread;
use crate::wire::{Here, Wire, World};
use loom::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use peerage::__internal::tell;
use peerage::{Capabilities, Peer, PeerId};
use std::sync::Arc;

/// Two peers, and what is told of each. Relaxed: only the queue orders it.
struct Told {
    world: World,
    news: [AtomicUsize; 2],
}

impl Told {
    fn new() -> (Arc<Self>, [Peer<Wire>; 2]) {
        let world = World::new(Capabilities::NONE, 1);
        let peers = [world.peer.clone(), world.table.table().insert("q", Here).unwrap()];
        (Arc::new(Told { world, news: [AtomicUsize::new(0), AtomicUsize::new(0)] }), peers)
    }

    fn tell(&self, peer: &Peer<Wire>, news: usize) {
        self.news[self.number(peer.id())].fetch_or(news, Relaxed);
        tell(peer, 1);
    }

    fn number(&self, peer: PeerId) -> usize {
        usize::from(peer != self.world.peer.id())
    }

    /// The driver's part: answers whether anything was queued.
    fn look(&self, seen: &mut [usize; 2]) -> bool {
        self.world.table.take(|peer, _| seen[self.number(peer)] |= self.news[self.number(peer)].load(Relaxed))
    }

    fn end(self: Arc<Self>) {
        let Some(Told { world, .. }) = Arc::into_inner(self) else { panic!("a thread is not over") };
        Arc::new(world).end();
    }
}

/// Two tellers and two peers; the driver takes its list while they tell, and once more when they are done.
#[test]
fn news_told_while_the_slot_is_queued_or_processed_is_seen() {
    explore(2, || {
        let (told, [p, q]) = Told::new();
        let (first, second) = (told.clone(), told.clone());
        let also_p = p.clone();
        let tellers = [
            thread::spawn(move || first.tell(&p, 1)),
            thread::spawn(move || {
                second.tell(&q, 1);
                second.tell(&also_p, 2);
            }),
        ];
        let mut seen = [0, 0];
        told.look(&mut seen);
        told.look(&mut seen);
        for teller in tellers {
            teller.join().unwrap();
        }
        told.look(&mut seen);
        assert_eq!(seen, [3, 1], "news was told and never seen");
        told.end();
    });
}

/// One teller; the driver sleeps whenever its list is empty. A lost wake-up is a deadlock, which loom reports.
#[test]
fn the_teller_that_finds_the_list_empty_wakes_the_driver() {
    explore(2, || {
        let (told, [p, q]) = Told::new();
        told.world.table.driven_here();
        let telling = told.clone();
        let teller = thread::spawn(move || {
            telling.tell(&p, 1);
            telling.tell(&p, 2);
            telling.tell(&q, 1);
            drop((p, q));
            drop(telling);
        });
        let mut seen = [0, 0];
        while seen != [3, 1] {
            if !told.look(&mut seen) {
                thread::park();
            }
        }
        // Not `join`: an unpark that comes late would wake it, and loom does not bear that.
        while Arc::strong_count(&told) > 1 {
            thread::yield_now();
        }
        drop(teller);
        told.end();
    });
}

/// The last one out of a closed gate tells the driver, and the driver closes, frees the slot and ends the table meanwhile:
/// the lease was the only one that kept them.
#[test]
fn the_last_one_out_touches_nothing_of_a_table_that_is_gone() {
    explore(2, || {
        let (world, first) = World::ready(Capabilities::NONE, 1);
        let lease = world.peer.lease().unwrap();
        let holder = thread::spawn(move || drop(lease));
        world.report(first);
        while world.log.open_connections() > 0 {
            world.table.run();
            thread::yield_now();
        }
        world.end();
        holder.join().unwrap();
    });
}
