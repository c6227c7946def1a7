//! The status page as a user starts it: what it answers to programs, and what a browser shows of it.

mod browser;
mod server;

// Its own tests, of what no request from outside can bring about.
#[allow(dead_code)]
#[path = "../../examples/status/routes.rs"]
mod routes;

use browser::Browser;
use serde_json::{Value, json};
use server::{BUILT, Server, example, wait_for};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

const HOSTILE: &str = "<script>document.title = 'taken over'</script>";
const RESTARTS: &str = "prefill-1";

fn names() -> BTreeSet<&'static str> {
    ["prefill-0", RESTARTS, "prefill-2", "prefill-3", HOSTILE].into()
}

#[test]
fn the_options_are_checked_and_explained() {
    let help = example().arg("--help").output().expect(BUILT);
    assert!(help.status.success() && String::from_utf8(help.stdout).unwrap().contains("--listen ADDRESS"));
    for wrong in [&["--listen"][..], &["--listen", "nowhere"], &["--port", "1"]] {
        let refused = example().args(wrong).output().expect(BUILT);
        assert_eq!(refused.status.code(), Some(2), "{wrong:?}");
        assert!(refused.stdout.is_empty() && !refused.stderr.is_empty(), "{wrong:?}");
    }
    let server = Server::start("127.0.0.1:0");
    let taken = example().args(["--listen", &server.address.to_string()]).output().expect(BUILT);
    assert_eq!(taken.status.code(), Some(1));
}

/// Whatever runs out, it says so, or its exit status does.
/// fails if: something is printed by a macro that panics; the runtime is one that panics; an error is shown without its causes.
#[cfg(target_os = "linux")]
#[test]
fn what_runs_out_is_an_error_with_its_cause_and_not_a_panic() {
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    let error = |output: std::process::Output, says: &str| {
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && text.contains(says) && !text.contains("panicked"), "{text}");
    };
    error(example().arg("--help").stdout(full()).stderr(Stdio::piped()).output().expect(BUILT), "No space left");
    error(example().stdout(full()).stderr(Stdio::piped()).output().expect(BUILT), "No space left");
    let status = example().arg("--nonsense").stdout(full()).stderr(full()).status().expect(BUILT);
    assert_eq!(status.code(), Some(2));
    for descriptors in [8, 12, 16, 24] {
        let mut limited = std::process::Command::new("sh");
        let line = format!("ulimit -n {descriptors} && exec \"$0\"");
        limited.args(["-c", &line]).arg(example().get_program());
        error(limited.output().unwrap(), "Too many open files");
    }
}

/// Kind and samples, `name{labels}` and value, of each metric. Strict: a line that Prometheus would refuse is an error.
fn prometheus(text: &str) -> BTreeMap<String, (String, Vec<(String, f64)>)> {
    let mut metrics: BTreeMap<String, (String, Vec<_>)> = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(help) = line.strip_prefix("# HELP ") {
            assert!(help.split_once(' ').is_some_and(|(_, words)| !words.is_empty()), "{line}");
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect(line);
            current = name.to_owned();
            assert!(metrics.insert(current.clone(), (kind.to_owned(), Vec::new())).is_none(), "twice: {line}");
        } else {
            let (sample, value) = line.rsplit_once(' ').expect(line);
            let (name, labels) = sample.split_once('{').unwrap_or((sample, "}"));
            assert!(labels.ends_with('}'), "{line}");
            let suffix = name.strip_prefix(&current).unwrap_or_else(|| panic!("without its type: {line}"));
            let (kind, samples) = metrics.get_mut(&current).unwrap();
            let allowed: &[&str] = if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            assert!(allowed.contains(&suffix), "{line}");
            samples.push((sample.to_owned(), value.parse().expect(line)));
        }
    }
    metrics
}

/// fails if: a metric has another name or kind on the wire than its documentation says, or the dashboard asks for one that
/// is not there.
#[test]
fn metrics_have_the_documented_names_and_kinds_and_all_that_the_dashboard_asks_for() {
    let server = Server::start("127.0.0.1:0");
    let all_sorts = |text: &str| text.contains("outcome=\"ready\"") && text.contains("outcome=\"connect_failed\"");
    let (head, text) = wait_for("connects of both outcomes", || {
        let (head, text) = server.get("/metrics");
        all_sorts(&text).then_some((head, text))
    });
    assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
    let metrics = prometheus(&text);

    let rows = include_str!("../../src/metrics.rs").lines().filter_map(|line| line.strip_prefix("//! | `"));
    let documented: BTreeMap<_, _> = rows
        .map(|row| {
            let (name, rest) = row.split_once("` | ").expect(row);
            (name, rest.split(' ').next().unwrap())
        })
        .collect();
    let served: BTreeMap<_, _> = metrics.iter().map(|(name, (kind, _))| (&**name, &**kind)).collect();
    assert_eq!(served, documented);

    let samples: Vec<_> = metrics.values().flat_map(|(_, samples)| samples).collect();
    let dashboard = include_str!("../../docs/grafana.json");
    let asked: BTreeSet<_> = dashboard
        .split(|c: char| !c.is_ascii_lowercase() && c != '_')
        .filter(|word| word.starts_with("peerage_"))
        .collect();
    assert!(asked.len() >= documented.len(), "{asked:?}");
    for name in asked {
        let is_served = samples.iter().any(|(sample, _)| sample.split('{').next() == Some(name));
        assert!(is_served, "the dashboard asks for {name}");
    }
    let of_phases = samples.iter().filter(|(sample, _)| sample.starts_with("peerage_peers{"));
    assert_eq!(of_phases.map(|(_, peers)| peers).sum::<f64>(), names().len() as f64);
}

#[test]
fn peers_are_json_with_their_histories() {
    let server = Server::start("127.0.0.1:0");
    let (head, text) = server.get("/peers");
    assert!(head.contains("content-type: application/json") && head.contains("cache-control: no-store"), "{head}");
    let table: Value = serde_json::from_str(&text).unwrap();
    let peers = table["peers"].as_array().unwrap();
    assert_eq!(peers.iter().map(|peer| peer["name"].as_str().unwrap()).collect::<BTreeSet<_>>(), names());
    for peer in peers {
        let history = peer["history"].as_array().unwrap();
        assert_eq!((&history[0]["before"], &history[0]["phase"]), (&Value::Null, &json!("idle")), "{peer}");
        let known: BTreeSet<_> = peer.as_object().unwrap().keys().map(String::as_str).collect();
        for shown in ["phase", "generation", "record", "leases", "transfers", "grants", "quarantined", "suspect"] {
            assert!(known.contains(shown), "{shown} of {peer}");
        }
    }
    assert!(table["elections"].is_u64());
}

#[test]
fn events_begin_with_each_peers_state_and_go_on_with_what_happens() {
    let server = Server::start("127.0.0.1:0");
    let lines = BufReader::new(server.ask("/events")).lines().map(Result::unwrap);
    let mut lines = lines.inspect(|line| assert!(!line.starts_with("HTTP/1.1 ") || line.contains(" 200 "), "{line}"));
    let mut next = || -> Value {
        let data = lines.by_ref().find_map(|line| line.strip_prefix("data: ").map(str::to_owned));
        serde_json::from_str(&data.expect("another event")).unwrap()
    };
    let mut known = BTreeSet::new();
    let changed = loop {
        let mut event = next();
        match event["current"]["name"].as_str() {
            Some(name) => assert!(known.insert(name.to_owned()), "{name} twice"),
            None => break event["changed"].take(),
        }
    };
    assert_eq!(known.iter().map(String::as_str).collect::<BTreeSet<_>>(), names());
    assert!(changed["transition"]["before"].is_string(), "{changed}");
}

/// fails if: it waits for streams that never end.
#[cfg(unix)]
#[test]
fn it_ends_well_when_it_is_told_to_though_a_page_is_open() {
    use rustix::process::Signal;
    for signal in [Signal::INT, Signal::TERM] {
        let mut server = Server::start("127.0.0.1:0");
        let mut open = BufReader::new(server.ask("/events"));
        assert!(open.by_ref().lines().any(|line| line.unwrap().starts_with("data: ")));
        assert_eq!(server.signal(signal).code(), Some(0), "{signal:?}");
        drop(open);
    }
}

/// What the page says of one peer: phase and generation.
fn shown(browser: &mut Browser, name: &str) -> (String, u64) {
    let row = browser.value(&format!(
        "(() => {{
            const head = [...document.querySelectorAll('#peers th')].find((head) => head.textContent === {name});
            return head ? [...head.parentElement.cells].slice(1, 3).map((cell) => cell.textContent) : null;
        }})()",
        name = json!(name)
    ));
    (row[0].as_str().unwrap_or("").to_owned(), row[1].as_str().unwrap_or("0").parse().unwrap())
}

fn server_is(browser: &mut Browser, state: &str) {
    wait_for(&format!("the page says the server is {state}"), || {
        (browser.value("document.body.dataset.server") == state).then_some(())
    });
}

/// fails if: the page shows a table once and not again, takes a name for markup, stays as it was when the server is gone, or
/// does not come back; if a script fails, or anything is asked of another server.
#[test]
fn a_browser_shows_peers_come_and_go_as_text_and_outlives_its_server() {
    let mut server = Server::start("127.0.0.1:0");
    let Some(mut browser) = Browser::open(&server.url()) else { return };
    let browser = &mut browser;

    let heads = "[...document.querySelectorAll('#peers th')].map((head) => head.textContent)";
    let all = wait_for("all peers are shown", || {
        let heads = browser.value(heads);
        (heads.as_array()?.len() == names().len()).then_some(heads)
    });
    assert_eq!(all.as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect::<BTreeSet<_>>(), names());
    server_is(browser, "live");

    // It restarts every few seconds.
    let old = wait_for("it is ready", || Some(shown(browser, RESTARTS)).filter(|(phase, _)| phase == "ready")).1;
    let down = wait_for("it fails", || {
        Some(shown(browser, RESTARTS)).filter(|(phase, _)| phase.starts_with("failed") || phase == "connecting")
    });
    assert!(down.1 >= old, "{down:?} after generation {old}");
    let new = wait_for("it is ready again", || Some(shown(browser, RESTARTS)).filter(|(phase, _)| phase == "ready")).1;
    assert!(new > old, "generation {new} after {old}");
    wait_for("its events are shown", || {
        let log = browser.value("document.getElementById('log').textContent");
        log.as_str().unwrap().contains(&format!("{RESTARTS} ready generation {new}")).then_some(())
    });

    let past = "[...document.querySelectorAll('#peers .past:not([hidden]) td td:nth-child(2)')].map((cell) => cell.textContent)";
    assert_eq!(browser.value(past), json!([]));
    browser.value("[...document.querySelectorAll('#peers th')].find((head) => head.textContent === 'prefill-1').parentElement.querySelector('button').click()");
    wait_for("its history is shown", || browser.value(past).as_array()?.contains(&json!("failed")).then_some(()));

    for scheme in ["light", "dark"] {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        browser.call("Emulation.setEmulatedMedia", json!({ "features": features }));
        let contrast = browser.value(include_str!("contrast.js"));
        // What the guidelines for accessibility ask for of text.
        assert!(contrast["least"].as_f64() >= Some(4.5), "{scheme}: {contrast}");
    }

    let address = server.address;
    server.kill();
    server_is(browser, "gone");
    assert!(
        browser.value("document.getElementById('server').textContent").as_str().unwrap().contains("does not answer")
    );
    let server = Server::start_again(address);
    server_is(browser, "live");
    let table: Value = serde_json::from_str(&server.get("/peers").1).unwrap();
    let address_of = "[...document.querySelectorAll('#peers th')].find((head) => head.textContent === 'prefill-0').parentElement.cells[3].textContent";
    wait_for("it shows the new table", || {
        let peers = table["peers"].as_array()?;
        let peer = peers.iter().find(|peer| peer["name"] == "prefill-0")?;
        (peer["record"]["address"] == browser.value(address_of)).then_some(())
    });

    assert_eq!(browser.value("document.title"), "Peers");
    assert_eq!(browser.value("document.querySelectorAll('body script').length"), 0);
    assert_eq!(browser.complaints(), &[] as &[String]);
    let ours = |url: &String| url.starts_with(&format!("http://{address}/")) || url.starts_with("data:");
    assert!(browser.loaded().iter().all(ours), "{:?}", browser.loaded());
    assert!(browser.loaded().iter().any(|url| url.ends_with("/events")));
}
