//! What the `metrics` facade is told. In a process of its own: there is one recorder, and it hears every table.

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use peerage::transport::memory::{Fabric, Memory, MemoryAddress, MemoryError, Step};
use peerage::{Backoff, Clock, PeerTable};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

struct World {
    clock: Clock,
    fabric: Fabric,
    memory: Memory,
    table: PeerTable<Memory>,
}

fn world() -> World {
    let clock = Clock::manual();
    let fabric = Fabric::with_clock(clock.clone());
    let memory = fabric.node("here");
    fabric.node("p");
    let backoff = Backoff { base: SECOND, cap: SECOND, ..Backoff::default() };
    let table =
        PeerTable::builder(memory.clone()).clock(clock.clone()).seed(7).backoff(backoff).breaker(None).build().unwrap();
    World { clock, fabric, memory, table }
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < give_up, "{what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn lock<V>(mutex: &Mutex<V>) -> MutexGuard<'_, V> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A failed attempt, a good one after two seconds, a report, a late report, a removal.
fn a_life(world: &World) {
    let peer = world.table.insert("p", MemoryAddress::new("p")).unwrap();
    let later = || world.clock.now() + 60 * SECOND;
    world.memory.steps().fail_next(Step::Connect, "p", 1, MemoryError::peer_broken("no route").with_native_code(-5));
    peer.wait_ready(later()).unwrap_err();
    world.clock.advance(SECOND);
    let hold = world.memory.steps().hold(Step::Connect, "p");
    assert!(peer.lease().is_err());
    hold.wait_reached(1);
    world.clock.advance(2 * SECOND);
    hold.release();
    let generation = peer.wait_ready(later()).unwrap();
    peer.report(generation, &MemoryError::peer_broken("cable pulled"));
    peer.report(generation, &MemoryError::peer_broken("cable pulled"));
    eventually("it is accounted for", || peer.record().is_some());
    peer.remove(later()).wait().unwrap();
}

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
    a_life(&world);
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
