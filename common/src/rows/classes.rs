//! Solutions up to rotation and reflection, counted one by one instead of by Burnside's formula.
//!
//! Every class has members in exactly one representative border. Where the border has no symmetry
//! there is one member, and nothing but the identity fixes it: those are counted by the kernels.
//! The few borders with a symmetry of their own are searched solution by solution, and each
//! solution is compared with its images.

use std::{ops::ControlFlow, sync::Arc};

use super::{
    border::Border,
    counter::Counter,
    division::{Division, Head},
};
use crate::{
    board::Board,
    kernel::Kernel,
    method::Layout,
    plan::spec::PlanSpec,
    setup::{CountError, Orientation, Setup, Watch},
    tally::Classes,
};

/// The classes of a board's solutions, by complete enumeration of one border of each orbit: about
/// the time of a count with the border layout. Counts independently of
/// [`Counts::classes`](crate::tally::Counts::classes), which computes the same from totals.
///
/// ```
/// use common::{board::Board, count::Unwatched, kernel::Kernel, rows::classes};
///
/// let classes = classes(Board::new(8)?, Kernel::best(), &Unwatched)?;
/// assert_eq!((classes.asymmetric, classes.half_turn, classes.quarter_turn), (11, 1, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn classes(board: Board, kernel: Kernel, watch: &dyn Watch) -> Result<Classes, CountError> {
    let spec = PlanSpec {
        board,
        layout: Layout::Border,
        task_cost: u64::MAX,
    };
    let division = Division::new(&spec).expect("the border layout divides every board");
    let division = Arc::new(division);
    let setup = Setup {
        kernel,
        threads: std::num::NonZeroU16::MIN,
        memory_bytes: u64::MAX,
        orientation: Orientation::Upright,
    };
    let mut counter =
        Counter::new(Arc::clone(&division), &setup).expect("there is memory without limit");
    let mut classes = Classes {
        asymmetric: 0,
        half_turn: 0,
        quarter_turn: 0,
    };
    let mut at = 0;
    while at < division.units() {
        let start = at;
        while at < division.units() && division.head(at).weight == 8 {
            at += 1;
        }
        classes.asymmetric += u128::from(counter.count(start..at, watch)? / 8);
        if at < division.units() {
            if let Head::Border(border) = division.head(at).head {
                let mut search = Search::new(board, border, watch);
                if search.fill(0).is_break() {
                    return Err(CountError::Cancelled);
                }
                classes.asymmetric += search.classes.asymmetric;
                classes.half_turn += search.classes.half_turn;
                classes.quarter_turn += search.classes.quarter_turn;
            }
            at += 1;
        }
    }
    Ok(classes)
}

/// The column of the queen in each row.
type Solution = [u8; Board::MAX as usize];

/// The search for all solutions with one border.
struct Search<'a> {
    board: Board,
    border: Border,
    watch: &'a dyn Watch,
    /// Columns of the queens placed; beyond the row in work, of those of the border.
    columns: Solution,
    columns_taken: u64,
    /// By row + column, and by row - column + N - 1.
    falling_taken: u64,
    rising_taken: u64,
    /// Rows that the border fills.
    rows_taken: u64,
    visits: u32,
    classes: Classes,
}

impl<'a> Search<'a> {
    fn new(board: Board, border: Border, watch: &'a dyn Watch) -> Self {
        let mut search = Self {
            board,
            border,
            watch,
            columns: [0; Board::MAX as usize],
            columns_taken: 0,
            falling_taken: 0,
            rising_taken: 0,
            rows_taken: 0,
            visits: 0,
            classes: Classes {
                asymmetric: 0,
                half_turn: 0,
                quarter_turn: 0,
            },
        };
        for (row, column) in border.queens(board) {
            search.rows_taken |= 1 << row;
            search.columns[usize::from(row)] = column;
            search.flip(row, column);
        }
        search
    }

    /// Places a queen, or takes it away again.
    fn flip(&mut self, row: u8, column: u8) {
        self.columns_taken ^= 1 << column;
        self.falling_taken ^= 1 << (row + column);
        self.rising_taken ^= 1 << (row + self.board.n() - 1 - column);
    }

    fn fill(&mut self, row: u8) -> ControlFlow<()> {
        self.visits += 1;
        if self.visits.is_multiple_of(1 << 20) {
            self.watch.advance(0)?;
        }
        let n = self.board.n();
        if row == n {
            self.leaf();
            return ControlFlow::Continue(());
        }
        if self.rows_taken >> row & 1 == 1 {
            return self.fill(row + 1);
        }
        for column in 0..n {
            let taken = self.columns_taken >> column
                | self.falling_taken >> (row + column)
                | self.rising_taken >> (row + n - 1 - column);
            if taken & 1 == 0 {
                self.flip(row, column);
                self.columns[usize::from(row)] = column;
                self.fill(row + 1)?;
                self.flip(row, column);
            }
        }
        ControlFlow::Continue(())
    }

    /// Counts the solution if it is the first of its class with this border.
    fn leaf(&mut self) {
        let images = images(self.board, &self.columns);
        let same_border = |image: &&Solution| border_of(self.board, image) == self.border;
        if images
            .iter()
            .filter(same_border)
            .any(|image| *image < self.columns)
        {
            return;
        }
        // The quarter turns of the solution are the second and the fourth image, the third is the
        // half turn.
        if images[1] == self.columns {
            self.classes.quarter_turn += 1;
        } else if images[2] == self.columns {
            self.classes.half_turn += 1;
        } else {
            self.classes.asymmetric += 1;
        }
    }
}

/// The four turns of a solution, then the four of its mirror image.
fn images(board: Board, solution: &Solution) -> [Solution; 8] {
    let n = usize::from(board.n());
    let last = board.n() - 1;
    let mut images = [*solution; 8];
    for i in 1..8 {
        let mut image = [0; Board::MAX as usize];
        if i == 4 {
            for (to, from) in image[..n].iter_mut().zip(solution) {
                *to = last - from;
            }
        } else {
            // (row, column) goes to (column, N - 1 - row).
            for (row, &column) in (0..=last).zip(&images[i - 1]) {
                image[usize::from(column)] = last - row;
            }
        }
        images[i] = image;
    }
    images
}

fn border_of(board: Board, solution: &Solution) -> Border {
    let last = board.n() - 1;
    let row_of = |column| {
        let row = (0..=last).find(|&row| solution[usize::from(row)] == column);
        row.expect("a solution has a queen in every column")
    };
    let (top, bottom) = (solution[0], solution[usize::from(last)]);
    Border {
        top,
        bottom,
        left: row_of(0),
        right: row_of(last),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{count::Unwatched, known::known_counts};

    #[test]
    fn enumeration_equals_burnside() {
        for n in 1..=12 {
            let board = Board::new(n).unwrap();
            for kernel in [Kernel::best(), Kernel::SCALAR] {
                let found = classes(board, kernel, &Unwatched).unwrap();
                assert_eq!(
                    found,
                    known_counts(board).unwrap().classes(),
                    "N = {n}, {kernel}"
                );
            }
        }
    }

    #[test]
    fn a_watch_that_says_no_ends_the_enumeration() {
        struct Never;
        impl Watch for Never {
            fn advance(&self, _cost_done: u64) -> ControlFlow<()> {
                ControlFlow::Break(())
            }
        }
        let board = Board::new(10).unwrap();
        assert_eq!(
            classes(board, Kernel::best(), &Never),
            Err(CountError::Cancelled)
        );
    }
}
