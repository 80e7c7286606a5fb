//! Textbook solvers, from permutations to bitmasks, to check the counting methods.
//!
//! The solvers are slow, plain, and independent of those methods. Comments cite their sources
//! by author; none of them is in the repository.

use std::ops::RangeInclusive;

use common::board::Board;

pub mod assembly;
pub mod boards;
mod bounds;
pub mod local_search;
mod solvers;

pub use bounds::{BOUNDS, Bound};
pub use solvers::list_comprehension_order;
use solvers::{
    all_permutations, attack_scan, bitmask_recursion, brute_force, list_comprehension,
    next_permutation, placement_flags, placement_flags_loop, swapped_permutation,
};

/// Callback that is called many times per second; true stops the search.
pub type Stop<'a> = dyn Fn() -> bool + 'a;

/// Numbers of solutions and visits of a technique.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    pub solutions: u64,
    /// Visits, in the unit [`TextbookTechnique::visits`].
    pub visited: u64,
}

/// Visits between two calls of [`Stop`], which may cost more than a visit.
const VISITS_PER_CALL: u64 = 1 << 16;

/// Counter of visits that calls [`Stop`] periodically.
struct VisitCounter<'a> {
    stop: &'a Stop<'a>,
    visited: u64,
    next_call: u64,
}

impl<'a> VisitCounter<'a> {
    fn new(stop: &'a Stop<'a>) -> Self {
        Self { stop, visited: 0, next_call: VISITS_PER_CALL }
    }

    /// Counts visits; `None` to stop the search.
    fn visit(&mut self, count: u64) -> Option<()> {
        self.visited += count;
        if self.visited < self.next_call {
            return Some(());
        }
        self.next_call = self.visited + VISITS_PER_CALL;
        (!(self.stop)()).then_some(())
    }
}

/// Column of each row's queen, or other data of a technique.
type Columns = [u8; Board::MAX as usize];

#[derive(Clone, Debug)]
pub struct TextbookTechnique {
    /// Name, short enough for a column heading.
    pub name: &'static str,
    /// Boards that take a reasonable time.
    pub boards: RangeInclusive<u8>,
    /// Unit of [`Count::visited`].
    pub visits: Visits,
    solutions: fn(Board, &mut VisitCounter<'_>) -> Option<u64>,
}

impl TextbookTechnique {
    /// Counts all solutions; `None` if stopped.
    pub fn count(&self, board: Board, stop: &Stop<'_>) -> Option<Count> {
        let mut visits = VisitCounter::new(stop);
        let solutions = (self.solutions)(board, &mut visits)?;
        Some(Count { solutions, visited: visits.visited })
    }
}

/// Unit of visits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visits {
    /// Boards with all queens.
    FullBoards,
    /// Boards without attacks, including the empty one.
    SafeBoards,
    /// Compared pairs of queens.
    Pairs,
}

/// Describes a technique shown on boards from 4 to `last`.
const fn technique(
    name: &'static str,
    last: u8,
    visits: Visits,
    solutions: fn(Board, &mut VisitCounter<'_>) -> Option<u64>,
) -> TextbookTechnique {
    TextbookTechnique { name, boards: RangeInclusive::new(4, last), visits, solutions }
}

/// All techniques, slowest first.
pub const TECHNIQUES: [TextbookTechnique; 9] = [
    technique("brute-force", 8, Visits::FullBoards, brute_force),
    technique("next-permutation", 11, Visits::FullBoards, next_permutation),
    technique("permutations", 12, Visits::FullBoards, all_permutations),
    technique("list", 14, Visits::Pairs, list_comprehension),
    technique("attack-scan", 15, Visits::SafeBoards, attack_scan),
    technique("flags-loop", 15, Visits::SafeBoards, placement_flags_loop),
    technique("flags", 15, Visits::SafeBoards, placement_flags),
    technique("swapping", 16, Visits::SafeBoards, swapped_permutation),
    technique("bitmask", 17, Visits::SafeBoards, bitmask_recursion),
];

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use common::test_fixture::published;

    #[test]
    fn every_technique_is_exact() {
        for technique in TECHNIQUES {
            // Per row, brute force grows by a factor above N, permutations by N, the others by less than 8.
            let last = match *technique.boards.end() {
                0..=8 => 7,
                9..=12 => 9,
                _ => 11,
            };
            for n in 1..=last {
                let counted = technique.count(Board::new(n).unwrap(), &|| false).unwrap();
                assert_eq!(
                    u128::from(counted.solutions),
                    published(n),
                    "{}, N = {n}",
                    technique.name
                );
            }
        }
    }

    #[test]
    fn every_technique_stops_when_asked() {
        let board = Board::new(20).unwrap();
        for technique in TECHNIQUES {
            let asked = Cell::new(0);
            let stop = || {
                asked.set(asked.get() + 1);
                asked.get() == 3
            };
            assert_eq!(
                (technique.count(board, &stop), asked.get()),
                (None, 3),
                "{}",
                technique.name
            );
        }
    }

    #[test]
    fn visits_match_the_bounds() {
        for n in 4..=7 {
            let board = Board::new(n).unwrap();
            let visited = |name| {
                let technique = TECHNIQUES.iter().find(|technique| technique.name == name).unwrap();
                u128::from(technique.count(board, &|| false).unwrap().visited)
            };
            let [squares, power, factorial, list] = BOUNDS.map(|bound| bound.value(board).unwrap());
            assert_eq!(visited("brute-force"), power);
            assert_eq!(visited("next-permutation"), factorial);
            assert_eq!(visited("permutations"), factorial);
            assert!(visited("list") < list);
            // Techniques that place one queen at a time visit the same boards.
            for name in ["attack-scan", "flags-loop", "flags", "swapping"] {
                assert_eq!(visited(name), visited("bitmask"), "{name}");
            }
            assert!(visited("bitmask") < factorial.max(squares));
        }
    }

    #[test]
    fn names_differ_and_fit_a_column() {
        for (i, technique) in TECHNIQUES.iter().enumerate() {
            assert!(technique.name.len() <= 16);
            assert!(TECHNIQUES[..i].iter().all(|other| other.name != technique.name));
        }
    }
}
