//! Totals of a run and symmetry classes, with checks for overflow and consistency.

/// Counts of one board, consistent by construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    all: u128,
    half_turn: u64,
    quarter_turn: u64,
}

/// Numbers of solution classes under the eight symmetries of the square.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classes {
    /// Classes of eight. For N = 1 the only solution counts as quarter-turn symmetric.
    pub asymmetric: u128,
    /// Classes of four: fixed by the half turn, not by a quarter turn.
    pub half_turn: u128,
    /// Classes of two: fixed by a quarter turn.
    pub quarter_turn: u128,
}

/// An impossible sum or set of counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTally {
    #[error("the sum of the partial counts exceeds 128 bits")]
    Overflow,
    /// The counts contradict each other.
    #[error(
        "all = {all}, half-turn = {half_turn}, quarter-turn = {quarter_turn} violate \
             Burnside's lemma: {which}"
    )]
    Inconsistent {
        all: u128,
        half_turn: u64,
        quarter_turn: u64,
        /// The violated condition.
        which: &'static str,
    },
}

/// Returns the total of a run: the sum of its partial counts.
pub fn total(partials: impl IntoIterator<Item = u64>) -> Result<u128, BadTally> {
    partials.into_iter().try_fold(0u128, |sum, partial| {
        sum.checked_add(u128::from(partial)).ok_or(BadTally::Overflow)
    })
}

impl Counts {
    /// Creates the counts of a board.
    ///
    /// `half_turn` solutions are fixed by a half turn; `quarter_turn` of these
    /// also by a quarter turn.
    pub fn new(all: u128, half_turn: u64, quarter_turn: u64) -> Result<Self, BadTally> {
        let bad = |which| BadTally::Inconsistent { all, half_turn, quarter_turn, which };
        // N = 1: reflections fix the only solution; this happens on no larger board.
        let single = (all, half_turn, quarter_turn) == (1, 1, 1);
        if !single {
            if quarter_turn > half_turn || u128::from(half_turn) > all {
                return Err(bad("quarter ≤ half ≤ all"));
            }
            if !quarter_turn.is_multiple_of(2) {
                return Err(bad("quarter is a multiple of 2"));
            }
            if !(half_turn - quarter_turn).is_multiple_of(4) {
                return Err(bad("half - quarter is a multiple of 4"));
            }
            if !(all - u128::from(half_turn)).is_multiple_of(8) {
                return Err(bad("all - half is a multiple of 8"));
            }
        }
        Ok(Self { all, half_turn, quarter_turn })
    }

    /// Returns the number of all solutions (A000170).
    pub const fn all(&self) -> u128 {
        self.all
    }

    /// Returns the number of solutions fixed by a half turn (A032522).
    pub const fn half_turn(&self) -> u64 {
        self.half_turn
    }

    /// Returns the number of solutions fixed by a quarter turn (A033148).
    pub const fn quarter_turn(&self) -> u64 {
        self.quarter_turn
    }

    /// Returns the number of solutions up to rotation and reflection (A002562).
    pub fn fundamental(&self) -> u128 {
        let Classes { asymmetric, half_turn, quarter_turn } = self.classes();
        asymmetric + half_turn + quarter_turn
    }

    /// Returns the classes: all = 8 asymmetric + 4 half_turn + 2 quarter_turn.
    pub fn classes(&self) -> Classes {
        Classes {
            asymmetric: (self.all - u128::from(self.half_turn)) / 8,
            half_turn: u128::from((self.half_turn - self.quarter_turn) / 4),
            quarter_turn: u128::from(self.quarter_turn.div_ceil(2)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boards_have_their_classes() {
        let counts = Counts::new(14_200, 80, 8).unwrap();
        let classes = Classes { asymmetric: 1765, half_turn: 18, quarter_turn: 4 };
        assert_eq!((counts.classes(), counts.fundamental()), (classes, 1787));
        assert_eq!(Counts::new(1, 1, 1).unwrap().fundamental(), 1);
        assert_eq!(Counts::new(0, 0, 0).unwrap().fundamental(), 0);
    }

    #[test]
    fn impossible_counts_are_refused() {
        for (all, half_turn, quarter_turn) in
            [(14_201, 80, 8), (14_200, 81, 8), (14_200, 80, 7), (14_200, 8, 80), (2, 4, 0)]
        {
            let result = Counts::new(all, half_turn, quarter_turn);
            assert!(result.is_err(), "{all} {half_turn} {quarter_turn}");
        }
    }

    #[test]
    fn totals_exceed_64_bits() {
        assert_eq!(total([u64::MAX, u64::MAX]), Ok(2 * u128::from(u64::MAX)));
        assert_eq!(total([]), Ok(0));
    }
}
