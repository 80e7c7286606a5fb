//! Boards as rows of marks.

use super::{
    Diagram, Reading, RowOfSquares, Unreadable,
    layout::{Block, Row, blocks},
};

/// Marks of a queen; those in the second text may also be free squares or frames.
const QUEENS: [&str; 2] = ["Qq♛♕", "OoXx*"];

/// Marks of a free square; a space stands for an empty cell between bars.
const FREE: &str = "._·- ";

/// Reads rows with a mark per square, such as `. Q . .`; rows may be separated by `/`.
pub(super) fn marks(text: &str) -> Reading {
    let text = match text.contains('/') {
        true => text.replace('\n', "\n\n").replace('/', "\n"),
        false => text.to_owned(),
    };
    let blocks = blocks(&text)?;
    let dashes = |word: &String| word.contains('-') && !is_frame_word(word);
    let with_dashes = blocks.iter().flatten().any(|row| row.words.iter().any(dashes));
    let is_frame = |row: &Row| {
        !with_dashes
            && row.words.iter().all(|word| is_frame_word(word))
            && row.words.iter().any(|word| word.contains(['-', '=', '+']))
    };
    let mut pictures = Vec::new();
    for block in blocks {
        let rows: Vec<_> = block.into_iter().filter(|row| !is_frame(row)).collect();
        match picture(&rows)? {
            Ok(rows) if rows.is_empty() => {}
            Ok(rows) => pictures.push(rows),
            Err(error) => return Some(Err(error)),
        }
    }
    boards(pictures, &QUEENS.concat())
}

/// Reads rows of 0 and 1.
pub(super) fn matrix(text: &str) -> Reading {
    let blocks = blocks(&text.replace('/', "\n"))?;
    let is_digit = |c: char| matches!(c, '0' | '1' | '|');
    let words = || blocks.iter().flatten().flat_map(|row| &row.words);
    if !words().all(|word| word.chars().all(is_digit)) {
        return None;
    }
    let squares = |mut row: Row| {
        row.words.retain(|word| word != "|");
        let marks = row.words.iter().map(|word| word.chars().collect()).collect();
        RowOfMarks { line: row.line, bracketed: row.bracketed, words: marks }
    };
    let rows = |block: Block| block.into_iter().map(squares).collect();
    let pictures: Vec<Vec<_>> = blocks.into_iter().map(rows).collect();
    // A single digit is a column.
    let is_one = pictures.iter().flatten().all(|row| row.len() == 1);
    if is_one { None } else { boards(pictures, "1") }
}

fn is_frame_word(word: &str) -> bool {
    word.chars().all(|c| "+-*=|".contains(c))
}

/// A line of marks, in words.
struct RowOfMarks {
    line: usize,
    bracketed: bool,
    words: Vec<Vec<char>>,
}

impl RowOfMarks {
    fn len(&self) -> usize {
        self.words.iter().map(Vec::len).sum()
    }

    fn squares(&self, queens: &str) -> Vec<bool> {
        self.words.iter().flatten().map(|&mark| queens.contains(mark)).collect()
    }
}

/// Returns the rows of marks of a block, without headings and labels.
fn picture(rows: &[Row]) -> Option<Result<Vec<RowOfMarks>, Unreadable>> {
    if let [row] = rows
        && let Some(rows) = rows_of_one_line(row)
    {
        return Some(Ok(rows));
    }
    let marks = rows.iter().map(marks_of).collect::<Vec<_>>();
    let first = marks.iter().position(Option::is_some)?;
    let last = marks.iter().rposition(Option::is_some)?;
    let is_label = |row: &Row| row.words.iter().all(|word| is_number(word)) || is_files(row);
    if !rows[..first].iter().all(|row| is_label(row) || is_title(row))
        || !rows[last + 1..].iter().all(is_label)
    {
        return bad_row(rows, &marks);
    }
    if marks[first..=last].iter().any(Option::is_none) {
        return bad_row(rows, &marks);
    }
    Some(Ok(marks.into_iter().flatten().collect()))
}

/// Names the first word that is not a mark, if most rows consist of marks.
fn bad_row(
    rows: &[Row],
    marks: &[Option<RowOfMarks>],
) -> Option<Result<Vec<RowOfMarks>, Unreadable>> {
    let known = marks.iter().flatten().count();
    let bad = marks.iter().position(Option::is_none)?;
    let words = &rows[bad].words;
    let found =
        words.iter().find(|word| *word != "|" && !is_number(word) && marks_of_word(word).is_none());
    let found = found.or(words.first())?.clone();
    let error = Unreadable::Mark { line: rows[bad].line, found };
    (known * 2 >= marks.len()).then_some(Err(error))
}

fn is_number(word: &str) -> bool {
    word.chars().all(|c| c.is_ascii_digit())
}

/// Returns whether a row is `a b c …`.
fn is_files(row: &Row) -> bool {
    let files = ('a'..='z').zip(&row.words);
    !row.words.is_empty()
        && files.clone().all(|(file, word)| word.to_lowercase() == file.to_string())
        || row.words.len() > 26 && files.skip(1).all(|(file, word)| *word == file.to_string())
}

/// Returns whether a row has a word, such as `solution No.1`.
fn is_title(row: &Row) -> bool {
    let is_word = |word: &String| {
        word.chars().filter(|c| c.is_alphabetic()).count() > 1 && marks_of_word(word).is_none()
    };
    !row.words.iter().any(|word| word == "|") && row.words.iter().any(is_word)
}

/// Returns the marks of a row, without its labels; `None` if it has other words.
fn marks_of(row: &Row) -> Option<RowOfMarks> {
    if is_files(row) {
        return None;
    }
    let mut words = row.words.as_slice();
    let bars: Vec<usize> = (0..words.len()).filter(|&at| words[at] == "|").collect();
    let labels = |words: &[String]| words.iter().all(|word| is_number(word));
    let mut inner = Vec::new();
    match bars[..] {
        [first, .., last] => {
            if !labels(&words[..first]) || !labels(&words[last + 1..]) {
                return None;
            }
            for cell in bars.windows(2).map(|bars| &words[bars[0] + 1..bars[1]]) {
                inner.push(match cell {
                    [] => vec![' '],
                    // All squares between two bars.
                    cell if bars.len() == 2 => {
                        inner =
                            cell.iter().map(|word| marks_of_word(word)).collect::<Option<_>>()?;
                        break;
                    }
                    [word] => marks_of_word(word).filter(|marks| marks.len() == 1)?,
                    _ => return None,
                });
            }
        }
        [bar] => {
            let (left, right) = (&words[..bar], &words[bar + 1..]);
            let words = if labels(left) {
                right
            } else if labels(right) {
                left
            } else {
                return None;
            };
            inner = words.iter().map(|word| marks_of_word(word)).collect::<Option<_>>()?;
        }
        [] => {
            if let [label, rest @ ..] = words
                && is_number(label)
            {
                words = rest;
            }
            if let [rest @ .., label] = words
                && is_number(label)
            {
                words = rest;
            }
            inner = words.iter().map(|word| marks_of_word(word)).collect::<Option<_>>()?;
        }
    }
    (!inner.is_empty()).then_some(RowOfMarks {
        line: row.line,
        bracketed: row.bracketed,
        words: inner,
    })
}

/// Returns the marks of one square, or of several without spaces.
fn marks_of_word(word: &str) -> Option<Vec<char>> {
    let marks: Vec<char> = word.chars().collect();
    let is_mark =
        |&mark: &char| FREE.contains(mark) || QUEENS.iter().any(|queens| queens.contains(mark));
    // In the style `cells` a dot precedes every square.
    let cells = marks.contains(&'_') && marks.iter().step_by(2).all(|&c| c == '.');
    let marks = marks.into_iter().skip(usize::from(cells)).step_by(if cells { 2 } else { 1 });
    let marks: Vec<char> = marks.collect();
    marks.iter().all(is_mark).then_some(marks)
}

/// Returns the rows of a numbered picture that is one line: labels and rows between bars alternate.
fn rows_of_one_line(row: &Row) -> Option<Vec<RowOfMarks>> {
    let parts: Vec<_> = row.words.split(|word| word == "|").collect();
    let rows = parts.iter().skip(1).step_by(2);
    let n = rows.len();
    if n < 2 || parts.len() != 2 * n + 1 {
        return None;
    }
    let row = |words: &&[String]| {
        let words = words.iter().map(|word| marks_of_word(word)).collect::<Option<Vec<_>>>()?;
        let row = RowOfMarks { line: row.line, bracketed: false, words };
        (row.len() == n).then_some(row)
    };
    rows.map(row).collect()
}

/// Returns the boards of pictures whose marks in `queens` are queens.
fn boards(mut pictures: Vec<Vec<RowOfMarks>>, queens: &str) -> Reading {
    if let Err(error) = check_marks(&pictures, queens)? {
        return Some(Err(error));
    }
    // Rows with an empty line between them.
    if pictures.iter().all(|rows| rows.len() == 1 && rows[0].len() == pictures.len()) {
        pictures = vec![pictures.into_iter().flatten().collect()];
    }
    let mut boards = Vec::new();
    for rows in pictures {
        let lines = rows.iter().map(|row| board_of_row(row, queens));
        match lines.collect::<Option<Vec<_>>>() {
            Some(lines) if rows.len() != rows[0].len() => boards.extend(lines.into_iter().map(Ok)),
            Some(_) if rows.len() > 1 => {
                return Some(Err(Unreadable::Ambiguous {
                    first: "one board",
                    second: "a board per line",
                }));
            }
            _ => {
                let squares = |row: &RowOfMarks| RowOfSquares {
                    line: row.line,
                    squares: row.squares(queens),
                };
                boards.push(Diagram::of_rows(&rows.iter().map(squares).collect::<Vec<_>>()));
            }
        }
    }
    Some(boards.into_iter().collect())
}

/// Returns the board of a single row that contains all squares, one after the other or in words.
fn board_of_row(row: &RowOfMarks, queens: &str) -> Option<Diagram> {
    let squares = row.squares(queens);
    let n = squares.len().isqrt();
    let in_words = row.words.len() == n && row.words.iter().all(|word| word.len() == n);
    // Without brackets, the squares may be the first row of a larger board.
    let complete = n > 3 && squares.iter().filter(|queen| **queen).count() == n;
    if n < 2 || squares.len() != n * n || !(complete || in_words && row.bracketed) {
        return None;
    }
    let rows: Vec<_> =
        squares.chunks(n).map(|row| RowOfSquares { line: 1, squares: row.to_vec() }).collect();
    Diagram::of_rows(&rows).ok()
}

/// Checks that all queens have one mark, and all free squares another.
fn check_marks(pictures: &[Vec<RowOfMarks>], queens: &str) -> Option<Result<(), Unreadable>> {
    let (mut queen, mut free) = (None, None);
    for row in pictures.iter().flatten() {
        for &mark in row.words.iter().flatten() {
            let known = if queens.contains(mark) { &mut queen } else { &mut free };
            if *known.get_or_insert(mark) != mark {
                return Some(Err(Unreadable::Mark { line: row.line, found: mark.to_string() }));
            }
        }
    }
    match (queen, free) {
        (None, None) => None,
        // Without free squares, the mark of a queen must be known; a record has O.
        (Some(queen), None)
            if QUEENS[1].contains(queen)
                && (queen != 'O' || pictures.iter().flatten().count() > 1) =>
        {
            None
        }
        // These may be frames.
        (Some('*'), Some('-')) | (None, Some('-' | ' ')) => None,
        _ => Some(Ok(())),
    }
}
