//! The two-sided grid: a list of keys sorted by the patterns of its most contested bits.

/// Which bits of a key do what: bits 0, 2, 4, … of the lowest `cell_bits` are X1, bits 1, 3, 5, …
/// of them are X2, and the others are the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    cell_bits: u32,
    rest_bits: u32,
}

/// The most bits that choose a cell: an offset table of 64 MiB a list.
const MOST_CELL_BITS: u32 = 24;

/// Rest bits that are cheapest in the leaves once lists are long.
const BEST_REST_BITS: u32 = 30;

impl Layout {
    /// The layout for keys of `key_bits` bits in lists of these lengths.
    ///
    /// Each pair of cell bits divides a leaf's two buffers by about 2.67 each (a bit of a half
    /// board is set half of the time: the pattern fixes one bit and forbids the other half of the
    /// time), and leaves of several hundred keys are the most efficient ones.
    pub(super) fn new(key_bits: u32, top: usize, bottom: usize) -> Self {
        let mut cell_bits = 0;
        let mut leaf = top.min(bottom) / 700;
        while leaf > 0 {
            cell_bits += 2;
            leaf = leaf * 3 / 8;
        }
        let most = key_bits.saturating_sub(BEST_REST_BITS).min(MOST_CELL_BITS);
        let cell_bits = cell_bits.min(most);
        Self {
            cell_bits,
            rest_bits: key_bits - cell_bits,
        }
    }

    pub(super) fn rest_bits(self) -> u32 {
        self.rest_bits
    }

    /// Bits of X1.
    pub(super) fn x1_bits(self) -> u32 {
        self.cell_bits.div_ceil(2)
    }

    /// Bits of X2.
    pub(super) fn x2_bits(self) -> u32 {
        self.cell_bits / 2
    }

    pub(super) fn cells(self) -> usize {
        1 << self.cell_bits
    }

    /// The patterns (X1, X2) of a key, or of a code that walks over all of them.
    #[inline(always)]
    pub(super) fn patterns(self, key: u64) -> (usize, usize) {
        let cell = key & ((1 << self.cell_bits) - 1);
        (even_bits(cell), even_bits(cell >> 1))
    }

    #[inline(always)]
    fn cell(self, side: Side, key: u64) -> usize {
        let (x1, x2) = self.patterns(key);
        match side {
            Side::Top => x1 << self.x2_bits() | x2,
            Side::Bottom => x2 << self.x1_bits() | x1,
        }
    }
}

/// Bits 0, 2, 4, … of the lowest 32, moved together.
#[inline(always)]
fn even_bits(word: u64) -> usize {
    let mut bits = word & 0x5555_5555;
    bits = (bits | bits >> 1) & 0x3333_3333;
    bits = (bits | bits >> 2) & 0x0f0f_0f0f;
    bits = (bits | bits >> 4) & 0x00ff_00ff;
    bits = (bits | bits >> 8) & 0xffff;
    // At most 16 bits are left.
    #[expect(clippy::cast_possible_truncation)]
    let bits = bits as usize;
    bits
}

/// Which of the two lists a grid holds: the top one is sorted by (X1, X2), the bottom one by
/// (X2, X1), so that one row of either grid shares the pattern that the leaf fixes for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Top,
    Bottom,
}

/// The rest bits of a key: four bytes where they suffice, eight otherwise.
pub(super) trait Rest: Copy + Default {
    /// 32-bit words in a rest.
    const WORDS: usize;

    /// The low bits of `bits`, which has no others.
    fn new(bits: u64) -> Self;

    /// The value of the six bits from bit `from` on.
    fn six_bits(self, from: usize) -> usize;

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
    fn six_bits(self, from: usize) -> usize {
        (self >> from) as usize & 63
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
    #[expect(clippy::cast_possible_truncation, reason = "masked to six bits")]
    fn six_bits(self, from: usize) -> usize {
        (self >> from) as usize & 63
    }

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "one word is wanted")]
    fn word(self, at: usize) -> u32 {
        (self >> (32 * at)) as u32
    }
}

/// Rests readable past the end of any slice of a grid or a gathered buffer: leaves read whole
/// blocks and mask off what they should not see.
pub(super) const SLACK: usize = 512;

/// A list sorted by cell.
#[derive(Debug, Default)]
pub(super) struct Grid<W> {
    /// Cell c holds the rests `offsets[c]..offsets[c + 1]`.
    offsets: Vec<u32>,
    /// All rests by cell, then [`SLACK`] more.
    rests: Vec<W>,
    longest_row: usize,
}

/// A buffer that one row's compatible cells are gathered into.
#[derive(Debug, Default)]
pub(super) struct Gathered<W>(Vec<W>);

impl<W: Rest> Grid<W> {
    /// Sorts `keys`, at most `u32::MAX` of them, into the cells of `layout`.
    #[inline(always)]
    pub(super) fn fill(&mut self, layout: Layout, side: Side, keys: &[u64]) {
        let cells = layout.cells();
        self.offsets.clear();
        self.offsets.resize(cells + 2, 0);
        // Two places ahead: after the prefix sums below, `offsets[c + 1]` is where cell c starts,
        // and once its keys are placed, where it ends.
        let starts = &mut self.offsets[1..];
        for &key in keys {
            let cell = layout.cell(side, key);
            starts[cell + 1] += 1;
        }
        let mut sum = 0;
        for start in starts.iter_mut() {
            sum += *start;
            *start = sum;
        }
        if self.rests.len() < keys.len() + SLACK {
            self.rests.resize(keys.len() + SLACK, W::default());
        }
        for &key in keys {
            let start = &mut starts[layout.cell(side, key)];
            self.rests[*start as usize] = W::new(key >> layout.cell_bits);
            *start += 1;
        }
        self.measure_rows(layout, side);
    }

    /// Forgets the keys.
    pub(super) fn clear(&mut self) {
        self.offsets.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.offsets.last().is_none_or(|&keys| keys == 0)
    }

    /// Whether no key has the major pattern `row`.
    #[inline(always)]
    pub(super) fn row_is_empty(&self, row: usize, minor_bits: u32) -> bool {
        self.offsets[row << minor_bits] == self.offsets[(row + 1) << minor_bits]
    }

    fn measure_rows(&mut self, layout: Layout, side: Side) {
        let row = 1
            << match side {
                Side::Top => layout.x2_bits(),
                Side::Bottom => layout.x1_bits(),
            };
        let ends = self.offsets[..=layout.cells()].iter().step_by(row);
        let lengths = ends
            .clone()
            .zip(ends.skip(1))
            .map(|(start, end)| (end - start) as usize);
        self.longest_row = lengths.max().unwrap_or(0);
    }

    /// Room in `buffer` for any row of this grid.
    pub(super) fn reserve(&self, buffer: &mut Gathered<W>) {
        let room = self.longest_row + SLACK;
        if buffer.0.len() < room {
            buffer.0.resize(room, W::default());
        }
    }

    /// The rests in the cells of row `row` whose minor pattern, of `minor_bits` bits, has no bit in
    /// common with `exclude`; followed by [`SLACK`] readable ones.
    ///
    /// # Safety
    /// `row` and `minor_bits` are of the layout that the grid was filled with, and `buffer` was
    /// given room by [`Self::reserve`] since.
    #[inline(always)]
    pub(super) unsafe fn gather(
        &self,
        (row, minor_bits): (usize, u32),
        exclude: usize,
        buffer: &mut Gathered<W>,
    ) -> (*const W, usize) {
        let base = row << minor_bits;
        // Below the lowest excluded bit all cells are wanted and lie side by side.
        let free = exclude.trailing_zeros().min(minor_bits);
        let slices = !exclude & ((1 << minor_bits) - (1 << free));
        // SAFETY: every cell below is one of this row, the offsets are within the rests, and the
        // buffer has room for the whole row and for the last slice's overhang of 16.
        unsafe {
            let rests = self.rests.as_ptr();
            let offsets = self.offsets.as_ptr().add(base);
            if slices == 0 {
                let start = *offsets as usize;
                return (rests.add(start), *offsets.add(1 << free) as usize - start);
            }
            let buffer = buffer.0.as_mut_ptr();
            let mut length = 0;
            let mut slice = 0;
            loop {
                let start = *offsets.add(slice) as usize;
                let count = *offsets.add(slice + (1 << free)) as usize - start;
                let mut at = 0;
                while at < count {
                    let chunk = rests.add(start + at).cast::<[W; 16]>().read_unaligned();
                    buffer
                        .add(length + at)
                        .cast::<[W; 16]>()
                        .write_unaligned(chunk);
                    at += 16;
                }
                length += count;
                if slice == slices {
                    return (buffer, length);
                }
                slice = slice.wrapping_sub(slices) & slices;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_take_turns() {
        let layout = Layout {
            cell_bits: 6,
            rest_bits: 4,
        };
        assert_eq!(layout.patterns(0b11_1101_0110), (0b110, 0b001));
    }
}
