//! The scheduler's own time: it never runs backwards and never leaps.

use super::Millis;

/// Milliseconds of the scheduler's own time.
pub(super) type Ticks = u64;

/// The most that own time advances from one reading to the next: a forward jump of the wall clock ends
/// no lease that has more than this left. The scheduler is called more often than that.
pub(super) const MAX_STEP_MS: Ticks = 60_000;

/// Follows the wall clock, forwards only, in bounded steps.
///
/// A host that slept, or whose clock was set, must not lose every lease at one stroke before its
/// workers had a chance to renew them; nor may a clock set back keep leases alive for ever.
#[derive(Debug, Default)]
pub(super) struct Clock {
    last: Option<Millis>,
    ticks: Ticks,
}

impl Clock {
    /// Takes a reading of the wall clock.
    pub(super) fn read(&mut self, now: Millis) -> Ticks {
        if let Some(last) = self.last {
            self.ticks += now.0.saturating_sub(last.0).min(MAX_STEP_MS);
        }
        self.last = Some(now);
        self.ticks
    }

    pub(super) fn ticks(&self) -> Ticks {
        self.ticks
    }

    /// Own time at a reading of the wall clock, without taking it.
    pub(super) fn at(&self, now: Millis) -> Ticks {
        let step = self.last.map_or(0, |last| now.0.saturating_sub(last.0));
        self.ticks + step.min(MAX_STEP_MS)
    }

    /// The wall clock's reading at a moment of own time, if it runs evenly from here.
    pub(super) fn wall(&self, ticks: Ticks) -> Millis {
        let last = self.last.unwrap_or_default();
        Millis(last.0.saturating_add(ticks.saturating_sub(self.ticks)))
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): jitter needs no better.
#[derive(Debug)]
pub(super) struct Jitter(pub(super) u64);

impl Jitter {
    /// `value` ± 20 %.
    pub(super) fn spread(&mut self, value: u64) -> u64 {
        let fifth = value / 5;
        value - fifth + self.next() % (2 * fifth + 1)
    }

    /// A number below `bound`.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }
}

/// The finaliser of SplitMix64: a bijection whose bits all look random.
fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}
