//! The ladder of textbook programs, from permutations to bitmasks: slow, plain, and independent of
//! the counting methods, which they check. Each technique is written from its description in one of
//! the documents that this project comes from, and names it.

use std::ops::RangeInclusive;

use crate::board::Board;

mod attack_scan;
mod bitmask;
mod list;
mod permutations;
mod placement_flags;
mod swapping;

pub use attack_scan::attack_scan;
pub use bitmask::bitmask_recursion;
pub use list::{list_comprehension, list_comprehension_order};
pub use permutations::{all_permutations, next_permutation};
pub use placement_flags::{placement_flags, placement_flags_loop};
pub use swapping::swapped_permutation;

/// Asked many times a second whether to give up.
pub type Stop<'a> = dyn Fn() -> bool + 'a;

/// One rung of the ladder.
#[derive(Clone, Debug)]
pub struct Textbook {
    /// The technique, short enough for the head of a column.
    pub name: &'static str,
    /// The document that describes it.
    pub source: &'static str,
    /// The boards to show it on: large enough to take measurable time, small enough to end.
    pub boards: RangeInclusive<u8>,
    /// Counts all solutions; `None` if told to stop.
    pub count: fn(Board, &Stop<'_>) -> Option<u64>,
}

/// Every technique, slowest first.
pub const LADDER: [Textbook; 8] = [
    Textbook {
        name: "next-permutation",
        source: "003_078d7ecdfdf3df70.txt",
        boards: 4..=11,
        count: next_permutation,
    },
    Textbook {
        name: "permutations",
        source: "000_a1ee00c4f40ae057.txt",
        boards: 4..=12,
        count: all_permutations,
    },
    Textbook {
        name: "list",
        source: "004_df925f861df725bd.txt",
        boards: 4..=14,
        count: list_comprehension,
    },
    Textbook {
        name: "attack-scan",
        source: "000_a1ee00c4f40ae057.txt",
        boards: 4..=15,
        count: attack_scan,
    },
    Textbook {
        name: "flags-loop",
        source: "001_86e98d93edfc3b6c.txt",
        boards: 4..=15,
        count: placement_flags_loop,
    },
    Textbook {
        name: "flags",
        source: "001_86e98d93edfc3b6c.txt",
        boards: 4..=15,
        count: placement_flags,
    },
    Textbook {
        name: "swapping",
        source: "000_a1ee00c4f40ae057.txt",
        boards: 4..=16,
        count: swapped_permutation,
    },
    Textbook {
        name: "bitmask",
        source: "000_a1ee00c4f40ae057.txt",
        boards: 4..=17,
        count: bitmask_recursion,
    },
];

/// Asks to stop once in a while only: asking may cost more than a step.
struct Patience<'a> {
    stop: &'a Stop<'a>,
    steps: u32,
}

impl<'a> Patience<'a> {
    fn new(stop: &'a Stop<'a>) -> Self {
        Self { stop, steps: 0 }
    }

    /// `None` when told to stop.
    fn step(&mut self) -> Option<()> {
        self.steps = self.steps.wrapping_add(1);
        let stopped = self.steps.is_multiple_of(1 << 16) && (self.stop)();
        (!stopped).then_some(())
    }
}

/// For each row the column of its queen, or whatever a technique keeps there meanwhile.
type Columns = [u8; Board::MAX as usize];

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
            let last = if *boards.end() <= 12 { 9 } else { 11 };
            for n in 1..=last {
                let board = Board::new(n).unwrap();
                let counted = count(board, &|| false).map(u128::from);
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
    fn names_differ_and_fit_a_column() {
        for (i, rung) in LADDER.iter().enumerate() {
            assert!(rung.name.len() <= 16);
            assert!(LADDER[..i].iter().all(|other| other.name != rung.name));
        }
    }
}
