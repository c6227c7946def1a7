//! What the features `tracing` and `metrics` make of a transition. It calls other people's code, so it runs after the peer's
//! mutex is unlocked, on the thread that made the transition: often the table's driver. Never on the path of a lease, and
//! not for a report before the table accounts for it.

use crate::events::Change;
use crate::sync::came_through;

/// Whether anybody observes.
pub(crate) const OBSERVED: bool = cfg!(any(feature = "tracing", feature = "metrics"));

/// `error`: the last one as text. A subscriber or recorder that panics harms nobody.
pub(crate) fn changed(change: &Change, error: Option<&str>) {
    came_through(|| {
        #[cfg(feature = "tracing")]
        crate::trace::changed(change, error);
        #[cfg(feature = "metrics")]
        crate::metrics::changed(change);
        let _ = (change, error);
    });
}
