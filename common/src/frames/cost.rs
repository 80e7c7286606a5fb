//! Estimated cost of a frame, from its columns alone.
//!
//! Queens of a half board take its n rows in n! ways, and two of them in columns at distance d < n
//! then share a diagonal with probability 2 (n − d) / (n (n − 1)). Pairs are not independent: the
//! probability that no two share one is about the product over all pairs, raised to 5/4. The share of a
//! half's boards whose row sets are needed is estimated in the same way, from the pairs of rows. The time
//! follows from the lengths of both lists.
//!
//! The estimates use only additions, multiplications, divisions and square roots: every machine must
//! compute the same costs, because these decide where tasks begin.

use super::geometry::{Frame, Kind, Sets, elements};
use crate::board::Board;

/// Cost estimates for all frames of one board.
#[derive(Debug)]
pub(super) struct Costs {
    side: u32,
    orders: f64,
    /// Per set: probability that queens in these columns share no diagonal.
    within: Vec<f64>,
    /// Per set: probability that no diagonal is shared with the middle-column queen.
    with_middle: Vec<f64>,
    /// Index X n + j: probability that column j conflicts with no opposite column in X.
    across: Vec<f64>,
    /// Per size and rank: share of boards with a row set of this rank or higher.
    ranked_from: Vec<Vec<f64>>,
    /// Index k: probability that k queens share no diagonal with the middle-row queen.
    beside_middle: Vec<f64>,
}

/// Returns the ratio of true to estimated list lengths, (top, bottom).
const fn bias(kind: Kind) -> (f64, f64) {
    match kind {
        Kind::Even => (1.8, 1.69),
        Kind::TypeOne => (0.54, 0.49),
        Kind::TypeTwo => (1.75, 1.99),
    }
}

/// Returns the probability that no pair conflicts, from the product over the pairs.
fn no_conflict(product: f64) -> f64 {
    product * product.sqrt().sqrt()
}

// Fitted to tasks of N = 18 … 24: docs/benchmarks.md.

/// Microseconds per frame.
const FRAME: f64 = 20.0;
/// Microseconds per key of either list.
const KEY: f64 = 0.007;
/// Microseconds per (number of pairs)^(3/4): longer lists are divided into more cells.
const JOIN: f64 = 0.000_09;

impl Costs {
    #[allow(clippy::cast_precision_loss)] // small numbers
    pub(super) fn new(board: Board, sets: &Sets) -> Self {
        let side = u32::from(board.n()) / 2;
        let (n, all) = (side as usize, 1usize << side);
        let safe = |distance: u32| {
            let close = f64::from(side.saturating_sub(distance));
            (1.0 - 2.0 * close / f64::from(side * (side - 1))).max(0.05)
        };
        let mut costs = Self {
            side,
            orders: (1..=side).map(f64::from).product(),
            within: vec![1.0; all],
            with_middle: vec![1.0; all],
            across: vec![1.0; all * n],
            ranked_from: Vec::new(),
            beside_middle: Vec::new(),
        };
        for set in 1..all {
            // The set is `rest` and one more column, `first`.
            let rest = set & (set - 1);
            let first = set.trailing_zeros();
            let pairs = elements(u32::try_from(rest).expect("16 columns at most"));
            let pairs = pairs.map(|column| safe(column - first)).product::<f64>();
            costs.within[set] = costs.within[rest] * pairs;
            costs.with_middle[set] = costs.with_middle[rest] * safe(side - first);
            for (j, column) in (0..side).enumerate() {
                let distance = u32::from(board.n()) - 1 - first - column;
                costs.across[set * n + j] = costs.across[rest * n + j] * safe(distance);
            }
        }
        let not_attacked = 1.0 - 1.0 / f64::from(side);
        let likely = std::iter::successors(Some(1.0), |likely| Some(likely * not_attacked));
        costs.beside_middle = likely.take(n + 1).collect();
        costs.ranked_from = (0..=side).map(|size| costs.shares(size, sets)).collect();
        costs
    }

    /// Computes [`Self::ranked_from`] for one size.
    fn shares(&self, size: u32, sets: &Sets) -> Vec<f64> {
        let full = (1 << self.side) - 1;
        let squares = f64::from(self.side * self.side);
        // Rows at distance d of different quadrants: their queens share a diagonal if their columns,
        // too, are at distance d.
        let apart = |i: u32, j: u32| 1.0 - f64::from(i.abs_diff(j)) / squares;
        let mut sum = 0.0;
        let mut shares = vec![sum];
        for &rows in sets.of_size(size).iter().rev() {
            let others = full & !rows;
            let across = elements(rows).flat_map(|i| elements(others).map(move |j| apart(i, j)));
            let within = self.within[rows as usize] * self.within[others as usize];
            sum += no_conflict(within * across.product::<f64>());
            shares.push(sum);
        }
        shares.iter_mut().for_each(|share| *share /= sum);
        shares.reverse();
        shares
    }

    /// Estimates the microseconds for a frame with these list lengths.
    pub(super) fn of_lengths((top, bottom): (f64, f64)) -> f64 {
        let pairs = (top * bottom).sqrt();
        FRAME + KEY * (top + bottom) + JOIN * pairs * pairs.sqrt()
    }

    /// Estimates the lengths of the lists of half boards.
    pub(super) fn lengths(&self, frame: &Frame, sets: &Sets) -> (f64, f64) {
        let full = (1 << self.side) - 1;
        let top_queens = frame.top_queens();
        let a = sets.of_size(top_queens)[frame.a];
        let c = sets.of_size(frame.queens)[frame.c];
        let (not_a, not_c) = (full & !a, full & !c);
        let (top, bottom) = (self.quadrants(a, not_c), self.quadrants(not_a, c));
        let from = &self.ranked_from[frame.queens as usize];
        let (top, bottom) = match frame.kind {
            Kind::Even | Kind::TypeOne => {
                let is_half = 2 * frame.queens == self.side;
                let end = from.len() - 1 - if is_half { frame.a } else { 0 };
                let wanted = from[frame.a] - from[end];
                (no_conflict(top) * wanted, no_conflict(bottom) * wanted)
            }
            Kind::TypeTwo => {
                let middle = self.with_middle[a as usize] * self.with_middle[not_c as usize];
                // S lacks one of the columns ~A, so its factor is divided out.
                // The middle-row queen reaches all of S, and columns of R at a distance up to n.
                let without = |x: u32| {
                    let others = self.within[(not_a & !(1 << x)) as usize]
                        / self.across[(c * self.side + x) as usize];
                    let near = self.side - frame.queens + (c >> (self.side - x)).count_ones();
                    no_conflict(
                        bottom * others / self.within[not_a as usize]
                            * self.beside_middle[near as usize],
                    )
                };
                let lists: f64 = elements(not_a).map(without).sum();
                (no_conflict(top * middle), lists * from[frame.c])
            }
        };
        let bias = bias(frame.kind);
        (self.orders * top * bias.0, self.orders * bottom * bias.1)
    }

    /// Returns an upper bound on the number of quarter boards with `size` queens.
    ///
    /// The true maximum is 0.99 of this bound for side 8 and falls to 0.55 for side 14.
    pub(super) fn quarter_boards(&self, size: u32, sets: &Sets) -> f64 {
        let orders: f64 = (self.side - size + 1..=self.side).map(f64::from).product();
        let likely = sets.of_size(size).iter().map(|&set| self.within[set as usize]);
        let likely = likely.fold(0.0, f64::max);
        orders * likely.min(1.75 * no_conflict(likely))
    }

    /// Estimates the mean number of half boards per row set from a row's first frame.
    pub(super) fn row_set_keys(&self, first: &Frame, sets: &Sets) -> f64 {
        let (top, bottom) = self.lengths(first, sets);
        let tops = match first.kind {
            Kind::Even | Kind::TypeOne => sets.count(first.queens) - first.a,
            Kind::TypeTwo => sets.count(first.top_queens()),
        };
        let bottoms = sets.count(first.queens) - first.c;
        (top * part(1, tops)).max(bottom * part(1, bottoms))
    }

    /// Returns the probability that queens in two quadrants share no diagonal.
    fn quadrants(&self, left: u32, right: u32) -> f64 {
        let across = elements(left).map(|j| self.across[(right * self.side + j) as usize]);
        self.within[left as usize] * self.within[right as usize] * across.product::<f64>()
    }
}

#[allow(clippy::cast_precision_loss)] // at most 12870
fn part(some: usize, all: usize) -> f64 {
    some as f64 / all as f64
}

/// Version of the division rules; increment it with any change.
pub(crate) const PLAN_VERSION: u16 = 2;

/// Returns the default task cost in microseconds.
///
/// At least half a millisecond, so that small boards have few tasks, and up to N = 28 at most
/// 5 minutes.
pub(crate) fn default_task_cost(board: Board) -> u64 {
    match board.n() {
        0..=14 => 500,
        15..=16 => 2_000,
        17..=18 => 10_000,
        19..=20 => 100_000,
        21..=22 => 1_000_000,
        23 => 5_000_000,
        24..=26 => 20_000_000,
        27 => 120_000_000,
        28 => 300_000_000,
        29 => 10_000_000_000,
        30 => 100_000_000_000,
        31 => 1_000_000_000_000,
        _ => 10_000_000_000_000,
    }
}
