//! Counting the disjoint pairs of two short lists of rests.

use std::marker::PhantomData;

use super::{
    Work,
    bands::{Banded, MOST_BANDS},
    gather::List,
    grid::Rest,
    lanes::Lanes,
    layout::Groups,
    planes::Build,
    rotate::Rotation,
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
struct Row([u64; 8]);

/// Scratch memory of the leaves: the tables, then the masks.
#[derive(Debug)]
pub(super) struct Tables(Box<[Row]>);

/// Where the masks start.
const MASKS: usize = Groups::MOST_ROWS * ABREAST;

impl Default for Tables {
    fn default() -> Self {
        Self(vec![Row([0; 8]); MASKS + MOST_BANDS * ABREAST].into_boxed_slice())
    }
}

impl Tables {
    /// Adds the number of pairs, one from each list, that have no bit in common to `tally`. Rests have
    /// `rest_bits` bits, of which `x3_bits` are on top: none unless `BANDED`.
    ///
    /// # Safety
    /// Both lists are readable for their length and [`super::gather::SLACK`] more, their rests and
    /// bands are as told, and the instruction set of `L` is there.
    #[inline(always)]
    pub(super) unsafe fn count<L: Lanes, W: Rest, const BANDED: bool>(
        &mut self,
        (rest_bits, x3_bits): (u32, usize),
        one: Banded<W>,
        other: Banded<W>,
        tally: &mut Tally<L>,
    ) {
        let (sliced, probes) = if one.list.1 >= other.list.1 {
            (one.list, other)
        } else {
            (other.list, one)
        };
        let few_probes = probes.list.1;
        if few_probes < FEW_PROBES || few_probes * sliced.1 < FEW_PAIRS {
            // SAFETY: the caller vouches for the lists.
            tally.pairs += unsafe {
                let probes = std::slice::from_raw_parts(probes.list.0, few_probes);
                few::<L, W>(probes, sliced)
            };
            return;
        }
        let mut at = 0;
        while at < sliced.1 {
            let rest = (sliced.0.wrapping_add(at), sliced.1 - at);
            // SAFETY: at most the blocks past the end are read; the bits of X3 are on top.
            at += unsafe {
                let (whole, half) = (&mut tally.whole, &mut tally.half);
                if BANDED {
                    let bits = (rest_bits, x3_bits);
                    if rest.1 > keys_a_block::<L::Half>() {
                        self.banded_blocks::<L, W, ABREAST>(bits, rest, &probes, whole)
                    } else {
                        self.banded_blocks::<L::Half, W, 1>(bits, rest, &probes, half)
                    }
                } else if rest.1 > keys_a_block::<L>() {
                    self.blocks::<L, W, ABREAST>(rest_bits, rest, probes.list, whole)
                } else if rest.1 > keys_a_block::<L::Half>() {
                    self.blocks::<L, W, 1>(rest_bits, rest, probes.list, whole)
                } else {
                    self.blocks::<L::Half, W, 1>(rest_bits, rest, probes.list, half)
                }
            };
        }
    }

    /// Adds the disjoint pairs of the first `BLOCKS` blocks of `keys` and all probes, and returns how
    /// many keys those are, or would be if there were as many.
    #[inline(always)]
    unsafe fn blocks<L: Lanes, W: Rest, const BLOCKS: usize>(
        &mut self,
        bits: u32,
        keys: List<W>,
        probes: List<W>,
        zeros: &mut Zeros<L>,
    ) -> usize {
        let tables = self.0.as_mut_ptr().cast::<[L; BLOCKS]>();
        for block in 0..BLOCKS {
            let before = block * keys_a_block::<L>();
            let keys = (keys.0.wrapping_add(before), keys.1.saturating_sub(before));
            // SAFETY: the caller vouches for the keys; the tables have room for all groups of so
            // many blocks of the widest vectors.
            unsafe {
                let tables = tables.cast::<L>().add(block);
                L::apart(Build::<L, W, BLOCKS> {
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
        let tables = (tables.cast_const(), [L::zero(); BLOCKS]);
        // SAFETY: the tables were written just now.
        let added =
            unsafe { zeros_by_groups::<L, W, BLOCKS, BLOCKS, false>(bits, probes, tables, zeros) };
        // Every key is disjoint from a probe without bits.
        let all = BLOCKS * keys_a_block::<L>();
        zeros.bits -= (added * keys.1.min(all)) as u64;
        all
    }

    /// As [`Self::blocks`], band by band.
    #[inline(always)]
    unsafe fn banded_blocks<L: Lanes, W: Rest, const BLOCKS: usize>(
        &mut self,
        (rest_bits, x3_bits): (u32, usize),
        keys: List<W>,
        probes: &Banded<W>,
        zeros: &mut Zeros<L>,
    ) -> usize {
        let bits = banded_bits(rest_bits - u32::try_from(x3_bits).expect("a few"));
        let tables = self.0.as_mut_ptr().cast::<[L; BLOCKS]>();
        // SAFETY: the masks come after the tables.
        let masks = unsafe { self.0.as_mut_ptr().add(MASKS) }.cast::<[L; BLOCKS]>();
        for block in 0..BLOCKS {
            let before = block * keys_a_block::<L>();
            let keys = (keys.0.wrapping_add(before), keys.1.saturating_sub(before));
            // SAFETY: the caller vouches for the keys; there is room for the tables of all groups and
            // for the masks of so many blocks of the widest vectors.
            unsafe {
                let tables = tables.cast::<L>().add(block);
                let masks = masks.cast::<L>().add(block);
                if keys.1 > 0 {
                    L::apart(Build::<L, W, BLOCKS> {
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
                let band = (probes.list.0.add(start), end - start);
                let masks = *masks.add(pattern.into());
                add_band::<L, W, BLOCKS>(bits, band, (tables.cast_const(), masks), zeros);
            }
            start = end;
        }
        BLOCKS * keys_a_block::<L>()
    }
}

/// Numbers of disjoint pairs.
pub(super) struct Tally<L: Lanes> {
    /// Of those that were counted one by one.
    pairs: u64,
    /// Of the others.
    whole: Zeros<L>,
    half: Zeros<L::Half>,
}

impl<L: Lanes> Tally<L> {
    pub(super) fn new() -> Self {
        let (whole, half) = (Zeros::new(), Zeros::new());
        Self {
            pairs: 0,
            whole,
            half,
        }
    }

    /// The number of all.
    pub(super) fn total(self) -> u64 {
        self.pairs + self.whole.total() + self.half.total()
    }
}

/// A bit plane of a block is one vector.
pub(super) const fn keys_a_block<L: Lanes>() -> usize {
    32 * L::LANES
}

/// The number of disjoint pairs, every pair tested.
///
/// No lane overflows: there are fewer than [`FEW_PROBES`] probes or fewer than [`FEW_PAIRS`] pairs, and
/// 31 probes with 2^31 keys, the longest list, shared by 32 lanes or more, are less than 2^31 a lane.
#[inline(always)]
unsafe fn few<L: Lanes, W: Rest>(probes: &[W], keys: (*const W, usize)) -> u64 {
    let mut counts = [L::zero(); 4];
    let mut at = 0;
    while at < keys.1 {
        let left = (keys.0.wrapping_add(at), keys.1 - at);
        // SAFETY: the caller vouches for the list, and for some vectors after it.
        at += unsafe {
            if left.1 > 2 * L::LANES {
                add_disjoint::<L, W, 4>(probes, left, &mut counts)
            } else if left.1 > L::LANES {
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
    counted - ((at - keys.1) * probes.len()) as u64
}

/// Adds to each lane of each of `counts` how many of `probes` have no bit in common with its key;
/// returns how many keys have a lane.
#[inline(always)]
unsafe fn add_disjoint<L: Lanes, W: Rest, const VECTORS: usize>(
    probes: &[W],
    keys: (*const W, usize),
    counts: &mut [L; 4],
) -> usize {
    let mut words = [[L::zero(); 2]; VECTORS];
    for (at, words) in words.iter_mut().enumerate() {
        let before = at * L::LANES;
        let own = lanes_below::<L>(keys.1.saturating_sub(before));
        for (word, to) in words[..W::WORDS].iter_mut().enumerate() {
            // SAFETY: the caller vouches for the keys.
            *to = unsafe { load_words::<L, W>(keys.0.add(before), word) }.and(own);
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

/// All bits of the first `lanes` lanes.
#[inline(always)]
fn lanes_below<L: Lanes>(lanes: usize) -> L {
    const EDGE: [u32; 32] = {
        let mut edge = [0; 32];
        let mut lane = 0;
        while lane < 16 {
            edge[lane] = u32::MAX;
            lane += 1;
        }
        edge
    };
    // SAFETY: 16 lanes are the most there are.
    unsafe { L::load(EDGE.as_ptr().add(16 - lanes.min(16))) }
}

/// Word `word` of the next `LANES` keys.
#[inline(always)]
pub(super) unsafe fn load_words<L: Lanes, W: Rest>(keys: *const W, word: usize) -> L {
    if W::WORDS == 1 {
        // SAFETY: the caller vouches for the keys.
        return unsafe { L::load(keys.cast()) };
    }
    let mut lanes = [0; 16];
    for (at, lane) in lanes.iter_mut().enumerate().take(L::LANES) {
        // SAFETY: as above.
        *lane = unsafe { *keys.add(at) }.word(word);
    }
    // SAFETY: 16 lanes are the most there are.
    unsafe { L::load(lanes.as_ptr()) }
}

/// Adds up what a band's probes leave of the blocks, whose keys they all conflict with in X3 where the
/// masks have a one: nothing of a block whose mask is full.
#[inline(always)]
unsafe fn add_band<L: Lanes, W: Rest, const BLOCKS: usize>(
    bits: u32,
    band: List<W>,
    (tables, masks): (*const [L; BLOCKS], [L; BLOCKS]),
    zeros: &mut Zeros<L>,
) {
    let (first, last) = (masks[0].is_full(), masks[BLOCKS - 1].is_full());
    if band.1 == 0 || first && last {
        return;
    }
    let unmasked = |mask: L| keys_a_block::<L>() as u64 - sum_of(mask.add_ones(L::zero()));
    // SAFETY: the caller filled the tables.
    let added = unsafe {
        if BLOCKS > 1 && (first || last) {
            let block = usize::from(first);
            let tables = (tables.cast::<L>().add(block).cast(), [masks[block]]);
            zeros_by_groups::<L, W, BLOCKS, 1, true>(bits, band, tables, zeros)
        } else {
            zeros_by_groups::<L, W, BLOCKS, BLOCKS, true>(bits, band, (tables, masks), zeros)
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

/// [`AddZeros`] for so many bits, for which the tables are filled.
#[inline(always)]
unsafe fn zeros_by_groups<
    L: Lanes,
    W: Rest,
    const STRIDE: usize,
    const BLOCKS: usize,
    const MASKED: bool,
>(
    bits: u32,
    probes: List<W>,
    (tables, masks): (*const [L; STRIDE], [L; BLOCKS]),
    zeros: &mut Zeros<L>,
) -> usize {
    macro_rules! zeros {
        ($bits:literal) => {
            L::apart(AddZeros::<L, W, $bits, STRIDE, BLOCKS, MASKED> {
                probes,
                tables,
                masks,
                zeros,
            })
        };
    }
    if MASKED {
        return match bits {
            16 => zeros!(16),
            20 => zeros!(20),
            22 => zeros!(22),
            24 => zeros!(24),
            25 => zeros!(25),
            27 => zeros!(27),
            30 => zeros!(30),
            _ => zeros!(32),
        };
    }
    match (W::WORDS, bits) {
        (1, ..=16) => zeros!(16),
        (1, 17) => zeros!(17),
        (1, 18) => zeros!(18),
        (1, 19) => zeros!(19),
        (1, 20) => zeros!(20),
        (1, 21) => zeros!(21),
        (1, 22) => zeros!(22),
        (1, 23) => zeros!(23),
        (1, 24) => zeros!(24),
        (1, 25) => zeros!(25),
        (1, 26) => zeros!(26),
        (1, 27) => zeros!(27),
        (1, 28) => zeros!(28),
        (1, 29) => zeros!(29),
        (1, 30) => zeros!(30),
        (1, 31) => zeros!(31),
        (1, _) => zeros!(32),
        (_, ..=45) => zeros!(45),
        (_, _) => zeros!(62),
    }
}

/// Adds up the zero bits in the ORs of the table rows that each probe picks, and of the mask if
/// `MASKED`, for `BLOCKS` of the `STRIDE` blocks that the tables are of; `BITS` bits are looked up, or
/// fewer in as many groups. So many probes at a time are added that some without bits may join them:
/// returns how many.
///
/// This is where the time goes, and most of what there is to compile: a function of its own for each
/// case, which leaves of every kind share.
struct AddZeros<
    'a,
    L,
    W,
    const BITS: u32,
    const STRIDE: usize,
    const BLOCKS: usize,
    const MASKED: bool,
> {
    probes: List<W>,
    /// The first row; the tables of all groups follow.
    tables: *const [L; STRIDE],
    masks: [L; BLOCKS],
    zeros: &'a mut Zeros<L>,
}

impl<
    L: Lanes,
    W: Rest,
    const BITS: u32,
    const STRIDE: usize,
    const BLOCKS: usize,
    const MASKED: bool,
> Work for AddZeros<'_, L, W, BITS, STRIDE, BLOCKS, MASKED>
{
    type Result = usize;

    #[inline(always)]
    fn run<Same: Lanes>(self) -> usize {
        let at_a_time = 8 / BLOCKS;
        let (whole, left) = (self.probes.1 / at_a_time, self.probes.1 % at_a_time);
        let added = if left == 0 { 0 } else { at_a_time - left };
        // Read as a whole: copying a few would be a call.
        // SAFETY: lists have some to spare.
        let last = unsafe {
            let last = self.probes.0.add(whole * at_a_time);
            last.cast::<[W; 8]>().read_unaligned()
        };
        let last: [W; 8] =
            std::array::from_fn(|at| if at < left { last[at] } else { W::default() });
        let tables = (self.tables, self.masks);
        let mut ones = self.zeros.ones;
        // One loop for both, so that what is in it is compiled once.
        let lists = [
            (self.probes.0, whole),
            (last.as_ptr(), usize::from(left > 0)),
        ];
        for (mut probes, chunks) in lists {
            for _ in 0..chunks {
                // SAFETY: a list has so many chunks; the caller filled the tables.
                unsafe {
                    ones.add(picked_by_all::<L, W, BITS, STRIDE, BLOCKS, MASKED>(
                        std::slice::from_raw_parts(probes, at_a_time),
                        tables,
                    ));
                    probes = probes.add(at_a_time);
                }
            }
        }
        self.zeros.ones = ones;
        self.zeros.bits += ((self.probes.1 + added) * BLOCKS * keys_a_block::<L>()) as u64;
        added
    }
}

/// What each of `8 / BLOCKS` probes picks in the tables of each block.
#[inline(always)]
unsafe fn picked_by_all<
    L: Lanes,
    W: Rest,
    const BITS: u32,
    const STRIDE: usize,
    const BLOCKS: usize,
    const MASKED: bool,
>(
    probes: &[W],
    (tables, masks): (*const [L; STRIDE], [L; BLOCKS]),
) -> [L; 8] {
    macro_rules! picked {
        ($($at:literal)*) => {
            [$({
                let (probe, block) = ($at / BLOCKS, $at % BLOCKS);
                let mask = if MASKED { Some(masks[block]) } else { None };
                // SAFETY: the caller filled the tables.
                unsafe {
                    picked::<L, W, BITS, STRIDE>(probes[probe], (tables, block), mask)
                }
            }),*]
        };
    }
    // Written out: the compiler leaves some of the loops.
    picked!(0 1 2 3 4 5 6 7)
}

/// The zero bits of many vectors.
struct Zeros<L> {
    /// All bits, less the zero bits that do not count.
    bits: u64,
    ones: Ones<L>,
}

impl<L: Lanes> Zeros<L> {
    fn new() -> Self {
        let ones = Ones([L::zero(); 4]);
        Self { bits: 0, ones }
    }

    fn total(self) -> u64 {
        self.bits - self.ones.total()
    }
}

/// Numbers of one bits: in every bit position of the first three vectors so many ones, twos and
/// fours, and in every 64-bit lane of the last so many eights.
#[derive(Clone, Copy)]
struct Ones<L>([L; 4]);

impl<L: Lanes> Ones<L> {
    #[inline(always)]
    fn add(&mut self, bits: [L; 8]) {
        let Self([ones, twos, fours, eights]) = *self;
        let (two0, ones) = L::carry_save(ones, bits[0], bits[1]);
        let (two1, ones) = L::carry_save(ones, bits[2], bits[3]);
        let (four0, twos) = L::carry_save(twos, two0, two1);
        let (two0, ones) = L::carry_save(ones, bits[4], bits[5]);
        let (two1, ones) = L::carry_save(ones, bits[6], bits[7]);
        let (four1, twos) = L::carry_save(twos, two0, two1);
        let (eight, fours) = L::carry_save(fours, four0, four1);
        self.0 = [ones, twos, fours, eight.add_ones(eights)];
    }

    #[inline(always)]
    fn total(self) -> u64 {
        let Self([ones, twos, fours, eights]) = self;
        sum_of(ones.add_ones(L::zero()))
            + 2 * sum_of(twos.add_ones(L::zero()))
            + 4 * sum_of(fours.add_ones(L::zero()))
            + 8 * sum_of(eights)
    }
}

/// The OR of the rows that a probe picks in the tables of a block, and of the mask: its zeros are the
/// keys disjoint from it.
#[inline(always)]
unsafe fn picked<L: Lanes, W: Rest, const BITS: u32, const BLOCKS: usize>(
    probe: W,
    (tables, block): (*const [L; BLOCKS], usize),
    mask: Option<L>,
) -> L {
    macro_rules! row {
        ($group:literal) => {
            // SAFETY: the bits of a group pick one of its rows.
            unsafe { row::<L, W, BITS, BLOCKS, $group>(probe, tables, block) }
        };
    }
    let number = const { Groups::of(BITS).number };
    macro_rules! or_rows {
        ($any:expr, $(($one:literal, $other:literal))*) => {{
            let mut any = $any;
            $(
                if $other < number {
                    any = L::or3(any, row!($one), row!($other));
                } else if $one < number {
                    any = any.or(row!($one));
                }
            )*
            any
        }};
    }
    match mask {
        Some(mask) => or_rows!(mask, (0, 1)(2, 3)(4, 5)(6, 7)(8, 9)(10, 11)(12, 13)),
        None => or_rows!(row!(0), (1, 2)(3, 4)(5, 6)(7, 8)(9, 10)(11, 12)),
    }
}

/// Group `GROUP` of a rest of `BITS` bits, for tables of `BLOCKS` blocks.
struct Group<L, const BITS: u32, const BLOCKS: usize, const GROUP: usize>(PhantomData<L>);

impl<L, const BITS: u32, const BLOCKS: usize, const GROUP: usize> Group<L, BITS, BLOCKS, GROUP> {
    /// The row of the first block's table where no bit is set, in vectors.
    const FIRST_ROW: usize = Groups::of(BITS).first_row(GROUP) * BLOCKS;
}

impl<L, const BITS: u32, const BLOCKS: usize, const GROUP: usize> Rotation
    for Group<L, BITS, BLOCKS, GROUP>
{
    const FROM: usize = Groups::of(BITS).first_bit(GROUP);
    // The distance in bytes between two rows that differ in the group's lowest bit.
    const TO: usize = size_of::<[L; BLOCKS]>().ilog2() as usize;
    const BITS: usize = Groups::of(BITS).bits(GROUP);
}

/// The row that a probe picks in the table of a group.
#[inline(always)]
unsafe fn row<L: Lanes, W: Rest, const BITS: u32, const BLOCKS: usize, const GROUP: usize>(
    probe: W,
    tables: *const [L; BLOCKS],
    block: usize,
) -> L {
    let first = Group::<L, BITS, BLOCKS, GROUP>::FIRST_ROW + block;
    let row = probe.rotated::<L, Group<L, BITS, BLOCKS, GROUP>>();
    // SAFETY: the caller filled the tables.
    unsafe { *tables.cast::<L>().add(first).byte_add(row) }
}

#[inline(always)]
fn sum_of<L: Lanes>(sums: L) -> u64 {
    let mut words = [0_u64; 8];
    // SAFETY: eight words hold the widest vector.
    unsafe { sums.store(words.as_mut_ptr().cast()) };
    words.iter().sum()
}
