//! Bands: a leaf's two lists are sorted by X3, the bits that rule out most of the pairs that meet in
//! leaves. Keys whose patterns of X3 have a bit in common lie side by side then, so that whole blocks
//! of them are passed over; and X3 need not be looked up in tables.
//!
//! The rows of a tile are sorted when they are narrowed, once for all leaves of the tile. Where
//! leaves are small this costs more than it saves, so a tile uses as many bits of X3 as its leaves
//! are large.
//!
//! The mathematics: `docs/method.md`, “Counting disjoint pairs without looking at all of them”.

use super::{
    gather::{Buffer, GridRow, List, Spans, TILE},
    sort::offset,
};
use crate::{
    frames::hjoin::layout::x3::{MOST_BITS, X3Places},
    simd::{Lanes, Rest, Sixteen},
};

/// The most bands of a list: the keys with one pattern of X3 each.
pub(crate) const MOST_BANDS: usize = 1 << MOST_BITS;

/// The patterns of so many bits of X3, in the order of the bands in a list: those that are compatible
/// with a pattern are next to each other, as far as three bits allow it.
const ORDERS: [[u8; MOST_BANDS]; MOST_BITS + 1] = [
    [0; MOST_BANDS],
    [0, 1, 0, 0, 0, 0, 0, 0],
    [1, 0, 2, 3, 0, 0, 0, 0],
    [5, 1, 3, 2, 0, 4, 6, 7],
];

/// A row of a grid narrowed for a tile, band by band.
#[derive(Clone, Copy)]
pub(crate) struct BandedRow<'a, W> {
    /// The only band, or the one without any bit of X3.
    first: GridRow<'a, W>,
    /// The others, and the buffer that they are in.
    others: Option<(&'a Bands, &'a Buffer<W>)>,
    x3_bits: usize,
}

/// Rows of a grid, narrowed for a tile: one after the other, each band by band.
#[derive(Debug, Default)]
pub(crate) struct NarrowedRows<W> {
    keys: Buffer<W>,
    rows: [Bands; TILE],
}

/// Where a row's bands are, by pattern.
#[derive(Debug, Default)]
struct Bands {
    starts: [usize; MOST_BANDS],
    /// Where the cells of each begin, and the last one ends, from its start on.
    offsets: [[u32; TILE + 1]; MOST_BANDS],
}

/// What dividing a row takes beside it.
#[derive(Debug, Default)]
pub(crate) struct Dividing<W> {
    /// For every 16 keys, how many before them have the bit, and which of them.
    marks: Vec<(u32, u16)>,
    /// Those that have it.
    with: Buffer<W>,
}

/// Keys that are divided at a time.
const AT_A_TIME: usize = 16;

impl<W: Rest> NarrowedRows<W> {
    /// No rows, and room for so many keys.
    #[inline(always)]
    pub(crate) fn clear(&mut self, keys: usize) {
        self.keys.clear(keys);
    }

    /// Adds these spans of a row, sorted by the bits of X3 at these places, as row number `at`; or leaves
    /// them where they are, if that is how they are wanted.
    ///
    /// # Safety
    /// The spans are some of this row's, of at most [`TILE`] cells, and there is room for their keys.
    #[inline(always)]
    pub(crate) unsafe fn add<L: Lanes>(
        &mut self,
        at: usize,
        row: GridRow<'_, W>,
        spans: Spans,
        x3: X3Places,
        dividing: &mut Dividing<W>,
    ) {
        // SAFETY: the caller vouches for the spans.
        if x3.number == 0 && unsafe { row.in_place(spans) }.is_some() {
            return;
        }
        let (keys, bands) = (&mut self.keys, &mut self.rows[at]);
        bands.starts[0] = keys.len();
        // SAFETY: the caller vouches for the spans and the room.
        unsafe { row.narrow(spans, &mut bands.offsets[0], keys) };
        for (step, &bit) in x3.bits[..x3.number].iter().enumerate() {
            for band in 0..1 << step {
                bands.divide::<L, W>(keys, spans.cells(), bit, (band, band | 1 << step), dividing);
            }
        }
    }

    /// Row number `at`, which was made of these spans and sorted by so many bits of X3.
    ///
    /// # Safety
    /// So it was.
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
    /// The band of `pattern`, of a row with so many cells.
    #[inline(always)]
    fn band<'a, W: Rest>(
        &'a self,
        pattern: usize,
        cells: usize,
        keys: &'a Buffer<W>,
    ) -> GridRow<'a, W> {
        let keys = keys.rests_from(self.starts[pattern]);
        GridRow::new(keys, &self.offsets[pattern][..=cells])
    }

    /// Divides the band `without` into itself and the band `with` after it.
    #[inline(always)]
    fn divide<L: Lanes, W: Rest>(
        &mut self,
        keys: &mut Buffer<W>,
        cells: usize,
        bit: u32,
        (without, with): (usize, usize),
        dividing: &mut Dividing<W>,
    ) {
        let (start, length) = (self.starts[without], self.offsets[without][cells] as usize);
        let rests = keys.rests_from_mut(start);
        // The last keys are read and written with those past the end, which may be another band's.
        let past_end: [W; AT_A_TIME] = *rests[length..].first_chunk().expect("rests to spare");
        let (from, to_with) = (rests.as_mut_ptr(), dividing.with.room(length));
        let groups = length / AT_A_TIME + 1;
        if dividing.marks.len() < groups {
            dividing.marks.resize(groups, (0, 0));
        }
        let marks = &mut dividing.marks[..groups];
        let (mut clear, mut set) = (0, 0);
        for (at, mark) in marks.iter_mut().enumerate() {
            // SAFETY: there are so many rests and to spare on both sides; what is written in place was
            // read before.
            let ones = unsafe {
                L::divide(Sixteen {
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
        rests[length..length + AT_A_TIME].copy_from_slice(&past_end);
        let left = self.offsets[without][cells] as usize;
        self.starts[with] = start + left;
        rests[left..length].copy_from_slice(&dividing.with.rests_from(0)[..length - left]);
    }
}

impl<W: Rest> BandedRow<'_, W> {
    /// A row of no keys, whose list must not be read past its end.
    pub(crate) fn empty() -> Self {
        Self {
            first: GridRow::empty(),
            others: None,
            x3_bits: 0,
        }
    }

    #[inline(always)]
    fn band(&self, pattern: u8) -> GridRow<'_, W> {
        match self.others {
            Some((bands, keys)) if pattern > 0 => {
                bands.band(pattern.into(), self.first.number_of_cells(), keys)
            }
            _ => self.first,
        }
    }

    /// The rests of the cells whose pattern has no bit in common with `exclude`, band by band.
    #[inline(always)]
    pub(crate) fn gather(&self, exclude: usize, buffer: &mut Buffer<W>) -> Banded<W> {
        if self.x3_bits == 0 {
            return Banded::one(self.first.gather(exclude, buffer));
        }
        let mut ends = [0; MOST_BANDS];
        let patterns = &ORDERS[self.x3_bits][..1 << self.x3_bits];
        buffer.clear(patterns.iter().map(|&p| self.band(p).len()).sum());
        for (&pattern, end) in patterns.iter().zip(&mut ends) {
            // SAFETY: there is room for all bands.
            unsafe { self.band(pattern).append_to(exclude, buffer) };
            *end = buffer.list().length;
        }
        Banded {
            list: buffer.list(),
            ends,
            x3_bits: self.x3_bits,
        }
    }
}

/// A leaf's list, band by band.
#[derive(Clone, Copy)]
pub(crate) struct Banded<W> {
    /// The rests: the bits of X3 on top, below them only those that are looked up in tables.
    pub(crate) list: List<W>,
    /// Where each band ends.
    ends: [usize; MOST_BANDS],
    x3_bits: usize,
}

impl<W: Rest> Banded<W> {
    /// A list in any order: one band.
    #[inline(always)]
    pub(crate) fn one(list: List<W>) -> Self {
        Self {
            list,
            ends: [list.length; MOST_BANDS],
            x3_bits: 0,
        }
    }

    /// The pattern of each band, and where it ends.
    #[inline(always)]
    pub(crate) fn bands(&self) -> impl Iterator<Item = (u8, usize)> {
        let patterns = ORDERS[self.x3_bits];
        patterns.into_iter().zip(self.ends).take(1 << self.x3_bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        frames::hjoin::grid::gather::{Cut, SLACK, TILE_BITS},
        kernel::Kernel,
        simd::{Set, Work, dispatch},
    };

    fn random(i: u32) -> u32 {
        i.wrapping_mul(0x9e37_79b9).rotate_left(13) ^ i
    }

    /// The bit taken out and put on top.
    fn parked(key: u32, bit: u32) -> u32 {
        let low = (1 << bit) - 1;
        key & low | key >> 1 & !low & (u32::MAX >> 1) | (key >> bit & 1) << 31
    }

    struct Divide(u32);

    impl Work for Divide {
        type Result = ();

        #[inline(always)]
        fn run<S: Set>(self, _set: S) {
            let keys: [u32; 16] = std::array::from_fn(|at| random(offset(at) + 99 * self.0) >> 1);
            let has = |key: &u32| key >> self.0 & 1 == 1;
            let mut in_place = keys;
            let mut with = [0; 16];
            let sixteen = Sixteen {
                keys: in_place.as_ptr(),
                bit: self.0,
                without: in_place.as_mut_ptr(),
                with: with.as_mut_ptr(),
            };
            // SAFETY: dispatched to a kernel that is there; all have sixteen places.
            let ones = unsafe { <S::Bits as Lanes>::divide(sixteen) };
            for (at, key) in keys.iter().enumerate() {
                assert_eq!(ones >> at & 1 == 1, has(key), "key {at}");
            }
            let some = |wanted: bool| {
                let keys = keys.iter().filter(|key| has(key) == wanted);
                keys.map(|&key| parked(key, self.0)).collect::<Vec<_>>()
            };
            assert_eq!(in_place[..ones.count_zeros() as usize], some(false));
            assert_eq!(with[..ones.count_ones() as usize], some(true));
        }
    }

    #[test]
    fn every_kernel_divides_keys_and_keeps_their_order() {
        for bit in 0..31 {
            for kernel in Kernel::available() {
                dispatch(kernel, Divide(bit));
            }
        }
    }

    struct Gather {
        x3: X3Places,
        exclude: usize,
    }

    impl Work for Gather {
        type Result = ();

        /// Sixty-four cells: cell c holds c % 3 * 10 keys.
        #[inline(always)]
        fn run<S: Set>(self, _set: S) {
            let counts = (0..64_u32).map(|cell| cell % 3 * 10);
            let offsets = [0].into_iter().chain(counts.scan(0, |sum, count| {
                *sum += count;
                Some(*sum)
            }));
            let offsets: Vec<u32> = offsets.collect();
            let mut rests: Vec<u32> = (0..offsets[64]).map(|i| random(i) >> 8).collect();
            rests.resize(rests.len() + SLACK, u32::MAX);
            let row = GridRow::new(&rests, &offsets);
            let mut buffer = Buffer::default();
            let plain = row.gather(self.exclude, &mut buffer);
            // SAFETY: a list is readable for its length.
            let plain = unsafe { std::slice::from_raw_parts(plain.start, plain.length) };
            let places = &self.x3.bits[..self.x3.number];
            let parked = |&key: &u32| places.iter().fold(key, |key, &bit| parked(key, bit));
            let mut expected: Vec<u32> = plain.iter().map(parked).collect();
            expected.sort_unstable();

            // Both halves of what a tile wants of the row, as two rows.
            let wanted = row.wanted(self.exclude / TILE, TILE_BITS);
            assert!(row.keys_of(wanted) >= plain.len());
            let Cut { first, others, .. } = row.cut(wanted, row.keys_of(wanted) / 2);
            let halves: Vec<Spans> = [Some(first), others].into_iter().flatten().collect();
            let (mut rows, mut dividing) = (NarrowedRows::default(), Dividing::default());
            rows.clear(row.len());
            for (at, &spans) in halves.iter().enumerate() {
                // SAFETY: spans of this row, for which there is room.
                unsafe { rows.add::<S::Bits>(at, row, spans, self.x3, &mut dividing) };
            }
            let mut found = Vec::new();
            for (at, &spans) in halves.iter().enumerate() {
                // SAFETY: this is how it was made.
                let half = unsafe { rows.row(at, row, spans, self.x3.number) };
                let banded = half.gather(self.exclude % TILE, &mut buffer);
                // SAFETY: as above.
                let list =
                    unsafe { std::slice::from_raw_parts(banded.list.start, banded.list.length) };
                let mut start = 0;
                for (pattern, end) in banded.bands() {
                    for key in &list[start..end] {
                        let on_top = key.unbounded_shr(32 - self.x3.number_u32());
                        assert_eq!(on_top, u32::from(pattern));
                    }
                    start = end;
                }
                found.extend_from_slice(list);
            }
            found.sort_unstable();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn rows_are_gathered_band_by_band() {
        for number in 0..=MOST_BITS {
            for exclude in 0..64 {
                let x3 = X3Places {
                    bits: [3, 7, 20],
                    number,
                };
                for kernel in Kernel::available() {
                    dispatch(kernel, Gather { x3, exclude });
                }
            }
        }
    }
}
