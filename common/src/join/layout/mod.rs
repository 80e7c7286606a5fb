//! Roles of the bits of a key: cell, residual key, X3 and table group.

pub(crate) mod choose;

use super::interface::Side;
use crate::{
    compute::kernel::{Kernel, KernelName},
    simd::{Lanes, Residual},
};

/// Roles of the bits of a key.
///
/// `x1` and `x2` choose its cell; the other shared bits are its residual key, and some of those its X3.
/// Bits that are not shared are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyLayout {
    shared_bits: u64,
    x1: u64,
    x2: u64,
    x3: X3,
}

/// Maximum bits of a cell: an offset table of 64 MiB per list.
const MAX_CELL_BITS: u32 = 24;

/// Maximum bits of X1 or X2: each row has a counter while a list is sorted.
pub(crate) const MAX_ROW_BITS: u32 = 14;

impl KeyLayout {
    /// Returns a layout with a single cell.
    pub(crate) fn undivided(shared_bits: u64) -> Self {
        Self { shared_bits, x1: 0, x2: 0, x3: X3::default() }
    }

    /// Returns these cells for lists with other shared bits, without X3.
    pub(crate) fn with_shared_bits(self, bits: u64) -> Self {
        Self { x1: self.x1 & bits, x2: self.x2 & bits, ..Self::undivided(bits) }
    }

    /// Returns the shared bits that do not choose a cell.
    pub(crate) fn residual(self) -> u64 {
        self.shared_bits & !(self.x1 | self.x2)
    }

    pub(crate) fn residual_bits(self) -> u32 {
        self.residual().count_ones()
    }

    /// Returns whether bits were chosen for X3.
    pub(crate) fn has_x3(self) -> bool {
        self.x3 != X3::default()
    }

    /// Returns the places of the first `number` bits of X3 in a residual key.
    pub(crate) fn x3_places(self, number: usize) -> X3Places {
        self.x3.within(self.residual(), number)
    }

    pub(crate) fn cell_bits(self) -> usize {
        (self.x1_bits() + self.x2_bits()) as usize
    }

    pub(crate) fn x1_bits(self) -> u32 {
        self.x1.count_ones()
    }

    pub(crate) fn x2_bits(self) -> u32 {
        self.x2.count_ones()
    }

    /// Returns how keys of one side are split.
    pub(crate) fn order(self, side: Side) -> Order {
        let (major, minor) = match side {
            Side::Top => (self.x1, self.x2),
            Side::Bottom => (self.x2, self.x1),
        };
        Order::of_masks(self.shared_bits, major, minor)
    }
}

/// Returns the maximum bits of a cell: one cell per eight keys, for small tables.
pub(crate) fn max_cell_bits(top: usize, bottom: usize) -> usize {
    let bits = (top.saturating_add(bottom) / 8).max(64).ilog2();
    bits.min(MAX_CELL_BITS) as usize
}

/// Maximum bits of X3.
pub(crate) const MAX_X3_BITS: usize = 3;

/// Minimum numbers of pairs for banded leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BandLimits {
    /// Pairs of keys of both lists.
    pub(crate) join: u64,
    /// Pairs of average rows of a tile, for one, two and three bits of X3.
    ///
    /// A leaf has about a fifth of these pairs.
    pub(crate) tile: [u64; MAX_X3_BITS],
}

impl BandLimits {
    /// Fitted on an Intel Xeon (Cascade Lake).
    ///
    /// With a half and a quarter of these, frames of N = 24 to 28 take up to 1.5 and 3.5 % longer.
    pub(crate) const MEASURED: Self =
        Self { join: 1_000_000_000_000, tile: [24_000_000, 24_000_000, 100_000_000] };

    /// Returns the number of X3 bits for a tile with this many pairs.
    #[inline(always)]
    pub(crate) fn bits(self, pairs: u64) -> usize {
        self.tile.iter().filter(|&&limit| pairs >= limit).count()
    }
}

/// Thresholds of the optimizations, and bounds on the memory of a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JoinLimits {
    /// Thresholds of banded leaves.
    pub(crate) bands: BandLimits,
    /// Maximum pairs that one thread joins alone.
    pub(crate) max_pairs_alone: u64,
    /// Maximum bytes of a row gathered at a time, unless a few cells have more.
    pub(crate) row_bytes: usize,
    /// Bytes for a tile's prefiltered rows of one grid; 0 for none.
    pub(crate) prefilter_bytes: usize,
    /// Minimum pattern bits beyond a tile's for prefiltering.
    ///
    /// With fewer, filtering per tile takes little time.
    pub(crate) min_far_bits: u32,
    /// Minimum stretches per member for prefiltering.
    ///
    /// With fewer, members would finish at different times.
    pub(crate) min_stretches: usize,
}

/// Bits of X3, those that rule out most pairs first; zeros at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct X3([u64; MAX_X3_BITS]);

impl X3 {
    /// Takes the first of these bits.
    pub(crate) fn new(bits: impl Iterator<Item = u64>) -> Self {
        let mut x3 = Self::default();
        for (to, bit) in x3.0.iter_mut().zip(bits) {
            *to = bit;
        }
        x3
    }

    /// Returns the places of the first `number` bits within the bits `residual`.
    pub(crate) fn within(self, residual: u64, number: usize) -> X3Places {
        let first = self.0[..number].iter().fold(0, |first, bit| first | bit);
        let mut remaining = extract(first, residual);
        let mut places = X3Places::default();
        while remaining != 0 {
            // Earlier bits, which moved to the top, were below this one.
            places.bits[places.number] = (remaining >> places.number).trailing_zeros();
            places.number += 1;
            remaining &= remaining - 1;
        }
        places
    }
}

/// Places of X3 bits in a residual key, each after earlier ones moved to the top.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct X3Places {
    pub(crate) bits: [u32; MAX_X3_BITS],
    pub(crate) number: usize,
}

/// Masks that split keys into residual key, major pattern and minor pattern.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    pub(crate) residual: u64,
    pub(crate) minor: u64,
    pub(crate) major: u64,
    pub(crate) residual_bits: u32,
    pub(crate) minor_bits: u32,
    pub(crate) major_bits: u32,
}

impl Order {
    /// Builds the order from the shared bits and the masks of both patterns.
    pub(crate) fn of_masks(shared_bits: u64, major: u64, minor: u64) -> Self {
        let residual = shared_bits & !(major | minor);
        Self {
            residual,
            minor,
            major,
            residual_bits: residual.count_ones(),
            minor_bits: minor.count_ones(),
            major_bits: major.count_ones(),
        }
    }

    pub(crate) fn cells(self) -> usize {
        1 << (self.major_bits + self.minor_bits)
    }

    /// Returns the order of words that are [`Self::sorted`] already.
    pub(crate) fn of_sorted(self) -> Self {
        let bits = |number: u32| (1 << number) - 1;
        Self {
            residual: bits(self.residual_bits),
            minor: bits(self.minor_bits) << self.residual_bits,
            major: bits(self.major_bits) << (self.residual_bits + self.minor_bits),
            ..self
        }
    }

    /// Arranges a key: residual key lowest, then minor pattern, then major pattern.
    #[inline(always)]
    pub(crate) fn sorted(self, key: u64, extract: impl Fn(u64, u64) -> u64) -> u64 {
        extract(key, self.residual)
            | extract(key, self.minor) << self.residual_bits
            | extract(key, self.major) << (self.residual_bits + self.minor_bits)
    }
}

/// Splits keys with the CPU's instruction, or with tables if it has none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeySplit<'a> {
    pub(crate) kernel: Kernel,
    /// Order of the words that [`Self::word`] returns.
    pub(crate) order: Order,
    tables: &'a ByteTables,
}

/// Returns whether [`Lanes::extract`] is one instruction of this kernel.
pub(crate) fn extracts(kernel: Kernel) -> bool {
    match kernel.name() {
        KernelName::Avx2 | KernelName::Avx512 => true,
        KernelName::Scalar | KernelName::Neon | KernelName::Simd128 | KernelName::OpenCl => false,
    }
}

impl<'a> KeySplit<'a> {
    /// Creates a split for the kernel; `tables` must be set if it needs them.
    pub(crate) fn new(kernel: Kernel, order: Order, tables: &'a ByteTables) -> Self {
        let order = if extracts(kernel) { order } else { order.of_sorted() };
        Self { kernel, order, tables }
    }

    /// Arranges the bits of a key for fast extraction.
    #[inline(always)]
    pub(crate) fn word<L: Lanes>(self, key: u64) -> u64 {
        if L::EXTRACTS { key } else { self.tables.sorted(key) }
    }

    #[inline(always)]
    pub(crate) fn major<L: Lanes>(self, key: u64) -> u64 {
        L::extract(self.word::<L>(key), self.order.major)
    }

    #[inline(always)]
    pub(crate) fn minor<L: Lanes>(self, key: u64) -> u64 {
        L::extract(self.word::<L>(key), self.order.minor)
    }

    #[inline(always)]
    pub(crate) fn residual<L: Lanes, W: Residual>(self, key: u64) -> W {
        W::new(L::extract(self.word::<L>(key), self.order.residual))
    }
}

/// Contribution of each byte to [`Order::sorted`], for CPUs without `pext`.
#[derive(Clone, Debug)]
pub(crate) struct ByteTables(Box<[[u64; 256]; 8]>);

impl Default for ByteTables {
    fn default() -> Self {
        Self(Box::new([[0; 256]; 8]))
    }
}

impl ByteTables {
    pub(crate) fn set(&mut self, order: Order) {
        for (byte, table) in (0_u32..).zip(self.0.iter_mut()) {
            for value in 1..256_usize {
                let lowest = value & value.wrapping_neg();
                table[value] = if value == lowest {
                    order.sorted((value as u64) << (8 * byte), extract)
                } else {
                    table[lowest] | table[value ^ lowest]
                };
            }
        }
    }

    #[inline(always)]
    pub(crate) fn sorted(&self, key: u64) -> u64 {
        let mut sorted = 0;
        for (byte, table) in key.to_le_bytes().into_iter().zip(self.0.iter()) {
            sorted |= table[usize::from(byte)];
        }
        sorted
    }
}

/// Returns the bits of `word` under `mask`, moved together at the low end.
pub(crate) fn extract(word: u64, mut mask: u64) -> u64 {
    let (mut bits, mut at) = (0, 0);
    while mask != 0 {
        bits |= (word >> mask.trailing_zeros() & 1) << at;
        mask &= mask - 1;
        at += 1;
    }
    bits
}

/// Table groups of a residual key, from bit 0 on.
///
/// The first `wide` groups have `base` + 1 bits, the others `base` bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Groups {
    pub(crate) number: usize,
    base: usize,
    wide: usize,
}

impl Groups {
    /// Maximum rows of one block's tables.
    pub(crate) const MAX_ROWS: usize = Self::of(u32::MAX).rows();

    /// Returns the groups for residual keys of `residual_bits` bits.
    ///
    /// Long residual keys are rare and share two choices.
    /// One group fewer saves a lookup per probe but needs more rows, and tables that exceed the
    /// first-level cache are slow.
    pub(crate) const fn of(residual_bits: u32) -> Self {
        let (bits, number) = match residual_bits as usize {
            0..=16 => (16, 4),
            bits @ 17..=32 => (bits, bits.div_ceil(5)),
            33..=45 => (45, 9),
            _ => (65, 13),
        };
        let base = bits / number;
        let wide = bits - base * number;
        Self { number, base, wide }
    }

    const fn wide_before(self, at: usize) -> usize {
        if at < self.wide { at } else { self.wide }
    }

    /// Returns the lowest bit of group `at`.
    pub(crate) const fn first_bit(self, at: usize) -> usize {
        self.base * at + self.wide_before(at)
    }

    pub(crate) const fn bits(self, at: usize) -> usize {
        self.first_bit(at + 1) - self.first_bit(at)
    }

    /// Returns the first row of group `at`, which has a row per value of its bits.
    pub(crate) const fn first_row(self, at: usize) -> usize {
        (at + self.wide_before(at)) << self.base
    }

    /// Returns the rows of all tables.
    pub(crate) const fn rows(self) -> usize {
        self.first_row(self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_account_for_the_bits_that_moved_to_the_top() {
        let x3 = X3([1 << 9, 1 << 2, 1 << 4]);
        for (number, expected) in [(0, &[][..]), (1, &[7]), (2, &[1, 6]), (3, &[1, 1, 5])] {
            let places = x3.within(0b11_1111_0110, number);
            assert_eq!(&places.bits[..places.number], expected);
        }
    }

    #[test]
    fn groups_hold_all_bits_in_tables_side_by_side() {
        for residual_bits in 0..=62 {
            let groups = Groups::of(residual_bits);
            let (mut bit, mut row) = (0, 0);
            for at in 0..groups.number {
                assert_eq!(groups.first_bit(at), bit, "{residual_bits} bits, group {at}");
                assert_eq!(groups.first_row(at), row, "{residual_bits} bits, group {at}");
                assert!((4..=5).contains(&groups.bits(at)), "{residual_bits} bits, group {at}");
                bit += groups.bits(at);
                row += 1 << groups.bits(at);
            }
            assert!(bit >= residual_bits as usize, "{residual_bits} bits");
            assert_eq!(groups.rows(), row, "{residual_bits} bits");
            assert!(row <= Groups::MAX_ROWS, "{residual_bits} bits");
        }
    }
}
