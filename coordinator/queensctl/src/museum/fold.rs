//! Tables that are wider than some terminals: there the columns come some at a time, under each other.

use coordinator::text::stdout_width;

use super::super::output::print;

/// A table whose rows come one after another.
pub(super) struct Folded {
    /// How many cells begin every line.
    keys: usize,
    /// Where each part begins and ends, in cells after those.
    parts: Vec<std::ops::Range<usize>>,
    /// The lines of the parts after the first, which has gone out already.
    later: Vec<Vec<String>>,
}

impl Folded {
    /// A table with these heads, which are as wide as their columns, with the space before them. The
    /// first `keys` begin every line.
    pub(super) fn begin(heads: &[String], keys: usize) -> anyhow::Result<Self> {
        let widths: Vec<_> = heads.iter().map(|head| head.chars().count()).collect();
        let (keyed, others) = widths.split_at(keys);
        let room = stdout_width().map(|width| width.saturating_sub(keyed.iter().sum()));
        let parts = parts(others, room);
        let mut folded = Self {
            keys,
            later: vec![Vec::new(); parts.len().saturating_sub(1)],
            parts,
        };
        folded.row(heads)?;
        Ok(folded)
    }

    /// The next row; its cells have the widths of the heads.
    pub(super) fn row(&mut self, cells: &[String]) -> anyhow::Result<()> {
        let (keys, others) = cells.split_at(self.keys);
        let line = |part: &std::ops::Range<usize>| {
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

    /// What is left of it.
    pub(super) fn end(self) -> anyhow::Result<()> {
        let later = self.later.iter();
        later
            .map(|lines| format!("\n{}", lines.join("\n")))
            .try_for_each(|part| print(&part))
    }
}

/// Neighbouring columns that fit beside each other; all where nobody says how much room there is. A part
/// has one column at least.
fn parts(widths: &[usize], room: Option<usize>) -> Vec<std::ops::Range<usize>> {
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
    fn a_table_is_folded_where_its_terminal_ends() {
        let widths = [10, 10, 30, 5, 5];
        for (room, ends) in [
            (None, &[5][..]),
            (Some(60), &[5]),
            (Some(59), &[4, 5]),
            (Some(20), &[2, 3, 5]),
            (Some(1), &[1, 2, 3, 4, 5]),
        ] {
            let parts = parts(&widths, room);
            let starts = [0].iter().chain(ends);
            let expected: Vec<_> = starts.zip(ends).map(|(start, end)| *start..*end).collect();
            assert_eq!(parts, expected, "{room:?}");
        }
    }
}
