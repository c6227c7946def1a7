//! How long it takes to send to a healthy peer, measured open loop: the next notification is due whether or not the last
//! one has returned, and its time counts from when it was due.

use super::Setup;
use crate::latency::{Column, Latencies};
use crate::modes::{PeerIndex, Peers};
use crate::wire::Message;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

#[derive(Default)]
pub(crate) struct Switch(AtomicBool);

impl Switch {
    pub(crate) fn set(&self, on: bool) {
        self.0.store(on, Relaxed);
    }
}

pub(crate) fn start(setup: &Setup, peers: Arc<dyn Peers>, on: Arc<Switch>, latencies: Arc<Mutex<Latencies>>) {
    let names: Vec<_> = setup.peers.iter().map(|(name, _)| name.clone()).collect();
    let targets = super::prefills(&names).map(|peer| (peer, names[peer].clone())).collect();
    let (every, slow) = (setup.probe_every, setup.connect_delay / 2);
    let prober = Prober { peers, targets, slow, latencies, unsorted: VecDeque::new() };
    thread::spawn(move || prober.run(every, &on));
}

struct Prober {
    peers: Arc<dyn Peers>,
    targets: Vec<(PeerIndex, String)>,
    slow: Duration,
    latencies: Arc<Mutex<Latencies>>,
    unsorted: VecDeque<Sample>,
}

struct Sample {
    due: Instant,
    took: Duration,
    /// Which of the targets.
    to: usize,
}

impl Prober {
    fn run(mut self, every: Duration, on: &Switch) {
        let message = Message::Probe.to_bytes();
        let mut due = Instant::now();
        for turn in 0.. {
            if !on.0.load(Relaxed) {
                thread::sleep(Duration::from_millis(2));
                due = Instant::now();
                continue;
            }
            due += every;
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let sent = (0..self.targets.len()).map(|nth| (turn + nth) % self.targets.len()).find(|to| {
                let link = self.peers.link_if_up(self.targets[*to].0);
                link.is_some_and(|link| link.notify(&message).is_ok())
            });
            if let Some(to) = sent {
                self.unsorted.push_back(Sample { due, took: due.elapsed(), to });
            }
            self.sort();
        }
    }

    /// Puts a sample into its column: did a connect to another peer run when it was due, or before it was slow? That is
    /// known a little later. To ask what ran until it returned would be unfair: whatever holds a send up for long, be it
    /// only the scheduler, makes it more likely that a connect begins meanwhile.
    fn sort(&mut self) {
        while self.unsorted.front().is_some_and(|sample| sample.due.elapsed() > self.slow) {
            let Some(Sample { due, took, to }) = self.unsorted.pop_front() else { return };
            let ran = self.peers.net().connect_ran(&self.targets[to].1, due, due + self.slow);
            let column = if ran { Column::Reconnecting } else { Column::Quiet };
            let mut latencies = self.latencies.lock().unwrap_or_else(PoisonError::into_inner);
            latencies.column(column).add(took, self.slow);
        }
    }
}
