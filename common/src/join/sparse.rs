//! Joining a short list with a grid.
//!
//! The list has far fewer keys than the grid has cells, so it is processed key by key.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::{
    grid::{
        Grid,
        bands::Banded,
        gather::{Buffer, GridRow, SplitSpans},
    },
    interface::{OnProgress, PAIRS_PER_CALL, count_pairs},
    layout::{KeySplit, Order},
    leaf::{Tables, Tally},
    pairs_of,
};
use crate::{
    compute::{
        crew::ProgressReporter,
        setup::{CountError, go_on},
    },
    simd::{Residual, Set, Work, dispatch},
};

/// A key of a short list, which is sorted by major pattern.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SparseKey<W> {
    major: u32,
    minor: u32,
    residual: W,
}

/// Replaces the keys of a short list with `keys`.
pub(crate) fn fill<W: Residual>(
    list: &mut Vec<SparseKey<W>>,
    key_split: KeySplit<'_>,
    keys: &[u64],
) {
    dispatch(key_split.kernel, Split { key_split, keys, to: list });
    list.sort_unstable_by_key(|key| key.major);
}

/// Work that splits the keys of a list.
struct Split<'a, W> {
    key_split: KeySplit<'a>,
    keys: &'a [u64],
    to: &'a mut Vec<SparseKey<W>>,
}

impl<W: Residual> Work for Split<'_, W> {
    type Result = ();

    #[inline(always)]
    fn run<S: Set>(self, _set: S) {
        let Self { key_split, keys, to } = self;
        to.clear();
        to.extend(keys.iter().map(|&key| SparseKey {
            major: pattern(key_split.major::<S::Bits>(key)),
            minor: pattern(key_split.minor::<S::Bits>(key)),
            residual: key_split.residual::<S::Bits, W>(key),
        }));
    }
}

#[expect(clippy::cast_possible_truncation, reason = "patterns have few bits")]
fn pattern(bits: u64) -> u32 {
    bits as u32
}

/// A join of a short list with a grid; members take one row of the grid at a time.
pub(crate) struct SparseJoin<'a, W> {
    /// Order of the short list.
    pub(crate) order: Order,
    pub(crate) few: &'a [SparseKey<W>],
    pub(crate) many: &'a Grid<W>,
    /// Maximum keys of a row gathered at a time.
    pub(crate) row_keys: usize,
    pub(crate) next: AtomicU32,
}

impl<W> SparseJoin<'_, W> {
    /// Returns the number of rows, which is the number of reported steps.
    pub(crate) fn steps(&self) -> u32 {
        1 << self.order.minor_bits
    }
}

/// Work of one member.
pub(crate) struct SparseRows<'a, 'b, W> {
    pub(crate) join: &'a SparseJoin<'a, W>,
    pub(crate) gathered: &'a mut [Buffer<W>; 2],
    pub(crate) tables: &'a mut Tables,
    pub(crate) reporter: &'a mut ProgressReporter<'b>,
}

impl<W: Residual> Work for SparseRows<'_, '_, W> {
    type Result = Result<u64, CountError>;

    /// Visits rows of the grid, each of which has one pattern of X1 (or X2).
    ///
    /// A key of the short list that is disjoint from the pattern is matched with the keys of the
    /// row that are disjoint in X2 (or X1).
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
            if pairs >= PAIRS_PER_CALL {
                go_on(self.reporter.done(visited))?;
                (pairs, visited) = (0, 0);
            }
        }
        go_on(self.reporter.done(visited))?;
        Ok(total)
    }
}

impl<W: Residual> SparseRows<'_, '_, W> {
    /// Counts the disjoint pairs of one row; adds the tested ones to `pairs`.
    #[inline(always)]
    fn row<S: Set>(&mut self, set: S, pattern: u32, row: GridRow<'_, W>, pairs: &mut u64) -> u64 {
        if row.len() == 0 {
            return 0;
        }
        let [short, long] = &mut *self.gathered;
        let mut tally = Tally::<S::Bits>::new();
        for alike in self.join.few.chunk_by(|a, b| a.major == b.major) {
            short.clear(alike.len());
            for key in alike {
                short.push_if(key.residual, key.minor & pattern == 0);
            }
            let probes = short.list();
            if probes.length == 0 {
                continue;
            }
            let mut remaining = Some(row.disjoint(alike[0].major as usize));
            while let Some(spans) = remaining {
                let SplitSpans { first, keys, others } = row.cut(spans, self.join.row_keys);
                remaining = others;
                // SAFETY: the spans belong to this row, and have at most `keys` keys.
                let candidates = unsafe { row.gather_spans(first, keys, long) };
                *pairs += pairs_of(probes.length, candidates.length);
                // SAFETY: gathered lists have the slack that leaves read; the kernel proves the
                // instruction set.
                unsafe {
                    let lists = (Banded::one(probes), Banded::one(candidates));
                    let residual_bits = self.join.order.residual_bits;
                    self.tables.count::<S, W, false>(
                        set,
                        residual_bits,
                        0,
                        lists.0,
                        lists.1,
                        &mut tally,
                    )
                };
            }
        }
        tally.total()
    }
}

/// A join of two short lists, pair by pair.
pub(crate) struct SparsePairs<'a, W> {
    pub(crate) top: &'a [SparseKey<W>],
    pub(crate) bottom: &'a [SparseKey<W>],
    pub(crate) progress: OnProgress<'a>,
}

impl<W: Residual> Work for SparsePairs<'_, W> {
    type Result = Result<u64, CountError>;

    #[inline(always)]
    fn run<S: Set>(self, _set: S) -> Result<u64, CountError> {
        let disjoint = |u: &SparseKey<W>, v: &SparseKey<W>| {
            // X1 is the major pattern of one key and the minor pattern of the other.
            (u.major & v.minor) | (u.minor & v.major) == 0
                && u.residual.bits() & v.residual.bits() == 0
        };
        count_pairs(self.top, self.bottom, disjoint, self.progress)
    }
}
