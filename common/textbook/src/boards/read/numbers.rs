//! Boards as columns, pairs, squares and FEN ranks.

use super::{
    Diagram, Reading, RowOfSquares, Unreadable,
    layout::{Row, blocks},
};

/// Reads a board per row: `1 3 0 2`, `[1, 3, 0, 2]` or `2413`.
pub(super) fn columns(text: &str) -> Reading {
    let rows = blocks(text)?.concat();
    let boards: Vec<_> = rows.iter().map(columns_of).collect::<Option<_>>()?;
    // Several such numbers are a part of a matrix.
    let of_matrix = |columns: &Vec<u64>| columns.len() > 1 && columns.iter().all(|&c| c < 2);
    if boards.iter().any(of_matrix) { None } else { boards_of_columns(&boards) }
}

/// Reads a column per line, with an empty line between boards.
pub(super) fn column_per_line(text: &str) -> Reading {
    let blocks = blocks(text)?;
    let column = |row: &Row| match row.words.as_slice() {
        [word] => word.parse().ok(),
        _ => None,
    };
    let board = |block: &Vec<Row>| block.iter().map(column).collect::<Option<Vec<u64>>>();
    let boards: Vec<_> = blocks.iter().map(board).collect::<Option<_>>()?;
    boards.iter().any(|columns| columns.len() > 1).then(|| boards_of_columns(&boards))?
}

fn columns_of(row: &Row) -> Option<Vec<u64>> {
    match row.words.as_slice() {
        [word] if (2..=10).contains(&word.len()) => {
            word.chars().map(|c| c.to_digit(10).map(u64::from)).collect()
        }
        words => words.iter().map(|word| word.parse().ok()).collect(),
    }
}

fn boards_of_columns(boards: &[Vec<u64>]) -> Reading {
    if boards.is_empty() {
        return None;
    }
    let base = base(boards.iter().flatten());
    let board = |columns: &Vec<u64>| {
        let squares = columns.iter().enumerate();
        one_board(squares.map(|(row, &column)| (row as u64 + base, column)).collect(), base)
    };
    Some(boards.iter().map(board).collect())
}

/// Reads a pair of numbers per line or pair of brackets, with a board per block.
pub(super) fn pairs(text: &str) -> Reading {
    let blocks = blocks(text)?;
    let pair = |row: &Row| match row.words.as_slice() {
        [row, column] => Some((row.parse().ok()?, column.parse().ok()?)),
        _ => None,
    };
    let board = |block: &Vec<Row>| block.iter().map(pair).collect::<Option<Vec<(u64, u64)>>>();
    let boards: Vec<_> = blocks.iter().map(board).collect::<Option<_>>()?;
    if boards.iter().all(|board| board.len() < 2) {
        return None;
    }
    let base = base(boards.iter().flatten().flat_map(|(row, column)| [row, column]));
    Some(boards.into_iter().map(|board| one_board(board, base)).collect())
}

/// Reads names of squares: a board per row, or per block with one square per line.
pub(super) fn squares(text: &str) -> Reading {
    let mut boards = Vec::new();
    for block in blocks(text)? {
        let square = |word: &String| square_of(word);
        let rows = block.iter().map(|row| row.words.iter().map(square).collect::<Option<Vec<_>>>());
        let rows: Vec<_> = rows.collect::<Option<_>>()?;
        match rows.iter().all(|row| row.len() == 1) {
            true => boards.push(rows.concat()),
            false => boards.extend(rows),
        }
    }
    let boards = boards.into_iter().map(|board| one_board(board, 1));
    (boards.len() > 0).then(|| boards.collect())
}

/// Parses a square such as `b3` or `Qb3` into row and column, from 1.
fn square_of(word: &str) -> Option<(u64, u64)> {
    let piece =
        word.strip_prefix('Q').filter(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()));
    let name = piece.unwrap_or(word);
    let digits = name.find(|c: char| c.is_ascii_digit()).filter(|&letters| letters <= 4)?;
    let column = name[..digits].chars().try_fold(0, |column, c| {
        c.is_ascii_alphabetic()
            .then(|| c.to_digit(36))
            .flatten()
            .map(|c| column * 26 + u64::from(c) - 9)
    });
    let row: u64 = name[digits..].parse().ok().filter(|&row| row > 0)?;
    Some((row, column.filter(|&column| column > 0)?))
}

/// Returns the board of as many rows as there are queens, which are counted from `base`.
fn one_board(queens: Vec<(u64, u64)>, base: u64) -> Result<Diagram, Unreadable> {
    let n = queens.len();
    let last = n as u64 - 1 + base;
    let valid = |value: &u64| (base..=last).contains(value);
    let outside = queens.iter().flat_map(|&(row, column)| [row, column]).find(|v| !valid(v));
    if let Some(value) = outside {
        return Err(Unreadable::Column { value, n });
    }
    // Columns in the first half only may be those of several smaller boards, or pairs.
    if n > 3 && queens.iter().all(|(_, column)| (column - base) < n as u64 / 2) {
        return Err(Unreadable::Ambiguous {
            first: "one board with free columns on the right",
            second: "several smaller boards or pairs",
        });
    }
    let index = |value: u64| usize::try_from(value - base).unwrap_or(usize::MAX);
    Ok(Diagram::new(n, queens.into_iter().map(|(row, column)| (index(row), index(column)))))
}

fn base<'a>(mut numbers: impl Iterator<Item = &'a u64>) -> u64 {
    u64::from(!numbers.any(|&number| number == 0))
}

/// Reads a board per line, in the notation of chess positions.
pub(super) fn fen(text: &str) -> Reading {
    let mut boards = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.trim_matches(|c: char| c.is_whitespace() || ",;\"\'`[]".contains(c));
        let mut words = text.split_whitespace();
        let Some(ranks) = words.next() else { continue };
        // The side to move, castling, en passant, and two counters.
        let others: Vec<_> = words.collect();
        let is_known = match others.as_slice() {
            [] => true,
            [side, .., half, moves] => {
                ["w", "b"].contains(side)
                    && others.len() == 5
                    && [half, moves].iter().all(|count| count.parse::<u32>().is_ok())
            }
            _ => false,
        };
        if !ranks.contains('/') || !is_known {
            return None;
        }
        let both = ranks.contains('q') && ranks.contains('Q');
        let rows = ranks.split('/').map(|rank| rank_of(rank).filter(|_| !both));
        let rows: Vec<_> = rows.collect::<Option<_>>()?;
        let rows: Vec<_> = rows.into_iter().map(|squares| RowOfSquares { line, squares }).collect();
        boards.push(Diagram::of_rows(&rows));
    }
    (!boards.is_empty()).then(|| boards.into_iter().collect())
}

/// Returns the squares of a rank such as `2q1`.
fn rank_of(rank: &str) -> Option<Vec<bool>> {
    /// More than any board that fits on a line.
    const MAX_FREE: usize = 1 << 12;
    let mut squares = Vec::new();
    let mut rest = rank;
    while let Some(first) = rest.chars().next() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        if digits > 0 {
            let free = rest[..digits].parse().ok().filter(|free| (1..=MAX_FREE).contains(free))?;
            squares.resize(squares.len() + free, false);
            rest = &rest[digits..];
        } else if matches!(first, 'q' | 'Q') {
            squares.push(true);
            rest = &rest[1..];
        } else {
            return None;
        }
    }
    Some(squares)
}
