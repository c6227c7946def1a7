//! What other systems see of a table: JSON and traces.

#[path = "life/mod.rs"]
mod life;

use life::{SECOND, a_life, eventually, lock, world};
use peerage::Event;
use peerage::transport::memory::MemoryAddress;
use serde_json::json;
use std::sync::{Arc, Mutex};

#[test]
fn a_snapshot_in_json_has_times_that_another_process_understands() {
    let world = world();
    let peer = world.table.insert("p", MemoryAddress::new("p")).unwrap();
    peer.wait_ready(world.clock.now() + SECOND).unwrap();
    world.clock.advance(4 * SECOND);
    let lease = peer.lease().unwrap();
    let snapshot = serde_json::to_value(world.table.snapshot()).unwrap();
    let expected = json!({
        "peers": [{
            "name": "p",
            "id": peer.id().to_bits(),
            "phase": "ready",
            "generation": lease.generation().0,
            "record": {
                "name": "p",
                "phase": "ready",
                "generation": lease.generation().0,
                "incarnation": world.fabric.node("p").incarnation().to_string(),
                "address": "memory:p",
                "reason": "ready",
                "native_code": null,
                "last_error": null,
                "age_seconds": 4.0,
                "attempts": 1,
                "failures": 0,
                "breaker_open": false,
                "group": null,
                "retry_in_seconds": null,
            },
            "leases": 1,
            "draining": 0,
            "transfers": 0,
            "quarantined": 0,
            "stalled": 0,
            "grants": 0,
            "quarantined_grants": 0,
            "quarantined_bytes": 0,
            "connecting": false,
            "suspect": false,
        }],
        "stuck_connects": 0,
        "stuck_closes": 0,
        "quarantined": 0,
        "quarantined_grants": 0,
        "quarantined_bytes": 0,
        "leaked": 0,
        "elections": 1,
        "elections_without_connect": 0,
        "reports": 0,
        "stale_reports": 0,
    });
    assert_eq!(snapshot, expected);
}

#[test]
fn transitions_events_and_the_last_report_are_json_too() {
    let world = world();
    let mut events = world.table.events();
    a_life(&world, "p");
    let events: Vec<Event> = events.try_iter().collect();
    let mut lines: Vec<_> = events.iter().map(|event| serde_json::to_value(event).unwrap()).collect();
    let failed = lines[2]["changed"].take();
    assert_eq!(failed["name"], "p");
    let transition = &failed["transition"];
    assert_eq!((&transition["before"], &transition["phase"]), (&json!("connecting"), &json!("failed")));
    assert_eq!((&transition["reason"], &transition["native_code"]), (&json!("connect_failed"), &json!(-5)));
    assert_eq!(transition["lasted_seconds"], json!(0.0));
    assert!(transition["age_seconds"].is_f64());
    assert_eq!(serde_json::to_value(Event::Missed(3)).unwrap(), json!({ "missed": 3 }));

    let peer = world.table.insert("p", MemoryAddress::new("p")).unwrap();
    peer.wait_ready(world.clock.now() + SECOND).unwrap();
    let lease = peer.lease().unwrap();
    let report = world.table.shutdown(world.clock.now()).wait().unwrap();
    assert_eq!(serde_json::to_value(report).unwrap()["leaked_leases"], json!([["p", 1]]));
    drop(lease);
}

mod traces {
    use super::*;
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Metadata, Subscriber};

    /// Keeps each event of ours as `LEVEL message field=value …`, times and generations left out.
    struct Lines(Arc<Mutex<Vec<String>>>);

    struct Line(String, Vec<String>);

    impl Visit for Line {
        fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
            match field.name() {
                "message" => self.0 = format!("{value:?}"),
                "generation" => {}
                name => self.1.push(format!("{name}={value:?}")),
            }
        }
    }

    impl Subscriber for Lines {
        fn enabled(&self, of: &Metadata<'_>) -> bool {
            of.target() == "peerage"
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, event: &tracing::Event<'_>) {
            let mut line = Line(String::new(), Vec::new());
            event.record(&mut line);
            let Line(message, fields) = line;
            lock(&self.0).push(format!("{} {message} {}", event.metadata().level(), fields.join(" ")));
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn each_transition_is_one_event_that_names_its_peer() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        tracing::subscriber::set_global_default(Lines(lines.clone())).unwrap();
        let world = world();
        a_life(&world, "traced");
        eventually("the last one is told", || {
            lock(&lines).iter().any(|line| line.contains(" removed peer=\"traced\""))
        });
        let mut of_p: Vec<_> = lock(&lines).iter().filter(|line| line.contains("peer=\"traced\"")).cloned().collect();
        let expected = [
            "DEBUG elected peer=\"traced\"",
            "WARN failed peer=\"traced\" reason=\"connect_failed\" native_code=-5 error=\"no route\" lasted_seconds=0.0",
            "DEBUG elected peer=\"traced\"",
            "INFO published peer=\"traced\" connect_seconds=2.0",
            "WARN failed peer=\"traced\" reason=\"broken\" error=\"cable pulled\" lasted_seconds=0.0",
            "INFO removed peer=\"traced\"",
        ];
        // They are told after unlock, so two threads may come in the other order.
        let mut expected = expected.map(String::from).to_vec();
        of_p.sort();
        expected.sort();
        assert_eq!(of_p, expected);
    }
}
