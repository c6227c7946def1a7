//! Name → slot, as one snapshot with a terminal state.
//!
//! The map is persistent: a snapshot with one name more shares all but one path with the one before, so filling a table is
//! not quadratic. `ShutDown` is a state of the same snapshot, so no insert can slip in after shutdown's walk
//! (loom-tests/names.rs).

use crate::name::{PeerId, PeerName};
use crate::slot::SlotRef;
use crate::snapshot::Snapshot;
use crate::transport::Transport;
use rpds::HashTrieMapSync;

pub(crate) enum State<T: Transport> {
    Open(HashTrieMapSync<PeerName, Entry<T>>),
    ShutDown,
}

#[derive(Clone)]
pub(crate) enum Entry<T: Transport> {
    Live(SlotRef<T>),
    /// The name's slot is being removed, and a second one would be in its way. In the same snapshot as the live
    /// ones, so that an insert can't fall between a removal's beginning and its end.
    Leaving(PeerId),
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
            State::Open(map) => match map.get(name) {
                Some(Entry::Live(slot)) => Found::Slot(slot),
                Some(Entry::Leaving(_)) => Found::Leaving,
                None => Found::Nothing,
            },
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
                map.insert_mut(name.clone(), Entry::Live(slot.clone()));
            }
            Ok(State::Open(map))
        });
        added.map(drop)
    }

    /// The removal of `slot` has begun. `in_the_way`: its name is free only when it has [`left`](Self::left).
    pub(crate) fn leave(&self, name: &PeerName, slot: &SlotRef<T>, in_the_way: bool) {
        self.change(name, |entry| match entry {
            Entry::Live(named) if named.is(slot) => Some(in_the_way.then(|| Entry::Leaving(slot.id()))),
            _ => None,
        });
    }

    /// The slot of `id` is Removed.
    pub(crate) fn left(&self, name: &PeerName, id: PeerId) {
        self.change(name, |entry| matches!(entry, Entry::Leaving(leaving) if *leaving == id).then_some(None));
    }

    /// `change` answers what the name's entry becomes, if it is to change.
    fn change(&self, name: &PeerName, change: impl Fn(&Entry<T>) -> Option<Option<Entry<T>>>) {
        let _ = self.0.update(|state| match state {
            State::Open(map) => match map.get(name).and_then(&change) {
                Some(Some(entry)) => Ok(State::Open(map.insert(name.clone(), entry))),
                Some(None) => Ok(State::Open(map.remove(name))),
                None => Err(()),
            },
            State::ShutDown => Err(()),
        });
    }

    pub(crate) fn is_leaving(&self, name: &str) -> bool {
        self.with(name, |found| matches!(found, Found::Leaving))
    }

    /// Drops what was replaced, on the thread that may; answers whether somebody still looks at some of it.
    pub(crate) fn sweep(&self) -> bool {
        self.0.sweep()
    }

    /// Ends the table's names. Answers the slots that were named; none if it had ended before.
    pub(crate) fn shut_down(&self) -> Vec<SlotRef<T>> {
        let ended = self.0.update(|state| match state {
            State::Open(_) => Ok(State::ShutDown),
            State::ShutDown => Err(()),
        });
        match ended.as_deref() {
            Ok(State::Open(map)) => map
                .values()
                .filter_map(|entry| match entry {
                    Entry::Live(slot) => Some(slot.clone()),
                    Entry::Leaving(_) => None,
                })
                .collect(),
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
    Leaving,
    Nothing,
    ShutDown,
}
