//! Heartbeats: a peer that is Ready is asked in every interval whether it is alive.
//!
//! 1. A beat is of one generation: it starts when that is published and ends with it. What a probe of an older one says is
//!    dropped.
//! 2. The lane orders a probe and waits for nothing. The native call runs on a thread of its own kind, under a lease of
//!    exactly that generation, one at a time.
//! 3. A silence begins when the first unanswered probe is *begun natively*: one that waits for a thread condemns nobody.
//! 4. Only Alive ends a silence. After an interval of it the peer is Suspect, which refuses and frees nothing. After
//!    `dead_after` its generation fails, by CAS under the mutex, also while the native call is out.
//! 5. Unknown is no answer and no silence: as if that probe had not been.
//! 6. A lane that comes to the end of a silence later than an interval has been kept from looking: the process was stopped
//!    itself, say, and the answer lies unread. The silence begins anew.

use super::{Locked, locked};
use crate::error::{ReadyError, Reason};
use crate::probe;
use crate::slot::SlotRef;
use crate::slow::attempt::{Blame, Failure};
use crate::state::{Generation, Phase, Word};
use crate::transport::{Liveness, Transport};
use std::sync::atomic::Ordering;
use std::time::Instant;

pub(crate) struct Beat {
    generation: Generation,
    /// When the next probe is due, if none is out.
    next: Instant,
    /// A probe was ordered and is not back.
    out: bool,
    silence: Option<Silence>,
}

struct Silence {
    since: Instant,
    /// The probe that is out began it.
    is_new: bool,
}

/// Asks `generation` whether it is alive, on a thread for that, and tells the lane.
pub(crate) fn probe<T: Transport>(slot: &SlotRef<T>, generation: Generation) {
    let answer = probe::ask(slot, |current| {
        if current != generation {
            return None;
        }
        locked(slot, |lane| lane.beat_begins(generation))
    });
    locked(slot, |lane| lane.beat_returned(generation, answer));
}

impl<T: Transport> Locked<'_, T> {
    /// `generation` has just been published.
    pub(super) fn start_beat(&mut self, generation: Generation) {
        let heartbeat = self.slot.home().config.heartbeat.as_ref();
        let next = heartbeat.map(|heartbeat| self.now + heartbeat.delay(self.random));
        self.slow.beat = next.map(|next| Beat { generation, next, out: false, silence: None });
    }

    /// The generation that was Ready is not any more.
    pub(super) fn end_beat(&mut self) {
        self.slow.beat = None;
        self.suspect(false);
    }

    /// What time has brought: suspicion, a failure, or a generation to be probed.
    pub(crate) fn beat(&mut self) -> Option<Generation> {
        let heartbeat = self.slot.home().config.heartbeat.as_ref()?;
        let (now, beat) = (self.now, self.slow.beat.as_mut()?);
        if let Some(silence) = &mut beat.silence {
            if now > silence.since + heartbeat.dead_after + heartbeat.interval {
                silence.since = now;
            } else if now >= silence.since + heartbeat.dead_after {
                self.is_unresponsive();
                return None;
            }
            let suspect = now >= silence.since + heartbeat.interval;
            self.suspect(suspect);
        }
        let beat = self.slow.beat.as_mut()?;
        let due = !beat.out && beat.next <= now;
        beat.out |= due;
        due.then_some(beat.generation)
    }

    /// A probe is due now, unless one is out.
    pub(crate) fn beat_now(&mut self) {
        let now = self.now;
        self.slow.beat.iter_mut().for_each(|beat| beat.next = now);
    }

    /// When [`beat`](Self::beat) has something to do.
    pub(crate) fn beat_look(&self) -> Option<Instant> {
        let heartbeat = self.slot.home().config.heartbeat.as_ref()?;
        let beat = self.slow.beat.as_ref()?;
        let silent = beat.silence.as_ref().map(|Silence { since, .. }| {
            let suspect = self.slot.suspect.load(Ordering::Relaxed);
            *since + if suspect { heartbeat.dead_after } else { heartbeat.interval }
        });
        let next = (!beat.out).then_some(beat.next);
        [silent, next].into_iter().flatten().min()
    }

    /// The native call begins now: answers its deadline, if it is still of use.
    fn beat_begins(&mut self, generation: Generation) -> Option<Instant> {
        let heartbeat = self.slot.home().config.heartbeat.as_ref()?;
        let beat = self.slow.beat.as_mut().filter(|beat| beat.generation == generation)?;
        beat.next = self.now + heartbeat.delay(self.random);
        match &mut beat.silence {
            Some(silence) => silence.is_new = false,
            None => beat.silence = Some(Silence { since: self.now, is_new: true }),
        }
        self.look_after_this();
        Some(self.now + heartbeat.interval)
    }

    fn beat_returned(&mut self, generation: Generation, answer: Liveness) {
        let Some(beat) = self.slow.beat.as_mut().filter(|beat| beat.generation == generation) else { return };
        beat.out = false;
        let over = match answer {
            Liveness::Alive => true,
            Liveness::Unknown => beat.silence.as_ref().is_some_and(|silence| silence.is_new),
            Liveness::Dead => false,
        };
        if over {
            beat.silence = None;
            self.suspect(false);
        }
        self.look_after_this();
    }

    fn is_unresponsive(&mut self) {
        let word = self.word();
        let Some(beat) = self.slow.beat.as_ref() else { return };
        let generation = beat.generation;
        if word.generation() != generation || word.phase() != Phase::Ready {
            return; // a report, which comes to the lane by itself
        }
        if self.slot.change_word(word, Word::new(generation, Phase::Failed)).is_ok() {
            let (peer, text) = (self.slow.name.clone(), self.home().unresponsive_text.clone());
            let outcome = ReadyError::Reported { peer, generation, error: text.clone() };
            self.settle(Some(Failure {
                reason: Reason::Unresponsive,
                text,
                outcome,
                blame: Blame::Peer,
                process_is_gone: false,
            }));
        }
    }

    fn suspect(&self, suspect: bool) {
        self.slot.suspect.store(suspect, Ordering::Relaxed);
    }
}
