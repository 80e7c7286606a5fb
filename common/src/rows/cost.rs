//! How long a search takes, estimated before it is made.
//!
//! A search widens in the upper rows and dies out in the lower ones, so what its size depends on is
//! how many squares the queens placed beforehand leave open in each row, the upper rows most: its
//! logarithm is close to a weighted sum of the logarithms of the open squares. The weights were
//! fitted on borders of N = 14 … 17; there half of the borders cost 0.8 to 1.25 of the estimate, and
//! nine of ten 0.6 to 1.5.
//!
//! Plans depend on these numbers, so they are integers, or floats that nothing but `+ - * /` made:
//! the same on every machine.

use super::division::Weighted;
use crate::board::Board;

/// What the logarithms of open squares count for, by sixths of the board from the top, in hundredths.
const WEIGHTS: [i64; 6] = [70, 130, 130, 85, 23, -28];

/// What a row to fill counts for by itself, in hundredths of a natural logarithm.
const PER_ROW: i64 = 30;

/// The logarithm (base 2, in 2^-16) of how a search compares to others on the same board, from the
/// queens placed beforehand, as (row, column). Only differences mean anything.
pub(super) fn size(board: Board, queens: &[(u8, u8)]) -> i64 {
    let n = i64::from(board.n());
    let usual = LOG2[usize::from(board.n())] + LOG2[3] - LOG2[5];
    let mut size = 0;
    for row in (0..board.n()).filter(|&row| queens.iter().all(|queen| queen.0 != row)) {
        let attacked = queens.iter().fold(0u64, |attacked, &(from, column)| {
            let far = row.abs_diff(from);
            attacked | 1 << column | 1 << (column + far) | 1 << column >> far
        });
        let open = u64::from(board.full_row()) & !attacked;
        let sixth = (i64::from(row) - 1).max(0) * 6 / (n - 2).max(1);
        let weight = WEIGHTS[usize::try_from(sixth).unwrap_or(0).min(5)];
        // A row without any open square ends a search early, not at once: its rows above are filled.
        size += weight * (LOG2[open.count_ones().max(1) as usize] - usual);
        size += PER_ROW * LOG2_E;
    }
    size / 100
}

/// Turns the sizes of heads, in their `cost`, into estimated microseconds that add up to those of the
/// whole board.
pub(super) fn share(board: Board, weighted: &mut [Weighted], sizes: &[i64]) {
    let largest = sizes.iter().copied().max().unwrap_or(0);
    let parts: Vec<f64> = sizes.iter().map(|size| power_of_two(size - largest)).collect();
    let unit = whole_microseconds(board) / parts.iter().sum::<f64>();
    for (head, part) in weighted.iter_mut().zip(parts) {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates
        let cost = (unit * part) as u64;
        head.cost = cost.max(1);
    }
}

/// Microseconds for all units of a board on one core of the reference machine.
fn whole_microseconds(board: Board) -> f64 {
    // Measured at N = 17, with the AVX-512 kernel. From one board to the next the number of
    // solutions grows by 0.39 N (within 1 % for N = 17 … 27), placements per solution by 4 %.
    let mut microseconds = 5.0e5;
    for n in 18..=board.n() {
        microseconds *= 0.39 * 1.04 * f64::from(n);
    }
    for n in board.n() + 1..=17 {
        microseconds /= 0.39 * 1.04 * f64::from(n);
    }
    microseconds
}

/// Estimated microseconds for so many placements.
pub(super) fn of_placements(placed: usize) -> u64 {
    placed as u64 / 2000
}

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

/// log2 in 2^-16, a bit at a time: a bit is set where the square of what is left passes 2.
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

/// 2 to the `exponent` / 2^16, for exponents up to 0.
fn power_of_two(exponent: i64) -> f64 {
    let (whole, fraction) = (exponent >> 16, exponent & 0xffff);
    // e^x by its series: the terms left out are below 1e-7 for x < ln 2.
    #[allow(clippy::cast_precision_loss)]
    let x = fraction as f64 / 65_536.0 * std::f64::consts::LN_2;
    let series = (1..=9).rev().fold(1.0, |sum, k| 1.0 + sum * x / f64::from(k));
    (0..whole.unsigned_abs().min(1000)).fold(series, |value, _| value / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_and_powers_agree_with_the_library() {
        for (number, &log) in LOG2.iter().enumerate().skip(1) {
            let exact = (number as f64).log2() * 65_536.0;
            assert!((exact - log as f64).abs() < 2.0, "log2({number}) = {log}, not {exact}");
        }
        for exponent in [0, -1, -65_535, -65_536, -70_000, -1_000_000] {
            let exact = (exponent as f64 / 65_536.0).exp2();
            let found = power_of_two(exponent);
            assert!((found / exact - 1.0).abs() < 1e-6, "2^({exponent}/65536) = {found}");
        }
    }
}
