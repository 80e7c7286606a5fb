//! Sorting a long list into a grid by all threads of a crew: into few cells directly, its keys being made
//! once to be counted and once to be put where they go; into many cells by rows first, then every row on its
//! own.

use std::{
    ops::ControlFlow,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use super::{
    count::{AddUp, CountKeys, EachKey, PutKeys},
    scatter::{self, BlockLength, ByRow, Scatter, Spare},
    sort::{Lists, Scratch, SortRow},
};
use crate::{
    crew::{Crew, OnDone, Tell},
    frames::hjoin::layout::{
        keys::{KeyMaker, Keys, Typical},
        order::Dissection,
    },
    kernel::Kernel,
    simd::{Rest, SharedWords, dispatch},
};

/// What sorting a long list takes beside it.
#[derive(Debug)]
pub(crate) struct Sorting {
    crew: Arc<Crew>,
    spare: Spare,
    /// [`FEW_CELLS`], or none in tests.
    few_cells: usize,
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

/// Cells up to which their counters stay in the second-level cache, and what is written next to a key is
/// still in one when the next key of its cell comes.
const FEW_CELLS: usize = 1 << 17;

impl Sorting {
    /// Whether so many keys are sorted into so many cells without telling rows apart first: only where
    /// all counters take less memory than the keys would by row.
    pub(super) fn are_few(&self, cells: usize, keys: usize) -> bool {
        cells <= self.few_cells && cells * self.members.len() <= keys / 4
    }

    /// Tells rows apart from now on, however few cells there are.
    pub(crate) fn always_by_rows(&mut self) {
        self.few_cells = 0;
    }

    /// By this crew.
    pub(crate) fn new(crew: Arc<Crew>) -> Self {
        let (spare, mut members) = (Spare::default(), Vec::new());
        members.resize_with(crew.size(), Sorter::default);
        Self {
            crew,
            spare,
            few_cells: FEW_CELLS,
            members,
        }
    }
}

/// Some rows of a grid that is being filled.
pub(super) struct RowsToFill<'a, 'b, W> {
    /// Their numbers.
    pub(super) rows: &'a [usize],
    pub(super) columns: usize,
    /// For all their cells.
    pub(super) offsets: &'a mut [u32],
    /// How many keys the rows before them have; becomes how many these have as well.
    pub(super) start: &'a mut usize,
    /// For their keys and those of the rows after them.
    pub(super) rests: &'a mut &'b mut [W],
}

impl Sorting {
    /// Divides the rows, in their order, into parts with about as many keys each; returns where each
    /// ends. Rows for patterns with few bits have many times more keys than others.
    pub(super) fn divide(
        &mut self,
        kernel: Kernel,
        dissection: Dissection<'_>,
        rows: &[usize],
        maker: &dyn KeyMaker,
        parts: usize,
    ) -> Vec<usize> {
        if parts == 1 {
            return vec![rows.len()];
        }
        let Sorter { keys, by_row, .. } = &mut self.members[0];
        let typical = Typical::new(Keys::Made(maker), keys);
        by_row.clear(rows.len(), BlockLength::LEAST);
        let scatter = Scatter {
            dissection,
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

    /// Sorts the keys that `maker` makes into few cells: counts those of every cell, then makes all again
    /// and puts each where those of the cells before it end.
    pub(super) fn count_and_put<W: Rest>(
        &mut self,
        kernel: Kernel,
        dissection: Dissection<'_>,
        maker: &dyn KeyMaker,
        offsets: &mut [u32],
        rests: &mut [W],
        on_done: OnDone<'_>,
    ) -> ControlFlow<()> {
        let parts = self.members.len();
        for member in &mut self.members {
            member.scratch.clear(dissection.order.cells());
        }
        self.by_parts(on_done, |part, keys, scratch, tell| {
            for group in (part..maker.groups()).step_by(parts) {
                keys.clear();
                maker.make(group, keys);
                let count = EachKey {
                    dissection,
                    keys,
                    scratch,
                    visit: CountKeys,
                };
                dispatch(kernel, count);
                tell.done(0)?;
            }
            ControlFlow::Continue(())
        })?;
        let (offsets, end) = offsets.split_at_mut(dissection.order.cells());
        let members = self.members.iter_mut().map(|own| &mut own.scratch);
        let add_up = AddUp {
            dissection,
            members: &mut members.collect::<Vec<_>>(),
            offsets,
        };
        end[0] = dispatch(kernel, add_up);
        let rests = SharedWords::new(rests);
        self.by_parts(on_done, |part, keys, scratch, tell| {
            for group in (part..maker.groups()).step_by(parts) {
                keys.clear();
                maker.make(group, keys);
                let put = EachKey {
                    dissection,
                    keys,
                    scratch,
                    visit: PutKeys(rests),
                };
                dispatch(kernel, put);
                tell.done(0)?;
            }
            ControlFlow::Continue(())
        })
    }

    /// Lets the members do parts of some work, as many as there are members, each with counters of its own:
    /// who does which does not matter, and one who is not there leaves his to the others.
    fn by_parts(
        &mut self,
        on_done: OnDone<'_>,
        work: impl Fn(usize, &mut Vec<u64>, &mut Scratch, &mut Tell<'_>) -> ControlFlow<()> + Sync,
    ) -> ControlFlow<()> {
        let members = self.members.iter_mut();
        let (mut keys, scratch): (Vec<_>, Vec<_>) =
            members.map(|own| (&mut own.keys, &mut own.scratch)).unzip();
        let parts = Mutex::new(scratch.into_iter().enumerate());
        let next = || parts.lock().unwrap_or_else(PoisonError::into_inner).next();
        done(self.crew.run(&mut keys, on_done, |keys, tell| {
            while let Some((part, scratch)) = next() {
                if work(part, keys, scratch, tell).is_break() {
                    break;
                }
            }
        }))
    }

    /// Makes all keys and puts those of rows that are wanted into these.
    pub(super) fn scatter(
        &mut self,
        kernel: Kernel,
        dissection: Dissection<'_>,
        rows: usize,
        is_wanted: Option<&[bool]>,
        maker: &dyn KeyMaker,
        on_done: OnDone<'_>,
    ) -> ControlFlow<()> {
        let block = match is_wanted {
            Some(_) => BlockLength::LEAST,
            None => BlockLength::of(maker.keys(), rows, self.members.len()),
        };
        for member in &mut self.members {
            member.by_row.clear(rows, block);
        }
        let (next, spare) = (AtomicUsize::new(0), &self.spare);
        let scattered = self.crew.run(&mut self.members, on_done, |member, tell| {
            loop {
                let group = next.fetch_add(1, Relaxed);
                if group >= maker.groups() || tell.done(0).is_break() {
                    break;
                }
                member.keys.clear();
                maker.make(group, &mut member.keys);
                let scatter = Scatter {
                    dissection,
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
    pub(super) fn sort_rows<'m, W: Rest>(
        &'m mut self,
        kernel: Kernel,
        dissection: Dissection<'_>,
        part: RowsToFill<'_, '_, W>,
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
        let sorted = self.crew.run(&mut members, on_done, |scratch, tell| {
            let mut keys = Vec::new();
            while let Some((row, start, offsets, rests)) = next() {
                keys.clear();
                by_row.iter().for_each(|own| own.read(row, &mut keys));
                let lists = side_by_side(&keys);
                let sort = SortRow {
                    dissection,
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
    pub(super) fn give_back(&mut self) {
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
