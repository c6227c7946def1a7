//! What a lease costs: `cargo bench --bench lease`. With `-- --check` exit status 1 when a bound is broken, with
//! `-- --json FILE` a line for each number.
//!
//! One operation is: get the right to use the connection, touch the connection, give the right back. The floor is what any
//! counted right costs: one CAS in and one subtraction out on a cache line that only this thread writes. Everything is
//! compared with the floor of the same round, so a machine that is busy or changes its clock shifts both.
//!
//! No criterion: it measures wall time of one thread, and these rows are CPU time of pinned threads (`operations` is by
//! criterion).

mod contestants;
#[path = "../common/cores.rs"]
mod cores;
#[path = "../common/lines.rs"]
mod lines;
#[path = "../common/median.rs"]
mod median;
mod pick;
#[path = "../common/pinned.rs"]
mod pinned;
#[path = "../common/ready.rs"]
mod ready;
mod rounds;
mod sections;
#[path = "../common/wait.rs"]
mod wait;
#[path = "../common/wire.rs"]
mod wire;

use std::error::Error;
use std::process::ExitCode;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut lines = lines::Lines::of("lease")?;
    let cores = cores::cores()?;
    println!("ns of CPU time per operation and thread, medians over rounds; threads pinned, on {} cores", cores.len());
    sections::threads(&mut lines, &cores)?;
    sections::reconnecting(&mut lines, &cores)?;
    sections::peers(&mut lines, &cores)?;
    Ok(lines.end())
}
