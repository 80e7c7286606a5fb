//! Collecting the keys of a row whose minor patterns are compatible with a pattern.

use std::marker::PhantomData;

use super::sort::offset;
use crate::simd::Rest;

/// Rests readable past the end of any list that a leaf is given: leaves read whole blocks and mask
/// off what they should not see.
pub(crate) const SLACK: usize = 1024;

/// Rests that are copied at a time, most lists being short: room for as many past the end.
const CHUNK: usize = 16;

/// Keys sorted by their minor pattern: a row of a grid, or what a tile needs of it.
#[derive(Clone, Copy)]
pub(crate) struct GridRow<'a, W> {
    /// Cell c holds the rests `offsets[c]..offsets[c + 1]`; [`SLACK`] more are readable.
    rests: *const W,
    offsets: *const u32,
    cells: usize,
    lives: PhantomData<&'a [W]>,
}

/// A list of rests with [`SLACK`] readable ones after it.
#[derive(Clone, Copy)]
pub(crate) struct List<W> {
    pub(crate) start: *const W,
    pub(crate) length: usize,
}

impl<W> List<W> {
    /// Without its first so many rests; of none, if it has fewer.
    #[inline(always)]
    pub(crate) fn skip(self, rests: usize) -> Self {
        Self {
            start: self.start.wrapping_add(rests),
            length: self.length.saturating_sub(rests),
        }
    }
}

impl<'a, W: Rest> GridRow<'a, W> {
    /// A row whose offsets, one more than cells, are into all of `rests`.
    #[inline(always)]
    pub(crate) fn new(rests: &'a [W], offsets: &'a [u32]) -> Self {
        let cells = offsets.len() - 1;
        debug_assert!(offsets[cells] as usize + SLACK <= rests.len());
        let (rests, offsets) = (rests.as_ptr(), offsets.as_ptr());
        Self {
            rests,
            offsets,
            cells,
            lives: PhantomData,
        }
    }

    /// A row of no keys, whose list must not be read past its end.
    pub(crate) fn empty() -> Self {
        let (rests, offsets): (&[W], &[u32; 2]) = (&[], &[0; 2]);
        Self {
            rests: rests.as_ptr(),
            offsets: offsets.as_ptr(),
            cells: 1,
            lives: PhantomData,
        }
    }

    /// The number of keys.
    #[inline(always)]
    pub(crate) fn len(self) -> usize {
        // SAFETY: there is one more offset than cells.
        unsafe { (*self.offsets.add(self.cells) - *self.offsets) as usize }
    }

    /// Cells `from..to` as a list.
    ///
    /// # Safety
    /// `from <= to`, and `to` is at most the number of cells.
    #[inline(always)]
    unsafe fn cells(self, from: usize, to: usize) -> List<W> {
        // SAFETY: the offsets are in order and within the rests.
        unsafe {
            let start = *self.offsets.add(from) as usize;
            List {
                start: self.rests.add(start),
                length: *self.offsets.add(to) as usize - start,
            }
        }
    }

    /// The number of cells.
    #[inline(always)]
    pub(crate) fn number_of_cells(self) -> usize {
        self.cells
    }

    /// All keys.
    #[inline(always)]
    pub(crate) fn list(self) -> List<W> {
        // SAFETY: there are so many cells.
        unsafe { self.cells(0, self.cells) }
    }

    /// The rests of the cells whose pattern has no bit in common with `exclude`.
    #[inline(always)]
    pub(crate) fn gather(self, exclude: usize, buffer: &mut Buffer<W>) -> List<W> {
        let spans = self.disjoint(exclude);
        // SAFETY: these are spans of this row, which has so many keys.
        unsafe { self.gather_spans(spans, self.len(), buffer) }
    }

    /// The rests of some spans, which have at most `keys` keys.
    ///
    /// # Safety
    /// The spans are some of this row's, and have no more keys.
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

    /// Appends what [`Self::gather`] gathers.
    ///
    /// # Safety
    /// There is room for it.
    #[inline(always)]
    pub(crate) unsafe fn append_to(self, exclude: usize, buffer: &mut Buffer<W>) {
        // SAFETY: the caller vouches for the room.
        unsafe { self.append_spans(self.disjoint(exclude), buffer) };
    }

    /// # Safety
    /// The spans are some of this row's, and there is room for their keys.
    #[inline(always)]
    unsafe fn append_spans(self, spans: Spans, buffer: &mut Buffer<W>) {
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

    /// The cells whose pattern has no bit in common with `exclude`: all lie side by side below its lowest
    /// bit.
    #[inline(always)]
    pub(crate) fn disjoint(self, exclude: usize) -> Spans {
        let cells = (exclude & exclude.wrapping_neg())
            .wrapping_sub(1)
            .min(self.cells - 1)
            + 1;
        Spans::all(cells, !exclude & (self.cells - cells))
    }

    /// The cells that a tile needs: those whose high pattern, that above the lowest `low_bits` bits, has
    /// no bit in common with `exclude`.
    #[inline(always)]
    pub(crate) fn wanted(self, exclude: usize, low_bits: u32) -> Spans {
        let cells = self.cells.min(1 << low_bits);
        Spans::all(cells, !(exclude << low_bits) & (self.cells - cells))
    }

    /// How many keys some spans of this row have.
    ///
    /// # Panics
    /// If it has no such spans.
    #[inline(always)]
    pub(crate) fn keys_of(self, spans: Spans) -> usize {
        assert!(spans.last + spans.cells <= self.cells, "of another row");
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

    /// The first of these spans of this row, as many as have no more than `most` keys, but one at least.
    ///
    /// # Panics
    /// If it has no such spans.
    pub(crate) fn cut(self, spans: Spans, most: usize) -> Cut {
        assert!(spans.last + spans.cells <= self.cells, "of another row");
        if self.len() <= most {
            // Mostly; how many these have takes longer to find out.
            return Cut {
                first: spans,
                keys: self.len(),
                others: None,
            };
        }
        let (mut last, mut next, mut keys) = (spans.first, spans.first, 0);
        loop {
            // SAFETY: as in `keys_of`.
            let more = unsafe { self.cells(next, next + spans.cells) }.length;
            if keys + more > most && next != spans.first {
                let others = Spans {
                    first: next,
                    ..spans
                };
                return Cut {
                    first: Spans { last, ..spans },
                    keys,
                    others: Some(others),
                };
            }
            keys += more;
            last = next;
            if next == spans.last {
                return Cut {
                    first: spans,
                    keys,
                    others: None,
                };
            }
            next = spans.after(next);
        }
    }

    /// These spans as a row, where it is a single one: its keys need not be moved.
    ///
    /// # Safety
    /// The spans are some of this row's.
    #[inline(always)]
    pub(crate) unsafe fn in_place(self, spans: Spans) -> Option<Self> {
        (spans.first == spans.last).then(|| Self {
            // SAFETY: there is one more offset than cells.
            offsets: unsafe { self.offsets.add(spans.first) },
            cells: spans.cells,
            ..self
        })
    }

    /// Appends the keys of these spans to `buffer`, sorted by their low pattern alone: what a whole tile
    /// gathers from. `offsets` say where each such cell ends, from the first of these keys on.
    ///
    /// # Safety
    /// The spans are some of this row's, and there is room for their keys.
    ///
    /// # Panics
    /// If there are not as many offsets as cells of a span, and one more.
    #[inline(always)]
    pub(crate) unsafe fn narrow(self, spans: Spans, offsets: &mut [u32], buffer: &mut Buffer<W>) {
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

/// Cells of a row in spans of as many side by side: the spans that begin at a submask of some bits, in
/// ascending order from one to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spans {
    /// Cells of each.
    cells: usize,
    /// The bits.
    of: usize,
    /// Where the first and the last begin.
    first: usize,
    last: usize,
}

impl Spans {
    /// Those that begin at any submask of `of`.
    #[inline(always)]
    fn all(cells: usize, of: usize) -> Self {
        let (first, last) = (0, of);
        Self {
            cells,
            of,
            first,
            last,
        }
    }

    /// Where the one after that at `span` begins.
    #[inline(always)]
    fn after(self, span: usize) -> usize {
        span.wrapping_sub(self.of) & self.of
    }

    /// How many cells each has.
    #[inline(always)]
    pub(crate) fn cells(self) -> usize {
        self.cells
    }
}

/// Spans of a row, cut into two.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    pub(crate) first: Spans,
    /// The first have no more keys.
    pub(crate) keys: usize,
    pub(crate) others: Option<Spans>,
}

/// Patterns on a tile's side: 16 rows of either grid are a few hundred KiB, a second-level cache.
pub(crate) const TILE: usize = 1 << TILE_BITS;
pub(crate) const TILE_BITS: u32 = 4;

/// Buffers grow by so many rests at least.
const STEP: usize = 4 * SLACK;

/// Keys gathered from a row.
#[derive(Debug, Default)]
pub(crate) struct Buffer<W> {
    rests: Vec<W>,
    length: usize,
}

impl<W: Rest> Buffer<W> {
    /// Empties it and makes room for `keys` keys, which [`Self::append`] relies on.
    #[inline(always)]
    pub(crate) fn clear(&mut self, keys: usize) {
        self.length = 0;
        self.room(keys);
    }

    /// Makes room for `keys` keys, and returns where they go; there may be any there before.
    #[inline(always)]
    pub(crate) fn room(&mut self, keys: usize) -> *mut W {
        if self.rests.len() < keys + SLACK {
            self.grow(keys);
        }
        self.rests.as_mut_ptr()
    }

    #[cold]
    fn grow(&mut self, keys: usize) {
        // Not twice as much as is needed, nothing to copy, and cleared by the system page by page.
        self.rests = Vec::new();
        self.rests = vec![W::default(); (keys + SLACK).next_multiple_of(STEP)];
    }

    /// The rests from number `start` on, and those to spare.
    #[inline(always)]
    pub(crate) fn rests_from(&self, start: usize) -> &[W] {
        &self.rests[start..]
    }

    /// The same, to be changed.
    #[inline(always)]
    pub(crate) fn rests_from_mut(&mut self, start: usize) -> &mut [W] {
        &mut self.rests[start..]
    }

    /// How many keys there are.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Bytes for so many keys.
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
            let to = self.rests.as_mut_ptr().add(self.length);
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

    /// Adds a rest if it is wanted, for which there must be room.
    #[inline(always)]
    pub(crate) fn push_if(&mut self, rest: W, wanted: bool) {
        self.rests[self.length] = rest;
        self.length += usize::from(wanted);
    }

    /// The rests.
    #[inline(always)]
    pub(crate) fn list(&self) -> List<W> {
        List {
            start: self.rests.as_ptr(),
            length: self.length,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sixty-four cells: cell c holds c % 3 * 10 times the number c.
    fn cells() -> (Vec<u32>, Vec<u32>) {
        let counts = (0..64_u32).map(|cell| cell % 3 * 10);
        let mut rests: Vec<u32> = (0..64).flat_map(|c| vec![c; c as usize % 3 * 10]).collect();
        rests.resize(rests.len() + SLACK, 99);
        let offsets = [0].into_iter().chain(counts.scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        }));
        (rests, offsets.collect())
    }

    fn read(list: List<u32>) -> Vec<u32> {
        // SAFETY: a list is readable for its length.
        unsafe { std::slice::from_raw_parts(list.start, list.length) }.to_vec()
    }

    #[test]
    fn gathering_takes_the_disjoint_patterns() {
        let (rests, offsets) = cells();
        let row = GridRow::new(&rests, &offsets);
        let mut buffer = Buffer::default();
        for exclude in 0..64_usize {
            let disjoint = |&rest: &u32| rest as usize & exclude == 0;
            let mut expected = rests[..row.len()].to_vec();
            expected.retain(disjoint);
            assert_eq!(
                read(row.gather(exclude, &mut buffer)),
                expected,
                "{exclude}"
            );
        }
    }

    #[test]
    fn narrowing_first_changes_nothing_but_the_order() {
        let (rests, offsets) = cells();
        let row = GridRow::new(&rests, &offsets);
        let mut buffers = [Buffer::default(), Buffer::default()];
        for exclude in 0..64_usize {
            let mut expected = read(row.gather(exclude, &mut buffers[0]));
            expected.sort_unstable();
            let wanted = row.wanted(exclude >> TILE_BITS, TILE_BITS);
            for most in [0, 70, 300, usize::MAX] {
                let (mut list, mut left) = (Vec::new(), Some(wanted));
                while let Some(spans) = left {
                    let Cut {
                        first,
                        keys,
                        others,
                    } = row.cut(spans, most);
                    assert!(row.keys_of(first) <= keys, "{exclude}, {most}");
                    assert!(keys <= most || first.first == first.last, "{exclude}");
                    let [narrowed, gathered] = &mut buffers;
                    narrowed.clear(keys);
                    let mut near = [0; TILE + 1];
                    // SAFETY: made room for them just now.
                    unsafe { row.narrow(first, &mut near, narrowed) };
                    assert_eq!(narrowed.len(), row.keys_of(first));
                    let near = GridRow::new(narrowed.rests_from(0), &near[..=first.cells()]);
                    list.extend(read(near.gather(exclude % TILE, gathered)));
                    left = others;
                }
                list.sort_unstable();
                assert_eq!(list, expected, "{exclude}, {most}");
            }
        }
    }
}
