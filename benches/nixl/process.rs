//! The processes of a measurement: this program again, each with a part of its own.

use crate::{lease, served, slow, writes};
use std::error::Error;
use std::process::{Command, Stdio};

const PART: &str = "PEERAGE_BENCH_PART";

/// What a line of numbers begins with: UCX says its errors on the same output.
const MARK: &str = "measured: ";

/// A line of numbers, for who has started this process.
pub(crate) fn say(numbers: &[f64]) {
    println!("{MARK}{}", numbers.iter().map(f64::to_string).collect::<Vec<_>>().join(" "));
}

/// If this process was started for a part, plays it to its end.
pub(crate) fn is_a_part() -> Result<bool, Box<dyn Error>> {
    let Ok(part) = std::env::var(PART) else { return Ok(false) };
    let words: Vec<&str> = part.split(' ').collect();
    match words[..] {
        ["serve", name] => served::serve(name)?,
        ["writes", pairs] => writes::measure(pairs.parse()?)?,
        ["lease", rounds] => lease::measure(rounds.parse()?)?,
        ["slow", agents] => slow::measure(agents.parse()?)?,
        _ => return Err(format!("unknown part {part:?}").into()),
    }
    Ok(true)
}

/// This program with a part.
pub(crate) struct Part(pub(crate) Command);

impl Part {
    /// `tls`: what UCX moves bytes over, or its own `default`.
    pub(crate) fn new(words: &[&str], tls: &str) -> Self {
        let mut part = Self::of_this(words);
        part.0.env_remove("UCX_TLS").envs((tls != "default").then_some(("UCX_TLS", tls)));
        part
    }

    /// With what this process has.
    pub(crate) fn of_this(words: &[&str]) -> Self {
        // Its name may be gone from the disk, if it was built anew meanwhile.
        let mut command = Command::new("/proc/self/exe");
        command.env(PART, words.join(" "));
        Part(command)
    }

    /// Runs it, and reads the numbers of each of its lines.
    pub(crate) fn numbers<const N: usize>(mut self) -> Result<Vec<[f64; N]>, Box<dyn Error>> {
        let output = self.0.stderr(Stdio::inherit()).output()?;
        if !output.status.success() {
            return Err(format!("a part of it: {}", output.status).into());
        }
        let numbers = |line: &str| {
            let numbers: Vec<f64> = line.split(' ').map(str::parse).collect::<Result<_, _>>()?;
            <[f64; N]>::try_from(numbers).map_err(|_| format!("not {N} numbers: {line}").into())
        };
        String::from_utf8(output.stdout)?.lines().filter_map(|line| line.strip_prefix(MARK)).map(numbers).collect()
    }
}
