//! Which bits of a key choose its cell in the grid, and on which side.

use super::bands::{Places, X3};

/// Which bits of a key do what: those of `x1` and `x2` choose its cell, the other contested ones are
/// its rest, and some of those its X3. Bits that are not contested, never set in both lists, decide nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    contested: u64,
    x1: u64,
    x2: u64,
    x3: X3,
}

/// How the bits of a rest are looked up in tables, from bit 0 on: `wide` groups of `base` + 1 bits,
/// then groups of `base` bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Groups {
    pub(super) number: usize,
    base: usize,
    wide: usize,
}

impl Groups {
    /// The most rows that the tables of one block have.
    pub(super) const MOST_ROWS: usize = Self::of(u32::MAX).rows();

    /// The groups for rests of so many bits: for long ones, which are rare, one of two choices.
    ///
    /// One group fewer is one look fewer a probe, but more rows: tables that crowd each other out of the
    /// first-level cache are slow to write and to look into.
    pub(super) const fn of(rest_bits: u32) -> Self {
        let (bits, number) = match rest_bits as usize {
            0..=16 => (16, 4),
            bits @ 17..=32 => (bits, bits.div_ceil(5)),
            33..=45 => (45, 9),
            _ => (65, 13),
        };
        let base = bits / number;
        let wide = bits - base * number;
        Self { number, base, wide }
    }

    /// How many of the groups before group `at` are wide.
    const fn wide_before(self, at: usize) -> usize {
        if at < self.wide { at } else { self.wide }
    }

    /// The lowest bit of group `at`.
    pub(super) const fn first_bit(self, at: usize) -> usize {
        self.base * at + self.wide_before(at)
    }

    /// How many bits group `at` has.
    pub(super) const fn bits(self, at: usize) -> usize {
        self.first_bit(at + 1) - self.first_bit(at)
    }

    /// The first row of the table of group `at`: a table has one for each value of the bits.
    pub(super) const fn first_row(self, at: usize) -> usize {
        (at + self.wide_before(at)) << self.base
    }

    /// The rows of all tables.
    pub(super) const fn rows(self) -> usize {
        self.first_row(self.number)
    }
}

/// Which of the two lists a grid holds: the top one is sorted by (X1, X2), the bottom one by
/// (X2, X1), so that one row of either grid shares the pattern that the leaf fixes for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Sorted by (X1, X2).
    Top,
    /// Sorted by (X2, X1).
    Bottom,
}

/// The most bits that choose a cell: an offset table of 64 MiB a list.
const MOST_CELL_BITS: u32 = 24;

/// The most bits of X1 or X2: a row has a counter each while a list is sorted.
pub(super) const MOST_ROW_BITS: u32 = 14;

impl Layout {
    /// One cell for all keys.
    pub(super) fn undivided(contested: u64) -> Self {
        Self {
            contested,
            x1: 0,
            x2: 0,
            x3: X3::default(),
        }
    }

    pub(super) fn with_x1(self, bit: u64) -> Self {
        let x1 = self.x1 | bit;
        Self { x1, ..self }
    }

    pub(super) fn with_x2(self, bit: u64) -> Self {
        let x2 = self.x2 | bit;
        Self { x2, ..self }
    }

    pub(super) fn with_x3(self, x3: X3) -> Self {
        Self { x3, ..self }
    }

    /// The same cells for lists with these contested bits.
    pub(super) fn with_rest_of(self, contested: u64) -> Self {
        Self {
            contested: contested | self.x1 | self.x2 | self.x3.mask(),
            ..self
        }
    }

    /// Bytes for the offsets of one list's cells, at most, when lists have these lengths.
    pub(super) fn most_offset_bytes(top: usize, bottom: usize) -> u64 {
        4 << most_cell_bits(top, bottom)
    }

    /// The bits of a key that are neither left out nor choose its cell.
    pub(super) fn rest(self) -> u64 {
        self.contested & !(self.x1 | self.x2)
    }

    /// Bits of the rest, X3 among them.
    pub(super) fn rest_bits(self) -> u32 {
        self.rest().count_ones()
    }

    /// Whether leaves are large enough somewhere for X3 to be of use.
    pub(super) fn has_x3(self) -> bool {
        self.x3 != X3::default()
    }

    /// Where the first `number` bits of X3 are in a rest.
    pub(super) fn x3_places(self, number: usize) -> Places {
        self.x3.within(self.rest(), number)
    }

    /// Bits of X1.
    pub(super) fn x1_bits(self) -> u32 {
        self.x1.count_ones()
    }

    /// Bits of X2.
    pub(super) fn x2_bits(self) -> u32 {
        self.x2.count_ones()
    }

    /// How a key of one side is taken apart.
    pub(super) fn order(self, side: Side) -> Order {
        let (major, minor) = match side {
            Side::Top => (self.x1, self.x2),
            Side::Bottom => (self.x2, self.x1),
        };
        Order::of_masks(self.contested, major, minor)
    }
}

/// The most bits of a cell for lists of these lengths, so that offset tables stay small beside the
/// keys: one cell for eight of them.
pub(super) fn most_cell_bits(top: usize, bottom: usize) -> usize {
    let bits = ((top + bottom) / 8).max(64).ilog2();
    bits.min(MOST_CELL_BITS) as usize
}

/// How a key is taken apart: its rest, and the major and the minor pattern of its cell.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    pub(super) rest: u64,
    pub(super) minor: u64,
    pub(super) major: u64,
    pub(super) rest_bits: u32,
    pub(super) minor_bits: u32,
    pub(super) major_bits: u32,
}

impl Order {
    /// Of keys whose `contested` bits matter, where these choose the major and the minor pattern.
    pub(super) fn of_masks(contested: u64, major: u64, minor: u64) -> Self {
        let rest = contested & !(major | minor);
        Self {
            rest,
            minor,
            major,
            rest_bits: rest.count_ones(),
            minor_bits: minor.count_ones(),
            major_bits: major.count_ones(),
        }
    }

    /// How many cells there are.
    pub(super) fn cells(self) -> usize {
        1 << (self.major_bits + self.minor_bits)
    }

    /// The order of what is left of keys when these bits of them are moved together, all that it
    /// speaks of among them.
    pub(super) fn within(self, bits: u64) -> Self {
        let moved = |mask| extract(mask, bits);
        Self {
            rest: moved(self.rest),
            minor: moved(self.minor),
            major: moved(self.major),
            ..self
        }
    }

    /// The order of words that are [`Self::sorted`] already.
    pub(super) fn of_sorted(self) -> Self {
        let bits = |number: u32| (1 << number) - 1;
        Self {
            rest: bits(self.rest_bits),
            minor: bits(self.minor_bits) << self.rest_bits,
            major: bits(self.major_bits) << (self.rest_bits + self.minor_bits),
            ..self
        }
    }

    /// The bits of a key in order: the rest lowest, then the minor pattern, then the major one.
    #[inline(always)]
    pub(super) fn sorted(self, key: u64, extract: impl Fn(u64, u64) -> u64) -> u64 {
        extract(key, self.rest)
            | extract(key, self.minor) << self.rest_bits
            | extract(key, self.major) << (self.rest_bits + self.minor_bits)
    }
}

#[cfg(test)]
impl Order {
    /// What sorting by cell must come to: where each cell starts, and the end, and the rests of
    /// `keys` by cell, those of one cell in the order of the list.
    pub(super) fn sort_plainly(self, keys: &[u64]) -> (Vec<u32>, Vec<u64>) {
        let mut sorted: Vec<u64> = keys.iter().map(|&k| self.sorted(k, extract)).collect();
        sorted.sort_by_key(|&key| key >> self.rest_bits);
        let before = |cell: u64| sorted.partition_point(|&key| key >> self.rest_bits < cell);
        let cells = 1 << (self.major_bits + self.minor_bits);
        let offsets = (0..=cells).map(|cell| u32::try_from(before(cell)).unwrap());
        let rest = |key: &u64| key & ((1 << self.rest_bits) - 1);
        (offsets.collect(), sorted.iter().map(rest).collect())
    }
}

/// What a key's bytes contribute to [`Order::sorted`], for CPUs without an instruction for it.
#[derive(Clone, Debug)]
pub(super) struct ByteTables(Box<[[u64; 256]; 8]>);

impl Default for ByteTables {
    fn default() -> Self {
        Self(Box::new([[0; 256]; 8]))
    }
}

impl ByteTables {
    pub(super) fn set(&mut self, order: Order) {
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
    pub(super) fn sorted(&self, key: u64) -> u64 {
        let mut sorted = 0;
        for (byte, table) in key.to_le_bytes().into_iter().zip(self.0.iter()) {
            sorted |= table[usize::from(byte)];
        }
        sorted
    }
}

/// The bits of `word` under `mask`, moved together.
pub(super) fn extract(word: u64, mut mask: u64) -> u64 {
    let (mut bits, mut at) = (0, 0);
    while mask != 0 {
        bits |= (word >> mask.trailing_zeros() & 1) << at;
        mask &= mask - 1;
        at += 1;
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_taken_apart() {
        let layout = Layout {
            contested: 0xff,
            x1: 0b0101_0000,
            x2: 0b0000_1100,
            x3: X3::default(),
        };
        let order = layout.order(Side::Top);
        assert_eq!(order.sorted(0b0001_1011, extract), 0b0110_0011);
        let turned = layout.order(Side::Bottom);
        assert_eq!(turned.sorted(0b0001_1011, extract), 0b1001_0011);
        let mut tables = ByteTables::default();
        tables.set(order);
        for key in 0..256 {
            assert_eq!(tables.sorted(key), order.sorted(key, extract), "{key}");
        }
    }

    #[test]
    fn groups_hold_all_bits_in_tables_side_by_side() {
        for rest_bits in 0..=62 {
            let groups = Groups::of(rest_bits);
            let (mut bit, mut row) = (0, 0);
            for at in 0..groups.number {
                assert_eq!(groups.first_bit(at), bit, "{rest_bits} bits, group {at}");
                assert_eq!(groups.first_row(at), row, "{rest_bits} bits, group {at}");
                assert!(
                    (4..=5).contains(&groups.bits(at)),
                    "{rest_bits} bits, group {at}"
                );
                bit += groups.bits(at);
                row += 1 << groups.bits(at);
            }
            assert!(bit >= rest_bits as usize, "{rest_bits} bits");
            assert_eq!(groups.rows(), row, "{rest_bits} bits");
            assert!(row <= Groups::MOST_ROWS, "{rest_bits} bits");
        }
    }
}
