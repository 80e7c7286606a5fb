//! Parsing of boards in many text formats.
//!
//! Every [`Style`](super::Style) is accepted, with or without its frame, numbers and letters, and with
//! any of `Q q O o ♛ ♕` for a queen and `. _ ·` for a free square. Lines without squares are frames or
//! headings and are skipped. A board without line breaks is one line with N² squares. A text
//! without a picture is a list: numbers are the columns of rows 1, 2, …, counted from 0 if there is
//! a 0, otherwise from 1; names such as `a1 e2` are squares, with rows counted from the top.

use super::solution::{Flaw, Solution, Square, check};

/// A square board with queens, which may attack each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagram {
    n: u32,
    queens: Vec<Square>,
}

/// Reason why a text is not a board.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    #[error(
        "no board found: expected rows such as '. Q . .', or the columns of the queens such as '1 3 0 2'"
    )]
    Nothing,
    /// A row with a mark that is neither queen nor free square.
    #[error(
        "line {line}: invalid square '{found}': expected Q, q or O for a queen, . or _ for a free square"
    )]
    Mark { line: usize, found: String },
    /// A row whose length is not the number of rows.
    #[error("line {line}: {squares} squares, but there are {rows} rows; a board is square")]
    NotSquare {
        line: usize,
        /// Squares of the row.
        squares: usize,
        /// Rows of the board.
        rows: usize,
    },
    #[error("invalid column {value}: a board of {n} rows has {n} columns")]
    Column { value: u64, n: usize },
}

impl Diagram {
    pub fn n(&self) -> u32 {
        self.n
    }

    /// Returns the board as a solution, or the reason why it is not one.
    pub fn solution(&self) -> Result<Solution, Flaw> {
        check(self.n, self.queens.iter().copied())?;
        let mut queens = self.queens.clone();
        queens.sort_unstable();
        Solution::new(queens.into_iter().map(|queen| queen.column).collect())
    }

    /// Creates a diagram with one queen per row.
    fn of_columns(columns: &[u64], base: u64) -> Result<Self, Unreadable> {
        let n = columns.len();
        let queen = |(row, &value): (usize, &u64)| {
            let column = value.checked_sub(base).filter(|&column| column < n as u64);
            let column = column.ok_or(Unreadable::Column { value, n })?;
            Ok(square(row, usize::try_from(column).unwrap_or(usize::MAX)))
        };
        let queens = columns.iter().enumerate().map(queen).collect::<Result<_, _>>()?;
        let n = number(n);
        Ok(Self { n, queens })
    }

    fn of_rows(rows: &[RowOfText]) -> Result<Self, Unreadable> {
        let mut queens = Vec::new();
        for (at, row) in rows.iter().enumerate() {
            if row.squares.len() != rows.len() {
                return Err(Unreadable::NotSquare {
                    line: row.line,
                    squares: row.squares.len(),
                    rows: rows.len(),
                });
            }
            let columns = row.squares.iter().enumerate().filter(|(_, queen)| **queen);
            queens.extend(columns.map(|(column, _)| square(at, column)));
        }
        let n = number(rows.len());
        Ok(Self { n, queens })
    }
}

/// A line with squares: whether each has a queen.
struct RowOfText {
    line: usize,
    squares: Vec<bool>,
}

/// Reads a board in any supported format.
pub fn read(text: &str) -> Result<Diagram, Unreadable> {
    if let Some(squares) = squares_of_one_line(text) {
        let n = squares.len().isqrt();
        let rows = squares
            .chunks(n.max(1))
            .map(|squares| RowOfText { line: 1, squares: squares.to_vec() });
        return Diagram::of_rows(&rows.collect::<Vec<_>>());
    }
    let mut rows = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        if let Some(squares) = squares_of(text, line)? {
            rows.push(RowOfText { line, squares });
        }
    }
    match rows.is_empty() {
        false => Diagram::of_rows(&rows),
        true => read_list(text),
    }
}

fn squares_of_one_line(text: &str) -> Option<Vec<bool>> {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let (line, None) = (lines.next()?, lines.next()) else {
        return None;
    };
    let marks: Vec<bool> =
        line.split_whitespace().filter_map(|token| mark(token).filter(|_| token != "|")).collect();
    let side = marks.len().isqrt();
    (side > 1 && side * side == marks.len()).then_some(marks)
}

/// Returns the squares of a line, if it has any.
fn squares_of(text: &str, line: usize) -> Result<Option<Vec<bool>>, Unreadable> {
    let is_frame = |c: char| "+-*=| ".contains(c);
    if text.contains(['-', '*', '=', '+']) && text.chars().all(is_frame) || text.trim().is_empty() {
        return Ok(None);
    }
    let bad = |found: &str| Unreadable::Mark { line, found: found.to_owned() };
    // Between the bars; anything outside is a label.
    let inner = match (text.find('|'), text.rfind('|')) {
        (Some(first), Some(last)) if first < last => &text[first + 1..last],
        _ => text,
    };
    if inner.contains('|') {
        let cell = |cell: &str| match cell.trim() {
            "" => Ok(false),
            other => mark(other).ok_or_else(|| bad(other)),
        };
        return inner.split('|').map(cell).collect::<Result<_, _>>().map(Some);
    }
    let is_label = |token: &&str| token.chars().all(|c| c.is_ascii_digit());
    let tokens: Vec<&str> = inner.split_whitespace().filter(|t| !is_label(t)).collect();
    let known = |token: &&&str| squares_of_token(token).is_some();
    // A heading also has letters, some of which look like queens.
    let squares = tokens.iter().filter(known).count();
    if squares * 2 <= tokens.len() {
        return Ok(None);
    }
    let mut row = Vec::new();
    for token in tokens {
        row.extend(squares_of_token(token).ok_or_else(|| bad(token))?);
    }
    Ok(Some(row))
}

/// Parses one square, or several without spaces.
fn squares_of_token(token: &str) -> Option<Vec<bool>> {
    let marks: Vec<char> = token.chars().collect();
    // In the style `cells` a dot precedes every square.
    let cells = marks.contains(&'_') && marks.iter().step_by(2).all(|&c| c == '.');
    let squares = marks.into_iter().skip(usize::from(cells));
    squares.step_by(if cells { 2 } else { 1 }).map(|c| mark(c.encode_utf8(&mut [0; 4]))).collect()
}

/// Returns whether the square `token` has a queen; `None` if it is not a square.
fn mark(token: &str) -> Option<bool> {
    match token {
        "Q" | "q" | "O" | "o" | "♛" | "♕" => Some(true),
        "." | "_" | "·" => Some(false),
        _ => None,
    }
}

fn read_list(text: &str) -> Result<Diagram, Unreadable> {
    let tokens: Vec<&str> = text
        .split(|c: char| c.is_whitespace() || ",;()[]".contains(c))
        .filter(|token| !token.is_empty())
        .collect();
    if let Some(queens) = tokens.iter().map(|name| named(name)).collect::<Option<Vec<_>>>()
        && !queens.is_empty()
    {
        let n = queens.len();
        let outside = |queen: &&(usize, usize)| queen.0.max(queen.1) >= n;
        if let Some(&(row, column)) = queens.iter().find(outside) {
            let value = row.max(column) as u64 + 1;
            return Err(Unreadable::Column { value, n });
        }
        let queens = queens.into_iter().map(|(row, column)| square(row, column));
        return Ok(Diagram { n: number(n), queens: queens.collect() });
    }
    let digits = |token: &str| token.chars().map(|c| c.to_digit(10).map(u64::from)).collect();
    let columns: Option<Vec<u64>> = match tokens.as_slice() {
        [one] if (2..=10).contains(&one.len()) => digits(one),
        several => several.iter().map(|token| token.parse().ok()).collect(),
    };
    let columns = columns.filter(|columns| !columns.is_empty());
    let columns = columns.ok_or(Unreadable::Nothing)?;
    let base = u64::from(!columns.contains(&0));
    Diagram::of_columns(&columns, base)
}

/// Parses a square such as `b3` into row and column.
fn named(name: &str) -> Option<(usize, usize)> {
    let file = name.chars().next().filter(char::is_ascii_lowercase)?;
    let rank: usize = name[1..].parse().ok()?;
    let column = file as usize - 'a' as usize;
    Some((rank.checked_sub(1)?, column))
}

fn square(row: usize, column: usize) -> Square {
    let (row, column) = (number(row), number(column));
    Square { row, column }
}

fn number(number: usize) -> u32 {
    u32::try_from(number).expect("a text has fewer than 2^32 squares")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boards::{Solutions, Style};
    use common::board::Board;

    #[test]
    fn every_style_is_read_back() {
        for n in 1..=9 {
            let solutions = Solutions::new(Board::new(n).unwrap());
            for (number, solution) in (1..).zip(solutions) {
                for style in Style::ALL {
                    if n == 1 && style == Style::Cells {
                        // A dot and a queen: two squares.
                        continue;
                    }
                    let text = style.draw(&solution, number);
                    // The picture of a record is transposed, as its source prints it.
                    let expected = match style {
                        Style::Record => solution.images()[7].clone(),
                        _ => solution.clone(),
                    };
                    let diagram = read(&text).unwrap_or_else(|error| panic!("{error}:\n{text}"));
                    assert_eq!(diagram.solution(), Ok(expected), "{style}:\n{text}");
                }
            }
        }
    }

    #[test]
    fn boards_of_twenty_are_read_with_their_headings() {
        let solution = Solutions::new(Board::new(20).unwrap()).next().unwrap();
        for style in Style::ALL.into_iter().filter(|style| *style != Style::Record) {
            let text = style.draw(&solution, 1);
            assert_eq!(read(&text).unwrap().solution(), Ok(solution.clone()), "{text}");
        }
    }

    #[test]
    fn pasted_boards_in_other_forms_are_read() {
        let expected = Ok(Solution::new(vec![0, 4, 7, 5, 2, 6, 1, 3]).unwrap());
        let one_line = "列 1 2 3 4 5 6 7 8 *-----------------* 1 | Q . . . . . . . | 2 | . . . . Q . . . | 3 | . . . . . . . Q | 行 4 | . . . . . Q . . | 5 | . . Q . . . . . | 6 | . . . . . . Q . | 7 | . Q . . . . . . | 8 | . . . Q . . . . | *-----------------*";
        for text in [
            one_line,
            "Q.......\n....Q...\n.......Q\n.....Q..\n..Q.....\n......Q.\n.Q......\n...Q....\n",
            "0 4 7 5 2 6 1 3",
            "[1, 5, 8, 6, 3, 7, 2, 4]",
            "15863724",
            "04752613",
            "a1 b7 c5 d8 e2 f4 g6 h3",
        ] {
            assert_eq!(read(text).unwrap().solution(), expected, "{text}");
        }
    }

    #[test]
    fn errors_name_the_line() {
        for (text, part) in [
            ("", "no board found"),
            ("hello world", "no board"),
            (". Q . .\n. . x .\n", "line 2: invalid square 'x'"),
            (". Q .\n. . .\n", "line 1: 3 squares, but there are 2 rows"),
            ("|Q| |\n| |#|", "line 2: invalid square '#'"),
            ("0 1 9 2", "invalid column 9: a board of 4"),
            ("5 4 1 1", "invalid column 5: a board of 4"),
            ("99999999999999999999", "no board"),
            ("z1 a2", "invalid column 26: a board of 2"),
            ("a0", "no board"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn flaws_are_named() {
        for (text, part) in [
            ("Q Q\n. .", "row 1, column 1 and row 1, column 2 attack each other along the row"),
            ("Q...\n....\n...Q\n.Q..", "only 3 queens on a board of 4"),
            ("....\n....\n....\n....", "only 0 queens"),
            ("0 0 1 2", "row 1, column 1 and row 2, column 1 attack each other along the column"),
            ("0 3 2 1", "row 2, column 4 and row 3, column 3 attack each other along a rising"),
            ("2 0 1 3", "row 2, column 1 and row 3, column 2 attack each other along a falling"),
        ] {
            let flaw = read(text).unwrap().solution().unwrap_err().to_string();
            assert!(flaw.contains(part), "{text}: {flaw}");
        }
    }
}
