//! How a crew's memory budget is divided.

use std::sync::Arc;

use super::{
    geometry::Kind,
    hjoin::HJoin,
    plan::{Division, Typical},
    quarter::{LEAST_NOTED, MOST_NOTED, NOTED_BYTES},
};
use crate::{setup::Needs, setup::SetupError};

/// What a crew may hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Budget {
    /// Quarter lists kept for later frames, in bytes.
    pub(super) shelf_bytes: u64,
    /// For frames that the crew counts together.
    pub(super) together: Arc<LimitsByClass>,
    /// For frames that its members count alone, each in its part of the memory, if that is enough.
    pub(super) alone: Option<Arc<LimitsByClass>>,
}

/// What limits the pieces of frames, by class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LimitsByClass {
    classes: Vec<((Kind, u32), Limits)>,
    /// Bytes of a row that a thread narrows at a time.
    pub(super) row_bytes: usize,
    /// The most keys of a list to hold.
    pub(super) held_keys: usize,
    /// The most boards of a quarter list to note as they are found.
    pub(super) noted_boards: usize,
}

impl LimitsByClass {
    /// Those of frames of `class`.
    ///
    /// # Panics
    /// If the board has none.
    pub(super) fn of(&self, class: (Kind, u32)) -> Limits {
        let known = self.classes.iter().find(|known| known.0 == class);
        known.expect("every class has its share").1
    }
}

/// How many half boards to join at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// The most of one half, or one row set's more, if there are as many of the other: for every number of
    /// rounds to sort them in, each twice the one before.
    most: [usize; ROUNDS.len()],
    /// What the frames need of how many bytes, by how many threads.
    need: Need,
    bytes: u64,
    threads: usize,
}

const ROUNDS: [usize; 3] = [1, 2, HJoin::MOST_ROUNDS];

impl Limits {
    /// The number of rounds for halves with so many boards, and how many of them to join at a time: as
    /// few rounds as hold all of them.
    pub(super) fn rounds(self, tops: usize, bottoms: usize) -> (usize, usize) {
        let (longer, shorter) = (tops.max(bottoms), tops.min(bottoms));
        let whole = ROUNDS.into_iter().zip(self.most).find(|&(rounds, most)| {
            let bytes = || self.need.bytes(longer, shorter, rounds, self.threads);
            longer <= most || bytes() <= self.bytes
        });
        match whole {
            Some((rounds, most)) => (rounds, most.max(longer)),
            None => (HJoin::MOST_ROUNDS, self.most()),
        }
    }

    /// The most that are sorted in one round.
    pub(super) fn in_one_round(self) -> usize {
        self.most[0]
    }

    /// The most with any number of rounds.
    pub(super) fn most(self) -> usize {
        self.most[ROUNDS.len() - 1]
    }
}

/// Pieces so small that a join would be mostly overhead.
const LEAST_KEYS: usize = 1 << 14;

/// Kept quarter lists are worth this part of the budget at most.
const SHELF_PART: u64 = 4;
/// But some of them are always kept: those of neighbouring frames.
const LEAST_SHELF_PART: u64 = 64;

/// What threads gather beyond the least is worth this part of what the budget has beyond its least, all
/// together.
const GATHERED_PART: u64 = 64;
/// What is held of longer lists than have to be is worth this part of what the budget has beyond the lists of
/// typical frames.
const HELD_PART: u64 = 16;
/// What more boards are noted than the least is worth this part of the same.
const NOTED_PART: u64 = 32;

/// A thread gathers so many rows, and shortens as many as a tile has where there is more than the least.
const ROWS_A_THREAD: u64 = 8 + HJoin::SHORT_ROWS as u64;

impl Budget {
    /// Of `given` bytes.
    ///
    /// # Errors
    /// If not even the smallest pieces fit.
    pub(super) fn new(given: u64, division: &Division, threads: usize) -> Result<Self, SetupError> {
        let needs = FrameNeeds::new(division);
        let Needs { least, whole } = needs.of(threads);
        if given < least {
            return Err(SetupError::Memory { given, least });
        }
        // Where lists are cut into pieces, every byte is worth more with these.
        let spare = given.saturating_sub(whole);
        let shelf_bytes = (given / SHELF_PART)
            .min(spare)
            .max((given - least) / LEAST_SHELF_PART);
        let left = given - shelf_bytes;
        let limits = |bytes: u64, threads| {
            let beyond = bytes.saturating_sub(needs.of(threads).least) / GATHERED_PART;
            let more = beyond / (ROWS_A_THREAD * threads as u64);
            let more = more.min((HJoin::MOST_ROW_BYTES - HJoin::LEAST_ROW_BYTES) as u64);
            let bytes = bytes - ROWS_A_THREAD * threads as u64 * more;
            let spare = bytes.saturating_sub(needs.of(threads).whole);
            let (held, noted) = (held_keys(spare, threads), noted_boards(spare));
            let bytes = bytes
                - HELD_BYTES * (held - HJoin::SHORT_LIST) as u64
                - NOTED_BYTES * (noted - LEAST_NOTED) as u64;
            let limits = |need: &Need| (need.class, need.limits(bytes, threads));
            Arc::new(LimitsByClass {
                classes: needs.classes.iter().map(limits).collect(),
                row_bytes: HJoin::LEAST_ROW_BYTES + usize::try_from(more).unwrap_or(0),
                held_keys: held,
                noted_boards: noted,
            })
        };
        let part = left / threads as u64;
        Ok(Self {
            shelf_bytes,
            together: limits(left, threads),
            alone: (threads > 1 && part >= needs.of(1).least).then(|| limits(part, 1)),
        })
    }

    /// The same limit for every class.
    pub(super) fn with_limit(&self, limit: usize) -> LimitsByClass {
        let same = |limits: Limits| Limits {
            most: [limit; ROUNDS.len()],
            bytes: 0,
            ..limits
        };
        let classes = self.together.classes.iter();
        LimitsByClass {
            classes: classes
                .map(|&(class, limits)| (class, same(limits)))
                .collect(),
            row_bytes: self.together.row_bytes,
            held_keys: self.together.held_keys,
            noted_boards: self.together.noted_boards,
        }
    }
}

/// A key that is held of either list.
const HELD_BYTES: u64 = 2 * size_of::<u64>() as u64;

/// The most keys of a list to hold, where so many bytes are to spare. The members of a crew make and sort
/// lists together, which are not held then.
fn held_keys(spare: u64, threads: usize) -> usize {
    if threads > 1 {
        return HJoin::SHORT_LIST;
    }
    let more = usize::try_from(spare / HELD_PART / HELD_BYTES).unwrap_or(usize::MAX);
    HJoin::SHORT_LIST + more.min(HJoin::MOST_HELD - HJoin::SHORT_LIST)
}

/// The most boards of a quarter list to note as they are found, where so many bytes are to spare.
fn noted_boards(spare: u64) -> usize {
    let more = usize::try_from(spare / NOTED_PART / NOTED_BYTES).unwrap_or(usize::MAX);
    LEAST_NOTED + more.min(MOST_NOTED - LEAST_NOTED)
}

/// What the frames of one board need of a crew.
#[derive(Debug)]
pub(crate) struct FrameNeeds {
    classes: Vec<Need>,
    typical: Typical,
}

impl FrameNeeds {
    /// What those of `division` need.
    pub(crate) fn new(division: &Division) -> Self {
        Self {
            classes: division
                .classes()
                .map(|class| Need::new(class, division))
                .collect(),
            typical: division.typical(),
        }
    }

    /// What a crew of so many threads needs.
    pub(crate) fn of(&self, threads: usize) -> Needs {
        let least = self.classes.iter();
        let least = least.map(|need| need.equal(need.least_keys(), HJoin::MOST_ROUNDS, threads));
        let least = least.max().unwrap_or(0);
        // The lists of typical frames, sorted in two rounds.
        let mut classes = self.classes.iter();
        let typical = classes.find(|need| need.class == self.typical.class);
        let whole = typical.map_or(0, |need| need.equal(self.typical.keys, 2, threads));
        // Beside what threads gather where there is more than the least.
        let whole = whole + whole / GATHERED_PART;
        Needs {
            least,
            whole: whole.max(least),
        }
    }
}

/// What the frames of a class need of a crew.
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
        LEAST_KEYS.max(2 * self.row_set_keys)
    }

    /// Memory in bytes for joining so many half boards of one half and of the other, sorted in so many rounds
    /// by so many threads.
    fn bytes(&self, longer: usize, shorter: usize, rounds: usize, threads: usize) -> u64 {
        // A piece may pass its limit by a row set.
        let [longer, shorter] =
            [longer, shorter].map(|keys| keys.saturating_add(self.row_set_keys));
        // Short lists are held, and what a thread makes for a long one.
        let held = 2 * longer.min(HJoin::SHORT_LIST) + threads * self.row_set_keys;
        self.quarter_bytes
            + (size_of::<u64>() * held) as u64
            + HJoin::memory_bytes(self.key_bits, threads, longer, shorter, rounds)
    }

    /// The same for as many of either half.
    fn equal(&self, keys: usize, rounds: usize, threads: usize) -> u64 {
        self.bytes(keys, keys, rounds, threads)
    }

    /// The most half boards that fit in so many bytes, where the least do.
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
        for step in (0..40).rev().map(|bit| 1usize << bit) {
            if self.equal(keys.saturating_add(step), rounds, threads) <= bytes {
                keys += step;
            }
        }
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        board::Board,
        method::Layout,
        plan::{Plan, PlanSpec},
    };

    #[test]
    fn the_refused_budget_names_the_smallest_that_works() {
        for n in [4, 13, 20, 23] {
            let mut spec = PlanSpec::new(Board::new(n).unwrap(), Layout::Frames);
            spec.task_cost = u64::MAX;
            assert!(Plan::new(spec).is_ok());
            let division = Division::new(&spec).unwrap();
            let Err(SetupError::Memory { given: 1, least }) = Budget::new(1, &division, 1) else {
                panic!("N = {n} in one byte");
            };
            let smallest = Budget::new(least, &division, 1).unwrap();
            let larger = Budget::new(10 * least, &division, 1).unwrap();
            for class in division.classes() {
                let (few, many) = (
                    smallest.together.of(class).most(),
                    larger.together.of(class).most(),
                );
                assert!(LEAST_KEYS <= few && few < many, "N = {n}, {class:?}");
            }
            // A short list leaves its room to a long one.
            let class = division.typical().class;
            let limits = Budget::new(10 * least, &division, 1).unwrap();
            let limits = limits.together.of(class);
            let most = limits.most();
            assert_eq!(limits.rounds(most, most).1, most);
            assert_eq!(limits.rounds(most + most / 8, most / 8).1, most + most / 8);
            assert_eq!(limits.rounds(most / 8, most + most / 8).1, most + most / 8);
            assert_eq!(limits.rounds(most + most / 8, most + most / 8).1, most);
            assert_eq!(limits.rounds(4 * most, 0).1, most);
            // What threads gather grows with the memory, and less by every thread that shares it.
            let row_bytes = |memory, threads| {
                let budget = Budget::new(memory, &division, threads).unwrap();
                budget.together.row_bytes
            };
            assert_eq!(smallest.together.row_bytes, HJoin::LEAST_ROW_BYTES);
            assert_eq!(row_bytes(1 << 40, 16), HJoin::MOST_ROW_BYTES);
            let some = least + (1 << 28);
            assert!(row_bytes(some, 1) > row_bytes(some, 8), "N = {n}");
            // Whoever makes lists alone holds longer ones where there is memory for them.
            assert_eq!(smallest.together.held_keys, HJoin::SHORT_LIST);
            let plenty = Budget::new(1 << 40, &division, 16).unwrap();
            assert_eq!(plenty.together.held_keys, HJoin::SHORT_LIST);
            assert_eq!(plenty.alone.unwrap().held_keys, HJoin::MOST_HELD);
            let whole = FrameNeeds::new(&division).of(1).whole;
            let held = |memory| {
                Budget::new(memory, &division, 1)
                    .unwrap()
                    .together
                    .held_keys
            };
            assert_eq!(held(whole), HJoin::SHORT_LIST);
            let more = held(2 * whole + (1 << 26));
            assert!(
                HJoin::SHORT_LIST < more && more < HJoin::MOST_HELD,
                "N = {n}: {more}"
            );
            // Likewise for what is noted of quarter lists, by crews of every size.
            let noted = |memory, threads| {
                let budget = Budget::new(memory, &division, threads).unwrap();
                budget.together.noted_boards
            };
            assert_eq!(noted(least, 1), LEAST_NOTED);
            assert_eq!(noted(1 << 40, 16), MOST_NOTED);
            let some = noted(2 * whole + (1 << 28), 1);
            assert!(LEAST_NOTED < some && some < MOST_NOTED, "N = {n}: {some}");
        }
    }
}
