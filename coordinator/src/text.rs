//! Words, numbers and tables for people.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
};

use common::method::Layout;
use worker::terminal::aside;

/// Writes lines to stderr. Nobody may be listening there any more, which is no reason to end.
pub fn tell(text: &str) {
    aside(|| {
        let _ = writeln!(io::stderr(), "{text}");
    });
}

/// Writes a sentence to stderr, broken at spaces where a terminal would break it in words.
pub fn tell_prose(text: &str) {
    let size = console::Term::stderr().size_checked();
    tell(&prose(text, size.map(|(_, columns)| usize::from(columns))));
}

/// Sentences for a terminal of so many columns; as they are where it is none.
pub fn prose(text: &str, width: Option<usize>) -> String {
    let Some(width) = width else {
        return text.to_owned();
    };
    let lines = text.split('\n').flat_map(|line| wrapped(line, width));
    lines.collect::<Vec<_>>().join("\n")
}

/// "1 task", "2 tasks", "1,683 tasks".
pub fn plural(number: impl TryInto<u128>, noun: &str) -> String {
    let number = number.try_into().unwrap_or(u128::MAX);
    let s = if number == 1 { "" } else { "s" };
    format!("{} {noun}{s}", thousands(number))
}

/// The method's name; with the layout where that is not the method's usual one.
pub fn method_name(layout: Layout) -> String {
    let method = layout.method();
    if layout == method.usual_layout() {
        method.to_string()
    } else {
        format!("{method} ({layout})")
    }
}

/// `number` in groups of three digits: 14,772,512.
pub fn thousands(number: u128) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A part of a whole, 0 to 1, rounded down, so that only all of it is 100 %: "48.85 %". Of less than a
/// hundredth of a percent the first two digits: "0.000048 %" is one task of N = 28.
pub fn percent(part: f64) -> String {
    let percent = part.clamp(0.0, 1.0) * 100.0;
    let digits = (2..9)
        .find(|&digits| {
            percent
                >= if digits == 2 {
                    0.01
                } else {
                    10f64.powi(1 - digits)
                }
        })
        .unwrap_or(2);
    let steps = 10f64.powi(digits);
    // A whole number of steps may come out a little less than it is.
    let whole = (percent * steps + 1e-6).floor() / steps;
    format!("{whole:.*} %", digits.unsigned_abs() as usize)
}

/// A time span: "1.2 s", "3 min 20 s", "5 h 12 min", "4 d 6 h".
pub fn span(seconds: f64) -> String {
    // A span that no display needs exactly; `as` saturates, and NaN becomes 0.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let whole = seconds.round() as u64;
    let (days, hours, minutes) = (whole / 86_400, whole / 3600 % 24, whole / 60 % 60);
    match whole {
        0..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{minutes} min {} s", whole % 60),
        3600..86_400 => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

/// A time that went by, in its largest unit: "3 s", "5 min", "7 h", "4 d".
pub fn age(seconds: f64) -> String {
    // As in `span`.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let whole = seconds.round() as u64;
    match whole {
        0..60 => format!("{whole} s"),
        60..3600 => format!("{} min", whole / 60),
        3600..86_400 => format!("{} h", whole / 3600),
        _ => format!("{} d", whole / 86_400),
    }
}

/// A day, in UTC, of milliseconds since 1970.
pub fn date(unix_ms: u64) -> String {
    let seconds = i64::try_from(unix_ms / 1000).unwrap_or(i64::MAX);
    match time::OffsetDateTime::from_unix_timestamp(seconds) {
        Ok(time) => time.date().to_string(),
        Err(_) => "never".to_owned(),
    }
}

/// A time of day in UTC, with its date.
pub fn moment(unix_ms: u64) -> String {
    let seconds = i64::try_from(unix_ms / 1000).unwrap_or(i64::MAX);
    match time::OffsetDateTime::from_unix_timestamp(seconds) {
        Ok(at) => format!("{} {:02}:{:02} UTC", at.date(), at.hour(), at.minute()),
        Err(_) => "never".to_owned(),
    }
}

/// What fits a terminal that nobody made wider.
pub const WIDTH: usize = 80;

/// The columns of the terminal that stdout is; `None` where it is none.
pub fn stdout_width() -> Option<usize> {
    let size = console::Term::stdout().size_checked();
    size.map(|(_, columns)| usize::from(columns))
}

/// `text` after a label, its lines broken at spaces within [`WIDTH`] and indented under its first.
pub fn labelled(label: &str, text: &str) -> String {
    const INDENT: usize = 11;
    let lines = wrapped(text, WIDTH - INDENT);
    format!(
        "{label:<INDENT$}{}",
        lines.join(&format!("\n{:INDENT$}", ""))
    )
}

/// The lines of `text`, broken at spaces within `width`; a word that is longer stays whole.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut column = 0;
    for (place, word) in text.split(' ').enumerate() {
        let length = word.chars().count();
        let line = lines.last_mut().expect("there is always one");
        if place > 0 && column + 1 + length > width {
            lines.push(word.to_owned());
            column = length;
            continue;
        }
        if place > 0 {
            line.push(' ');
            column += 1;
        }
        line.push_str(word);
        column += length;
    }
    lines
}

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    head: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Words,
    /// Words that may be shortened, but not below this many characters.
    Name(usize),
    Numbers,
}

impl Column {
    /// A column of words.
    pub const fn words(head: &'static str) -> Self {
        let kind = Kind::Words;
        Self { head, kind }
    }

    /// A column of names, which may be shortened to eight characters.
    pub const fn name(head: &'static str) -> Self {
        let kind = Kind::Name(8);
        Self { head, kind }
    }

    /// A column of numbers, which end below each other.
    pub const fn numbers(head: &'static str) -> Self {
        let kind = Kind::Numbers;
        Self { head, kind }
    }
}

/// Columns under their headings, two spaces apart, numbers to the right; names are shortened where
/// the table would be wider than `width`. The last line has no line end.
pub fn table(columns: &[Column], rows: &[Vec<String>], width: Option<usize>) -> String {
    let heads: Vec<String> = columns
        .iter()
        .map(|column| column.head.to_owned())
        .collect();
    let mut widths = vec![0; columns.len()];
    for row in std::iter::once(&heads).chain(rows) {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let whole = widths.iter().sum::<usize>() + 2 * columns.len().saturating_sub(1);
    let too_wide = width.map_or(0, |width| whole.saturating_sub(width));
    for (column, width) in columns.iter().zip(&mut widths) {
        if let Kind::Name(least) = column.kind {
            *width = width.saturating_sub(too_wide).max(least.min(*width));
        }
    }
    let mut text = String::new();
    for row in std::iter::once(&heads).chain(rows) {
        let mut line = String::new();
        for ((column, cell), &width) in columns.iter().zip(row).zip(&widths) {
            let cell = shortened(cell, width);
            match column.kind {
                Kind::Words | Kind::Name(_) => write!(line, "{cell:<width$}  "),
                Kind::Numbers => write!(line, "{cell:>width$}  "),
            }
            .expect("writing to a string cannot fail");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text.pop();
    text
}

/// At most `most` characters: what is left out of the middle is marked, for numbered names differ at
/// their ends.
pub fn shortened(text: &str, most: usize) -> String {
    let length = text.chars().count();
    if length <= most {
        return text.to_owned();
    }
    let kept = most.saturating_sub(1);
    let (first, last) = (kept / 2, kept - kept / 2);
    let start = text.chars().take(first);
    let end = text.chars().skip(length - last);
    start.chain(['…']).chain(end).collect()
}

/// An error with its causes, except for those that it names itself.
pub fn one_line(error: &anyhow::Error) -> String {
    let mut line = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_from_the_right() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (14_772_512, "14,772,512"),
            (234_907_967_154_122_528, "234,907,967,154,122,528"),
        ] {
            assert_eq!(thousands(number), text);
        }
    }

    #[test]
    fn percents_show_that_something_is_done_and_never_more_than_that() {
        for (part, words) in [
            (0.0, "0.00 %"),
            (1.0 / 2_074_046.0, "0.000048 %"),
            (1e-30, "0.00 %"),
            (0.000_1, "0.01 %"),
            (0.000_099_99, "0.0099 %"),
            (0.000_012, "0.0012 %"),
            (0.07, "7.00 %"),
            (0.488_57, "48.85 %"),
            (0.57, "57.00 %"),
            (2_074_045.0 / 2_074_046.0, "99.99 %"),
            (1.0, "100.00 %"),
        ] {
            assert_eq!(percent(part), words, "{part}");
        }
    }

    #[test]
    fn numbers_agree_with_their_nouns() {
        for (number, text) in [(0, "0 tasks"), (1, "1 task"), (1683, "1,683 tasks")] {
            assert_eq!(plural(number, "task"), text);
        }
        assert_eq!(method_name(Layout::Border), "rows");
        assert_eq!(method_name(Layout::FirstRows), "rows (first-rows)");
        assert_eq!(method_name(Layout::Frames), "frames");
    }

    #[test]
    fn spans_name_their_two_largest_units() {
        for (seconds, text) in [
            (1.24, "1.2 s"),
            (59.4, "59.4 s"),
            (200.0, "3 min 20 s"),
            (18_720.0, "5 h 12 min"),
            (367_200.0, "4 d 6 h"),
        ] {
            assert_eq!(span(seconds), text);
        }
    }

    #[test]
    fn ages_name_their_largest_unit() {
        for (seconds, text) in [(0.2, "0 s"), (59.0, "59 s"), (200.0, "3 min"), (1e5, "1 d")] {
            assert_eq!(age(seconds), text);
        }
    }

    #[test]
    fn tables_align() {
        let rows = [
            vec!["a".to_owned(), "10".to_owned()],
            vec!["long".to_owned(), "2".to_owned()],
        ];
        let columns = [Column::words("name"), Column::numbers("n")];
        assert_eq!(table(&columns, &rows, None), "name   n\na     10\nlong   2");
    }

    #[test]
    fn names_give_way_where_a_table_is_too_wide() {
        let row = |name: &str| vec![name.to_owned(), "1".to_owned()];
        let rows = [row("rack-07-node-0012"), row("rack-07-node-0013")];
        let columns = [Column::name("NAME"), Column::numbers("DONE")];
        let lines = |width| table(&columns, &rows, width);
        assert!(lines(None).contains("rack-07-node-0012     1"));
        assert!(lines(Some(40)).contains("rack-07-node-0012     1"));
        let narrow = lines(Some(18));
        assert_eq!(
            narrow,
            "NAME          DONE\nrack-…e-0012     1\nrack-…e-0013     1"
        );
        assert!(lines(Some(1)).contains("rac…0012"));
    }

    #[test]
    fn sentences_are_broken_where_a_terminal_ends_and_nowhere_else() {
        let text = "\none two three\nfour\n";
        assert_eq!(prose(text, None), text);
        assert_eq!(prose(text, Some(80)), text);
        assert_eq!(prose(text, Some(8)), "\none two\nthree\nfour\n");
    }

    #[test]
    fn long_texts_are_broken_under_their_label() {
        assert_eq!(
            labelled("waiting:", "for a worker"),
            "waiting:   for a worker"
        );
        let text = labelled("tasks:", &"1234567 ".repeat(20));
        assert!(text.lines().count() > 1);
        for (place, line) in text.lines().enumerate() {
            assert!(line.chars().count() <= WIDTH, "{line}");
            let start = if place == 0 {
                "tasks:     1"
            } else {
                "           1"
            };
            assert!(line.starts_with(start), "{line}");
        }
    }
}
