//! Division of a crew's memory budget.

use std::sync::Arc;

use super::{
    geometry::Kind,
    plan::{Division, TypicalClass},
};
use crate::{
    compute::setup::{Needs, SetupError},
    join::HJoin,
};

/// Memory limits of a crew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Budget {
    /// Bytes of cached quarter lists.
    pub(super) cache_bytes: u64,
    /// Limits of frames counted by the whole crew.
    pub(super) together: Arc<LimitsByClass>,
    /// Limits of frames counted by single members, if their memory suffices.
    pub(super) alone: Option<Arc<LimitsByClass>>,
}

/// Limits on the pieces of frames, by class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LimitsByClass {
    classes: Vec<Limits>,
    /// Bytes of a row that a thread filters at a time.
    pub(super) row_bytes: usize,
    /// Maximum number of keys of a held list.
    pub(super) held_keys: usize,
}

impl LimitsByClass {
    pub(super) fn of(&self, class: (Kind, u32)) -> Limits {
        let limits = self.classes.iter().find(|limits| limits.need.class == class);
        *limits.expect("every class has limits")
    }
}

/// Number of half boards to join at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Maximum for equally long halves, by number of sorting rounds.
    pub(super) most: [usize; ROUNDS.len()],
    /// Needs of the frames, and the budget they are checked against.
    need: Need,
    bytes: u64,
    threads: usize,
}

const ROUNDS: [usize; 3] = [1, 2, HJoin::MAX_ROUNDS];

impl Limits {
    /// Returns the fewest rounds that fit both halves in memory, and the piece size.
    pub(super) fn rounds(self, tops: usize, bottoms: usize) -> (usize, usize) {
        let (longer, shorter) = (tops.max(bottoms), tops.min(bottoms));
        let whole = ROUNDS.into_iter().zip(self.most).find(|&(rounds, most)| {
            let bytes = || self.need.bytes(longer, shorter, rounds, self.threads);
            longer <= most || bytes() <= self.bytes
        });
        match whole {
            Some((rounds, most)) => (rounds, most.max(longer)),
            None => (HJoin::MAX_ROUNDS, self.most()),
        }
    }

    /// Returns the maximum for any number of rounds.
    pub(super) fn most(self) -> usize {
        self.most[ROUNDS.len() - 1]
    }
}

/// Minimum piece size; smaller joins are mostly overhead.
const MIN_KEYS: usize = 1 << 14;

/// Divisor of the budget: maximum part for cached quarter lists.
const CACHE_PART: u64 = 4;
/// Divisor of the budget: minimum part for lists of neighboring frames.
const MIN_CACHE_PART: u64 = 64;

/// Divisor of the spare memory: part for keys gathered beyond the minimum.
const GATHERED_PART: u64 = 64;
/// Divisor of the memory beyond typical lists: part for holding longer lists.
const HELD_PART: u64 = 16;

/// Rows that a thread gathers, and rows that it prefilters.
const ROWS_PER_THREAD: u64 = 8 + HJoin::PREFILTERED_ROWS as u64;

impl Budget {
    /// Divides `given` bytes between cached lists and joins.
    ///
    /// # Errors
    /// If not even the smallest pieces fit.
    pub(super) fn new(given: u64, division: &Division, threads: usize) -> Result<Self, SetupError> {
        let needs = FrameNeeds::new(division);
        let Needs { least, whole, .. } = needs.of(threads);
        if given < least {
            return Err(SetupError::Memory { given, least });
        }
        // If lists are cut into pieces, larger pieces save more time than a larger cache.
        let spare = given.saturating_sub(whole);
        let cache_bytes = (given / CACHE_PART).min(spare).max((given - least) / MIN_CACHE_PART);
        let remaining = given - cache_bytes;
        let limits = |bytes: u64, threads| {
            let beyond = bytes.saturating_sub(needs.of(threads).least) / GATHERED_PART;
            let more = beyond / (ROWS_PER_THREAD * threads as u64);
            let more = more.min((HJoin::MAX_ROW_BYTES - HJoin::MIN_ROW_BYTES) as u64);
            let bytes = bytes - ROWS_PER_THREAD * threads as u64 * more;
            let spare = bytes.saturating_sub(needs.of(threads).whole);
            let held = held_keys(spare, threads);
            let bytes = bytes - HELD_BYTES * (held - HJoin::SHORT_LIST) as u64;
            let limits = |need: &Need| need.limits(bytes, threads);
            Arc::new(LimitsByClass {
                classes: needs.classes.iter().map(limits).collect(),
                row_bytes: HJoin::MIN_ROW_BYTES + usize::try_from(more).unwrap_or(0),
                held_keys: held,
            })
        };
        let part = remaining / threads as u64;
        Ok(Self {
            cache_bytes,
            together: limits(remaining, threads),
            alone: (threads > 1 && part >= needs.of(1).least).then(|| limits(part, 1)),
        })
    }

    /// Returns the same limit for every class.
    pub(super) fn with_limit(&self, limit: usize) -> LimitsByClass {
        let same = |limits: &Limits| Limits { most: [limit; ROUNDS.len()], bytes: 0, ..*limits };
        LimitsByClass {
            classes: self.together.classes.iter().map(same).collect(),
            row_bytes: self.together.row_bytes,
            held_keys: self.together.held_keys,
        }
    }
}

/// Bytes of a held key, in both lists.
const HELD_BYTES: u64 = 2 * size_of::<u64>() as u64;

/// Returns the maximum number of held keys.
///
/// Members of a crew make and sort lists together, and hold no keys beyond the minimum.
fn held_keys(spare: u64, threads: usize) -> usize {
    if threads > 1 {
        return HJoin::SHORT_LIST;
    }
    let more = usize::try_from(spare / HELD_PART / HELD_BYTES).unwrap_or(usize::MAX);
    HJoin::SHORT_LIST + more.min(HJoin::MAX_HELD - HJoin::SHORT_LIST)
}

/// Memory that the frames of one board need.
#[derive(Debug)]
pub(crate) struct FrameNeeds {
    classes: Vec<Need>,
    typical: TypicalClass,
}

impl FrameNeeds {
    pub(crate) fn new(division: &Division) -> Self {
        Self {
            classes: division.classes().map(|class| Need::new(class, division)).collect(),
            typical: division.typical(),
        }
    }

    /// Returns the needs of a crew of this size.
    pub(crate) fn of(&self, threads: usize) -> Needs {
        let least = self.classes.iter();
        let least = least.map(|need| need.equal(need.least_keys(), HJoin::MAX_ROUNDS, threads));
        let least = least.max().unwrap_or(0);
        // The lists of typical frames, sorted in two rounds.
        let mut classes = self.classes.iter();
        let typical = classes.find(|need| need.class == self.typical.class);
        let whole = typical.map_or(0, |need| need.equal(self.typical.keys, 2, threads));
        // With more than the minimum, threads also gather more.
        let whole = whole + whole / GATHERED_PART;
        let whole = whole.max(least);
        // The spare memory of the largest cache, and that of the longest held lists.
        let held = match threads == 1 && self.typical.keys > HJoin::SHORT_LIST / 4 {
            true => HELD_PART * HELD_BYTES * (HJoin::MAX_HELD - HJoin::SHORT_LIST) as u64,
            false => 0,
        };
        Needs { least, whole, full: CACHE_PART * whole + held }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Need {
    class: (Kind, u32),
    key_bits: u32,
    quarter_bytes: u64,
    row_set_keys: usize,
}

impl Need {
    fn new(class: (Kind, u32), division: &Division) -> Self {
        Self {
            class,
            key_bits: division.geometry(class.0, false).key_bits(),
            quarter_bytes: division.quarter_bytes(class),
            row_set_keys: division.row_set_keys(class),
        }
    }

    fn least_keys(&self) -> usize {
        MIN_KEYS.max(2 * self.row_set_keys)
    }

    /// Returns the bytes for joining halves of these lengths.
    fn bytes(&self, longer: usize, shorter: usize, rounds: usize, threads: usize) -> u64 {
        // A piece may exceed its limit by a row set.
        let [longer, shorter] =
            [longer, shorter].map(|keys| keys.saturating_add(self.row_set_keys));
        // Short lists are held whole; of a long list, each thread holds the row set that it makes.
        let held = 2 * longer.min(HJoin::SHORT_LIST) + threads * self.row_set_keys;
        self.quarter_bytes
            + (size_of::<u64>() * held) as u64
            + HJoin::memory_bytes(self.key_bits, threads, longer, shorter, rounds)
    }

    /// Returns the bytes for joining two halves of this length.
    fn equal(&self, keys: usize, rounds: usize, threads: usize) -> u64 {
        self.bytes(keys, keys, rounds, threads)
    }

    /// Returns the largest halves that fit in `bytes`.
    fn limits(&self, bytes: u64, threads: usize) -> Limits {
        Limits {
            most: ROUNDS.map(|rounds| self.most_keys(bytes, rounds, threads)),
            need: *self,
            bytes,
            threads,
        }
    }

    fn most_keys(&self, bytes: u64, rounds: usize, threads: usize) -> usize {
        let mut keys = self.least_keys();
        for step in (0..usize::BITS.min(40)).rev().map(|bit| 1 << bit) {
            let more = keys.saturating_add(step);
            if self.equal(more, rounds, threads) <= bytes {
                keys = more;
            }
        }
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{board::Board, method::Layout, plan::PlanSpec};

    #[test]
    fn a_refusal_names_the_smallest_sufficient_budget() {
        for n in [4, 13, 20, 23] {
            let spec = PlanSpec::new(Board::new(n).unwrap(), Layout::Frames);
            let division = Division::new(&PlanSpec { task_cost: u64::MAX, ..spec }).unwrap();
            let Err(SetupError::Memory { given: 1, least }) = Budget::new(1, &division, 1) else {
                panic!("N = {n} fits in one byte");
            };
            let smallest = Budget::new(least, &division, 1).unwrap();
            let larger = Budget::new(10 * least, &division, 1).unwrap();
            for class in division.classes() {
                let (few, many) =
                    (smallest.together.of(class).most(), larger.together.of(class).most());
                assert!(MIN_KEYS <= few && few < many, "N = {n}, {class:?}");
            }
            // A long list may take the memory that a short one leaves.
            let class = division.typical().class;
            let limits = larger.together.of(class);
            let most = limits.most();
            assert_eq!(limits.rounds(most, most).1, most);
            assert_eq!(limits.rounds(most + most / 8, most / 8).1, most + most / 8);
            assert_eq!(limits.rounds(most / 8, most + most / 8).1, most + most / 8);
            assert_eq!(limits.rounds(most + most / 8, most + most / 8).1, most);
            assert_eq!(limits.rounds(4 * most, 0).1, most);
            // Gathered rows grow with the memory, and shrink with the threads that share it.
            let row_bytes = |memory, threads| {
                let budget = Budget::new(memory, &division, threads).unwrap();
                budget.together.row_bytes
            };
            assert_eq!(smallest.together.row_bytes, HJoin::MIN_ROW_BYTES);
            assert_eq!(row_bytes(1 << 40, 16), HJoin::MAX_ROW_BYTES);
            let some = least + (1 << 28);
            assert!(row_bytes(some, 1) > row_bytes(some, 8), "N = {n}");
            // Single threads hold longer lists if memory allows.
            assert_eq!(smallest.together.held_keys, HJoin::SHORT_LIST);
            let plenty = Budget::new(1 << 40, &division, 16).unwrap();
            assert_eq!(plenty.together.held_keys, HJoin::SHORT_LIST);
            assert_eq!(plenty.alone.unwrap().held_keys, HJoin::MAX_HELD);
            let whole = FrameNeeds::new(&division).of(1).whole;
            let held = |memory| Budget::new(memory, &division, 1).unwrap().together.held_keys;
            assert_eq!(held(whole), HJoin::SHORT_LIST);
            let more = held(2 * whole + (1 << 26));
            assert!(HJoin::SHORT_LIST < more && more < HJoin::MAX_HELD, "N = {n}: {more}");
        }
    }
}
