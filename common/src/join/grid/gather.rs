//! Gathering the keys of a row whose minor patterns are compatible with a pattern.

use std::marker::PhantomData;

use super::sort::offset;
use crate::simd::Residual;

/// Readable residual keys past the end of a leaf's list.
///
/// Leaves read whole blocks and mask the excess.
pub(crate) const SLACK: usize = 1024;

/// Residual keys copied at a time; the room past the end takes the excess.
const CHUNK: usize = 16;

/// Keys sorted by minor pattern: a row of a grid, or a tile's part of it.
#[derive(Clone, Copy)]
pub(crate) struct GridRow<'a, W> {
    /// Cell c holds the keys `offsets[c]..offsets[c + 1]`; [`SLACK`] more are readable.
    residuals: *const W,
    offsets: *const u32,
    /// Number of cells.
    pub(crate) cells: usize,
    lifetime: PhantomData<&'a [W]>,
}

/// A list of residual keys with [`SLACK`] readable ones after it.
#[derive(Clone, Copy)]
pub(crate) struct List<W> {
    pub(crate) start: *const W,
    pub(crate) length: usize,
}

impl<W> List<W> {
    /// Drops the first `count` keys.
    #[inline(always)]
    pub(crate) fn skip(self, count: usize) -> Self {
        Self { start: self.start.wrapping_add(count), length: self.length.saturating_sub(count) }
    }
}

impl<'a, W: Residual> GridRow<'a, W> {
    /// Creates a row from offsets into `residuals`, one more than cells.
    #[inline(always)]
    pub(crate) fn new(residuals: &'a [W], offsets: &'a [u32]) -> Self {
        let cells = offsets.len() - 1;
        debug_assert!(offsets[cells] as usize + SLACK <= residuals.len());
        let (residuals, offsets) = (residuals.as_ptr(), offsets.as_ptr());
        Self { residuals, offsets, cells, lifetime: PhantomData }
    }

    /// Returns a row without keys, whose list must not be read past its end.
    pub(crate) fn empty() -> Self {
        let (residuals, offsets): (&[W], &[u32; 2]) = (&[], &[0; 2]);
        Self {
            residuals: residuals.as_ptr(),
            offsets: offsets.as_ptr(),
            cells: 1,
            lifetime: PhantomData,
        }
    }

    #[inline(always)]
    pub(crate) fn len(self) -> usize {
        // SAFETY: there is one more offset than cells.
        unsafe { (*self.offsets.add(self.cells) - *self.offsets) as usize }
    }

    /// Returns cells `from..to` as a list.
    ///
    /// # Safety
    /// `from <= to`, and `to` is at most the number of cells.
    #[inline(always)]
    unsafe fn cells(self, from: usize, to: usize) -> List<W> {
        // SAFETY: the offsets are in order and within the residual keys.
        unsafe {
            let start = *self.offsets.add(from) as usize;
            List {
                start: self.residuals.add(start),
                length: *self.offsets.add(to) as usize - start,
            }
        }
    }

    #[inline(always)]
    pub(crate) fn list(self) -> List<W> {
        // SAFETY: the row has these cells.
        unsafe { self.cells(0, self.cells) }
    }

    /// Gathers the cells whose pattern is disjoint from `exclude`.
    #[inline(always)]
    pub(crate) fn gather(self, exclude: usize, buffer: &mut Buffer<W>) -> List<W> {
        let spans = self.disjoint(exclude);
        // SAFETY: the spans belong to this row, which has this many keys.
        unsafe { self.gather_spans(spans, self.len(), buffer) }
    }

    /// Gathers spans with at most `keys` keys.
    ///
    /// # Safety
    /// The spans belong to this row, and have at most `keys` keys.
    #[inline(always)]
    pub(crate) unsafe fn gather_spans(
        self,
        spans: Spans,
        keys: usize,
        buffer: &mut Buffer<W>,
    ) -> List<W> {
        // SAFETY: the caller vouches for the spans.
        if let Some(row) = unsafe { self.in_place(spans) } {
            return row.list();
        }
        buffer.clear(keys);
        // SAFETY: the caller vouches for the spans, and there is room for their keys.
        unsafe { self.append_spans(spans, buffer) };
        buffer.list()
    }

    /// Appends the keys of these spans.
    ///
    /// # Safety
    /// The spans belong to this row, and there is room for their keys.
    #[inline(always)]
    pub(crate) unsafe fn append_spans(self, spans: Spans, buffer: &mut Buffer<W>) {
        let mut span = spans.first;
        loop {
            // SAFETY: the caller vouches for the spans and the room.
            unsafe { buffer.append(self.cells(span, span + spans.cells)) };
            if span == spans.last {
                break;
            }
            span = spans.after(span);
        }
    }

    /// Returns the cells whose pattern is disjoint from `exclude`.
    ///
    /// Those below the lowest bit of `exclude` are contiguous.
    #[inline(always)]
    pub(crate) fn disjoint(self, exclude: usize) -> Spans {
        let cells = (exclude & exclude.wrapping_neg()).wrapping_sub(1).min(self.cells - 1) + 1;
        Spans::all(cells, !exclude & (self.cells - cells))
    }

    /// Returns the cells that a tile needs.
    ///
    /// Their pattern above `low_bits` bits is disjoint from `exclude`.
    #[inline(always)]
    pub(crate) fn wanted(self, exclude: usize, low_bits: u32) -> Spans {
        let cells = self.cells.min(1 << low_bits);
        Spans::all(cells, !(exclude << low_bits) & (self.cells - cells))
    }

    /// Returns the number of keys in these spans.
    ///
    /// # Panics
    /// If the row has no such spans.
    #[inline(always)]
    pub(crate) fn keys_of(self, spans: Spans) -> usize {
        assert!(spans.last + spans.cells <= self.cells, "spans of another row");
        let (mut span, mut keys) = (spans.first, 0);
        loop {
            // SAFETY: no span begins after the last one.
            keys += unsafe { self.cells(span, span + spans.cells) }.length;
            if span == spans.last {
                return keys;
            }
            span = spans.after(span);
        }
    }

    /// Cuts off the first spans with at most `most` keys, at least one span.
    ///
    /// # Panics
    /// If the row has no such spans.
    pub(crate) fn cut(self, spans: Spans, most: usize) -> SplitSpans {
        assert!(spans.last + spans.cells <= self.cells, "spans of another row");
        if self.len() <= most {
            // The common case; counting the keys of the spans takes longer.
            return SplitSpans { first: spans, keys: self.len(), others: None };
        }
        let (mut last, mut next, mut keys) = (spans.first, spans.first, 0);
        loop {
            // SAFETY: as in `keys_of`.
            let more = unsafe { self.cells(next, next + spans.cells) }.length;
            if keys + more > most && next != spans.first {
                let others = Spans { first: next, ..spans };
                return SplitSpans { first: Spans { last, ..spans }, keys, others: Some(others) };
            }
            keys += more;
            last = next;
            if next == spans.last {
                return SplitSpans { first: spans, keys, others: None };
            }
            next = spans.after(next);
        }
    }

    /// Returns these spans as a row without moving keys, if there is only one.
    ///
    /// # Safety
    /// The spans belong to this row.
    #[inline(always)]
    pub(crate) unsafe fn in_place(self, spans: Spans) -> Option<Self> {
        (spans.first == spans.last).then(|| Self {
            // SAFETY: there is one more offset than cells.
            offsets: unsafe { self.offsets.add(spans.first) },
            cells: spans.cells,
            ..self
        })
    }

    /// Appends the keys of these spans, sorted by low pattern, for a whole tile.
    ///
    /// Sets `offsets` to the bounds of these cells, counted from the first appended key.
    ///
    /// # Safety
    /// The spans belong to this row, and there is room for their keys.
    ///
    /// # Panics
    /// If `offsets` does not have more entries than a span has cells.
    #[inline(always)]
    pub(crate) unsafe fn filter_spans(
        self,
        spans: Spans,
        offsets: &mut [u32],
        buffer: &mut Buffer<W>,
    ) {
        let start = buffer.length;
        offsets[0] = 0;
        for at in 0..spans.cells {
            let mut span = spans.first;
            loop {
                // SAFETY: the caller vouches for the spans and the room.
                unsafe { buffer.append(self.cells(span + at, span + at + 1)) };
                if span == spans.last {
                    break;
                }
                span = spans.after(span);
            }
            offsets[at + 1] = offset(buffer.length - start);
        }
    }
}

/// Spans of adjacent cells that start at the submasks of a mask, ascending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spans {
    /// Cells per span.
    cells: usize,
    mask: usize,
    /// Start of the first and the last span.
    first: usize,
    last: usize,
}

impl Spans {
    /// Returns the spans at all submasks of `mask`.
    #[inline(always)]
    fn all(cells: usize, mask: usize) -> Self {
        let (first, last) = (0, mask);
        Self { cells, mask, first, last }
    }

    /// Returns the start of the next span.
    #[inline(always)]
    fn after(self, span: usize) -> usize {
        span.wrapping_sub(self.mask) & self.mask
    }

    #[inline(always)]
    pub(crate) fn cells(self) -> usize {
        self.cells
    }
}

/// Spans of a row, cut in two.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SplitSpans {
    pub(crate) first: Spans,
    /// Upper bound on the keys of `first`.
    pub(crate) keys: usize,
    pub(crate) others: Option<Spans>,
}

/// Patterns per side of a tile: 16 rows of a grid fit in the second-level cache.
pub(crate) const TILE: usize = 1 << TILE_BITS;
pub(crate) const TILE_BITS: u32 = 4;

/// Granularity of a buffer's size, in residual keys.
const STEP: usize = 4 * SLACK;

/// Keys gathered from a row.
#[derive(Debug, Default)]
pub(crate) struct Buffer<W> {
    residuals: Vec<W>,
    length: usize,
}

impl<W: Residual> Buffer<W> {
    /// Empties the buffer and makes the room that [`Self::append`] needs.
    #[inline(always)]
    pub(crate) fn clear(&mut self, keys: usize) {
        self.length = 0;
        self.room(keys);
    }

    /// Makes room for `keys` keys and returns their start; contents are arbitrary.
    #[inline(always)]
    pub(crate) fn room(&mut self, keys: usize) -> *mut W {
        if self.residuals.len() < keys + SLACK {
            self.grow(keys);
        }
        self.residuals.as_mut_ptr()
    }

    #[cold]
    fn grow(&mut self, keys: usize) {
        // A new vector has the exact size, copies nothing, and is zeroed on first access.
        self.residuals = Vec::new();
        self.residuals = vec![W::default(); (keys + SLACK).next_multiple_of(STEP)];
    }

    /// Returns the residual keys from `start` on, including the slack.
    #[inline(always)]
    pub(crate) fn residuals_from(&self, start: usize) -> &[W] {
        &self.residuals[start..]
    }

    #[inline(always)]
    pub(crate) fn residuals_from_mut(&mut self, start: usize) -> &mut [W] {
        &mut self.residuals[start..]
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Returns the bytes for this many keys.
    pub(crate) fn bytes(keys: usize) -> u64 {
        (size_of::<W>() * (keys + SLACK).next_multiple_of(STEP)) as u64
    }

    /// # Safety
    /// There is room for the list.
    #[inline(always)]
    unsafe fn append(&mut self, list: List<W>) {
        let (from, count) = (list.start, list.length);
        // SAFETY: both sides have more than a chunk of slack.
        unsafe {
            let to = self.residuals.as_mut_ptr().add(self.length);
            self.length += count;
            let mut at = 0;
            loop {
                let chunk = from.add(at).cast::<[W; CHUNK]>().read_unaligned();
                to.add(at).cast::<[W; CHUNK]>().write_unaligned(chunk);
                at += CHUNK;
                if at >= count {
                    break;
                }
            }
        }
    }

    /// Appends a residual key if `wanted`; there must be room.
    #[inline(always)]
    pub(crate) fn push_if(&mut self, residual: W, wanted: bool) {
        self.residuals[self.length] = residual;
        self.length += usize::from(wanted);
    }

    #[inline(always)]
    pub(crate) fn list(&self) -> List<W> {
        List { start: self.residuals.as_ptr(), length: self.length }
    }
}
