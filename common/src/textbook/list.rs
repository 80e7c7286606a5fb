//! The list comprehension of functional languages.

use super::patience::{Count, Patience, Stop};
use crate::board::Board;

/// A list of columns, the latest queen first, that shares its tail with all lists made from it.
struct List<'a> {
    column: u8,
    rest: Option<&'a List<'a>>,
}

/// How many lists the comprehension of `004_df925f861df725bd.txt` has.
pub fn list_comprehension(board: Board, stop: &Stop<'_>) -> Option<Count> {
    let mut patience = Patience::new(stop);
    let mut solutions = 0;
    extend(
        board.n(),
        board.n(),
        None,
        &mut |_| solutions += 1,
        &mut patience,
    )?;
    Some(patience.count(solutions))
}

/// Shows every solution in the order and the form in which the comprehension of
/// `004_df925f861df725bd.txt` lists them: a solution is the list of columns with the queen placed
/// last in front; the queens placed before vary slowest, columns ascend. `None` if told to stop.
pub fn list_comprehension_order(
    board: Board,
    stop: &Stop<'_>,
    show: &mut dyn FnMut(&[u8]),
) -> Option<()> {
    extend(board.n(), board.n(), None, show, &mut Patience::new(stop))
}

/// For all columns that are safe before `queens`: the list with one more, until `missing` are there.
fn extend(
    n: u8,
    missing: u8,
    queens: Option<&List<'_>>,
    show: &mut dyn FnMut(&[u8]),
    patience: &mut Patience<'_>,
) -> Option<()> {
    if missing == 0 {
        show(&columns(queens).collect::<Vec<_>>());
        return Some(());
    }
    for column in 0..n {
        if !is_safe(column, queens, patience)? {
            continue;
        }
        extend(
            n,
            missing - 1,
            Some(&List {
                column,
                rest: queens,
            }),
            show,
            patience,
        )?;
    }
    Some(())
}

fn columns<'a>(list: Option<&'a List<'a>>) -> impl Iterator<Item = u8> + 'a {
    std::iter::successors(list, |list| list.rest).map(|list| list.column)
}

/// Compares `column` with the queens one by one, up to the first that attacks it.
fn is_safe(column: u8, queens: Option<&List<'_>>, patience: &mut Patience<'_>) -> Option<bool> {
    let mut compared = 0;
    let safe = columns(queens).zip(1..).all(|(at, far)| {
        compared += 1;
        at != column && at.abs_diff(column) != far
    });
    patience.visit(compared)?;
    Some(safe)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn solutions(n: u8) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let board = Board::new(n).unwrap();
        list_comprehension_order(board, &|| false, &mut |list| all.push(list.to_vec())).unwrap();
        all
    }

    #[test]
    fn five_queens_are_listed_in_the_comprehensions_order() {
        let first: Vec<Vec<u8>> = vec![
            vec![3, 1, 4, 2, 0],
            vec![2, 4, 1, 3, 0],
            vec![4, 2, 0, 3, 1],
            vec![3, 0, 2, 4, 1],
        ];
        assert_eq!(solutions(5)[..4], first);
    }

    #[test]
    fn read_from_the_back_the_lists_ascend() {
        let placed = |mut list: Vec<u8>| {
            list.reverse();
            list
        };
        let all: Vec<_> = solutions(8).into_iter().map(placed).collect();
        assert_eq!(all.len(), 92);
        assert!(all.is_sorted());
        assert_eq!(all[91], [7, 3, 0, 2, 5, 1, 6, 4]);
    }
}
