//! The two-sided grid: a list of keys sorted by the patterns of its most contested bits.

use super::{
    gather::{Row, SLACK},
    lanes::Lanes,
    layout::{ByteTables, Order},
    rotate::{Rotation, rotate},
    sort::{self, Scratch},
};

/// The rest bits of a key: four bytes where they suffice, eight otherwise.
pub(super) trait Rest: Copy + Default {
    /// 32-bit words in a rest.
    const WORDS: usize;

    /// The low bits of `bits`, which has no others.
    fn new(bits: u64) -> Self;

    /// The bits rotated right, and some of them.
    fn rotated<L: Lanes, R: Rotation>(self) -> usize;

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
    fn rotated<L: Lanes, R: Rotation>(self) -> usize {
        rotate::<L, R>(self) as usize & R::MASK
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
    fn rotated<L: Lanes, R: Rotation>(self) -> usize {
        (self.rotate_right(R::BY) & R::MASK as u64) as usize
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

impl<W: Rest> Grid<W> {
    /// Sorts `keys`, at most `u32::MAX` of them, into cells.
    #[inline(always)]
    pub(super) fn fill<L: Lanes>(
        &mut self,
        order: (Order, &ByteTables),
        keys: &[u64],
        scratch: &mut Scratch,
    ) {
        let cells = 1 << (order.0.major_bits + order.0.minor_bits);
        self.offsets.resize(cells + 1, 0);
        if self.rests.len() < keys.len() + SLACK {
            self.rests.resize(keys.len() + SLACK, W::default());
        }
        let to = (&mut self.offsets[..], &mut self.rests[..]);
        sort::sort::<L, W>(order, keys, to, scratch);
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
