//! Collecting the keys of a row whose minor patterns are compatible with a pattern.

use std::marker::PhantomData;

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

    /// Where each cell starts in [`Self::list`], and the end.
    #[inline(always)]
    pub(crate) fn offsets_from_zero(self, offsets: &mut [u32]) {
        for (cell, offset) in offsets.iter_mut().enumerate().take(self.cells + 1) {
            // SAFETY: there is one more offset than cells.
            *offset = unsafe { *self.offsets.add(cell) - *self.offsets };
        }
    }

    /// The rests of the cells whose pattern has no bit in common with `exclude`.
    #[inline(always)]
    pub(crate) fn gather(self, exclude: usize, buffer: &mut Buffer<W>) -> List<W> {
        let (side_by_side, slices) = self.slices(exclude);
        if slices == 0 {
            // SAFETY: these are the first cells.
            return unsafe { self.cells(0, side_by_side) };
        }
        buffer.clear(self.len());
        // SAFETY: the buffer has room for the whole row.
        unsafe { self.append_to(exclude, buffer) };
        buffer.list()
    }

    /// Appends what [`Self::gather`] gathers.
    ///
    /// # Safety
    /// There is room for it.
    #[inline(always)]
    pub(crate) unsafe fn append_to(self, exclude: usize, buffer: &mut Buffer<W>) {
        let (side_by_side, slices) = self.slices(exclude);
        let mut slice = 0;
        loop {
            // SAFETY: the caller vouches for the room.
            unsafe { buffer.append(self.cells(slice, slice + side_by_side)) };
            if slice == slices {
                break;
            }
            slice = slice.wrapping_sub(slices) & slices;
        }
    }

    /// How many cells lie side by side below the lowest bit of `exclude`, where all are wanted, and
    /// the bits that tell such slices of cells apart and are not excluded.
    #[inline(always)]
    fn slices(self, exclude: usize) -> (usize, usize) {
        let side_by_side = (exclude & exclude.wrapping_neg())
            .wrapping_sub(1)
            .min(self.cells - 1)
            + 1;
        (side_by_side, !exclude & (self.cells - side_by_side))
    }

    /// How many keys [`Self::narrow`] leaves.
    #[inline(always)]
    pub(crate) fn narrowed_len(self, exclude: usize, low_bits: u32) -> usize {
        let low = self.cells.min(1 << low_bits);
        let slices = !(exclude << low_bits) & (self.cells - low);
        let (mut slice, mut length) = (0, 0);
        loop {
            // SAFETY: a slice starts at a multiple of its length below the number of cells.
            length += unsafe { self.cells(slice, slice + low) }.length;
            if slice == slices {
                return length;
            }
            slice = slice.wrapping_sub(slices) & slices;
        }
    }

    /// The keys whose high pattern, that above the lowest `low_bits` bits, has no bit in common
    /// with `exclude`, sorted by the low pattern alone: what a whole tile gathers from.
    ///
    /// `offsets` are those of the new row, and `buffer` its keys, unless they can stay where they
    /// are.
    #[inline(always)]
    pub(crate) fn narrow<'b>(
        self,
        exclude: usize,
        low_bits: u32,
        offsets: &'b mut [u32; TILE + 1],
        buffer: &'b mut Buffer<W>,
    ) -> GridRow<'b, W>
    where
        'a: 'b,
    {
        let low = self.cells.min(1 << low_bits);
        let slices = !(exclude << low_bits) & (self.cells - low);
        if slices == 0 {
            return Self { cells: low, ..self };
        }
        buffer.clear(self.len());
        offsets[0] = 0;
        for at in 0..low {
            let mut slice = 0;
            loop {
                // SAFETY: the buffer has room for the whole row.
                unsafe { buffer.append(self.cells(slice + at, slice + at + 1)) };
                if slice == slices {
                    break;
                }
                slice = slice.wrapping_sub(slices) & slices;
            }
            offsets[at + 1] = buffer.length32();
        }
        GridRow::new(&buffer.rests, &offsets[..=low])
    }
}

/// Patterns on a tile's side: 16 rows of either grid are a few hundred KiB, a second-level cache.
pub(crate) const TILE: usize = 1 << TILE_BITS;
pub(crate) const TILE_BITS: u32 = 4;

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

    /// Makes room for `keys` keys, and returns where they go.
    #[inline(always)]
    pub(crate) fn room(&mut self, keys: usize) -> *mut W {
        if self.rests.len() < keys + SLACK {
            self.rests.resize(keys + SLACK, W::default());
        }
        self.rests.as_mut_ptr()
    }

    /// Says how many keys there are.
    #[inline(always)]
    pub(crate) fn set_len(&mut self, keys: usize) {
        self.length = keys;
    }

    /// The rests, and those to spare.
    #[inline(always)]
    pub(crate) fn rests(&self) -> &[W] {
        &self.rests
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

    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a row is part of a grid of 2^31 keys"
    )]
    fn length32(&self) -> u32 {
        self.length as u32
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
            let mut near = [0; TILE + 1];
            let [first, second] = &mut buffers;
            let near = row.narrow(exclude >> TILE_BITS, TILE_BITS, &mut near, first);
            let mut list = read(near.gather(exclude % TILE, second));
            list.sort_unstable();
            expected.sort_unstable();
            assert_eq!(list, expected, "{exclude}");
        }
    }
}
