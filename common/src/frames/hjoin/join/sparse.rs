//! Joining a short list with a long one: the short list has far fewer keys than the grid has cells,
//! so that its keys are gone through one by one instead of cell by cell.
//!
//! The mathematics: `docs/method.md`, “Every disjoint pair in exactly one leaf”.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::progress::{OnProgress, PAIRS_A_CALL};
use crate::{
    crew::Tell,
    frames::hjoin::{
        grid::{
            bands::Banded,
            cells::Grid,
            gather::{Buffer, Cut, GridRow},
            sort::Apart,
        },
        layout::{
            order::{Dissection, Order},
            roles::{KeyLayout, Side},
        },
        leaf::sliced::{Tables, Tally},
    },
    setup::CountError,
    simd::{Lanes, Rest, Set, Work},
};

/// A short list: its keys, taken apart and sorted by their major patterns.
#[derive(Debug, Default)]
pub(crate) struct Sparse<W> {
    keys: Vec<SparseKey<W>>,
}

/// A key, taken apart.
#[derive(Clone, Copy, Debug)]
struct SparseKey<W> {
    major: u32,
    minor: u32,
    rest: W,
}

impl<W: Rest> Sparse<W> {
    /// The number of keys.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Forgets the keys.
    pub(crate) fn clear(&mut self) {
        self.keys.clear();
    }

    #[inline(always)]
    pub(crate) fn fill<L: Lanes>(&mut self, dissection: Dissection<'_>, keys: &[u64]) {
        let apart = Apart::new::<L>(dissection);
        self.keys.clear();
        self.keys.extend(keys.iter().map(|&key| SparseKey {
            major: pattern(apart.major::<L>(key)),
            minor: pattern(apart.minor::<L>(key)),
            rest: apart.rest::<L, W>(key),
        }));
        self.keys.sort_unstable_by_key(|key| key.major);
    }
}

#[expect(clippy::cast_possible_truncation, reason = "patterns have few bits")]
fn pattern(bits: u64) -> u32 {
    bits as u32
}

/// A join of a short list of one half with the grid of the other, whose members take one row of the
/// grid after the other.
pub(crate) struct SparseJoin<'a, W> {
    layout: KeyLayout,
    order: Order,
    few: &'a Sparse<W>,
    many: &'a Grid<W>,
    /// The most keys of a row to gather at a time.
    row_keys: usize,
    /// The next row.
    next: AtomicU32,
}

impl<'a, W: Rest> SparseJoin<'a, W> {
    /// The short list is of the half `side`.
    pub(crate) fn new(
        layout: KeyLayout,
        side: Side,
        few: &'a Sparse<W>,
        many: &'a Grid<W>,
        row_keys: usize,
    ) -> Self {
        let (order, next) = (layout.order(side), AtomicU32::new(0));
        Self {
            layout,
            order,
            few,
            many,
            row_keys,
            next,
        }
    }

    /// How many rows there are to go through: so many steps are told.
    pub(crate) fn steps(&self) -> u32 {
        1 << self.order.minor_bits
    }
}

/// What one member does of such a join.
pub(crate) struct SparseRows<'a, 'b, W> {
    pub(crate) join: &'a SparseJoin<'a, W>,
    pub(crate) gathered: &'a mut [Buffer<W>; 2],
    pub(crate) tables: &'a mut Tables,
    pub(crate) tell: &'a mut Tell<'b>,
}

impl<W: Rest> Work for SparseRows<'_, '_, W> {
    type Result = Result<u64, CountError>;

    /// Goes through rows of the grid, which have one X1 (or X2) each: a key of the short list that has
    /// no bit in common with it there is matched with those keys of the row that have no bit in common
    /// with it in X2 (or X1).
    #[inline(always)]
    fn run<S: Set>(mut self, set: S) -> Result<u64, CountError> {
        let SparseJoin { order, many, .. } = self.join;
        let (mut total, mut pairs, mut visited) = (0_u64, 0, 0);
        loop {
            let pattern = self.join.next.fetch_add(1, Relaxed);
            if pattern >= self.join.steps() {
                break;
            }
            let row = many.row(pattern as usize, order.major_bits);
            let count = self.row(set, pattern, row, &mut pairs);
            total = total.checked_add(count).ok_or(CountError::Overflow)?;
            visited += 1;
            if pairs >= PAIRS_A_CALL {
                if self.tell.done(visited).is_break() {
                    return Err(CountError::Cancelled);
                }
                (pairs, visited) = (0, 0);
            }
        }
        if self.tell.done(visited).is_break() {
            return Err(CountError::Cancelled);
        }
        Ok(total)
    }
}

impl<W: Rest> SparseRows<'_, '_, W> {
    /// The disjoint pairs of one row; adds the pairs tested to `pairs`.
    #[inline(always)]
    fn row<S: Set>(&mut self, set: S, pattern: u32, row: GridRow<'_, W>, pairs: &mut usize) -> u64 {
        if row.len() == 0 {
            return 0;
        }
        let [short, long] = &mut *self.gathered;
        let mut tally = Tally::<S::Bits>::new();
        for alike in self.join.few.keys.chunk_by(|a, b| a.major == b.major) {
            short.clear(alike.len());
            for key in alike {
                short.push_if(key.rest, key.minor & pattern == 0);
            }
            let probes = short.list();
            if probes.length == 0 {
                continue;
            }
            let mut left = Some(row.disjoint(alike[0].major as usize));
            while let Some(spans) = left {
                let Cut {
                    first,
                    keys,
                    others,
                } = row.cut(spans, self.join.row_keys);
                left = others;
                // SAFETY: these are spans of this row, and have no more keys.
                let candidates = unsafe { row.gather_spans(first, keys, long) };
                *pairs += probes.length * candidates.length;
                // SAFETY: gathered lists have the slack that leaves read; the instruction set is
                // there, since the kernel got us here.
                unsafe {
                    let lists = (Banded::one(probes), Banded::one(candidates));
                    let rest_bits = self.join.layout.rest_bits();
                    self.tables
                        .count::<S, W, false>(set, rest_bits, 0, lists.0, lists.1, &mut tally)
                };
            }
        }
        tally.total()
    }
}

/// Keys of the top half between two calls of [`OnProgress`] where every pair is looked at.
const TOPS_A_CALL: usize = 1 << 10;

/// A join of two short lists, pair by pair.
pub(crate) struct SparsePairs<'a, W> {
    pub(crate) top: &'a Sparse<W>,
    pub(crate) bottom: &'a Sparse<W>,
    pub(crate) progress: OnProgress<'a>,
}

impl<W: Rest> Work for SparsePairs<'_, W> {
    type Result = Result<u64, CountError>;

    #[inline(always)]
    fn run<S: Set>(self, _set: S) -> Result<u64, CountError> {
        let disjoint = |u: &SparseKey<W>, v: &SparseKey<W>| {
            // X1 is the major pattern of one and the minor one of the other.
            (u.major & v.minor) | (u.minor & v.major) == 0 && u.rest.bits() & v.rest.bits() == 0
        };
        let mut count = 0;
        for tops in self.top.keys.chunks(TOPS_A_CALL) {
            for u in tops {
                let below = self.bottom.keys.iter().filter(|v| disjoint(u, v));
                count += below.count() as u64;
            }
            let done = tops.len() as f64 / self.top.keys.len() as f64;
            if (self.progress)(done).is_break() {
                return Err(CountError::Cancelled);
            }
        }
        if self.top.keys.is_empty() && (self.progress)(1.0).is_break() {
            return Err(CountError::Cancelled);
        }
        Ok(count)
    }
}
