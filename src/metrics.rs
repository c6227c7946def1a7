//! The feature `metrics`: what a table tells the [`metrics`](https://docs.rs/metrics) facade, under Prometheus' conventions.
//!
//! Two metrics are counted where they happen, at transitions; a recorder must not block there, because they may happen on
//! the table's driver. The others are taken from a [`Snapshot`](crate::Snapshot) whenever [`record`] is called: before each
//! scrape, or on a timer. Nothing is recorded on the path of a lease.
//!
//! | metric | kind | labels | is |
//! |---|---|---|---|
//! | `peerage_connects_total` | counter | `outcome`: `ready`, or why it failed: `connect_failed`, `timed_out`, `broken`, `wrong_incarnation`, `incompatible`, `replaced`, `new_incarnation`, `removed`, `shut_down` | attempts to connect that ended |
//! | `peerage_connect_duration_seconds` | histogram | `outcome` | how long they ran |
//! | `peerage_peers` | gauge | `phase`: `idle`, `connecting`, `ready`, `failed`, `removing` | peers that stand there |
//! | `peerage_leases` | gauge | | leases of current generations |
//! | `peerage_draining_leases` | gauge | | leases of older generations, not given back |
//! | `peerage_transfers` | gauge | | transfers in flight |
//! | `peerage_quarantined_transfers` | gauge | | transfers that ended for their caller and still hold their pages |
//! | `peerage_stalled_transfers` | gauge | | transfers of which no byte moves |
//! | `peerage_grants` | gauge | | grants that are not quiesced |
//! | `peerage_quarantined_grants` | gauge | | grants that were revoked and are not quiesced |
//! | `peerage_quarantined_bytes` | gauge | | bytes of the transfers and grants in quarantine |
//! | `peerage_open_breakers` | gauge | | peers whose breaker is open |
//! | `peerage_stuck_connects` | gauge | | native connects that run beyond their attempt's deadline |
//! | `peerage_stuck_closes` | gauge | | native closes that run beyond `close_timeout` |
//! | `peerage_leaked_connections_total` | counter | | connections that the native side did not take back |
//! | `peerage_elections_total` | counter | | elections won, each for one attempt |
//! | `peerage_reports_total` | counter | `answer`: `failed`, `stale` | reports that failed a generation, and those that came late |
//!
//! No metric has the peer's name: a fleet would make thousands of series. `docs/grafana.json` in the repository is a dashboard
//! of all of them, and `examples/status` serves them to Prometheus. Several tables of one process record into the same
//! metrics, over each other: give each a recorder of its own, by `metrics::with_local_recorder` around [`record`].

use crate::events::Change;
use crate::state::Phase;
use crate::table::PeerTable;
use crate::transport::Transport;
use ::metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

const PHASES: [Phase; 5] = [Phase::Idle, Phase::Connecting, Phase::Ready, Phase::Failed, Phase::Removing];

/// Tells the installed recorder what units and meaning the metrics have. Once, after it is installed.
pub fn describe() {
    describe_counter!("peerage_connects_total", Unit::Count, "Attempts to connect that ended");
    describe_histogram!("peerage_connect_duration_seconds", Unit::Seconds, "How long attempts to connect ran");
    describe_gauge!("peerage_peers", Unit::Count, "Peers by phase");
    describe_gauge!("peerage_leases", Unit::Count, "Leases of current generations");
    describe_gauge!("peerage_draining_leases", Unit::Count, "Leases of older generations, not given back");
    describe_gauge!("peerage_transfers", Unit::Count, "Transfers in flight");
    describe_gauge!("peerage_quarantined_transfers", Unit::Count, "Transfers that ended and still hold their pages");
    describe_gauge!("peerage_stalled_transfers", Unit::Count, "Transfers of which no byte moves");
    describe_gauge!("peerage_grants", Unit::Count, "Grants that are not quiesced");
    describe_gauge!("peerage_quarantined_grants", Unit::Count, "Grants that were revoked and are not quiesced");
    describe_gauge!("peerage_quarantined_bytes", Unit::Bytes, "Bytes of transfers and grants in quarantine");
    describe_gauge!("peerage_open_breakers", Unit::Count, "Peers whose breaker is open");
    describe_gauge!("peerage_stuck_connects", Unit::Count, "Native connects beyond their attempt's deadline");
    describe_gauge!("peerage_stuck_closes", Unit::Count, "Native closes beyond close_timeout");
    describe_counter!("peerage_leaked_connections_total", Unit::Count, "Connections the native side did not take back");
    describe_counter!("peerage_elections_total", Unit::Count, "Elections won, each for one attempt");
    describe_counter!(
        "peerage_reports_total",
        Unit::Count,
        "Reports, by whether they failed a generation or came late"
    );
}

/// Records the table's snapshot: every metric of this module's table but the two that are counted at transitions. Takes no
/// lock of the table's; costs a snapshot.
pub fn record<T: Transport>(table: &PeerTable<T>) {
    let snapshot = table.snapshot();
    for phase in PHASES {
        let here = snapshot.peers.iter().filter(|peer| peer.phase == phase).count();
        gauge!("peerage_peers", "phase" => phase.label()).set(here as f64);
    }
    let sum = |of: fn(&crate::PeerStatus) -> u64| snapshot.peers.iter().map(of).sum::<u64>() as f64;
    gauge!("peerage_leases").set(sum(|peer| peer.leases));
    gauge!("peerage_draining_leases").set(sum(|peer| peer.draining));
    gauge!("peerage_transfers").set(sum(|peer| peer.transfers));
    gauge!("peerage_quarantined_transfers").set(snapshot.quarantined as f64);
    gauge!("peerage_stalled_transfers").set(sum(|peer| peer.stalled));
    gauge!("peerage_grants").set(sum(|peer| peer.grants));
    gauge!("peerage_quarantined_grants").set(snapshot.quarantined_grants as f64);
    gauge!("peerage_quarantined_bytes").set(snapshot.quarantined_bytes as f64);
    gauge!("peerage_open_breakers")
        .set(sum(|peer| u64::from(peer.record.as_ref().is_some_and(|record| record.breaker_open))));
    gauge!("peerage_stuck_connects").set(snapshot.stuck_connects as f64);
    gauge!("peerage_stuck_closes").set(snapshot.stuck_closes as f64);
    counter!("peerage_leaked_connections_total").absolute(snapshot.leaked);
    counter!("peerage_elections_total").absolute(snapshot.elections);
    counter!("peerage_reports_total", "answer" => "failed").absolute(snapshot.reports);
    counter!("peerage_reports_total", "answer" => "stale").absolute(snapshot.stale_reports);
}

/// The end of an attempt is counted where it happens.
pub(crate) fn changed(change: &Change) {
    let transition = &change.transition;
    if transition.before == Some(Phase::Connecting) {
        let outcome = transition.reason.label();
        counter!("peerage_connects_total", "outcome" => outcome).increment(1);
        let ran = transition.lasted.unwrap_or_default();
        histogram!("peerage_connect_duration_seconds", "outcome" => outcome).record(ran.as_secs_f64());
    }
}
