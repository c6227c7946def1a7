//! What the parent and its children say to each other: one line each, over the child's stdin and stdout.

use crate::latency::{Column, Histogram};
use crate::ledger::End;
use std::fmt;
use std::str::FromStr;

/// Parent to child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    /// Decode: run this request, and use its pages for `hold_ms` once they are there; on the prefill that it names, with
    /// the address it was given for it, if it names one.
    Start {
        request: u64,
        hold_ms: u64,
        blocks: Vec<u64>,
        to: Option<(String, String)>,
    },
    /// This peer is there now.
    At {
        peer: String,
        address: String,
    },
    /// Measure latency from now on, or no longer.
    Probe(bool),
    /// Say `Settled` when all peers are Ready.
    Settle,
    /// Reset every connection that this peer, or every peer, has made to you.
    Cut(Option<String>),
    /// Prefill: say `InWrite` once, when only half of a request's pages are written, and pause there for a moment.
    PauseInWrite,
    /// Decode: report this peer's connection again and again, whatever its health.
    Flap {
        peer: String,
        seed: u64,
    },
    /// Decode: report it no longer, and say `Flapped`.
    Calm(String),
    Quit,
}

/// Child to parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// It listens, at an address that names its boot.
    Up { address: String },
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
    /// What it sees of a peer from now on.
    Saw { peer: String, view: View },
    /// A dial of its has ended.
    Dialed(Dial),
    /// It has cut connections that were made to it, between these two times, in microseconds of the system's clock.
    HasCut { begun: u64, ended: u64 },
    /// Its errors about this peer are over.
    Flapped { peer: String, flap: Flapped },
    /// A rank of a group was gone; what became of the others.
    GroupAsked { gone: String, asked: GroupAsked },
    /// A count of its, at its end.
    Tally(Tally, u64),
    /// It has shut down; what it could not take back, if anything.
    Bye { leaked: String },
    /// It can't go on.
    Broken(String),
}

/// How a peer looks to who sends to it, from well to not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum View {
    Ready,
    /// Ready, and it has not answered for a heartbeat's interval.
    Suspect,
    /// Not Ready.
    Down,
}

impl View {
    const NAMES: [(View, &str); 3] = [(View::Ready, "ready"), (View::Suspect, "suspect"), (View::Down, "down")];
}

/// One native connect, its times in microseconds of the system's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dial {
    pub(crate) to: String,
    pub(crate) begun: u64,
    pub(crate) ended: u64,
    pub(crate) made: bool,
}

/// What errors of a live peer have led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flapped {
    pub(crate) errors: u64,
    pub(crate) connects: u64,
    pub(crate) micros: u64,
}

/// Of the ranks that were Ready when another was gone, how many were probed, and how soon all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupAsked {
    pub(crate) ready: u64,
    pub(crate) probed: u64,
    pub(crate) micros: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Tally {
    /// The most connects within their deadline that ran at one instant.
    ConnectsAtOnce,
    /// Callers that had to wait for a peer, and those who waited in vain.
    Waits,
    WaitsInVain,
    /// Leases that were looked at, and those of a connection that was not whole.
    Looks,
    HalfOpen,
}

impl Tally {
    const NAMES: [(Tally, &str); 5] = [
        (Tally::ConnectsAtOnce, "connects-at-once"),
        (Tally::Waits, "waits"),
        (Tally::WaitsInVain, "waits-in-vain"),
        (Tally::Looks, "looks"),
        (Tally::HalfOpen, "half-open"),
    ];
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
            Command::Start { request, hold_ms, blocks, to } => {
                write!(f, "start {request} {hold_ms} ")?;
                blocks
                    .iter()
                    .enumerate()
                    .try_for_each(|(at, id)| write!(f, "{}{id}", if at == 0 { "" } else { "," }))?;
                to.iter().try_for_each(|(peer, address)| write!(f, " {peer} {address}"))
            }
            Command::At { peer, address } => write!(f, "at {peer} {address}"),
            Command::Probe(on) => write!(f, "probe {}", if *on { "on" } else { "off" }),
            Command::Settle => f.write_str("settle"),
            Command::Cut(Some(peer)) => write!(f, "cut {peer}"),
            Command::Cut(None) => f.write_str("cut-all"),
            Command::PauseInWrite => f.write_str("pause-in-write"),
            Command::Flap { peer, seed } => write!(f, "flap {peer} {seed}"),
            Command::Calm(peer) => write!(f, "calm {peer}"),
            Command::Quit => f.write_str("quit"),
        }
    }
}

impl FromStr for Command {
    type Err = Garbled;

    fn from_str(line: &str) -> Result<Self, Garbled> {
        let words: Vec<_> = line.split(' ').collect();
        Ok(match words[..] {
            ["start", request, hold_ms, blocks, ref to @ ..] => Command::Start {
                request: number(request)?,
                hold_ms: number(hold_ms)?,
                blocks: blocks.split(',').map(number).collect::<Result<_, _>>()?,
                to: match *to {
                    [] => None,
                    [peer, address] => Some((peer.into(), address.into())),
                    _ => return Err(Garbled),
                },
            },
            ["at", peer, address] => Command::At { peer: peer.into(), address: address.into() },
            ["probe", on] => Command::Probe(on == "on"),
            ["settle"] => Command::Settle,
            ["cut", peer] => Command::Cut(Some(peer.into())),
            ["cut-all"] => Command::Cut(None),
            ["pause-in-write"] => Command::PauseInWrite,
            ["flap", peer, seed] => Command::Flap { peer: peer.into(), seed: number(seed)? },
            ["calm", peer] => Command::Calm(peer.into()),
            ["quit"] => Command::Quit,
            _ => return Err(Garbled),
        })
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Up { address } => write!(f, "up {address}"),
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
            Event::Saw { peer, view } => write!(f, "saw {peer} {}", name(&View::NAMES, *view)),
            Event::Dialed(Dial { to, begun, ended, made }) => write!(f, "dialed {to} {begun} {ended} {made}"),
            Event::HasCut { begun, ended } => write!(f, "has-cut {begun} {ended}"),
            Event::Flapped { peer, flap: Flapped { errors, connects, micros } } => {
                write!(f, "flapped {peer} {errors} {connects} {micros}")
            }
            Event::GroupAsked { gone, asked: GroupAsked { ready, probed, micros } } => {
                write!(f, "group-asked {gone} {ready} {probed} {micros}")
            }
            Event::Tally(of, n) => write!(f, "tally {} {n}", name(&Tally::NAMES, *of)),
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
            "up" => Event::Up { address: rest.into() },
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
            "saw" | "dialed" | "has-cut" | "flapped" | "group-asked" | "tally" => match (word, &words[..]) {
                ("saw", &[peer, view]) => Event::Saw { peer: peer.into(), view: named(&View::NAMES, view)? },
                ("dialed", &[to, begun, ended, made]) => Event::Dialed(Dial {
                    to: to.into(),
                    begun: number(begun)?,
                    ended: number(ended)?,
                    made: made.parse().map_err(|_| Garbled)?,
                }),
                ("has-cut", &[begun, ended]) => Event::HasCut { begun: number(begun)?, ended: number(ended)? },
                ("flapped", &[peer, errors, connects, micros]) => Event::Flapped {
                    peer: peer.into(),
                    flap: Flapped { errors: number(errors)?, connects: number(connects)?, micros: number(micros)? },
                },
                ("group-asked", &[gone, ready, probed, micros]) => Event::GroupAsked {
                    gone: gone.into(),
                    asked: GroupAsked { ready: number(ready)?, probed: number(probed)?, micros: number(micros)? },
                },
                ("tally", &[of, n]) => Event::Tally(named(&Tally::NAMES, of)?, number(n)?),
                _ => return Err(Garbled),
            },
            "bye" => Event::Bye { leaked: rest.into() },
            "broken" => Event::Broken(rest.into()),
            _ => return Err(Garbled),
        })
    }
}

fn number(text: &str) -> Result<u64, Garbled> {
    text.parse().map_err(|_| Garbled)
}

fn name<T: PartialEq>(names: &[(T, &'static str)], of: T) -> &'static str {
    names.iter().find(|(value, _)| *value == of).map_or("?", |(_, name)| name)
}

fn named<T: Copy>(names: &[(T, &str)], text: &str) -> Result<T, Garbled> {
    names.iter().find(|(_, name)| *name == text).map(|(value, _)| *value).ok_or(Garbled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn every_line_survives_the_pipe() {
        for command in [
            Command::Start { request: 7, hold_ms: 120, blocks: vec![1, 2, u64::MAX], to: None },
            Command::Start { request: 7, hold_ms: 1, blocks: vec![1], to: Some(("p".into(), "h:1#ff".into())) },
            Command::Flap { peer: "prefill-1".into(), seed: u64::MAX },
            Command::Calm("prefill-1".into()),
            Command::At { peer: "prefill-1".into(), address: "h:1#ff".into() },
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
        let views = [View::Ready, View::Suspect, View::Down];
        for event in views.map(|view| Event::Saw { peer: "prefill-1".into(), view }) {
            assert_eq!(event.to_string().parse(), Ok(event));
        }
        for event in Tally::NAMES.map(|(of, _)| Event::Tally(of, 7)) {
            assert_eq!(event.to_string().parse(), Ok(event));
        }
        let peer = || "prefill-1".to_owned();
        for event in [
            Event::Up { address: "127.0.0.1:7000#ff".into() },
            Event::Dialed(Dial { to: peer(), begun: 7, ended: 9, made: true }),
            Event::HasCut { begun: 7, ended: 9 },
            Event::Flapped { peer: peer(), flap: Flapped { errors: 40, connects: 9, micros: 30_000_000 } },
            Event::GroupAsked { gone: peer(), asked: GroupAsked { ready: 3, probed: 2, micros: 900 } },
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
        for line in ["", "start", "start 1 2 x", "start 1 2", "start 1 2 3 p", "prob on", "stop", "flap p"] {
            assert_eq!(line.parse::<Command>(), Err(Garbled), "{line}");
        }
        let garbled = ["saw p", "saw p well", "dialed p 1 2", "dialed p 1 2 no", "tally eggs 1", "flapped p 1"];
        for line in ["", "ok", "end 7", "end 7 - fine", "counts 1", "counts 1 2 3", "quiet x"].iter().chain(&garbled) {
            assert_eq!(line.parse::<Event>(), Err(Garbled), "{line}");
        }
    }
}
