//! Sorting a long list into a grid with all threads of a crew.
//!
//! If there are few cells, keys are sorted directly: made once to be counted and again to be
//! written. If there are many, keys are sorted by rows first, then row by row.

use std::{
    ops::ControlFlow,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use super::{
    scatter::{self, BlockLength, ByRow, ChunkPool, Scatter},
    sort::{CountOrPut, ListPair, Places, Scratch, Sort, add_up},
};
use crate::{
    compute::crew::{Crew, OnDone},
    join::{
        interface::{KeyMaker, KeySample, Keys},
        layout::KeySplit,
    },
    simd::{Residual, SharedWords, dispatch},
};

/// Buffers for sorting a long list.
#[derive(Debug)]
pub(crate) struct Sorting {
    crew: Arc<Crew>,
    spare: ChunkPool,
    /// [`FEW_CELLS`], or 0 to always sort by rows first.
    few_cells: usize,
    /// One per thread.
    members: Vec<Sorter>,
}

#[derive(Debug, Default)]
struct Sorter {
    /// Keys of the current group.
    keys: Vec<u64>,
    by_row: ByRow,
    scratch: Scratch,
}

/// Maximum cells whose counters and next written lines stay in a cache.
const FEW_CELLS: usize = 1 << 17;

impl Sorting {
    /// Returns whether keys are sorted directly into cells, not by row first.
    ///
    /// All counters then take less memory than the keys by row.
    pub(super) fn has_few_cells(&self, cells: usize, keys: usize) -> bool {
        cells <= self.few_cells && cells * self.members.len() <= keys / 4
    }

    /// Sorts by rows first from now on.
    pub(crate) fn always_by_rows(&mut self) {
        self.few_cells = 0;
    }

    pub(crate) fn new(crew: Arc<Crew>) -> Self {
        let (spare, mut members) = (ChunkPool::default(), Vec::new());
        members.resize_with(crew.size(), Sorter::default);
        Self { crew, spare, few_cells: FEW_CELLS, members }
    }
}

/// Rows of a grid that is being filled.
pub(super) struct RowsToFill<'a, 'b, W> {
    pub(super) rows: &'a [usize],
    pub(super) columns: Places,
    /// Offsets of all cells of these rows.
    pub(super) offsets: &'a mut [u32],
    /// Number of keys in earlier rows; updated.
    pub(super) start: &'a mut usize,
    /// Room for the keys of these and later rows.
    pub(super) residuals: &'a mut &'b mut [W],
}

impl Sorting {
    /// Divides rows into parts with about equal numbers of keys; returns their ends.
    ///
    /// Rows for patterns with few bits have many more keys than others.
    pub(super) fn divide(
        &mut self,
        key_split: KeySplit<'_>,
        rows: &[usize],
        maker: &dyn KeyMaker,
        parts: usize,
    ) -> Vec<usize> {
        if parts == 1 {
            return vec![rows.len()];
        }
        let Sorter { keys, by_row, .. } = &mut self.members[0];
        let typical = KeySample::new(Keys::Made(maker), keys);
        by_row.clear(rows.len(), BlockLength::MIN);
        let scatter = Scatter {
            key_split,
            is_wanted: None,
            is_long: false,
            keys: typical.keys,
            to: by_row,
            spare: &self.spare,
        };
        dispatch(key_split.kernel, scatter);
        let total = typical.keys.len();
        let (mut ends, mut before) = (Vec::new(), 0);
        for (at, &row) in rows.iter().enumerate() {
            before += by_row.length(row);
            if before * parts > total * (ends.len() + 1) {
                ends.push(at + 1);
            }
        }
        ends.truncate(parts - 1);
        ends.push(rows.len());
        self.recycle();
        ends
    }

    /// Sorts the keys from `maker` into few cells.
    ///
    /// Counts them per cell, then makes them again and writes each to its position.
    pub(super) fn count_and_put<W: Residual>(
        &mut self,
        key_split: KeySplit<'_>,
        maker: &dyn KeyMaker,
        offsets: &mut [u32],
        residuals: &mut [W],
        on_done: OnDone<'_>,
    ) -> ControlFlow<()> {
        let places = Places::cells(key_split);
        let (offsets, end) = offsets.split_at_mut(places.len());
        for member in &mut self.members {
            member.scratch.cleared(places.len());
        }
        self.count_or_put::<W>(key_split, maker, None, on_done)?;
        let counters = self.members.iter_mut().map(|own| &mut own.scratch.counters[..]);
        end[0] = add_up(&mut counters.collect::<Vec<_>>(), places, offsets, 0);
        let residuals = Some(SharedWords::new(residuals));
        self.count_or_put(key_split, maker, residuals, on_done)
    }

    /// Makes all keys and counts or writes them, in parts with their own counters.
    fn count_or_put<W: Residual>(
        &mut self,
        key_split: KeySplit<'_>,
        maker: &dyn KeyMaker,
        residuals: Option<SharedWords<'_, W>>,
        on_done: OnDone<'_>,
    ) -> ControlFlow<()> {
        let number = self.members.len();
        let parts = self.members.iter_mut().enumerate();
        self.crew.share(parts, on_done, |(part, Sorter { keys, scratch, .. }), reporter| {
            for group in (part..maker.groups()).step_by(number) {
                keys.clear();
                maker.make(group, keys);
                dispatch(key_split.kernel, CountOrPut { key_split, keys, scratch, residuals });
                reporter.done(0)?;
            }
            ControlFlow::Continue(())
        })
    }

    /// Makes all keys and collects those of the wanted rows.
    pub(super) fn scatter(
        &mut self,
        key_split: KeySplit<'_>,
        rows: usize,
        is_wanted: Option<&[bool]>,
        maker: &dyn KeyMaker,
        on_done: OnDone<'_>,
    ) -> ControlFlow<()> {
        let block = match is_wanted {
            Some(_) => BlockLength::MIN,
            None => BlockLength::of(maker.keys(), rows, self.members.len()),
        };
        for member in &mut self.members {
            member.by_row.clear(rows, block);
        }
        let (next, spare) = (AtomicUsize::new(0), &self.spare);
        let scattered = self.crew.run(&mut self.members, on_done, |member, reporter| {
            loop {
                let group = next.fetch_add(1, Relaxed);
                if group >= maker.groups() || reporter.done(0).is_break() {
                    break;
                }
                member.keys.clear();
                maker.make(group, &mut member.keys);
                let scatter = Scatter {
                    key_split,
                    is_wanted,
                    is_long: maker.keys() >= scatter::LONG,
                    keys: &member.keys,
                    to: &mut member.by_row,
                    spare,
                };
                dispatch(key_split.kernel, scatter);
            }
        });
        scattered.map_continue(drop)
    }

    pub(super) fn sort_rows<'m, W: Residual>(
        &'m mut self,
        key_split: KeySplit<'_>,
        part: RowsToFill<'_, '_, W>,
        on_done: OnDone<'_>,
    ) -> ControlFlow<()> {
        let split = |member: &'m mut Sorter| (&member.by_row, &mut member.scratch);
        let (by_row, mut members): (Vec<&ByRow>, Vec<_>) =
            self.members.iter_mut().map(split).unzip();
        let length = |row| by_row.iter().map(|own| own.length(row)).sum::<usize>();
        let jobs = part.rows.iter().zip(part.offsets.chunks_exact_mut(part.columns.len()));
        let jobs = jobs.map(|(&row, offsets)| {
            let own = part.residuals.split_off_mut(..length(row));
            let own = own.expect("the maker reports the number of keys");
            *part.start += own.len();
            (row, *part.start - own.len(), offsets, own)
        });
        let jobs = Mutex::new(jobs);
        let next = || jobs.lock().unwrap_or_else(PoisonError::into_inner).next();
        let sorted = self.crew.run(&mut members, on_done, |scratch, reporter| {
            let mut keys = Vec::new();
            while let Some((row, start, offsets, residuals)) = next() {
                keys.clear();
                by_row.iter().for_each(|own| own.read(row, &mut keys));
                let (places, keys) = (part.columns, &side_by_side(&keys)[..]);
                let fetches = true;
                let sort =
                    Sort { key_split, places, keys, offsets, start, residuals, fetches, scratch };
                dispatch(key_split.kernel, sort);
                if reporter.done(0).is_break() {
                    break;
                }
            }
        });
        sorted.map_continue(drop)
    }

    /// Keeps the memory of all rows for the next list.
    pub(super) fn recycle(&mut self) {
        for member in &mut self.members {
            member.by_row.recycle(&mut self.spare);
        }
    }
}

/// Pairs each list of the first half with one of the second.
fn side_by_side<'a>(lists: &[&'a [u64]]) -> Vec<ListPair<'a>> {
    let (first, second) = lists.split_at(lists.len().div_ceil(2));
    let second = second.iter().copied().chain(std::iter::repeat(&[][..]));
    first.iter().copied().zip(second).collect()
}
