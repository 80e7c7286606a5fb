//! How far a check of journals is.

/// Lines between two words about it.
const EVERY: u64 = 1_000;

/// What was read so far of all that is to be read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Examined {
    /// Lines, of all runs.
    pub lines: u64,
    /// Which part of everything, from 0 to 1.
    pub part: f64,
}

/// Tells somebody how far a check is.
pub(super) struct Meter<'a> {
    /// The length of all journals, by the measure of their source.
    all: u64,
    /// That of those that were read to their end.
    before: u64,
    lines: u64,
    watch: &'a mut dyn FnMut(Examined),
}

impl<'a> Meter<'a> {
    /// Of journals that are so long together.
    pub(super) fn new(all: u64, watch: &'a mut dyn FnMut(Examined)) -> Self {
        Self {
            all,
            before: 0,
            lines: 0,
            watch,
        }
    }

    /// A line was read, which ends at this place of its journal.
    pub(super) fn line(&mut self, place: u64) {
        self.lines += 1;
        if self.lines.is_multiple_of(EVERY) {
            self.tell(self.before.saturating_add(place));
        }
    }

    /// A journal of this length was read.
    pub(super) fn journal(&mut self, length: u64) {
        self.before = self.before.saturating_add(length);
        self.tell(self.before);
    }

    fn tell(&mut self, place: u64) {
        // One that is being written grows meanwhile.
        let all = self.all.max(place).max(1);
        let part = place as f64 / all as f64;
        (self.watch)(Examined {
            lines: self.lines,
            part,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_grow_over_all_journals_to_the_whole() {
        let mut told = Vec::new();
        let mut watch = |examined: Examined| told.push((examined.lines, examined.part));
        // Two journals of 20 bytes a line, of which the second has grown by 500 lines meanwhile.
        let mut meter = Meter::new(20 * 4_000, &mut watch);
        for lines in [2_000, 2_500] {
            for line in 1..=lines {
                meter.line(20 * line);
            }
            meter.journal(20 * lines);
        }
        let parts = [
            (1_000, 0.25),
            (2_000, 0.5),
            (2_000, 0.5),
            (3_000, 0.75),
            (4_000, 1.0),
            (4_500, 1.0),
        ];
        assert_eq!(told, parts);
    }
}
