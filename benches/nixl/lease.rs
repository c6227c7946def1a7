//! A lease of a peer over NIXL, taken and left.

use crate::process::say;
use crate::served::Served;
use peerage::PeerTable;
use peerage::transport::nixl::Nixl;
use rustix::time::{ClockId, clock_gettime};
use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

const TIMES: u32 = 200_000;

/// A line for each round: nanoseconds of this thread's CPU time.
pub(crate) fn measure(rounds: usize) -> Result<(), Box<dyn Error>> {
    let table = PeerTable::builder(Nixl::named("here".try_into()?)?).build()?;
    let served = Served::start("served")?;
    let peer = table.insert("served", served.address.clone())?;
    peer.wait_ready(Instant::now() + Duration::from_secs(10))?;
    for round in 0..=rounds {
        let begin = now();
        for _ in 0..TIMES {
            black_box(peer.lease()?);
        }
        // The first is to warm up.
        if round > 0 {
            say(&[(now() - begin).as_nanos() as f64 / f64::from(TIMES)]);
        }
    }
    Ok(())
}

fn now() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
