//! Sizes of search spaces.

use common::board::Board;

/// A bound on the number of visits of a search.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    pub formula: &'static str,
    /// Factors for a board of N rows as fractions; each partial product is an integer.
    factors: fn(u128) -> Vec<(u128, u128)>,
}

pub const BOUNDS: [Bound; 4] = [
    // Queens on any squares: the textbook program with `next_permutation`.
    Bound { formula: "C(N\u{b2}, N)", factors: |n| (0..n).map(|k| (n * n - k, k + 1)).collect() },
    // One queen per row: I. Suzuki's article.
    Bound { formula: "N^N", factors: |n| (0..n).map(|_| (n, 1)).collect() },
    // One queen per row and column: the textbook program with `next_permutation`.
    Bound { formula: "N!", factors: |n| (1..=n).map(|k| (k, 1)).collect() },
    // Comparisons of a list comprehension: the textbook article with list comprehensions.
    Bound { formula: "N^N (N-1)!", factors: |n| (0..n).map(|k| (n * k.max(1), 1)).collect() },
];

impl Bound {
    /// Returns the exact number, if it fits in 128 bits.
    pub fn value(&self, board: Board) -> Option<u128> {
        let mut factors = (self.factors)(board.n().into()).into_iter();
        factors.try_fold(1, |product: u128, (by, per)| Some(product.checked_mul(by)? / per))
    }

    /// Returns an approximation of the number.
    pub fn approximate(&self, board: Board) -> f64 {
        let factors = (self.factors)(board.n().into()).into_iter();
        factors.map(|(by, per)| by as f64 / per as f64).product()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_queens_have_the_bounds_of_the_documents() {
        let board = Board::new(8).unwrap();
        let values = BOUNDS.map(|bound| bound.value(board).unwrap());
        assert_eq!(values, [4_426_165_368, 16_777_216, 40_320, 84_557_168_640]);
        for n in 1..=Board::MAX {
            let board = Board::new(n).unwrap();
            for bound in BOUNDS {
                if let Some(value) = bound.value(board) {
                    let ratio = bound.approximate(board) / value as f64;
                    assert!((ratio - 1.0).abs() < 1e-9, "{} of {n}: {ratio}", bound.formula);
                }
            }
        }
    }
}
