//! Counting sort of a list by cell.
//!
//! Neighbors in a list are similar and often fall in the same cell, where the second increment of
//! a counter must wait until the first is stored. So the two halves of a list are processed side by
//! side, each with its own counters.

use crate::{
    join::layout::{KeySplit, extract},
    simd::{CacheLine, Lanes, Residual, Set, SharedWords, Work},
};

/// Temporary memory for sorting.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(super) counters: Vec<Counters>,
}

impl Scratch {
    #[inline(always)]
    pub(super) fn cleared(&mut self, places: usize) -> &mut [Counters] {
        self.counters.clear();
        self.counters.resize(places, [0; 2]);
        &mut self.counters
    }
}

/// Two lists processed side by side.
pub(crate) type ListPair<'a> = (&'a [u64], &'a [u64]);

/// Per place and half of a list: number of keys, then position of the next.
pub(super) type Counters = [u32; 2];

/// Runs `$visit` for all keys of two lists alternately, with list number and key.
///
/// A closure called in several places would not be inlined, and so not be compiled for the
/// instruction set.
macro_rules! interleave {
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
        let (half, left) =
            if both < first.len() { (0, &first[both..]) } else { (1, &second[both..]) };
        for &key in left {
            let ($half, $key) = (half, key);
            $visit
        }
    };
}
pub(crate) use interleave;

/// Returns the maximum temporary memory for this many cells, in bytes.
pub(crate) fn memory_bytes(cells: u64) -> u64 {
    cells * size_of::<Counters>() as u64
}

/// Places to sort keys into, ordered by major pattern, then by minor pattern.
///
/// A place's number keeps its bits in the order of the key, so that one instruction extracts it.
#[derive(Clone, Copy)]
pub(crate) struct Places {
    major: u64,
    minor: u64,
}

impl Places {
    /// Returns a place per cell.
    #[inline(always)]
    pub(crate) fn cells(key_split: KeySplit<'_>) -> Self {
        Self { major: key_split.order.major, minor: key_split.order.minor }
    }

    #[inline(always)]
    fn bits(self) -> u64 {
        self.major | self.minor
    }

    pub(crate) fn len(self) -> usize {
        1 << self.bits().count_ones()
    }

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "below the number of places")]
    pub(crate) fn of<L: Lanes>(self, key: u64, key_split: KeySplit<'_>) -> usize {
        L::extract(key_split.word::<L>(key), self.bits()) as usize
    }

    /// Returns the numbers of all places in order.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "below the number of places")]
    pub(crate) fn in_order(self) -> impl Iterator<Item = usize> {
        let [major, minor] =
            [self.major, self.minor].map(|bits| extract(bits, self.bits()) as usize);
        subsets(major).flat_map(move |row| subsets(minor).map(move |column| row | column))
    }

    /// Splits the places into two steps: upper half of the bits, then lower half.
    pub(crate) fn halves(self) -> (Self, Self) {
        let mut low = self;
        for _ in 0..self.bits().count_ones() / 2 {
            let bits = if low.major == 0 { &mut low.minor } else { &mut low.major };
            *bits ^= 1 << bits.ilog2();
        }
        let high = Self { major: self.major ^ low.major, minor: self.minor ^ low.minor };
        (high, low)
    }
}

/// Returns all subsets of a set of bits in increasing order.
#[inline(always)]
fn subsets(set: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(0), move |subset: &usize| {
        let next = subset.wrapping_sub(set) & set;
        (next != 0).then_some(next)
    })
}

/// Work that sorts fewer than 2^32 keys into `residuals` by place.
pub(crate) struct Sort<'a, W> {
    pub(crate) key_split: KeySplit<'a>,
    pub(crate) places: Places,
    pub(crate) keys: &'a [ListPair<'a>],
    /// Set to the start of each place, counted from `start`.
    pub(crate) offsets: &'a mut [u32],
    pub(crate) start: usize,
    pub(crate) residuals: &'a mut [W],
    /// Whether `residuals` are prefetched, because they are in no cache.
    pub(crate) fetches: bool,
    pub(crate) scratch: &'a mut Scratch,
}

impl<W: Residual> Work for Sort<'_, W> {
    type Result = ();

    #[inline(always)]
    fn run<S: Set>(self, _set: S) {
        let Self { key_split, places, keys, offsets, start, residuals, fetches, scratch } = self;
        let counters = scratch.cleared(places.len());
        let to_fetch = if fetches { &*residuals } else { &[] };
        count::<S::Bits, W>(key_split, places, keys, counters, to_fetch);
        add_up(&mut [&mut *counters], places, offsets, start);
        put::<S::Bits, W, false>(key_split, places, keys, counters, SharedWords::new(residuals));
    }
}

/// Work that counts the keys of every cell, or writes counted keys.
pub(crate) struct CountOrPut<'a, W> {
    pub(crate) key_split: KeySplit<'a>,
    pub(crate) keys: &'a [u64],
    /// Counters per cell and half of the keys.
    pub(crate) scratch: &'a mut Scratch,
    /// Destination of keys that were counted before; `None` to count them.
    pub(crate) residuals: Option<SharedWords<'a, W>>,
}

impl<W: Residual> Work for CountOrPut<'_, W> {
    type Result = ();

    #[inline(always)]
    fn run<S: Set>(self, _set: S) {
        let Self { key_split, keys, scratch, residuals } = self;
        let (places, counters) = (Places::cells(key_split), &mut scratch.counters[..]);
        let keys = &[keys.split_at(keys.len() / 2)];
        match residuals {
            None => count::<S::Bits, W>(key_split, places, keys, counters, &[]),
            Some(residuals) => {
                put::<S::Bits, W, true>(key_split, places, keys, counters, residuals)
            }
        }
    }
}

/// Number of lists prefetched ahead; CPUs do not predict scattered blocks.
const AHEAD: usize = 2;

/// Adds the keys of every place to its counters.
///
/// Also prefetches `residuals`, unless empty, in order, because they are then written in any order.
#[inline(always)]
fn count<L: Lanes, W: Residual>(
    key_split: KeySplit<'_>,
    places: Places,
    keys: &[ListPair<'_>],
    counters: &mut [Counters],
    residuals: &[W],
) {
    assert_eq!(counters.len(), places.len());
    let keys_per_line = size_of::<CacheLine>() / size_of::<W>();
    let (fetches, residuals, mut at) = (!residuals.is_empty(), residuals.as_ptr(), 0_usize);
    for (number, (first, second)) in keys.iter().enumerate() {
        if let Some((first, second)) = keys.get(number + AHEAD) {
            for list in [first, second] {
                let lines = list.iter().step_by(CacheLine::WORDS);
                lines.for_each(|line| L::prefetch(line));
            }
        }
        interleave!(first, second, |half, key| {
            if fetches {
                at += 1;
                if at.is_multiple_of(keys_per_line) {
                    L::prefetch(residuals.wrapping_add(at));
                }
            }
            // SAFETY: the place is below the number of places.
            let place = unsafe { counters.get_unchecked_mut(places.of::<L>(key, key_split)) };
            place[half] += 1;
        });
    }
}

/// Turns the members' counts per place into positions, the first member's first.
///
/// Sets `offsets` to the starts, counted from `start`; returns the number of keys.
#[inline(always)]
pub(super) fn add_up(
    members: &mut [&mut [Counters]],
    places: Places,
    offsets: &mut [u32],
    start: usize,
) -> u32 {
    assert_eq!(offsets.len(), places.len());
    let mut sum = 0;
    for (to, place) in offsets.iter_mut().zip(places.in_order()) {
        *to = offset(start) + sum;
        for counters in &mut *members {
            for counter in &mut counters[place] {
                sum += std::mem::replace(counter, sum);
            }
        }
    }
    sum
}

/// Keys of either half whose destinations are prefetched at a time.
///
/// A CPU fetches about this many lines in parallel; a key's line is rarely in a small cache.
const FETCHED: usize = 32;

/// Writes the residual keys to their positions, prefetched if `FETCHES`.
#[inline(always)]
fn put<L: Lanes, W: Residual, const FETCHES: bool>(
    key_split: KeySplit<'_>,
    places: Places,
    keys: &[ListPair<'_>],
    counters: &mut [Counters],
    residuals: SharedWords<'_, W>,
) {
    assert_eq!(counters.len(), places.len());
    let at_a_time = if FETCHES { FETCHED } else { usize::MAX };
    for &(first, second) in keys {
        let longer = first.len().max(second.len());
        for start in (0..longer).step_by(at_a_time) {
            let block = |list: &[u64]| {
                let end = list.len().min(start.saturating_add(at_a_time));
                start.min(end)..end
            };
            let (first, second) = (&first[block(first)], &second[block(second)]);
            if FETCHES {
                interleave!(first, second, |half, key| {
                    // SAFETY: the place is below the number of places.
                    let place = unsafe { counters.get_unchecked(places.of::<L>(key, key_split)) };
                    L::prefetch(residuals.at(place[half] as usize));
                });
            }
            interleave!(first, second, |half, key| {
                // SAFETY: the place is below the number of places.
                let place = unsafe { counters.get_unchecked_mut(places.of::<L>(key, key_split)) };
                // A maker might make different keys the second time, so positions are checked.
                residuals.put(place[half] as usize, key_split.residual::<L, W>(key));
                place[half] += 1;
            });
        }
    }
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "lists are shorter than 2^32")]
pub(crate) fn offset(keys: usize) -> u32 {
    keys as u32
}
