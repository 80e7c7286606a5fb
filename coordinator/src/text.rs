//! Words, numbers and tables for people.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
};

use common::method::Layout;

/// Writes lines to stderr. Nobody may be listening there any more, which is no reason to end.
pub(crate) fn tell(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// "1 task", "2 tasks", "1,683 tasks".
pub(crate) fn plural(number: impl TryInto<u128>, noun: &str) -> String {
    let number = number.try_into().unwrap_or(u128::MAX);
    let s = if number == 1 { "" } else { "s" };
    format!("{} {noun}{s}", thousands(number))
}

/// "method frames"; with the layout where it is not the method's usual one.
pub(crate) fn method_text(layout: Layout) -> String {
    let method = layout.method();
    if layout == method.usual_layout() {
        format!("method {method}")
    } else {
        format!("method {method}, {layout}")
    }
}

/// `number` in groups of three digits: 14,772,512.
pub(crate) fn thousands(number: u128) -> String {
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

/// A time span: "1.2 s", "3 min 20 s", "5 h 12 min", "4 d 6 h".
pub(crate) fn span(seconds: f64) -> String {
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

/// Columns aligned under their headings, two spaces apart; the last line has no line end.
pub(crate) fn table(heads: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = heads.iter().map(|head| head.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let heads: Vec<String> = heads.iter().map(|&head| head.to_owned()).collect();
    let mut text = String::new();
    for row in std::iter::once(&heads).chain(rows) {
        let mut line = String::new();
        for (cell, &width) in row.iter().zip(&widths) {
            write!(line, "{cell:<width$}  ").expect("writing to a string cannot fail");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text.pop();
    text
}

/// An error with its causes, except for those that it names itself.
pub(crate) fn one_line(error: &anyhow::Error) -> String {
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
    fn numbers_agree_with_their_nouns() {
        for (number, text) in [(0, "0 tasks"), (1, "1 task"), (1683, "1,683 tasks")] {
            assert_eq!(plural(number, "task"), text);
        }
        assert_eq!(method_text(Layout::Border), "method rows");
        assert_eq!(method_text(Layout::FirstRows), "method rows, first-rows");
        assert_eq!(method_text(Layout::Frames), "method frames");
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
    fn tables_align() {
        let rows = [
            vec!["a".to_owned(), "10".to_owned()],
            vec!["long".to_owned(), "2".to_owned()],
        ];
        assert_eq!(table(&["name", "n"], &rows), "name  n\na     10\nlong  2");
    }
}
