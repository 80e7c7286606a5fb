//! What a frame costs: an estimate from its columns alone.
//!
//! Queens of a half board take its n rows in n! ways, and two of them in columns at distance d < n
//! then share a diagonal with probability 2 (n − d) / (n (n − 1)). Taking pairs for independent gives
//! the length of a half's list within a factor of 1.5 for most frames; corrections by kind take out
//! the bias. Time follows from both lengths.
//!
//! Only additions, multiplications, divisions and square roots: every machine must come to the same
//! costs, because they decide where tasks begin.

use super::{
    geometry::Kind,
    plan::Row,
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
    /// How many sets there are of each size.
    counts: Vec<usize>,
}

/// Of the estimated lengths that the true ones have, (top, bottom).
const fn bias(kind: Kind) -> (f64, f64) {
    match kind {
        Kind::Even => (0.67, 0.58),
        Kind::TypeOne => (0.23, 0.20),
        Kind::TypeTwo => (0.65, 0.30),
    }
}

/// Microseconds a frame, whatever its lists.
const FRAME: f64 = 3.0;
/// Microseconds a key of either list.
const KEY: f64 = 0.009;
/// Microseconds a key, times the fourth root of the number of pairs.
const JOIN: f64 = 0.000_02;

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
            counts: (0..=side).map(|size| sets.count(size)).collect(),
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
        costs
    }

    /// Microseconds of the frame of `row` with columns `c` of R, of rank `c_rank`.
    pub(super) fn of(&self, row: &Row, c_rank: usize, sets: &Sets) -> f64 {
        let (top, bottom) = self.lengths(row, c_rank, sets);
        FRAME + (top + bottom) * (KEY + JOIN * (top * bottom).sqrt().sqrt())
    }

    /// Estimated lengths of the lists of half boards.
    fn lengths(&self, row: &Row, c_rank: usize, sets: &Sets) -> (f64, f64) {
        let full = (1 << self.side) - 1;
        let top_queens = row.top_queens();
        let a = sets.of_size(top_queens)[row.a];
        let c = sets.of_size(row.queens)[c_rank];
        let (not_a, not_c) = (full & !a, full & !c);
        let top = self.orders * self.quadrants(a, not_c);
        let bottom = self.orders * self.quadrants(not_a, c);
        let bias = bias(row.kind);
        match row.kind {
            Kind::Even | Kind::TypeOne => {
                let count = self.counts[row.queens as usize];
                let low = if 2 * row.queens == self.side {
                    2 * row.a
                } else {
                    row.a
                };
                let wanted = part(count - low, count);
                (top * wanted * bias.0, bottom * wanted * bias.1)
            }
            Kind::TypeTwo => {
                let middle = self.with_middle[a as usize] * self.with_middle[not_c as usize];
                let count = self.counts[row.queens as usize];
                // S lacks one of the columns ~A: what the queen there excluded comes back.
                let without = |x: u32| {
                    let others = self.within[(not_a & !(1 << x)) as usize];
                    others / self.across[(c * self.side + x) as usize]
                };
                let lists: f64 = elements(not_a).map(without).sum();
                let bottom = bottom / self.within[not_a as usize] * lists;
                (
                    top * middle * bias.0,
                    bottom * part(count - c_rank, count) * bias.1,
                )
            }
        }
    }

    /// The most quarter boards with `size` queens that any columns have.
    pub(super) fn quarter_boards(&self, size: u32, sets: &Sets) -> f64 {
        let orders: f64 = (self.side - size + 1..=self.side).map(f64::from).product();
        let likely = sets
            .of_size(size)
            .iter()
            .map(|&set| self.within[set as usize]);
        orders * likely.fold(0.0, f64::max)
    }

    /// The half boards of one row set of a frame of `row`, on average.
    pub(super) fn row_set_keys(&self, row: &Row, sets: &Sets) -> f64 {
        let (top, bottom) = self.lengths(row, row.first_c, sets);
        let all = |size: u32| self.counts[size as usize];
        let tops = match row.kind {
            Kind::Even | Kind::TypeOne => all(row.queens) - row.a,
            Kind::TypeTwo => all(row.top_queens()),
        };
        let bottoms = all(row.queens) - row.first_c;
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
