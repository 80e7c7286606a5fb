//! Bands: the lists of a leaf sorted by X3, the bits that rule out most pairs.
//!
//! Keys that conflict with a probe in X3 are mostly adjacent, so whole blocks are skipped, and X3
//! needs no tables.
//!
//! The rows of a tile are sorted when they are filtered, once for all leaves of the tile. In small
//! leaves this costs more than it saves, so only tiles with large leaves use X3.

use super::{
    gather::{Buffer, GridRow, List, Spans, TILE},
    sort::offset,
};
use crate::{
    join::layout::{MAX_X3_BITS, X3Places},
    simd::{Lanes, PartitionBlock, Residual},
};

/// Maximum number of bands of a list: one per pattern of X3.
pub(crate) const MAX_BANDS: usize = 1 << MAX_X3_BITS;

/// Band order per number of X3 bits; compatible patterns are mostly adjacent.
const ORDERS: [[u8; MAX_BANDS]; MAX_X3_BITS + 1] =
    [[0; MAX_BANDS], [0, 1, 0, 0, 0, 0, 0, 0], [1, 0, 2, 3, 0, 0, 0, 0], [5, 1, 3, 2, 0, 4, 6, 7]];

/// A row of a grid filtered for a tile, band by band.
#[derive(Clone, Copy)]
pub(crate) struct BandedRow<'a, W> {
    /// The only band, or the one without bits of X3.
    first: GridRow<'a, W>,
    others: Option<(&'a Bands, &'a Buffer<W>)>,
    x3_bits: usize,
}

/// Rows of a grid filtered for a tile: one after the other, each band by band.
#[derive(Debug, Default)]
pub(crate) struct FilteredRows<W> {
    keys: Buffer<W>,
    rows: [Bands; TILE],
}

/// Positions of a row's bands, by pattern.
#[derive(Debug, Default)]
struct Bands {
    starts: [usize; MAX_BANDS],
    /// Starts of the cells of each band relative to its start, and the end.
    offsets: [[u32; TILE + 1]; MAX_BANDS],
}

/// Buffers for dividing a row.
#[derive(Debug, Default)]
pub(crate) struct PartitionBuffers<W> {
    /// Per 16 keys: number of earlier keys with the bit, and which of the 16 have it.
    marks: Vec<(u32, u16)>,
    /// Keys that have the bit.
    with: Buffer<W>,
}

/// Number of keys divided at a time.
const AT_A_TIME: usize = 16;

impl<W: Residual> FilteredRows<W> {
    /// Removes all rows and makes room for `keys` keys.
    #[inline(always)]
    pub(crate) fn clear(&mut self, keys: usize) {
        self.keys.clear(keys);
    }

    /// Adds spans of a row as row number `at`, sorted by these bits of X3.
    ///
    /// A single span stays in place if no bits are given.
    ///
    /// # Safety
    /// The spans belong to this row, have at most [`TILE`] cells, and there is room for their keys.
    #[inline(always)]
    pub(crate) unsafe fn add<L: Lanes>(
        &mut self,
        at: usize,
        row: GridRow<'_, W>,
        spans: Spans,
        x3: X3Places,
        dividing: &mut PartitionBuffers<W>,
    ) {
        // SAFETY: the caller vouches for the spans.
        if x3.number == 0 && unsafe { row.in_place(spans) }.is_some() {
            return;
        }
        let (keys, bands) = (&mut self.keys, &mut self.rows[at]);
        bands.starts[0] = keys.len();
        // SAFETY: the caller vouches for the spans and the room.
        unsafe { row.filter_spans(spans, &mut bands.offsets[0], keys) };
        for (step, &bit) in x3.bits[..x3.number].iter().enumerate() {
            for band in 0..1 << step {
                bands.divide::<L, W>(keys, spans.cells(), bit, (band, band | 1 << step), dividing);
            }
        }
    }

    /// Returns row number `at`, made of these spans with this many bits of X3.
    ///
    /// # Safety
    /// The row was added with these spans and bits.
    #[inline(always)]
    pub(crate) unsafe fn row<'b, 'a: 'b>(
        &'b self,
        at: usize,
        row: GridRow<'a, W>,
        spans: Spans,
        x3_bits: usize,
    ) -> BandedRow<'b, W> {
        let bands = &self.rows[at];
        let in_place = if x3_bits == 0 {
            // SAFETY: the caller vouches for the spans.
            unsafe { row.in_place(spans) }
        } else {
            None
        };
        BandedRow {
            first: in_place.unwrap_or_else(|| bands.band(0, spans.cells(), &self.keys)),
            others: (x3_bits > 0).then_some((bands, &self.keys)),
            x3_bits,
        }
    }
}

impl Bands {
    /// Returns the band of `pattern` of a row with this many cells.
    #[inline(always)]
    fn band<'a, W: Residual>(
        &'a self,
        pattern: usize,
        cells: usize,
        keys: &'a Buffer<W>,
    ) -> GridRow<'a, W> {
        let keys = keys.residuals_from(self.starts[pattern]);
        GridRow::new(keys, &self.offsets[pattern][..=cells])
    }

    /// Divides the band `without` into itself and the band `with` after it.
    #[inline(always)]
    fn divide<L: Lanes, W: Residual>(
        &mut self,
        keys: &mut Buffer<W>,
        cells: usize,
        bit: u32,
        (without, with): (usize, usize),
        dividing: &mut PartitionBuffers<W>,
    ) {
        let (start, length) = (self.starts[without], self.offsets[without][cells] as usize);
        let residuals = keys.residuals_from_mut(start);
        // Saves the keys past the end, perhaps of another band: the last group is processed whole.
        let past_end: [W; AT_A_TIME] = *residuals[length..].first_chunk().expect("slack");
        let (from, to_with) = (residuals.as_mut_ptr(), dividing.with.room(length));
        let groups = length / AT_A_TIME + 1;
        if dividing.marks.len() < groups {
            dividing.marks.resize(groups, (0, 0));
        }
        let marks = &mut dividing.marks[..groups];
        let (mut clear, mut set) = (0, 0);
        for (at, mark) in marks.iter_mut().enumerate() {
            // SAFETY: both sides have room for these keys and slack, and keys are read before they
            // are overwritten.
            let ones = unsafe {
                L::divide(PartitionBlock {
                    keys: from.add(AT_A_TIME * at).cast::<u32>(),
                    bit,
                    without: from.add(clear).cast(),
                    with: to_with.add(set).cast(),
                })
            };
            *mark = (offset(set), ones);
            set += ones.count_ones() as usize;
            clear += ones.count_zeros() as usize;
        }
        for cell in 0..=cells {
            let end = self.offsets[without][cell];
            let (before, ones) = marks[end as usize / AT_A_TIME];
            let below = ones & ((1 << (end as usize % AT_A_TIME)) - 1);
            let set = before + below.count_ones();
            self.offsets[with][cell] = set;
            self.offsets[without][cell] = end - set;
        }
        residuals[length..length + AT_A_TIME].copy_from_slice(&past_end);
        let left = self.offsets[without][cells] as usize;
        self.starts[with] = start + left;
        residuals[left..length].copy_from_slice(&dividing.with.residuals_from(0)[..length - left]);
    }
}

impl<W: Residual> BandedRow<'_, W> {
    /// Returns a row without keys, whose list must not be read past its end.
    pub(crate) fn empty() -> Self {
        Self { first: GridRow::empty(), others: None, x3_bits: 0 }
    }

    #[inline(always)]
    fn band(&self, pattern: u8) -> GridRow<'_, W> {
        match self.others {
            Some((bands, keys)) if pattern > 0 => {
                bands.band(pattern.into(), self.first.cells, keys)
            }
            _ => self.first,
        }
    }

    /// Gathers the cells whose pattern is disjoint from `exclude`, band by band.
    #[inline(always)]
    pub(crate) fn gather(&self, exclude: usize, buffer: &mut Buffer<W>) -> Banded<W> {
        if self.x3_bits == 0 {
            return Banded::one(self.first.gather(exclude, buffer));
        }
        let mut ends = [0; MAX_BANDS];
        let patterns = &ORDERS[self.x3_bits][..1 << self.x3_bits];
        buffer.clear(patterns.iter().map(|&p| self.band(p).len()).sum());
        for (&pattern, end) in patterns.iter().zip(&mut ends) {
            let row = self.band(pattern);
            // SAFETY: these are spans of this row, and there is room for all bands.
            unsafe { row.append_spans(row.disjoint(exclude), buffer) };
            *end = buffer.list().length;
        }
        Banded { list: buffer.list(), ends, x3_bits: self.x3_bits }
    }
}

/// List of a leaf, band by band.
#[derive(Clone, Copy)]
pub(crate) struct Banded<W> {
    /// Residual keys: the bits of X3 on top, below them only the bits that tables hold.
    pub(crate) list: List<W>,
    ends: [usize; MAX_BANDS],
    x3_bits: usize,
}

impl<W: Residual> Banded<W> {
    /// Wraps a list in any order as one band.
    #[inline(always)]
    pub(crate) fn one(list: List<W>) -> Self {
        Self { list, ends: [list.length; MAX_BANDS], x3_bits: 0 }
    }

    /// Returns the pattern and end of each band.
    #[inline(always)]
    pub(crate) fn bands(&self) -> impl Iterator<Item = (u8, usize)> {
        let patterns = ORDERS[self.x3_bits];
        patterns.into_iter().zip(self.ends).take(1 << self.x3_bits)
    }
}
