//! Leaves with few pairs: every pair is tested.
//!
//! The mathematics: `docs/method.md`, “Adding up with few instructions”.

use super::words::{lanes_below, load_words};
use crate::{
    frames::hjoin::grid::gather::List,
    simd::{Lanes, Rest},
};

/// The number of disjoint pairs, every pair tested.
///
/// No lane overflows: there are fewer than [`FEW_PROBES`] probes or fewer than [`FEW_PAIRS`] pairs, and
/// 31 probes with 2^31 keys, the longest list, shared by 32 lanes or more, are less than 2^31 a lane.
///
/// # Safety
/// The list and some vectors after it are readable, and the instruction set of `L` is there.
#[inline(always)]
pub(super) unsafe fn few<L: Lanes, W: Rest>(probes: &[W], keys: List<W>) -> u64 {
    let mut counts = [L::zero(); 4];
    let mut at = 0;
    while at < keys.length {
        let left = keys.skip(at);
        // SAFETY: the caller vouches for the list, and for some vectors after it.
        at += unsafe {
            if left.length > 2 * L::LANES {
                add_disjoint::<L, W, 4>(probes, left, &mut counts)
            } else if left.length > L::LANES {
                add_disjoint::<L, W, 2>(probes, left, &mut counts)
            } else {
                add_disjoint::<L, W, 1>(probes, left, &mut counts)
            }
        };
    }
    let mut lanes = [[0_u32; 16]; 4];
    for (lanes, counts) in lanes.iter_mut().zip(counts) {
        // SAFETY: 16 lanes are the most there are.
        unsafe { counts.store(lanes.as_mut_ptr()) };
    }
    let counted: u64 = lanes
        .as_flattened()
        .iter()
        .map(|&count| u64::from(count))
        .sum();
    // Lanes past the end have no bits.
    counted - ((at - keys.length) * probes.len()) as u64
}

/// Adds to each lane of each of `counts` how many of `probes` have no bit in common with its key;
/// returns how many keys have a lane.
///
/// # Safety
/// As for [`few`].
#[inline(always)]
unsafe fn add_disjoint<L: Lanes, W: Rest, const VECTORS: usize>(
    probes: &[W],
    keys: List<W>,
    counts: &mut [L; 4],
) -> usize {
    let mut words = [[L::zero(); 2]; VECTORS];
    for (at, words) in words.iter_mut().enumerate() {
        let before = at * L::LANES;
        let own = lanes_below::<L>(keys.length.saturating_sub(before));
        for (word, to) in words[..W::WORDS].iter_mut().enumerate() {
            // SAFETY: the caller vouches for the keys.
            *to = unsafe { load_words::<L, W>(keys.start.add(before), word) }.and(own);
        }
    }
    let mut sums = *counts;
    for probe in probes {
        let low = L::splat(probe.word(0));
        if W::WORDS == 1 {
            for (words, sum) in words.iter().zip(&mut sums) {
                *sum = low.add_disjoint(words[0], *sum);
            }
        } else {
            let high = L::splat(probe.word(1));
            for (words, sum) in words.iter().zip(&mut sums) {
                let meet = low.and(words[0]).or(high.and(words[1]));
                *sum = meet.add_disjoint(meet, *sum);
            }
        }
    }
    *counts = sums;
    VECTORS * L::LANES
}
