//! Backtracking that compares each new queen with all before it.

use super::patience::{Columns, Count, Patience, Stop};
use crate::board::Board;

/// Queens row by row, each checked against those above as it is placed: "attack scan" of
/// `000_a1ee00c4f40ae057.txt`, and the backtracking that `001_86e98d93edfc3b6c.txt` starts from.
pub fn attack_scan(board: Board, stop: &Stop<'_>) -> Option<Count> {
    let mut patience = Patience::new(stop);
    let solutions = fill(board.n(), 0, &mut [0; 32], &mut 0, &mut patience)?;
    Some(patience.count(solutions))
}

fn fill(
    n: u8,
    row: u8,
    columns: &mut Columns,
    used: &mut u32,
    patience: &mut Patience<'_>,
) -> Option<u64> {
    patience.visit(1)?;
    if row == n {
        return Some(1);
    }
    let mut solutions = 0;
    for column in 0..n {
        if *used >> column & 1 == 0 && !is_attacked(&columns[..usize::from(row)], column) {
            columns[usize::from(row)] = column;
            *used ^= 1 << column;
            solutions += fill(n, row + 1, columns, used, patience)?;
            *used ^= 1 << column;
        }
    }
    Some(solutions)
}

/// Whether a queen above attacks `column` along a diagonal; the nearest, which attacks most likely,
/// is asked first.
fn is_attacked(above: &[u8], column: u8) -> bool {
    above
        .iter()
        .rev()
        .zip(1..)
        .any(|(&at, far)| at.abs_diff(column) == far)
}
