//! Standard output, wide tables and a progress bar.

use std::{
    io,
    ops::Range,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use cli::terminal::{self, StatusBar};
use serde::Serialize;
use view::text::{prose, span, stdout_width, thousands};

/// Prints lines to stdout.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    check_printed(terminal::print(text))
}

/// Prints a JSON object to stdout.
pub(super) fn print_json(object: &impl Serialize) -> anyhow::Result<()> {
    print_json_line(&serde_json::to_string(object)?)
}

pub(super) fn print_json_line(line: &str) -> anyhow::Result<()> {
    check_printed(terminal::print_json(line))
}

/// Prints one JSON object per line to stdout.
pub(super) fn print_objects(
    objects: impl IntoIterator<Item = impl Serialize>,
) -> anyhow::Result<()> {
    objects.into_iter().try_for_each(|object| print_json(&object))
}

/// Prints sentences to stdout, broken at spaces within the terminal's width.
pub(super) fn print_prose(text: &str) -> anyhow::Result<()> {
    print(&prose(text, stdout_width()))
}

/// Adds context to an error; exits with 0 if the reader closed the pipe (`| head`).
fn check_printed(printed: io::Result<()>) -> anyhow::Result<()> {
    match printed {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        other => other.context("cannot write to standard output"),
    }
}

/// A progress bar with the rate and the remaining time.
pub(super) struct Bar {
    drawn: Option<StatusBar>,
    started: Instant,
    /// The unit, such as `lines`.
    noun: &'static str,
}

impl Bar {
    /// Starts a bar, which is drawn only if it is `wanted` and stderr is a terminal.
    pub(super) fn start(noun: &'static str, wanted: bool) -> Self {
        let drawn = wanted.then(StatusBar::bar).flatten();
        Self { drawn, started: Instant::now(), noun }
    }

    pub(super) fn is_visible(&self) -> bool {
        self.drawn.is_some()
    }

    /// Shows that `number` items are done, a fraction `part` of the total, 0 to 1.
    pub(super) fn show(&self, number: u64, part: f64) {
        if let Some(drawn) = &self.drawn {
            drawn.show(part, progress(self.noun, number, part, self.started.elapsed()));
        }
    }
}

/// Formats the rate and the remaining time: `5,000 lines per second, 3.0 s left`.
fn progress(noun: &str, number: u64, part: f64, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64().max(1e-3);
    // For display; `as` saturates.
    #[expect(clippy::cast_possible_truncation)]
    let per_second = (number as f64 / seconds).round() as u128;
    let rate = format!("{} {noun} per second", thousands(per_second));
    match part > 0.0 {
        true => format!("{rate}, {} left", span(seconds * (1.0 - part).max(0.0) / part)),
        false => rate,
    }
}

/// The width and alignment of a column of a [`WrappedTable`].
#[derive(Clone, Copy, Debug)]
pub(super) enum Width {
    Left(usize),
    /// Aligned to the right.
    Right(usize),
}

impl Width {
    fn pad(self, text: &str) -> String {
        match self {
            Self::Left(width) => format!("{text:<width$}"),
            Self::Right(width) => format!("{text:>width$}"),
        }
    }
}

/// A wide table that is printed row by row.
/// On a narrow terminal, groups of columns are printed below each other.
pub(super) struct WrappedTable {
    widths: Vec<Width>,
    /// Number of cells that are repeated at the start of every line.
    keys: usize,
    /// The columns of each part, without the keys.
    parts: Vec<Range<usize>>,
    /// The lines of the parts after the first, which is printed immediately.
    later: Vec<Vec<String>>,
}

impl WrappedTable {
    /// Prints the column headings. The first `keys` columns begin every line.
    pub(super) fn begin<H: Into<String>>(
        columns: impl IntoIterator<Item = (H, Width)>,
        keys: usize,
    ) -> anyhow::Result<Self> {
        let columns = columns.into_iter().map(|(head, width)| (head.into(), width));
        let (heads, widths): (Vec<String>, Vec<_>) = columns.unzip();
        let wide = |width: &Width| match *width {
            Width::Left(width) | Width::Right(width) => width,
        };
        let (keyed, others) = widths.split_at(keys);
        let room = stdout_width().map(|room| room.saturating_sub(keyed.iter().map(wide).sum()));
        let parts = parts_of(&others.iter().map(wide).collect::<Vec<_>>(), room);
        let later = vec![Vec::new(); parts.len().saturating_sub(1)];
        let mut wrapped = Self { widths, keys, later, parts };
        wrapped.row(heads)?;
        Ok(wrapped)
    }

    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) -> anyhow::Result<()> {
        let cells = cells.into_iter().zip(&self.widths).map(|(cell, width)| width.pad(&cell));
        let cells: Vec<_> = cells.collect();
        let (keys, others) = cells.split_at(self.keys);
        let line = |part: &Range<usize>| {
            let line = keys.concat() + &others[part.clone()].concat();
            line.trim_end().to_owned()
        };
        let mut lines = self.parts.iter().map(line);
        let first = lines.next().unwrap_or_default();
        for (later, line) in self.later.iter_mut().zip(lines) {
            later.push(line);
        }
        print(&first)
    }

    /// Prints the remaining parts.
    pub(super) fn end(self) -> anyhow::Result<()> {
        let later = self.later.iter();
        later.map(|lines| format!("\n{}", lines.join("\n"))).try_for_each(|part| print(&part))
    }
}

/// Splits columns into parts that fit `room`; each has at least one column.
fn parts_of(widths: &[usize], room: Option<usize>) -> Vec<Range<usize>> {
    let (mut parts, mut part) = (Vec::new(), 0..0);
    let mut used = 0;
    for (column, width) in widths.iter().enumerate() {
        used += width;
        if room.is_some_and(|room| used > room) && part.start < part.end {
            used = *width;
            let next = column..column;
            parts.push(std::mem::replace(&mut part, next));
        }
        part.end = column + 1;
    }
    parts.push(part);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_shows_the_rate_and_the_remaining_time() {
        let text = |number, part| progress("lines", number, part, Duration::from_secs(20));
        assert_eq!(text(100_000, 0.25), "5,000 lines per second, 1 min 0 s left");
        assert_eq!(text(100_000, 1.0), "5,000 lines per second, 0.0 s left");
        assert_eq!(text(0, 0.0), "0 lines per second");
    }

    #[test]
    fn a_table_is_wrapped_at_the_terminals_width() {
        let widths = [10, 10, 30, 5, 5];
        for (room, ends) in [
            (None, &[5][..]),
            (Some(60), &[5]),
            (Some(59), &[4, 5]),
            (Some(20), &[2, 3, 5]),
            (Some(1), &[1, 2, 3, 4, 5]),
        ] {
            let parts = parts_of(&widths, room);
            let starts = [0].iter().chain(ends);
            let expected: Vec<_> = starts.zip(ends).map(|(start, end)| *start..*end).collect();
            assert_eq!(parts, expected, "{room:?}");
        }
    }
}
