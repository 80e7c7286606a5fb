//! Solutions assembled from quarter boards: plain code for small boards.
//!
//! Follows K. Haginoya's article on the composition of partial solutions (部分解合成法)
//! with conditions 0 to 8 for representatives.
//!
//! The quadrants P, Q, R, S, clockwise from the top left, are quarter turns of one another: each is indexed
//! from its own outer corner, with x along the image of P's top side. So P's x are
//! columns of the board and its y rows, Q's x rows and its y columns, and so on. A set is a mask; bit k
//! is the k-th row or column from the edge of the board. The document reverses these masks (rBit)
//! from an origin that only its missing figures show. The origin decides which image of a solution is
//! its representative, but not the number of representatives.

use std::collections::BTreeMap;

use common::board::Board;

use crate::boards::{Solution, Square, Symmetry};

/// Queens of one quadrant as (x, y), in increasing order.
type Part = Vec<(u32, u32)>;

/// Quarter boards of one size by (X, Y); a board's place in its list is its pid.
#[derive(Debug)]
pub struct Quarters {
    board: Board,
    side: u32,
    parts: BTreeMap<(u32, u32), Vec<Part>>,
}

/// A solution split into quarters.
#[derive(Clone, Debug)]
pub struct SolutionParts {
    /// Columns A of P, its rows B, the columns C of R, its rows D.
    pub frame: [u32; 4],
    /// Pids p, q, r, s.
    pub pids: [usize; 4],
    /// Pids p' and r' of P and R after reflection in the axis V.
    pub reflected: [usize; 2],
    /// Column of the middle-row queen and row of the middle-column queen of type II.
    pub middle: Option<(u32, u32)>,
    side: u32,
}

/// Text of conditions 0 to 8.
pub const CONDITIONS: [&str; 9] = [
    "Q: #P <= #Q",
    "V: (A,C) < (B,D), or equal and (p,r) < (p',r')",
    "U: (A,B) < (D,C), or equal and p < r'",
    "R180: (A,B) < (C,D), or equal and (p,q) <= (r,s)",
    "X: (A,B) < (c,b)",
    "Y: A < a",
    "R+90: (A,B) < (b,c), or equal and p <= q",
    "R-90: (A,B) < (d,a), or equal and p <= s",
    "special: if 6 and 7 hold with equality",
];

/// Numbers of quarter boards that an odd board's middle queens allow (table 3).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct QuarterBoardCounts {
    /// All quarter boards, with any number of queens.
    pub all: usize,
    /// Quarter boards that a center queen does not attack.
    pub type_one: usize,
    /// Mean number not attacked by queens in column I and row J, over 0 ≤ I < J < n.
    pub type_two: f64,
}

#[derive(Clone, Debug)]
pub struct FrameDetails {
    /// Pairs of quarter boards tried above and below.
    pub quarter_pairs: [usize; 2],
    /// Solutions in lexicographic order.
    pub solutions: Vec<Solution>,
}

impl Quarters {
    /// Lists the quarter boards of a board with quadrants of at most 8 × 8.
    ///
    /// # Panics
    /// If the quadrants are larger or empty.
    pub fn new(board: Board) -> Self {
        let side = u32::from(board.n()) / 2;
        assert!((1..=8).contains(&side), "quadrants of N = {board}");
        let mut parts: BTreeMap<_, Vec<Part>> = BTreeMap::new();
        place(side, 0, &mut Vec::new(), &mut |part| {
            let (x, y) = sets(part);
            parts.entry((x, y)).or_default().push(part.clone());
        });
        parts.values_mut().for_each(|list| list.sort_unstable());
        Self { board, side, parts }
    }

    fn is_odd(&self) -> bool {
        !self.board.n().is_multiple_of(2)
    }

    fn pid(&self, part: &Part) -> usize {
        let list = &self.parts[&sets(part)];
        list.binary_search(part).expect("all quarter boards are listed")
    }

    /// Splits a solution into quarters, frame and pids.
    ///
    /// `None` for a solution of an odd board whose middle queens are not in the left and upper
    /// halves; an image of the solution has them there.
    pub fn split(&self, solution: &Solution) -> Option<SolutionParts> {
        let n = self.side;
        let middle = match self.is_odd() {
            false => None,
            true => {
                let row = solution.columns().iter().position(|&column| column == n);
                let row = u32::try_from(row.expect("every column has a queen")).ok()?;
                let column = solution.columns()[n as usize];
                (row != n).then_some((column, row))
            }
        };
        if middle.is_some_and(|(column, row)| column > n || row > n) {
            return None;
        }
        let parts = self.quarters_of(solution);
        let [(a, b), _, (c, d), _] = parts.each_ref().map(|part| sets(part));
        let reflected = |part: &Part| {
            let mut part: Part = part.iter().map(|&(x, y)| (y, x)).collect();
            part.sort_unstable();
            self.pid(&part)
        };
        Some(SolutionParts {
            frame: [a, b, c, d],
            pids: parts.each_ref().map(|part| self.pid(part)),
            reflected: [reflected(&parts[0]), reflected(&parts[2])],
            middle,
            side: n,
        })
    }

    fn quarters_of(&self, solution: &Solution) -> [Part; 4] {
        let (n, last) = (self.side, solution.n() - 1);
        let mut parts: [Part; 4] = Default::default();
        for (row, &column) in (0..).zip(solution.columns()) {
            let (top, left) = (row < n, column < n);
            let (bottom, right) = (row > last - n, column > last - n);
            if top && left {
                parts[0].push((column, row));
            } else if top && right {
                parts[1].push((row, last - column));
            } else if bottom && right {
                parts[2].push((last - column, last - row));
            } else if bottom && left {
                parts[3].push((last - row, column));
            }
        }
        parts.iter_mut().for_each(|part| part.sort_unstable());
        parts
    }

    /// Returns table 3 for P, Q, R and S of an odd board.
    pub fn extraction(&self) -> [QuarterBoardCounts; 4] {
        let n = self.side;
        let square = |row, column| Square { row, column };
        let pairs: Vec<_> = (0..n).flat_map(|j| (0..j).map(move |i| (i, j))).collect();
        std::array::from_fn(|quadrant| {
            let mut counts = QuarterBoardCounts::default();
            let mut safe_pairs = 0;
            for part in self.parts.values().flatten() {
                let queens = self.squares(quadrant, part);
                let safe = |middle: &[Square]| {
                    let attack = |a: &Square, b: &Square| {
                        let (rows, columns) = (a.row.abs_diff(b.row), a.column.abs_diff(b.column));
                        rows == 0 || columns == 0 || rows == columns
                    };
                    !queens.iter().any(|queen| middle.iter().any(|other| attack(queen, other)))
                };
                counts.all += 1;
                counts.type_one += usize::from(safe(&[square(n, n)]));
                let safe_pair = |&&(i, j): &&(u32, u32)| safe(&[square(n, i), square(j, n)]);
                safe_pairs += pairs.iter().filter(safe_pair).count();
            }
            #[expect(clippy::cast_precision_loss, reason = "some thousands")]
            let mean = safe_pairs as f64 / pairs.len().max(1) as f64;
            counts.type_two = mean;
            counts
        })
    }

    /// Assembles all solutions with columns `a` of P and `c` of R.
    ///
    /// `a` and `c` have the same size for even boards and type I; `c` has one more column for type II
    /// (middle queens in the left and upper halves).
    pub fn assemble(&self, a: u32, c: u32) -> FrameDetails {
        let full = (1 << self.side) - 1;
        let (not_a, not_c) = (full & !a, full & !c);
        let two = c.count_ones() == a.count_ones() + 1;
        let n = self.side;
        let square = |row, column| Square { row, column };
        let middles: Vec<Vec<Square>> = match (self.is_odd(), two) {
            (false, _) => vec![vec![]],
            (true, false) => vec![vec![square(n, n)]],
            (true, true) => {
                let columns = (0..n).filter(|x| a >> x & 1 == 0);
                let queens = |x| (0..n).map(move |y| vec![square(n, x), square(y, n)]);
                columns.flat_map(queens).collect()
            }
        };
        let list = |wanted: &dyn Fn(u32, u32) -> bool| -> Vec<&Part> {
            let found = self.parts.iter().filter(|((x, y), _)| wanted(*x, *y));
            found.flat_map(|(_, list)| list).collect()
        };
        let p = list(&|x, _| x == a);
        let r = list(&|x, _| x == c);
        let mut details = FrameDetails { quarter_pairs: [0; 2], solutions: Vec::new() };
        for queens in &middles {
            // The middle-column queen takes a row of the top half, the middle-row queen a column of S.
            let (rows, columns) = match queens[..] {
                [in_row, in_column] => (1 << in_column.row, 1 << in_row.column),
                _ => (0, 0),
            };
            let q = |b: u32| list(&move |x, y| y == not_c && x == full & !b & !rows);
            let s = |d: u32| list(&move |x, y| y == not_a & !columns && x == full & !d);
            let Some(middle) = Lines::of(self.board, &[], queens) else {
                continue;
            };
            let (tops, pairs_above) = self.halves(&p, [0, 1], &q, middle, rows);
            let (bottoms, pairs_below) = self.halves(&r, [2, 3], &s, middle, 0);
            details.quarter_pairs[0] += pairs_above;
            details.quarter_pairs[1] += pairs_below;
            for (top, above) in &tops {
                for (_, below) in bottoms.iter().filter(|(bottom, _)| top.fit(*bottom)) {
                    let squares = [above.as_slice(), below, queens].concat();
                    details.solutions.push(solution(squares));
                }
            }
        }
        details.solutions.sort_unstable();
        details
    }

    /// Returns the half boards of these quadrants, and the number of pairs tried.
    ///
    /// The quarter boards of a half board fit each other and the middle queens.
    fn halves<'a>(
        &self,
        corners: &[&Part],
        quadrants: [usize; 2],
        others: &dyn Fn(u32) -> Vec<&'a Part>,
        middle: Lines,
        rows_taken: u32,
    ) -> (Vec<(Lines, Vec<Square>)>, usize) {
        let mut found = Vec::new();
        let mut tried = 0;
        for corner in corners {
            let (_, rows) = sets(corner);
            if rows & rows_taken != 0 {
                continue;
            }
            for other in others(rows) {
                tried += 1;
                let queens =
                    [self.squares(quadrants[0], corner), self.squares(quadrants[1], other)]
                        .concat();
                if let Some(lines) = Lines::of(self.board, &[middle], &queens) {
                    found.push((lines, queens));
                }
            }
        }
        (found, tried)
    }

    /// Returns the squares of a quarter board's queens on the whole board.
    fn squares(&self, quadrant: usize, part: &Part) -> Vec<Square> {
        let last = u32::from(self.board.n()) - 1;
        let square = |&(x, y): &(u32, u32)| {
            let (row, column) = match quadrant {
                0 => (y, x),
                1 => (x, last - y),
                2 => (last - y, last - x),
                _ => (last - x, y),
            };
            Square { row, column }
        };
        part.iter().map(square).collect()
    }
}

/// Occupied diagonals, by row + column and by row - column + N - 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lines {
    rising: u64,
    falling: u64,
}

impl Lines {
    /// Returns the diagonals of these queens.
    ///
    /// `None` if two queens share a diagonal, or if a queen stands on one of `others`.
    fn of(board: Board, others: &[Self], queens: &[Square]) -> Option<Self> {
        let n = u32::from(board.n());
        let mut lines = Self { rising: 0, falling: 0 };
        for &Square { row, column } in queens {
            let queen = Self { rising: 1 << (row + column), falling: 1 << (row + n - 1 - column) };
            let free = |taken: &Self| {
                taken.rising & queen.rising == 0 && taken.falling & queen.falling == 0
            };
            if !free(&lines) || !others.iter().all(free) {
                return None;
            }
            lines.rising |= queen.rising;
            lines.falling |= queen.falling;
        }
        Some(lines)
    }

    /// Returns whether two halves share no diagonal.
    fn fit(self, other: Self) -> bool {
        self.rising & other.rising == 0 && self.falling & other.falling == 0
    }
}

impl SolutionParts {
    /// Evaluates conditions 0 to 8; `None` for those that do not apply.
    ///
    /// Exactly one image of a solution satisfies all that apply. For type II, only the condition
    /// 0 ≤ I < J < n on the middle queens applies, as number 0.
    pub fn verdicts(&self) -> [Option<bool>; 9] {
        let [a, b, c, d] = self.frame;
        let full = (1 << self.side) - 1;
        let [not_a, not_b, not_c, not_d] = self.frame.map(|set| full & !set);
        let [p, q, r, s] = self.pids;
        let [p_reflected, r_reflected] = self.reflected;
        let mut verdicts = [None; 9];
        if let Some((column, row)) = self.middle {
            verdicts[0] = Some(column < row);
            return verdicts;
        }
        let (in_p, in_q) = (a.count_ones(), not_c.count_ones());
        verdicts[0] = Some(in_p <= in_q);
        verdicts[1] = Some(((a, c), (p, r)) < ((b, d), (p_reflected, r_reflected)));
        verdicts[2] = Some(((a, b), p) < ((d, c), r_reflected));
        verdicts[3] = Some(((a, b), (p, q)) <= ((c, d), (r, s)));
        if in_p != in_q {
            return verdicts;
        }
        verdicts[4] = Some((a, b) < (not_c, not_b));
        verdicts[5] = Some(a < not_a);
        verdicts[6] = Some(((a, b), p) <= ((not_b, not_c), q));
        verdicts[7] = Some(((a, b), p) <= ((not_d, not_a), s));
        if (a, b) == (not_b, not_c) && (a, b) == (not_d, not_a) {
            verdicts[8] = Some(match (p == q, p == s) {
                (true, true) => true,
                (true, false) => p != r && r < s,
                (false, true) => p != r && q <= r,
                (false, false) => (p, q) <= (r, s),
            });
        }
        verdicts
    }

    pub fn is_representative(&self) -> bool {
        !self.verdicts().contains(&Some(false))
    }

    /// Returns the class of a representative, from the conditions.
    ///
    /// It is half-turn if condition 3 holds with equality, and quarter-turn if condition 8 does
    /// with four equal pids.
    pub fn symmetry(&self) -> Symmetry {
        let [a, b, c, d] = self.frame;
        let [p, q, r, s] = self.pids;
        let full = (1 << self.side) - 1;
        if self.middle.is_some() || (a, b, p, q) != (c, d, r, s) {
            Symmetry::Asymmetric
        } else if p == q && a == full & !b {
            Symmetry::QuarterTurn
        } else {
            Symmetry::HalfTurn
        }
    }
}

/// Returns (X, Y) of a quarter board.
fn sets(part: &[(u32, u32)]) -> (u32, u32) {
    part.iter().fold((0, 0), |(xs, ys), &(x, y)| (xs | 1 << x, ys | 1 << y))
}

/// Places queens in the columns from `x` on in all ways; columns may stay empty.
fn place(side: u32, x: u32, queens: &mut Part, found: &mut dyn FnMut(&Part)) {
    if x == side {
        found(queens);
        return;
    }
    place(side, x + 1, queens, found);
    for y in 0..side {
        if queens.iter().all(|&(i, j)| j != y && x - i != j.abs_diff(y)) {
            queens.push((x, y));
            place(side, x + 1, queens, found);
            queens.pop();
        }
    }
}

fn solution(mut squares: Vec<Square>) -> Solution {
    squares.sort_unstable();
    let columns = squares.into_iter().map(|square| square.column).collect();
    Solution::new(columns).expect("half boards that fit make a solution")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boards::Solutions;

    /// Returns the solutions by (A, C), by brute force.
    fn by_frame(quarters: &Quarters, board: Board) -> BTreeMap<(u32, u32), Vec<Solution>> {
        let mut frames: BTreeMap<_, Vec<Solution>> = BTreeMap::new();
        for solution in Solutions::new(board) {
            if let Some(parts) = quarters.split(&solution) {
                let [a, _, c, _] = parts.frame;
                frames.entry((a, c)).or_default().push(solution);
            }
        }
        frames
    }

    #[test]
    fn the_conditions_choose_one_image_of_every_solution() {
        for n in 8..=12 {
            let board = Board::new(n).unwrap();
            let quarters = Quarters::new(board);
            for solution in Solutions::new(board).filter(Solution::is_representative) {
                let mut images = Vec::from(solution.images());
                images.sort_unstable();
                images.dedup();
                let parts = images.iter().filter_map(|image| quarters.split(image));
                let chosen: Vec<_> = parts.filter(SolutionParts::is_representative).collect();
                assert_eq!(chosen.len(), 1, "{solution:?}: {chosen:?}");
                assert_eq!(chosen[0].symmetry(), solution.symmetry(), "{solution:?}");
            }
        }
    }

    #[test]
    fn middle_queens_leave_quarter_boards_as_table_3_says() {
        // n = 2: the empty quarter board, and one queen on any square, two of them on the diagonal
        // through the center.
        let five = Quarters::new(Board::new(5).unwrap()).extraction();
        for found in five {
            assert_eq!((found.all, found.type_one), (5, 3));
        }
        // (I, J) = (0, 1), the only pair: P has no square left, R three.
        let left = five.map(|found| found.type_two);
        assert_eq!(left, [1.0, 2.0, 4.0, 2.0]);
    }

    #[test]
    fn frames_hold_the_solutions_of_a_brute_force_search() {
        for n in 8..=12 {
            let board = Board::new(n).unwrap();
            let quarters = Quarters::new(board);
            let frames = by_frame(&quarters, board);
            let full = 1u32 << (n / 2);
            for a in 0..full {
                for c in 0..full {
                    let more = c.count_ones().checked_sub(a.count_ones());
                    if more == Some(0) || more == Some(1) && n % 2 == 1 {
                        let mut assembled = quarters.assemble(a, c).solutions;
                        let expected = frames.get(&(a, c)).cloned().unwrap_or_default();
                        assembled.sort_unstable();
                        assert_eq!(assembled, expected, "N = {n}, A = {a}, C = {c}");
                    }
                }
            }
        }
    }
}
