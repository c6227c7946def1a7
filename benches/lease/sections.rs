//! The three questions: what threads do to each other, what a peer that reconnects does to the others, and what the number
//! of peers does to each.

use crate::contestants::{DASH_MAP, FLOOR, HANDLE, ID, MUTEX, NAME, ONE_STRIPE, PAPAYA, RW_LOCK, World};
use crate::lines::Lines;
use crate::pick::{BURST, Pick};
use crate::pinned::Meanwhile;
use crate::rounds::{Case, Key, Rounds};
use crate::wire::Endpoint;
use serde_json::json;
use std::error::Error;

type Done = Result<(), Box<dyn Error>>;

const HANDLE_TO_FLOOR: f64 = 1.3;
const ID_TO_FLOOR: f64 = 1.4;
const TWO_THREADS_TO_ONE: f64 = 1.15;
const DASH_MAP_TO_HANDLE: f64 = 3.0;
const MUTEX_TO_HANDLE: f64 = 5.0;
const FLAT: f64 = 1.3;

/// One thread, two, and so on to all cores; all on one peer, and each on its own.
pub(crate) fn threads(lines: &mut Lines, cores: &[usize]) -> Done {
    let world = World::of(cores.len())?;
    let mut cases = Vec::new();
    for threads in counts(cores.len()) {
        let picks = if threads == 1 { vec![Pick::Same] } else { vec![Pick::Same, Pick::Own] };
        for pick in picks {
            for (name, work) in world.few(pick).into_iter().chain(world.more(pick)) {
                // The control has one peer, and a thread's own line is a thread's own line.
                if pick == Pick::Same || ![ONE_STRIPE, FLOOR].contains(&name) {
                    let key = Key { name, threads, pick, reconnecting: false };
                    cases.push(Case { key, work, meanwhile: None });
                }
            }
        }
    }
    let rounds = Rounds::run(11 / lines.hurry, cores, &cases, Some(ONE_STRIPE))?;
    let key = |name, threads| Key { name, threads, pick: Pick::Same, reconnecting: false };
    show(lines, "threads", &rounds, key(FLOOR, 1))?;

    let floor = |name| rounds.ratio(key(name, 1), key(FLOOR, 1));
    lines.bound("lease by handle, in floors", floor(HANDLE), ..=HANDLE_TO_FLOOR)?;
    lines.bound("lease by id, in floors", floor(ID), ..=ID_TO_FLOOR)?;
    if cores.len() > 1 {
        let pair = |name| rounds.ratio(key(name, 2), key(name, 1));
        for (what, name) in [("handle", HANDLE), ("id", ID)] {
            let what = format!("lease by {what}, 2 threads on one peer in 1 thread");
            lines.bound(&what, pair(name), ..=TWO_THREADS_TO_ONE)?;
        }
        // Two cores of a virtual machine may be one core of the host: then nothing is as fast on both as on one.
        println!("       the floor, 2 threads in 1 thread: {}", shown(pair(FLOOR)));
        let what = "the same with one stripe, to show that the threads met";
        lines.bound(what, pair(ONE_STRIPE), TWO_THREADS_TO_ONE..)?;
        let times = |name| rounds.ratio(key(name, 2), key(HANDLE, 2));
        lines.bound("DashMap in leases, 2 threads on one peer", times(DASH_MAP), DASH_MAP_TO_HANDLE..)?;
        lines.bound("Mutex map in leases, 2 threads on one peer", times(MUTEX), MUTEX_TO_HANDLE..)?;
    }
    Ok(())
}

/// One thread on healthy peers while another peer, elsewhere, gets a new connection every millisecond.
pub(crate) fn reconnecting(lines: &mut Lines, cores: &[usize]) -> Done {
    const PEERS: usize = 64;
    let world = World::of(PEERS + 1)?;
    let pick = Pick::Random(PEERS);
    let mut cases = Vec::new();
    for reconnecting in [false, true] {
        for (name, work) in world.few(pick) {
            let meanwhile = if reconnecting { reconnect(&world, name, PEERS) } else { None };
            cases.push(Case { key: Key { name, threads: 1, pick, reconnecting }, work, meanwhile });
        }
    }
    let rounds = Rounds::run(11 / lines.hurry, cores, &cases, None)?;
    show(lines, "reconnecting", &rounds, Key { name: FLOOR, threads: 1, pick, reconnecting: false })
}

/// What gives the peer `peer` a new connection, in each way.
fn reconnect<'a>(world: &'a World, way: &'static str, peer: usize) -> Option<Box<Meanwhile<'a>>> {
    let name = move || world.names[peer].clone();
    Some(match way {
        FLOOR => return None,
        HANDLE | ID | NAME => Box::new(move || {
            let broken = std::io::Error::other("cable pulled");
            world.handles[peer].report(world.handles[peer].generation(), &broken);
            let _ = world.handles[peer].lease(); // asks for a connect
        }),
        MUTEX => Box::new(move || {
            world.mutex.lock().expect("nobody panics").insert(name(), Endpoint(7));
        }),
        RW_LOCK => Box::new(move || {
            world.rw_lock.write().expect("nobody panics").insert(name(), Endpoint(7));
        }),
        DASH_MAP => Box::new(move || {
            world.dash_map.insert(name(), Endpoint(7));
        }),
        PAPAYA => Box::new(move || {
            world.papaya.pin().insert(name(), Endpoint(7));
        }),
        other => unreachable!("{other} is not one of the few"),
    })
}

/// One thread on 1 to 65,536 peers.
pub(crate) fn peers(lines: &mut Lines, cores: &[usize]) -> Done {
    let worlds: Vec<(usize, World)> = [1, 16, 256, 1_024, 4_096, 16_384, 65_536]
        .into_iter()
        .map(|peers| Ok((peers, World::of(peers)?)))
        .collect::<Result<_, Box<dyn Error>>>()?;
    let mut cases = Vec::new();
    for (peers, world) in &worlds {
        for pick in [Pick::Bursts(*peers), Pick::Random(*peers)] {
            for (name, work) in world.few(pick) {
                if matches!(pick, Pick::Random(_)) || [FLOOR, HANDLE, ID].contains(&name) {
                    cases.push(Case {
                        key: Key { name, threads: 1, pick, reconnecting: false },
                        work,
                        meanwhile: None,
                    });
                }
            }
        }
    }
    let rounds = Rounds::run(7 / lines.hurry.min(3), cores, &cases, None)?;
    let key = |name, pick| Key { name, threads: 1, pick, reconnecting: false };
    show(lines, "peers", &rounds, key(FLOOR, Pick::Random(1)))?;
    for (how, pick) in [("at random", Pick::Random as fn(usize) -> Pick), ("in bursts", Pick::Bursts)] {
        for name in [HANDLE, FLOOR] {
            let flat = rounds.ratio(key(name, pick(1_024)), key(name, pick(1)));
            let what = format!("{name}, 1,024 peers {how} in 1 peer");
            // At random every lease meets several cache misses, whatever is built: the floor's one is shown beside it.
            match (name, pick(1)) {
                (HANDLE, Pick::Bursts(_)) => lines.bound(&what, flat, ..=FLAT)?,
                _ => println!("       {what}: {}", shown(flat)),
            }
        }
    }
    println!("       a burst is {BURST} leases of one peer");
    Ok(())
}

fn shown(value: Option<f64>) -> String {
    value.map_or("not measured".into(), |value| format!("{value:.2}"))
}

/// 1, 2, 4 … and all of them.
fn counts(cores: usize) -> Vec<usize> {
    let mut counts: Vec<usize> = (0..).map(|power| 1 << power).take_while(|count| *count < cores).collect();
    counts.push(cores);
    counts
}

/// The table for people and the lines for programs. `floor`: what the ratios are of.
fn show(lines: &mut Lines, section: &str, rounds: &Rounds, floor: Key) -> Done {
    eprintln!();
    println!("\n{section}, {} rounds\n| | threads | peers | which | meanwhile | ns | in floors |", rounds.made());
    println!("|---|---|---|---|---|---|---|");
    for key in rounds.keys() {
        let Key { name, threads, pick, reconnecting } = *key;
        let (ns, floors) = (rounds.ns(*key), rounds.ratio(*key, floor));
        let (cost, times) = (shown(ns), shown(floors));
        let (peers, meanwhile) = (pick.peers(threads), if reconnecting { "reconnecting" } else { "" });
        println!("| {name} | {threads} | {peers} | {} | {meanwhile} | {cost} | {times} |", pick.name());
        lines.put(
            name,
            json!({
                "section": section, "threads": threads, "peers": peers, "pick": pick.name(),
                "reconnecting": reconnecting, "value": ns, "unit": "ns", "floors": floors,
            }),
        )?;
    }
    Ok(())
}
