//! Squares, diagonals, keys, column sets and frames.
//!
//! Every quadrant is indexed from its own outer corner: row i and column j, 0 … n−1. All four therefore
//! have the same quarter boards; only the diagonals of the whole board that these attack differ.
//!
//! A **key** has a bit per diagonal that crosses both halves of the board, set if it is attacked:
//! 2n−1 antidiagonals (constant row + column) and 2n−1 main diagonals (constant row − column),
//! counted 0 … 2n−2 across the board with the center at n−1. Other diagonals cannot be attacked from
//! both halves, nor from two quadrants of one half. The bits are ordered by the distance of the diagonals
//! from the center, because central ones are attacked most often: bit 0 the center antidiagonal, bit 1 the
//! center main diagonal, then for each distance c four bits: antidiagonal n−1+c, main diagonal n−1+c,
//! antidiagonal n−1−c, main diagonal n−1−c.
//!
//! Type II has two more bits, for the diagonals of the two squares where a queen of the middle row or
//! column may stand on the edge of the board:
//! - the **corner bit** 4n−2 is the antidiagonal row + column = n through both, which crosses the
//!   lower half in the middle row only;
//! - the **edge bit** 4n−1 is in the upper half the main diagonal row − column = −n, in the lower
//!   half row − column = n. It is used to make half boards, and cleared in their keys.
//!
//! The mathematics: `docs/method.md`, “Quarter boards, and when they fit” and “Odd boards”.

/// Bits of the center diagonals, which a half turn maps to themselves.
const CENTER: u64 = 0b11;
/// The first two bits of each group of four from bit 2 on: diagonals n−1+c.
const PLUS: u64 = 0xcccc_cccc_cccc_cccc;

/// Kind of a frame, by the middle of the board.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// N = 2n, no middle row or column.
    Even,
    /// N = 2n + 1, one queen on the center square.
    TypeOne,
    /// N = 2n + 1, one queen in the middle row and one in the middle column.
    TypeTwo,
}

/// A quarter of the board: P top left, Q top right, R bottom right, S bottom left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Quadrant {
    P,
    Q,
    R,
    S,
}

/// Layout of the keys of a board with n×n quadrants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Geometry {
    pub(crate) kind: Kind,
    /// n, the side of a quadrant, 2 … 16.
    pub(crate) side: u32,
    /// Whether keys are those of the board rotated by 180°.
    pub(crate) rotated: bool,
}

impl Geometry {
    pub(crate) const fn key_bits(self) -> u32 {
        match self.kind {
            Kind::Even | Kind::TypeOne => 4 * self.side - 2,
            Kind::TypeTwo => 4 * self.side - 1,
        }
    }

    /// Returns the bits of a half board's key: all but the edge bit.
    pub(crate) const fn key_mask(self) -> u64 {
        (1 << self.key_bits()) - 1
    }

    pub(crate) const fn board_side(self) -> u32 {
        match self.kind {
            Kind::Even => 2 * self.side,
            Kind::TypeOne | Kind::TypeTwo => 2 * self.side + 1,
        }
    }

    const fn anti(self, k: u32) -> u64 {
        let center = self.side - 1;
        if k == center {
            1
        } else if k > center {
            1 << (4 * (k - center) - 2)
        } else {
            1 << (4 * (center - k))
        }
    }

    const fn main(self, k: u32) -> u64 {
        self.anti(k) << 1
    }

    /// Returns the diagonals of a square of the board.
    pub(crate) fn key(self, row: u32, column: u32) -> u64 {
        let n = self.side;
        let first_anti = match self.kind {
            Kind::Even => n,
            Kind::TypeOne | Kind::TypeTwo => n + 1,
        };
        let crossing = 0..2 * n - 1;
        let anti = (row + column).checked_sub(first_anti).filter(|k| crossing.contains(k));
        let main = (row + n - 1).checked_sub(column).filter(|k| crossing.contains(k));
        let key = anti.map_or(0, |k| self.anti(k)) | main.map_or(0, |k| self.main(k));
        let key = if self.rotated { half_turn(key) } else { key };
        match self.kind {
            Kind::Even | Kind::TypeOne => key,
            Kind::TypeTwo => {
                let corner = u64::from(row + column == n) << (4 * n - 2);
                let edge = u64::from(row.abs_diff(column) == n) << (4 * n - 1);
                key | corner | edge
            }
        }
    }

    /// Returns the diagonals of row `i`, column `j`, from the quadrant's outer corner.
    pub(crate) fn quadrant_key(self, quadrant: Quadrant, i: u32, j: u32) -> u64 {
        let last = self.board_side() - 1;
        match quadrant {
            Quadrant::P => self.key(i, j),
            Quadrant::Q => self.key(i, last - j),
            Quadrant::R => self.key(last - i, last - j),
            Quadrant::S => self.key(last - i, j),
        }
    }

    /// Returns the rows of column `j` that the center queen (type I) does not attack.
    pub(crate) const fn allowed_rows(self, j: u32) -> u32 {
        let all = (1 << self.side) - 1;
        match self.kind {
            Kind::Even | Kind::TypeTwo => all,
            Kind::TypeOne => all & !(1 << j),
        }
    }
}

/// Maps diagonal k to diagonal 2n−2−k.
const fn half_turn(key: u64) -> u64 {
    key & CENTER | (key & PLUS) << 2 | (key >> 2) & PLUS
}

/// A unit: the columns that each half of the board uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: Kind,
    /// #C, the number of queens in R: that in P, plus 1 for type II.
    pub(crate) queens: u32,
    /// Rank of A, the columns of P.
    pub(crate) a: usize,
    /// Rank of C, the columns of R.
    pub(crate) c: usize,
}

impl Frame {
    /// Returns #A, the number of queens in P.
    pub(crate) fn top_queens(&self) -> u32 {
        match self.kind {
            Kind::Even | Kind::TypeOne => self.queens,
            Kind::TypeTwo => self.queens - 1,
        }
    }

    /// Returns the properties that, with the columns, determine the list sizes.
    pub(super) fn class(&self) -> (Kind, u32) {
        (self.kind, self.queens)
    }
}

/// All frames with the same A, by consecutive ranks of C.
#[derive(Clone, Debug)]
pub(super) struct FramesOfA {
    pub(super) first: Frame,
    pub(super) first_unit: u64,
}

/// All subsets of {0 … n−1} as masks, listed by size in increasing order.
///
/// A set's place in the list of its size is its **rank**. The complement of a set of rank r has
/// rank K − 1 − r, where K is the length of that list.
#[derive(Debug)]
pub(crate) struct Sets {
    by_size: Vec<Vec<u32>>,
    rank: Vec<u16>,
}

impl Sets {
    pub(crate) fn new(side: u32) -> Self {
        assert!(side <= 16, "sets of {side} columns");
        let mut by_size = vec![Vec::new(); side as usize + 1];
        let ranks = (0..1u32 << side).map(|set| {
            let sets = &mut by_size[set.count_ones() as usize];
            sets.push(set);
            u16::try_from(sets.len() - 1).expect("at most 12870 sets have one size")
        });
        let rank = ranks.collect();
        Self { by_size, rank }
    }

    pub(crate) fn of_size(&self, size: u32) -> &[u32] {
        &self.by_size[size as usize]
    }

    pub(crate) fn count(&self, size: u32) -> usize {
        self.of_size(size).len()
    }

    /// Returns the place of `set` among the sets of its size.
    pub(crate) fn rank(&self, set: u32) -> usize {
        usize::from(self.rank[set as usize])
    }
}

/// Returns the elements of `set`, smallest first.
pub(crate) fn elements(set: u32) -> impl Iterator<Item = u32> {
    let mut rest = set;
    std::iter::from_fn(move || {
        let element = (rest != 0).then(|| rest.trailing_zeros());
        rest &= rest.wrapping_sub(1);
        element
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bits_are_used() {
        for (side, kind) in (2..=16)
            .flat_map(|side| [Kind::Even, Kind::TypeOne, Kind::TypeTwo].map(|kind| (side, kind)))
        {
            for rotated in [false, true] {
                let geometry = Geometry { kind, side, rotated };
                let squares = 0..geometry.board_side().pow(2);
                let square = |at| (at / geometry.board_side(), at % geometry.board_side());
                let keys = squares.map(square).map(|(row, column)| geometry.key(row, column));
                let all = keys.fold(0, |all, key| all | key);
                assert_eq!(all & geometry.key_mask(), geometry.key_mask(), "{geometry:?}");
                assert_eq!(geometry.key_mask().count_ones(), geometry.key_bits());
                let edge = u32::from(kind == Kind::TypeTwo);
                assert_eq!(all.count_ones(), geometry.key_bits() + edge);
            }
        }
    }
}
