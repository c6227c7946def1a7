//! The threads of the transport, one for each agent: each takes what peers notify its agent, and does everything that is for no
//! sender to do. An agent that loads a peer holds up its own thread, and no other.
//!
//! NIXL has nothing to sleep on, so a thread looks, and sleeps a little between looks: the shorter, the more recently
//! something has moved. Each look takes NIXL's exclusive lock of its agent for a moment.

use super::native::Agent;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a thread looks without a pause after something has moved, about what it takes to be woken.
const AWAKE: Duration = Duration::from_micros(50);
/// The same while NIXL moves bytes of ours, as it does so when it is asked how far it is. It may be waiting for a peer that is stopped.
const EAGER: Duration = Duration::from_millis(1);
/// It naps so long while something has moved lately or is under way, and so long otherwise.
const NAP: Duration = Duration::from_micros(50);
const LATELY: Duration = Duration::from_millis(5);
const LONG_NAP: Duration = Duration::from_micros(500);
/// How often it looks at the clock for others.
pub(super) const TICK: Duration = Duration::from_millis(20);

/// What one thread does.
pub(super) trait Work {
    /// Everything that there is to do now.
    fn look(&mut self) -> Look;
    /// Until somebody has something for it, or for so long.
    fn sleep(&self, at_most: Duration);
}

/// What came of a look.
pub(super) enum Look {
    Again {
        /// Something came, or ended.
        moved: bool,
        /// NIXL moves bytes of ours.
        moves: bool,
        /// Something is under way.
        waits: bool,
    },
    /// There is nothing more to do, ever.
    Last,
}

pub(super) fn run(agent: &Arc<Agent>, mut work: impl Work, polling: bool) {
    let mut moved_at = Instant::now();
    loop {
        let inside = agent.door.enter_or_sleep();
        let Look::Again { moved, moves, waits } = work.look() else { return };
        drop(inside);
        let now = Instant::now();
        if moved {
            moved_at = now;
        }
        let idle = now.saturating_duration_since(moved_at);
        if polling || idle < if moves { EAGER } else { AWAKE } {
            std::thread::yield_now();
        } else {
            work.sleep(if waits || idle < LATELY { NAP } else { LONG_NAP });
        }
    }
}
