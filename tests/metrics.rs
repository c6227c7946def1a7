//! What the `metrics` facade is told. In a process of its own: there is one recorder, and it hears every table.

#[path = "life/mod.rs"]
mod life;

use life::{SECOND, a_life, eventually, lock, world};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use peerage::transport::memory::{MemoryAddress, MemoryError, Step};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

type Values = Arc<Mutex<BTreeMap<String, f64>>>;

/// Keeps the newest value of each metric; of a histogram the sum.
#[derive(Clone, Default)]
struct Kept {
    values: Values,
    described: Arc<Mutex<Vec<String>>>,
}

struct One(Values, String);

impl One {
    fn change(&self, f: impl FnOnce(&mut f64)) {
        f(lock(&self.0).entry(self.1.clone()).or_default());
    }
}

impl CounterFn for One {
    fn increment(&self, by: u64) {
        self.change(|value| *value += by as f64);
    }
    fn absolute(&self, to: u64) {
        self.change(|value| *value = to as f64);
    }
}

impl GaugeFn for One {
    fn increment(&self, by: f64) {
        self.change(|value| *value += by);
    }
    fn decrement(&self, by: f64) {
        self.change(|value| *value -= by);
    }
    fn set(&self, to: f64) {
        self.change(|value| *value = to);
    }
}

impl HistogramFn for One {
    fn record(&self, one: f64) {
        self.change(|value| *value += one);
    }
}

impl Kept {
    fn one(&self, key: &Key) -> Arc<One> {
        let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        Arc::new(One(self.values.clone(), format!("{}{{{}}}", key.name(), labels.join(","))))
    }
}

impl Recorder for Kept {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        lock(&self.described).push(name.as_str().into());
    }
    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        lock(&self.described).push(name.as_str().into());
    }
    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        lock(&self.described).push(name.as_str().into());
    }
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.one(key))
    }
    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.one(key))
    }
    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.one(key))
    }
}

#[test]
fn every_metric_is_described_documented_on_the_dashboard_and_right() {
    let kept = Kept::default();
    metrics::set_global_recorder(kept.clone()).unwrap();
    peerage::metrics::describe();
    let world = world();
    a_life(&world, "p");
    world.fabric.node("q");
    let peer = world.table.insert("q", MemoryAddress::new("q")).unwrap();
    let _other = world.table.insert("r", MemoryAddress::new("r")).unwrap();
    world.memory.steps().fail_next(Step::Connect, "q", 1, MemoryError::peer_broken("no route"));
    peer.wait_ready(world.clock.now() + SECOND).unwrap_err();
    peerage::metrics::record(&world.table);
    // An attempt's end is counted after its waiters were told.
    let failed = "peerage_connects_total{outcome=connect_failed}";
    eventually("both failures are counted", || lock(&kept.values).get(failed) == Some(&2.0));
    let ready = "peerage_connect_duration_seconds{outcome=ready}";
    eventually("so is the good one", || lock(&kept.values).contains_key(ready));

    let values = lock(&kept.values).clone();
    for (key, expected) in [
        ("peerage_connects_total{outcome=ready}", 1.0),
        ("peerage_connect_duration_seconds{outcome=ready}", 2.0),
        ("peerage_peers{phase=failed}", 1.0),
        ("peerage_peers{phase=idle}", 1.0),
        ("peerage_peers{phase=ready}", 0.0),
        ("peerage_elections_total{}", 3.0),
        ("peerage_reports_total{answer=failed}", 1.0),
        ("peerage_reports_total{answer=stale}", 1.0),
        ("peerage_leases{}", 0.0),
    ] {
        assert_eq!(values.get(key), Some(&expected), "{key} of {values:#?}");
    }

    let mut described = lock(&kept.described).clone();
    let mut recorded: Vec<_> = values.keys().map(|key| key.split('{').next().unwrap().to_owned()).collect();
    recorded.dedup();
    described.sort();
    assert_eq!(described, recorded);
    let (doc, dashboard) = (include_str!("../src/metrics.rs"), include_str!("../docs/grafana.json"));
    serde_json::from_str::<serde_json::Value>(dashboard).unwrap();
    for name in recorded {
        assert!(doc.contains(&format!("//! | `{name}` |")), "{name} is not documented");
        assert!(dashboard.contains(&name), "{name} is not on the dashboard");
    }
}
