//! Sends to one peer while another is connected again and again: NIXL holds the agent's lock through each connect.

use crate::process::say;
use crate::served::Served;
use peerage::transport::nixl::Nixl;
use peerage::{Backoff, NotifyError, PeerTable, Phase};
use std::io::Error;
use std::time::{Duration, Instant};

/// Names of the other, one after the other: which agent it has depends on its name.
const NAMES: usize = 8;
const TIME: Duration = Duration::from_secs(2);
/// One send is due every so long.
const EVERY: Duration = Duration::from_micros(200);
const LATE: Duration = Duration::from_millis(1);

/// A line for each name: sends, connects, the share of sends that took longer than [`LATE`], the longest in microseconds.
pub(crate) fn measure(agents: usize) -> Result<(), Box<dyn std::error::Error>> {
    let healthy = Served::start("healthy")?;
    for name in 0..NAMES {
        let name = format!("other-{name}");
        let other = Served::start(&name)?;
        let nixl = Nixl::builder().name("here".try_into()?).agents(agents).build()?;
        let backoff = Backoff { base: Duration::from_millis(1), cap: Duration::from_millis(1), ..Backoff::default() };
        let table = PeerTable::builder(nixl).backoff(backoff).breaker(None).build()?;
        let to_healthy = table.insert("healthy", healthy.address.clone())?;
        to_healthy.wait_ready(Instant::now() + Duration::from_secs(10))?;
        let to_other = table.insert(name.as_str(), other.address.clone())?;
        let (mut took, begin) = (Vec::new(), Instant::now());
        while begin.elapsed() < TIME {
            let due = begin + EVERY * took.len() as u32;
            while let Some(left) = due.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
                std::thread::sleep(left);
            }
            match to_other.phase() {
                Phase::Ready => drop(to_other.report(to_other.generation(), &Error::other("again"))),
                // Asks for the next, if none is under way.
                _ => drop(to_other.lease()),
            }
            let start = Instant::now();
            match to_healthy.lease()?.notify(b"x") {
                Ok(()) | Err(NotifyError::Busy { .. }) => took.push(start.elapsed()),
                Err(error) => return Err(error.into()),
            }
        }
        let late = took.iter().filter(|took| **took > LATE).count() as f64 / took.len() as f64;
        let longest = took.iter().max().copied().unwrap_or_default();
        say(&[took.len() as f64, to_other.generation().0 as f64, late, longest.as_secs_f64() * 1e6]);
    }
    Ok(())
}
