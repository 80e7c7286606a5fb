//! Rows filtered in portions for one tile, and prefiltered for several tiles.
//!
//! Long rows have thousands of cells with few keys each, and filtering spends most of its time
//! going from cell to cell. Such rows are therefore prefiltered by the high bits of the patterns, once
//! per stretch of tiles. Portions stay in the second-level cache and bound the memory per thread,
//! however long the rows are.

use std::ops::Range;

use super::gather::{Buffer, GridRow, Spans, SplitSpans, TILE, TILE_BITS};
use crate::simd::Residual;

/// Rows of one grid prefiltered for a stretch of tiles.
#[derive(Debug, Default)]
pub(crate) struct PrefilteredRows<W> {
    keys: Buffer<W>,
    /// Start of each row's keys.
    starts: [usize; TILE],
    /// Starts of each row's cells, relative to that, and the end.
    offsets: Vec<u32>,
    cells: usize,
}

impl<W: Residual> PrefilteredRows<W> {
    /// Takes the keys of up to [`TILE`] rows that a stretch of tiles needs.
    ///
    /// Their pattern above `low_bits` bits is disjoint from `exclude`. Takes nothing and returns
    /// false if there are more than `most` keys.
    #[inline(always)]
    pub(crate) fn fill(
        &mut self,
        rows: &[GridRow<'_, W>],
        exclude: usize,
        low_bits: u32,
        most: usize,
    ) -> bool {
        let Some(first) = rows.first() else {
            return false;
        };
        let spans = first.wanted(exclude, low_bits);
        // An upper bound, because counting the wanted keys takes longer.
        let mut keys = rows.iter().map(|row| row.len()).sum();
        if keys > most {
            keys = rows.iter().map(|row| row.keys_of(spans)).sum();
        }
        if keys > most {
            return false;
        }
        self.cells = spans.cells();
        self.keys.clear(keys);
        self.offsets.resize(rows.len() * (self.cells + 1), 0);
        let offsets = self.offsets.chunks_exact_mut(self.cells + 1);
        for ((row, start), offsets) in rows.iter().zip(&mut self.starts).zip(offsets) {
            *start = self.keys.len();
            // SAFETY: rows have equally many cells, so each has these spans; there is room for all keys.
            unsafe { row.filter_spans(spans, offsets, &mut self.keys) };
        }
        true
    }

    /// Returns row `at`; its cells are numbered by the lowest bits of their patterns.
    #[inline(always)]
    pub(crate) fn row(&self, at: usize) -> GridRow<'_, W> {
        let offsets = &self.offsets[at * (self.cells + 1)..][..=self.cells];
        GridRow::new(self.keys.residuals_from(self.starts[at]), offsets)
    }
}

/// Rows that are filtered together, or part of a single one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Portion {
    pub(crate) rows: Range<usize>,
    pub(crate) spans: Spans,
    /// Upper bound on the keys of all rows.
    pub(crate) keys: usize,
}

/// Maximum number of keys filtered at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MaxKeys {
    /// Maximum of one row, unless a single span has more.
    pub(crate) row: usize,
    /// Maximum of all rows of a portion; at least `row`.
    pub(crate) all: usize,
}

/// Iterator over rows of a grid in portions.
pub(crate) struct Portions<'a, W> {
    all: &'a [GridRow<'a, W>],
    /// High pattern to exclude.
    exclude: usize,
    most: MaxKeys,
    rows: Range<usize>,
    /// Remaining spans of the first row, if part of the row was taken.
    spans: Option<Spans>,
}

impl<'a, W: Residual> Portions<'a, W> {
    /// Creates the portions of a tile's rows without the high pattern `exclude`.
    #[inline(always)]
    pub(crate) fn new(
        all: &'a [GridRow<'a, W>],
        exclude: usize,
        most: MaxKeys,
        rows: Range<usize>,
    ) -> Self {
        Self { all, exclude, most, rows, spans: None }
    }

    /// Returns the next portion if limits are exceeded: whole rows, or part of one.
    #[cold]
    fn next_within_limits(&mut self, all: Spans) -> Portion {
        let Range { start, end } = self.rows;
        if self.spans.is_none() {
            let (mut keys, mut to) = (0, start);
            while to < end {
                let more = self.all[to].keys_of(all);
                if more > self.most.row || keys + more > self.most.all {
                    break;
                }
                keys += more;
                to += 1;
            }
            if to > start {
                self.rows.start = to;
                return Portion { rows: start..to, spans: all, keys };
            }
        }
        let remaining = self.spans.take().unwrap_or(all);
        let SplitSpans { first, keys, others } = self.all[start].cut(remaining, self.most.row);
        if others.is_none() {
            self.rows.start += 1;
        }
        self.spans = others;
        Portion { rows: start..start + 1, spans: first, keys }
    }
}

impl<W: Residual> Iterator for Portions<'_, W> {
    type Item = Portion;

    #[inline(always)]
    fn next(&mut self) -> Option<Portion> {
        if self.rows.is_empty() {
            return None;
        }
        let all = self.all[self.rows.start].wanted(self.exclude, TILE_BITS);
        if self.spans.is_none() {
            // An upper bound, because counting the wanted keys takes longer.
            let (mut keys, mut longest) = (0, 0);
            for at in self.rows.clone() {
                let row = self.all[at].len();
                (keys, longest) = (keys + row, longest.max(row));
            }
            if longest <= self.most.row && keys <= self.most.all {
                let rows = self.rows.clone();
                self.rows.start = self.rows.end;
                return Some(Portion { rows, spans: all, keys });
            }
        }
        Some(self.next_within_limits(all))
    }
}
