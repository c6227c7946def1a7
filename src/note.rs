//! What reporters said, until the slot's next step reads it.
//!
//! A report is one CAS on the word and one push here. Notes carry their generation and are pushed, never overwritten: who
//! settles a generation takes all, keeps its own, drops the rest (loom-tests/notes.rs). A note is plain text, so a stranger
//! may drop it.

use crate::state::Generation;
use crate::sync::{AtomicPtr, Ordering, Tracked};
use crate::transport::TransportError;
use std::ptr;
use std::sync::Arc;

/// One report.
#[derive(Debug, Clone)]
pub(crate) struct Note {
    pub(crate) generation: Generation,
    pub(crate) text: Arc<str>,
    pub(crate) native_code: Option<i64>,
    pub(crate) process_is_gone: bool,
}

impl Note {
    /// Of an error that is only a text.
    pub(crate) fn of_text(generation: Generation, text: Arc<str>) -> Self {
        Note { generation, text, native_code: None, process_is_gone: false }
    }

    /// Of a transport's error.
    pub(crate) fn of_error(generation: Generation, error: &dyn TransportError) -> Self {
        Note {
            generation,
            text: error.to_string().into(),
            native_code: error.native_code(),
            process_is_gone: error.process_is_gone(),
        }
    }
}

struct Node {
    note: Note,
    next: *mut Node,
    memory: Tracked,
}

pub(crate) struct Notes {
    head: AtomicPtr<Node>,
}

impl Notes {
    pub(crate) fn new() -> Self {
        Notes { head: AtomicPtr::new(ptr::null_mut()) }
    }

    pub(crate) fn push(&self, note: Note) {
        let node = Box::into_raw(Box::new(Node { note, next: ptr::null_mut(), memory: Tracked::new() }));
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            // SAFETY: until the CAS succeeds only this call knows the node.
            unsafe { (*node).next = head };
            // ord! Release: publishes the note. Pairs with the Acquire in `take`.
            //      model: notes::each_generation_gets_its_own_error   fails if: relaxed-note
            match self.head.compare_exchange_weak(head, node, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Takes all; the one of `generation`, if it has come, and a place to drop the others after unlock.
    pub(crate) fn take(&self, generation: Generation) -> (Option<Note>, Taken) {
        // ord! Acquire: the notes behind the head, each published by its push. An RMW, so no note is taken twice.
        //      model: notes::each_generation_gets_its_own_error   fails if: relaxed-note-take
        let taken = Taken { next: self.head.swap(ptr::null_mut(), Ordering::Acquire) };
        let mut at = taken.next;
        // SAFETY: the nodes of a taken list are ours alone, and live until `taken` is dropped.
        while let Some(node) = unsafe { at.as_ref() } {
            node.memory.touch();
            if node.note.generation == generation {
                return (Some(node.note.clone()), taken);
            }
            at = node.next;
        }
        (None, taken)
    }
}

impl Drop for Notes {
    fn drop(&mut self) {
        drop(self.take(Generation(0)));
    }
}

/// Notes taken from their list; dropping it frees them.
#[must_use]
pub(crate) struct Taken {
    next: *mut Node,
}

// SAFETY: a taken list owns its nodes, which are plain data.
unsafe impl Send for Taken {}

impl Drop for Taken {
    fn drop(&mut self) {
        while !self.next.is_null() {
            // SAFETY: each node came from `Box::into_raw` in `push` and is in one taken list only.
            self.next = unsafe { Box::from_raw(self.next) }.next;
        }
    }
}

#[cfg(all(test, not(peerage_loom)))]
mod tests {
    use super::*;
    use std::thread;

    const REPORTERS: u64 = 3;
    const NOTES: u64 = 2_000;

    /// For ThreadSanitizer (`ci/sanitizers.sh thread`) more than for what it asserts.
    #[test]
    fn every_note_of_many_reporters_is_taken_once_and_whole() {
        let notes = Notes::new();
        thread::scope(|scope| {
            let push = |generation| {
                notes.push(Note::of_text(Generation(generation), generation.to_string().into()));
            };
            let reporters: Vec<_> = (0..REPORTERS)
                .map(|at| scope.spawn(move || (1..=NOTES).for_each(|note| push(note * REPORTERS + at))))
                .collect();
            let (mut seen, mut sum) = (0, 0);
            while seen < REPORTERS * NOTES {
                let (none, taken) = notes.take(Generation(0));
                assert!(none.is_none(), "nobody reports this generation");
                let mut at = taken.next;
                // SAFETY: the nodes of a taken list live until it is dropped.
                while let Some(node) = unsafe { at.as_ref() } {
                    let Note { generation: Generation(generation), text, .. } = &node.note;
                    assert_eq!(**text, *generation.to_string());
                    (seen, sum) = (seen + 1, sum + generation);
                    at = node.next;
                }
                thread::yield_now();
            }
            assert_eq!(sum, (REPORTERS..REPORTERS * (NOTES + 1)).sum());
            reporters.into_iter().for_each(|reporter| reporter.join().unwrap());
        });
    }
}
