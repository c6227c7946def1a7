//! The processes of a measurement: this program again, each with a role of its own.

use crate::{drive, head_of_line, serve};
use std::error::Error;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, ChildStdout, Command, Stdio};

const ROLE: &str = "PEERAGE_BENCH_ROLE";

/// What both contestants have the same.
pub(crate) struct Setting {
    /// `None`: libucp's own choice.
    pub(crate) tls: Option<&'static str>,
    pub(crate) polling: bool,
    /// Of the process that answers, and of the one that measures.
    pub(crate) cores: [usize; 2],
}

impl Setting {
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        // Lanes on loopback alone, as those of `ucx_perftest` are: one more device is one more to look at in each progress.
        command.env("UCX_NET_DEVICES", "lo").env_remove("UCX_TLS").envs(self.tls.map(|tls| ("UCX_TLS", tls)));
        command
    }
}

/// If this process was started for a role, plays it to its end.
pub(crate) fn is_a_role() -> Result<bool, Box<dyn Error>> {
    let Ok(role) = std::env::var(ROLE) else { return Ok(false) };
    let words: Vec<&str> = role.split(' ').collect();
    match words[..] {
        ["serve", core, polling] => serve::serve(core.parse()?, polling.parse()?)?,
        ["drive", core, polling, kind, bytes, times, to] => {
            drive::drive(core.parse()?, polling.parse()?, kind, (bytes.parse()?, times.parse()?), to.parse()?)?;
        }
        ["receive", peer, core] => head_of_line::receive(peer.parse()?, core.parse()?)?,
        ["send", way, core, others, to] => head_of_line::send(way, core.parse()?, others.parse()?, to)?,
        _ => return Err(format!("unknown role {role:?}").into()),
    }
    Ok(true)
}

/// A process that is killed when this is dropped.
pub(crate) struct Ended(pub(crate) Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// This program in a role, and what it says.
pub(crate) struct Role {
    lines: BufReader<ChildStdout>,
    _process: Ended,
}

impl Role {
    pub(crate) fn start(setting: &Setting, role: &str) -> Result<Self, Box<dyn Error>> {
        let this = std::env::current_exe()?;
        let mut command = setting.command(this.to_str().ok_or("the path of this program is no text")?);
        // Its input ends with this process, and with it the role.
        let mut process = Ended(command.env(ROLE, role).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?);
        let lines = BufReader::new(process.0.stdout.take().ok_or("it has an output")?);
        Ok(Role { lines, _process: process })
    }

    /// The rest of the next line, which begins with `with`.
    pub(crate) fn says(&mut self, with: &str) -> Result<String, Box<dyn Error>> {
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        let rest = line.strip_prefix(with).ok_or_else(|| format!("{line:?} where {with:?} was expected"))?;
        Ok(rest.trim().to_owned())
    }

    pub(crate) fn address(&mut self) -> Result<SocketAddr, Box<dyn Error>> {
        Ok(self.says("listens at ")?.parse()?)
    }
}

/// For a role that only serves: until who started it has ended.
pub(crate) fn wait_for_the_end() -> Result<(), Box<dyn Error>> {
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}

/// Nobody listens there just now.
pub(crate) fn free_port() -> Result<u16, Box<dyn Error>> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
