//! Boards as text.

use std::fmt::Write as _;

use super::solution::Solution;

/// A text format of boards; most formats come from documents about the puzzle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// `. Q . .`
    #[default]
    Dots,
    /// With a frame and numbers: the figures of M. Hiroi's article (2022).
    Numbered,
    /// In boxes of `+-+`.
    Boxed,
    /// Number, columns and boxed picture of the programs of I. Suzuki's article.
    ///
    /// As in those programs, the picture is transposed: it shows a different solution.
    Record,
    /// Number, files a to h and ranks: the program of the textbook program with `next_permutation`.
    Chess,
    /// `._.q._._`, the programs of the textbook article with list comprehensions.
    Cells,
    /// The columns, from 0.
    Line,
}

impl Style {
    pub const ALL: [Self; 7] = [
        Self::Dots,
        Self::Numbered,
        Self::Boxed,
        Self::Record,
        Self::Chess,
        Self::Cells,
        Self::Line,
    ];

    /// Draws the board, with its number if the style has one; no final line break.
    pub fn draw(self, solution: &Solution, number: u64) -> String {
        let n = solution.n();
        let mut text = match self {
            Self::Dots => rows(solution, |_, row| separated(row, "Q", ".")),
            Self::Numbered => numbered(solution),
            Self::Boxed => boxed(solution, "Q"),
            Self::Record => {
                let line = Self::Line.draw(solution, number);
                format!("{number}\n {line} \n{}", boxed(&solution.images()[7], "O"))
            }
            Self::Chess => {
                let files: Vec<_> = (0..n).map(file).collect();
                let head = format!("solution No.{number}\n{}\n", files.join(" "));
                head + &rows(solution, |at, row| format!("{} {}", separated(row, "q", "."), at + 1))
            }
            Self::Cells => rows(solution, |_, row| {
                row.iter().map(|&queen| if queen { ".q" } else { "._" }).collect()
            }),
            Self::Line => {
                let columns: Vec<_> = solution.columns().iter().map(u32::to_string).collect();
                columns.join(" ")
            }
        };
        text.truncate(text.trim_end_matches('\n').len());
        text
    }

    /// Returns whether boards are separated by an empty line.
    pub const fn is_picture(self) -> bool {
        !matches!(self, Self::Line)
    }
}

common::named!(
    Style,
    "style",
    name,
    Dots = "dots",
    Numbered = "numbered",
    Boxed = "boxed",
    Record = "record",
    Chess = "chess",
    Cells = "cells",
    Line = "line",
);

/// Formats a line per row, from its number and squares.
fn rows(solution: &Solution, line: impl Fn(u32, &[bool]) -> String) -> String {
    let mut text = String::new();
    for (at, &queen) in (0..).zip(solution.columns()) {
        let row: Vec<bool> = (0..solution.n()).map(|column| column == queen).collect();
        text += &line(at, &row);
        text.push('\n');
    }
    text
}

fn separated(row: &[bool], queen: &str, free: &str) -> String {
    let squares: Vec<_> = row.iter().map(|&q| if q { queen } else { free }).collect();
    squares.join(" ")
}

fn numbered(solution: &Solution) -> String {
    let n = solution.n() as usize;
    let width = n.to_string().len();
    let head: String = (1..=n).map(|column| format!(" {column:>width$}")).collect();
    let frame = format!("{:width$} *{}*\n", "", "-".repeat(n * (width + 1) + 1));
    let body = rows(solution, |at, row| {
        let squares = row.iter().map(|&queen| if queen { "Q" } else { "." });
        let squares: String = squares.map(|square| format!(" {square:>width$}")).collect();
        format!("{:>width$} |{squares} |", at + 1)
    });
    format!("{:width$}  {head}\n{frame}{body}{frame}", "")
}

fn boxed(solution: &Solution, queen: &str) -> String {
    let frame = format!("{}+\n", "+-".repeat(solution.n() as usize));
    let body = rows(solution, |_, row| {
        let squares = row.iter().map(|&q| if q { queen } else { " " });
        let squares: String = squares.map(|square| format!("|{square}")).collect();
        format!("{squares}|\n{}", frame.trim_end())
    });
    frame + &body
}

/// Returns the letters of a column: a to z, then aa, ab, …
fn file(column: u32) -> String {
    let letter = |at: u32| char::from_digit(at % 26 + 10, 36).expect("26 letters");
    match column {
        0..26 => letter(column).to_string(),
        _ => format!("{}{}", file(column / 26 - 1), letter(column)),
    }
}

/// Draws the numbers of the diagonals, as in M. Hiroi's article (2022).
///
/// Draws the figure with the numbers at the edges, the tables of all squares, and an example of
/// shifted masks; `x` is the row and `y` the column.
pub fn diagonals(n: u32) -> String {
    let n = i64::from(n);
    let mut text = String::new();
    let width = (2 * n - 2).to_string().len().max(2) + 1;
    let mut line = |line: &str| {
        text += line.trim_end();
        text.push('\n');
    };
    let edge = usize::try_from(2 * n + 1).unwrap_or(0);
    let heads: String = (0..n).map(|y| format!(" {}", y % 10)).collect();
    let frame = format!("*{}*", "-".repeat(edge));
    line(&format!("{:5}{heads}{:14}{heads}", "", ""));
    line(&format!("{:4} {frame}{:12}{frame}", "", ""));
    for row in 0..n {
        let rising = if row + 1 < n { (n + row).to_string() } else { String::new() };
        let falling = if row + 1 < n { (-1 - row).to_string() } else { String::new() };
        let (up, down) = (" /".repeat(heads.len() / 2), " \\".repeat(heads.len() / 2));
        line(&format!("{:4} |{up} | {rising:<6}{falling:>4} |{down} |", ""));
    }
    line(&format!("{:4} {frame}{:12}{frame}", "", ""));
    line(&format!("{:4}  {:<edge$}{:14}{}", "", "x + y = constant", "", "x - y = constant"));
    for (head, number) in
        [("x + y", (|x: i64, y: i64| x + y) as fn(i64, i64) -> i64), ("x - y", |x, y| x - y)]
    {
        let heads: String = (0..n).map(|y| format!("{y:>width$}")).collect();
        line("");
        line(&format!("{head} |{heads}"));
        line(&format!("{}+{}", "-".repeat(6), "-".repeat(heads.len())));
        for x in 0..n {
            let numbers: String = (0..n).map(|y| format!("{:>width$}", number(x, y))).collect();
            line(&format!("{x:>5} |{numbers}"));
        }
    }
    shifts(n, &mut line);
    text
}

/// Draws the rows that a queen's diagonals pass through, as bits of shifted masks.
fn shifts(n: i64, line: &mut dyn FnMut(&str)) {
    let queen = n / 2;
    line("");
    line(&format!("masks of the queen in row {queen} of column 0, shifted from column to column:"));
    for row in 0..n {
        let distance = (row - queen).abs();
        let mut squares = vec!["  .".to_owned(); usize::try_from(n).unwrap_or(0)];
        if let Some(square) = usize::try_from(distance).ok().and_then(|at| squares.get_mut(at)) {
            *square = match row.cmp(&queen) {
                std::cmp::Ordering::Less => format!("{:>3}", -distance),
                std::cmp::Ordering::Equal => "  Q".to_owned(),
                std::cmp::Ordering::Greater => format!("{:>3}", format!("+{distance}")),
            };
        }
        let mut note = format!("0x{:02x}", 1u64 << row);
        match row - queen {
            -1 => note += "  (shifted right by one bit)",
            0 => {
                write!(note, "  (the queen, bit {queen})").expect("writing to a string cannot fail")
            }
            1 => note += "  (shifted left by one bit)",
            _ => {}
        }
        line(&format!("{row:>5} |{} {note}", squares.concat()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boards::Solutions;
    use common::board::Board;

    fn kth(n: u8, k: usize) -> Solution {
        Solutions::new(Board::new(n).unwrap()).nth(k).unwrap()
    }

    #[test]
    fn chess_and_cells_match_the_documents() {
        let expected = "solution No.92\na b c d e f g h\n. . . . . . . q 1\n. . . q . . . . 2\nq . . . . . . . 3\n. . q . . . . . 4\n. . . . . q . . 5\n. q . . . . . . 6\n. . . . . . q . 7\n. . . . q . . . 8";
        assert_eq!(Style::Chess.draw(&kth(8, 91), 92), expected);
        let expected = "._.q._._\n._._._.q\n.q._._._\n._._.q._";
        assert_eq!(Style::Cells.draw(&kth(4, 0), 1), expected);
    }

    #[test]
    fn diagonals_have_the_numbers_of_the_figure() {
        let text = diagonals(8);
        for line in [
            "      0 1 2 3 4 5 6 7               0 1 2 3 4 5 6 7",
            "     | / / / / / / / / | 8       -1 | \\ \\ \\ \\ \\ \\ \\ \\ |",
            "     | / / / / / / / / | 14      -7 | \\ \\ \\ \\ \\ \\ \\ \\ |",
            "    7 |  7  8  9 10 11 12 13 14",
            "    7 |  7  6  5  4  3  2  1  0",
            "    3 |  . -1  .  .  .  .  .  . 0x08  (shifted right by one bit)",
            "    7 |  .  .  . +3  .  .  .  . 0x80",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
