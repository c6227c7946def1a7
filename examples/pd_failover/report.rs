//! What a run has shown: a table for people, one JSON line for programs, and a verdict.

use crate::args::Args;
use crate::faults::Kind;
use crate::finding::Finding;
use crate::latency::{Histogram, Latencies};
use crate::ledger::Totals;
use crate::lines::{Counts, TableCounts};
use crate::measure;
use crate::modes::Mode;
use std::fmt::Write;
use std::time::Duration;

/// A column of latencies with fewer samples says nothing.
const ENOUGH: u64 = 10_000;

/// So many requests that failed without a fault are shown one by one.
const SHOWN: usize = 5;

/// A machine on which this share is slow while nothing happens has too much else to do.
const BUSY: f64 = 0.01;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// One run in one mode.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    pub(crate) mode: Mode,
    pub(crate) args: Args,
    pub(crate) totals: Totals,
    pub(crate) counts: Counts,
    pub(crate) latencies: Latencies,
    /// Of the worst process that lived through the whole run; `None` if none did, or the system does not say.
    pub(crate) fds: Option<Span>,
    pub(crate) rss_kb: Option<Span>,
    /// What its scenario has come to; empty without one.
    pub(crate) findings: Vec<Finding>,
    /// What processes could not take back at their end.
    pub(crate) leaked: Vec<String>,
    pub(crate) wall: Duration,
    /// Processor time of all processes, in seconds.
    pub(crate) processor: Option<f64>,
}

impl Report {
    /// What is wrong. Latency, descriptors and memory never are: they depend on the machine.
    pub(crate) fn problems(&self) -> Vec<String> {
        let totals = &self.totals;
        let mut problems = Vec::new();
        let mut expect = |good: bool, problem: String| {
            if !good {
                problems.push(problem);
            }
        };
        expect(totals.lost == 0, format!("{} requests have no end, or two", totals.lost));
        expect(totals.corrupt == 0, format!("{} requests read a page that was not theirs", totals.corrupt));
        let duplicates = self.counts.duplicate_connects;
        expect(duplicates == 0, format!("{duplicates} connects were begun while another was running or open"));
        if let Some(table) = self.counts.table {
            let (generations, without) = (table.generations, table.elections_without_connect);
            let native = self.counts.native_connects;
            expect(
                generations == native + without,
                format!("{generations} generations are not {native} native connects + {without} that never called"),
            );
        }
        let (recovered, recoverable) = (totals.recovered, totals.recoverable);
        expect(recovered >= recoverable, format!("{recovered} of {recoverable} faults recovered within 10 s"));
        problems.extend(self.findings.iter().filter_map(Finding::problem));
        problems
    }

    /// What to look into, whether or not it is a problem.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let failed = &self.totals.without_fault;
        let shown = failed.iter().take(SHOWN);
        let mut remarks: Vec<_> =
            shown.map(|(request, why)| format!("request {request} failed without a fault: {why}")).collect();
        if failed.len() > SHOWN {
            remarks.push(format!("{} more failed without a fault", failed.len() - SHOWN));
        }
        remarks.extend(self.leaked.iter().map(|leaked| format!("not taken back by {leaked}")));
        remarks
    }

    /// The line for programs, without its end. Numbers that are not known are `null`; so are those of a latency column
    /// with too few samples.
    pub(crate) fn json(&self) -> String {
        let (args, totals, counts) = (&self.args, &self.totals, &self.counts);
        let table = |pick: fn(TableCounts) -> u64| or_null(counts.table.map(pick));
        let recovery = |at: Option<&Duration>| or_null(at.map(Duration::as_millis));
        let span = |span: Option<Span>| {
            object(&[("start", or_null(span.map(|span| span.start))), ("end", or_null(span.map(|span| span.end)))])
        };
        let faults = Kind::NAMES.into_iter().zip(totals.faults).enumerate();
        let faults = faults.filter(|(nth, (_, n))| *nth < 4 || *n > 0).map(|(_, (name, n))| (name, n.to_string()));
        let mut fields = vec![
            ("schema", "1".into()),
            ("mode", format!("\"{}\"", self.mode)),
            ("transport", "\"tcp\"".into()),
            ("seed", args.seed.to_string()),
            ("prefill", args.prefill.to_string()),
            ("decode", args.decode.to_string()),
            ("threads", args.threads.to_string()),
            ("requests", totals.requests.to_string()),
            ("ok", totals.ok.to_string()),
            ("failed", totals.failed.to_string()),
            ("failed_without_fault", totals.without_fault.len().to_string()),
            ("lost", totals.lost.to_string()),
            ("corrupt", totals.corrupt.to_string()),
            ("native_connects", counts.native_connects.to_string()),
            ("generations", table(|table| table.generations)),
            ("elections_without_connect", table(|table| table.elections_without_connect)),
            ("duplicate_connects", counts.duplicate_connects.to_string()),
            ("stale_reports", table(|table| table.stale_reports)),
            ("faults", object(&faults.collect::<Vec<_>>())),
            ("recoverable", totals.recoverable.to_string()),
            ("recovered", totals.recovered.to_string()),
            (
                "recovery_ms",
                object(&[("p50", recovery(self.median_recovery())), ("max", recovery(totals.recovery.last()))]),
            ),
            (
                "latency_us",
                object(&[
                    ("quiet", json_column(&self.latencies.quiet)),
                    ("reconnecting", json_column(&self.latencies.reconnecting)),
                ]),
            ),
            ("fds", span(self.fds)),
            ("rss_kb", span(self.rss_kb)),
            ("wall_s", format!("{:.1}", self.wall.as_secs_f64())),
        ];
        if let Some(scenario) = args.scenario {
            let findings: Vec<_> = self.findings.iter().map(|finding| (finding.name, finding.json())).collect();
            fields.push(("scenario", format!("\"{scenario}\"")));
            fields.push(("findings", object(&findings)));
        }
        object(&fields)
    }

    fn median_recovery(&self) -> Option<&Duration> {
        self.totals.recovery.get(self.totals.recovery.len() / 2)
    }

    /// Processor time as a share of the machine.
    fn share_of_machine(&self) -> Option<f64> {
        Some(self.processor? / (self.wall.as_secs_f64() * measure::processors() as f64))
    }

    /// One cell of the table for each of [`ROWS`].
    fn cells(&self) -> Vec<String> {
        let totals = &self.totals;
        let faults = Kind::NAMES.into_iter().zip(totals.faults).filter(|(_, n)| *n > 0);
        let faults: Vec<_> = faults.map(|(name, n)| format!("{n} {name}")).collect();
        let percent = |part: u64| 100.0 * part as f64 / totals.requests.max(1) as f64;
        let table = |pick: fn(TableCounts) -> u64| or_dash(self.counts.table.map(pick));
        let recovery = |at: Option<&Duration>| or_dash(at.map(Duration::as_millis));
        let span = |span: Option<Span>| span.map_or("-".into(), |span| format!("{} -> {}", span.start, span.end));
        let share = self
            .share_of_machine()
            .map_or("-".into(), |share| format!("{:.0} % of {} processors", 100.0 * share, measure::processors()));
        vec![
            format!("{}", totals.requests),
            format!("{} ({:.1} %)", totals.ok, percent(totals.ok)),
            format!("{}", totals.failed),
            format!("{}", totals.without_fault.len()),
            format!("{}", totals.lost),
            format!("{}", totals.corrupt),
            format!("{}", self.counts.native_connects),
            table(|table| table.generations),
            table(|table| table.elections_without_connect),
            format!("{}", self.counts.duplicate_connects),
            table(|table| table.stale_reports),
            faults.join(", "),
            format!("{} of {}", totals.recovered, totals.recoverable),
            format!("{} / {}", recovery(self.median_recovery()), recovery(totals.recovery.last())),
            percentiles(&self.latencies.quiet),
            slow_share(&self.latencies.quiet),
            percentiles(&self.latencies.reconnecting),
            slow_share(&self.latencies.reconnecting),
            span(self.fds),
            span(self.rss_kb),
            format!("{:.1} s", self.wall.as_secs_f64()),
            share,
        ]
    }
}

const ROWS: [&str; 22] = [
    "requests",
    "  ok",
    "  failed",
    "  failed without a fault",
    "  lost",
    "  corrupt",
    "native connects",
    "  generations",
    "  elections without a connect",
    "  duplicate connects",
    "  stale reports",
    "faults",
    "  recovered",
    "  recovery ms, p50 / max",
    "send us, quiet: p50 / p99 / p999",
    "  slow share",
    "send us, reconnecting",
    "  slow share",
    "descriptors, start -> end",
    "memory kB, start -> end",
    "wall time",
    "processor time",
];

/// The table for people: one column for each run.
pub(crate) fn table(reports: &[Report]) -> String {
    let columns: Vec<Vec<String>> =
        reports.iter().map(|report| std::iter::once(report.mode.to_string()).chain(report.cells()).collect()).collect();
    let widths: Vec<_> = columns.iter().map(|column| column.iter().map(|cell| cell.len()).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for (row, name) in std::iter::once("mode").chain(ROWS).enumerate() {
        let _ = write!(text, "{name:<34}");
        for (column, width) in columns.iter().zip(&widths) {
            let _ = write!(text, "  {:>width$}", column[row]);
        }
        text.push('\n');
    }
    for finding in reports.iter().flat_map(|report| &report.findings) {
        let _ = writeln!(text, "{:<34}  {}", finding.words(), finding.cell());
    }
    text
}

/// The JSON line of a comparison.
pub(crate) fn json_of_all(reports: &[Report]) -> String {
    let runs: Vec<_> = reports.iter().map(Report::json).collect();
    format!(r#"{{"schema":1,"compare":[{}]}}"#, runs.join(","))
}

/// Where the three modes do not differ as they should. A column with too few samples counts as such.
pub(crate) fn check(reports: &[Report]) -> Vec<String> {
    let mut problems = Vec::new();
    for Report { mode, counts, latencies: Latencies { quiet, reconnecting }, .. } in reports {
        let share = reconnecting.slow_share();
        let enough = reconnecting.n() >= ENOUGH;
        match mode {
            Mode::CheckThenAdd if counts.duplicate_connects == 0 => {
                problems.push(format!("{mode} made no duplicate connect"));
            }
            Mode::CheckThenAdd => {}
            _ if !enough => problems.push(format!("{mode} has too few samples while reconnecting")),
            Mode::GlobalLock if share < 0.1 => {
                problems.push(format!("{mode} was slow for only {:.2} % while reconnecting", 100.0 * share));
            }
            Mode::Peerage if share > 0.001 && (quiet.n() < ENOUGH || share > 1.5 * quiet.slow_share()) => {
                let busy = if quiet.slow_share() > BUSY { "; this machine is busy with something else" } else { "" };
                let (share, quiet) = (100.0 * share, 100.0 * quiet.slow_share());
                problems.push(format!("{mode} was slow for {share:.2} % while reconnecting, {quiet:.2} % else{busy}"));
            }
            _ => {}
        }
    }
    problems
}

fn json_column(column: &Histogram) -> String {
    let value = |value: f64, digits: usize| or_null((column.n() >= ENOUGH).then(|| format!("{value:.digits$}")));
    object(&[
        ("n", column.n().to_string()),
        ("p50", value(column.percentile(0.5), 1)),
        ("p99", value(column.percentile(0.99), 1)),
        ("p999", value(column.percentile(0.999), 1)),
        ("slow_share", value(column.slow_share(), 6)),
        ("distribution", distribution(column)),
    ])
}

/// What a plot of the column shows: pairs of a share of the sends and the time within which they were done.
fn distribution(column: &Histogram) -> String {
    if column.n() < ENOUGH {
        return "null".into();
    }
    let shares = [0.1, 0.25, 0.5, 0.75, 0.8, 0.85, 0.9, 0.925, 0.95, 0.975, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9999];
    let pairs: Vec<_> = shares.iter().map(|share| format!("[{share},{:.1}]", column.percentile(*share))).collect();
    format!("[{}]", pairs.join(","))
}

/// A JSON object of values that are JSON already.
fn object(fields: &[(&str, String)]) -> String {
    let fields: Vec<_> = fields.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    format!("{{{}}}", fields.join(","))
}

fn percentiles(column: &Histogram) -> String {
    if column.n() < ENOUGH {
        return format!("too few ({})", column.n());
    }
    let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|part| column.percentile(part));
    format!("{p50:.0} / {p99:.0} / {p999:.0}")
}

fn slow_share(column: &Histogram) -> String {
    if column.n() < ENOUGH { "-".into() } else { format!("{:.3} %", 100.0 * column.slow_share()) }
}

fn or_null(value: Option<impl ToString>) -> String {
    value.map_or("null".into(), |value| value.to_string())
}

fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or("-".into(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Bound;
    use crate::scenario::Scenario;

    fn good(mode: Mode) -> Report {
        let table = TableCounts { generations: 12, elections_without_connect: 2, stale_reports: 3 };
        Report {
            mode,
            args: Args::default(),
            totals: Totals {
                requests: 2_000,
                ok: 1_990,
                failed: 10,
                faults: [1, 2, 3, 4, 0, 0, 0],
                recoverable: 2,
                recovered: 2,
                recovery: vec![Duration::from_millis(40), Duration::from_millis(90)],
                ..Totals::default()
            },
            counts: Counts { table: Some(table), native_connects: 10, duplicate_connects: 0 },
            latencies: Latencies::default(),
            fds: Some(Span { start: 20, end: 21 }),
            rss_kb: None,
            findings: vec![],
            leaked: vec![],
            wall: Duration::from_millis(25_040),
            processor: Some(10.0),
        }
    }

    fn column(n: u64, slow: u64) -> Histogram {
        let mut column = Histogram::default();
        for nth in 0..n {
            column.add(Duration::from_micros(if nth < slow { 9_000 } else { 10 }), Duration::from_micros(2_500));
        }
        column
    }

    #[test]
    fn the_json_line_has_the_schema() {
        let mut report = good(Mode::Peerage);
        report.latencies.quiet = column(10_000, 100);
        report.latencies.reconnecting = column(9_999, 0);
        let line = report.json();
        assert!(!line.contains('\n'));
        let json: serde_json::Value = serde_json::from_str(&line).unwrap();
        let expected = serde_json::json!({
            "schema": 1, "mode": "peerage", "transport": "tcp", "seed": 1, "prefill": 3, "decode": 1, "threads": 7,
            "requests": 2000, "ok": 1990, "failed": 10, "failed_without_fault": 0, "lost": 0, "corrupt": 0,
            "native_connects": 10, "generations": 12, "elections_without_connect": 2, "duplicate_connects": 0,
            "stale_reports": 3, "faults": {"kill": 1, "stop": 2, "cut": 3, "mute": 4}, "recoverable": 2, "recovered": 2,
            "recovery_ms": {"p50": 90, "max": 90},
            "latency_us": {
                "quiet": {"n": 10000, "p50": 10.0, "p99": 10.0, "p999": 8960.0, "slow_share": 0.01},
                "reconnecting": {"n": 9999, "p50": null, "p99": null, "p999": null, "slow_share": null, "distribution": null},
            },
            "fds": {"start": 20, "end": 21}, "rss_kb": {"start": null, "end": null}, "wall_s": 25.0,
        });
        let close = json["latency_us"]["quiet"]["p999"].as_f64().unwrap();
        assert!((8_700.0..=9_000.0).contains(&close), "{close}");
        let mut json = json;
        let quiet = json["latency_us"]["quiet"].as_object_mut().unwrap();
        let distribution = quiet.remove("distribution").unwrap();
        assert_eq!((&distribution[2][0], &distribution[2][1]), (&0.5.into(), &quiet["p50"]));
        assert_eq!((&distribution[13][0], &distribution[13][1]), (&0.999.into(), &quiet["p999"]));
        json["latency_us"]["quiet"]["p999"] = expected["latency_us"]["quiet"]["p999"].clone();
        json["latency_us"]["quiet"]["p50"] = expected["latency_us"]["quiet"]["p50"].clone();
        json["latency_us"]["quiet"]["p99"] = expected["latency_us"]["quiet"]["p99"].clone();
        assert_eq!(json, expected);
        let mut scenario = report.clone();
        scenario.args.scenario = Some(Scenario::Flap);
        scenario.totals.faults[Kind::Flap as usize] = 3;
        scenario.findings.push(Finding::new("connects_per_peer", 17.0, Bound::AtMost(41.0)));
        let json: serde_json::Value = serde_json::from_str(&scenario.json()).unwrap();
        assert_eq!((&json["scenario"], &json["faults"]["flap"]), (&"flap".into(), &3.into()));
        assert_eq!(json["findings"], serde_json::json!({"connects_per_peer": {"value": 17, "at_most": 41}}));
        let without = Report { counts: Counts { table: None, ..report.counts }, ..report };
        let json: serde_json::Value = serde_json::from_str(&without.json()).unwrap();
        assert!(json["generations"].is_null());
    }

    #[test]
    fn what_must_not_be_is_a_problem_and_nothing_else_is() {
        assert_eq!(good(Mode::Peerage).problems(), [""; 0]);
        let problem = |change: fn(&mut Report)| {
            let mut report = good(Mode::Peerage);
            change(&mut report);
            report.problems().len()
        };
        assert_eq!(problem(|report| report.totals.lost = 1), 1);
        assert_eq!(problem(|report| report.totals.corrupt = 1), 1);
        assert_eq!(problem(|report| report.counts.duplicate_connects = 1), 1);
        assert_eq!(problem(|report| report.counts.native_connects = 11), 1);
        assert_eq!(problem(|report| report.totals.recovered = 1), 1);
        assert_eq!(problem(|report| report.findings.push(Finding::new("n", 2.0, Bound::AtMost(1.0)))), 1);
        assert_eq!(problem(|report| report.fds = Some(Span { start: 1, end: 999 })), 0);
        assert_eq!(problem(|report| report.latencies.reconnecting = column(10_000, 9_000)), 0);
        assert_eq!(problem(|report| report.totals.failed = 99), 0);
    }

    #[test]
    fn check_judges_each_mode_by_its_own_bound() {
        let with = |mode, reconnecting: (u64, u64), quiet: (u64, u64), duplicates| {
            let mut report = good(mode);
            report.latencies =
                Latencies { quiet: column(quiet.0, quiet.1), reconnecting: column(reconnecting.0, reconnecting.1) };
            report.counts.duplicate_connects = duplicates;
            check(&[report]).len()
        };
        let q = (10_000, 0);
        assert_eq!(with(Mode::CheckThenAdd, q, q, 1), 0);
        assert_eq!(with(Mode::CheckThenAdd, q, q, 0), 1);
        assert_eq!(with(Mode::GlobalLock, (10_000, 1_000), q, 0), 0);
        assert_eq!(with(Mode::GlobalLock, (10_000, 999), q, 0), 1);
        assert_eq!(with(Mode::GlobalLock, (9_999, 9_999), q, 0), 1);
        assert_eq!(with(Mode::Peerage, (10_000, 10), q, 0), 0);
        assert_eq!(with(Mode::Peerage, (10_000, 11), q, 0), 1);
        assert_eq!(with(Mode::Peerage, (10_000, 30), (10_000, 20), 0), 0);
        assert_eq!(with(Mode::Peerage, (10_000, 31), (10_000, 20), 0), 1);
        assert_eq!(with(Mode::Peerage, (10_000, 30), (9_999, 20), 0), 1);
    }

    #[test]
    fn the_table_has_a_column_for_each_run() {
        let text = table(&[good(Mode::Peerage), good(Mode::GlobalLock)]);
        assert!(text.contains("peerage") && text.contains("global-lock"), "{text}");
        assert!(text.contains("too few (0)"), "{text}");
        let width = text.lines().next().unwrap().len();
        assert!(text.lines().all(|line| line.len() == width), "{text}");
    }
}
