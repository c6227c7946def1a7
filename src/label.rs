//! Phases and reasons as one word each, for machines: in JSON, as labels of metrics and in traces.

use crate::error::Reason;
use crate::state::Phase;

impl Phase {
    pub(crate) fn label(self) -> &'static str {
        match self {
            Phase::Idle => "idle",
            Phase::Connecting => "connecting",
            Phase::Ready => "ready",
            Phase::Failed => "failed",
            Phase::Removing => "removing",
            Phase::Removed => "removed",
        }
    }
}

impl Reason {
    pub(crate) fn label(self) -> &'static str {
        match self {
            Reason::NotAsked => "not_asked",
            Reason::Connecting => "connecting",
            Reason::Ready => "ready",
            Reason::Broken(_) => "broken",
            Reason::ConnectFailed(_) => "connect_failed",
            Reason::TimedOut => "timed_out",
            Reason::WrongIncarnation => "wrong_incarnation",
            Reason::Incompatible => "incompatible",
            Reason::Unresponsive => "unresponsive",
            Reason::Replaced => "replaced",
            Reason::NewIncarnation => "new_incarnation",
            Reason::Undrained => "undrained",
            Reason::WaitingForPredecessor => "waiting_for_predecessor",
            Reason::FailedTooLong => "failed_too_long",
            Reason::IdleTooLong => "idle_too_long",
            Reason::Removed => "removed",
            Reason::ShutDown => "shut_down",
            Reason::Unknown => "unknown",
            Reason::Unsettled => "unsettled",
            Reason::DriverDied => "driver_died",
            Reason::UsedAfterFork => "used_after_fork",
        }
    }
}
