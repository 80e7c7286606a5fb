//! Counting the disjoint pairs of two short lists of rests.
//!
//! The mathematics: `docs/method.md`, “Counting disjoint pairs without looking at all of them”.

use super::{
    few::few,
    tables::Build,
    zeros::{Zeros, keys_a_block, sum_of, zeros_by_groups},
};
use crate::{
    frames::hjoin::{
        grid::{
            bands::{Banded, MOST_BANDS},
            gather::List,
        },
        layout::groups::Groups,
    },
    simd::{Lanes, Rest, Set},
};

/// Blocks of the longer list that are matched at a time: finding a probe's rows takes as many
/// instructions as looking into them.
const ABREAST: usize = 2;

/// Below this many pairs the tables of a bit-sliced leaf do not pay.
const FEW_PAIRS: usize = 6_400;
/// Below this many keys on one side the tables do not pay either.
const FEW_PROBES: usize = 32;

/// Room for the tables of all groups, aligned for any vector.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct TableRow([u64; 8]);

/// Scratch memory of the leaves: the tables, then the masks.
#[derive(Debug)]
pub(crate) struct Tables(Box<[TableRow]>);

/// Where the masks start.
const MASKS: usize = Groups::MOST_ROWS * ABREAST;

impl Default for Tables {
    fn default() -> Self {
        Self(vec![TableRow([0; 8]); MASKS + MOST_BANDS * ABREAST].into_boxed_slice())
    }
}

impl Tables {
    /// Adds the number of pairs, one from each list, that have no bit in common to `tally`. Rests have
    /// `rest_bits` bits, of which `x3_bits` are on top: none unless `BANDED`.
    ///
    /// # Safety
    /// Both lists are readable for their length and [`SLACK`](crate::frames::hjoin::grid::gather::SLACK) more, their rests and
    /// bands are as told, and the instruction set of `L` is there.
    #[inline(always)]
    pub(crate) unsafe fn count<S: Set, W: Rest, const BANDED: bool>(
        &mut self,
        set: S,
        rest_bits: u32,
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
        if few_probes < FEW_PROBES || few_probes * sliced.length < FEW_PAIRS {
            // SAFETY: the caller vouches for the lists.
            tally.pairs += unsafe {
                let probes = std::slice::from_raw_parts(probes.list.start, few_probes);
                few::<S::Bits, W>(probes, sliced)
            };
            return;
        }
        let mut at = 0;
        while at < sliced.length {
            let rest = sliced.skip(at);
            // SAFETY: at most the blocks past the end are read; the bits of X3 are on top.
            at += unsafe {
                let (whole, half) = (&mut tally.whole, &mut tally.half);
                if BANDED {
                    if rest.length > keys_a_block::<Half<S>>() {
                        self.banded_blocks::<S, S::Bits, W, ABREAST>(
                            set, rest_bits, x3_bits, rest, &probes, whole,
                        )
                    } else {
                        self.banded_blocks::<S, Half<S>, W, 1>(
                            set, rest_bits, x3_bits, rest, &probes, half,
                        )
                    }
                } else if rest.length > keys_a_block::<S::Bits>() {
                    self.blocks::<S, S::Bits, W, ABREAST>(set, rest_bits, rest, probes.list, whole)
                } else if rest.length > keys_a_block::<Half<S>>() {
                    self.blocks::<S, S::Bits, W, 1>(set, rest_bits, rest, probes.list, whole)
                } else {
                    self.blocks::<S, Half<S>, W, 1>(set, rest_bits, rest, probes.list, half)
                }
            };
        }
    }

    /// Adds the disjoint pairs of the first `BLOCKS` blocks of `keys` and all probes, and returns how
    /// many keys those are, or would be if there were as many.
    ///
    /// # Safety
    /// As for [`Self::count`].
    #[inline(always)]
    unsafe fn blocks<S: Set, L: Lanes, W: Rest, const BLOCKS: usize>(
        &mut self,
        set: S,
        bits: u32,
        keys: List<W>,
        probes: List<W>,
        zeros: &mut Zeros<L>,
    ) -> usize {
        let tables = self.0.as_mut_ptr().cast::<[L; BLOCKS]>();
        for block in 0..BLOCKS {
            let keys = keys.skip(block * keys_a_block::<L>());
            // SAFETY: the caller vouches for the keys; the tables have room for all groups of so
            // many blocks of the widest vectors.
            unsafe {
                let tables = tables.cast::<L>().add(block);
                set.apart(Build::<L, W, BLOCKS> {
                    groups: Groups::of(bits),
                    keys,
                    tables,
                    masks: None,
                });
            }
        }
        #[cfg(test)]
        // SAFETY: there are more rows than a fault may name.
        unsafe {
            super::fault::inject(tables.cast());
        }
        let (tables, masks) = (tables.cast_const(), [L::zero(); BLOCKS]);
        // SAFETY: the tables were written just now.
        let added = unsafe {
            zeros_by_groups::<S, L, W, BLOCKS, BLOCKS, false>(
                set, bits, probes, tables, masks, zeros,
            )
        };
        // Every key is disjoint from a probe without bits.
        let all = BLOCKS * keys_a_block::<L>();
        zeros.bits -= (added * keys.length.min(all)) as u64;
        all
    }

    /// As [`Self::blocks`], band by band.
    ///
    /// # Safety
    /// As for [`Self::count`].
    #[inline(always)]
    unsafe fn banded_blocks<S: Set, L: Lanes, W: Rest, const BLOCKS: usize>(
        &mut self,
        set: S,
        rest_bits: u32,
        x3_bits: usize,
        keys: List<W>,
        probes: &Banded<W>,
        zeros: &mut Zeros<L>,
    ) -> usize {
        let bits = banded_bits(rest_bits - u32::try_from(x3_bits).expect("a few"));
        let tables = self.0.as_mut_ptr().cast::<[L; BLOCKS]>();
        // SAFETY: the masks come after the tables.
        let masks = unsafe { self.0.as_mut_ptr().add(MASKS) }.cast::<[L; BLOCKS]>();
        for block in 0..BLOCKS {
            let keys = keys.skip(block * keys_a_block::<L>());
            // SAFETY: the caller vouches for the keys; there is room for the tables of all groups and
            // for the masks of so many blocks of the widest vectors.
            unsafe {
                let tables = tables.cast::<L>().add(block);
                let masks = masks.cast::<L>().add(block);
                if keys.length > 0 {
                    set.apart(Build::<L, W, BLOCKS> {
                        groups: Groups::of(bits),
                        keys,
                        tables,
                        masks: Some((masks, x3_bits)),
                    });
                } else {
                    for pattern in 0..1 << x3_bits {
                        masks.add(pattern * BLOCKS).write(L::splat(u32::MAX));
                    }
                }
            }
        }
        let mut start = 0;
        for (pattern, end) in probes.bands() {
            // SAFETY: the caller vouches for the probes, and bands end one after the other; the masks
            // and the tables were written just now.
            unsafe {
                let band = List {
                    start: probes.list.start.add(start),
                    length: end - start,
                };
                let masks = *masks.add(pattern.into());
                let tables = tables.cast_const();
                add_band::<S, L, W, BLOCKS>(set, bits, band, tables, masks, zeros);
            }
            start = end;
        }
        BLOCKS * keys_a_block::<L>()
    }
}

/// Vectors of half the width.
type Half<S> = <<S as Set>::Bits as Lanes>::Half;

/// Numbers of disjoint pairs.
pub(crate) struct Tally<L: Lanes> {
    /// Of those that were counted one by one.
    pairs: u64,
    /// Of the others.
    whole: Zeros<L>,
    half: Zeros<L::Half>,
}

impl<L: Lanes> Tally<L> {
    pub(crate) fn new() -> Self {
        let (whole, half) = (Zeros::new(), Zeros::new());
        Self {
            pairs: 0,
            whole,
            half,
        }
    }

    /// The number of all.
    pub(crate) fn total(self) -> u64 {
        self.pairs + self.whole.total() + self.half.total()
    }
}

/// Adds up what a band's probes leave of the blocks, whose keys they all conflict with in X3 where the
/// masks have a one: nothing of a block whose mask is full.
///
/// # Safety
/// As for [`Tables::count`]; the tables and masks were filled.
#[inline(always)]
unsafe fn add_band<S: Set, L: Lanes, W: Rest, const BLOCKS: usize>(
    set: S,
    bits: u32,
    band: List<W>,
    tables: *const [L; BLOCKS],
    masks: [L; BLOCKS],
    zeros: &mut Zeros<L>,
) {
    let (first, last) = (masks[0].is_full(), masks[BLOCKS - 1].is_full());
    if band.length == 0 || first && last {
        return;
    }
    let unmasked = |mask: L| keys_a_block::<L>() as u64 - sum_of(mask.add_ones(L::zero()));
    // SAFETY: the caller filled the tables.
    let added = unsafe {
        if BLOCKS > 1 && (first || last) {
            let block = usize::from(first);
            let tables = tables.cast::<L>().add(block).cast();
            let mask = [masks[block]];
            zeros_by_groups::<S, L, W, BLOCKS, 1, true>(set, bits, band, tables, mask, zeros)
        } else {
            zeros_by_groups::<S, L, W, BLOCKS, BLOCKS, true>(set, bits, band, tables, masks, zeros)
        }
    };
    if added > 0 {
        // A probe without bits is disjoint from every key that the masks leave.
        let unmasked: u64 = masks.into_iter().map(unmasked).sum();
        zeros.bits -= added as u64 * unmasked;
    }
}

/// How many bits are looked up where so many bits of a rest are not on top: more of them, without a one
/// or on top, change nothing, and fewer cases are compiled sooner.
fn banded_bits(bits: u32) -> u32 {
    let cases = [16, 20, 22, 24, 25, 27, 30];
    cases.into_iter().find(|&case| bits <= case).unwrap_or(32)
}
