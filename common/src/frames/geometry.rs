//! Squares, diagonals and keys of the four quadrants.
//!
//! Every quadrant is indexed from its own outer corner: row i and column j, 0 … n−1, so that all
//! four share one set of quarter boards and differ only in what a diagonal of theirs is on the
//! whole board:
//!
//! | quadrant | row + column of the board | row − column of the board |
//! |---|---|---|
//! | P, top left | i + j | i − j |
//! | Q, top right | N−1 + (i − j) | i + j − (N−1) |
//! | R, bottom right | 2(N−1) − (i + j) | j − i |
//! | S, bottom left | N−1 − (i − j) | N−1 − (i + j) |
//!
//! A **key** tells which of the diagonals that cross both halves of the board are attacked. Those are
//! 2n−1 antidiagonals (constant row + column) and 2n−1 main diagonals (constant row − column),
//! counted 0 … 2n−2 across the board with the centre at n−1. Seen from P, antidiagonal k is
//! i + j = k + n (even N) or k + n + 1 (odd N), main diagonal k is i − j = k − (n−1).
//!
//! The bits of a key are ordered by how contested the diagonals are, which their distance from the
//! centre decides: bit 0 the centre antidiagonal, bit 1 the centre main diagonal, then for each
//! distance c four bits: antidiagonal n−1+c, main n−1+c, antidiagonal n−1−c, main n−1−c. In this
//! order a quarter board changes its quadrant by swapping neighbours:
//! - P ↔ Q and R ↔ S exchange antidiagonals and main diagonals ([`swap_diagonals`]),
//! - P ↔ R and Q ↔ S, a half turn, exchange the two sides of the centre ([`half_turn`]).

/// Bit k − ½ of each pair: antidiagonals.
const ANTI: u64 = 0x5555_5555_5555_5555;
/// The centre diagonals, which a half turn keeps.
const CENTRE: u64 = 0b11;
/// The first two bits of each group of four: diagonals n−1+c.
const PLUS: u64 = 0xcccc_cccc_cccc_cccc;

/// The middle of a board of odd side; nothing for an even one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// N = 2n: no middle row and column.
    Even,
    /// N = 2n + 1, one queen on the centre square.
    TypeOne,
    /// N = 2n + 1, a queen in the middle row and another in the middle column.
    TypeTwo,
}

/// The diagonals of boards made of n×n quadrants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    pub(crate) kind: Kind,
    /// n, the side of a quadrant, 2 … 16.
    pub(crate) side: u32,
}

/// What P ↔ Q and R ↔ S do to a key without middle bit.
pub(crate) const fn swap_diagonals(key: u64) -> u64 {
    (key & ANTI) << 1 | (key >> 1) & ANTI
}

/// What P ↔ R and Q ↔ S do to a key without middle bit.
pub(crate) const fn half_turn(key: u64) -> u64 {
    key & CENTRE | (key & PLUS) << 2 | (key >> 2) & PLUS
}

impl Geometry {
    /// The number of bits of a key: 4n − 2, and for type II the middle bit.
    pub(crate) const fn key_bits(self) -> u32 {
        match self.kind {
            Kind::Even | Kind::TypeOne => 4 * self.side - 2,
            Kind::TypeTwo => 4 * self.side - 1,
        }
    }

    /// The side of the board, N.
    #[cfg(test)]
    pub(crate) const fn board_side(self) -> u32 {
        match self.kind {
            Kind::Even => 2 * self.side,
            Kind::TypeOne | Kind::TypeTwo => 2 * self.side + 1,
        }
    }

    /// The low n bits set: all rows or all columns of a quadrant.
    pub(crate) const fn full(self) -> u32 {
        (1 << self.side) - 1
    }

    /// Antidiagonal k, 0 … 2n−2.
    pub(crate) const fn anti(self, k: u32) -> u64 {
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
    pub(crate) const fn main(self, k: u32) -> u64 {
        self.anti(k) << 1
    }

    /// The middle bit, 4n − 2, of type II: in a half board's key the antidiagonal row + column = n,
    /// which crosses the halves for odd N only in the first square of the middle row. In a quarter
    /// board's key it stands for i + j = n, which is that antidiagonal for P alone.
    pub(crate) const fn middle_bit(self) -> u64 {
        match self.kind {
            Kind::Even | Kind::TypeOne => 0,
            Kind::TypeTwo => 1 << (4 * self.side - 2),
        }
    }

    /// The key of a queen at row `i`, column `j` of quadrant P.
    pub(crate) const fn square(self, i: u32, j: u32) -> u64 {
        let sum = i + j;
        let crossing = match self.kind {
            Kind::Even if sum >= self.side => self.anti(sum - self.side),
            Kind::TypeOne | Kind::TypeTwo if sum > self.side => self.anti(sum - self.side - 1),
            Kind::TypeTwo if sum == self.side => self.middle_bit(),
            Kind::Even | Kind::TypeOne | Kind::TypeTwo => 0,
        };
        crossing | self.main(i + self.side - 1 - j)
    }

    /// The rows of column `j` of a quadrant where a queen may stand: with a queen on the centre
    /// square (type I) the diagonal i = j of every quadrant is attacked.
    pub(crate) const fn allowed_rows(self, j: u32) -> u32 {
        match self.kind {
            Kind::Even | Kind::TypeTwo => self.full(),
            Kind::TypeOne => self.full() & !(1 << j),
        }
    }

    /// Type II: the key of the queen in the middle column, at row `y` < n.
    pub(crate) const fn middle_column_queen(self, y: u32) -> u64 {
        if y == 0 {
            self.middle_bit()
        } else {
            self.anti(y - 1) | self.main(y - 1)
        }
    }

    /// Type II: the key of the queen in the middle row, at column `x` < n.
    pub(crate) const fn middle_row_queen(self, x: u32) -> u64 {
        if x == 0 {
            self.middle_bit()
        } else {
            self.anti(x - 1) | self.main(2 * self.side - 1 - x)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [Kind; 3] = [Kind::Even, Kind::TypeOne, Kind::TypeTwo];

    /// The key by the definition: board coordinates, one diagonal after the other.
    fn key_of_square(geometry: Geometry, row: i64, column: i64) -> u64 {
        let n = i64::from(geometry.side);
        let first_anti = match geometry.kind {
            Kind::Even => n,
            Kind::TypeOne | Kind::TypeTwo => n + 1,
        };
        let index = |k: i64| {
            (0..2 * n - 1)
                .contains(&k)
                .then(|| u32::try_from(k).unwrap())
        };
        let mut key = 0;
        if let Some(k) = index(row + column - first_anti) {
            key |= geometry.anti(k);
        }
        if let Some(k) = index(row - column + n - 1) {
            key |= geometry.main(k);
        }
        if row + column == n {
            key |= geometry.middle_bit();
        }
        key
    }

    #[test]
    fn bits_are_a_permutation() {
        for side in 2..=16 {
            for kind in KINDS {
                let geometry = Geometry { kind, side };
                let diagonals = 0..2 * side - 1;
                let bits = diagonals.map(|k| geometry.anti(k) | geometry.main(k));
                let all: u64 = bits.chain([geometry.middle_bit()]).fold(0, |all, bits| {
                    assert_eq!(all & bits, 0);
                    all | bits
                });
                assert_eq!(all.count_ones(), geometry.key_bits());
                assert_eq!(all.trailing_ones(), geometry.key_bits());
            }
        }
    }

    #[test]
    fn quadrants_and_middle_queens_have_the_keys_of_the_whole_board() {
        for side in 2..=16 {
            for kind in KINDS {
                let geometry = Geometry { kind, side };
                let clear = |key: u64| key & !geometry.middle_bit();
                let last = i64::from(geometry.board_side()) - 1;
                for (i, j) in (0..side).flat_map(|i| (0..side).map(move |j| (i, j))) {
                    let (row, column) = (i64::from(i), i64::from(j));
                    let (far_row, far_column) = (last - row, last - column);
                    let p = geometry.square(i, j);
                    let q = swap_diagonals(clear(p));
                    assert_eq!(p, key_of_square(geometry, row, column));
                    assert_eq!(q, key_of_square(geometry, row, far_column));
                    let r = half_turn(clear(p));
                    assert_eq!(r, key_of_square(geometry, far_row, far_column));
                    assert_eq!(half_turn(q), key_of_square(geometry, far_row, column));
                }
                if kind == Kind::TypeTwo {
                    let n = i64::from(side);
                    for k in 0..side {
                        let queen = key_of_square(geometry, i64::from(k), n);
                        assert_eq!(geometry.middle_column_queen(k), queen);
                        let queen = key_of_square(geometry, n, i64::from(k));
                        assert_eq!(geometry.middle_row_queen(k), queen);
                    }
                }
            }
        }
    }
}
