//! The failover run as a user starts it: one short run with every kind of fault, and what it does with bad input.

use serde_json::Value;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

/// `cargo test` builds the examples beside its tests.
fn example() -> Command {
    let test = std::env::current_exe().unwrap();
    let profile = test.ancestors().nth(2).expect("target/<profile>/deps/<test>");
    let name = format!("pd_failover{}", std::env::consts::EXE_SUFFIX);
    Command::new(profile.join("examples").join(name))
}

const BUILT: &str = "run all of `cargo test`, or first `cargo build --example pd_failover`: the example is not built";

fn run(args: &[&str]) -> Output {
    example().args(args).output().expect(BUILT)
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

struct TraceFile(PathBuf);

impl TraceFile {
    fn new(name: &str, text: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.jsonl", std::process::id()));
        std::fs::write(&path, text).unwrap();
        TraceFile(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for TraceFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_short_run_loses_nothing_and_prints_one_line_for_programs() {
    let output = run(&["--duration", "1", "--seed", "3", "--kv-bytes-per-token", "8", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    let line: Value = serde_json::from_str(&text).unwrap();
    let number = |name: &str| line[name].as_u64().unwrap_or_else(|| panic!("{name} in {line}"));
    assert_eq!((number("schema"), number("seed"), number("prefill"), number("decode")), (1, 3, 3, 1));
    keeps_its_promises(&line, &["kill", "stop", "cut", "mute"]);
}

#[cfg(feature = "ucx")]
#[test]
fn a_short_run_over_ucx_loses_nothing_either() {
    let run = ["--transport", "ucx", "--duration", "1", "--seed", "3", "--kv-bytes-per-token", "8", "--json"];
    let output = self::run(&run);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let line: Value = serde_json::from_slice(&output.stdout).unwrap();
    keeps_its_promises(&line, &["kill", "stop", "cut", "mute"]);
}

/// `UCX_MODULES`: beside Debian's libucx, NIXL's own UCX may crash a process at its end.
#[cfg(feature = "nixl")]
#[test]
fn a_short_run_over_nixl_loses_nothing_either() {
    use peerage::transport::nixl::{Nixl, NixlBuildError, NixlLibraryError};
    if let Err(NixlBuildError::Library(error @ NixlLibraryError::NotFound { .. })) = Nixl::builder().build() {
        return println!("SKIPPED: {error}");
    }
    let run = ["--transport", "nixl", "--duration", "1", "--seed", "3", "--kv-bytes-per-token", "8", "--json"];
    let output = example().env("UCX_MODULES", "^ib").args(run).output().expect(BUILT);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let line: Value = serde_json::from_slice(&output.stdout).unwrap();
    keeps_its_promises(&line, &["kill", "stop", "cut", "mute"]);
}

/// Something was asked of it, each of the `faults` came, and all went as it has to.
fn keeps_its_promises(line: &Value, faults: &[&str]) {
    let number = |name: &str| line[name].as_u64().unwrap_or_else(|| panic!("{name} in {line}"));
    assert!(number("ok") > 0, "nothing was tested: {line}");
    assert_eq!(number("requests"), number("ok") + number("failed"), "{line}");
    for name in ["lost", "corrupt", "duplicate_connects", "failed_without_fault"] {
        assert_eq!(number(name), 0, "{name} in {line}");
    }
    assert_eq!(number("generations"), number("native_connects") + number("elections_without_connect"), "{line}");
    assert_eq!(number("recovered"), number("recoverable"), "{line}");
    assert!(faults.iter().all(|kind| line["faults"][kind].as_u64() >= Some(1)), "{line}");
}

/// Little to do, so that who is not stopped is not silent, also without optimization and beside other tests.
const LIGHT: [&str; 6] = ["--speedup", "10", "--kv-bytes-per-token", "1", "--threads", "3"];
static ONE_SCENARIO_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Each scenario, shortened: whatever the trouble, the promises hold, and so does what the scenario is about.
/// fails if: a promise of the table is broken, or nothing was tested.
fn scenario(name: &str, seconds: &str, faults: &[&str]) -> Value {
    let _one = ONE_SCENARIO_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let output = run(&[&["--scenario", name, "--duration", seconds, "--seed", "5", "--json"], &LIGHT[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let line: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&line["scenario"], line["seed"].as_u64()), (&name.into(), Some(5)));
    keeps_its_promises(&line, faults);
    line["findings"].clone()
}

#[test]
fn scenario_storm() {
    let found = scenario("storm", "1", &["kill"]);
    assert!(found["connects_at_once"]["value"].as_f64() <= Some(3.0), "{found}");
    assert!(found["callers_waited"]["value"].as_f64() >= Some(1.0), "{found}");
    assert_eq!(found["callers_waited_in_vain"]["value"], 0, "{found}");
}

#[test]
fn scenario_flap() {
    // Long enough for more errors than the backoff allows connects.
    let found = scenario("flap", "5", &["flap"]);
    let connects = &found["connects_per_peer"];
    assert!(
        connects["value"].as_f64() >= Some(1.0) && connects["value"].as_f64() <= connects["at_most"].as_f64(),
        "{found}"
    );
}

#[test]
fn scenario_stopped() {
    let found = scenario("stopped", "1", &["stop"]);
    assert_eq!(found["peers_failed_without_cause"]["value"], 0, "{found}");
    assert!(found["well_again_after_suspicion"]["value"].as_f64() >= Some(1.0), "{found}");
    assert!(found["given_up"]["value"].as_f64() >= Some(1.0), "{found}");
}

#[test]
fn scenario_blackhole() {
    let found = scenario("blackhole", "1", &["blackhole"]);
    assert_eq!(found["peers_failed_without_cause"]["value"], 0, "{found}");
    assert!(found["given_up"]["value"].as_f64() >= Some(1.0), "{found}");
}

#[test]
fn scenario_restart_all() {
    let found = scenario("restart-all", "1", &["move"]);
    assert_eq!(found["first_requests"]["value"], 6, "3 prefills restarted, 2 decodes were told: {found}");
    assert_eq!(found["first_requests_ok"]["value"], 6, "{found}");
}

#[test]
fn scenario_cross_dial() {
    let found = scenario("cross-dial", "1", &["cut"]);
    assert!(found["crossed_dials"]["value"].as_f64() >= Some(1.0), "{found}");
    assert_eq!(found["both_finished"]["value"], found["crossed_dials"]["value"], "{found}");
    assert_eq!(found["half_open_handles"]["value"], 0, "{found}");
}

#[test]
fn scenario_one_rank_down() {
    let found = scenario("one-rank-down", "1", &["kill"]);
    let (ready, probed) = (&found["ranks_ready_when_another_died"]["value"], &found["ranks_probed"]["value"]);
    assert!(ready.as_f64() >= Some(1.0) && ready == probed, "{found}");
}

#[test]
fn a_bad_command_line_says_what_is_allowed() {
    for (args, says) in [
        (&["--prefill", "0"][..], "--prefill must be a number from 1 to 64, not \"0\""),
        (&["--speedup", "fast"], "--speedup must be a number from"),
        (&["--mode", "magic"], "--mode must be peerage, global-lock or check-then-add"),
        (
            &["--scenario", "drizzle"],
            "--scenario must be one of storm, flap, stopped, blackhole, restart-all, cross-dial,",
        ),
        (&["--nonsense"], "--nonsense is not an option; see --help"),
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(stderr(&output).contains(says), "{args:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn a_bad_trace_line_ends_the_run_with_its_number() {
    let good = r#"{"timestamp": 5, "input_length": 600, "output_length": 3, "hash_ids": [7, 8]}"#;
    for (name, line, says) in [
        ("malformed", r#"{"timestamp": 6, "input_len"#, "not JSON"),
        ("decreasing", &good.replace(": 5,", ": 4,"), "\"timestamp\" falls from 5 to 4"),
        ("absurd", &good.replace("600", "99999999999"), "\"input_length\" is 99999999999"),
        ("short", &good.replace("[7, 8]", "[7]"), "has 1 ids"),
    ] {
        let trace = TraceFile::new(name, &format!("{good}\n{good}\n{line}\n"));
        let output = run(&["--trace", trace.path(), "--prefill", "1", "--threads", "1"]);
        assert_eq!(output.status.code(), Some(2), "{name}");
        let error = stderr(&output);
        assert!(error.contains("line 3: ") && error.contains(says) && error.contains(trace.path()), "{name}: {error}");
        assert_eq!(error.lines().count(), 1, "{name}: {error}");
    }
    let empty = TraceFile::new("empty", "");
    assert!(stderr(&run(&["--trace", empty.path()])).contains("has no requests"));
    assert!(stderr(&run(&["--trace", "no/such/file"])).contains("no/such/file"));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error_and_not_a_panic() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = example().arg("--help").stdout(full).stderr(Stdio::piped()).output().expect(BUILT);
    assert_eq!(output.status.code(), Some(2));
    let error = stderr(&output);
    assert!(error.contains("the result can't be written") && !error.contains("panicked"), "{error}");
    let full = || Stdio::from(File::options().write(true).open("/dev/full").unwrap());
    let status = example().arg("--nonsense").stdout(full()).stderr(full()).status().unwrap();
    assert_eq!(status.code(), Some(2));
}
