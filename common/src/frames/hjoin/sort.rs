//! Sorting a list by cell: the keys of every cell are counted, then each is put where those of the
//! cells before it end.
//!
//! Neighbours in a list are alike and often of one cell, and a counter that changes again waits for
//! its last change to reach memory and come back. So the two halves of a list are gone through side
//! by side, each with counters of its own.

use super::{
    grid::Rest,
    lanes::{Lanes, Line},
    layout::{ByteTables, Order, extract},
    split,
};

/// Memory that sorting a list takes for a while.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    counters: Vec<Counters>,
    /// For each counter of a row, the keys that are not in `by_row` yet.
    pending: Vec<[Line; 2]>,
    /// Keys by row.
    by_row: Vec<Line>,
    /// Where each row starts in `by_row`, and the end.
    rows: Vec<u32>,
    split: split::Scratch,
}

/// Of one place, for the first and the second half of a list: how many keys it has, and then where
/// the next of them goes.
type Counters = [u32; 2];

/// From this many cells on, a list is sorted by rows first, and then every row on its own in the
/// caches.
const MANY_CELLS: usize = 1 << 14;

/// Does `$visit` for all keys, taken from both halves in turns, given the half, the number of the key
/// in it, and the key. Not a closure: one with several calls is not inlined, and compiled for no
/// instruction set.
macro_rules! each {
    ($keys:expr, |$half:pat_param, $at:pat_param, $key:pat_param| $visit:block) => {
        let (first, second) = $keys.split_at($keys.len() / 2);
        for (at, (&first, &second)) in first.iter().zip(second).enumerate() {
            {
                let ($half, $at, $key) = (0, at, first);
                $visit
            }
            {
                let ($half, $at, $key) = (1, at, second);
                $visit
            }
        }
        if let Some(&last) = second.get(first.len()) {
            let ($half, $at, $key) = (1, first.len(), last);
            $visit
        }
    };
}

/// The most rows: a list has at most 2^24 cells, and half the bits choose the row.
const MOST_ROWS: usize = 1 << 12;

/// The most memory, in bytes, that sorting a list of this length takes for a while.
pub(super) fn memory_bytes(keys: u64) -> u64 {
    let counters = MANY_CELLS * size_of::<Counters>() + MOST_ROWS * size_of::<[Line; 2]>();
    8 * keys + counters as u64 + split::memory_bytes(keys)
}

/// Takes keys apart, with the CPU's instruction for it or by tables.
#[derive(Clone, Copy)]
pub(super) struct Apart<'a> {
    /// Of the words that [`Self::word`] makes.
    order: Order,
    tables: &'a ByteTables,
}

impl<'a> Apart<'a> {
    /// Takes apart keys of this order; the tables are set to it where the CPU needs them.
    #[inline(always)]
    pub(super) fn new<L: Lanes>((order, tables): (Order, &'a ByteTables)) -> Self {
        let order = if L::EXTRACTS {
            order
        } else {
            order.of_sorted()
        };
        Self { order, tables }
    }

    /// The bits of a key, so arranged that the CPU extracts parts of them fast.
    #[inline(always)]
    fn word<L: Lanes>(self, key: u64) -> u64 {
        if L::EXTRACTS {
            key
        } else {
            self.tables.sorted(key)
        }
    }

    /// The major pattern of a key.
    #[inline(always)]
    pub(super) fn major<L: Lanes>(self, key: u64) -> u64 {
        L::extract(self.word::<L>(key), self.order.major)
    }

    /// The minor pattern of a key.
    #[inline(always)]
    pub(super) fn minor<L: Lanes>(self, key: u64) -> u64 {
        L::extract(self.word::<L>(key), self.order.minor)
    }

    /// The rest of a key.
    #[inline(always)]
    pub(super) fn rest<L: Lanes, W: Rest>(self, key: u64) -> W {
        W::new(L::extract(self.word::<L>(key), self.order.rest))
    }

    /// The number of a key's place.
    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "below the number of places"
    )]
    fn place<L: Lanes>(self, key: u64, places: Places) -> usize {
        L::extract(self.word::<L>(key), places.bits()) as usize
    }
}

/// Places to sort keys into. They stand for patterns of some bits, ordered by those of the major
/// bits first, then by those of the minor ones. But a place's number has all its bits as they follow
/// each other in a key, so that one instruction extracts it.
#[derive(Clone, Copy)]
struct Places {
    major: u64,
    minor: u64,
}

impl Places {
    #[inline(always)]
    fn bits(self) -> u64 {
        self.major | self.minor
    }

    fn len(self) -> usize {
        1 << self.bits().count_ones()
    }

    /// The numbers of all places, in their order.
    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "below the number of places"
    )]
    fn in_order(self) -> impl Iterator<Item = usize> {
        let [major, minor] =
            [self.major, self.minor].map(|bits| extract(bits, self.bits()) as usize);
        subsets(major).flat_map(move |row| subsets(minor).map(move |column| row | column))
    }

    /// Divided in two steps of as many places: by the upper half of the bits, then by the lower.
    fn halves(self) -> (Self, Self) {
        let mut low = self;
        for _ in 0..self.bits().count_ones() / 2 {
            let bits = if low.major == 0 {
                &mut low.minor
            } else {
                &mut low.major
            };
            *bits ^= 1 << bits.ilog2();
        }
        let high = Self {
            major: self.major ^ low.major,
            minor: self.minor ^ low.minor,
        };
        (high, low)
    }
}

/// All subsets of a set of bits, in increasing order.
#[inline(always)]
fn subsets(set: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(0), move |subset: &usize| {
        let next = subset.wrapping_sub(set) & set;
        (next != 0).then_some(next)
    })
}

/// Sorts `keys`, fewer than 2^32 of them, into `rests` by cell; `offsets` become where each cell
/// starts, and the end.
#[inline(always)]
pub(super) fn sort<L: Lanes, W: Rest>(
    order: (Order, &ByteTables),
    keys: &[u64],
    (offsets, rests): (&mut [u32], &mut [W]),
    scratch: &mut Scratch,
) {
    if L::SPLITS && split::pays(offsets.len() - 1, keys.len()) {
        // SAFETY: the kernel that got us here proves the instruction set.
        unsafe { split::sort::<L, W>(order.0, keys, (offsets, rests), &mut scratch.split) };
        return;
    }
    let apart = Apart::new::<L>(order);
    let Order { major, minor, .. } = apart.order;
    let cells = Places { major, minor };
    let (end, offsets) = offsets.split_last_mut().expect("one more than cells");
    *end = offset(keys.len());
    if cells.len() < MANY_CELLS {
        let to = (&mut scratch.counters, offsets);
        let counters = count::<L, W>(apart, cells, keys, to, None);
        // SAFETY: these keys were counted in these places.
        unsafe { put::<L, W>(apart, cells, keys, (counters, rests)) };
        return;
    }
    let (rows, columns) = cells.halves();
    sort_by_row::<L>(apart, rows, keys, scratch);
    let ends = scratch.rows.windows(2);
    for (ends, offsets) in ends.zip(offsets.chunks_exact_mut(columns.len())) {
        let row = ends[0] as usize..ends[1] as usize;
        let keys = &Line::words(&scratch.by_row)[row.clone()];
        let rests = &mut rests[row];
        let to = (&mut scratch.counters, &mut *offsets);
        let counters = count::<L, W>(apart, columns, keys, to, Some(rests));
        // SAFETY: as above.
        unsafe { put::<L, W>(apart, columns, keys, (counters, rests)) };
        for offset in offsets {
            *offset += ends[0];
        }
    }
}

/// Sorts keys to `scratch.by_row`, a whole line at a time and past the caches: lists that have many
/// cells pass through memory anyway, and lines that are written as a whole need not be read first.
#[inline(always)]
fn sort_by_row<L: Lanes>(apart: Apart<'_>, places: Places, keys: &[u64], scratch: &mut Scratch) {
    let Scratch { rows, by_row, .. } = scratch;
    rows.clear();
    rows.resize(places.len() + 1, offset(keys.len()));
    let to = (&mut scratch.counters, &mut rows[..places.len()]);
    let counters = count::<L, u64>(apart, places, keys, to, None);
    let lines = keys.len().div_ceil(Line::WORDS);
    if by_row.len() < lines {
        by_row.resize(lines, Line::default());
    }
    let by_row = &mut by_row[..lines];
    let pending = cleared(&mut scratch.pending, places.len());
    each!(keys, |half, _, key| {
        let place = apart.place::<L>(key, places);
        // SAFETY: there are so many places.
        let (counters, lines) = unsafe {
            (
                counters.get_unchecked_mut(place),
                pending.get_unchecked_mut(place),
            )
        };
        let at = counters[half] as usize;
        counters[half] += 1;
        lines[half].0[at % Line::WORDS] = key;
        if at % Line::WORDS == Line::WORDS - 1 {
            // SAFETY: no line is written twice before the end of all, or read.
            unsafe { L::stream(&lines[half], &mut by_row[at / Line::WORDS]) };
        }
    });
    L::end_streams();
    // The first line of a counter also went over keys of the counters before it, which are the last
    // of theirs and still pending.
    let mut start = 0;
    for place in places.in_order() {
        for (&end, line) in counters[place].iter().zip(&pending[place]) {
            let end = end as usize;
            for at in start.max(end - end % Line::WORDS)..end {
                by_row[at / Line::WORDS].0[at % Line::WORDS] = line.0[at % Line::WORDS];
            }
            start = end;
        }
    }
}

/// So many cleared elements.
#[inline(always)]
fn cleared<T: Clone + Default>(elements: &mut Vec<T>, length: usize) -> &mut [T] {
    elements.clear();
    elements.resize(length, T::default());
    elements
}

/// Counts the keys of every place, sets `offsets` to where each place starts, and returns where the
/// next key of each goes. Meanwhile `disorder`, memory for the keys that is written in no order, is
/// fetched in order.
#[inline(always)]
fn count<'a, L: Lanes, W: Rest>(
    apart: Apart<'_>,
    places: Places,
    keys: &[u64],
    (counters, offsets): (&'a mut Vec<Counters>, &mut [u32]),
    disorder: Option<&[W]>,
) -> &'a mut [Counters] {
    let counters = cleared(counters, places.len());
    let pairs_a_line = size_of::<Line>() / (2 * size_of::<W>());
    each!(keys, |half, at, key| {
        if let Some(disorder) = disorder
            && half == 0
            && at % pairs_a_line == 0
        {
            L::prefetch(disorder.as_ptr().wrapping_add(2 * at));
        }
        // SAFETY: there are so many places.
        let counters = unsafe { counters.get_unchecked_mut(apart.place::<L>(key, places)) };
        counters[half] += 1;
    });
    assert_eq!(offsets.len(), counters.len());
    let mut sum = 0;
    for (offset, place) in offsets.iter_mut().zip(places.in_order()) {
        *offset = sum;
        for counter in &mut counters[place] {
            sum += std::mem::replace(counter, sum);
        }
    }
    counters
}

/// Puts the rest of every key where it goes.
///
/// # Safety
/// The counters are what [`count`] returned for these keys and places.
#[inline(always)]
unsafe fn put<L: Lanes, W: Rest>(
    apart: Apart<'_>,
    places: Places,
    keys: &[u64],
    (counters, rests): (&mut [Counters], &mut [W]),
) {
    assert!(counters.len() == places.len() && rests.len() >= keys.len());
    each!(keys, |half, _, key| {
        // SAFETY: there are so many places.
        let counters = unsafe { counters.get_unchecked_mut(apart.place::<L>(key, places)) };
        let at = counters[half] as usize;
        counters[half] += 1;
        // SAFETY: a counter starts after as many keys as come before those it counted.
        unsafe { *rests.get_unchecked_mut(at) = apart.rest::<L, W>(key) };
    });
}

#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "lists are shorter than 2^32"
)]
fn offset(keys: usize) -> u32 {
    keys as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        frames::hjoin::{Work, dispatch, scalar::Words},
        kernel::Kernel,
    };

    struct Sort<'a>(Order, &'a [u64]);

    impl Sort<'_> {
        fn sorted<L: Lanes, W: Rest>(&self, scratch: &mut Scratch) -> (Vec<u32>, Vec<u64>) {
            let &Self(order, keys) = self;
            let mut tables = ByteTables::default();
            tables.set(order);
            let cells = 1 << (order.major_bits + order.minor_bits);
            let (mut offsets, mut rests) = (vec![1; cells + 1], vec![W::default(); keys.len()]);
            let to = (&mut offsets[..], &mut rests[..]);
            sort::<L, W>((order, &tables), keys, to, scratch);
            (offsets, rests.into_iter().map(W::bits).collect())
        }
    }

    impl Work for Sort<'_> {
        type Result = ();

        #[inline(always)]
        fn run<L: Lanes>(self) {
            let expected = self.0.sort_plainly(self.1);
            // What another list left behind does not matter.
            let mut scratch = Scratch::default();
            let other = Sort(Order::of_masks(40, 0x7f << 20, 0x7f << 4), &[5 << 20; 99]);
            other.sorted::<L, u64>(&mut scratch);
            assert_eq!(self.sorted::<L, u64>(&mut scratch), expected);
            if self.0.rest_bits <= 32 {
                assert_eq!(self.sorted::<L, u32>(&mut scratch), expected);
            }
        }
    }

    #[test]
    fn every_kernel_sorts_by_cell_and_keeps_the_order_within() {
        let random = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) ^ i;
        for (key_bits, major, minor) in [
            (30, 0, 0),
            (34, 0b1011, 0b100),
            (40, 0xf0, 0x80_0000_0f00),
            (46, 0x5500_0000, 0xaa00_0f0f),
            (50, 0xff << 40 | 1, 0x1fc << 20),
            (62, 0, 0x3fff << 48),
            (62, 0x7fff << 10, 0),
        ] {
            let order = Order::of_masks((1 << key_bits) - 1, major, minor);
            for length in [0, 1, 2, 3, 100, 1001, 20_000] {
                // Often the same bits, as half boards have.
                let keys: Vec<u64> = (0..length)
                    .map(|i| random(i / 3) & random(i) & ((1 << key_bits) - 1))
                    .collect();
                Sort(order, &keys).run::<Words>();
                for kernel in Kernel::available() {
                    dispatch(kernel, Sort(order, &keys));
                }
            }
        }
    }
}
