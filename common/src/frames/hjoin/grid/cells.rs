//! The two-sided grid: a list of keys sorted by the patterns of its most contested bits.

use std::ops::ControlFlow;

use super::{
    gather::{GridRow, SLACK},
    sort::{self, FindRows, Rows, Scratch},
    sorting::{RowsToFill, Sorting},
};
use crate::{
    crew::OnDone,
    frames::hjoin::layout::{
        keys::KeyMaker,
        order::{Dissection, Order},
    },
    kernel::Kernel,
    simd::{Lanes, Rest, dispatch},
};

/// A list sorted by cell.
#[derive(Debug, Default)]
pub(crate) struct Grid<W> {
    /// Cell c holds the rests `offsets[c]..offsets[c + 1]`.
    offsets: Vec<u32>,
    /// All rests by cell, then [`SLACK`] more.
    rests: Vec<W>,
}

impl<W: Rest> Grid<W> {
    /// Sorts `keys`, at most `u32::MAX` of them, into cells.
    #[inline(always)]
    pub(crate) fn fill<L: Lanes>(
        &mut self,
        dissection: Dissection<'_>,
        keys: &[u64],
        scratch: &mut Scratch,
    ) {
        let (offsets, rests) = self.room(dissection.order, keys.len());
        sort::sort::<L, W>(dissection, keys, offsets, rests, scratch);
    }

    /// Room for the offsets of all cells and for so many rests.
    fn room(&mut self, order: Order, keys: usize) -> (&mut [u32], &mut [W]) {
        self.offsets.resize(order.cells() + 1, 0);
        if self.rests.len() < keys + SLACK {
            // Not twice as much as is needed, nothing to copy, and cleared by the system page by page,
            // for whoever writes there first.
            self.rests = Vec::new();
            self.rests = vec![W::default(); keys + SLACK];
        }
        (&mut self.offsets, &mut self.rests)
    }

    /// Sorts the keys that `maker` makes, at most `u32::MAX` of them, into cells, in so many rounds: all
    /// keys are made in each, but only those of some rows are held while these are sorted. `Break` when
    /// `on_done`, which is called now and then, breaks: the grid is empty then.
    pub(crate) fn fill_made(
        &mut self,
        kernel: Kernel,
        dissection: Dissection<'_>,
        maker: &dyn KeyMaker,
        rounds: usize,
        sorting: &mut Sorting,
        on_done: OnDone<'_>,
    ) -> ControlFlow<()> {
        if sorting.are_few(dissection.order.cells(), maker.keys()) {
            let (offsets, rests) = self.room(dissection.order, maker.keys());
            let filled = sorting.count_and_put(kernel, dissection, maker, offsets, rests, on_done);
            if filled.is_break() {
                self.clear();
            }
            return filled;
        }
        let Rows { numbers, columns } = dispatch(kernel, FindRows(dissection));
        let (mut offsets, mut rests) = self.room(dissection.order, maker.keys());
        let ends = sorting.divide(kernel, dissection, &numbers, maker, rounds);
        let (mut is_wanted, mut start) = (vec![false; numbers.len()], 0);
        let all = ends.len() == 1;
        let (mut filled, mut first) = (ControlFlow::Continue(()), 0);
        for end in ends {
            let rows = &numbers[first..end];
            first = end;
            is_wanted.fill(false);
            rows.iter().for_each(|&row| is_wanted[row] = true);
            let is_wanted = (!all).then_some(&is_wanted[..]);
            let rows_of_all = numbers.len();
            filled = sorting.scatter(kernel, dissection, rows_of_all, is_wanted, maker, on_done);
            if filled.is_continue() {
                let offsets = offsets.split_off_mut(..rows.len() * columns);
                let part = RowsToFill {
                    rows,
                    columns,
                    offsets: offsets.expect("some for every row"),
                    start: &mut start,
                    rests: &mut rests,
                };
                filled = sorting.sort_rows(kernel, dissection, part, on_done);
            }
            sorting.give_back();
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

    /// Forgets the keys.
    pub(crate) fn clear(&mut self) {
        self.offsets.clear();
    }

    /// The number of keys.
    pub(crate) fn len(&self) -> usize {
        self.offsets.last().map_or(0, |&keys| keys as usize)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The row of major pattern `major`, whose minor patterns have `minor_bits` bits: as the grid
    /// was filled.
    #[inline(always)]
    pub(crate) fn row(&self, major: usize, minor_bits: u32) -> GridRow<'_, W> {
        let offsets = &self.offsets[major << minor_bits..=(major + 1) << minor_bits];
        GridRow::new(&self.rests, offsets)
    }
}
