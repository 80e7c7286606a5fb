//! What a tile narrows of its rows at a time: so little that it stays in a second-level cache, and that many
//! threads do not take more memory than they were given, however long the longest rows are.

use std::ops::Range;

use super::gather::{Cut, GridRow, Spans, TILE_BITS};
use crate::simd::Rest;

/// Rows of a grid that are narrowed together, or a part of a single one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Portion {
    pub(crate) rows: Range<usize>,
    /// Of each row.
    pub(crate) spans: Spans,
    /// They have no more keys together.
    pub(crate) keys: usize,
}

/// The most keys that are narrowed at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MostKeys {
    /// Of one row, unless a single span has more.
    pub(crate) row: usize,
    /// Of all rows of a portion together; no less.
    pub(crate) all: usize,
}

/// Rows of a grid, a portion at a time.
pub(crate) struct Portions<'a, W> {
    all: &'a [GridRow<'a, W>],
    /// The high pattern that is not wanted.
    exclude: usize,
    most: MostKeys,
    /// Those that are left,
    rows: Range<usize>,
    /// and what is left of the first of them, if a part of it was taken.
    spans: Option<Spans>,
}

impl<'a, W: Rest> Portions<'a, W> {
    /// Those of a tile's rows, where minor patterns have `minor_bits` bits: what has no bit in common with
    /// the high pattern `exclude`.
    #[inline(always)]
    pub(crate) fn new(
        all: &'a [GridRow<'a, W>],
        exclude: usize,
        most: MostKeys,
        rows: Range<usize>,
    ) -> Self {
        Self {
            all,
            exclude,
            most,
            rows,
            spans: None,
        }
    }

    #[inline(always)]
    fn row(&self, at: usize) -> GridRow<'a, W> {
        self.all[at]
    }

    /// The first of many keys: whole rows, or a part of one.
    #[cold]
    fn first_of_many(&mut self, all: Spans) -> Portion {
        let Range { start, end } = self.rows;
        if self.spans.is_none() {
            let (mut keys, mut to) = (0, start);
            while to < end {
                let more = self.row(to).keys_of(all);
                if more > self.most.row || keys + more > self.most.all {
                    break;
                }
                keys += more;
                to += 1;
            }
            if to > start {
                self.rows.start = to;
                return Portion {
                    rows: start..to,
                    spans: all,
                    keys,
                };
            }
        }
        let left = self.spans.take().unwrap_or(all);
        let Cut {
            first,
            keys,
            others,
        } = self.row(start).cut(left, self.most.row);
        if others.is_none() {
            self.rows.start += 1;
        }
        self.spans = others;
        Portion {
            rows: start..start + 1,
            spans: first,
            keys,
        }
    }
}

impl<W: Rest> Iterator for Portions<'_, W> {
    type Item = Portion;

    #[inline(always)]
    fn next(&mut self) -> Option<Portion> {
        if self.rows.is_empty() {
            return None;
        }
        let all = self.row(self.rows.start).wanted(self.exclude, TILE_BITS);
        if self.spans.is_none() {
            // Which of them are wanted takes longer to find out.
            let (mut keys, mut longest) = (0, 0);
            for at in self.rows.clone() {
                let row = self.row(at).len();
                (keys, longest) = (keys + row, longest.max(row));
            }
            if longest <= self.most.row && keys <= self.most.all {
                let rows = self.rows.clone();
                self.rows.start = self.rows.end;
                return Some(Portion {
                    rows,
                    spans: all,
                    keys,
                });
            }
        }
        Some(self.first_of_many(all))
    }
}
