//! Child processes: their pipes, their signals, and their end. What is said over the pipes is the caller's: one line each,
//! as its `Display` writes and its `FromStr` reads it.

use std::fmt::Display;
use std::io::{BufRead, BufReader, Write};
use std::process::{self, Stdio};
use std::str::FromStr;
use std::sync::mpsc::{Sender, channel};
use std::thread;

/// What a child says, or `None` when its output has ended.
pub(crate) type News<Event> = (Source, Option<Event>);

/// A child process, and which of those under its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) child: usize,
    pub(crate) life: u32,
}

/// One process. It is killed when this is dropped: no run leaves any behind, however it ends.
pub(crate) struct Process<Command> {
    process: process::Child,
    commands: Sender<Command>,
}

impl<Command: Display + Send + 'static> Process<Command> {
    /// Starts `program` with both its pipes in our hands.
    pub(crate) fn start<Event: FromStr + Send + 'static>(
        program: &mut process::Command,
        source: Source,
        news: Sender<News<Event>>,
    ) -> std::io::Result<Self> {
        let mut process = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (mut input, output) = (process.stdin.take().expect("piped"), process.stdout.take().expect("piped"));
        thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                // What is no event says that the child is broken; its output ends here.
                let Ok(Ok(event)) = line.map(|line| line.parse()) else { break };
                if news.send((source, Some(event))).is_err() {
                    return;
                }
            }
            let _ = news.send((source, None));
        });
        // A stopped child does not read; nobody else must wait for that.
        let (commands, queue) = channel::<Command>();
        thread::spawn(move || {
            for command in queue {
                if writeln!(input, "{command}").is_err() {
                    return;
                }
            }
        });
        Ok(Process { process, commands })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Tells it. A dead one does not hear.
    pub(crate) fn tell(&self, command: Command) {
        let _ = self.commands.send(command);
    }

    pub(crate) fn stop(&self) {
        self.signal(rustix::process::Signal::STOP);
    }

    pub(crate) fn resume(&self) {
        self.signal(rustix::process::Signal::CONT);
    }

    fn signal(&self, signal: rustix::process::Signal) {
        // The process has not been waited for, so its id is still its own.
        let _ = rustix::process::kill_process(rustix::process::Pid::from_child(&self.process), signal);
    }
}

impl<Command> Drop for Process<Command> {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
