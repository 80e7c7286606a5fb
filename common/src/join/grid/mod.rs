//! A list of keys sorted by the patterns of the bits X1 and X2.

pub(crate) mod bands;
pub(crate) mod gather;
pub(crate) mod scatter;
pub(crate) mod sort;
pub(crate) mod sorting;
pub(crate) mod tile_rows;

use std::ops::ControlFlow;

use self::{
    gather::{GridRow, SLACK},
    sort::{Places, Scratch, Sort},
    sorting::{RowsToFill, Sorting},
};
use super::{
    interface::KeyMaker,
    layout::{KeySplit, Order},
};
use crate::{
    compute::crew::OnDone,
    simd::{Residual, dispatch},
};

/// Maximum keys of a list that stays in a second-level cache while it is sorted.
const MAX_CACHED: usize = 1 << 16;

/// A list sorted by cell.
#[derive(Debug, Default)]
pub(crate) struct Grid<W> {
    /// Cell c holds the residual keys `offsets[c]..offsets[c + 1]`.
    offsets: Vec<u32>,
    /// All residual keys by cell, then [`SLACK`] more.
    residuals: Vec<W>,
}

impl<W: Residual> Grid<W> {
    /// Sorts up to `u32::MAX` keys into cells.
    pub(crate) fn fill(&mut self, key_split: KeySplit<'_>, keys: &[u64], scratch: &mut Scratch) {
        let (offsets, residuals) = self.room(key_split.order, keys.len());
        let (end, offsets) = offsets.split_last_mut().expect("one more than cells");
        *end = sort::offset(keys.len());
        let sort = Sort {
            key_split,
            places: Places::cells(key_split),
            keys: &[keys.split_at(keys.len() / 2)],
            offsets,
            start: 0,
            residuals: &mut residuals[..keys.len()],
            fetches: keys.len() > MAX_CACHED,
            scratch,
        };
        dispatch(key_split.kernel, sort);
    }

    /// Returns room for the offsets of all cells and for `keys` residual keys.
    fn room(&mut self, order: Order, keys: usize) -> (&mut [u32], &mut [W]) {
        self.offsets.resize(order.cells() + 1, 0);
        if self.residuals.len() < keys + SLACK {
            // A new vector has the exact size, copies nothing, and is zeroed on first access.
            self.residuals = Vec::new();
            self.residuals = vec![W::default(); keys + SLACK];
        }
        (&mut self.offsets, &mut self.residuals)
    }

    /// Sorts up to `u32::MAX` keys from `maker` into cells in at most `rounds` rounds.
    ///
    /// Each round makes all keys, and holds and sorts those of some rows. Returns `Break` if
    /// `on_done` does; the grid is then empty.
    pub(crate) fn fill_made(
        &mut self,
        key_split: KeySplit<'_>,
        maker: &dyn KeyMaker,
        rounds: usize,
        sorting: &mut Sorting,
        on_done: OnDone<'_>,
    ) -> ControlFlow<()> {
        if sorting.has_few_cells(key_split.order.cells(), maker.keys()) {
            let (offsets, residuals) = self.room(key_split.order, maker.keys());
            let filled = sorting.count_and_put(key_split, maker, offsets, residuals, on_done);
            if filled.is_break() {
                self.clear();
            }
            return filled;
        }
        let (rows, columns) = Places::cells(key_split).halves();
        let numbers: Vec<usize> = rows.in_order().collect();
        let (mut offsets, mut residuals) = self.room(key_split.order, maker.keys());
        let ends = sorting.divide(key_split, &numbers, maker, rounds);
        let (mut is_wanted, mut start) = (vec![false; numbers.len()], 0);
        let all = ends.len() == 1;
        let (mut filled, mut first) = (ControlFlow::Continue(()), 0);
        for end in ends {
            let rows = &numbers[first..end];
            first = end;
            is_wanted.fill(false);
            rows.iter().for_each(|&row| is_wanted[row] = true);
            let is_wanted = (!all).then_some(&is_wanted[..]);
            let row_count = numbers.len();
            filled = sorting.scatter(key_split, row_count, is_wanted, maker, on_done);
            if filled.is_continue() {
                let offsets = offsets.split_off_mut(..rows.len() * columns.len());
                let part = RowsToFill {
                    rows,
                    columns,
                    offsets: offsets.expect("offsets for every row"),
                    start: &mut start,
                    residuals: &mut residuals,
                };
                filled = sorting.sort_rows(key_split, part, on_done);
            }
            sorting.recycle();
            if filled.is_break() {
                break;
            }
        }
        offsets[offsets.len() - 1] = sort::offset(start);
        if filled.is_break() {
            self.clear();
        }
        filled
    }

    /// Removes all keys.
    pub(crate) fn clear(&mut self) {
        self.offsets.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.offsets.last().map_or(0, |&keys| keys as usize)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the row of pattern `major`; minor patterns have `minor_bits` bits.
    #[inline(always)]
    pub(crate) fn row(&self, major: usize, minor_bits: u32) -> GridRow<'_, W> {
        let offsets = &self.offsets[major << minor_bits..=(major + 1) << minor_bits];
        GridRow::new(&self.residuals, offsets)
    }
}
