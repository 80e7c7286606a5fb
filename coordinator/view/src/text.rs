//! Numbers, times, sentences and tables as text.

use common::messages::run::RunId;

pub use cli::{
    date::{date, minute, moment},
    terminal::eprint_line,
};
pub use common::text::{
    WIDTH, abbreviated, age, between, check_name, check_outcome, check_text, durations, estimated,
    labeled, method_name, percent, plural, rough, shortened, span, thousands, wrapped,
};

/// Writes text to stderr, broken at spaces within the terminal's width.
pub fn eprint_wrapped(text: &str) {
    let size = console::Term::stderr().size_checked();
    eprint_line(&prose(text, size.map(|(_, columns)| usize::from(columns))));
}

/// Breaks the lines of `text` at spaces within `width`, if it is known.
pub fn prose(text: &str, width: Option<usize>) -> String {
    let Some(width) = width else {
        return text.to_owned();
    };
    let lines = text.split('\n').flat_map(|line| wrapped(line, width));
    lines.collect::<Vec<_>>().join("\n")
}

/// Formats the message about a cancelled run, with the operator's name if known.
pub fn cancelled(run: RunId, by: Option<&str>) -> String {
    match by {
        None | Some("") => format!("run {run} was cancelled"),
        Some(by) => format!("run {run} was cancelled by {by}"),
    }
}

/// Formats the number of disputed tasks, of which a message lists at most 100.
pub fn disputed_number(listed: &[u64]) -> String {
    match listed.len() {
        100.. => "100 or more tasks".to_owned(),
        number => plural(number, "task"),
    }
}

/// Lists the first three names and the number of the others.
pub fn some_of(names: &[&str], number: u64) -> String {
    let shown = &names[..names.len().min(3)];
    match (number.saturating_sub(shown.len() as u64), shown) {
        (0, [most @ .., last]) if !most.is_empty() => format!("{} and {last}", most.join(", ")),
        (0, _) => shown.concat(),
        (more, []) => format!("(not listed): {}", thousands(more.into())),
        (more, _) => format!("{} and {} more", shown.join(", "), thousands(more.into())),
    }
}

/// Formats a time span in its largest unit; a short one with a decimal.
pub fn brief(seconds: f64) -> String {
    match seconds {
        0.05..9.95 => format!("{seconds:.1} s"),
        _ => age(seconds),
    }
}

/// Returns the width of the terminal on stdout; `None` if stdout is not a terminal.
pub fn stdout_width() -> Option<usize> {
    let size = console::Term::stdout().size_checked();
    size.map(|(_, columns)| usize::from(columns))
}

#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// The heading in sentence case, as pages show it.
    pub head: &'static str,
    kind: Kind,
    is_optional: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Words,
    /// Can be shortened to [`MIN_NAME`].
    Name,
    /// Aligned to the right.
    Numbers,
}

/// Minimum length of a shortened name, in characters.
const MIN_NAME: usize = 8;

impl Column {
    const fn new(head: &'static str, kind: Kind) -> Self {
        Self { head, kind, is_optional: false }
    }

    pub const fn words(head: &'static str) -> Self {
        Self::new(head, Kind::Words)
    }

    /// Creates a column of names, shortened in the middle if the table is too wide.
    pub const fn name(head: &'static str) -> Self {
        Self::new(head, Kind::Name)
    }

    pub const fn numbers(head: &'static str) -> Self {
        Self::new(head, Kind::Numbers)
    }

    /// Marks a column to be left out if the table is too wide, the last column first.
    pub const fn optional(self) -> Self {
        Self { is_optional: true, ..self }
    }
}

/// Formats a table, columns two spaces apart, within `width` if possible.
/// The last line has no newline.
pub fn table(columns: &[Column], rows: &[Vec<String>], width: Option<usize>) -> String {
    let heads: Vec<String> = columns.iter().map(|column| column.head.to_uppercase()).collect();
    let lines = || std::iter::once(&heads).chain(rows);
    let widest = |place: usize| lines().map(|row| row[place].chars().count()).max();
    // The indices of the columns that are shown, and their widths.
    let mut shown: Vec<_> =
        (0..columns.len()).map(|place| (place, widest(place).unwrap_or(0))).collect();
    let excess_width = |shown: &[(usize, usize)]| {
        let whole = shown.iter().map(|(_, width)| width + 2).sum::<usize>().saturating_sub(2);
        width.map_or(0, |width| whole.saturating_sub(width))
    };
    let names = shown.iter().filter(|(place, _)| columns[*place].kind == Kind::Name);
    let spare: usize = names.map(|(_, width)| width.saturating_sub(MIN_NAME)).sum();
    while excess_width(&shown) > spare
        && let Some(last) = shown.iter().rposition(|(place, _)| columns[*place].is_optional)
    {
        shown.remove(last);
    }
    let excess = excess_width(&shown);
    for (place, width) in &mut shown {
        if columns[*place].kind == Kind::Name {
            *width = width.saturating_sub(excess).max(MIN_NAME.min(*width));
        }
    }
    let line = |row: &Vec<String>| {
        let cells = shown.iter().map(|&(place, width)| {
            let cell = shortened(&row[place], width);
            match columns[place].kind {
                Kind::Words | Kind::Name => format!("{cell:<width$}"),
                Kind::Numbers => format!("{cell:>width$}"),
            }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Formats texts after their labels, broken at spaces and aligned within `width`.
pub fn labeled_rows<'a>(
    rows: impl IntoIterator<Item = (&'a str, String)>,
    width: Option<usize>,
) -> Vec<String> {
    let room = width.map_or(usize::MAX, |width| width.saturating_sub(LABEL_WIDTH).max(1));
    let lines = rows.into_iter().flat_map(|(label, text)| {
        let parts = wrapped(&text, room).into_iter().enumerate();
        let line = move |(place, part)| {
            let label = if place == 0 { label } else { "" };
            format!("{label:<LABEL_WIDTH$}{part}")
        };
        parts.map(line).collect::<Vec<_>>()
    });
    lines.collect()
}

/// Width of the longest label of a figure, with a space.
pub const LABEL_WIDTH: usize = 17;

/// Formats an error with its causes, except those that its own text contains.
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
    fn names_are_shortened_if_a_table_is_too_wide() {
        let row = |name: &str| vec![name.to_owned(), "1".to_owned()];
        let rows = [row("rack-07-node-0012"), row("rack-07-node-0013")];
        let columns = [Column::name("Name"), Column::numbers("Done")];
        let lines = |width| table(&columns, &rows, width);
        assert!(lines(None).contains("rack-07-node-0012     1"));
        assert!(lines(Some(40)).contains("rack-07-node-0012     1"));
        let narrow = lines(Some(18));
        assert_eq!(narrow, "NAME          DONE\nrack-…e-0012     1\nrack-…e-0013     1");
        assert!(lines(Some(1)).contains("rac…0012"));
        let optional = [Column::name("Name"), Column::numbers("Done").optional()];
        assert!(table(&optional, &rows, Some(14)).contains("DONE"));
        assert_eq!(table(&optional, &rows, Some(13)).lines().next(), Some("NAME"));
    }

    #[test]
    fn sentences_are_broken_only_at_the_terminals_width() {
        let text = "\none two three\nfour\n";
        assert_eq!(prose(text, None), text);
        assert_eq!(prose(text, Some(80)), text);
        assert_eq!(prose(text, Some(8)), "\none two\nthree\nfour\n");
    }
}
