//! Sorted parts of both halves, and the join of one part of each half.

use std::{
    ops::ControlFlow,
    sync::{Arc, atomic::AtomicU32},
};

use super::{
    grid::{Grid, sort::Scratch, sorting::Sorting},
    interface::{Keys, OnProgress, Part, Side},
    layout::{JoinLimits, KeyLayout, KeySplit},
    leaf::Tables,
    pairs_of,
    sparse::{self, SparseJoin, SparseKey, SparsePairs, SparseRows},
    walk::{Gathered, Walk, WalkTiles},
};
use crate::{
    compute::{
        crew::Crew,
        kernel::Kernel,
        setup::{CountError, go_on, sum},
    },
    simd::{Residual, dispatch},
};

/// Factor by which a key-by-key join needs fewer pairs to use several threads.
///
/// It scans the short list for every row of the grid.
const SPARSE_FACTOR: usize = 1 << 5;

/// Sorted lists of both halves, and the buffers of all threads.
#[derive(Debug)]
pub(crate) struct Buffers<W> {
    kernel: Kernel,
    crew: Arc<Crew>,
    /// Inner parts, by side.
    grids: [Grid<W>; 2],
    /// Parts on a bound, by side.
    bounds: [Vec<SparseKey<W>>; 2],
    members: Vec<Member<W>>,
}

/// Buffers and settings for sorting.
#[derive(Debug)]
pub(crate) struct SortMemory {
    /// Rounds for sorting long lists.
    pub(crate) rounds: usize,
    /// Counters for held lists.
    pub(crate) scratch: Scratch,
    /// Buffers for other lists.
    pub(crate) sorting: Sorting,
}

/// Buffers of one thread.
#[derive(Debug, Default)]
struct Member<W> {
    gathered: Box<Gathered<W>>,
    tables: Tables,
}

impl<W: Residual> Buffers<W> {
    pub(crate) fn new(kernel: Kernel, crew: Arc<Crew>) -> Self {
        let mut members = Vec::new();
        members.resize_with(crew.size(), Member::default);
        Self { kernel, crew, grids: Default::default(), bounds: Default::default(), members }
    }

    pub(crate) fn clear(&mut self) {
        self.grids.iter_mut().for_each(Grid::clear);
        self.bounds.iter_mut().for_each(Vec::clear);
    }

    pub(crate) fn set(
        &mut self,
        side: Side,
        part: Part,
        key_split: KeySplit<'_>,
        keys: Keys<'_>,
        memory: &mut SortMemory,
        progress: OnProgress<'_>,
    ) -> ControlFlow<()> {
        let (grid, bound) = (&mut self.grids[side as usize], &mut self.bounds[side as usize]);
        let SortMemory { rounds, scratch, sorting } = memory;
        match (part, keys) {
            (Part::Inner, Keys::List(keys)) => grid.fill(key_split, keys, scratch),
            (Part::Inner, Keys::Made(maker)) => {
                let on_done = &mut |_| progress(0.0);
                return grid.fill_made(key_split, maker, *rounds, sorting, on_done);
            }
            (Part::Bound, Keys::List(keys)) => sparse::fill(bound, key_split, keys),
            (Part::Bound, Keys::Made(maker)) => {
                let mut keys = Vec::with_capacity(maker.keys());
                (0..maker.groups()).for_each(|group| maker.make(group, &mut keys));
                sparse::fill(bound, key_split, &keys);
            }
        }
        ControlFlow::Continue(())
    }

    /// Joins a part of the top half with one of the bottom half.
    pub(crate) fn join(
        &mut self,
        parts: (Part, Part),
        layout: KeyLayout,
        limits: &JoinLimits,
        progress: OnProgress<'_>,
    ) -> Result<u64, CountError> {
        let kernel = self.kernel;
        // One member joins short lists.
        let members_for = |members: usize, top: usize, bottom: usize| {
            if pairs_of(top, bottom) <= limits.max_pairs_alone { 1 } else { members }
        };
        let ([top, bottom], [few_tops, few_bottoms]) = (&self.grids, &self.bounds);
        let members = &mut self.members[..];
        let (side, few, many) = match parts {
            (Part::Inner, Part::Inner) if top.is_empty() || bottom.is_empty() => {
                return go_on(progress(1.0)).map(|()| 0);
            }
            (Part::Inner, Part::Inner) => {
                let size = members_for(members.len(), top.len(), bottom.len());
                let walk = Walk::new(layout, limits, size, top, bottom);
                let steps = walk.steps() as f64;
                let on_done = &mut |done: u64| progress(done as f64 / steps);
                let results = self.crew.run(&mut members[..size], on_done, |member, reporter| {
                    let Member { gathered, tables } = member;
                    let walk = &walk;
                    dispatch(kernel, WalkTiles { walk, gathered, tables, reporter })
                });
                return sum(results);
            }
            (Part::Bound, Part::Bound) => {
                let (top, bottom) = (few_tops, few_bottoms);
                let join = SparsePairs { top, bottom, progress };
                return dispatch(kernel, join);
            }
            (Part::Bound, Part::Inner) => (Side::Top, few_tops, bottom),
            (Part::Inner, Part::Bound) => (Side::Bottom, few_bottoms, top),
        };
        if few.is_empty() || many.is_empty() {
            return go_on(progress(1.0)).map(|()| 0);
        }
        let (order, row_keys) = (layout.order(side), limits.row_bytes / size_of::<W>());
        let join = SparseJoin { order, few, many, row_keys, next: AtomicU32::new(0) };
        let steps = f64::from(join.steps());
        let size = members_for(members.len(), SPARSE_FACTOR * few.len(), many.len());
        let on_done = &mut |done: u64| progress(done as f64 / steps);
        let results = self.crew.run(&mut members[..size], on_done, |member, reporter| {
            let Member { gathered, tables } = member;
            let (gathered, join) = (&mut gathered.leaf, &join);
            dispatch(kernel, SparseRows { join, gathered, tables, reporter })
        });
        sum(results)
    }
}
