//! What the parent and its children say to each other: one line each, over the child's stdin and stdout.

use crate::latency::{Column, Histogram};
use crate::ledger::End;
use std::fmt;
use std::str::FromStr;

/// Parent to child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    /// Decode: run this request, and use its pages for `hold_ms` once they are there.
    Start {
        request: u64,
        hold_ms: u64,
        blocks: Vec<u64>,
    },
    /// Measure latency from now on, or no longer.
    Probe(bool),
    /// Say `Settled` when all peers are Ready.
    Settle,
    /// Reset every connection that this peer, or every peer, has made to you.
    Cut(Option<String>),
    /// Prefill: say `InWrite` once, when only half of a request's pages are written, and pause there for a moment.
    PauseInWrite,
    Quit,
}

/// Child to parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// It listens.
    Up,
    /// All its peers are Ready.
    Settled,
    /// Half of a request's pages are not written yet.
    InWrite,
    /// A request ended.
    Ended { request: u64, prefill: Option<String>, end: End, why: String },
    /// Its counts so far, at a moment when no connect ran. The last ones of a process that is killed may be a few
    /// tenths of a second old, but they belong together.
    Counts(Counts),
    /// Latencies since the last such line.
    Latencies(Column, Histogram),
    /// It has shut down; what it could not take back, if anything.
    Bye { leaked: String },
    /// It can't go on.
    Broken(String),
}

/// What a child counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Elections won, those that ended before their connect call, and reports that came too late; `None` without a table.
    pub(crate) table: Option<TableCounts>,
    pub(crate) native_connects: u64,
    pub(crate) duplicate_connects: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TableCounts {
    pub(crate) generations: u64,
    pub(crate) elections_without_connect: u64,
    pub(crate) stale_reports: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, more: Counts) {
        self.native_connects += more.native_connects;
        self.duplicate_connects += more.duplicate_connects;
        if let Some(more) = more.table {
            let table = self.table.get_or_insert_default();
            table.generations += more.generations;
            table.elections_without_connect += more.elections_without_connect;
            table.stale_reports += more.stale_reports;
        }
    }
}

/// A line that is none of ours.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Garbled;

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Command::Start { request, hold_ms, blocks } => {
                write!(f, "start {request} {hold_ms} ")?;
                blocks.iter().enumerate().try_for_each(|(at, id)| write!(f, "{}{id}", if at == 0 { "" } else { "," }))
            }
            Command::Probe(on) => write!(f, "probe {}", if *on { "on" } else { "off" }),
            Command::Settle => f.write_str("settle"),
            Command::Cut(Some(peer)) => write!(f, "cut {peer}"),
            Command::Cut(None) => f.write_str("cut-all"),
            Command::PauseInWrite => f.write_str("pause-in-write"),
            Command::Quit => f.write_str("quit"),
        }
    }
}

impl FromStr for Command {
    type Err = Garbled;

    fn from_str(line: &str) -> Result<Self, Garbled> {
        let words: Vec<_> = line.split(' ').collect();
        Ok(match words[..] {
            ["start", request, hold_ms, blocks] => Command::Start {
                request: number(request)?,
                hold_ms: number(hold_ms)?,
                blocks: blocks.split(',').map(number).collect::<Result<_, _>>()?,
            },
            ["probe", on] => Command::Probe(on == "on"),
            ["settle"] => Command::Settle,
            ["cut", peer] => Command::Cut(Some(peer.into())),
            ["cut-all"] => Command::Cut(None),
            ["pause-in-write"] => Command::PauseInWrite,
            ["quit"] => Command::Quit,
            _ => return Err(Garbled),
        })
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Up => f.write_str("up"),
            Event::Settled => f.write_str("settled"),
            Event::InWrite => f.write_str("in-write"),
            Event::Ended { request, prefill, end, why } => {
                let end = match end {
                    End::Ok => "ok",
                    End::Failed => "failed",
                    End::Corrupt => "corrupt",
                };
                write!(f, "end {request} {} {end} {why}", prefill.as_deref().unwrap_or("-"))
            }
            Event::Counts(counts) => {
                write!(f, "counts {} {}", counts.native_connects, counts.duplicate_connects)?;
                match counts.table {
                    Some(table) => {
                        let TableCounts { generations, elections_without_connect, stale_reports } = table;
                        write!(f, " {generations} {elections_without_connect} {stale_reports}")
                    }
                    None => Ok(()),
                }
            }
            Event::Latencies(Column::Quiet, histogram) => write!(f, "quiet {}", histogram.encode()),
            Event::Latencies(Column::Reconnecting, histogram) => write!(f, "reconnecting {}", histogram.encode()),
            Event::Bye { leaked } => write!(f, "bye {leaked}"),
            Event::Broken(why) => write!(f, "broken {}", why.replace('\n', " ")),
        }
    }
}

impl FromStr for Event {
    type Err = Garbled;

    fn from_str(line: &str) -> Result<Self, Garbled> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let words: Vec<_> = rest.split(' ').collect();
        Ok(match word {
            "up" => Event::Up,
            "settled" => Event::Settled,
            "in-write" => Event::InWrite,
            "end" => {
                let [request, prefill, end, ref why @ ..] = words[..] else { return Err(Garbled) };
                let end = match end {
                    "ok" => End::Ok,
                    "failed" => End::Failed,
                    "corrupt" => End::Corrupt,
                    _ => return Err(Garbled),
                };
                let prefill = (prefill != "-").then(|| prefill.into());
                Event::Ended { request: number(request)?, prefill, end, why: why.join(" ") }
            }
            "counts" => {
                let numbers = words.iter().map(|word| number(word)).collect::<Result<Vec<_>, _>>()?;
                let (native_connects, duplicate_connects, table) = match numbers[..] {
                    [native, duplicate] => (native, duplicate, None),
                    [native, duplicate, generations, elections_without_connect, stale_reports] => {
                        let table = TableCounts { generations, elections_without_connect, stale_reports };
                        (native, duplicate, Some(table))
                    }
                    _ => return Err(Garbled),
                };
                Event::Counts(Counts { table, native_connects, duplicate_connects })
            }
            "quiet" | "reconnecting" => {
                let histogram = Histogram::decode(rest).ok_or(Garbled)?;
                Event::Latencies(if word == "quiet" { Column::Quiet } else { Column::Reconnecting }, histogram)
            }
            "bye" => Event::Bye { leaked: rest.into() },
            "broken" => Event::Broken(rest.into()),
            _ => return Err(Garbled),
        })
    }
}

fn number(text: &str) -> Result<u64, Garbled> {
    text.parse().map_err(|_| Garbled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn every_line_survives_the_pipe() {
        for command in [
            Command::Start { request: 7, hold_ms: 120, blocks: vec![1, 2, u64::MAX] },
            Command::Probe(true),
            Command::Probe(false),
            Command::Settle,
            Command::Cut(Some("prefill-1".into())),
            Command::Cut(None),
            Command::PauseInWrite,
            Command::Quit,
        ] {
            assert_eq!(command.to_string().parse(), Ok(command));
        }
        let mut histogram = Histogram::default();
        histogram.add(Duration::from_micros(9), Duration::ZERO);
        let table = Some(TableCounts { generations: 3, elections_without_connect: 1, stale_reports: 8 });
        for event in [
            Event::Up,
            Event::Settled,
            Event::InWrite,
            Event::Ended { request: 7, prefill: Some("prefill-1".into()), end: End::Ok, why: String::new() },
            Event::Ended { request: 7, prefill: None, end: End::Failed, why: "no peer is ready".into() },
            Event::Ended { request: 7, prefill: None, end: End::Corrupt, why: "page 7".into() },
            Event::Counts(Counts { table: None, native_connects: 2, duplicate_connects: 1 }),
            Event::Counts(Counts { table, native_connects: 2, duplicate_connects: 0 }),
            Event::Latencies(Column::Quiet, histogram.clone()),
            Event::Latencies(Column::Reconnecting, histogram),
            Event::Bye { leaked: String::new() },
            Event::Broken("no port".into()),
        ] {
            assert_eq!(event.to_string().parse(), Ok(event));
        }
    }

    #[test]
    fn a_garbled_line_is_refused() {
        for line in ["", "start", "start 1 2 x", "start 1 2", "prob on", "stop"] {
            assert_eq!(line.parse::<Command>(), Err(Garbled), "{line}");
        }
        for line in ["", "ok", "end 7", "end 7 - fine", "counts 1", "counts 1 2 3", "quiet x"] {
            assert_eq!(line.parse::<Event>(), Err(Garbled), "{line}");
        }
    }
}
