//! Bands: a leaf's two lists are sorted by X3, the bits that rule out most of the pairs that meet in
//! leaves. Keys whose patterns of X3 have a bit in common lie side by side then, so that whole blocks
//! of them are passed over; and X3 need not be looked up in tables.
//!
//! The rows of a tile are sorted when they are narrowed, once for all leaves of the tile. Where
//! leaves are small this costs more than it saves, so a tile uses as many bits of X3 as its leaves
//! are large.

use super::gather::{Buffer, GridRow, List, TILE};
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
    others: Option<&'a Bands<W>>,
    x3_bits: usize,
}

/// Memory for a row's bands, by pattern.
#[derive(Debug, Default)]
pub(crate) struct Bands<W> {
    buffers: [Buffer<W>; MOST_BANDS],
    offsets: [[u32; TILE + 1]; MOST_BANDS],
}

/// For every 16 keys that were divided, how many before them have the bit, and which of them.
pub(crate) type Marks = Vec<(u32, u16)>;

/// Keys that are divided at a time.
const AT_A_TIME: usize = 16;

impl<W: Rest> Bands<W> {
    /// The keys of a row that a tile needs, as [`GridRow::narrow`] finds them, sorted by the bits of X3 at
    /// these places.
    #[inline(always)]
    pub(crate) fn narrow<'b, 'a: 'b, L: Lanes>(
        &'b mut self,
        row: GridRow<'a, W>,
        exclude: usize,
        low_bits: u32,
        x3: X3Places,
        marks: &mut Marks,
    ) -> BandedRow<'b, W> {
        if x3.number == 0 {
            let first = row.narrow(
                exclude,
                low_bits,
                &mut self.offsets[0],
                &mut self.buffers[0],
            );
            return BandedRow {
                first,
                others: None,
                x3_bits: 0,
            };
        }
        let mut starts = [0; TILE + 1];
        let narrowed = row.narrow(exclude, low_bits, &mut starts, &mut self.buffers[0]);
        narrowed.offsets_from_zero(&mut self.offsets[0]);
        let (cells, narrowed) = (narrowed.number_of_cells(), narrowed.list());
        for (step, &bit) in x3.bits[..x3.number].iter().enumerate() {
            for band in 0..1 << step {
                let keys = if step == 0 {
                    narrowed
                } else {
                    self.buffers[band].list()
                };
                // SAFETY: these are the keys that the band's offsets are of, and can be spared as many
                // after them.
                unsafe { self.divide::<L>(keys, cells, bit, band, band | 1 << step, marks) };
            }
        }
        BandedRow {
            first: GridRow::new(self.buffers[0].rests(), &self.offsets[0][..=cells]),
            others: Some(self),
            x3_bits: x3.number,
        }
    }

    /// Divides `keys`, whose cells band `without` has the offsets of, into the bands `without` and
    /// `with`.
    ///
    /// # Safety
    /// So many keys are readable, and as many more as a buffer has to spare.
    #[inline(always)]
    unsafe fn divide<L: Lanes>(
        &mut self,
        keys: List<W>,
        cells: usize,
        bit: u32,
        without: usize,
        with: usize,
        marks: &mut Marks,
    ) {
        // The keys may be those of the buffer that has room for them already.
        let to_without = self.buffers[without].room(keys.length);
        let to_with = self.buffers[with].room(keys.length);
        let groups = keys.length / AT_A_TIME + 1;
        if marks.len() < groups {
            marks.resize(groups, (0, 0));
        }
        let (mut clear, mut set) = (0, 0);
        for (at, mark) in marks[..groups].iter_mut().enumerate() {
            // SAFETY: what is written in place was read before; all lists have some to spare.
            let ones = unsafe {
                L::divide(Sixteen {
                    keys: keys.start.add(AT_A_TIME * at).cast(),
                    bit,
                    without: to_without.add(clear).cast(),
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
        for band in [without, with] {
            self.buffers[band].set_len(self.offsets[band][cells] as usize);
        }
    }
}

#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "a row is part of a grid of 2^31 keys"
)]
fn offset(keys: usize) -> u32 {
    keys as u32
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
            Some(bands) if pattern > 0 => {
                let band = usize::from(pattern);
                let offsets = &bands.offsets[band][..=self.first.number_of_cells()];
                GridRow::new(bands.buffers[band].rests(), offsets)
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
        frames::hjoin::grid::gather::SLACK,
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

            let mut bands = Bands::default();
            let high = self.exclude / TILE;
            assert!(row.narrowed_len(high, 4) >= plain.len());
            let row = bands.narrow::<S::Bits>(row, high, 4, self.x3, &mut Marks::new());
            let mut buffer = Buffer::default();
            let banded = row.gather(self.exclude % TILE, &mut buffer);
            // SAFETY: as above.
            let found =
                unsafe { std::slice::from_raw_parts(banded.list.start, banded.list.length) };
            let mut start = 0;
            for (pattern, end) in banded.bands() {
                for key in &found[start..end] {
                    let on_top = key.unbounded_shr(32 - self.x3.number_u32());
                    assert_eq!(on_top, u32::from(pattern));
                }
                start = end;
            }
            let mut found = found.to_vec();
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
