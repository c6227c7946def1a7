//! Name → slot, as one snapshot with a terminal state.
//!
//! The map is persistent: a snapshot with one name more shares all but one path with the one before, so filling a table is
//! not quadratic. `ShutDown` is a state of the same snapshot, so no insert can slip in after shutdown's walk
//! (loom-tests/names.rs).
//!
//! Where the native side has one slot per name, or a native connect of the name's last slot still runs, that slot is the
//! *predecessor* of the next one, which may be inserted at once and connects when the predecessor is Removed.

use crate::latest::Latest;
use crate::name::{PeerId, PeerName};
use crate::queue::LOOK;
use crate::shared::Shared;
use crate::slot::{Slot, SlotRef};
use crate::state::Phase;
use crate::sync::fence;
use crate::transport::Transport;
use rpds::HashTrieMapSync;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(crate) enum State<T: Transport> {
    Open(HashTrieMapSync<PeerName, Entry<T>>),
    ShutDown,
}

pub(crate) enum Entry<T: Transport> {
    Live {
        slot: SlotRef<T>,
        /// Its predecessor, which is to tell it when it has left.
        after: Option<PeerId>,
    },
    /// The name's slot is being removed, and a second connection would be in its way: whoever is inserted now waits for
    /// it. In the same snapshot as the live ones, so that an insert can't fall between a removal's beginning and its end.
    Leaving(PeerId),
}

/// A slot to be named.
pub(crate) struct New<T: Transport> {
    pub(crate) name: PeerName,
    pub(crate) slot: SlotRef<T>,
    /// The slot it was told to wait for, if the name was leaving.
    pub(crate) after: Option<PeerId>,
}

pub(crate) struct Names<T: Transport>(Latest<State<T>>);

/// Why a name was not added.
pub(crate) enum NotAdded {
    ShutDown,
    Taken,
}

impl<T: Transport> Names<T> {
    pub(crate) fn new() -> Self {
        Names(Latest::new(State::Open(HashTrieMapSync::new_sync())))
    }

    /// Shows the slot of `name` to `look`, without a counted reference; it lives as long as `look` runs.
    #[inline]
    pub(crate) fn with<R>(&self, name: &str, look: impl FnOnce(Found<'_, T>) -> R) -> R {
        let state = self.0.look();
        look(match &**state {
            State::Open(map) => match map.get(name) {
                Some(Entry::Live { slot, .. }) => Found::Slot(slot),
                Some(Entry::Leaving(id)) => Found::Leaving(*id),
                None => Found::Nothing,
            },
            State::ShutDown => Found::ShutDown,
        })
    }

    /// Adds all, in one replacement of the snapshot, or none.
    pub(crate) fn add(&self, new: &[New<T>]) -> Result<(), NotAdded> {
        let added = self.0.update(|state| {
            let State::Open(map) = state else { return Err(NotAdded::ShutDown) };
            let mut map = map.clone();
            for New { name, slot, after } in new {
                let after = match map.get(name) {
                    None => None, // who was waited for has left meanwhile
                    Some(Entry::Leaving(leaving)) if *after == Some(*leaving) => *after,
                    Some(_) => return Err(NotAdded::Taken),
                };
                map.insert_mut(name.clone(), Entry::Live { slot: slot.clone(), after });
            }
            Ok(State::Open(map))
        });
        added.map(drop)
    }

    /// The removal of `slot` has begun. `in_the_way`: whoever is inserted under its name waits until it has
    /// [`left`](Self::left). A slot that still waits itself was never connected: it hands its predecessor on.
    pub(crate) fn leave(&self, slot: &SlotRef<T>, name: &PeerName, in_the_way: bool, waits: impl Fn(PeerId) -> bool) {
        let _ = self.change(name, |entry| match entry {
            Entry::Live { slot: named, after } if named.is(slot) => {
                let before = after.filter(|before| waits(*before));
                Some(before.or(in_the_way.then(|| slot.id())).map(Entry::Leaving))
            }
            _ => None,
        });
    }

    /// The slot of `id` is Removed. Answers who waits for that.
    pub(crate) fn left(&self, name: &PeerName, id: PeerId) -> Option<SlotRef<T>> {
        let before = self.change(name, |entry| match entry {
            Entry::Leaving(leaving) if *leaving == id => Some(None),
            Entry::Live { slot, after } if *after == Some(id) => {
                Some(Some(Entry::Live { slot: slot.clone(), after: None }))
            }
            _ => None,
        });
        match before.as_deref() {
            Ok(State::Open(map)) => match map.get(name) {
                Some(Entry::Live { slot, .. }) => Some(slot.clone()),
                _ => None,
            },
            _ => None,
        }
    }

    /// `change` answers what the name's entry becomes, if it is to change. Answers the names before.
    fn change(
        &self,
        name: &PeerName,
        change: impl Fn(&Entry<T>) -> Option<Option<Entry<T>>>,
    ) -> Result<Arc<State<T>>, ()> {
        self.0.update(|state| match state {
            State::Open(map) => match map.get(name).and_then(&change) {
                Some(Some(entry)) => Ok(State::Open(map.insert(name.clone(), entry))),
                Some(None) => Ok(State::Open(map.remove(name))),
                None => Err(()),
            },
            State::ShutDown => Err(()),
        })
    }

    /// Which slot is to leave `name` before another one may connect.
    pub(crate) fn leaving(&self, name: &str) -> Option<PeerId> {
        self.with(name, |found| match found {
            Found::Leaving(id) => Some(id),
            _ => None,
        })
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
                    Entry::Live { slot, .. } => Some(slot.clone()),
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

impl<T: Transport> Shared<T> {
    /// The removal of a slot has begun. Who is inserted under its name connects at once, unless a second native connect of
    /// the name could meet the first: one slot per name, or a connect that has not returned.
    pub(crate) fn leaves(&self, name: &PeerName, slot: &SlotRef<T>) {
        // Relaxed: the removal has begun under the slot's mutex, under which the flag is written, and no election follows it.
        let in_the_way = self.has_one_slot_per_name() || slot.connecting.load(Ordering::Relaxed);
        self.names.leave(slot, name, in_the_way, |before| !self.has_ended(before));
        // ord! SeqCst fence between the name and the word; `has_left` comes after the word, fences and looks at the name: one of
        //      the two sees the other. Two locations, so no pair of acquire and release does. No model is about it.
        fence(Ordering::SeqCst);
        if slot.word().phase() == Phase::Removed {
            self.has_left(name, slot); // the lane was faster
        }
    }

    /// A slot is Removed: its successor may connect.
    pub(crate) fn has_left(&self, name: &PeerName, slot: &Slot<T>) {
        // ord! SeqCst fence between the word, which the caller has changed or read as Removed, and the name: see `leaves`.
        fence(Ordering::SeqCst);
        if let Some(successor) = self.names.left(name, slot.id()) {
            successor.tell(LOOK);
        }
    }
}

/// What a name stands for.
pub(crate) enum Found<'a, T: Transport> {
    Slot(&'a SlotRef<T>),
    Leaving(PeerId),
    Nothing,
    ShutDown,
}
