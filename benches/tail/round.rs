//! One sender, one who reconnects, for a tenth of a second.

use crate::contestants::{Contestant, PEERS};
use crate::cores::pin;
use crate::{INTERVAL, PERIOD};
use hdrhistogram::Histogram;
use std::error::Error;
use std::hint::spin_loop;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Five reconnects.
const LENGTH: Duration = Duration::from_millis(100);
/// Time for both threads to come to their core.
const START: Duration = Duration::from_millis(2);

pub(crate) struct Round<'a> {
    pub(crate) contestant: &'a Contestant,
    pub(crate) reconnecting: bool,
    /// The sender's, and everybody else's.
    pub(crate) cores: [usize; 2],
}

/// Nanoseconds, three digits right.
pub(crate) fn empty() -> Result<Histogram<u64>, Box<dyn Error>> {
    Ok(Histogram::new_with_bounds(1, 60_000_000_000, 3)?)
}

impl Round<'_> {
    /// Latencies of the sends.
    pub(crate) fn run(&self) -> Result<Histogram<u64>, Box<dyn Error>> {
        let mut latencies = empty()?;
        let over = AtomicBool::new(false);
        let start = Instant::now() + START;
        thread::scope(|scope| {
            scope.spawn(|| self.reconnect(start, &over));
            let sender = scope.spawn(|| {
                let sent = self.send(start, &mut latencies);
                over.store(true, Ordering::Relaxed);
                sent
            });
            sender.join().expect("no contestant panics")
        })?;
        Ok(latencies)
    }

    fn send(&self, start: Instant, latencies: &mut Histogram<u64>) -> io::Result<()> {
        pin(self.cores[0])?;
        let mut random = 0x9E37_79B9_7F4A_7C15_u64;
        let mut due = start;
        while due < start + LENGTH {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let peer = 1 + random as usize % (PEERS - 1);
            while Instant::now() < due {
                spin_loop();
            }
            (self.contestant.send)(peer);
            latencies.saturating_record(due.elapsed().as_nanos() as u64);
            due += INTERVAL;
        }
        Ok(())
    }

    fn reconnect(&self, start: Instant, over: &AtomicBool) {
        let mut next = start + PERIOD / 8;
        while !over.load(Ordering::Relaxed) {
            thread::sleep(next.saturating_duration_since(Instant::now()));
            if self.reconnecting {
                (self.contestant.reconnect)();
            }
            next += PERIOD;
        }
    }
}
