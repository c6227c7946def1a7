//! What is wrong with the end of a run.

use crate::plan::{Must, Row};
use crate::run::{Node, row_of};
use serde_json::Value;

/// Those links that are to be Ready.
pub(crate) fn ready(expect: &[Row]) -> impl Iterator<Item = (usize, usize)> {
    let is_ready = |row: &&Row| matches!(row.must, Must::Untouched | Must::Be { phase: "Ready", .. });
    expect.iter().filter(is_ready).map(|row| (row.at, row.peer))
}

/// All that is not as it must be, in words.
pub(crate) fn problems(nodes: &[Node], expect: &[Row]) -> Vec<String> {
    let mut problems = Vec::new();
    for node in nodes.iter().filter(|node| node.up) {
        at_rest(node, &mut problems);
        for other in nodes.iter().filter(|other| other.up) {
            notifications(node, other, &mut problems);
        }
    }
    for row in expect {
        let (at, peer) = (&nodes[row.at], &nodes[row.peer]);
        let link = format!("{}→{}", at.name, peer.name);
        match (&row.must, at.row(&peer.name)) {
            (Must::Gone, None) => {}
            (Must::Gone, Some(now)) => problems.push(format!("{link}: is {}, not removed", now["phase"])),
            (_, None) => problems.push(format!("{link}: is not in the table")),
            (must, Some(now)) => look(&link, must, now, at, peer, &mut problems),
        }
    }
    problems
}

/// Prints what was found, one line for each row.
pub(crate) fn print(nodes: &[Node], expect: &[Row]) {
    for row in expect {
        let (at, peer) = (&nodes[row.at], &nodes[row.peer]);
        let tally = |what| at.tally(&peer.name, what);
        let now = at.row(&peer.name).unwrap_or(&Value::Null);
        println!(
            "{}→{}: phase {}, {} generations, {} requests answered, {} failed, {} transfers, {} errors",
            at.name,
            peer.name,
            now["phase"].as_str().unwrap_or("Removed"),
            now["generations"],
            tally("answered"),
            tally("failed"),
            tally("ended"),
            tally("errors"),
        );
    }
}

/// What every process must have come to, whatever was done to it.
fn at_rest(node: &Node, problems: &mut Vec<String>) {
    let name = &node.name;
    let mut must = |is: bool, what: String| problems.extend((!is).then_some(format!("{name}: {what}")));
    for row in node.table["peers"].as_array().into_iter().flatten() {
        for what in ["leases", "transfers", "grants"] {
            must(row[what] == 0, format!("{} {what} of {}", row[what], row["peer"]));
        }
        must(row["connecting"] == false, format!("connects to {}", row["peer"]));
    }
    for what in ["duplicates", "out_of_order"] {
        must(node.table[what] == 0, format!("{} {what}", node.table[what]));
    }
    for (peer, _) in node.table["tallies"].as_object().into_iter().flatten() {
        let of = |what| node.tally(peer, what);
        let (begun, over) = (of("begun"), of("answered") + of("failed"));
        must(begun == over, format!("{begun} requests of {peer} begun, {over} over"));
        let (posted, ended) = (of("posted"), of("ended"));
        must(posted == ended, format!("{posted} transfers to {peer} posted, {ended} ended"));
        for what in ["corrupt", "ended_twice"] {
            must(of(what) == 0, format!("{} {what} of {peer}", of(what)));
        }
    }
}

/// What `to` has got from `from` is a beginning of what `from` sent, and all of it over the connection that is open.
fn notifications(from: &Node, to: &Node, problems: &mut Vec<String>) {
    let received = &to.table["received"][&from.name][&from.incarnation];
    let now = from.row(&to.name).filter(|row| row["phase"] == "Ready" && row["incarnation"] == to.incarnation.as_str());
    let now = now.map(|row| row["generation"].to_string());
    for (generation, sent) in from.table["tallies"][&to.name]["accepted"].as_object().into_iter().flatten() {
        let (sent, got) = (sent.as_u64().unwrap_or(0), received[generation].as_u64().unwrap_or(0));
        let whole = now.as_ref() == Some(generation);
        if got > sent || whole && got < sent {
            let link = format!("{}→{}", from.name, to.name);
            problems.push(format!("{link}: {sent} notifications accepted, {got} received over g{generation}"));
        }
    }
}

fn look(link: &str, must: &Must, now: &Value, at: &Node, peer: &Node, problems: &mut Vec<String>) {
    let mut must_be = |is: bool, what: String| problems.extend((!is).then_some(format!("{link}: {what}")));
    let before = row_of(&at.before, &peer.name).unwrap_or(&Value::Null);
    match must {
        Must::Gone => {}
        Must::Untouched => {
            for what in ["phase", "generation", "generations", "incarnation"] {
                must_be(now[what] == before[what], format!("{what} is {}, not {}", now[what], before[what]));
            }
            let was = at.before["tallies"][&peer.name]["errors"].as_u64().unwrap_or(0);
            let errors = at.tally(&peer.name, "errors") - was;
            let first = &at.table["tallies"][&peer.name]["first_error"];
            must_be(errors == 0, format!("{errors} errors, the first: {first}"));
        }
        Must::Be { phase, same_incarnation, generations } => {
            must_be(now["phase"] == *phase, format!("is {}, not {phase}", now["phase"]));
            let drawn = now["generations"].as_u64();
            let inside = drawn.is_some_and(|drawn| generations.contains(&drawn));
            must_be(inside, format!("{} generations, not in {generations:?}", now["generations"]));
            let same = now["incarnation"] == before["incarnation"];
            must_be(
                same == *same_incarnation,
                format!("incarnation {}, before {}", now["incarnation"], before["incarnation"]),
            );
            if peer.up && *phase == "Ready" {
                must_be(
                    now["incarnation"] == peer.incarnation.as_str(),
                    format!("is connected to {}", now["incarnation"]),
                );
            }
        }
    }
}
