//! Tables of a bit-sliced leaf.

use std::mem::MaybeUninit;

use crate::{
    join::{grid::gather::List, layout::Groups},
    simd::{Lanes, Residual, Set, Work},
};

/// Work that fills the tables for one block of up to `32 * LANES` keys.
///
/// Row i of a group's table is the OR of the planes of the bits set in i; a plane has one bit per
/// key. Rows are `BLOCKS` vectors apart. Also fills any `masks`: a table of the X3 bits, which are
/// on top of the residual keys. The bits of keys past the end are ones in every row of the masks
/// or, without masks, of the first table.
///
/// The creator vouches for the keys, the slack after them, and the room for tables and masks.
pub(crate) struct Build<L, W, const BLOCKS: usize> {
    pub(crate) groups: Groups,
    pub(crate) keys: List<W>,
    pub(crate) tables: *mut L,
    pub(crate) masks: Option<(*mut L, usize)>,
}

impl<L: Lanes, W: Residual, const BLOCKS: usize> Work for Build<L, W, BLOCKS> {
    type Result = ();

    #[inline(always)]
    fn run<S: Set>(self, _set: S) {
        let List { start: keys, length } = self.keys;
        let mut planes = [const { MaybeUninit::uninit() }; 65];
        // SAFETY: the slack covers a whole block; the words of a residual key have all its bits.
        unsafe {
            let rows = |word| move |at| load_words::<L, W>(keys.add(at * L::LANES), word);
            transpose(rows(0), planes.first_chunk_mut().expect("one word"));
            let bits = if W::WORDS == 1 {
                32
            } else {
                transpose(rows(1), planes[32..].first_chunk_mut().expect("two words"));
                planes[64].write(L::zero());
                65
            };
            let planes = std::slice::from_raw_parts(planes.as_ptr().cast(), bits);
            let outside = past_end::<L>(length);
            if let Some((masks, x3_bits)) = self.masks {
                write_masks::<L, BLOCKS>(outside, &planes[32 - x3_bits..32], masks);
                write_tables::<L, BLOCKS>(self.groups, L::zero(), planes, self.tables);
            } else {
                write_tables::<L, BLOCKS>(self.groups, outside, planes, self.tables);
            }
        }
    }
}

/// Writes a mask per pattern of these planes' bits; all include `outside`.
///
/// # Safety
/// There is room for the masks.
#[inline(always)]
unsafe fn write_masks<L: Lanes, const BLOCKS: usize>(outside: L, planes: &[L], masks: *mut L) {
    // SAFETY: the caller has room for the masks.
    unsafe {
        masks.write(outside);
        for (bit, &plane) in planes.iter().enumerate() {
            for pattern in 0..1 << bit {
                let without = masks.add(pattern * BLOCKS).read();
                masks.add((pattern | 1 << bit) * BLOCKS).write(without.or(plane));
            }
        }
    }
}

/// Writes the tables of all groups; all rows of the first include `outside`.
///
/// # Safety
/// There is room for the tables of all groups.
#[inline(always)]
unsafe fn write_tables<L: Lanes, const BLOCKS: usize>(
    groups: Groups,
    outside: L,
    planes: &[L],
    tables: *mut L,
) {
    for group in 0..groups.number {
        let planes = &planes[groups.first_bit(group)..];
        let outside = if group == 0 { outside } else { L::zero() };
        // SAFETY: the caller's tables have room for all groups.
        unsafe {
            let table = tables.add(groups.first_row(group) * BLOCKS);
            match groups.bits(group) {
                4 => write_table::<L, 4, 2, BLOCKS>(outside, planes, table),
                _ => write_table::<L, 5, 4, BLOCKS>(outside, planes, table),
            }
        }
    }
}

/// Writes the 8 * `EIGHTS` rows of a table of `BITS` bits; all include `outside`.
///
/// # Safety
/// There is room for the rows.
#[inline(always)]
unsafe fn write_table<L: Lanes, const BITS: usize, const EIGHTS: usize, const BLOCKS: usize>(
    outside: L,
    planes: &[L],
    table: *mut L,
) {
    let planes = planes.first_chunk::<BITS>().expect("a plane for each bit");
    // The rows of the three low planes stay in registers.
    let mut low = [outside; 8];
    for row in 1..low.len() {
        let bit = row.ilog2() as usize;
        low[row] = low[row ^ 1 << bit].or(planes[bit]);
    }
    let mut high = [L::zero(); EIGHTS];
    for row in 0..EIGHTS {
        if row > 0 {
            let bit = row.ilog2() as usize;
            high[row] = high[row ^ 1 << bit].or(planes[3 + bit]);
        }
        for (at, &low) in low.iter().enumerate() {
            // SAFETY: the caller has room for the rows.
            unsafe { table.add((8 * row + at) * BLOCKS).write(low.or(high[row])) };
        }
    }
}

/// Returns ones past the first `length` keys; key i LANES + j is bit i of lane j.
#[inline(always)]
fn past_end<L: Lanes>(length: usize) -> L {
    if length >= 32 * L::LANES {
        return L::zero();
    }
    let (full, part) = (length / L::LANES, length % L::LANES);
    let lanes: [u32; 16] =
        std::array::from_fn(|lane| u32::MAX.checked_shl(shift(full, lane < part)).unwrap_or(0));
    // SAFETY: vectors have at most 16 lanes.
    unsafe { L::load(lanes.as_ptr()) }
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "at most 32 keys per lane")]
fn shift(full: usize, one_more: bool) -> u32 {
    full as u32 + u32::from(one_more)
}

/// Transposes the 32 × 32 bits of every lane: bit i of plane b is bit b of row i.
///
/// Works in two rounds, each on as many rows as fit in registers.
#[inline(always)]
fn transpose<L: Lanes>(row: impl Fn(usize) -> L, planes: &mut [MaybeUninit<L>; 32]) {
    for at in 0..8 {
        let [a, b, c, d] = [row(at), row(at + 8), row(at + 16), row(at + 24)];
        let (a, c) = L::exchange::<16>(a, c);
        let (b, d) = L::exchange::<16>(b, d);
        let (a, b) = L::exchange::<8>(a, b);
        let (c, d) = L::exchange::<8>(c, d);
        for (to, plane) in [a, b, c, d].into_iter().enumerate() {
            planes[at + 8 * to].write(plane);
        }
    }
    for eight in planes.as_chunks_mut::<8>().0 {
        // SAFETY: all were written above.
        let mut rows = eight.map(|row| unsafe { row.assume_init() });
        exchange_pairs::<L, 4>(&mut rows);
        exchange_pairs::<L, 2>(&mut rows);
        exchange_pairs::<L, 1>(&mut rows);
        *eight = rows.map(MaybeUninit::new);
    }
}

/// [Exchanges](Lanes::exchange) bits between each row and the row `BY` after it.
#[inline(always)]
fn exchange_pairs<L: Lanes, const BY: i32>(rows: &mut [L; 8]) {
    let by = BY.unsigned_abs() as usize;
    for pair in 0..4 {
        let first = pair / by * by * 2 + pair % by;
        (rows[first], rows[first + by]) = L::exchange::<BY>(rows[first], rows[first + by]);
    }
}

/// Loads word `word` of the next `LANES` keys.
///
/// # Safety
/// `LANES` keys are readable.
#[inline(always)]
pub(super) unsafe fn load_words<L: Lanes, W: Residual>(keys: *const W, word: usize) -> L {
    if W::WORDS == 1 {
        // SAFETY: the caller vouches for the keys.
        return unsafe { L::load(keys.cast()) };
    }
    let mut lanes = [0; 16];
    for (at, lane) in lanes.iter_mut().enumerate().take(L::LANES) {
        // SAFETY: as above.
        *lane = unsafe { *keys.add(at) }.word(word);
    }
    // SAFETY: vectors have at most 16 lanes.
    unsafe { L::load(lanes.as_ptr()) }
}

/// Returns all ones in the first `lanes` lanes.
#[inline(always)]
pub(super) fn lanes_below<L: Lanes>(lanes: usize) -> L {
    const EDGE: [u32; 32] = {
        let mut edge = [0; 32];
        let mut lane = 0;
        while lane < 16 {
            edge[lane] = u32::MAX;
            lane += 1;
        }
        edge
    };
    // SAFETY: vectors have at most 16 lanes.
    unsafe { L::load(EDGE.as_ptr().add(16 - lanes.min(16))) }
}
