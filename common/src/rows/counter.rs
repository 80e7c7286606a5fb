//! Weighted counts of ranges of units, and counts below a given prefix.

use std::{ops::Range, sync::Arc};

use super::{
    border::Border,
    cost,
    division::{Division, Head, Weighted},
    search::{self, InitialState, MAX_ROOTS, Row, Stacks, rows_to_fill},
};
use crate::{
    board::Board,
    compute::{
        kernel::Kernel,
        setup::{CountError, CounterConfig, Orientation, ProgressSink, SetupError, go_on},
    },
};

/// Counter for units that uses one thread.
#[derive(Debug)]
pub struct Counter {
    division: Arc<Division>,
    kernel: Kernel,
    orientation: Orientation,
    stacks: Stacks,
    roots: Vec<InitialState>,
}

/// Common properties of the units of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BatchKey {
    /// Head without the queens above all rows to fill.
    ///
    /// These queens are part of the state, so heads that differ only in them are counted together.
    head: Head,
    weight: u8,
}

/// Consecutive units with one key.
struct Batch {
    key: BatchKey,
    /// Rows to fill, those of the tail first.
    rows: Vec<Row>,
    /// Estimated cost of the units not yet reported.
    cost: u64,
}

pub(crate) fn memory_bytes() -> u64 {
    Stacks::BYTES + (MAX_ROOTS * size_of::<InitialState>()) as u64
}

impl Counter {
    pub(crate) fn new(division: Arc<Division>, config: &CounterConfig) -> Result<Self, SetupError> {
        let (stacks, roots) = (Stacks::new(), Vec::with_capacity(MAX_ROOTS));
        let least = memory_bytes();
        if config.memory_bytes < least {
            return Err(SetupError::Memory { given: config.memory_bytes, least });
        }
        let CounterConfig { kernel, orientation, .. } = *config;
        Ok(Self { division, kernel, orientation, stacks, roots })
    }

    pub(crate) fn count(
        &mut self,
        units: Range<u64>,
        progress: &dyn ProgressSink,
    ) -> Result<u64, CountError> {
        let division = Arc::clone(&self.division);
        let tails = division.tails();
        self.roots.clear();
        let mut sum = 0;
        let mut batch: Option<Batch> = None;
        let mut at = units.start;
        while at < units.end {
            let Weighted { head, weight, cost } = division.head(at / tails);
            let range = at % tails..tails.min(at % tails + (units.end - at));
            at += range.end - range.start;
            let common = match head {
                Head::FirstRows { rows, .. } => Head::FirstRows { columns: [0; 2], rows },
                Head::Border(border) => Head::Border(Border { top: 0, ..border }),
                Head::Nothing => continue,
            };
            let key = BatchKey { head: common, weight };
            if let Some(mut done) = batch.take_if(|batch| batch.key != key) {
                self.run(&mut done, &mut sum, progress)?;
            }
            let batch = batch.get_or_insert_with(|| self.batch(key));
            let share = u128::from(cost) * u128::from(range.end - range.start) / u128::from(tails);
            batch.cost = batch.cost.saturating_add(u64::try_from(share).unwrap_or(u64::MAX));
            let root = self.root(head, &batch.rows);
            for tail in range {
                if self.roots.len() == MAX_ROOTS {
                    self.run(batch, &mut sum, progress)?;
                }
                let placed = self.place_tail(&batch.rows, root, tail);
                self.roots.extend(placed);
            }
        }
        if let Some(mut batch) = batch {
            self.run(&mut batch, &mut sum, progress)?;
        }
        Ok(sum)
    }

    /// Counts the pending roots and adds their weight to `sum`.
    fn run(
        &mut self,
        batch: &mut Batch,
        sum: &mut u64,
        progress: &dyn ProgressSink,
    ) -> Result<(), CountError> {
        let mut cost = std::mem::take(&mut batch.cost);
        let mut tick = |placed| {
            let done = (placed as u64 / cost::PLACEMENTS_PER_MICROSECOND).min(cost);
            cost -= done;
            progress.advance(done)
        };
        let rest = batch.rows.get(self.tail_rows()..).unwrap_or_default();
        let counted = search::count(self.kernel, &mut self.stacks, rest, &self.roots, &mut tick);
        self.roots.clear();
        let solutions = go_on(counted)?;
        go_on(progress.advance(cost))?;
        let weighted = solutions.checked_mul(u64::from(batch.key.weight));
        *sum = weighted.and_then(|more| sum.checked_add(more)).ok_or(CountError::Overflow)?;
        Ok(())
    }

    fn batch(&self, key: BatchKey) -> Batch {
        let board = self.division.board();
        let last = board.n() - 1;
        let rows = match key.head {
            Head::FirstRows { rows, .. } => rows_to_fill(board, |row| row < rows, &[]),
            Head::Border(Border { bottom, left, right, .. }) => {
                let fixed = [(last, bottom), (left, 0), (right, last)]
                    .map(|(row, column)| (row, self.column(column)));
                rows_to_fill(board, |row| [0, last, left, right].contains(&row), &fixed)
            }
            Head::Nothing => unreachable!("an empty head makes no batch"),
        };
        Batch { key, rows, cost: 0 }
    }

    fn tail_rows(&self) -> usize {
        self.division.tail_rows().into()
    }

    /// Returns the state in the first unfilled row below a head.
    fn root(&self, head: Head, to_fill: &[Row]) -> InitialState {
        let board = self.division.board();
        let row = to_fill.first().map_or(board.n(), |row| row.number);
        match head {
            Head::FirstRows { columns, rows } => {
                let queens = (0..rows).zip(columns).map(|(row, column)| (row, self.column(column)));
                InitialState::below(board, row, queens)
            }
            Head::Border(border) => {
                let root =
                    InitialState::below(board, row, [(0, self.column(border.top))].into_iter());
                let others = [0, board.n() - 1, self.column(border.bottom)];
                root.without_columns(others)
            }
            Head::Nothing => unreachable!("an empty head makes no batch"),
        }
    }

    /// Returns the column of a queen, mirrored for rotated counts.
    fn column(&self, column: u8) -> u8 {
        match self.orientation {
            Orientation::Upright => column,
            Orientation::Rotated => self.division.board().n() - 1 - column,
        }
    }

    /// Returns the state after the tail, or `None` if the tail uses an attacked square.
    fn place_tail(&self, rows: &[Row], root: InitialState, tail: u64) -> Option<InitialState> {
        let n = u64::from(self.division.board().n());
        let mut digits = tail;
        rows.iter().take(self.tail_rows()).try_fold(root, |root, row| {
            #[allow(clippy::cast_possible_truncation)] // below N
            let column = (digits % n) as u8;
            digits /= n;
            root.place(self.column(column), *row)
        })
    }
}

/// Counts the solutions whose first rows have their queens in these columns.
///
/// The count is 0 if two of these queens attack each other. `progress` may cancel; it receives costs of 0.
///
/// # Panics
/// If there are more columns than rows, or a column is outside the board.
pub fn completions(
    board: Board,
    prefix: &[u8],
    kernel: Kernel,
    progress: &dyn ProgressSink,
) -> Result<u64, CountError> {
    let rows = rows_to_fill(board, |_| false, &[]);
    assert!(prefix.len() <= rows.len(), "{} queens in {board} rows", prefix.len());
    let (filled, mut rest) = rows.split_at(prefix.len());
    let start = InitialState::below(board, 0, std::iter::empty());
    let placed = prefix.iter().zip(filled).try_fold(start, |root, (&column, &row)| {
        assert!(column < board.n(), "column {column} of {board}");
        root.place(column, row)
    });
    let Some(root) = placed else { return Ok(0) };
    let mut roots = vec![root];
    // A few rows further down there are enough states to fill the vectors.
    while let [row, below @ ..] = rest
        && !roots.is_empty()
        && roots.len() * usize::from(board.n()) <= MAX_ROOTS
    {
        let children =
            |root: InitialState| (0..board.n()).filter_map(move |column| root.place(column, *row));
        roots = roots.into_iter().flat_map(children).collect();
        rest = below;
    }
    let mut tick = |_| progress.advance(0);
    go_on(search::count(kernel, &mut Stacks::new(), rest, &roots, &mut tick))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{count::NoProgress, test_fixture::published};

    fn count(n: u8, prefix: &[u8]) -> u64 {
        let board = Board::new(n).unwrap();
        completions(board, prefix, Kernel::best(), &NoProgress).unwrap()
    }

    #[test]
    fn completions_of_the_first_rows_add_up_to_all() {
        for n in 1..=12 {
            let published = published(n);
            assert_eq!(u128::from(count(n, &[])), published, "N = {n}");
            let one: u64 = (0..n).map(|first| count(n, &[first])).sum();
            assert_eq!(u128::from(one), published, "N = {n}, one row");
            let pairs = (0..n).flat_map(|first| (0..n).map(move |second| [first, second]));
            let two: u64 = pairs.filter(|_| n > 1).map(|pair| count(n, &pair)).sum();
            assert!(n == 1 || u128::from(two) == published, "N = {n}, two rows");
        }
    }
}
