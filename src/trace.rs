//! The feature `tracing`: events for the beginning and the end of each generation and of each peer, with target `peerage` and the fields `peer` and `generation`.
//!
//! | message | level | when | more fields |
//! |---|---|---|---|
//! | `elected` | debug | an attempt to connect begins | |
//! | `published` | info | the generation is Ready | `connect_seconds` |
//! | `failed` | warn | an attempt failed, or the generation was reported | `reason`, `native_code`, `error`, `lasted_seconds` |
//! | `retired` | info | an attempt or a Ready generation ends without a failure: its address was replaced, this process took another boot id, or the peer is removed | `reason`, `lasted_seconds` |
//! | `removed` | info | nothing of the peer is left | |

use crate::error::Reason;
use crate::events::Change;
use crate::state::Phase;
use tracing::{debug, info, warn};

const TARGET: &str = "peerage";

pub(crate) fn changed(change: &Change, error: Option<&str>) {
    let (peer, transition) = (change.name.as_str(), &change.transition);
    let (generation, reason) = (transition.generation.0, transition.reason.label());
    let lasted = transition.lasted.unwrap_or_default().as_secs_f64();
    match (transition.before, transition.phase) {
        (_, Phase::Connecting) => debug!(target: TARGET, peer, generation, "elected"),
        (_, Phase::Ready) => info!(target: TARGET, peer, generation, connect_seconds = lasted, "published"),
        (_, Phase::Failed) if !matches!(transition.reason, Reason::Replaced | Reason::NewIncarnation) => {
            let native_code = transition.native_code();
            warn!(target: TARGET, peer, generation, reason, native_code, error, lasted_seconds = lasted, "failed");
        }
        (Some(Phase::Ready | Phase::Connecting), _) => {
            info!(target: TARGET, peer, generation, reason, lasted_seconds = lasted, "retired");
        }
        (_, Phase::Removed) => info!(target: TARGET, peer, generation, "removed"),
        _ => {}
    }
}
