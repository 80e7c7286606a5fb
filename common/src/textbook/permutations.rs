//! Every permutation of the columns, checked when it is complete.

use super::patience::{Columns, Count, Patience, Stop};
use crate::board::Board;

/// Permutations by recursion, each checked when all queens stand: "permutations with a final check"
/// of `000_a1ee00c4f40ae057.txt`.
pub fn all_permutations(board: Board, stop: &Stop<'_>) -> Option<Count> {
    let mut search = All {
        n: usize::from(board.n()),
        columns: [0; 32],
        used: [false; 32],
    };
    let mut patience = Patience::new(stop);
    let solutions = search.fill(0, &mut patience)?;
    Some(patience.count(solutions))
}

struct All {
    n: usize,
    columns: Columns,
    used: [bool; 32],
}

impl All {
    fn fill(&mut self, row: usize, patience: &mut Patience<'_>) -> Option<u64> {
        if row == self.n {
            patience.visit(1)?;
            return Some(u64::from(is_safe(&self.columns[..row])));
        }
        let mut solutions = 0;
        for column in 0..self.n {
            if !self.used[column] {
                self.used[column] = true;
                #[allow(clippy::cast_possible_truncation)] // below 32
                let queen = column as u8;
                self.columns[row] = queen;
                solutions += self.fill(row + 1, patience)?;
                self.used[column] = false;
            }
        }
        Some(solutions)
    }
}

/// Whether no two queens share a diagonal.
fn is_safe(columns: &[u8]) -> bool {
    columns.iter().enumerate().all(|(row, &column)| {
        let above = columns[..row].iter().enumerate();
        above
            .into_iter()
            .all(|(other, &at)| usize::from(at.abs_diff(column)) != row - other)
    })
}

/// Permutations in lexicographic order, each placed on a board of attacked squares: the program of
/// `003_078d7ecdfdf3df70.txt`.
pub fn next_permutation(board: Board, stop: &Stop<'_>) -> Option<Count> {
    let mut columns: Vec<u8> = (0..board.n()).collect();
    let mut patience = Patience::new(stop);
    let mut solutions = 0;
    loop {
        patience.visit(1)?;
        solutions += u64::from(stands_on_free_squares(&columns));
        if !advance(&mut columns) {
            return Some(patience.count(solutions));
        }
    }
}

/// Places the queens one by one and marks all squares that each attacks.
fn stands_on_free_squares(columns: &[u8]) -> bool {
    let n = columns.len();
    let mut attacked = [[false; 32]; 32];
    columns.iter().enumerate().all(|(row, &column)| {
        let column = usize::from(column);
        let free = !attacked[row][column];
        for (other, squares) in attacked[..n].iter_mut().enumerate() {
            let far = other.abs_diff(row);
            squares[column] = true;
            for at in [column.checked_add(far), column.checked_sub(far)]
                .into_iter()
                .flatten()
            {
                if at < n {
                    squares[at] = true;
                }
            }
        }
        free
    })
}

/// Goes on to the next permutation; false after the last.
fn advance(columns: &mut [u8]) -> bool {
    let Some(at) = columns.windows(2).rposition(|pair| pair[0] < pair[1]) else {
        return false;
    };
    let larger = columns.iter().rposition(|&column| column > columns[at]);
    columns.swap(at, larger.expect("the next element is larger"));
    columns[at + 1..].reverse();
    true
}
