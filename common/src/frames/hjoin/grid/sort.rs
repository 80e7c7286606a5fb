//! Sorting a list by cell: the keys of every cell are counted, then each is put where those of the
//! cells before it end.
//!
//! Neighbours in a list are alike and often of one cell, and a counter that changes again waits for
//! its last change to reach memory and come back. So the two halves of a list are gone through side
//! by side, each with counters of its own.

use crate::{
    frames::hjoin::layout::order::{ByteTables, Dissection, Order, extract},
    simd::{CacheLine, Lanes, Rest, Set, Work},
};

/// Memory that sorting takes for a while.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(super) counters: Vec<Counters>,
}

impl Scratch {
    /// A cleared counter for each of so many cells.
    pub(crate) fn clear(&mut self, cells: usize) {
        cleared(&mut self.counters, cells);
    }
}

/// Two lists of keys to go through side by side.
pub(crate) type Lists<'a> = (&'a [u64], &'a [u64]);

/// Of one place, for the first and the second half of a list: how many keys it has, and then where
/// the next of them goes.
pub(super) type Counters = [u32; 2];

/// Does `$visit` for all keys of two lists, taken from both in turns, given which list and the key. Not a
/// closure: one with several calls is not inlined, and compiled for no instruction set.
macro_rules! each {
    ($first:expr, $second:expr, |$half:pat_param, $key:pat_param| $visit:block) => {
        let (first, second): (&[u64], &[u64]) = ($first, $second);
        let both = first.len().min(second.len());
        for (&first, &second) in first.iter().zip(second) {
            {
                let ($half, $key) = (0, first);
                $visit
            }
            {
                let ($half, $key) = (1, second);
                $visit
            }
        }
        let (half, left) = if both < first.len() {
            (0, &first[both..])
        } else {
            (1, &second[both..])
        };
        for &key in left {
            let ($half, $key) = (half, key);
            $visit
        }
    };
}
pub(crate) use each;

/// The most memory, in bytes, that sorting into so many cells takes for a while.
pub(crate) fn memory_bytes(cells: u64) -> u64 {
    cells * size_of::<Counters>() as u64
}

/// Takes keys apart, with the CPU's instruction for it or by tables.
#[derive(Clone, Copy)]
pub(crate) struct Apart<'a> {
    /// Of the words that [`Self::word`] makes.
    order: Order,
    tables: &'a ByteTables,
}

impl<'a> Apart<'a> {
    /// Takes apart keys of this order; the tables are set to it where the CPU needs them.
    #[inline(always)]
    pub(crate) fn new<L: Lanes>(Dissection { order, tables }: Dissection<'a>) -> Self {
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
    pub(crate) fn major<L: Lanes>(self, key: u64) -> u64 {
        L::extract(self.word::<L>(key), self.order.major)
    }

    /// The minor pattern of a key.
    #[inline(always)]
    pub(crate) fn minor<L: Lanes>(self, key: u64) -> u64 {
        L::extract(self.word::<L>(key), self.order.minor)
    }

    /// The rest of a key.
    #[inline(always)]
    pub(crate) fn rest<L: Lanes, W: Rest>(self, key: u64) -> W {
        W::new(L::extract(self.word::<L>(key), self.order.rest))
    }

    /// The number of a key's place.
    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "below the number of places"
    )]
    pub(crate) fn place<L: Lanes>(self, key: u64, places: Places) -> usize {
        L::extract(self.word::<L>(key), places.bits()) as usize
    }
}

/// Places to sort keys into. They stand for patterns of some bits, ordered by those of the major
/// bits first, then by those of the minor ones. But a place's number has all its bits as they follow
/// each other in a key, so that one instruction extracts it.
#[derive(Clone, Copy)]
pub(crate) struct Places {
    major: u64,
    minor: u64,
}

impl Places {
    /// A place for every cell of keys that are taken apart so.
    #[inline(always)]
    pub(crate) fn cells(apart: Apart<'_>) -> Self {
        let Order { major, minor, .. } = apart.order;
        Self { major, minor }
    }

    #[inline(always)]
    fn bits(self) -> u64 {
        self.major | self.minor
    }

    pub(crate) fn len(self) -> usize {
        1 << self.bits().count_ones()
    }

    /// The numbers of all places, in their order.
    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "below the number of places"
    )]
    pub(crate) fn in_order(self) -> impl Iterator<Item = usize> {
        let [major, minor] =
            [self.major, self.minor].map(|bits| extract(bits, self.bits()) as usize);
        subsets(major).flat_map(move |row| subsets(minor).map(move |column| row | column))
    }

    /// Divided in two steps of as many places: by the upper half of the bits, then by the lower.
    pub(crate) fn halves(self) -> (Self, Self) {
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
pub(crate) fn sort<L: Lanes, W: Rest>(
    dissection: Dissection<'_>,
    keys: &[u64],
    offsets: &mut [u32],
    rests: &mut [W],
    scratch: &mut Scratch,
) {
    let apart = Apart::new::<L>(dissection);
    let (end, offsets) = offsets.split_last_mut().expect("one more than cells");
    *end = offset(keys.len());
    sort_into::<L, W>(
        apart,
        Places::cells(apart),
        &[keys.split_at(keys.len() / 2)],
        &mut scratch.counters,
        offsets,
        rests,
    );
}

/// Sorts `keys`, wherever they lie, into `rests` by place; `offsets` become where each place starts.
#[inline(always)]
fn sort_into<L: Lanes, W: Rest>(
    apart: Apart<'_>,
    places: Places,
    keys: &[Lists<'_>],
    counters: &mut Vec<Counters>,
    offsets: &mut [u32],
    rests: &mut [W],
) {
    let counters = count::<L, W>(apart, places, keys, counters, offsets, rests);
    // SAFETY: these keys were counted in these places.
    unsafe { put::<L, W>(apart, places, keys, counters, rests) };
}

/// One row of a list, whose rows were told apart before: the columns are left to sort by.
pub(crate) struct SortRow<'a, W> {
    pub(crate) dissection: Dissection<'a>,
    /// Its keys, some here, some there.
    pub(crate) keys: &'a [Lists<'a>],
    /// Become where each cell starts in the list; the row starts at `start`.
    pub(crate) offsets: &'a mut [u32],
    pub(crate) start: usize,
    pub(crate) rests: &'a mut [W],
    pub(crate) scratch: &'a mut Scratch,
}

impl<W: Rest> Work for SortRow<'_, W> {
    type Result = ();

    #[inline(always)]
    fn run<S: Set>(self, _set: S) {
        let apart = Apart::new::<S::Bits>(self.dissection);
        let (_, columns) = Places::cells(apart).halves();
        sort_into::<S::Bits, W>(
            apart,
            columns,
            self.keys,
            &mut self.scratch.counters,
            self.offsets,
            self.rests,
        );
        for at in self.offsets {
            *at += offset(self.start);
        }
    }
}

/// The rows that a long list is sorted by first.
pub(crate) struct Rows {
    /// Of all rows, in their order.
    pub(crate) numbers: Vec<usize>,
    /// How many cells each has.
    pub(crate) columns: usize,
}

/// Finds the rows.
pub(crate) struct FindRows<'a>(pub(crate) Dissection<'a>);

impl Work for FindRows<'_> {
    type Result = Rows;

    #[inline(always)]
    fn run<S: Set>(self, _set: S) -> Rows {
        let (rows, columns) = Places::cells(Apart::new::<S::Bits>(self.0)).halves();
        Rows {
            numbers: rows.in_order().collect(),
            columns: columns.len(),
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

/// Lists are fetched so many ahead: the blocks of a row lie here and there, and CPUs do not guess where.
const AHEAD: usize = 2;

/// Counts the keys of every place, sets `offsets` to where each place starts, and returns where the
/// next key of each goes. Meanwhile `rests`, which is then written in no order, is fetched in order.
#[inline(always)]
fn count<'a, L: Lanes, W: Rest>(
    apart: Apart<'_>,
    places: Places,
    keys: &[Lists<'_>],
    counters: &'a mut Vec<Counters>,
    offsets: &mut [u32],
    rests: &[W],
) -> &'a mut [Counters] {
    let counters = cleared(counters, places.len());
    let keys_a_line = size_of::<CacheLine>() / size_of::<W>();
    let (rests, mut at) = (rests.as_ptr(), 0_usize);
    for (number, (first, second)) in keys.iter().enumerate() {
        if let Some((first, second)) = keys.get(number + AHEAD) {
            for list in [first, second] {
                let lines = list.iter().step_by(CacheLine::WORDS);
                lines.for_each(|line| L::prefetch(line));
            }
        }
        each!(first, second, |half, key| {
            at += 1;
            if at.is_multiple_of(keys_a_line) {
                L::prefetch(rests.wrapping_add(at));
            }
            // SAFETY: there are so many places.
            let counters = unsafe { counters.get_unchecked_mut(apart.place::<L>(key, places)) };
            counters[half] += 1;
        });
    }
    add_up(&mut [&mut *counters], places, offsets);
    counters
}

/// From how many keys each member counted in every place to where the next ones of each go: those of the
/// first member come first. `offsets` become where each place starts; returns how many keys there are.
pub(super) fn add_up(members: &mut [&mut [Counters]], places: Places, offsets: &mut [u32]) -> u32 {
    assert_eq!(offsets.len(), places.len());
    let mut sum = 0;
    for (offset, place) in offsets.iter_mut().zip(places.in_order()) {
        *offset = sum;
        for counters in &mut *members {
            for counter in &mut counters[place] {
                sum += std::mem::replace(counter, sum);
            }
        }
    }
    sum
}

/// Puts the rest of every key where it goes.
///
/// # Safety
/// The counters are what [`count`] returned for these keys and places.
#[inline(always)]
unsafe fn put<L: Lanes, W: Rest>(
    apart: Apart<'_>,
    places: Places,
    keys: &[Lists<'_>],
    counters: &mut [Counters],
    rests: &mut [W],
) {
    let all: usize = keys.iter().map(|(a, b)| a.len() + b.len()).sum();
    assert!(counters.len() == places.len() && rests.len() >= all);
    for (first, second) in keys {
        each!(first, second, |half, key| {
            // SAFETY: there are so many places.
            let counters = unsafe { counters.get_unchecked_mut(apart.place::<L>(key, places)) };
            let at = counters[half] as usize;
            counters[half] += 1;
            // SAFETY: a counter starts after as many keys as come before those it counted.
            unsafe { *rests.get_unchecked_mut(at) = apart.rest::<L, W>(key) };
        });
    }
}

#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "lists are shorter than 2^32"
)]
pub(crate) fn offset(keys: usize) -> u32 {
    keys as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{kernel::Kernel, simd::dispatch};

    struct Sort<'a>(Order, &'a [u64]);

    impl Sort<'_> {
        fn sorted<L: Lanes, W: Rest>(&self, scratch: &mut Scratch) -> (Vec<u32>, Vec<u64>) {
            let &Self(order, keys) = self;
            let mut tables = ByteTables::default();
            tables.set(order);
            let cells = 1 << (order.major_bits + order.minor_bits);
            let (mut offsets, mut rests) = (vec![1; cells + 1], vec![W::default(); keys.len()]);
            let dissection = Dissection {
                order,
                tables: &tables,
            };
            sort::<L, W>(dissection, keys, &mut offsets, &mut rests, scratch);
            (offsets, rests.into_iter().map(W::bits).collect())
        }
    }

    impl Work for Sort<'_> {
        type Result = ();

        #[inline(always)]
        fn run<S: Set>(self, _set: S) {
            let expected = self.0.sort_plainly(self.1);
            // What another list left behind does not matter.
            let mut scratch = Scratch::default();
            let other = Sort(Order::of_masks(40, 0x7f << 20, 0x7f << 4), &[5 << 20; 99]);
            other.sorted::<S::Bits, u64>(&mut scratch);
            assert_eq!(self.sorted::<S::Bits, u64>(&mut scratch), expected);
            if self.0.rest_bits <= 32 {
                assert_eq!(self.sorted::<S::Bits, u32>(&mut scratch), expected);
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
                for kernel in Kernel::available() {
                    dispatch(kernel, Sort(order, &keys));
                }
            }
        }
    }
}
