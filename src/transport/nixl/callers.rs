//! How those who call us are answered: their agents, loaded by the agent that serves. Of that agent's thread alone.
//!
//! An agent that calls has a name of its own for each transport that is made, so two boots of one peer have two places in NIXL.
//! It is loaded anew at each hello: what it had before went with the connection that it removed. So each connect costs one load
//! and one removal on either side, which is what NIXL leaks a descriptor for.

use super::capi::Status;
use super::native::Agent;
use super::remote::{NotLoaded, Remote};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long one is kept that has no connection: it may not know that yet, and is told when it sends something.
pub(super) const KEPT: Duration = Duration::from_secs(300);

pub(super) struct Callers {
    agent: Arc<Agent>,
    loaded: HashMap<Arc<str>, Loaded>,
}

struct Loaded {
    remote: Remote,
    /// Since when it has no connection.
    unused: Option<Instant>,
}

impl Callers {
    pub(super) fn new(agent: Arc<Agent>) -> Self {
        Callers { agent, loaded: HashMap::new() }
    }

    /// Loads the agent that said hello. Waits as long as NIXL connects it.
    pub(super) fn load(&mut self, agent: &Arc<str>, metadata: &[u8]) -> Result<(), NotLoaded> {
        self.remove(agent);
        let remote = self.agent.load(agent, metadata)?;
        self.loaded.insert(agent.clone(), Loaded { remote, unused: None });
        Ok(())
    }

    pub(super) fn is_loaded(&self, agent: &str) -> bool {
        self.loaded.contains_key(agent)
    }

    pub(super) fn say(&self, agent: &str, message: &[u8]) -> Result<(), Status> {
        self.loaded.get(agent).ok_or(Status::NOT_FOUND)?.remote.notify(message)
    }

    /// Dropped, it is removed, also where NIXL has done that by itself.
    pub(super) fn remove(&mut self, agent: &str) {
        self.loaded.remove(agent);
    }

    /// Removes those that have had no connection for long.
    pub(super) fn look_at_the_clock(&mut self, now: Instant, has_connection: impl Fn(&Arc<str>) -> bool) {
        self.loaded.retain(|agent, loaded| {
            let unused = if has_connection(agent) { None } else { Some(loaded.unused.unwrap_or(now)) };
            loaded.unused = unused;
            unused.is_none_or(|since| now.saturating_duration_since(since) < KEPT)
        });
    }
}
