//! A peer in one line of a log.

use crate::error::Reason;
use crate::peer::Peer;
use crate::record::Record;
use crate::state::Phase;
use crate::status::PeerStatus;
use crate::transport::Transport;
use std::fmt;
use std::time::{Duration, Instant};

/// The same line as of its [`status`](Peer::status).
impl<T: Transport> fmt::Display for Peer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.status().fmt(f)
    }
}

/// One line for people, whose form may change: `prefill-0 Ready g17 (incarnation 00000000000000a1, 3 leases, 2 transfers,
/// up 4.2 s)`. Counts that are zero are left out; an error is quoted, so the line stays one.
impl fmt::Display for PeerStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} (", self.name, self.phase, self.generation)?;
        let Some(record) = &self.record else { return f.write_str("changing)") };
        if self.phase != Phase::Ready {
            why(f, record)?;
        }
        if let Some(incarnation) = record.incarnation {
            write!(f, "incarnation {incarnation}, ")?;
        }
        for (count, one, many) in [
            (self.leases, "lease", "leases"),
            (self.draining, "lease draining", "leases draining"),
            (self.transfers, "transfer", "transfers"),
            (self.quarantined, "transfer quarantined", "transfers quarantined"),
            (self.stalled, "transfer stalled", "transfers stalled"),
            (self.grants, "grant", "grants"),
            (self.quarantined_grants, "grant quarantined", "grants quarantined"),
        ] {
            match count {
                0 => {}
                1 => write!(f, "1 {one}, ")?,
                _ => write!(f, "{count} {many}, ")?,
            }
        }
        let lasts = self.at.saturating_duration_since(record.since);
        write!(f, "{} {}", if self.phase == Phase::Ready { "up" } else { "for" }, Seconds(lasts))?;
        if let Some(left) = time_to_retry(self.phase, record, self.at) {
            write!(f, ", next try in {}", Seconds(left))?;
        }
        f.write_str(")")
    }
}

fn why(f: &mut fmt::Formatter<'_>, record: &Record) -> fmt::Result {
    if !matches!(record.reason, Reason::Connecting | Reason::Removed) {
        write!(f, "{}", record.reason)?;
        match &record.last_error {
            Some(error) if record.phase == Phase::Failed => write!(f, ": {error:?}, ")?,
            _ => f.write_str(", ")?,
        }
    }
    match record.failures {
        0 => Ok(()),
        1 => f.write_str("1 failure, "),
        many => write!(f, "{many} failures in a row, "),
    }
}

/// How long the backoff still holds off an attempt.
fn time_to_retry(phase: Phase, record: &Record, now: Instant) -> Option<Duration> {
    let left = record.retry_at?.checked_duration_since(now)?;
    (phase == Phase::Failed && !left.is_zero()).then_some(left)
}

struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} s", self.0.as_secs_f64())
    }
}
