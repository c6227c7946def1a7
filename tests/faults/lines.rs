//! What the test and its processes say to each other: one line each.

use serde_json::Value;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// Test to process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    /// Take this peer into the table, and send to it; report its connection if it does not answer in so many milliseconds.
    Insert { peer: String, at: SocketAddr, answer_within_ms: u64 },
    /// Remove this peer; say `Removed` when that is over.
    Remove { peer: String },
    /// Reset every connection that this peer has made to you.
    Cut { peer: String },
    /// Begin nothing new.
    Rest,
    /// Shut down, say `Bye`, end.
    Quit,
}

/// Process to test.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    /// It listens.
    Up { at: SocketAddr, incarnation: String },
    /// All that it knows; every few milliseconds.
    Table(Value),
    /// A removal has ended; how.
    Removed { peer: String, how: String },
    /// It has shut down; what was left, if anything.
    Bye { left: String },
    /// It can't go on.
    Broken { why: String },
    /// What the test harness inside the process prints.
    Chatter,
}

/// What makes a line one of ours.
const MARK: &str = "@";

/// A line that looks like ours and is none.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Garbled;

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Command::Insert { peer, at, answer_within_ms } => write!(f, "insert {peer} {at} {answer_within_ms}"),
            Command::Remove { peer } => write!(f, "remove {peer}"),
            Command::Cut { peer } => write!(f, "cut {peer}"),
            Command::Rest => f.write_str("rest"),
            Command::Quit => f.write_str("quit"),
        }
    }
}

impl FromStr for Command {
    type Err = Garbled;

    fn from_str(line: &str) -> Result<Self, Garbled> {
        let words: Vec<_> = line.split(' ').collect();
        Ok(match words[..] {
            ["insert", peer, at, within] => Command::Insert {
                peer: peer.into(),
                at: at.parse().map_err(|_| Garbled)?,
                answer_within_ms: within.parse().map_err(|_| Garbled)?,
            },
            ["remove", peer] => Command::Remove { peer: peer.into() },
            ["cut", peer] => Command::Cut { peer: peer.into() },
            ["rest"] => Command::Rest,
            ["quit"] => Command::Quit,
            _ => return Err(Garbled),
        })
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Up { at, incarnation } => write!(f, "{MARK}up {at} {incarnation}"),
            Event::Table(table) => write!(f, "{MARK}table {table}"),
            Event::Removed { peer, how } => write!(f, "{MARK}removed {peer} {how}"),
            Event::Bye { left } => write!(f, "{MARK}bye {left}"),
            Event::Broken { why } => write!(f, "{MARK}broken {}", why.replace('\n', " ")),
            Event::Chatter => Ok(()),
        }
    }
}

impl FromStr for Event {
    type Err = Garbled;

    fn from_str(line: &str) -> Result<Self, Garbled> {
        let Some(line) = line.strip_prefix(MARK) else { return Ok(Event::Chatter) };
        let (word, rest) = line.split_once(' ').ok_or(Garbled)?;
        let two = || rest.split_once(' ').ok_or(Garbled);
        Ok(match word {
            "up" => {
                let (at, incarnation) = two()?;
                Event::Up { at: at.parse().map_err(|_| Garbled)?, incarnation: incarnation.into() }
            }
            "table" => Event::Table(rest.parse().map_err(|_| Garbled)?),
            "removed" => {
                let (peer, how) = two()?;
                Event::Removed { peer: peer.into(), how: how.into() }
            }
            "bye" => Event::Bye { left: rest.into() },
            "broken" => Event::Broken { why: rest.into() },
            _ => return Err(Garbled),
        })
    }
}

#[test]
fn every_line_survives_the_pipe() {
    let at = SocketAddr::from(([127, 0, 0, 1], 7000));
    for command in [
        Command::Insert { peer: "a".into(), at, answer_within_ms: 7 },
        Command::Remove { peer: "a".into() },
        Command::Cut { peer: "a".into() },
        Command::Rest,
        Command::Quit,
    ] {
        assert_eq!(command.to_string().parse(), Ok(command));
    }
    for event in [
        Event::Up { at, incarnation: "00ff".into() },
        Event::Table(serde_json::json!({"peers": [{"peer": "a", "phase": "Ready"}]})),
        Event::Removed { peer: "a".into(), how: "StillBusy { leases: 1 }".into() },
        Event::Bye { left: String::new() },
        Event::Broken { why: "no port".into() },
    ] {
        assert_eq!(event.to_string().parse(), Ok(event));
    }
    assert_eq!("running 1 test".parse(), Ok(Event::Chatter));
    assert_eq!("@uq 1".parse::<Event>(), Err(Garbled));
}
