//! Every way to put one queen in each row.

use super::patience::{Columns, Count, Patience, Stop};
use crate::board::Board;

/// All N^N placements with one queen a row, each checked when all queens stand: the brute force
/// that `001_86e98d93edfc3b6c.txt` compares with.
pub fn brute_force(board: Board, stop: &Stop<'_>) -> Option<Count> {
    let mut patience = Patience::new(stop);
    let solutions = fill(board.n(), 0, &mut [0; 32], &mut patience)?;
    Some(patience.count(solutions))
}

fn fill(n: u8, row: u8, columns: &mut Columns, patience: &mut Patience<'_>) -> Option<u64> {
    if row == n {
        patience.visit(1)?;
        return Some(u64::from(is_safe(&columns[..usize::from(n)])));
    }
    let mut solutions = 0;
    for column in 0..n {
        columns[usize::from(row)] = column;
        solutions += fill(n, row + 1, columns, patience)?;
    }
    Some(solutions)
}

/// Whether no two queens share a column or a diagonal.
fn is_safe(columns: &[u8]) -> bool {
    columns.iter().enumerate().all(|(row, &column)| {
        let above = columns[..row].iter().rev().zip(1..);
        above
            .into_iter()
            .all(|(&at, far)| at != column && at.abs_diff(column) != far)
    })
}
