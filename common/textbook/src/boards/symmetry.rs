//! The eight images of a solution, and its symmetry.

use std::fmt;

use super::solution::Solution;

/// Names of [`Solution::images`], in order.
pub const IMAGES: [&str; 8] = [
    "unchanged",
    "quarter turn",
    "half turn",
    "three-quarter turn",
    "mirrored left and right",
    "in the rising diagonal",
    "mirrored top and bottom",
    "in the falling diagonal",
];

/// Rotations that fix a solution; no reflection does, except for N = 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Symmetry {
    /// None: eight different images (class a).
    Asymmetric,
    /// The half turn: four different images (class b).
    HalfTurn,
    /// The quarter turn: two different images (class c).
    QuarterTurn,
}

impl Symmetry {
    /// Returns Haginoya's letter for the class.
    pub const fn letter(self) -> char {
        match self {
            Self::Asymmetric => 'a',
            Self::HalfTurn => 'b',
            Self::QuarterTurn => 'c',
        }
    }
}

impl fmt::Display for Symmetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Asymmetric => "asymmetric",
            Self::HalfTurn => "half-turn",
            Self::QuarterTurn => "quarter-turn",
        })
    }
}

impl Solution {
    /// Returns the clockwise rotations, then those of the mirror image: [`IMAGES`].
    pub fn images(&self) -> [Self; 8] {
        let mut images = std::array::from_fn(|_| self.clone());
        for at in 1..8 {
            images[at] = if at == 4 { self.mirrored() } else { images[at - 1].rotated() };
        }
        images
    }

    /// Moves (row, column) to (column, N - 1 - row).
    fn rotated(&self) -> Self {
        let mut columns = vec![0; self.columns().len()];
        for (row, &column) in (0..).zip(self.columns()) {
            columns[column as usize] = self.n() - 1 - row;
        }
        Self::trusted(columns)
    }

    /// Moves (row, column) to (row, N - 1 - column).
    fn mirrored(&self) -> Self {
        let last = self.n() - 1;
        Self::trusted(self.columns().iter().map(|column| last - column).collect())
    }

    pub fn symmetry(&self) -> Symmetry {
        let quarter = self.rotated();
        if quarter == *self {
            Symmetry::QuarterTurn
        } else if quarter.rotated() == *self {
            Symmetry::HalfTurn
        } else {
            Symmetry::Asymmetric
        }
    }

    /// Returns whether no image precedes this one: true for one solution per class.
    pub fn is_representative(&self) -> bool {
        self.images().iter().all(|image| self <= image)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::boards::Solutions;
    use common::{board::Board, solutions::published::published_counts};

    #[test]
    fn classes_are_the_published_ones() {
        for n in 1..=10 {
            let board = Board::new(n).unwrap();
            let mut classes = [0u128; 3];
            for solution in Solutions::new(board).filter(Solution::is_representative) {
                let images = BTreeSet::from(solution.images());
                let symmetry = solution.symmetry();
                let different = match symmetry {
                    Symmetry::Asymmetric => 8,
                    Symmetry::HalfTurn => 4,
                    Symmetry::QuarterTurn => 2,
                };
                // Reflections fix a single queen too.
                assert_eq!(images.len(), if n == 1 { 1 } else { different });
                assert!(images.iter().all(|image| image.symmetry() == symmetry));
                classes[symmetry as usize] += 1;
            }
            let known = published_counts(board).unwrap();
            assert_eq!(classes.iter().sum::<u128>(), known.fundamental(), "N = {n}");
            if n > 1 {
                let known = known.classes();
                let known = [known.asymmetric, known.half_turn, known.quarter_turn];
                assert_eq!(classes, known, "N = {n}");
            }
        }
    }

    #[test]
    fn images_match_their_names() {
        let solution = Solution::new(vec![0, 4, 7, 5, 2, 6, 1, 3]).unwrap();
        type Move = fn(u32, u32) -> (u32, u32);
        let moved: [Move; 8] = [
            |i, j| (i, j),
            |i, j| (j, 7 - i),
            |i, j| (7 - i, 7 - j),
            |i, j| (7 - j, i),
            |i, j| (i, 7 - j),
            |i, j| (7 - j, 7 - i),
            |i, j| (7 - i, j),
            |i, j| (j, i),
        ];
        for ((image, name), moved) in solution.images().iter().zip(IMAGES).zip(moved) {
            for (row, &column) in (0..).zip(solution.columns()) {
                let (row, column) = moved(row, column);
                assert!(image.has(row, column), "{name}");
            }
        }
    }
}
