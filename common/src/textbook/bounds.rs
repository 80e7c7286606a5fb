//! How much there is to try, before anything is ruled out.

use crate::board::Board;

/// A bound on what a search visits.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// As a formula.
    pub formula: &'static str,
    /// Of what.
    pub of: &'static str,
    /// The document that gives it.
    pub source: &'static str,
    /// The number; `None` where it passes 128 bits.
    pub value: fn(Board) -> Option<u128>,
    /// About the same number.
    pub about: fn(Board) -> f64,
}

/// The bounds of the documents.
pub const BOUNDS: [Bound; 4] = [
    Bound {
        formula: "C(N\u{b2}, N)",
        of: "queens on any squares",
        source: "003_078d7ecdfdf3df70.txt",
        value: squares,
        about: |board| {
            let n = f64::from(board.n());
            (0..board.n())
                .map(f64::from)
                .map(|k| (n * n - k) / (k + 1.0))
                .product()
        },
    },
    Bound {
        formula: "N^N",
        of: "one queen a row",
        source: "001_86e98d93edfc3b6c.txt",
        value: |board| u128::from(board.n()).checked_pow(board.n().into()),
        about: |board| f64::from(board.n()).powi(board.n().into()),
    },
    Bound {
        formula: "N!",
        of: "one queen a row and a column",
        source: "003_078d7ecdfdf3df70.txt",
        value: |board| factorial(board.n()),
        about: |board| (1..=board.n()).map(f64::from).product(),
    },
    Bound {
        formula: "N^N (N-1)!",
        of: "comparisons of a list comprehension",
        source: "004_df925f861df725bd.txt",
        value: |board| {
            let power = u128::from(board.n()).checked_pow(board.n().into())?;
            power.checked_mul(factorial(board.n() - 1)?)
        },
        about: |board| {
            let below: f64 = (1..board.n()).map(f64::from).product();
            below * f64::from(board.n()).powi(board.n().into())
        },
    },
];

fn factorial(n: u8) -> Option<u128> {
    (1..=u128::from(n)).try_fold(1, |product: u128, k| product.checked_mul(k))
}

fn squares(board: Board) -> Option<u128> {
    let n = u128::from(board.n());
    // Each partial product is a binomial coefficient itself.
    (0..n).try_fold(1, |product: u128, k| {
        Some(product.checked_mul(n * n - k)? / (k + 1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_queens_have_the_bounds_of_the_documents() {
        let board = Board::new(8).unwrap();
        let values = BOUNDS.map(|bound| (bound.value)(board).unwrap());
        assert_eq!(values, [4_426_165_368, 16_777_216, 40_320, 84_557_168_640]);
        for n in 1..=Board::MAX {
            let board = Board::new(n).unwrap();
            for bound in BOUNDS {
                if let Some(value) = (bound.value)(board) {
                    let ratio = (bound.about)(board) / value as f64;
                    assert!(
                        (ratio - 1.0).abs() < 1e-9,
                        "{} of {n}: {ratio}",
                        bound.formula
                    );
                }
            }
        }
    }
}
