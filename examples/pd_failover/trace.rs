//! Requests: read from a trace of the public Mooncake format, or made up in the same shape.
//!
//! A trace is read one line at a time and nothing in it is believed: a line has a longest length, a request a largest
//! size, and an error names the line.

use crate::random::Random;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Tokens of one block, and so of one page.
pub(crate) const BLOCK_TOKENS: u64 = 512;
/// The largest request that is believed, in tokens.
const MAX_TOKENS: u64 = 256 * BLOCK_TOKENS;
/// The longest line that is read, in bytes: room for the largest request with the longest ids, and some spaces.
const MAX_LINE: u64 = 16 * 1024;
/// The latest timestamp that is believed: a year.
const MAX_TIMESTAMP: u64 = 366 * 24 * 3600 * 1000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    /// When it came, counted from the start of the recording.
    pub(crate) at: Duration,
    pub(crate) output_tokens: u64,
    /// Ids of the blocks of its prompt.
    pub(crate) blocks: Vec<u64>,
}

/// Why a trace can't be replayed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TraceError {
    #[error("trace {}: {error}", path.display())]
    Io { path: PathBuf, error: std::io::Error },
    #[error("trace {} has no requests", path.display())]
    Empty { path: PathBuf },
    #[error("trace {}, line {line}: {what}", path.display())]
    Line { path: PathBuf, line: u64, what: String },
}

/// An endless supply of requests in order of time.
#[derive(Debug)]
pub(crate) enum Requests {
    Trace(Trace),
    Generated(Generator),
}

impl Requests {
    pub(crate) fn open(trace: Option<&Path>, seed: u64) -> Result<Self, TraceError> {
        Ok(match trace {
            Some(path) => Requests::Trace(Trace::open(path)?),
            None => Requests::Generated(Generator::new(seed)),
        })
    }

    pub(crate) fn next(&mut self) -> Result<Request, TraceError> {
        match self {
            Requests::Trace(trace) => trace.next(),
            Requests::Generated(generator) => Ok(generator.next()),
        }
    }
}

/// A trace file, replayed from its start again when it ends.
#[derive(Debug)]
pub(crate) struct Trace {
    path: PathBuf,
    lines: BufReader<File>,
    line: u64,
    /// Timestamp of the last request of this pass, in milliseconds.
    last: u64,
    /// When this pass began.
    pass: Duration,
}

impl Trace {
    fn open(path: &Path) -> Result<Self, TraceError> {
        let file = File::open(path).map_err(|error| TraceError::Io { path: path.into(), error })?;
        Ok(Trace { path: path.into(), lines: BufReader::new(file), line: 0, last: 0, pass: Duration::ZERO })
    }

    fn next(&mut self) -> Result<Request, TraceError> {
        if let Some(request) = self.read()? {
            return Ok(request);
        }
        if self.line == 0 {
            return Err(TraceError::Empty { path: self.path.clone() });
        }
        // The next pass follows at the mean distance of two requests; after a second if all came at once.
        let gap = Duration::from_millis(if self.last == 0 { 1000 } else { self.last.div_ceil(self.line) });
        let pass = self.pass + Duration::from_millis(self.last) + gap;
        // A pipe has no start to go back to, and opening it again would wait for a writer.
        self.lines.rewind().map_err(|error| TraceError::Io { path: self.path.clone(), error })?;
        (self.line, self.last, self.pass) = (0, 0, pass);
        self.read()?.ok_or_else(|| TraceError::Empty { path: self.path.clone() })
    }

    /// The next request of this pass.
    fn read(&mut self) -> Result<Option<Request>, TraceError> {
        let mut text = Vec::new();
        let read = (&mut self.lines).take(MAX_LINE + 1).read_until(b'\n', &mut text);
        if read.map_err(|error| TraceError::Io { path: self.path.clone(), error })? == 0 {
            return Ok(None);
        }
        self.line += 1;
        let (timestamp, request) = if text.len() as u64 > MAX_LINE {
            Err(format!("longer than {MAX_LINE} bytes"))
        } else {
            parse(&text, self.last)
        }
        .map_err(|what| TraceError::Line { path: self.path.clone(), line: self.line, what })?;
        self.last = timestamp;
        Ok(Some(Request { at: self.pass + request.at, ..request }))
    }
}

fn parse(text: &[u8], last: u64) -> Result<(u64, Request), String> {
    let line: serde_json::Value = serde_json::from_slice(text).map_err(|error| format!("not JSON: {error}"))?;
    let number = |field: &str, low: u64, high: u64| match line.get(field).and_then(serde_json::Value::as_u64) {
        Some(n) if (low..=high).contains(&n) => Ok(n),
        Some(n) => Err(format!("\"{field}\" is {n}; from {low} to {high} is believed")),
        None => Err(format!("\"{field}\" is missing or not a whole number")),
    };
    let timestamp = number("timestamp", 0, MAX_TIMESTAMP)?;
    if timestamp < last {
        return Err(format!("\"timestamp\" falls from {last} to {timestamp}; sort the trace"));
    }
    let input_tokens = number("input_length", 1, MAX_TOKENS)?;
    let output_tokens = number("output_length", 0, MAX_TOKENS)?;
    let ids = line.get("hash_ids").and_then(serde_json::Value::as_array);
    let ids = ids.ok_or("\"hash_ids\" is missing or not a list")?;
    let blocks = input_tokens.div_ceil(BLOCK_TOKENS);
    if ids.len() as u64 != blocks {
        return Err(format!("\"hash_ids\" has {} ids; {input_tokens} tokens are {blocks} blocks", ids.len()));
    }
    let blocks: Option<Vec<u64>> = ids.iter().map(serde_json::Value::as_u64).collect();
    let blocks = blocks.ok_or("\"hash_ids\" has something that is not a whole number")?;
    Ok((timestamp, Request { at: Duration::from_millis(timestamp), output_tokens, blocks }))
}

/// Makes up requests: as many a second, as long and as often with a common prefix as those of the public trace.
#[derive(Debug)]
pub(crate) struct Generator {
    random: Random,
    now: f64,
    next_block: u64,
}

impl Generator {
    const PER_SECOND: f64 = 3.4;
    const MEAN_INPUT: f64 = 12_000.0;
    const MEAN_OUTPUT: f64 = 340.0;
    /// Blocks of each common prefix, and how many there are.
    const PREFIX: u64 = 4;
    const PREFIXES: u64 = 50;

    fn new(seed: u64) -> Self {
        Generator { random: Random::new(seed ^ 0x7ace), now: 0.0, next_block: Self::PREFIX * Self::PREFIXES }
    }

    fn next(&mut self) -> Request {
        let mut exponential = |mean: f64| -self.random.unit().ln() * mean;
        self.now += exponential(1.0 / Self::PER_SECOND);
        let input = exponential(Self::MEAN_INPUT).clamp(1.0, 126_000.0) as u64;
        let output_tokens = exponential(Self::MEAN_OUTPUT).clamp(1.0, 2_000.0) as u64;
        let prefix = self.random.below(Self::PREFIXES) * Self::PREFIX;
        let blocks = input.div_ceil(BLOCK_TOKENS);
        let own = self.next_block;
        self.next_block += blocks;
        let blocks = (0..blocks).map(|at| if at < Self::PREFIX { prefix + at } else { own + at }).collect();
        Request { at: Duration::from_secs_f64(self.now), output_tokens, blocks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"timestamp": 5, "input_length": 1000, "output_length": 3, "hash_ids": [7, 8]}"#;

    fn trace(text: &str) -> (PathBuf, Result<Trace, TraceError>) {
        use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("pd_failover-{}-{}.jsonl", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).unwrap();
        (path.clone(), Trace::open(&path))
    }

    fn last_error(text: &str) -> String {
        let (path, trace) = trace(text);
        let mut trace = trace.unwrap();
        let error = (0..100).find_map(|_| trace.next().err()).expect("a hundred good requests");
        std::fs::remove_file(path).unwrap();
        error.to_string()
    }

    #[test]
    fn a_trace_is_replayed_again_when_it_ends() {
        let later = GOOD.replace(": 5,", ": 11,");
        let (path, trace) = trace(&format!("{GOOD}\n{later}"));
        let mut trace = trace.unwrap();
        let at: Vec<_> = (0..6).map(|_| trace.next().unwrap().at.as_millis()).collect();
        assert_eq!(at, [5, 11, 22, 28, 39, 45]);
        assert_eq!(trace.next().unwrap().blocks, [7, 8]);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn an_error_names_the_line_and_what_is_wrong_with_it() {
        for (line, says) in [
            ("{", "not JSON"),
            ("", "not JSON"),
            (r#"{"timestamp": 4, "input_length": 1000, "output_length": 3, "hash_ids": [7, 8]}"#, "falls from 5 to 4"),
            (
                r#"{"timestamp": -1, "input_length": 1000, "output_length": 3, "hash_ids": [7, 8]}"#,
                "\"timestamp\" is missing",
            ),
            (r#"{"timestamp": 5, "output_length": 3, "hash_ids": [7, 8]}"#, "\"input_length\" is missing"),
            (r#"{"timestamp": 5, "input_length": 0, "output_length": 3, "hash_ids": []}"#, "\"input_length\" is 0"),
            (r#"{"timestamp": 5, "input_length": 99999999, "output_length": 3, "hash_ids": []}"#, "is believed"),
            (r#"{"timestamp": 5, "input_length": 1000, "output_length": 1e30, "hash_ids": []}"#, "\"output_length\""),
            (r#"{"timestamp": 5, "input_length": 1000, "output_length": 3, "hash_ids": [7]}"#, "has 1 ids"),
            (
                r#"{"timestamp": 5, "input_length": 1000, "output_length": 3, "hash_ids": [7, "8"]}"#,
                "not a whole number",
            ),
            (r#"{"timestamp": 5, "input_length": 1000, "output_length": 3}"#, "\"hash_ids\" is missing"),
            (&" ".repeat(20_000), "longer than 16384 bytes"),
        ] {
            let error = last_error(&format!("{GOOD}\n{line}\n{GOOD}\n"));
            assert!(error.contains("line 2: ") && error.contains(says), "{line}: {error}");
        }
        assert!(last_error("").contains("has no requests"));
    }

    #[test]
    fn a_generated_run_is_the_same_for_the_same_seed_and_has_the_shape_of_a_trace() {
        let made = |seed| {
            let mut generator = Generator::new(seed);
            (0..3_000).map(|_| generator.next()).collect::<Vec<_>>()
        };
        let requests = made(1);
        assert_eq!(requests, made(1));
        assert_ne!(requests, made(2));
        let blocks: usize = requests.iter().map(|request| request.blocks.len()).sum();
        assert!((20..30).contains(&(blocks / requests.len())), "{blocks} blocks");
        let seconds = requests.last().unwrap().at.as_secs();
        assert!((700..1_100).contains(&seconds), "{seconds} s");
        assert!(requests.iter().all(|request| (1..=247).contains(&request.blocks.len())));
    }
}
