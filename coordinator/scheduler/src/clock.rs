//! The scheduler's own time: it never runs backwards and never jumps.

/// Wall-clock time in milliseconds since 1970; in a simulation, of any origin.
///
/// It may jump in either direction: the scheduler's time follows in bounded steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

/// Milliseconds of the scheduler's own time.
pub(crate) type Ticks = u64;

/// Maximum step of the scheduler's time between two readings.
/// A forward jump of the wall clock ends no lease with more than this left. Readings are closer together.
pub(crate) const MAX_STEP_MS: Ticks = 60_000;

/// SchedulerClock that follows the wall clock, forwards only, in bounded steps.
///
/// A host that slept, or whose clock was set, must not lose all leases before their workers can renew them;
/// nor may a clock that is set back keep leases alive forever.
#[derive(Debug, Default)]
pub(crate) struct SchedulerClock {
    last: Option<Millis>,
    ticks: Ticks,
    /// The first reading.
    began: Millis,
}

impl SchedulerClock {
    /// Takes a reading of the wall clock.
    pub(crate) fn read(&mut self, now: Millis) -> Ticks {
        if self.last.is_none() {
            self.began = now;
        }
        self.ticks = self.at(now);
        self.last = Some(now);
        self.ticks
    }

    pub(crate) fn ticks(&self) -> Ticks {
        self.ticks
    }

    /// Returns the scheduler's time at a reading of the wall clock, without taking it.
    pub(crate) fn at(&self, now: Millis) -> Ticks {
        let step = self.last.map_or(0, |last| now.0.saturating_sub(last.0));
        self.ticks + step.min(MAX_STEP_MS)
    }

    /// Converts the scheduler's time to Unix time, without the steps of the wall clock since the start.
    /// The result can be compared with times that earlier processes stored.
    pub(crate) fn steady(&self, ticks: Ticks) -> Millis {
        Millis(self.began.0.saturating_add(ticks))
    }

    /// Converts the scheduler's time to wall-clock time, if both advance equally.
    pub(crate) fn wall(&self, ticks: Ticks) -> Millis {
        let last = self.last.unwrap_or_default();
        Millis(last.0.saturating_add(ticks.saturating_sub(self.ticks)))
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014), good enough for jitter.
#[derive(Debug)]
pub(crate) struct Jitter(pub(crate) u64);

impl Jitter {
    /// Returns `value` ± 20 %.
    pub(crate) fn spread(&mut self, value: u64) -> u64 {
        let fifth = value / 5;
        value - fifth + self.next() % (2 * fifth + 1)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        // The finalizer: a bijection whose bits all look random.
        let word = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_time_follows_the_wall_clock_forwards_and_in_bounded_steps() {
        let mut clock = SchedulerClock::default();
        assert_eq!((clock.at(Millis(9_000)), clock.ticks()), (0, 0));
        assert_eq!(clock.read(Millis(5_000)), 0, "own time begins at 0");
        assert_eq!(clock.at(Millis(5_700)), 700);
        assert_eq!(clock.read(Millis(5_500)), 500, "`at` takes no reading");
        assert_eq!(clock.read(Millis(4_000)), 500, "the clock was set back");
        assert_eq!(clock.read(Millis(4_100)), 600);
        assert_eq!(clock.at(Millis(9_000_000)), 600 + MAX_STEP_MS);
        assert_eq!(clock.read(Millis(9_000_000)), 600 + MAX_STEP_MS, "the host slept");
        assert_eq!(clock.wall(clock.ticks()), Millis(9_000_000));
        assert_eq!(clock.wall(clock.ticks() + 50), Millis(9_000_050));
        assert_eq!(clock.wall(0), Millis(9_000_000), "never before now");
        assert_eq!(clock.steady(100), Millis(5_100));
    }

    #[test]
    fn jitter_is_splitmix64() {
        let mut jitter = Jitter(1_234_567);
        for known in [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ] {
            assert_eq!(jitter.next(), known);
        }
    }

    #[test]
    fn times_are_spread_by_a_fifth_to_both_sides() {
        let mut jitter = Jitter(1);
        let spread: Vec<_> = (0..1_000).map(|_| jitter.spread(1_000)).collect();
        let (least, most) = (spread.iter().min(), spread.iter().max());
        assert!((800..=803).contains(least.unwrap()), "{least:?}");
        assert!((1_197..=1_200).contains(most.unwrap()), "{most:?}");
        assert_eq!(jitter.spread(0), 0);
        let below: std::collections::BTreeSet<_> = (0..200).map(|_| jitter.below(3)).collect();
        assert_eq!(below, [0, 1, 2].into());
    }
}
