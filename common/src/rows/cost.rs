//! Estimated cost of a search.
//!
//! A search widens in the upper rows and dies out in the lower ones. Its size depends on the
//! squares that the placed queens leave open in each row: its logarithm is close to a weighted sum
//! of the logarithms of the open squares. The weights are least-squares fits over borders of N = 14
//! … 20 and first rows of N = 14 … 18; 90 % of the heads take 0.7 to 1.3 times the estimate,
//! all take 0.5 to 1.7 times.
//!
//! Plans depend on these numbers, which must be the same on every machine. So they are integers, or
//! floats computed only by `+ - * /`.

use crate::board::Board;

#[derive(Clone, Copy, Debug)]
pub(super) struct Model {
    /// Weights of the logarithms of open squares per sixth of the board, in hundredths.
    weights: [i64; 6],
    /// Weight of a row to fill, in hundredths of a natural logarithm.
    per_row: i64,
    /// Weight of a queen at the end of a side, in hundredths of a natural logarithm.
    ///
    /// The weight is 0 in the middle of the side and grows with the square of the distance.
    per_side: i64,
    /// Microseconds for the whole board at N = 17 on one core of the reference machine.
    microseconds: f64,
}

pub(super) const BORDER: Model = Model {
    weights: [100, 135, 110, 85, 50, -25],
    per_row: 115,
    per_side: -58,
    microseconds: 0.6e6,
};

pub(super) const FIRST_ROWS: Model =
    Model { weights: [30, 80, 95, 135, 140, 180], per_row: 0, per_side: 0, microseconds: 1.8e6 };

/// Maximum sum of estimates, reached from N = 30 (first rows) or N = 31 (border).
const MAX_MICROSECONDS: f64 = 4e18;

impl Model {
    /// Returns the logarithm (base 2, in 2^-16) of a search's relative size.
    ///
    /// Queens are given as (row, column). Only differences are meaningful.
    pub(super) fn size(&self, board: Board, queens: &[(u8, u8)]) -> i64 {
        let n = i64::from(board.n());
        let typical = LOG2[usize::from(board.n())] + LOG2[3] - LOG2[5];
        let mut size = 0;
        for row in (0..board.n()).filter(|&row| queens.iter().all(|queen| queen.0 != row)) {
            let attacked = queens.iter().fold(0u64, |attacked, &(from, column)| {
                let distance = row.abs_diff(from);
                attacked | 1 << column | 1 << (column + distance) | (1 << column) >> distance
            });
            let open = u64::from(board.full_row()) & !attacked;
            let sixth = (i64::from(row) - 1).max(0) * 6 / (n - 2).max(1);
            let weight = self.weights[usize::try_from(sixth).unwrap_or(0).min(5)];
            // A row without an open square counts as one square: the search ends early but not immediately.
            size += weight * (LOG2[open.count_ones().max(1) as usize] - typical);
            size += self.per_row * LOG2_E;
        }
        (size + self.per_side * sides(board, queens)) / 100
    }

    /// Converts the sizes of all heads to microseconds, each at least 1.
    pub(super) fn shares(&self, board: Board, sizes: &[i64]) -> Vec<u64> {
        let largest = sizes.iter().copied().max().unwrap_or(0);
        let parts: Vec<f64> = sizes.iter().map(|size| power_of_two(size - largest)).collect();
        let unit = self.whole_microseconds(board) / parts.iter().sum::<f64>();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates
        parts.into_iter().map(|part| ((unit * part) as u64).max(1)).collect()
    }

    /// Estimates the microseconds for all units of a board.
    ///
    /// From N - 1 to N, solutions grow by a factor of 0.39 N (within 2 % for N = 18 … 27)
    /// and placements per solution by 4 %.
    pub(super) fn whole_microseconds(&self, board: Board) -> f64 {
        let mut microseconds = self.microseconds;
        for n in 18..=board.n() {
            microseconds *= 0.39 * 1.04 * f64::from(n);
        }
        for n in board.n() + 1..=17 {
            microseconds /= 0.39 * 1.04 * f64::from(n);
        }
        microseconds.min(MAX_MICROSECONDS)
    }
}

/// Sums squared distances from side middles, scaled to [`LOG2_E`] at the ends.
fn sides(board: Board, queens: &[(u8, u8)]) -> i64 {
    let last = i64::from(board.n()) - 1;
    let mut sum = 0;
    for &(row, column) in queens {
        let (row, column) = (i64::from(row), i64::from(column));
        for (across, along) in [(row, column), (column, row)] {
            if across == 0 || across == last {
                sum += LOG2_E * (2 * along - last).pow(2) / last.pow(2).max(1);
            }
        }
    }
    sum
}

/// Number of placements that take about a microsecond.
pub(super) const PLACEMENTS_PER_MICROSECOND: u64 = 2000;

/// log2 of the index in 2^-16, rounded down; 0 for 0.
const LOG2: [i64; 33] = {
    let mut table = [0; 33];
    let mut number = 1;
    while number < table.len() {
        table[number] = log2(number as u64);
        number += 1;
    }
    table
};

/// log2(e) in 2^-16.
const LOG2_E: i64 = 94_548;

/// Computes log2 in 2^-16, one bit at a time.
const fn log2(number: u64) -> i64 {
    let whole = number.ilog2();
    let mut rest = (number << 31) >> whole;
    let mut log = whole as i64;
    let mut bit = 0;
    while bit < 16 {
        rest = (rest * rest) >> 31;
        log <<= 1;
        if rest >> 32 != 0 {
            rest >>= 1;
            log |= 1;
        }
        bit += 1;
    }
    log
}

/// Returns 2^(`exponent` / 2^16), for exponents up to 0.
fn power_of_two(exponent: i64) -> f64 {
    let (whole, fraction) = (exponent >> 16, exponent & 0xffff);
    // e^x by its series; the omitted terms are below 1e-7 for x < ln 2.
    #[allow(clippy::cast_precision_loss)]
    let x = fraction as f64 / 65_536.0 * std::f64::consts::LN_2;
    let series = (1..=9).rev().fold(1.0, |sum, k| 1.0 + sum * x / f64::from(k));
    (0..whole.unsigned_abs().min(1000)).fold(series, |value, _| value / 2.0)
}

/// Version of the division rules; increment it with any change.
pub(crate) const PLAN_VERSION: u16 = 2;

/// Returns the default task cost in microseconds.
///
/// About a thousand tasks of 5 milliseconds to 10 seconds each, but at most a million.
pub(crate) fn default_task_cost(board: Board) -> u64 {
    let whole = BORDER.whole_microseconds(board);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // far from both ends
    let part = |tasks: f64| (whole / tasks) as u64;
    part(1e3).clamp(5_000, 10_000_000).max(part(1e6))
}
