//! Sorting into few cells, bit by bit: a list is split into the keys without a bit and those with
//! it, then each part again. Where one instruction packs the chosen lanes of a vector, a bit costs
//! less than a cycle a key, while counters of few cells, each waiting for its last change to
//! reach memory and come back, cost several.

use std::cmp::Ordering;

use crate::{
    frames::hjoin::layout::order::{Order, extract},
    simd::{Lanes, Rest, Split},
};

/// Memory that splitting takes for a while.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// Keys that are still too long for a rest.
    long: Vec<u64>,
    /// The keys with the bit of the part that is being split.
    with: Vec<u64>,
}

/// Words that a vector may take after the keys with a bit.
const VECTOR: usize = 8;

/// Cells up to which splitting is faster than counting: every bit is a pass over the keys.
const FEW_CELLS: usize = 1 << 4;
/// Keys a cell from which on it is: every part costs some cycles.
const KEYS_A_CELL: usize = 32;
/// The longest list to split, so that the memory for it stays small.
const MOST_KEYS: usize = 1 << 17;

/// Whether so many keys should be split into so many cells.
pub(crate) fn pays(cells: usize, keys: usize) -> bool {
    (2..=FEW_CELLS).contains(&cells) && (KEYS_A_CELL * cells..=MOST_KEYS).contains(&keys)
}

/// The most memory, in bytes, that splitting a list of this length takes.
pub(crate) fn memory_bytes(keys: u64) -> u64 {
    16 * (keys.min(MOST_KEYS as u64) + VECTOR as u64)
}

/// The bits that choose a cell, the first to split by first, and each at its place once those
/// before it are gone.
fn bits_of_cell(order: Order) -> impl Iterator<Item = u32> {
    let (mut major, mut minor, mut gone) = (order.major, order.minor, 0_u64);
    std::iter::from_fn(move || {
        let left = if major == 0 { &mut minor } else { &mut major };
        let bit = left.checked_ilog2()?;
        *left ^= 1 << bit;
        let below = gone & ((1 << bit) - 1);
        gone |= 1 << bit;
        Some(bit - below.count_ones())
    })
}

/// Sorts `keys` into `rests` by cell; `offsets` become where each cell starts, and the end.
///
/// # Safety
/// The instruction set of `L` is there.
#[inline(always)]
pub(crate) unsafe fn sort<L: Lanes, W: Rest>(
    order: Order,
    keys: &[u64],
    (offsets, rests): (&mut [u32], &mut [W]),
    scratch: &mut Scratch,
) {
    let contested = order.rest | order.minor | order.major;
    let mut levels = [0; 64];
    let mut depth = 0;
    for (level, bit) in levels.iter_mut().zip(bits_of_cell(order.within(contested))) {
        *level = bit;
        depth += 1;
    }
    let cells = 1 << depth;
    assert!(depth > 0 && offsets.len() == cells + 1 && rests.len() >= keys.len());
    let Scratch { long, with } = scratch;
    let room = keys.len() + VECTOR;
    if with.len() < room {
        long.resize(room, 0);
        with.resize(room, 0);
    }
    let keys_end = offset(keys.len());
    let keys = if contested & (contested + 1) == 0 {
        keys.as_ptr()
    } else {
        for (long, &key) in long.iter_mut().zip(keys) {
            *long = if L::EXTRACTS {
                L::extract(key, contested)
            } else {
                extract(key, contested)
            };
        }
        long.as_ptr()
    };
    let (long, with, rests) = (long.as_mut_ptr(), with.as_mut_ptr(), rests.as_mut_ptr());
    (offsets[0], offsets[cells]) = (0, keys_end);
    // The level whose split leaves keys that fit in a rest.
    let fit = (order.rest_bits as usize + depth - 1).saturating_sub(32 * W::WORDS);
    // Depth first, so that parts stay in the nearest cache that holds them: of all parts that start
    // at a cell, the longest first.
    for start in (0..cells).step_by(2) {
        let first = depth - (start | cells).trailing_zeros() as usize;
        for (level, &bit) in levels[..depth].iter().enumerate().skip(first) {
            let span = cells >> level;
            let part = (offsets[start], offsets[start + span], bit);
            // SAFETY: offsets are at most the number of keys, for which all lists have room.
            let middle = unsafe {
                match (level, level.cmp(&fit)) {
                    (0, Ordering::Less) => split::<L, _, _>(part, keys, long, with),
                    (0, _) => split::<L, _, _>(part, keys, rests, with.cast()),
                    (_, Ordering::Less) => split::<L, _, _>(part, long, long, with),
                    (_, Ordering::Equal) => split::<L, _, _>(part, long, rests, with.cast()),
                    (_, Ordering::Greater) => split::<L, _, _>(part, rests, rests, with.cast()),
                }
            };
            offsets[start + span / 2] = middle;
        }
    }
}

/// Splits the part from `start` to `end` and returns where its keys with the bit start.
///
/// # Safety
/// There are so many keys in `from`, and room for them in `to` and, with a vector more, in `with`;
/// and as for [`sort`].
#[inline(always)]
unsafe fn split<L: Lanes, F: Rest, T: Rest>(
    (start, end, bit): (u32, u32, u32),
    from: *const F,
    to: *mut T,
    with: *mut T,
) -> u32 {
    // SAFETY: the caller vouches for the lists.
    unsafe {
        let part = Split {
            keys: from.add(start as usize),
            length: (end - start) as usize,
            bit,
            without: to.add(start as usize),
            with,
        };
        let without = L::split(part);
        let rest = part.without.add(without);
        rest.copy_from_nonoverlapping(with, part.length - without);
        start + offset(without)
    }
}

#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "lists this long are not split"
)]
fn offset(keys: usize) -> u32 {
    keys as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        kernel::Kernel,
        simd::{Set, Work, dispatch},
    };

    struct Sort<'a>(Order, &'a [u64]);

    impl Sort<'_> {
        fn sorted<L: Lanes, W: Rest>(&self) -> (Vec<u32>, Vec<u64>) {
            let cells = 1 << (self.0.major_bits + self.0.minor_bits);
            let (mut offsets, mut rests) = (vec![0; cells + 1], vec![W::default(); self.1.len()]);
            let lists = (&mut offsets[..], &mut rests[..]);
            // SAFETY: dispatched to a kernel that is there.
            unsafe { sort::<L, W>(self.0, self.1, lists, &mut Scratch::default()) };
            (offsets, rests.into_iter().map(W::bits).collect())
        }
    }

    impl Work for Sort<'_> {
        type Result = ();

        #[inline(always)]
        fn run<S: Set>(self, _set: S) {
            let expected = self.0.sort_plainly(self.1);
            assert_eq!(self.sorted::<S::Bits, u64>(), expected);
            if self.0.rest_bits <= 32 {
                assert_eq!(self.sorted::<S::Bits, u32>(), expected);
            }
        }
    }

    #[test]
    fn every_kernel_sorts_by_cell_and_keeps_the_order_within() {
        let random = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) ^ i;
        for (key_bits, x1, x2) in [
            (34, 0b1011, 0b100),
            (34, 1 << 33 | 1, 0),
            (40, 0xf0, 0x80_0000_0f00),
            (31, 1 << 30, 1),
            (60, 0, 0b11 << 30),
        ] {
            let all = (1 << key_bits) - 1;
            // All bits contested, and all but some.
            let orders = [all, all & !0x1_0010_8000 | x1 | x2].map(|c| Order::of_masks(c, x1, x2));
            for length in [0, 1, 7, 8, 9, 15, 16, 17, 100, 1000] {
                let keys: Vec<u64> = (0..length)
                    .map(|i| random(i) & ((1 << key_bits) - 1))
                    .collect();
                for order in orders {
                    for kernel in Kernel::available() {
                        dispatch(kernel, Sort(order, &keys));
                    }
                }
            }
        }
    }
}
