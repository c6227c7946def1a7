//! The word of a slot, `[generation: 60 | bay: 1 | phase: 3]`, and nothing else.
//!
//! The word decides; everything else explains. It is the only place that says whether a send may start, so admission needs
//! no second location to be ordered with. The bay bit means something in Ready only and is 0 elsewhere.
//!
//! | from → to | by |
//! |---|---|
//! | Idle, Failed(g) → Connecting(g′) | election, under the slot's mutex |
//! | Ready(g), Connecting(g) → Failed(g) | a report that names g: the only bare CAS; ticket's failure, expiry, update, new incarnation, silence: under the mutex |
//! | Connecting(g) → Ready(g, bay) | publish, under the mutex |
//! | any but Removed → Removing → Removed | remover; the lane. Removed is terminal for the slot's life |
//!
//! The generation is the table's, 60 bits: at 10⁹ attempts a second it wraps after 36 years.

use std::fmt;

const PHASE_BITS: u32 = 3;
const BAY_BIT: u64 = 1 << PHASE_BITS;
const GENERATION_SHIFT: u32 = PHASE_BITS + 1;

/// LOCAL number of one connection attempt. Drawn from one counter of the table: it grows per peer, is never reused, and
/// two peers never share one. Equality decides staleness.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "g{}", self.0)
    }
}

impl fmt::Debug for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Where a peer stands.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Phase {
    /// Inserted; no attempt has begun yet.
    Idle = 0,
    /// An attempt runs; exactly one owner connects.
    Connecting = 1,
    /// Leases are granted.
    Ready = 2,
    /// The generation was reported, or its attempt failed. A lease or `ready()` asks for one reconnect.
    Failed = 3,
    /// Leaving: no lease is granted, the last ones drain.
    Removing = 4,
    /// Gone, for ever. A re-inserted name is a new peer.
    Removed = 5,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A copy of a slot's word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word(u64);

impl Word {
    pub(crate) const fn new(generation: Generation, phase: Phase) -> Self {
        debug_assert!(!matches!(phase, Phase::Ready), "Ready names a bay");
        Word(generation.0 << GENERATION_SHIFT | phase as u64)
    }

    pub(crate) const fn ready(generation: Generation, bay: usize) -> Self {
        debug_assert!(bay < 2, "a slot has two bays");
        Word(generation.0 << GENERATION_SHIFT | (bay as u64) << PHASE_BITS | Phase::Ready as u64)
    }

    pub(crate) const fn from_bits(bits: u64) -> Self {
        Word(bits)
    }

    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    pub(crate) const fn generation(self) -> Generation {
        Generation(self.0 >> GENERATION_SHIFT)
    }

    pub(crate) const fn phase(self) -> Phase {
        match self.0 & (BAY_BIT - 1) {
            0 => Phase::Idle,
            1 => Phase::Connecting,
            2 => Phase::Ready,
            3 => Phase::Failed,
            4 => Phase::Removing,
            _ => Phase::Removed,
        }
    }

    /// The bay a lease enters; `None` unless Ready.
    #[inline(always)]
    pub(crate) const fn bay(self) -> Option<usize> {
        if self.0 & (BAY_BIT - 1) == Phase::Ready as u64 { Some((self.0 >> PHASE_BITS & 1) as usize) } else { None }
    }

    /// What a report of `failed` makes of this word: `None` if it is stale.
    pub(crate) fn reported(self, failed: Generation) -> Option<Word> {
        let live = matches!(self.phase(), Phase::Ready | Phase::Connecting);
        (live && self.generation() == failed).then_some(Word::new(failed, Phase::Failed))
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bay() {
            Some(bay) => write!(f, "Ready({}, bay {bay})", self.generation()),
            None => write!(f, "{}({})", self.phase(), self.generation()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHASES: [Phase; 6] =
        [Phase::Idle, Phase::Connecting, Phase::Ready, Phase::Failed, Phase::Removing, Phase::Removed];

    #[test]
    fn every_word_survives_packing() {
        for generation in [0, 1, 77, (1 << 60) - 1].map(Generation) {
            for phase in PHASES.into_iter().filter(|phase| *phase != Phase::Ready) {
                let word = Word::new(generation, phase);
                assert_eq!((word.generation(), word.phase(), word.bay()), (generation, phase, None));
            }
            for bay in 0..2 {
                let word = Word::ready(generation, bay);
                assert_eq!((word.generation(), word.phase(), word.bay()), (generation, Phase::Ready, Some(bay)));
            }
        }
    }

    #[test]
    fn a_report_changes_only_its_own_live_generation() {
        let failed = Some(Word::new(Generation(4), Phase::Failed));
        assert_eq!(Word::ready(Generation(4), 1).reported(Generation(4)), failed);
        assert_eq!(Word::new(Generation(4), Phase::Connecting).reported(Generation(4)), failed);
        assert_eq!(Word::ready(Generation(5), 1).reported(Generation(4)), None);
        for phase in [Phase::Idle, Phase::Failed, Phase::Removing, Phase::Removed] {
            assert_eq!(Word::new(Generation(4), phase).reported(Generation(4)), None);
        }
    }

    #[test]
    fn a_word_is_its_bits_with_the_phase_lowest_then_the_bay_then_the_generation() {
        assert_eq!(Word::ready(Generation(9), 1).bits(), 9 << 4 | 1 << 3 | 2);
        assert_eq!(Word::from_bits(9 << 4 | 3), Word::new(Generation(9), Phase::Failed));
    }

    #[test]
    fn debug_decodes_the_bits() {
        assert_eq!(format!("{:?}", Word::ready(Generation(9), 1)), "Ready(g9, bay 1)");
        assert_eq!(format!("{:?}", Word::new(Generation(9), Phase::Failed)), "Failed(g9)");
        assert_eq!(format!("{:?}", Generation(9)), "g9");
    }
}
