//! The ladder of textbook programs, from permutations to bitmasks: slow, plain, and independent of
//! the counting methods, which they check. Each technique is written from its description in one of
//! the documents that this project comes from, and names it.

use std::ops::RangeInclusive;

use crate::board::Board;

pub mod assembly;
mod attack_scan;
mod bitmask;
mod bounds;
mod brute_force;
mod list;
mod patience;
mod permutations;
mod placement_flags;
mod swapping;

pub use attack_scan::attack_scan;
pub use bitmask::bitmask_recursion;
pub use bounds::{BOUNDS, Bound};
pub use brute_force::brute_force;
pub use list::{list_comprehension, list_comprehension_order};
pub use patience::{Count, Stop};
pub use permutations::{all_permutations, next_permutation};
pub use placement_flags::{placement_flags, placement_flags_loop};
pub use swapping::swapped_permutation;

/// One rung of the ladder.
#[derive(Clone, Debug)]
pub struct Textbook {
    /// The technique, short enough for the head of a column.
    pub name: &'static str,
    /// The document that describes it.
    pub source: &'static str,
    /// The boards to show it on: large enough to take measurable time, small enough to end.
    pub boards: RangeInclusive<u8>,
    /// What [`Count::visited`] counts.
    pub visits: Visits,
    /// Counts all solutions; `None` if told to stop.
    pub count: fn(Board, &Stop<'_>) -> Option<Count>,
}

/// What a technique visits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visits {
    /// Boards with all queens on them.
    FullBoards,
    /// Boards with some queens on them, none of which attacks another, from the empty one on.
    SafeBoards,
    /// Pairs of queens compared.
    Pairs,
}

/// Every technique, slowest first.
pub const LADDER: [Textbook; 9] = [
    Textbook {
        name: "brute-force",
        source: "001_86e98d93edfc3b6c.txt",
        boards: 4..=8,
        visits: Visits::FullBoards,
        count: brute_force,
    },
    Textbook {
        name: "next-permutation",
        source: "003_078d7ecdfdf3df70.txt",
        boards: 4..=11,
        visits: Visits::FullBoards,
        count: next_permutation,
    },
    Textbook {
        name: "permutations",
        source: "000_a1ee00c4f40ae057.txt",
        boards: 4..=12,
        visits: Visits::FullBoards,
        count: all_permutations,
    },
    Textbook {
        name: "list",
        source: "004_df925f861df725bd.txt",
        boards: 4..=14,
        visits: Visits::Pairs,
        count: list_comprehension,
    },
    Textbook {
        name: "attack-scan",
        source: "000_a1ee00c4f40ae057.txt",
        boards: 4..=15,
        visits: Visits::SafeBoards,
        count: attack_scan,
    },
    Textbook {
        name: "flags-loop",
        source: "001_86e98d93edfc3b6c.txt",
        boards: 4..=15,
        visits: Visits::SafeBoards,
        count: placement_flags_loop,
    },
    Textbook {
        name: "flags",
        source: "001_86e98d93edfc3b6c.txt",
        boards: 4..=15,
        visits: Visits::SafeBoards,
        count: placement_flags,
    },
    Textbook {
        name: "swapping",
        source: "000_a1ee00c4f40ae057.txt",
        boards: 4..=16,
        visits: Visits::SafeBoards,
        count: swapped_permutation,
    },
    Textbook {
        name: "bitmask",
        source: "000_a1ee00c4f40ae057.txt",
        boards: 4..=17,
        visits: Visits::SafeBoards,
        count: bitmask_recursion,
    },
];

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::known::known_counts;

    #[test]
    fn every_technique_is_exact() {
        for Textbook {
            name,
            boards,
            count,
            ..
        } in LADDER
        {
            // Permutations grow by a factor of N, the others by less than 8.
            let last = match *boards.end() {
                0..=8 => 7,
                9..=12 => 9,
                _ => 11,
            };
            for n in 1..=last {
                let board = Board::new(n).unwrap();
                let counted = count(board, &|| false).map(|count| u128::from(count.solutions));
                assert_eq!(
                    counted,
                    Some(known_counts(board).unwrap().all()),
                    "{name}, N = {n}"
                );
            }
        }
    }

    #[test]
    fn every_technique_stops_when_told() {
        let board = Board::new(20).unwrap();
        for Textbook { name, count, .. } in LADDER {
            let asked = Cell::new(0);
            let stop = || {
                asked.set(asked.get() + 1);
                asked.get() == 3
            };
            assert_eq!((count(board, &stop), asked.get()), (None, 3), "{name}");
        }
    }

    #[test]
    fn visits_are_what_the_bounds_say() {
        for n in 4..=7 {
            let board = Board::new(n).unwrap();
            let visited = |name| {
                let rung = LADDER.iter().find(|rung| rung.name == name).unwrap();
                u128::from((rung.count)(board, &|| false).unwrap().visited)
            };
            let [squares, power, factorial, list] =
                BOUNDS.map(|bound| (bound.value)(board).unwrap());
            assert_eq!(visited("brute-force"), power);
            assert_eq!(visited("next-permutation"), factorial);
            assert_eq!(visited("permutations"), factorial);
            assert!(visited("list") < list);
            // All that place queen after queen visit the same boards.
            for name in ["attack-scan", "flags-loop", "flags", "swapping"] {
                assert_eq!(visited(name), visited("bitmask"), "{name}");
            }
            assert!(visited("bitmask") < factorial.max(squares));
        }
    }

    #[test]
    fn names_differ_and_fit_a_column() {
        for (i, rung) in LADDER.iter().enumerate() {
            assert!(rung.name.len() <= 16);
            assert!(LADDER[..i].iter().all(|other| other.name != rung.name));
        }
    }
}
