//! The two-sided grid: a list of keys sorted by the patterns of its most contested bits.

use std::{
    ops::ControlFlow,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use super::{
    dispatch,
    gather::{Row, SLACK},
    keys::{KeyMaker, Keys, Typical},
    lanes::Lanes,
    layout::{ByteTables, Order},
    rotate::{Rotation, rotate},
    scatter::{self, ByRow, Scatter, Spare},
    sort::{self, FindRows, Lists, Rows, Scratch, SortRow},
};
use crate::{
    crew::{self, OnDone},
    kernel::Kernel,
};

/// The rest bits of a key: four bytes where they suffice, eight otherwise.
pub(super) trait Rest: Copy + Default + Send + Sync {
    /// 32-bit words in a rest.
    const WORDS: usize;

    /// The low bits of `bits`, which has no others.
    fn new(bits: u64) -> Self;

    /// The bits rotated right, and some of them.
    fn rotated<L: Lanes, R: Rotation>(self) -> usize;

    /// All bits.
    fn bits(self) -> u64;

    /// Word `at` of the rest, the lowest first.
    fn word(self, at: usize) -> u32;
}

impl Rest for u32 {
    const WORDS: usize = 1;

    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the caller's layout leaves 32 bits"
    )]
    fn new(bits: u64) -> Self {
        bits as Self
    }

    #[inline(always)]
    fn rotated<L: Lanes, R: Rotation>(self) -> usize {
        rotate::<L, R>(self) as usize & R::MASK
    }

    #[inline(always)]
    fn bits(self) -> u64 {
        self.into()
    }

    #[inline(always)]
    fn word(self, _at: usize) -> u32 {
        self
    }
}

impl Rest for u64 {
    const WORDS: usize = 2;

    #[inline(always)]
    fn new(bits: u64) -> Self {
        bits
    }

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "a few bits are wanted")]
    fn rotated<L: Lanes, R: Rotation>(self) -> usize {
        (self.rotate_right(R::BY) & R::MASK as u64) as usize
    }

    #[inline(always)]
    fn bits(self) -> u64 {
        self
    }

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "one word is wanted")]
    fn word(self, at: usize) -> u32 {
        (self >> (32 * at)) as u32
    }
}

/// What sorting a long list takes beside it.
#[derive(Debug, Default)]
pub(super) struct Sorting {
    spare: Spare,
    /// What each thread needs.
    members: Vec<Sorter>,
}

#[derive(Debug, Default)]
struct Sorter {
    /// Of a group, as it is made.
    keys: Vec<u64>,
    by_row: ByRow,
    scratch: Scratch,
}

impl Sorting {
    /// On so many threads.
    pub(super) fn new(threads: usize) -> Self {
        let (spare, mut members) = (Spare::default(), Vec::new());
        members.resize_with(threads, Sorter::default);
        Self { spare, members }
    }
}

/// Some rows of a grid that is being filled.
struct Part<'a, 'b, W> {
    /// Their numbers.
    rows: &'a [usize],
    columns: usize,
    /// For all their cells.
    offsets: &'a mut [u32],
    /// How many keys the rows before them have; becomes how many these have as well.
    start: &'a mut usize,
    /// For their keys and those of the rows after them.
    rests: &'a mut &'b mut [W],
}

impl Sorting {
    /// Divides the rows, in their order, into parts with about as many keys each; returns where each
    /// ends. Rows for patterns with few bits have many times more keys than others.
    fn divide(
        &mut self,
        kernel: Kernel,
        order: (Order, &ByteTables),
        rows: &[usize],
        maker: &dyn KeyMaker,
        parts: usize,
    ) -> Vec<usize> {
        if parts == 1 {
            return vec![rows.len()];
        }
        let Sorter { keys, by_row, .. } = &mut self.members[0];
        let typical = Typical::new(Keys::Made(maker), keys);
        by_row.clear(rows.len());
        let scatter = Scatter {
            order,
            is_wanted: None,
            is_long: false,
            keys: typical.keys,
            to: by_row,
            spare: &self.spare,
        };
        dispatch(kernel, scatter);
        let all = typical.keys.len();
        let (mut ends, mut before) = (Vec::new(), 0);
        for (at, &row) in rows.iter().enumerate() {
            before += by_row.length(row);
            if before * parts > all * (ends.len() + 1) {
                ends.push(at + 1);
            }
        }
        ends.truncate(parts - 1);
        ends.push(rows.len());
        self.give_back();
        ends
    }

    /// Makes all keys and puts those of rows that are wanted into these.
    fn scatter(
        &mut self,
        kernel: Kernel,
        order: (Order, &ByteTables),
        (rows, is_wanted): (usize, Option<&[bool]>),
        maker: &dyn KeyMaker,
        on_done: OnDone<'_>,
    ) -> ControlFlow<()> {
        for member in &mut self.members {
            member.by_row.clear(rows);
        }
        let (next, spare) = (AtomicUsize::new(0), &self.spare);
        let scattered = crew::run(&mut self.members, on_done, |member, tell| {
            loop {
                let group = next.fetch_add(1, Relaxed);
                if group >= maker.groups() || tell.done(0).is_break() {
                    break;
                }
                member.keys.clear();
                maker.make(group, &mut member.keys);
                let scatter = Scatter {
                    order,
                    is_wanted,
                    is_long: maker.keys() >= scatter::LONG,
                    keys: &member.keys,
                    to: &mut member.by_row,
                    spare,
                };
                dispatch(kernel, scatter);
            }
        });
        done(scattered)
    }

    /// Sorts every one of these rows.
    fn sort_rows<'m, W: Rest>(
        &'m mut self,
        kernel: Kernel,
        order: (Order, &ByteTables),
        part: Part<'_, '_, W>,
        on_done: OnDone<'_>,
    ) -> ControlFlow<()> {
        let split = |member: &'m mut Sorter| (&member.by_row, &mut member.scratch);
        let (by_row, mut members): (Vec<&ByRow>, Vec<_>) =
            self.members.iter_mut().map(split).unzip();
        let length = |row| by_row.iter().map(|own| own.length(row)).sum::<usize>();
        let jobs = part
            .rows
            .iter()
            .zip(part.offsets.chunks_exact_mut(part.columns));
        let jobs = jobs.map(|(&row, offsets)| {
            let own = part.rests.split_off_mut(..length(row));
            let own = own.expect("there are as many keys as the maker says");
            *part.start += own.len();
            (row, *part.start - own.len(), offsets, own)
        });
        let jobs = Mutex::new(jobs);
        let next = || jobs.lock().unwrap_or_else(PoisonError::into_inner).next();
        let sorted = crew::run(&mut members, on_done, |scratch, tell| {
            let mut keys = Vec::new();
            while let Some((row, start, offsets, rests)) = next() {
                keys.clear();
                by_row.iter().for_each(|own| own.read(row, &mut keys));
                let lists = side_by_side(&keys);
                let sort = SortRow {
                    order,
                    keys: &lists,
                    offsets,
                    start,
                    rests,
                    scratch,
                };
                dispatch(kernel, sort);
                if tell.done(0).is_break() {
                    break;
                }
            }
        });
        done(sorted)
    }

    /// Gives all memory of the rows back.
    fn give_back(&mut self) {
        for member in &mut self.members {
            member.by_row.give_back(&mut self.spare);
        }
    }
}

/// The first list with one from the middle, and so on.
fn side_by_side<'a>(lists: &[&'a [u64]]) -> Vec<Lists<'a>> {
    let (first, second) = lists.split_at(lists.len().div_ceil(2));
    let second = second.iter().copied().chain(std::iter::repeat(&[][..]));
    first.iter().copied().zip(second).collect()
}

/// Without what the members return.
fn done(results: ControlFlow<(), Vec<()>>) -> ControlFlow<()> {
    match results {
        ControlFlow::Continue(_) => ControlFlow::Continue(()),
        ControlFlow::Break(()) => ControlFlow::Break(()),
    }
}

/// A list sorted by cell.
#[derive(Debug, Default)]
pub(super) struct Grid<W> {
    /// Cell c holds the rests `offsets[c]..offsets[c + 1]`.
    offsets: Vec<u32>,
    /// All rests by cell, then [`SLACK`] more.
    rests: Vec<W>,
}

impl<W: Rest> Grid<W> {
    /// Sorts `keys`, at most `u32::MAX` of them, into cells.
    #[inline(always)]
    pub(super) fn fill<L: Lanes>(
        &mut self,
        order: (Order, &ByteTables),
        keys: &[u64],
        scratch: &mut Scratch,
    ) {
        let to = self.room(order.0, keys.len());
        sort::sort::<L, W>(order, keys, to, scratch);
    }

    /// Room for the offsets of all cells and for so many rests.
    fn room(&mut self, order: Order, keys: usize) -> (&mut [u32], &mut [W]) {
        self.offsets.resize(order.cells() + 1, 0);
        if self.rests.len() < keys + SLACK {
            // Not twice as much as is needed, and nothing to copy.
            self.rests.clear();
            self.rests.reserve_exact(keys + SLACK);
            self.rests.resize(keys + SLACK, W::default());
        }
        (&mut self.offsets, &mut self.rests)
    }

    /// Sorts the keys that `maker` makes, at most `u32::MAX` of them, into cells, in so many rounds: all
    /// keys are made in each, but only those of some rows are held while these are sorted. `Break` when
    /// `on_done`, which is called now and then, breaks: the grid is empty then.
    pub(super) fn fill_made(
        &mut self,
        kernel: Kernel,
        order: (Order, &ByteTables),
        (maker, rounds): (&dyn KeyMaker, usize),
        sorting: &mut Sorting,
        on_done: OnDone<'_>,
    ) -> ControlFlow<()> {
        let Rows { numbers, columns } = dispatch(kernel, FindRows(order));
        let (mut offsets, mut rests) = self.room(order.0, maker.keys());
        let ends = sorting.divide(kernel, order, &numbers, maker, rounds);
        let (mut is_wanted, mut start) = (vec![false; numbers.len()], 0);
        let all = ends.len() == 1;
        let (mut filled, mut first) = (ControlFlow::Continue(()), 0);
        for end in ends {
            let rows = &numbers[first..end];
            first = end;
            is_wanted.fill(false);
            rows.iter().for_each(|&row| is_wanted[row] = true);
            let is_wanted = (!all).then_some(&is_wanted[..]);
            let rows_of = (numbers.len(), is_wanted);
            filled = sorting.scatter(kernel, order, rows_of, maker, on_done);
            if filled.is_continue() {
                let offsets = offsets.split_off_mut(..rows.len() * columns);
                let part = Part {
                    rows,
                    columns,
                    offsets: offsets.expect("some for every row"),
                    start: &mut start,
                    rests: &mut rests,
                };
                filled = sorting.sort_rows(kernel, order, part, on_done);
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
    pub(super) fn clear(&mut self) {
        self.offsets.clear();
    }

    /// The number of keys.
    pub(super) fn len(&self) -> usize {
        self.offsets.last().map_or(0, |&keys| keys as usize)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The row of major pattern `major`, whose minor patterns have `minor_bits` bits: as the grid
    /// was filled.
    #[inline(always)]
    pub(super) fn row(&self, major: usize, minor_bits: u32) -> Row<'_, W> {
        let offsets = &self.offsets[major << minor_bits..=(major + 1) << minor_bits];
        Row::new(&self.rests, offsets)
    }
}
