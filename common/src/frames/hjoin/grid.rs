//! The two-sided grid: a list of keys sorted by the patterns of its most contested bits.

use super::{
    gather::{Row, SLACK},
    lanes::Lanes,
    layout::{ByteTables, Order},
    split,
};

/// The rest bits of a key: four bytes where they suffice, eight otherwise.
pub(super) trait Rest: Copy + Default {
    /// 32-bit words in a rest.
    const WORDS: usize;

    /// The low bits of `bits`, which has no others.
    fn new(bits: u64) -> Self;

    /// The value of the `BITS` bits from bit `from` on.
    fn field<const BITS: usize>(self, from: usize) -> usize;

    /// All bits.
    fn bits(self) -> u64;

    /// Word `at` of the rest, the lowest first.
    fn word(self, at: usize) -> u32;
}

impl Rest for u32 {
    const WORDS: usize = 1;

    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the caller's layout leaves 32 bits"
    )]
    fn new(bits: u64) -> Self {
        bits as Self
    }

    #[inline(always)]
    fn field<const BITS: usize>(self, from: usize) -> usize {
        (self >> from) as usize & ((1 << BITS) - 1)
    }

    #[inline(always)]
    fn bits(self) -> u64 {
        self.into()
    }

    #[inline(always)]
    fn word(self, _at: usize) -> u32 {
        self
    }
}

impl Rest for u64 {
    const WORDS: usize = 2;

    #[inline(always)]
    fn new(bits: u64) -> Self {
        bits
    }

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "a few bits are wanted")]
    fn field<const BITS: usize>(self, from: usize) -> usize {
        (self >> from) as usize & ((1 << BITS) - 1)
    }

    #[inline(always)]
    fn bits(self) -> u64 {
        self
    }

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "one word is wanted")]
    fn word(self, at: usize) -> u32 {
        (self >> (32 * at)) as u32
    }
}

/// A list sorted by cell.
#[derive(Debug, Default)]
pub(super) struct Grid<W> {
    /// Cell c holds the rests `offsets[c]..offsets[c + 1]`.
    offsets: Vec<u32>,
    /// All rests by cell, then [`SLACK`] more.
    rests: Vec<W>,
}

/// Memory that sorting a list takes for a while.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// Keys by row, their bits in [`Order::sorted`] order.
    by_row: Vec<u64>,
    /// Where the next key of each row goes, and in the end, where the row ends.
    ends: Vec<u32>,
    split: split::Scratch,
}

/// From this many cells on, a list is sorted by rows first, and then every row on its own in the
/// caches.
const MANY_CELLS: usize = 1 << 16;

/// Takes keys apart, with the CPU's instruction for it or by tables.
#[derive(Clone, Copy)]
pub(super) struct Apart<'a> {
    pub(super) order: Order,
    pub(super) tables: &'a ByteTables,
}

impl Apart<'_> {
    #[inline(always)]
    pub(super) fn sorted<L: Lanes>(self, key: u64) -> u64 {
        if L::EXTRACTS {
            self.order.sorted(key, L::extract)
        } else {
            self.tables.sorted(key)
        }
    }

    /// The row and the cell's place in it, and the rest.
    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a layout has at most 2^28 cells"
    )]
    pub(super) fn cell(self, sorted: u64) -> usize {
        (sorted >> self.order.rest_bits) as usize
    }

    /// The cell alone, of a key as it came.
    #[inline(always)]
    fn cell_of<L: Lanes>(self, key: u64) -> usize {
        if L::EXTRACTS {
            let minor = L::extract(key, self.order.minor) << self.order.rest_bits;
            let above = self.order.rest_bits + self.order.minor_bits;
            self.cell(minor | L::extract(key, self.order.major) << above)
        } else {
            self.cell(self.tables.sorted(key))
        }
    }

    /// The row alone, of a key as it came.
    #[inline(always)]
    fn row<L: Lanes>(self, key: u64) -> usize {
        if L::EXTRACTS {
            self.cell(L::extract(key, self.order.major) << self.order.rest_bits)
        } else {
            self.cell(self.tables.sorted(key)) >> self.order.minor_bits
        }
    }

    #[inline(always)]
    pub(super) fn rest<W: Rest>(self, sorted: u64) -> W {
        W::new(sorted & ((1 << self.order.rest_bits) - 1))
    }
}

impl<W: Rest> Grid<W> {
    /// Sorts `keys`, at most `u32::MAX` of them, into cells.
    #[inline(always)]
    pub(super) fn fill<L: Lanes>(
        &mut self,
        (order, tables): (Order, &ByteTables),
        keys: &[u64],
        scratch: &mut Scratch,
    ) {
        let apart = Apart { order, tables };
        let cells = 1 << (order.major_bits + order.minor_bits);
        self.offsets.resize(cells + 1, 0);
        self.offsets[0] = 0;
        if self.rests.len() < keys.len() + SLACK {
            self.rests.resize(keys.len() + SLACK, W::default());
        }
        if L::SPLITS && split::pays(cells, keys.len()) {
            let to = (&mut self.offsets[..], &mut self.rests[..]);
            // SAFETY: the kernel that got us here proves the instruction set.
            unsafe { split::sort::<L, W>(order, keys, to, &mut scratch.split) };
        } else if cells < MANY_CELLS {
            self.fill_cells::<L>(apart, keys);
        } else {
            self.fill_rows::<L>(apart, keys, scratch);
        }
    }

    /// Sorts in one step.
    #[inline(always)]
    fn fill_cells<L: Lanes>(&mut self, apart: Apart<'_>, keys: &[u64]) {
        // Counts, then where the next key of each cell goes, and when all are placed, where each
        // cell ends: which is why it starts at offset 1.
        let next = &mut self.offsets[1..];
        count(next, keys.iter().map(|&key| apart.cell_of::<L>(key)));
        for &key in keys {
            let sorted = apart.sorted::<L>(key);
            let next = &mut next[apart.cell(sorted)];
            self.rests[*next as usize] = apart.rest(sorted);
            *next += 1;
        }
    }

    /// Sorts by rows, then the keys of each row by cells.
    #[inline(always)]
    fn fill_rows<L: Lanes>(&mut self, apart: Apart<'_>, keys: &[u64], scratch: &mut Scratch) {
        if scratch.by_row.len() < keys.len() {
            scratch.by_row.resize(keys.len(), 0);
        }
        scratch.ends.resize(1 << apart.order.major_bits, 0);
        let Scratch { by_row, ends, .. } = scratch;
        count(ends, keys.iter().map(|&key| apart.row::<L>(key)));
        for &key in keys {
            let sorted = apart.sorted::<L>(key);
            let next = &mut ends[apart.cell(sorted) >> apart.order.minor_bits];
            by_row[*next as usize] = sorted;
            *next += 1;
        }
        let columns = 1 << apart.order.minor_bits;
        let in_row = |sorted: u64| apart.cell(sorted) & (columns - 1);
        let mut start = 0;
        for (cells, &end) in self.offsets[1..].chunks_exact_mut(columns).zip(&*ends) {
            let keys = &by_row[start as usize..end as usize];
            count(cells, keys.iter().map(|&sorted| in_row(sorted)));
            for &sorted in keys {
                let next = &mut cells[in_row(sorted)];
                self.rests[(start + *next) as usize] = apart.rest(sorted);
                *next += 1;
            }
            for cell in cells {
                *cell += start;
            }
            start = end;
        }
    }

    /// Forgets the keys.
    pub(super) fn clear(&mut self) {
        self.offsets.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.offsets.last().is_none_or(|&keys| keys == 0)
    }

    /// The row of major pattern `major`, whose minor patterns have `minor_bits` bits: as the grid
    /// was filled.
    #[inline(always)]
    pub(super) fn row(&self, major: usize, minor_bits: u32) -> Row<'_, W> {
        let offsets = &self.offsets[major << minor_bits..=(major + 1) << minor_bits];
        Row::new(&self.rests, offsets)
    }
}

/// Sets `starts` to where each place's keys start, when sorted by place.
#[inline(always)]
fn count(starts: &mut [u32], places: impl Iterator<Item = usize>) {
    starts.fill(0);
    for place in places {
        starts[place] += 1;
    }
    let mut sum = 0;
    for start in starts {
        sum += std::mem::replace(start, sum);
    }
}
