//! Parsing of boards in many text formats.
//!
//! Each grammar reads the whole text or nothing. Exactly one result must remain: a text that several
//! grammars read differently is ambiguous, and a text that none reads is not a board.
//!
//! Numbers are counted from 0 if there is a 0, otherwise from 1. Rows are counted from the top.

mod layout;
mod numbers;
mod picture;

use common::text::{plural, without_bom};

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
        "no board found: expected rows such as '. Q . .' or '0,1,0,0', the columns of the queens such \
         as '1 3 0 2', squares such as 'b1 d2 a3 c4', or FEN ranks such as '1q2/3q/q3/2q1'"
    )]
    Nothing,
    /// Different boards, according to the grammar.
    #[error("ambiguous board: it can be read as {first} and as {second}; use another format")]
    Ambiguous { first: &'static str, second: &'static str },
    /// A row with a mark that is neither queen nor free square.
    #[error(
        "line {line}: invalid square '{found}': expected one mark for a queen, such as Q, and one for a \
         free square, such as . or _"
    )]
    Mark { line: usize, found: String },
    /// A row whose length is not the number of rows.
    #[error(
        "line {line}: {}, but {}; a board is square",
        plural(*squares, "square"),
        plural(*rows, "row")
    )]
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

    fn new(n: usize, queens: impl IntoIterator<Item = (usize, usize)>) -> Self {
        let number = |number| u32::try_from(number).expect("a text has fewer than 2^32 squares");
        let square = |(row, column)| Square { row: number(row), column: number(column) };
        Self { n: number(n), queens: queens.into_iter().map(square).collect() }
    }

    /// Returns the board of rows that have `true` for each queen.
    fn of_rows(rows: &[RowOfSquares]) -> Result<Self, Unreadable> {
        let n = rows.len();
        if let Some(row) = rows.iter().find(|row| row.squares.len() != n) {
            let squares = row.squares.len();
            return Err(Unreadable::NotSquare { line: row.line, squares, rows: n });
        }
        let queens = rows.iter().enumerate().flat_map(|(at, row)| {
            let queens = row.squares.iter().enumerate().filter(|(_, queen)| **queen);
            queens.map(move |(column, _)| (at, column))
        });
        Ok(Self::new(n, queens))
    }
}

/// A line with squares: whether each has a queen.
struct RowOfSquares {
    line: usize,
    squares: Vec<bool>,
}

/// The boards of a text in one grammar.
///
/// `None` if the text is not in the grammar; an error if it has the words but not the shape of it.
type Reading = Option<Result<Vec<Diagram>, Unreadable>>;

type Grammar = (&'static str, fn(&str) -> Reading);

/// The name of each grammar and its parser. The errors of earlier ones take precedence.
const GRAMMARS: [Grammar; 7] = [
    ("a picture", picture::marks),
    ("a 0/1 matrix", picture::matrix),
    ("columns with a board per line", numbers::columns),
    ("one column per line", numbers::column_per_line),
    ("pairs of row and column", numbers::pairs),
    ("squares such as b3", numbers::squares),
    ("FEN ranks", numbers::fen),
];

/// Reads one or several boards in any supported format.
///
/// # Errors
/// If no grammar fits, or several give different boards.
pub fn read(text: &str) -> Result<Vec<Diagram>, Unreadable> {
    let text = without_bom(text);
    let mut found: Option<(&'static str, Vec<Diagram>)> = None;
    let mut error = Unreadable::Nothing;
    for (name, parse) in GRAMMARS {
        match (parse(text), &found) {
            (None, _) => {}
            (Some(Err(why)), _) => error = if error == Unreadable::Nothing { why } else { error },
            (Some(Ok(boards)), None) => found = Some((name, boards)),
            (Some(Ok(boards)), Some((_, same))) if boards == *same => {}
            (Some(Ok(_)), &Some((first, _))) => {
                return Err(Unreadable::Ambiguous { first, second: name });
            }
        }
    }
    found.map(|(_, boards)| boards).ok_or(error)
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
                    let boards = read(&text).unwrap_or_else(|error| panic!("{error}:\n{text}"));
                    assert_eq!(boards.len(), 1, "{text}");
                    assert_eq!(boards[0].solution(), Ok(expected), "{style}:\n{text}");
                }
            }
        }
    }

    #[test]
    fn boards_of_twenty_are_read_with_their_headings() {
        let solution = Solutions::new(Board::new(20).unwrap()).next().unwrap();
        for style in Style::ALL.into_iter().filter(|style| *style != Style::Record) {
            let text = style.draw(&solution, 1);
            assert_eq!(read(&text).unwrap()[0].solution(), Ok(solution.clone()), "{text}");
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
            assert_eq!(read(text).unwrap()[0].solution(), expected, "{text}");
        }
    }

    #[test]
    fn errors_name_the_line() {
        for (text, part) in [
            ("", "no board found"),
            ("hello world", "no board"),
            (". Q . .\n. . x .\n", "line 2: invalid square 'x'"),
            (". Q .\n. . .\n", "line 1: 3 squares, but 2 rows"),
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
            let flaw = read(text).unwrap()[0].solution().unwrap_err().to_string();
            assert!(flaw.contains(part), "{text}: {flaw}");
        }
    }

    /// Returns the columns of each board, or `x` for one that is not a solution.
    fn verdicts(text: &str) -> String {
        let verdict = |board: Diagram| match board.solution() {
            Ok(solution) => Style::Line.draw(&solution, 1).replace(' ', ""),
            Err(_) => "x".to_owned(),
        };
        match read(text) {
            Ok(boards) => boards.into_iter().map(verdict).collect::<Vec<_>>().join(" "),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn boards_of_four_are_read_in_every_grammar() {
        let rows = ["0100", "0001", "1000", "0010"];
        let spaced = |queen: &str, free: &str, between: &str| {
            let row = |row: &&str| {
                let squares = row.chars().map(|c| if c == '1' { queen } else { free });
                squares.collect::<Vec<_>>().join(between)
            };
            rows.iter().map(row).collect::<Vec<_>>()
        };
        let mut texts = Vec::new();
        for (queen, free) in [
            ("Q", "."),
            ("q", "_"),
            ("♛", "·"),
            ("♕", "."),
            ("O", "."),
            ("x", "_"),
            ("X", "-"),
            ("*", "."),
            ("1", "0"),
            ("Q", "-"),
        ] {
            for between in ["", " ", ",", ", ", "\t", ";", "  "] {
                let rows = spaced(queen, free, between);
                let bracketed: Vec<_> = rows.iter().map(|row| format!("[{row}]")).collect();
                let quoted: Vec<_> = rows.iter().map(|row| format!("\"{row}\"")).collect();
                texts.push(rows.join("\n"));
                texts.push(rows.join("\r\n") + "\r\n");
                texts.push(rows.join("\n\n"));
                texts.push(format!("\n\n{}\n\n\n", rows.join("\n")));
                texts.push(bracketed.join("\n"));
                texts.push(format!("[{}]", bracketed.join(", ")));
                texts.push(format!("[{}]", bracketed.join(",\n ")));
                texts.push(quoted.join(",\n"));
                texts.push(format!("[{}]", quoted.join(",")));
                texts.push(format!("[{}]", quoted.join(", ").replace('"', "'")));
                texts.push(rows.join("  "));
                texts.push(rows.join("/"));
            }
        }
        for text in [
            "1 3 0 2",
            "2 4 1 3",
            "2,4,1,3",
            "[2, 4, 1, 3]",
            "(1, 3, 0, 2)",
            "{1,3,0,2}",
            "2413",
            "1302",
            "1\n3\n0\n2\n",
            "2;4;1;3",
            "[[1, 3, 0, 2]]",
            "[\n 1,\n 3,\n 0,\n 2\n]",
            "[(0, 1), (1, 3), (2, 0), (3, 2)]",
            "(1,2) (2,4) (3,1) (4,3)",
            "0,1\n1,3\n2,0\n3,2",
            "0 1\n1 3\n2 0\n3 2",
            "[[0,1],[1,3],[2,0],[3,2]]",
            "(3,2),(0,1),(2,0),(1,3)",
            "b1 d2 a3 c4",
            "B1, D2, A3, C4",
            "b1\nd2\na3\nc4",
            "Qb1 Qd2 Qa3 Qc4",
            "c4 a3 d2 b1",
            "[b1, d2, a3, c4]",
            "1q2/3q/q3/2q1",
            "1Q2/3Q/Q3/2Q1 w - - 0 1",
            "\"1q2/3q/q3/2q1\"",
        ] {
            texts.push(text.to_owned());
        }
        for text in texts {
            assert_eq!(verdicts(&text), "1302", "{text}");
        }
    }

    #[test]
    fn several_boards_are_read() {
        for text in [
            "1 3 0 2\n2 0 3 1",
            "[1, 3, 0, 2]\n[2, 0, 3, 1]",
            "[[1, 3, 0, 2], [2, 0, 3, 1]]",
            "1302\n2031",
            "2413\n3142",
            "1\n3\n0\n2\n\n2\n0\n3\n1",
            "b1 d2 a3 c4\nc1 a2 d3 b4",
            "1q2/3q/q3/2q1\n2q1/q3/3q/1q2",
            ".Q..\n...Q\nQ...\n..Q.\n\n..Q.\nQ...\n...Q\n.Q..",
            "[[\".Q..\",\"...Q\",\"Q...\",\"..Q.\"],[\"..Q.\",\"Q...\",\"...Q\",\".Q..\"]]",
            ".Q.....QQ.....Q.\n..Q.Q......Q.Q..",
            ".Q../...Q/Q.../..Q.\n..Q./Q.../...Q/.Q..",
            "0100\n0001\n1000\n0010\n\n0010\n1000\n0001\n0100",
            "[[[0,1,0,0],[0,0,0,1],[1,0,0,0],[0,0,1,0]],[[0,0,1,0],[1,0,0,0],[0,0,0,1],[0,1,0,0]]]",
            "[[(0,1),(1,3),(2,0),(3,2)],[(0,2),(1,0),(2,3),(3,1)]]",
            "(0,1),(1,3),(2,0),(3,2)\n(0,2),(1,0),(2,3),(3,1)",
        ] {
            assert_eq!(verdicts(text), "1302 2031", "{text}");
        }
        assert_eq!(verdicts("1 3 0 2\n0 1 2 3"), "1302 x");
    }

    #[test]
    fn a_text_without_one_meaning_has_no_verdict() {
        for text in [
            "0 1 0 0",
            "0100",
            "1 0\n0 1",
            "1 1 1 1",
            "1 2 1 2",
            "1 3 0 2 2 0 3 1",
            "0 1 1 3 2 0 3 2",
            "0,1\n1,3\n2,0\n3,2\n0,2\n1,0\n2,3\n3,1",
            ".Q..\n...Q\nQ...\n..Q.\n..Q.\nQ...\n...Q\n.Q..",
            "O Q O O\nO O O Q\nQ O O O\nO O Q O",
            "XOXX\nXXXO\nOXXX\nXXOX",
            "OO\nOO",
            ". Q x .\n. . . Q\nQ . . .\n. . Q .",
            ".Q..\nand then\n...Q\nQ...\n..Q.",
            "0Q00\n000Q\nQ000\n00Q0",
            "Q . . .",
            "Q...\n...Q",
            "[1, 3, 0, 2",
            "1 3 0 2]",
            "1q2/3k/q3/2q1",
            "1q2/3q/q3",
            "1q2/3q/q3/2q1 moves",
            "1 3 0 2 b4",
            "1.5 2",
            "a1 b7 c5 d8\ne2 f4 g6 h3",
            "1 3 0 2\n\n.Q..\n...Q\nQ...\n..Q.",
            "[True, False]\n[False, True]",
            "{\"row\": 0, \"col\": 1}",
            "-*--\n---*\n*---\n--*-",
            "----",
            "0 0",
            "1\n1",
            "\u{2654}",
            "Q,K\nK,Q",
            "one three zero two",
            "-1 2",
            "1-3-0-2",
            "Q1 Q2",
            "1e3 2",
            "0x1 0x3 0x0 0x2",
        ] {
            assert!(read(text).is_err(), "{text}: {}", verdicts(text));
        }
    }
}
