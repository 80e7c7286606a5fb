//! Squares, diagonals and keys.
//!
//! Every quadrant is indexed from its own outer corner: row i and column j, 0 … n−1. So all four have
//! the same quarter boards, and differ only in what a diagonal of theirs is on the whole board.
//!
//! A **key** tells which diagonals are attacked, of those that cross both halves of the board:
//! 2n−1 antidiagonals (constant row + column) and 2n−1 main diagonals (constant row − column),
//! counted 0 … 2n−2 across the board with the centre at n−1. Other diagonals cannot be attacked from
//! both halves, nor from two quadrants of one half. Its bits are ordered by how contested the diagonals
//! are, which their distance from the centre decides: bit 0 the centre antidiagonal, bit 1 the
//! centre main diagonal, then for each distance c four bits: antidiagonal n−1+c, main diagonal n−1+c,
//! antidiagonal n−1−c, main diagonal n−1−c.
//!
//! Type II has two more bits, for the diagonals of the two squares where a queen of the middle row or
//! column may stand on the edge of the board:
//! - the **corner bit** 4n−2 is the antidiagonal row + column = n through both, which crosses the
//!   lower half in the middle row only;
//! - the **edge bit** 4n−1 is in the upper half the main diagonal row − column = −n, in the lower
//!   half row − column = n. It matters for making half boards and is cleared in theirs.
//!
//! The mathematics: `docs/method.md`, “Quarter boards, and when they fit” and “Odd boards”.

/// The centre diagonals, which a half turn keeps.
const CENTRE: u64 = 0b11;
/// The first two bits of each group of four: diagonals n−1+c.
const PLUS: u64 = 0xcccc_cccc_cccc_cccc;

/// What lies between the quadrants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// N = 2n: nothing.
    Even,
    /// N = 2n + 1, one queen on the centre square.
    TypeOne,
    /// N = 2n + 1, a queen in the middle row and another in the middle column.
    TypeTwo,
}

/// A quarter of the board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quadrant {
    /// Top left.
    P,
    /// Top right.
    Q,
    /// Bottom right.
    R,
    /// Bottom left.
    S,
}

/// The keys of a board made of n×n quadrants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) kind: Kind,
    /// n, the side of a quadrant, 2 … 16.
    pub(crate) side: u32,
    /// Whether keys see the board after a half turn: other bits for the same diagonals.
    pub(crate) turned: bool,
}

impl Geometry {
    /// The number of bits of a half board's key.
    pub(crate) const fn key_bits(self) -> u32 {
        match self.kind {
            Kind::Even | Kind::TypeOne => 4 * self.side - 2,
            Kind::TypeTwo => 4 * self.side - 1,
        }
    }

    /// The bits of a half board's key: all but the edge bit.
    pub(crate) const fn key_mask(self) -> u64 {
        (1 << self.key_bits()) - 1
    }

    /// N, the side of the board.
    pub(crate) const fn board_side(self) -> u32 {
        match self.kind {
            Kind::Even => 2 * self.side,
            Kind::TypeOne | Kind::TypeTwo => 2 * self.side + 1,
        }
    }

    /// Antidiagonal k, 0 … 2n−2.
    const fn anti(self, k: u32) -> u64 {
        let centre = self.side - 1;
        if k == centre {
            1
        } else if k > centre {
            1 << (4 * (k - centre) - 2)
        } else {
            1 << (4 * (centre - k))
        }
    }

    /// Main diagonal k, 0 … 2n−2.
    const fn main(self, k: u32) -> u64 {
        self.anti(k) << 1
    }

    /// The diagonals of a square of the board.
    pub(crate) fn key(self, row: u32, column: u32) -> u64 {
        let n = self.side;
        let first_anti = match self.kind {
            Kind::Even => n,
            Kind::TypeOne | Kind::TypeTwo => n + 1,
        };
        let crossing = 0..2 * n - 1;
        let anti = (row + column)
            .checked_sub(first_anti)
            .filter(|k| crossing.contains(k));
        let main = (row + n - 1)
            .checked_sub(column)
            .filter(|k| crossing.contains(k));
        let key = anti.map_or(0, |k| self.anti(k)) | main.map_or(0, |k| self.main(k));
        let key = if self.turned { half_turn(key) } else { key };
        match self.kind {
            Kind::Even | Kind::TypeOne => key,
            Kind::TypeTwo => {
                let corner = u64::from(row + column == n) << (4 * n - 2);
                let edge = u64::from(row.abs_diff(column) == n) << (4 * n - 1);
                key | corner | edge
            }
        }
    }

    /// The diagonals of row `i`, column `j` of a quadrant, both counted from its outer corner.
    pub(crate) fn quadrant_key(self, quadrant: Quadrant, i: u32, j: u32) -> u64 {
        let last = self.board_side() - 1;
        match quadrant {
            Quadrant::P => self.key(i, j),
            Quadrant::Q => self.key(i, last - j),
            Quadrant::R => self.key(last - i, last - j),
            Quadrant::S => self.key(last - i, j),
        }
    }

    /// The rows of column `j` of any quadrant where a queen may stand: a queen on the centre square
    /// (type I) attacks i = j.
    pub(crate) const fn allowed_rows(self, j: u32) -> u32 {
        let all = (1 << self.side) - 1;
        match self.kind {
            Kind::Even | Kind::TypeTwo => all,
            Kind::TypeOne => all & !(1 << j),
        }
    }
}

/// Diagonal k becomes diagonal 2n−2−k.
const fn half_turn(key: u64) -> u64 {
    key & CENTRE | (key & PLUS) << 2 | (key >> 2) & PLUS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// (row, column)
    type Square = (u32, u32);

    const KINDS: [Kind; 3] = [Kind::Even, Kind::TypeOne, Kind::TypeTwo];
    const QUADRANTS: [Quadrant; 4] = [Quadrant::P, Quadrant::Q, Quadrant::R, Quadrant::S];

    fn geometries() -> impl Iterator<Item = Geometry> {
        let sides = 2..=16;
        let kinds = sides.flat_map(|side| KINDS.map(|kind| (kind, side)));
        kinds.flat_map(|(kind, side)| [false, true].map(|turned| Geometry { kind, side, turned }))
    }

    /// The squares of P and Q, and those of the middle column between them.
    fn upper(geometry: Geometry) -> Vec<Square> {
        let (n, all) = (geometry.side, geometry.board_side());
        let squares = (0..n).flat_map(|i| (0..all).map(move |j| (i, j)));
        squares
            .filter(|&(_, j)| j != n || geometry.kind != Kind::TypeOne)
            .collect()
    }

    /// The squares of R and S, and the left ones of the middle row above them.
    fn lower(geometry: Geometry) -> Vec<Square> {
        let (n, all) = (geometry.side, geometry.board_side());
        let squares = (all - n..all).flat_map(|i| (0..all).map(move |j| (i, j)));
        let squares = squares.filter(|&(_, j)| j != n || geometry.kind == Kind::Even);
        let middle = (0..n)
            .map(|j| (n, j))
            .filter(|_| geometry.kind == Kind::TypeTwo);
        squares.chain(middle).collect()
    }

    fn share_diagonal(a: Square, b: Square) -> bool {
        a.0 + a.1 == b.0 + b.1 || a.0 + b.1 == b.0 + a.1
    }

    #[test]
    fn keys_meet_where_diagonals_cross_the_halves() {
        for geometry in geometries().filter(|geometry| geometry.side <= 6) {
            for &a in &upper(geometry) {
                for &b in &lower(geometry) {
                    let both = geometry.key(a.0, a.1) & geometry.key(b.0, b.1);
                    let meet = both & geometry.key_mask() != 0;
                    assert_eq!(meet, share_diagonal(a, b), "{geometry:?}: {a:?} and {b:?}");
                }
            }
        }
    }

    #[test]
    fn keys_meet_where_diagonals_cross_the_parts_of_a_half() {
        for geometry in geometries().filter(|geometry| geometry.side <= 6) {
            let n = geometry.side;
            let odd = geometry.kind != Kind::Even;
            let part = |square: Square| {
                let middle = odd && (square.0 == n || square.1 == n);
                if middle { 2 } else { u32::from(square.1 >= n) }
            };
            for half in [upper(geometry), lower(geometry)] {
                for (&a, &b) in half.iter().flat_map(|a| half.iter().map(move |b| (a, b))) {
                    if part(a) != part(b) {
                        let meet = geometry.key(a.0, a.1) & geometry.key(b.0, b.1) != 0;
                        assert_eq!(meet, share_diagonal(a, b), "{geometry:?}: {a:?} and {b:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn all_bits_are_used() {
        for geometry in geometries() {
            let squares = upper(geometry).into_iter().chain(lower(geometry));
            let all = squares.fold(0, |all, (row, column)| all | geometry.key(row, column));
            assert_eq!(
                all & geometry.key_mask(),
                geometry.key_mask(),
                "{geometry:?}"
            );
            assert_eq!(geometry.key_mask().count_ones(), geometry.key_bits());
            let edge = u32::from(geometry.kind == Kind::TypeTwo);
            assert_eq!(all.count_ones(), geometry.key_bits() + edge);
        }
    }

    #[test]
    fn quadrants_are_indexed_from_their_corners() {
        for geometry in geometries() {
            let last = geometry.board_side() - 1;
            let corners = [(0, 0), (0, last), (last, last), (last, 0)];
            for (quadrant, (row, column)) in QUADRANTS.into_iter().zip(corners) {
                let key = geometry.quadrant_key(quadrant, 0, 0);
                assert_eq!(key, geometry.key(row, column), "{geometry:?}");
            }
        }
    }
}
