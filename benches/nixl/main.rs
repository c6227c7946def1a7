//! The `Nixl` transport beside NIXL's bare C API, and what its connects cost others: `cargo bench --features nixl --bench nixl`.
//! With `-- --check` exit status 1 when a bound is broken, with `-- --json FILE` a line for each number.
//!
//! Each part is a process of its own, as NIXL reads its environment once: `UCX_TLS` says what the bytes go over.

mod bare;
mod lease;
#[path = "../common/lines.rs"]
mod lines;
#[path = "../common/median.rs"]
mod median;
mod process;
mod served;
mod slow;
mod writes;

use lines::Lines;
use median::median;
use process::Part;
use serde_json::json;
use std::error::Error;
use std::process::ExitCode;

/// Pairs of a comparison, which alternate, and rounds of everything else.
const ROUNDS: usize = 21;
const MIB: usize = 1 << 20;
/// In the bare API's.
const WRITES: f64 = 0.97;
/// Nanoseconds.
const LEASE: f64 = 60.0;
const AGENTS: [usize; 2] = [1, 4];

fn main() -> Result<ExitCode, Box<dyn Error>> {
    if process::is_a_part()? {
        return Ok(ExitCode::SUCCESS);
    }
    let mut lines = Lines::of("nixl")?;
    let rounds = (ROUNDS / lines.hurry).to_string();
    for tls in ["tcp", "default"] {
        for [kib, ours, bare, ratio] in Part::new(&["writes", &rounds], tls).numbers()? {
            let case = format!("writes of {kib} KiB, UCX_TLS {tls}");
            println!("{case}: {ours:.0} MiB/s, bare {bare:.0}");
            lines.put(&case, json!({ "unit": "MiB/s", "value": ours, "bare": bare, "ratio": ratio }))?;
            lines.bound(&format!("{case}, in the bare API's"), Some(ratio), WRITES..)?;
        }
    }
    let leases: Vec<[f64; 1]> = Part::new(&["lease", &rounds], "default").numbers()?;
    let lease = median(leases.into_iter().map(|[nanoseconds]| nanoseconds));
    lines.bound("lease and leave, ns of the thread's CPU time", lease, ..=LEASE)?;
    for agents in AGENTS {
        let runs = Part::new(&["slow", &agents.to_string()], "tcp").numbers()?;
        let middle = |at: usize| median(runs.iter().map(|run: &[f64; 4]| run[at]));
        let (Some(sends), Some(connects)) = (middle(0), middle(1)) else { return Err("no run".into()) };
        let (Some(late), Some(longest)) = (middle(2), middle(3)) else { return Err("no run".into()) };
        let case = format!("sends to a peer while another connects again and again, {agents} agents");
        println!(
            "{case}: {sends} sends, {connects} connects, {:.3} % later than 1 ms, longest {longest:.0} us",
            100.0 * late
        );
        lines.put(
            &case,
            json!({ "agents": agents, "sends": sends, "connects": connects, "value": late, "longest_us": longest }),
        )?;
    }
    Ok(lines.end())
}
