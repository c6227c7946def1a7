//! What every benchmark is asked on its command line, the lines it leaves for programs, and the bounds it keeps.

use serde_json::{Value, json};
use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::ops::{Bound, RangeBounds};
use std::process::ExitCode;

/// One JSON object per line: the benchmark, the case, and what the benchmark adds.
pub(crate) struct Lines {
    bench: &'static str,
    /// Divides how often everything is measured.
    pub(crate) hurry: usize,
    check: bool,
    file: Option<File>,
    broken: usize,
}

impl Lines {
    /// Reads the command line.
    pub(crate) fn of(bench: &'static str) -> Result<Self, Box<dyn Error>> {
        let mut lines = Lines { bench, hurry: 1, check: false, file: None, broken: 0 };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--check" => lines.check = true,
                "--quick" => lines.hurry = 4,
                "--json" => lines.file = Some(File::create(arguments.next().ok_or("--json needs a file")?)?),
                "--bench" => {} // cargo's own
                other => {
                    return Err(format!("unknown argument {other:?}; there are --check, --quick, --json FILE").into());
                }
            }
        }
        Ok(lines)
    }

    /// Leaves one line. `fields` is an object.
    pub(crate) fn put(&mut self, case: &str, fields: Value) -> Result<(), Box<dyn Error>> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut line = json!({ "bench": self.bench, "case": case });
        let (Some(line_fields), Value::Object(mut fields)) = (line.as_object_mut(), fields) else {
            return Err("the fields of a line are an object".into());
        };
        line_fields.append(&mut fields);
        Ok(writeln!(file, "{line}")?)
    }

    /// Says whether `value` keeps its bound. `None`: it could not be measured, which keeps nothing.
    pub(crate) fn bound(
        &mut self,
        what: &str,
        value: Option<f64>,
        bound: impl RangeBounds<f64>,
    ) -> Result<(), Box<dyn Error>> {
        let keeps = value.is_some_and(|value| bound.contains(&value));
        let (is, limit) = match (bound.start_bound(), bound.end_bound()) {
            (Bound::Included(limit), _) => ("at least", limit),
            (_, Bound::Included(limit)) => ("at most", limit),
            _ => return Err(format!("no bound for {what}").into()),
        };
        self.broken += usize::from(!keeps);
        let shown = value.map_or("not measured".into(), |value| format!("{value:.4}"));
        println!("{} {what}: {shown}, {is} {limit}", if keeps { "ok    " } else { "BROKEN" });
        self.put("bound", json!({ "what": what, "value": value, "is": is, "bound": limit, "keeps": keeps }))
    }

    /// Failure if a bound is broken and it was asked to check.
    pub(crate) fn end(self) -> ExitCode {
        if self.check && self.broken > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }
}
