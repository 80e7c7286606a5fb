//! Which bits of a key choose its cell in the grid, and on which side.

use super::{
    order::Order,
    x3::{X3, X3Places},
};

/// Which bits of a key do what: those of `x1` and `x2` choose its cell, the other contested ones are
/// its rest, and some of those its X3. Bits that are not contested, never set in both lists, decide nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyLayout {
    contested: u64,
    x1: u64,
    x2: u64,
    x3: X3,
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
pub(crate) const MOST_ROW_BITS: u32 = 14;

impl KeyLayout {
    /// One cell for all keys.
    pub(crate) fn undivided(contested: u64) -> Self {
        Self {
            contested,
            x1: 0,
            x2: 0,
            x3: X3::default(),
        }
    }

    pub(crate) fn with_x1(self, bit: u64) -> Self {
        let x1 = self.x1 | bit;
        Self { x1, ..self }
    }

    pub(crate) fn with_x2(self, bit: u64) -> Self {
        let x2 = self.x2 | bit;
        Self { x2, ..self }
    }

    pub(crate) fn with_x3(self, x3: X3) -> Self {
        Self { x3, ..self }
    }

    /// Bytes for the offsets of one list's cells, at most, when lists have these lengths.
    pub(crate) fn most_offset_bytes(top: usize, bottom: usize) -> u64 {
        4 << most_cell_bits(top, bottom)
    }

    /// The bits of a key that are neither left out nor choose its cell.
    pub(crate) fn rest(self) -> u64 {
        self.contested & !(self.x1 | self.x2)
    }

    /// Bits of the rest, X3 among them.
    pub(crate) fn rest_bits(self) -> u32 {
        self.rest().count_ones()
    }

    /// Whether leaves are large enough somewhere for X3 to be of use.
    pub(crate) fn has_x3(self) -> bool {
        self.x3 != X3::default()
    }

    /// Where the first `number` bits of X3 are in a rest.
    pub(crate) fn x3_places(self, number: usize) -> X3Places {
        self.x3.within(self.rest(), number)
    }

    /// Bits of X1.
    pub(crate) fn x1_bits(self) -> u32 {
        self.x1.count_ones()
    }

    /// Bits of X2.
    pub(crate) fn x2_bits(self) -> u32 {
        self.x2.count_ones()
    }

    /// How a key of one side is taken apart.
    pub(crate) fn order(self, side: Side) -> Order {
        let (major, minor) = match side {
            Side::Top => (self.x1, self.x2),
            Side::Bottom => (self.x2, self.x1),
        };
        Order::of_masks(self.contested, major, minor)
    }
}

/// The most bits of a cell for lists of these lengths, so that offset tables stay small beside the
/// keys: one cell for eight of them.
pub(crate) fn most_cell_bits(top: usize, bottom: usize) -> usize {
    let bits = ((top + bottom) / 8).max(64).ilog2();
    bits.min(MOST_CELL_BITS) as usize
}
