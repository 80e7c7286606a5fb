//! Counting the disjoint pairs of two short lists of rests.

use super::{
    grid::Rest,
    lanes::Lanes,
    layout::{GROUP_BITS, Layout, MOST_GROUPS},
};

/// Rows of the table of a group: the OR of every subset of its planes.
const ROWS: usize = 1 << GROUP_BITS;

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

/// Scratch memory of the leaves.
#[derive(Debug)]
pub(super) struct Tables(Box<[Row]>);

impl Tables {
    pub(super) fn new() -> Self {
        Self(vec![Row([0; 8]); ROWS * MOST_GROUPS * ABREAST].into_boxed_slice())
    }

    /// The number of pairs, one from each list, that have no bit in common.
    ///
    /// # Safety
    /// Both pointers are readable for their length and [`super::gather::SLACK`] more, their rests
    /// are as long as `layout` says, and the instruction set of `L` is there.
    #[inline(always)]
    pub(super) unsafe fn count<L: Lanes, W: Rest>(
        &mut self,
        layout: Layout,
        one: (*const W, usize),
        other: (*const W, usize),
    ) -> u64 {
        let (sliced, probes) = if one.1 >= other.1 {
            (one, other)
        } else {
            (other, one)
        };
        // SAFETY: the caller vouches for the lists.
        let probes = unsafe { std::slice::from_raw_parts(probes.0, probes.1) };
        // SAFETY: as above; there are groups for all rest bits.
        unsafe {
            if probes.len() < FEW_PROBES || probes.len() * sliced.1 < FEW_PAIRS {
                return few::<L, W>(probes, sliced);
            }
            match (W::WORDS, layout.groups()) {
                (1, 5) => self.sliced::<L, W, 5>(sliced, probes),
                (1, 6) => self.sliced::<L, W, 6>(sliced, probes),
                (1, _) => self.sliced::<L, W, 7>(sliced, probes),
                (_, 9) => self.sliced::<L, W, 9>(sliced, probes),
                (_, _) => self.sliced::<L, W, MOST_GROUPS>(sliced, probes),
            }
        }
    }

    /// As [`Self::count`], `GROUPS` groups covering all rest bits.
    #[inline(always)]
    unsafe fn sliced<L: Lanes, W: Rest, const GROUPS: usize>(
        &mut self,
        sliced: (*const W, usize),
        probes: &[W],
    ) -> u64 {
        const { assert!(GROUPS <= MOST_GROUPS) };
        let mut count = 0;
        let mut at = 0;
        while at < sliced.1 {
            let rest = (sliced.0.wrapping_add(at), sliced.1 - at);
            // SAFETY: at most the blocks past the end are read.
            let (counted, keys) = unsafe {
                if rest.1 > keys_a_block::<L>() {
                    self.blocks::<L, W, GROUPS, ABREAST>(rest, probes)
                } else if rest.1 > keys_a_block::<L::Half>() {
                    self.blocks::<L, W, GROUPS, 1>(rest, probes)
                } else {
                    self.blocks::<L::Half, W, GROUPS, 1>(rest, probes)
                }
            };
            count += counted;
            at += keys;
        }
        count
    }

    /// The disjoint pairs of the first `BLOCKS` blocks of `keys` and all probes, and how many keys
    /// that were, or would have been if there were as many.
    #[inline(always)]
    unsafe fn blocks<L: Lanes, W: Rest, const GROUPS: usize, const BLOCKS: usize>(
        &mut self,
        keys: (*const W, usize),
        probes: &[W],
    ) -> (u64, usize) {
        let tables = self.0.as_mut_ptr().cast::<[L; BLOCKS]>();
        for block in 0..BLOCKS {
            let before = block * keys_a_block::<L>();
            let left = keys.1.saturating_sub(before);
            // SAFETY: the caller vouches for the keys; the tables have room for all groups of so
            // many blocks of the widest vectors.
            unsafe {
                build::<L, W, GROUPS, BLOCKS>(
                    keys.0.add(before),
                    left,
                    tables.cast::<L>().add(block),
                );
            }
        }
        // SAFETY: the tables were written just now.
        let ones = unsafe { ones::<L, W, GROUPS, BLOCKS>(probes, tables) };
        let keys = BLOCKS * keys_a_block::<L>();
        ((keys * probes.len()) as u64 - ones, keys)
    }
}

/// A bit plane of a block is one vector.
const fn keys_a_block<L: Lanes>() -> usize {
    32 * L::LANES
}

/// Tests every pair, a vector of the long list at a time.
#[inline(always)]
unsafe fn few<L: Lanes, W: Rest>(short: &[W], long: (*const W, usize)) -> u64 {
    let mut counts = L::zero();
    let mut at = 0;
    while at + L::LANES <= long.1 {
        // SAFETY: the caller vouches for the list.
        counts = unsafe { add_disjoint(short, long.0.add(at), counts) };
        at += L::LANES;
    }
    let mut lanes = [0_u32; 16];
    // SAFETY: 16 lanes are the most there are; less than a vector past the end of the list is read.
    unsafe {
        counts.store(lanes.as_mut_ptr());
        let mut last = [0_u32; 16];
        add_disjoint::<L, W>(short, long.0.add(at), L::zero()).store(last.as_mut_ptr());
        for (lane, last) in lanes.iter_mut().zip(&last[..long.1 - at]) {
            *lane += last;
        }
    }
    lanes.iter().map(|&count| u64::from(count)).sum()
}

/// Adds to each lane of `counts` how many of `probes` have no bit in common with its key.
#[inline(always)]
unsafe fn add_disjoint<L: Lanes, W: Rest>(probes: &[W], keys: *const W, mut counts: L) -> L {
    // SAFETY: the caller vouches for a vector of keys.
    let (low, high) = unsafe {
        let high = if W::WORDS == 2 {
            load_words::<L, W>(keys, 1)
        } else {
            L::zero()
        };
        (load_words::<L, W>(keys, 0), high)
    };
    for probe in probes {
        let mut meet = low.and(L::splat(probe.word(0)));
        if W::WORDS == 2 {
            meet = meet.or(high.and(L::splat(probe.word(1))));
        }
        counts = meet.add_disjoint(meet, counts);
    }
    counts
}

/// Fills the tables for one block: the first `length` keys from `keys` on, at most `32 * LANES`.
///
/// Row i of the table of group g is the OR of the planes 5g + b over the bits b set in i; a plane
/// has one bit a key. The bits of keys past the end are one in every row of the first table.
/// A row is `BLOCKS` vectors after the one before it.
#[inline(always)]
unsafe fn build<L: Lanes, W: Rest, const GROUPS: usize, const BLOCKS: usize>(
    keys: *const W,
    length: usize,
    tables: *mut L,
) {
    let mut planes = [L::zero(); GROUP_BITS * MOST_GROUPS];
    for word in 0..W::WORDS {
        let mut rows = [L::zero(); 32];
        for (at, row) in rows.iter_mut().enumerate() {
            // SAFETY: the caller's slack covers a whole block.
            *row = unsafe { load_words::<L, W>(keys.add(at * L::LANES), word) };
        }
        transpose(&mut rows);
        planes[32 * word..32 * word + 32].copy_from_slice(&rows);
    }
    for group in 0..GROUPS {
        let planes = &planes[GROUP_BITS * group..GROUP_BITS * (group + 1)];
        let outside = if group == 0 {
            past_end::<L>(length)
        } else {
            L::zero()
        };
        // The rows of the three low planes stay in registers.
        let mut low = [outside; 8];
        for row in 1..8_usize {
            let bit = row.ilog2() as usize;
            low[row] = low[row ^ 1 << bit].or(planes[bit]);
        }
        let mut high = [L::zero(); ROWS / 8];
        for row in 0..high.len() {
            if row > 0 {
                let bit = row.ilog2() as usize;
                high[row] = high[row ^ 1 << bit].or(planes[3 + bit]);
            }
            for (at, &low) in low.iter().enumerate() {
                // SAFETY: the caller's tables have room for all groups.
                unsafe {
                    tables
                        .add((ROWS * group + 8 * row + at) * BLOCKS)
                        .write(low.or(high[row]))
                };
            }
        }
    }
}

/// Word `word` of the next `LANES` keys.
#[inline(always)]
unsafe fn load_words<L: Lanes, W: Rest>(keys: *const W, word: usize) -> L {
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

/// Bit i of lane j is one where key `i * LANES + j` is not among the first `length`.
#[inline(always)]
fn past_end<L: Lanes>(length: usize) -> L {
    if length >= 32 * L::LANES {
        return L::zero();
    }
    let (full, part) = (length / L::LANES, length % L::LANES);
    let lanes: [u32; 16] =
        std::array::from_fn(|lane| u32::MAX.checked_shl(shift(full, lane < part)).unwrap_or(0));
    // SAFETY: 16 lanes are the most there are.
    unsafe { L::load(lanes.as_ptr()) }
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "at most 32 keys a lane")]
fn shift(full: usize, one_more: bool) -> u32 {
    full as u32 + u32::from(one_more)
}

/// Transposes the 32 x 32 bits of every lane: bit i of row b becomes what bit b of row i was.
#[inline(always)]
fn transpose<L: Lanes>(rows: &mut [L; 32]) {
    swap_halves::<L, 16>(rows, 0x0000_ffff);
    swap_halves::<L, 8>(rows, 0x00ff_00ff);
    swap_halves::<L, 4>(rows, 0x0f0f_0f0f);
    swap_halves::<L, 2>(rows, 0x3333_3333);
    swap_halves::<L, 1>(rows, 0x5555_5555);
}

/// Exchanges the high bits of each row with the low bits of the row `BY` after it.
#[inline(always)]
fn swap_halves<L: Lanes, const BY: i32>(rows: &mut [L; 32], low: u32) {
    let low = L::splat(low);
    let by = BY.unsigned_abs() as usize;
    for pair in 0..16 {
        let first = pair / by * by * 2 + pair % by;
        let change = rows[first].shr::<BY>().xor(rows[first + by]).and(low);
        rows[first + by] = rows[first + by].xor(change);
        rows[first] = rows[first].xor(change.shl::<BY>());
    }
}

/// The number of one bits in the ORs of the table rows that each probe picks.
#[inline(always)]
unsafe fn ones<L: Lanes, W: Rest, const GROUPS: usize, const BLOCKS: usize>(
    probes: &[W],
    tables: *const [L; BLOCKS],
) -> u64 {
    let mut counts = Counts([L::zero(); 4]);
    let mut eights = probes.chunks_exact(8 / BLOCKS);
    for probes in &mut eights {
        let mut any = [L::zero(); 8];
        for (at, any) in any.iter_mut().enumerate() {
            // SAFETY: the caller filled the tables.
            *any =
                unsafe { picked::<L, W, GROUPS, BLOCKS>(probes[at / BLOCKS], tables, at % BLOCKS) };
        }
        counts.add(any);
    }
    let mut sums = L::zero();
    for &probe in eights.remainder() {
        for block in 0..BLOCKS {
            // SAFETY: as above.
            let any = unsafe { picked::<L, W, GROUPS, BLOCKS>(probe, tables, block) };
            sums = any.add_ones(sums);
        }
    }
    counts.total() + sum_of(sums)
}

/// Numbers of one bits: in every bit position of the first three vectors so many ones, twos and
/// fours, and in every 64-bit lane of the last so many eights.
struct Counts<L>([L; 4]);

impl<L: Lanes> Counts<L> {
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

/// The OR of the rows that a probe picks in the tables of a block: its zeros are the keys disjoint
/// from it.
#[inline(always)]
unsafe fn picked<L: Lanes, W: Rest, const GROUPS: usize, const BLOCKS: usize>(
    probe: W,
    tables: *const [L; BLOCKS],
    block: usize,
) -> L {
    // SAFETY: the bits of a group pick one of its rows.
    unsafe {
        let mut any = row(probe, tables, 0, block);
        let mut group = 1;
        while group + 1 < GROUPS {
            let (one, other) = (
                row(probe, tables, group, block),
                row(probe, tables, group + 1, block),
            );
            any = L::or3(any, one, other);
            group += 2;
        }
        if group < GROUPS {
            any.or(row(probe, tables, group, block))
        } else {
            any
        }
    }
}

/// The row that a probe picks in the table of a group.
#[inline(always)]
unsafe fn row<L: Lanes, W: Rest, const BLOCKS: usize>(
    probe: W,
    tables: *const [L; BLOCKS],
    group: usize,
    block: usize,
) -> L {
    let row = ROWS * group + probe.field::<GROUP_BITS>(GROUP_BITS * group);
    // SAFETY: the caller filled the tables.
    unsafe { *tables.add(row).cast::<L>().add(block) }
}

#[inline(always)]
fn sum_of<L: Lanes>(sums: L) -> u64 {
    let mut words = [0_u64; 8];
    // SAFETY: eight words hold the widest vector.
    unsafe { sums.store(words.as_mut_ptr().cast()) };
    words.iter().sum()
}
