//! Adding up the zeros of the table rows that probes select: the hot loop.
//!
//! The mathematics: `docs/method.md`, “Adding up with few instructions”.

use std::marker::PhantomData;

use crate::{
    join::{grid::gather::List, layout::Groups, pairs_of},
    simd::{Lanes, Residual, Rotation, Set, Work, rotated},
};

/// Runs [`AddZeros`] for this number of bits.
///
/// # Safety
/// The tables were filled for these groups; the probes are readable, and the slack after them.
#[inline(always)]
pub(super) unsafe fn zeros_by_groups<
    S: Set,
    L: Lanes,
    W: Residual,
    const STRIDE: usize,
    const BLOCKS: usize,
    const MASKED: bool,
>(
    set: S,
    bits: u32,
    probes: List<W>,
    tables: *const [L; STRIDE],
    masks: [L; BLOCKS],
    tally: &mut Tally<L>,
) -> usize {
    macro_rules! zeros {
        ($bits:literal) => {
            set.run_separately(AddZeros::<L, W, $bits, STRIDE, BLOCKS, MASKED> {
                probes,
                tables,
                masks,
                tally,
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

/// Work that adds the zeros in the ORs of the table rows that each probe selects.
///
/// The mask is part of the OR if `MASKED`. `BLOCKS` of the `STRIDE` blocks of the tables are used;
/// `BITS` bits, or fewer in the same groups, are looked up. Probes are added in fixed batches; the
/// last one is padded with probes without bits, whose number is returned.
///
/// This is a separate function per case, shared by all kinds of leaves, because it dominates run
/// time and compile time.
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
    /// First row; the tables of all groups follow.
    tables: *const [L; STRIDE],
    masks: [L; BLOCKS],
    tally: &'a mut Tally<L>,
}

impl<
    L: Lanes,
    W: Residual,
    const BITS: u32,
    const STRIDE: usize,
    const BLOCKS: usize,
    const MASKED: bool,
> Work for AddZeros<'_, L, W, BITS, STRIDE, BLOCKS, MASKED>
{
    type Result = usize;

    #[inline(always)]
    fn run<S: Set>(self, _set: S) -> usize {
        let at_a_time = 8 / BLOCKS;
        let (whole, left) = (self.probes.length / at_a_time, self.probes.length % at_a_time);
        let added = if left == 0 { 0 } else { at_a_time - left };
        // Reads a whole batch, because copying a few probes would be a function call.
        // SAFETY: lists have slack.
        let last = unsafe {
            let last = self.probes.start.add(whole * at_a_time);
            last.cast::<[W; 8]>().read_unaligned()
        };
        let last: [W; 8] =
            std::array::from_fn(|at| if at < left { last[at] } else { W::default() });
        let (tables, masks) = (self.tables, self.masks);
        let mut ones = self.tally.ones;
        // One loop for both, so that its body is compiled once.
        let lists = [(self.probes.start, whole), (last.as_ptr(), usize::from(left > 0))];
        for (mut probes, chunks) in lists {
            for _ in 0..chunks {
                // SAFETY: the list has these chunks; the caller filled the tables.
                unsafe {
                    ones.add(picked_by_all::<L, W, BITS, STRIDE, BLOCKS, MASKED>(
                        std::slice::from_raw_parts(probes, at_a_time),
                        tables,
                        masks,
                    ));
                    probes = probes.add(at_a_time);
                }
            }
        }
        self.tally.ones = ones;
        self.tally.bits += pairs_of(self.probes.length + added, BLOCKS * keys_per_block::<L>());
        added
    }
}

/// Returns the selections of `8 / BLOCKS` probes in each block.
///
/// # Safety
/// The tables were filled for these groups.
#[inline(always)]
unsafe fn picked_by_all<
    L: Lanes,
    W: Residual,
    const BITS: u32,
    const STRIDE: usize,
    const BLOCKS: usize,
    const MASKED: bool,
>(
    probes: &[W],
    tables: *const [L; STRIDE],
    masks: [L; BLOCKS],
) -> [L; 8] {
    macro_rules! picked {
        ($($at:literal)*) => {
            [$({
                let (probe, block) = ($at / BLOCKS, $at % BLOCKS);
                let mask = if MASKED { Some(masks[block]) } else { None };
                // SAFETY: the caller filled the tables.
                unsafe {
                    picked::<L, W, BITS, STRIDE>(probes[probe], tables, block, mask)
                }
            }),*]
        };
    }
    // Written out, because the compiler does not unroll all loops.
    picked!(0 1 2 3 4 5 6 7)
}

/// Number of disjoint pairs, counted one by one or as zero bits of vectors.
pub(crate) struct Tally<L> {
    /// Pairs counted one by one plus all vector bits, without zeros that do not count.
    pub(super) bits: u64,
    ones: Ones<L>,
}

impl<L: Lanes> Tally<L> {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        let ones = Ones([L::zero(); 4]);
        Self { bits: 0, ones }
    }

    #[inline(always)]
    pub(crate) fn total(self) -> u64 {
        self.bits - self.ones.total()
    }
}

/// Counts of ones in four vectors of weights 1, 2, 4 and 8.
///
/// The first three count per bit position, the last per 64-bit lane.
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

/// Returns the OR of the rows a probe selects in a block, and of the mask.
///
/// Its zeros are the keys disjoint from the probe.
///
/// # Safety
/// The tables were filled for these groups.
#[inline(always)]
unsafe fn picked<L: Lanes, W: Residual, const BITS: u32, const BLOCKS: usize>(
    probe: W,
    tables: *const [L; BLOCKS],
    block: usize,
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

/// Group `GROUP` of a residual key of `BITS` bits, for tables of `BLOCKS` blocks.
struct Group<L, const BITS: u32, const BLOCKS: usize, const GROUP: usize>(PhantomData<L>);

impl<L, const BITS: u32, const BLOCKS: usize, const GROUP: usize> Group<L, BITS, BLOCKS, GROUP> {
    /// Row of the first block's table for no bit, in vectors.
    const FIRST_ROW: usize = Groups::of(BITS).first_row(GROUP) * BLOCKS;
}

impl<L, const BITS: u32, const BLOCKS: usize, const GROUP: usize> Rotation
    for Group<L, BITS, BLOCKS, GROUP>
{
    const FROM: usize = Groups::of(BITS).first_bit(GROUP);
    // Distance in bytes between rows that differ in the group's lowest bit.
    const TO: usize = size_of::<[L; BLOCKS]>().ilog2() as usize;
    const BITS: usize = Groups::of(BITS).bits(GROUP);
}

/// Returns the row a probe selects in the table of a group.
///
/// # Safety
/// The tables were filled for these groups.
#[inline(always)]
unsafe fn row<L: Lanes, W: Residual, const BITS: u32, const BLOCKS: usize, const GROUP: usize>(
    probe: W,
    tables: *const [L; BLOCKS],
    block: usize,
) -> L {
    let first = Group::<L, BITS, BLOCKS, GROUP>::FIRST_ROW + block;
    let row = rotated::<L, W, Group<L, BITS, BLOCKS, GROUP>>(probe);
    // SAFETY: the caller filled the tables.
    unsafe { *tables.cast::<L>().byte_add(row).add(first) }
}

#[inline(always)]
pub(super) fn sum_of<L: Lanes>(sums: L) -> u64 {
    let mut words = [0_u64; 8];
    // SAFETY: eight words hold the widest vector.
    unsafe { sums.store(words.as_mut_ptr().cast()) };
    words.iter().sum()
}

/// Returns the keys per block; a bit plane of a block is one vector.
pub(super) const fn keys_per_block<L: Lanes>() -> usize {
    32 * L::LANES
}
