//! Name → slot, as one snapshot with a terminal state.
//!
//! The map is persistent: a snapshot with one name more shares all but one path with the one before, so filling a table is
//! not quadratic. `ShutDown` is a state of the same snapshot, so no insert can slip in after shutdown's walk
//! (loom-tests/names.rs).

use crate::name::PeerName;
use crate::slot::SlotRef;
use crate::snapshot::Snapshot;
use crate::transport::Transport;
use rpds::HashTrieMapSync;

pub(crate) enum State<T: Transport> {
    Open(HashTrieMapSync<PeerName, SlotRef<T>>),
    ShutDown,
}

pub(crate) struct Names<T: Transport>(Snapshot<State<T>>);

/// Why a name was not added.
pub(crate) enum NotAdded {
    ShutDown,
    Taken,
}

impl<T: Transport> Names<T> {
    pub(crate) fn new() -> Self {
        Names(Snapshot::new(State::Open(HashTrieMapSync::new_sync())))
    }

    /// Shows the slot of `name` to `look`, without a counted reference; it lives as long as `look` runs.
    #[inline]
    pub(crate) fn with<R>(&self, name: &str, look: impl FnOnce(Found<'_, T>) -> R) -> R {
        let state = self.0.look();
        look(match &**state {
            State::Open(map) => map.get(name).map_or(Found::Nothing, Found::Slot),
            State::ShutDown => Found::ShutDown,
        })
    }

    /// Adds all, in one replacement of the snapshot, or none.
    pub(crate) fn add(&self, new: &[(PeerName, SlotRef<T>)]) -> Result<(), NotAdded> {
        let added = self.0.update(|state| {
            let State::Open(map) = state else { return Err(NotAdded::ShutDown) };
            let mut map = map.clone();
            for (name, slot) in new {
                if map.contains_key(name) {
                    return Err(NotAdded::Taken);
                }
                map.insert_mut(name.clone(), slot.clone());
            }
            Ok(State::Open(map))
        });
        added.map(drop)
    }

    /// Removes `name` if it still names `slot`.
    pub(crate) fn remove(&self, name: &PeerName, slot: &SlotRef<T>) {
        let _ = self.0.update(|state| match state {
            State::Open(map) if map.get(name).is_some_and(|named| named.is(slot)) => Ok(State::Open(map.remove(name))),
            _ => Err(()),
        });
    }

    /// Ends the table's names. Answers the slots that were named; none if it had ended before.
    pub(crate) fn shut_down(&self) -> Vec<SlotRef<T>> {
        let ended = self.0.update(|state| match state {
            State::Open(_) => Ok(State::ShutDown),
            State::ShutDown => Err(()),
        });
        match ended.as_deref() {
            Ok(State::Open(map)) => map.values().cloned().collect(),
            _ => Vec::new(),
        }
    }

    pub(crate) fn is_shut_down(&self) -> bool {
        matches!(&**self.0.look(), State::ShutDown)
    }
}

/// What a name stands for.
pub(crate) enum Found<'a, T: Transport> {
    Slot(&'a SlotRef<T>),
    Nothing,
    ShutDown,
}
