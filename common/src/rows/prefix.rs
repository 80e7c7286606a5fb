//! How many solutions begin with given queens.

use std::ops::ControlFlow;

use super::{
    ground::{Ground, Root},
    kernel,
    stream::{MOST_ROOTS, Stacks},
};
use crate::{
    board::Board,
    kernel::Kernel,
    setup::{CountError, Watch},
};

/// The number of solutions whose first rows have their queens in these columns: 0 where two of them
/// attack each other. `watch` is told of no cost, only asked whether to go on.
///
/// ```
/// use common::{board::Board, count::Unwatched, kernel::Kernel, rows::completions};
///
/// let board = Board::new(8)?;
/// let below = |prefix: &[u8]| completions(board, prefix, Kernel::best(), &Unwatched);
/// assert_eq!((below(&[])?, below(&[0])?, below(&[0, 1])?), (92, 4, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
/// If there are more columns than rows, or one that the board does not have.
pub fn completions(
    board: Board,
    prefix: &[u8],
    kernel: Kernel,
    watch: &dyn Watch,
) -> Result<u64, CountError> {
    let whole = Ground::new(board, |_| false, &[]);
    let start = Root::below(board, 0, std::iter::empty());
    let placed = prefix
        .iter()
        .zip(whole.allowed().iter().zip(whole.steps()))
        .try_fold(start, |root, (&column, (&allowed, &step))| {
            assert!(column < board.n(), "column {column} of {board}");
            root.place(column, allowed, step)
        });
    let Some(root) = placed else { return Ok(0) };
    assert!(prefix.len() <= whole.rows(), "a row of {board} for a queen");
    let mut roots = vec![root];
    let mut rest = whole.skip(prefix.len());
    // A row or two further on there are states enough to fill the kernel's vectors.
    while rest.rows() > 0 && roots.len() * usize::from(board.n()) <= MOST_ROOTS {
        let (allowed, step) = (rest.allowed()[0], rest.steps()[0]);
        let children =
            |root: Root| (0..board.n()).filter_map(move |column| root.place(column, allowed, step));
        roots = roots.into_iter().flat_map(children).collect();
        rest = rest.skip(1);
        if roots.is_empty() {
            return Ok(0);
        }
    }
    if rest.rows() == 0 {
        return Ok(roots.len() as u64);
    }
    let mut tick = |_| watch.advance(0);
    match kernel::count(kernel, &mut Stacks::new(), &rest, &roots, &mut tick) {
        ControlFlow::Continue(solutions) => Ok(solutions),
        ControlFlow::Break(()) => Err(CountError::Cancelled),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{count::Unwatched, known::known_counts};

    fn count(n: u8, prefix: &[u8]) -> u64 {
        let board = Board::new(n).unwrap();
        completions(board, prefix, Kernel::best(), &Unwatched).unwrap()
    }

    #[test]
    fn completions_of_the_first_rows_add_up_to_all() {
        for n in 1..=12 {
            let known = known_counts(Board::new(n).unwrap()).unwrap().all();
            assert_eq!(u128::from(count(n, &[])), known, "N = {n}");
            let one: u64 = (0..n).map(|first| count(n, &[first])).sum();
            assert_eq!(u128::from(one), known, "N = {n}, one row");
            let pairs = (0..n).flat_map(|first| (0..n).map(move |second| [first, second]));
            let two: u64 = pairs.filter(|_| n > 1).map(|pair| count(n, &pair)).sum();
            assert!(n == 1 || u128::from(two) == known, "N = {n}, two rows");
        }
    }

    #[test]
    fn a_whole_board_completes_to_itself() {
        assert_eq!(count(8, &[0, 4, 7, 5, 2, 6, 1, 3]), 1);
        assert_eq!(count(8, &[0, 4, 7, 5, 2, 6, 3, 1]), 0);
    }
}
