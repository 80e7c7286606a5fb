//! Roles of the bits of a key on a device: cells, buckets and tables.

use common::join::{GridBits, Keys, Side};

use crate::opencl::DeviceError;

/// Maximum bits of a residual key in tables, and in buckets.
const TABLE_BITS: usize = 24;
const MAX_BUCKET_BITS: usize = 4;

/// Bucket bits that rule out enough visits to be worth sorting.
const BUCKET_BITS: usize = 3;

/// Cell bits of frames whose tables would have room for more bits.
const MIN_CELL_BITS: usize = 8;

/// Where the bits of the keys of a frame go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    bits: GridBits,
    /// Number of bucket bits.
    pub(crate) nz: u32,
    /// The bits of a residual key.
    pub(crate) key_mask: u32,
}

impl Layout {
    pub(crate) fn new(
        shared_bits: u64,
        top: Keys<'_>,
        bottom: Keys<'_>,
    ) -> Result<Self, DeviceError> {
        let shared = shared_bits.count_ones() as usize;
        let cells = shared.saturating_sub(TABLE_BITS + BUCKET_BITS).clamp(MIN_CELL_BITS, 24);
        let cells = cells.max(shared.saturating_sub(TABLE_BITS + MAX_BUCKET_BITS)).min(shared);
        let left = shared - cells;
        let nz = BUCKET_BITS.max(left.saturating_sub(TABLE_BITS));
        let nz = nz.min(left).min(MAX_BUCKET_BITS);
        if left - nz > TABLE_BITS || cells > 2 * GridBits::MAX_ROW_BITS {
            return Err(DeviceError::Unfit(format!("keys with {shared} shared bits are too long")));
        }
        let bits = GridBits::choose(shared_bits, top, bottom, (cells, nz));
        let places = (0..bits.others.len()).map(|at| place(at, nz));
        let key_mask = places.fold(0, |mask, place| mask | 1 << place);
        Ok(Self { bits, nz: narrow(nz), key_mask })
    }

    /// Returns the bits of X1 and of X2.
    pub(crate) fn cells(&self) -> (u32, u32) {
        (narrow(self.bits.x1.len()), narrow(self.bits.x2.len()))
    }

    /// Returns the place of each bit of a key: residual key, minor pattern, major pattern, other bits.
    pub(crate) fn moves(&self, side: Side) -> [u32; 64] {
        let GridBits { x1, x2, others } = &self.bits;
        let (minor, major) = match side {
            Side::Top => (x2, x1),
            Side::Bottom => (x1, x2),
        };
        let mut moves = [u32::MAX; 64];
        let mut used = 0_u64;
        let residual =
            others.iter().enumerate().map(|(at, &bit)| (bit, place(at, self.nz as usize)));
        for (bit, to) in residual.chain(minor.iter().chain(major).copied().zip(32..)) {
            moves[bit as usize] = to;
            used |= 1 << to;
        }
        // Bits that only quarter boards of one half share stay in the word, for the test whether these fit.
        for to in &mut moves {
            if *to == u32::MAX {
                // Above the patterns first, then between the bits of the residual key.
                let free = !used & !0xffff_ffff;
                let at =
                    if free == 0 { (!used).trailing_zeros() } else { 63 - free.leading_zeros() };
                *to = at;
                used |= 1 << at;
            }
        }
        moves
    }
}

/// Returns the place in a residual key of number `at` of the bits that are not in cells: buckets, then tables.
fn place(at: usize, nz: usize) -> u32 {
    narrow(match at.checked_sub(nz) {
        None => 8 * at + 6,
        Some(at) => 8 * (at % 4) + at / 4,
    })
}

fn narrow(bits: usize) -> u32 {
    u32::try_from(bits).expect("keys have 64 bits")
}
