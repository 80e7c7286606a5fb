//! What a frame costs: an estimate from its columns alone.
//!
//! Queens of a half board take its n rows in n! ways, and two of them in columns at distance d < n
//! then share a diagonal with probability 2 (n − d) / (n (n − 1)). Pairs are not independent: that
//! no two share one is about as likely as the product over all pairs, raised to 5/4, says. How many of
//! a half's boards have one of the row sets that are wanted is estimated in the same way, by the pairs
//! of rows. Time follows from the lengths of both lists.
//!
//! Only additions, multiplications, divisions and square roots: every machine must come to the same
//! costs, because they decide where tasks begin.
//!
//! The mathematics: `docs/method.md`, “What a frame costs”.

use super::{
    frame::FramesOfA,
    geometry::Kind,
    sets::{Sets, elements},
};
use crate::board::Board;

/// Estimates of all frames of one board.
#[derive(Debug)]
pub(super) struct Costs {
    side: u32,
    /// n!
    orders: f64,
    /// By set: how likely queens in these columns of one quadrant share no diagonal.
    within: Vec<f64>,
    /// By set: how likely they share none with the middle-column queen.
    with_middle: Vec<f64>,
    /// By set X on one side and column j on the other, at X n + j: how likely a queen in j shares no
    /// diagonal with those in X.
    across: Vec<f64>,
    /// By size and rank: the share of a half's boards whose row set, on one side, is of this size and
    /// has this rank or a higher one.
    ranked_from: Vec<Vec<f64>>,
    /// At k: how likely k queens share no diagonal with the middle-row queen, each attacked in one of
    /// its n rows.
    beside_middle: Vec<f64>,
}

/// True over estimated lengths of the lists, (top, bottom).
const fn bias(kind: Kind) -> (f64, f64) {
    match kind {
        Kind::Even => (1.8, 1.69),
        Kind::TypeOne => (0.54, 0.49),
        Kind::TypeTwo => (1.75, 1.99),
    }
}

/// The probability that no pair of many meets, from the product over the pairs.
fn none(product: f64) -> f64 {
    product * product.sqrt().sqrt()
}

// Fitted to tasks of N = 18 … 24: docs/benchmarks.md.

/// Microseconds a frame, whatever its lists.
const FRAME: f64 = 20.0;
/// Microseconds a key of either list.
const KEY: f64 = 0.007;
/// Microseconds, times the number of pairs to the power of 3/4.
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
            // One column more than a smaller set.
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

    /// [`Self::ranked_from`] for one size.
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
            sum += none(within * across.product::<f64>());
            shares.push(sum);
        }
        shares.iter_mut().for_each(|share| *share /= sum);
        shares.reverse();
        shares
    }

    /// Microseconds of the frame of `row` with columns `c` of R, of rank `c_rank`.
    pub(super) fn of(&self, row: &FramesOfA, c_rank: usize, sets: &Sets) -> f64 {
        Self::of_lengths(self.lengths(row, c_rank, sets))
    }

    /// Microseconds of a frame with lists of these lengths.
    pub(super) fn of_lengths((top, bottom): (f64, f64)) -> f64 {
        let pairs = (top * bottom).sqrt();
        FRAME + KEY * (top + bottom) + JOIN * pairs * pairs.sqrt()
    }

    /// Estimated lengths of the lists of half boards.
    pub(super) fn lengths(&self, row: &FramesOfA, c_rank: usize, sets: &Sets) -> (f64, f64) {
        let full = (1 << self.side) - 1;
        let top_queens = row.top_queens();
        let a = sets.of_size(top_queens)[row.a];
        let c = sets.of_size(row.queens)[c_rank];
        let (not_a, not_c) = (full & !a, full & !c);
        let (top, bottom) = (self.quadrants(a, not_c), self.quadrants(not_a, c));
        let from = &self.ranked_from[row.queens as usize];
        let (top, bottom) = match row.kind {
            Kind::Even | Kind::TypeOne => {
                let halves = 2 * row.queens == self.side;
                let end = from.len() - 1 - if halves { row.a } else { 0 };
                let wanted = from[row.a] - from[end];
                (none(top) * wanted, none(bottom) * wanted)
            }
            Kind::TypeTwo => {
                let middle = self.with_middle[a as usize] * self.with_middle[not_c as usize];
                // S lacks one of the columns ~A: what the queen there excluded comes back. The
                // middle-row queen there reaches all of S, and of R columns at a distance up to n.
                let without = |x: u32| {
                    let others = self.within[(not_a & !(1 << x)) as usize]
                        / self.across[(c * self.side + x) as usize];
                    let near = self.side - row.queens + (c >> (self.side - x)).count_ones();
                    none(
                        bottom * others / self.within[not_a as usize]
                            * self.beside_middle[near as usize],
                    )
                };
                let lists: f64 = elements(not_a).map(without).sum();
                (none(top * middle), lists * from[c_rank])
            }
        };
        let bias = bias(row.kind);
        (self.orders * top * bias.0, self.orders * bottom * bias.1)
    }

    /// The most quarter boards with `size` queens that any columns have: a bound for sides from 8 to 14,
    /// where what was counted is 0.99 to 0.55 of it.
    pub(super) fn quarter_boards(&self, size: u32, sets: &Sets) -> f64 {
        let orders: f64 = (self.side - size + 1..=self.side).map(f64::from).product();
        let likely = sets
            .of_size(size)
            .iter()
            .map(|&set| self.within[set as usize]);
        let likely = likely.fold(0.0, f64::max);
        orders * likely.min(1.75 * none(likely))
    }

    /// The half boards of one row set of a frame of `row`, on average.
    pub(super) fn row_set_keys(&self, row: &FramesOfA, sets: &Sets) -> f64 {
        let (top, bottom) = self.lengths(row, row.first_c, sets);
        let tops = match row.kind {
            Kind::Even | Kind::TypeOne => sets.count(row.queens) - row.a,
            Kind::TypeTwo => sets.count(row.top_queens()),
        };
        let bottoms = sets.count(row.queens) - row.first_c;
        (top * part(1, tops)).max(bottom * part(1, bottoms))
    }

    /// How likely queens in columns `left` of one quadrant and `right` of the other share no diagonal.
    fn quadrants(&self, left: u32, right: u32) -> f64 {
        let across = elements(left).map(|j| self.across[(right * self.side + j) as usize]);
        self.within[left as usize] * self.within[right as usize] * across.product::<f64>()
    }
}

#[allow(clippy::cast_precision_loss)] // at most 12870
fn part(some: usize, all: usize) -> f64 {
    some as f64 / all as f64
}
