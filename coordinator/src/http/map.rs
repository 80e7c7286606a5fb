//! The task map as pages get it: one letter a cell.

use serde_json::{Value, json};

use crate::sched::{MapCell, TaskMap};

/// Cells of the whole map.
pub(super) const MAP_CELLS: u64 = 1_600;

/// One letter a cell: what is most worth a look in it, and capitals where the whole of it is so.
pub(super) fn map_json(map: &TaskMap) -> Value {
    let letters: String = map.cells.iter().map(letter).collect();
    json!({
        "first": map.tasks.start,
        "tasks": map.tasks.end - map.tasks.start,
        "per_cell": map.per_cell,
        "cells": letters,
    })
}

pub(super) fn letter(cell: &MapCell) -> char {
    let all =
        cell.waiting + cell.leased + cell.done + cell.confirmed + cell.parked + cell.contested;
    let counted = cell.done + cell.confirmed;
    match cell {
        cell if cell.contested > 0 => 'x',
        cell if cell.parked > 0 => 'p',
        cell if cell.confirmed == all => 'C',
        _ if counted == all => 'D',
        cell if cell.leased > 0 => 'l',
        _ if counted > 0 => 'd',
        _ => 'w',
    }
}
