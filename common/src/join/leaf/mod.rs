//! Counting the disjoint pairs of two short lists of residual keys.
//!
//! The mathematics: `docs/method.md`, “Counting disjoint key pairs”.

mod popcount;
mod tables;

use self::{
    popcount::{keys_per_block, sum_of, zeros_by_groups},
    tables::{Build, lanes_below, load_words},
};
use super::{
    grid::{
        bands::{Banded, MAX_BANDS},
        gather::List,
    },
    layout::Groups,
    pairs_of,
};
use crate::simd::{Lanes, Residual, Set};

pub(crate) use self::popcount::Tally;

/// Blocks of the longer list matched together.
///
/// Finding a probe's rows takes as long as reading them.
const ABREAST: usize = 2;

/// Minimum pairs for a bit-sliced leaf.
const MIN_SLICED_PAIRS: u64 = 6_400;
/// Minimum keys on both sides for a bit-sliced leaf.
const MIN_SLICED_PROBES: usize = 32;

/// Memory of the tables, aligned for any vector.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct TableRow([u64; 8]);

/// Scratch memory of the leaves: tables, then masks.
#[derive(Debug)]
pub(crate) struct Tables(Box<[TableRow]>);

const MASKS: usize = Groups::MAX_ROWS * ABREAST;

impl Default for Tables {
    fn default() -> Self {
        Self(vec![TableRow([0; 8]); MASKS + MAX_BANDS * ABREAST].into_boxed_slice())
    }
}

impl Tables {
    /// Adds the number of disjoint pairs to `tally`.
    ///
    /// Residual keys have `residual_bits` bits, `x3_bits` of them on top (0 unless `BANDED`).
    ///
    /// # Safety
    /// Both lists are readable for their length and [`SLACK`](crate::join::grid::gather::SLACK) more;
    /// their residual keys and bands have these bits; the CPU has the instruction set of `S`.
    #[inline(always)]
    pub(crate) unsafe fn count<S: Set, W: Residual, const BANDED: bool>(
        &mut self,
        set: S,
        residual_bits: u32,
        x3_bits: usize,
        one: Banded<W>,
        other: Banded<W>,
        tally: &mut Tally<S::Bits>,
    ) {
        let (sliced, probes) = if one.list.length >= other.list.length {
            (one.list, other)
        } else {
            (other.list, one)
        };
        let few_probes = probes.list.length;
        if few_probes < MIN_SLICED_PROBES || pairs_of(few_probes, sliced.length) < MIN_SLICED_PAIRS
        {
            // SAFETY: the caller vouches for the lists.
            tally.bits += unsafe {
                let probes = std::slice::from_raw_parts(probes.list.start, few_probes);
                count_all_pairs::<S::Bits, W>(probes, sliced)
            };
            return;
        }
        let mut at = 0;
        while at < sliced.length {
            let remaining = sliced.skip(at);
            // SAFETY: only the blocks and the slack after them are read; the bits of X3 are on top.
            at += unsafe {
                let bits = (residual_bits, x3_bits);
                if remaining.length > keys_per_block::<S::Bits>() {
                    self.blocks::<S, W, ABREAST, BANDED>(set, bits, remaining, &probes, tally)
                } else {
                    self.blocks::<S, W, 1, BANDED>(set, bits, remaining, &probes, tally)
                }
            };
        }
    }

    /// Adds the disjoint pairs of all probes with the first `BLOCKS` blocks of `keys`.
    ///
    /// Band by band if `BANDED`. Returns the capacity of these blocks.
    ///
    /// # Safety
    /// As for [`Self::count`].
    #[inline(always)]
    unsafe fn blocks<S: Set, W: Residual, const BLOCKS: usize, const BANDED: bool>(
        &mut self,
        set: S,
        (residual_bits, x3_bits): (u32, usize),
        keys: List<W>,
        probes: &Banded<W>,
        tally: &mut Tally<S::Bits>,
    ) -> usize {
        let bits = if BANDED { banded_bits(residual_bits, x3_bits) } else { residual_bits };
        let tables = self.0.as_mut_ptr().cast::<[S::Bits; BLOCKS]>();
        // SAFETY: the masks come after the tables.
        let masks = unsafe { self.0.as_mut_ptr().add(MASKS) }.cast::<[S::Bits; BLOCKS]>();
        for block in 0..BLOCKS {
            let keys = keys.skip(block * keys_per_block::<S::Bits>());
            // SAFETY: the caller vouches for the keys; there is room for the tables of all groups and
            // for the masks of these blocks of the widest vectors.
            unsafe {
                let tables = tables.cast::<S::Bits>().add(block);
                let masks = masks.cast::<S::Bits>().add(block);
                let masks = BANDED.then_some((masks, x3_bits));
                let groups = Groups::of(bits);
                set.run_separately(Build::<S::Bits, W, BLOCKS> { groups, keys, tables, masks });
            }
        }
        #[cfg(test)]
        // SAFETY: the tables have more than `fault::WORDS` words.
        unsafe {
            fault::inject(tables.cast());
        }
        let (tables, all) = (tables.cast_const(), BLOCKS * keys_per_block::<S::Bits>());
        if !BANDED {
            let masks = [S::Bits::zero(); BLOCKS];
            // SAFETY: the tables were written above.
            let added = unsafe {
                zeros_by_groups::<S, S::Bits, W, BLOCKS, BLOCKS, false>(
                    set,
                    bits,
                    probes.list,
                    tables,
                    masks,
                    tally,
                )
            };
            // Every key is disjoint from a probe without bits.
            tally.bits -= (added * keys.length.min(all)) as u64;
            return all;
        }
        let mut start = 0;
        for (pattern, end) in probes.bands() {
            // SAFETY: the caller vouches for the probes, and bands are consecutive; the masks and the
            // tables were written above.
            unsafe {
                let band = List { start: probes.list.start.add(start), length: end - start };
                let masks = *masks.add(pattern.into());
                add_band::<S, S::Bits, W, BLOCKS>(set, bits, band, tables, masks, tally);
            }
            start = end;
        }
        all
    }
}

/// Adds the pairs of a band's probes; `masks` mark the keys that conflict in X3.
///
/// Blocks with a full mask are skipped.
///
/// # Safety
/// As for [`Tables::count`]; the tables and masks were filled.
#[inline(always)]
unsafe fn add_band<S: Set, L: Lanes, W: Residual, const BLOCKS: usize>(
    set: S,
    bits: u32,
    band: List<W>,
    tables: *const [L; BLOCKS],
    masks: [L; BLOCKS],
    tally: &mut Tally<L>,
) {
    let (first, last) = (masks[0].is_full(), masks[BLOCKS - 1].is_full());
    if band.length == 0 || first && last {
        return;
    }
    let unmasked = |mask: L| keys_per_block::<L>() as u64 - sum_of(mask.add_ones(L::zero()));
    // SAFETY: the caller filled the tables.
    let added = unsafe {
        if BLOCKS > 1 && (first || last) {
            let block = usize::from(first);
            let tables = tables.cast::<L>().add(block).cast();
            let mask = [masks[block]];
            zeros_by_groups::<S, L, W, BLOCKS, 1, true>(set, bits, band, tables, mask, tally)
        } else {
            zeros_by_groups::<S, L, W, BLOCKS, BLOCKS, true>(set, bits, band, tables, masks, tally)
        }
    };
    if added > 0 {
        // A probe without bits is disjoint from every key that the masks leave.
        let unmasked: u64 = masks.into_iter().map(unmasked).sum();
        tally.bits -= added as u64 * unmasked;
    }
}

/// Returns the number of bits to look up in a residual key with X3 on top.
///
/// Rounds up to a compiled case, because every case takes time to compile. The additional bits are
/// zeros or belong to X3, and change nothing.
fn banded_bits(residual_bits: u32, x3_bits: usize) -> u32 {
    let bits = residual_bits - u32::try_from(x3_bits).expect("a few");
    let cases = [16, 20, 22, 24, 25, 27, 30];
    cases.into_iter().find(|&case| bits <= case).unwrap_or(32)
}

/// Counts the disjoint pairs by testing every pair.
///
/// No lane overflows: there are fewer than [`MIN_SLICED_PROBES`] probes or [`MIN_SLICED_PAIRS`]
/// pairs. Even 31 probes and 2^31 keys, the longest list, give fewer than 2^31 pairs per lane.
///
/// # Safety
/// The list and some vectors after it are readable, and the CPU has the instruction set of `L`.
#[inline(always)]
pub(super) unsafe fn count_all_pairs<L: Lanes, W: Residual>(probes: &[W], keys: List<W>) -> u64 {
    let mut counts = [L::zero(); 4];
    let mut at = 0;
    while at < keys.length {
        let remaining = keys.skip(at);
        // SAFETY: the caller vouches for the list, and for some vectors after it.
        at += unsafe {
            if remaining.length > 2 * L::LANES {
                add_disjoint::<L, W, 4>(probes, remaining, &mut counts)
            } else if remaining.length > L::LANES {
                add_disjoint::<L, W, 2>(probes, remaining, &mut counts)
            } else {
                add_disjoint::<L, W, 1>(probes, remaining, &mut counts)
            }
        };
    }
    let mut lanes = [[0_u32; 16]; 4];
    for (lanes, counts) in lanes.iter_mut().zip(counts) {
        // SAFETY: vectors have at most 16 lanes.
        unsafe { counts.store(lanes.as_mut_ptr()) };
    }
    let counted: u64 = lanes.as_flattened().iter().map(|&count| u64::from(count)).sum();
    // Lanes past the end have no bits and are disjoint from every probe.
    counted - ((at - keys.length) * probes.len()) as u64
}

/// Adds to each lane the number of disjoint probes; returns the number of lanes.
///
/// # Safety
/// As for [`count_all_pairs`].
#[inline(always)]
unsafe fn add_disjoint<L: Lanes, W: Residual, const VECTORS: usize>(
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

#[cfg(test)]
pub(crate) mod fault {
    //! Memory faults for tests: flips one bit in the leaf tables of this thread.

    use std::cell::Cell;

    thread_local! {
        /// The 64-bit word and bit to flip.
        static FLIPPED: Cell<Option<(usize, u32)>> = const { Cell::new(None) };
    }

    /// Number of words that may be flipped.
    pub(crate) const WORDS: usize = 64;

    /// Flips this bit of this word, below [`WORDS`], whenever tables are made.
    pub(crate) fn set(flipped: Option<(usize, u32)>) {
        assert!(flipped.is_none_or(|(word, bit)| word < WORDS && bit < u64::BITS));
        FLIPPED.set(flipped);
    }

    /// # Safety
    /// The tables have [`WORDS`] words.
    pub(super) unsafe fn inject(tables: *mut u64) {
        if let Some((word, bit)) = FLIPPED.get() {
            // SAFETY: the caller vouches for the words.
            unsafe {
                *tables.add(word) ^= 1 << bit;
            }
        }
    }
}
