//! `ucx_perftest`, as a server and a client.

use crate::Case;
use crate::process::{Ended, Setting, free_port};
use std::error::Error;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = "ucx_perftest";

pub(crate) fn is_here() -> Result<(), Box<dyn Error>> {
    let version =
        Command::new(PROGRAM).arg("-v").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut version =
        version.map_err(|error| format!("{PROGRAM}: {error}; on Debian: apt-get install -y ucx-utils"))?;
    version.kill()?;
    version.wait()?;
    Ok(())
}

/// One measurement. A put is measured twice, with as many under way as it likes and with one, and the better one counts.
pub(crate) fn run(setting: &Setting, case: Case) -> Result<f64, Box<dyn Error>> {
    match case {
        Case::Notification { bytes, times } => test(setting, case, &["-t", "ucp_am_lat"], (bytes, times)),
        Case::Put { bytes, times } => {
            let many = test(setting, case, &["-t", "ucp_put_bw"], (bytes, times))?;
            let one = test(setting, case, &["-t", "ucp_put_bw", "-O", "1"], (bytes, times))?;
            Ok(many.max(one))
        }
    }
}

fn test(setting: &Setting, case: Case, which: &[&str], (bytes, times): (usize, usize)) -> Result<f64, Box<dyn Error>> {
    let start = || -> Result<(Ended, String), Box<dyn Error>> {
        let port = free_port()?.to_string();
        let mut command = setting.command(PROGRAM);
        command.args(["-p", &port, "-c", &setting.cores[0].to_string()]);
        Ok((Ended(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?), port))
    };
    let (mut server, mut port) = start()?;
    let (bytes, times, warm_up) = (bytes.to_string(), times.to_string(), (times / 10).to_string());
    let end = Instant::now() + Duration::from_secs(10);
    let said = loop {
        let mut client = setting.command(PROGRAM);
        client.args(["-p", &port, "-c", &setting.cores[1].to_string(), "127.0.0.1"]);
        client.args(which).args(["-s", &bytes, "-n", &times, "-w", &warm_up]);
        client.args(["-M", "multi", "-I", "-e", "-f", "-E", if setting.polling { "poll" } else { "sleep" }]);
        let output = client.stdin(Stdio::null()).output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            break said;
        }
        if Instant::now() > end {
            return Err(format!("{PROGRAM} {}: {said}", output.status).into());
        }
        // It does not listen yet, or somebody else took its port.
        if server.0.try_wait()?.is_some() {
            (server, port) = start()?;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    drop(server);
    number(&said, case).ok_or_else(|| format!("{PROGRAM} said no number: {said}").into())
}

/// Of its last line: the overall latency, or the overall bandwidth. Before them are how often, and two other averages each.
fn number(said: &str, case: Case) -> Option<f64> {
    let numbers = said
        .lines()
        .rev()
        .find(|line| line.split_whitespace().next().is_some_and(|first| first.parse::<u64>().is_ok()))?;
    let column = if matches!(case, Case::Notification { .. }) { 3 } else { 5 };
    numbers.split_whitespace().nth(column)?.parse().ok()
}
