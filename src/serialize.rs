//! What is seen of a table, for serde: numbers and text that mean something to another process.
//!
//! - Instants mean nothing outside a process, so times are seconds, as fractions, and their names say so: `age_seconds` since
//!   it began, `lasted_seconds`, `retry_in_seconds` (0 once it is over). In a [`Snapshot`] and a [`PeerStatus`] they count from
//!   when it was taken, by the table's clock; in a [`Record`], a [`Transition`] and an [`Event`] from when it is serialized,
//!   by the system's clock.
//! - Phases and reasons are words in snake case, with the native code beside them; ids and generations are numbers,
//!   incarnations 16 hexadecimal digits.
//! - Nothing here has ever seen a grant's secret or a page.

use crate::error::Reason;
use crate::events::{Change, Event};
use crate::history::{Transition, native_code};
use crate::name::{Incarnation, PeerId, PeerName};
use crate::record::Record;
use crate::region::RegionId;
use crate::shutdown::ShutdownReport;
use crate::state::{Generation, Phase};
use crate::status::PeerStatus;
use crate::status::Snapshot;
use serde::ser::{Serialize, SerializeStruct, Serializer};
use std::time::Instant;

macro_rules! fields {
    ($serializer:ident, $name:literal, $($key:literal: $value:expr,)*) => {{
        let mut fields = $serializer.serialize_struct($name, [$($key),*].len())?;
        $(fields.serialize_field($key, &$value)?;)*
        fields.end()
    }};
}

impl Serialize for PeerName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl Serialize for PeerId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.to_bits())
    }
}

impl Serialize for Generation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl Serialize for Incarnation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Phase {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.label())
    }
}

/// Without its native code.
impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.label())
    }
}

// Taken apart field by field, so that a new one is not forgotten here.

impl Serialize for Snapshot {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Snapshot {
            peers,
            stuck_connects,
            stuck_closes,
            quarantined,
            quarantined_grants,
            quarantined_bytes,
            leaked,
            elections,
            elections_without_connect,
            reports,
            stale_reports,
        } = self;
        fields!(serializer, "Snapshot",
            "peers": peers,
            "stuck_connects": stuck_connects,
            "stuck_closes": stuck_closes,
            "quarantined": quarantined,
            "quarantined_grants": quarantined_grants,
            "quarantined_bytes": quarantined_bytes,
            "leaked": leaked,
            "elections": elections,
            "elections_without_connect": elections_without_connect,
            "reports": reports,
            "stale_reports": stale_reports,
        )
    }
}

impl Serialize for PeerStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let PeerStatus {
            name,
            id,
            phase,
            generation,
            record,
            leases,
            draining,
            transfers,
            quarantined,
            stalled,
            grants,
            quarantined_grants,
            quarantined_bytes,
            connecting,
            suspect,
            at,
        } = self;
        fields!(serializer, "PeerStatus",
            "name": name,
            "id": id,
            "phase": phase,
            "generation": generation,
            "record": record.as_ref().map(|record| RecordAt(record, *at)),
            "leases": leases,
            "draining": draining,
            "transfers": transfers,
            "quarantined": quarantined,
            "stalled": stalled,
            "grants": grants,
            "quarantined_grants": quarantined_grants,
            "quarantined_bytes": quarantined_bytes,
            "connecting": connecting,
            "suspect": suspect,
        )
    }
}

impl Serialize for Record {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        RecordAt(self, Instant::now()).serialize(serializer)
    }
}

/// A record as seen at a time.
struct RecordAt<'a>(&'a Record, Instant);

impl Serialize for RecordAt<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let RecordAt(record, now) = self;
        let Record {
            name,
            phase,
            generation,
            incarnation,
            address,
            reason,
            last_error,
            since,
            attempts,
            failures,
            breaker_open,
            group,
            retry_at,
        } = record;
        let retry_in = retry_at.map(|at| at.saturating_duration_since(*now).as_secs_f64());
        fields!(serializer, "Record",
            "name": name,
            "phase": phase,
            "generation": generation,
            "incarnation": incarnation,
            "address": &**address,
            "reason": reason,
            "native_code": native_code(*reason),
            "last_error": last_error.as_deref(),
            "age_seconds": now.saturating_duration_since(*since).as_secs_f64(),
            "attempts": attempts,
            "failures": failures,
            "breaker_open": breaker_open,
            "group": group,
            "retry_in_seconds": retry_in,
        )
    }
}

impl Serialize for Transition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        fields!(serializer, "Transition",
            "before": self.before,
            "lasted_seconds": self.lasted.map(|lasted| lasted.as_secs_f64()),
            "phase": self.phase,
            "generation": self.generation,
            "reason": self.reason,
            "native_code": self.native_code(),
            "age_seconds": Instant::now().saturating_duration_since(self.since).as_secs_f64(),
        )
    }
}

impl Serialize for Change {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        fields!(serializer, "Change", "name": self.name, "id": self.id, "transition": self.transition,)
    }
}

/// One key: `current`, `changed` or `missed`.
impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Event::Current(change) => serializer.serialize_newtype_variant("Event", 0, "current", change),
            Event::Changed(change) => serializer.serialize_newtype_variant("Event", 1, "changed", change),
            Event::Missed(many) => serializer.serialize_newtype_variant("Event", 2, "missed", many),
        }
    }
}

impl Serialize for ShutdownReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let regions: Vec<u64> = self.still_registered.iter().map(|RegionId(id)| *id).collect();
        fields!(serializer, "ShutdownReport",
            "leaked_leases": self.leaked_leases,
            "stuck_connects": self.stuck_connects,
            "leaked_connections": self.leaked_connections,
            "quarantined": self.quarantined,
            "still_registered": regions,
            "used_after_fork": self.used_after_fork,
        )
    }
}
