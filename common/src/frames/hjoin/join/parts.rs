//! The parts of both halves, and joining one of each.

use std::{ops::ControlFlow, sync::Arc};

use super::{
    progress::OnProgress,
    sparse::{Sparse, SparseJoin, SparsePairs, SparseRows},
    walk::{Gathered, Narrowing, Walk, WalkTiles},
};
use crate::{
    crew::Crew,
    frames::hjoin::{
        grid::{cells::Grid, sort::Scratch, sorting::Sorting},
        layout::{
            keys::Keys,
            order::Dissection,
            roles::{KeyLayout, Side},
            x3::Limits,
        },
        leaf::sliced::Tables,
    },
    kernel::Kernel,
    setup::CountError,
    simd::{Rest, Set, Work, dispatch},
};

/// One of the two lists that a half of a frame is divided into, each weighted on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Half boards whose row set lies strictly inside its bounds: nearly all of them, kept in a
    /// grid.
    Inner,
    /// Half boards whose row set lies on a bound: few, or none, kept in a plain list.
    Bound,
}

impl Part {
    /// So many keys that going through them once for every row of a grid takes a fraction of a
    /// second; a longer list belongs into a grid, whatever it is of.
    pub const MOST_BOUND_KEYS: usize = 1 << 16;
}

/// By how many times fewer pairs a key-by-key join is worth several threads than one of two grids: a short
/// list is gone through once for every row of the grid.
const SPARSE_FACTOR: usize = 1 << 5;

#[derive(Debug)]
pub(crate) struct Buffers<W> {
    kernel: Kernel,
    crew: Arc<Crew>,
    /// The inner parts, by side.
    grids: [Grid<W>; 2],
    /// The parts on a bound, by side.
    bounds: [Sparse<W>; 2],
    members: Vec<Member<W>>,
}

/// What sorting a list takes beside it.
#[derive(Debug)]
pub(crate) struct SortMemory {
    /// In how many rounds long lists are sorted.
    pub(crate) rounds: usize,
    /// For lists that are held.
    pub(crate) scratch: Scratch,
    /// For those that are not.
    pub(crate) sorting: Sorting,
}

/// From where on joins get more care.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JoinLimits {
    /// From where on leaves are banded.
    pub(crate) bands: Limits,
    /// Pairs of keys up to which one thread joins.
    pub(crate) pairs_of_one: usize,
    /// Bits of a pattern beside those of a tile from which on rows are shortened.
    pub(crate) least_far_bits: u32,
}

/// What is to be joined, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToJoin {
    /// Of the top and of the bottom half.
    pub(crate) parts: (Part, Part),
    pub(crate) layout: KeyLayout,
    pub(crate) limits: JoinLimits,
    /// Bytes of a row that a thread gathers at a time, unless a few cells take more.
    pub(crate) row_bytes: usize,
    /// Bytes of a tile's rows of one grid that a thread narrows at a time for several tiles; none if 0.
    pub(crate) short_bytes: usize,
}

/// What each thread needs.
#[derive(Debug, Default)]
struct Member<W> {
    gathered: Box<Gathered<W>>,
    tables: Tables,
}

impl<W: Rest> Buffers<W> {
    pub(crate) fn new(kernel: Kernel, crew: Arc<Crew>) -> Self {
        let mut members = Vec::new();
        members.resize_with(crew.size(), Member::default);
        Self {
            kernel,
            crew,
            grids: Default::default(),
            bounds: Default::default(),
            members,
        }
    }

    pub(crate) fn clear(&mut self) {
        self.grids.iter_mut().for_each(Grid::clear);
        self.bounds.iter_mut().for_each(Sparse::clear);
    }

    pub(crate) fn set(
        &mut self,
        side: Side,
        part: Part,
        dissection: Dissection<'_>,
        keys: Keys<'_>,
        memory: &mut SortMemory,
        progress: OnProgress<'_>,
    ) -> ControlFlow<()> {
        let kernel = self.kernel;
        let (grid, bound) = (
            &mut self.grids[side as usize],
            &mut self.bounds[side as usize],
        );
        match (part, keys) {
            (Part::Inner, Keys::List(keys)) => {
                let to = Sorted::Grid(grid, &mut memory.scratch);
                dispatch(
                    kernel,
                    Fill {
                        to,
                        dissection,
                        keys,
                    },
                );
            }
            (Part::Inner, Keys::Made(maker)) => {
                let SortMemory {
                    rounds, sorting, ..
                } = memory;
                let on_done = &mut |_| progress(0.0);
                return grid.fill_made(kernel, dissection, maker, *rounds, sorting, on_done);
            }
            (Part::Bound, Keys::List(keys)) => {
                let to = Sorted::Sparse(bound);
                dispatch(
                    kernel,
                    Fill {
                        to,
                        dissection,
                        keys,
                    },
                );
            }
            (Part::Bound, Keys::Made(maker)) => {
                let mut keys = Vec::with_capacity(maker.keys());
                (0..maker.groups()).for_each(|group| maker.make(group, &mut keys));
                let (to, keys) = (Sorted::Sparse(bound), &keys);
                dispatch(
                    kernel,
                    Fill {
                        to,
                        dissection,
                        keys,
                    },
                );
            }
        }
        ControlFlow::Continue(())
    }

    pub(crate) fn join(
        &mut self,
        join: ToJoin,
        progress: OnProgress<'_>,
    ) -> Result<u64, CountError> {
        let kernel = self.kernel;
        let ToJoin {
            parts,
            layout,
            limits,
            row_bytes,
            short_bytes,
        } = join;
        let row_keys = row_bytes / size_of::<W>();
        // As many members as lists of these lengths are worth.
        let worth = |members: usize, top: usize, bottom: usize| {
            let is_short = top.saturating_mul(bottom) <= limits.pairs_of_one;
            if is_short { 1 } else { members }
        };
        let ([top, bottom], [few_tops, few_bottoms]) = (&self.grids, &self.bounds);
        let members = &mut self.members[..];
        let (side, few, many) = match parts {
            (Part::Inner, Part::Inner) if top.is_empty() || bottom.is_empty() => {
                return nothing(progress);
            }
            (Part::Inner, Part::Inner) => {
                let size = worth(members.len(), top.len(), bottom.len());
                let narrowing = Narrowing {
                    most_row: row_keys,
                    most_short: short_bytes / size_of::<W>(),
                    least_far_bits: limits.least_far_bits,
                    members: size,
                };
                let walk = Walk::new(layout, limits.bands, narrowing, top, bottom);
                let steps = walk.steps() as f64;
                let on_done = &mut |done: u64| progress(done as f64 / steps);
                let results = self
                    .crew
                    .run(&mut members[..size], on_done, |member, tell| {
                        let Member { gathered, tables } = member;
                        let walk = &walk;
                        dispatch(
                            kernel,
                            WalkTiles {
                                walk,
                                gathered,
                                tables,
                                tell,
                            },
                        )
                    });
                return sum(results);
            }
            (Part::Bound, Part::Bound) => {
                let (top, bottom) = (few_tops, few_bottoms);
                let join = SparsePairs {
                    top,
                    bottom,
                    progress,
                };
                return dispatch(kernel, join);
            }
            (Part::Bound, Part::Inner) => (Side::Top, few_tops, bottom),
            (Part::Inner, Part::Bound) => (Side::Bottom, few_bottoms, top),
        };
        if few.is_empty() || many.is_empty() {
            return nothing(progress);
        }
        let join = SparseJoin::new(layout, side, few, many, row_keys);
        let steps = f64::from(join.steps());
        let size = worth(members.len(), SPARSE_FACTOR * few.len(), many.len());
        let on_done = &mut |done: u64| progress(done as f64 / steps);
        let results = self
            .crew
            .run(&mut members[..size], on_done, |member, tell| {
                let Member { gathered, tables } = member;
                let (gathered, join) = (&mut gathered.leaf, &join);
                dispatch(
                    kernel,
                    SparseRows {
                        join,
                        gathered,
                        tables,
                        tell,
                    },
                )
            });
        sum(results)
    }
}

/// No pairs at all.
fn nothing(progress: OnProgress<'_>) -> Result<u64, CountError> {
    match progress(1.0) {
        ControlFlow::Continue(()) => Ok(0),
        ControlFlow::Break(()) => Err(CountError::Cancelled),
    }
}

fn sum(results: ControlFlow<(), Vec<Result<u64, CountError>>>) -> Result<u64, CountError> {
    let ControlFlow::Continue(results) = results else {
        return Err(CountError::Cancelled);
    };
    results.into_iter().try_fold(0_u64, |sum, part| {
        sum.checked_add(part?).ok_or(CountError::Overflow)
    })
}

/// Taking the keys of a list apart.
struct Fill<'a, W> {
    to: Sorted<'a, W>,
    dissection: Dissection<'a>,
    keys: &'a [u64],
}

/// Where the keys go.
enum Sorted<'a, W> {
    Grid(&'a mut Grid<W>, &'a mut Scratch),
    Sparse(&'a mut Sparse<W>),
}

impl<W: Rest> Work for Fill<'_, W> {
    type Result = ();

    #[inline(always)]
    fn run<S: Set>(self, _set: S) {
        match self.to {
            Sorted::Grid(grid, scratch) => {
                grid.fill::<S::Bits>(self.dissection, self.keys, scratch)
            }
            Sorted::Sparse(list) => list.fill::<S::Bits>(self.dissection, self.keys),
        }
    }
}
