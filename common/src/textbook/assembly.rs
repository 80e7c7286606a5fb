//! Solutions put together from quarter boards, as `002_398080fdc5db2280.txt` describes it (Haginoya,
//! 部分解合成法), with its conditions 0 to 8 for representatives; plain and for small boards.
//!
//! The quadrants P, Q, R, S, clockwise from the top left, are seen as quarter turns of one another: each
//! from its own outer corner, x along the side that a quarter turn from P brings there. So P's x are
//! columns of the board and its y rows, Q's x rows and its y columns, and so on. A set is a mask; bit k
//! is the k-th row or column from the edge of the board. The document reverses these masks (rBit) from
//! an origin that its lost figures show: which image of a solution is the representative depends on
//! that, how many representatives there are does not.

use std::collections::BTreeMap;

use crate::{
    board::Board,
    boards::{Solution, Square, Symmetry},
};

/// Queens of one quadrant as (x, y), in increasing order.
type Part = Vec<(u32, u32)>;

/// All quarter boards of one size, by (X, Y); within these, the place in the list is the pid.
#[derive(Debug)]
pub struct Quarters {
    board: Board,
    /// n, the side of a quadrant.
    side: u32,
    parts: BTreeMap<(u32, u32), Vec<Part>>,
}

/// A solution, taken apart.
#[derive(Clone, Debug)]
pub struct Apart {
    /// The columns A of P, its rows B, the columns C of R, its rows D.
    pub frame: [u32; 4],
    /// The pids p, q, r, s.
    pub pids: [usize; 4],
    /// The pids p' and r' of P and R after reflection in the axis V.
    pub reflected: [usize; 2],
    /// Column of the middle-row queen and row of the middle-column queen, where they differ from
    /// the centre (type II).
    pub middle: Option<(u32, u32)>,
    /// n.
    side: u32,
}

/// What a condition says of a solution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It holds.
    Holds,
    /// It does not.
    Fails,
    /// It does not apply.
    NotAsked,
}

/// What the conditions 0 to 8 ask.
pub const CONDITIONS: [&str; 9] = [
    "Q: #P <= #Q",
    "V: (A,C) < (B,D), or equal and (p,r) < (p',r')",
    "U: (A,B) < (D,C), or equal and p < r'",
    "R180: (A,B) < (C,D), or equal and (p,q) <= (r,s)",
    "X: (A,B) < (c,b)",
    "Y: A < a",
    "R+90: (A,B) < (b,c), or equal and p <= q",
    "R-90: (A,B) < (d,a), or equal and p <= s",
    "special: where 6 and 7 hold with equality",
];

/// How many quarter boards the middle queens of an odd board leave to a quadrant: table 3.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Extraction {
    /// All quarter boards, with any number of queens.
    pub all: usize,
    /// Those that a queen in the centre does not attack.
    pub type_one: usize,
    /// Those that a queen in column I of the middle row and one in row J of the middle column do not
    /// attack: the mean over 0 ≤ I < J < n.
    pub type_two: f64,
}

/// One frame, put together.
#[derive(Clone, Debug)]
pub struct Opened {
    /// Quarter boards with the columns that the frame gives P, Q, R and S.
    pub quarters: [usize; 4],
    /// Half boards: pairs of quarter boards that fit, above and below.
    pub halves: [usize; 2],
    /// Pairs of quarter boards tried for them.
    pub quarter_pairs: [usize; 2],
    /// The solutions, in lexicographic order.
    pub solutions: Vec<Solution>,
}

impl Quarters {
    /// Of a board with quadrants of at most 8 × 8.
    ///
    /// # Panics
    /// If they are larger or none.
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

    /// The pid of a quarter board.
    fn pid(&self, part: &Part) -> usize {
        let list = &self.parts[&sets(part)];
        list.binary_search(part)
            .expect("all quarter boards are listed")
    }

    /// The four quarters of a solution, its frame and its pids. `None` for a solution of an odd board
    /// whose middle queens are not in the left and the upper half: an image of it is meant.
    pub fn take_apart(&self, solution: &Solution) -> Option<Apart> {
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
        Some(Apart {
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

    /// Table 3 for P, Q, R and S of an odd board.
    pub fn extraction(&self) -> [Extraction; 4] {
        let n = self.side;
        let square = |row, column| Square { row, column };
        let pairs: Vec<_> = (0..n).flat_map(|j| (0..j).map(move |i| (i, j))).collect();
        std::array::from_fn(|quadrant| {
            let mut found = Extraction::default();
            let mut left = 0;
            for part in self.parts.values().flatten() {
                let queens = self.squares(quadrant, part);
                let safe = |middle: &[Square]| {
                    let attack = |a: &Square, b: &Square| {
                        let (rows, columns) = (a.row.abs_diff(b.row), a.column.abs_diff(b.column));
                        rows == 0 || columns == 0 || rows == columns
                    };
                    !queens
                        .iter()
                        .any(|queen| middle.iter().any(|other| attack(queen, other)))
                };
                found.all += 1;
                found.type_one += usize::from(safe(&[square(n, n)]));
                let safe_pair = |&&(i, j): &&(u32, u32)| safe(&[square(n, i), square(j, n)]);
                left += pairs.iter().filter(safe_pair).count();
            }
            #[expect(clippy::cast_precision_loss, reason = "some thousands")]
            let mean = left as f64 / pairs.len().max(1) as f64;
            found.type_two = mean;
            found
        })
    }

    /// All solutions with the columns `a` of P and `c` of R, by joining quarter boards to half boards
    /// and half boards to solutions. As many columns in both: even boards, and odd ones with a queen in
    /// the centre (type I); one more in `c`: middle queens in the left and the upper half (type II).
    pub fn open(&self, a: u32, c: u32) -> Opened {
        let full = (1 << self.side) - 1;
        let (not_a, not_c) = (full & !a, full & !c);
        let two = c.count_ones() == a.count_ones() + 1;
        let middles: Vec<(u32, u32)> = match (self.is_odd(), two) {
            (false, _) => vec![],
            (true, false) => vec![(self.side, self.side)],
            (true, true) => {
                let columns = (0..self.side).filter(|x| a >> x & 1 == 0);
                columns
                    .flat_map(|x| (0..self.side).map(move |y| (x, y)))
                    .collect()
            }
        };
        let list = |wanted: &dyn Fn(u32, u32) -> bool| -> Vec<&Part> {
            let found = self.parts.iter().filter(|((x, y), _)| wanted(*x, *y));
            found.flat_map(|(_, list)| list).collect()
        };
        let p = list(&|x, _| x == a);
        let r = list(&|x, _| x == c);
        let mut opened = Opened {
            quarters: [
                p.len(),
                list(&|_, y| y == not_c).len(),
                r.len(),
                list(&|_, y| y == not_a).len(),
            ],
            halves: [0; 2],
            quarter_pairs: [0; 2],
            solutions: Vec::new(),
        };
        let none = [(self.side, self.side)];
        for &(x, y) in if middles.is_empty() {
            &none[..]
        } else {
            &middles
        } {
            let queens: Vec<Square> = match (self.is_odd(), two) {
                (false, _) => vec![],
                (true, false) => vec![Square { row: y, column: x }],
                (true, true) => vec![
                    Square {
                        row: self.side,
                        column: x,
                    },
                    Square {
                        row: y,
                        column: self.side,
                    },
                ],
            };
            // The middle-column queen takes a row of the top half, the middle-row queen a column of S.
            let (rows, columns) = if two { (1 << y, 1 << x) } else { (0, 0) };
            let q = |b: u32| list(&move |x, y| y == not_c && x == full & !b & !rows);
            let s = |d: u32| list(&move |x, y| y == not_a & !columns && x == full & !d);
            let Some(middle) = Lines::of(self.board, &[], &queens) else {
                continue;
            };
            let (tops, pairs_above) = self.halves(&p, [0, 1], &q, middle, rows);
            let (bottoms, pairs_below) = self.halves(&r, [2, 3], &s, middle, 0);
            opened.halves[0] += tops.len();
            opened.halves[1] += bottoms.len();
            opened.quarter_pairs[0] += pairs_above;
            opened.quarter_pairs[1] += pairs_below;
            for (top, above) in &tops {
                for (_, below) in bottoms.iter().filter(|(bottom, _)| top.fit(*bottom)) {
                    let squares = [above.as_slice(), below, &queens].concat();
                    opened.solutions.push(solution(squares));
                }
            }
        }
        opened.solutions.sort_unstable();
        opened
    }

    /// Pairs of quarter boards side by side, in these quadrants, that fit each other and the middle
    /// queens, which also take some rows of the first; and how many pairs were tried.
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
                let queens = [
                    self.squares(quadrants[0], corner),
                    self.squares(quadrants[1], other),
                ]
                .concat();
                if let Some(lines) = Lines::of(self.board, &[middle], &queens) {
                    found.push((lines, queens));
                }
            }
        }
        (found, tried)
    }

    /// Where the queens of a quarter board stand on the board.
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

/// The diagonals that queens are on: by row + column, and by row - column + N - 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lines {
    rising: u64,
    falling: u64,
}

impl Lines {
    /// Of these queens; `None` if two of them, or one and some of `others`, share one.
    fn of(board: Board, others: &[Self], queens: &[Square]) -> Option<Self> {
        let n = u32::from(board.n());
        let mut lines = Self {
            rising: 0,
            falling: 0,
        };
        for &Square { row, column } in queens {
            let queen = Self {
                rising: 1 << (row + column),
                falling: 1 << (row + n - 1 - column),
            };
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

    /// Whether two halves share no diagonal. Neither shares one with the middle queens.
    fn fit(self, other: Self) -> bool {
        self.rising & other.rising == 0 && self.falling & other.falling == 0
    }
}

impl Apart {
    /// The conditions 0 to 8, one by one; all that are asked hold for just one of a solution's images.
    /// Of type II solutions only condition 0 ≤ I < J < n on the middle queens is asked, which
    /// stands here as number 0.
    pub fn verdicts(&self) -> [Verdict; 9] {
        let [a, b, c, d] = self.frame;
        let full = (1 << self.side) - 1;
        let [not_a, not_b, not_c, not_d] = self.frame.map(|set| full & !set);
        let [p, q, r, s] = self.pids;
        let [p_reflected, r_reflected] = self.reflected;
        let verdict = |holds| {
            if holds {
                Verdict::Holds
            } else {
                Verdict::Fails
            }
        };
        let mut verdicts = [Verdict::NotAsked; 9];
        if let Some((column, row)) = self.middle {
            verdicts[0] = verdict(column < row);
            return verdicts;
        }
        let (in_p, in_q) = (a.count_ones(), not_c.count_ones());
        verdicts[0] = verdict(in_p <= in_q);
        verdicts[1] = verdict(((a, c), (p, r)) < ((b, d), (p_reflected, r_reflected)));
        verdicts[2] = verdict(((a, b), p) < ((d, c), r_reflected));
        verdicts[3] = verdict(((a, b), (p, q)) <= ((c, d), (r, s)));
        if in_p != in_q {
            return verdicts;
        }
        verdicts[4] = verdict((a, b) < (not_c, not_b));
        verdicts[5] = verdict(a < not_a);
        verdicts[6] = verdict(((a, b), p) <= ((not_b, not_c), q));
        verdicts[7] = verdict(((a, b), p) <= ((not_d, not_a), s));
        if (a, b) == (not_b, not_c) && (a, b) == (not_d, not_a) {
            verdicts[8] = verdict(match (p == q, p == s) {
                (true, true) => true,
                (true, false) => p != r && r < s,
                (false, true) => p != r && q <= r,
                (false, false) => (p, q) <= (r, s),
            });
        }
        verdicts
    }

    /// Whether it is the representative of its class.
    pub fn is_representative(&self) -> bool {
        !self.verdicts().contains(&Verdict::Fails)
    }

    /// The class as the conditions tell it of a representative: half-turn where condition 3 holds with
    /// equality, quarter-turn where condition 8 does with four equal pids.
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

/// (X, Y) of a quarter board.
fn sets(part: &[(u32, u32)]) -> (u32, u32) {
    part.iter()
        .fold((0, 0), |(xs, ys), &(x, y)| (xs | 1 << x, ys | 1 << y))
}

/// All ways to place queens in the columns from `x` on, some of them left empty.
fn place(side: u32, x: u32, queens: &mut Part, found: &mut dyn FnMut(&Part)) {
    if x == side {
        found(queens);
        return;
    }
    place(side, x + 1, queens, found);
    for y in 0..side {
        if queens
            .iter()
            .all(|&(i, j)| j != y && x - i != j.abs_diff(y))
        {
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
    use crate::{boards::Solutions, known::known_counts};

    /// (A, C) and the solutions with these columns, by brute force.
    fn by_frame(quarters: &Quarters, board: Board) -> BTreeMap<(u32, u32), Vec<Solution>> {
        let mut frames: BTreeMap<_, Vec<Solution>> = BTreeMap::new();
        for solution in Solutions::new(board) {
            if let Some(apart) = quarters.take_apart(&solution) {
                let [a, _, c, _] = apart.frame;
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
            let mut classes = [0u128; 3];
            for solution in Solutions::new(board).filter(Solution::is_representative) {
                let mut images = Vec::from(solution.images());
                images.sort_unstable();
                images.dedup();
                let apart = images.iter().filter_map(|image| quarters.take_apart(image));
                let chosen: Vec<_> = apart.filter(Apart::is_representative).collect();
                assert_eq!(chosen.len(), 1, "{solution:?}: {chosen:?}");
                assert_eq!(chosen[0].symmetry(), solution.symmetry(), "{solution:?}");
                classes[chosen[0].symmetry() as usize] += 1;
            }
            let known = known_counts(board).unwrap().classes();
            let known = [known.asymmetric, known.half_turn, known.quarter_turn];
            assert_eq!(classes, known, "N = {n}");
        }
    }

    #[test]
    fn middle_queens_leave_quarter_boards_as_table_3_says() {
        // n = 2: the empty quarter board, and one queen on any square, two of them on the diagonal
        // through the centre.
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
                        let mut opened = quarters.open(a, c).solutions;
                        let expected = frames.get(&(a, c)).cloned().unwrap_or_default();
                        opened.sort_unstable();
                        assert_eq!(opened, expected, "N = {n}, A = {a}, C = {c}");
                    }
                }
            }
        }
    }
}
