//! The task map by what its units have in common: frames by A and C, prefixes by their first queens.

use std::ops::Range;

use common::plan::{Plan, Strip, TaskId};
use serde::Deserialize;
use serde_json::{Value, json};

use super::map::letter;
use crate::sched::{MapCell, Standing};

/// Cells in a row and in a column of a sheet, where all sheets are told of.
const OVERVIEW_SIDE: u64 = 24;

/// The same of a part of one sheet.
const PART_SIDE: u64 = 48;

/// The part of a sheet to tell of; all sheets if it names none.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(super) struct Window {
    sheet: Option<usize>,
    row: Option<u64>,
    rows: Option<u64>,
    column: Option<u64>,
    columns: Option<u64>,
}

impl Window {
    /// Whether it is all there is.
    pub(super) fn is_whole(&self) -> bool {
        *self == Self::default()
    }
}

/// What the cells of a sheet, or of a part of it, say.
struct Grid {
    rows: Range<u64>,
    columns: Range<u64>,
    rows_per_cell: u64,
    columns_per_cell: u64,
    across: u64,
    cells: Vec<Cell>,
}

#[derive(Clone, Default)]
struct Cell {
    /// A task is counted once for each row that it has there.
    standings: MapCell,
    /// The tasks from the first to the last that lie there, if any do.
    tasks: Option<(u64, u64)>,
}

impl Grid {
    fn new(rows: Range<u64>, columns: Range<u64>, side: u64) -> Self {
        let per_cell = |range: &Range<u64>| (range.end - range.start).div_ceil(side).max(1);
        let (rows_per_cell, columns_per_cell) = (per_cell(&rows), per_cell(&columns));
        let across = (columns.end - columns.start).div_ceil(columns_per_cell);
        let down = (rows.end - rows.start).div_ceil(rows_per_cell);
        let cells = usize::try_from(across * down).expect("a side has 48 cells at most");
        Self {
            rows,
            columns,
            rows_per_cell,
            columns_per_cell,
            across,
            cells: vec![Cell::default(); cells],
        }
    }

    fn add(&mut self, strip: &Strip, task: u64, standing: Standing) {
        let start = strip.columns.start.max(self.columns.start);
        let end = strip.columns.end.min(self.columns.end);
        if !self.rows.contains(&strip.row) || start >= end {
            return;
        }
        let down = (strip.row - self.rows.start) / self.rows_per_cell;
        let cell = |column: u64| (column - self.columns.start) / self.columns_per_cell;
        for across in cell(start)..=cell(end - 1) {
            let at = usize::try_from(down * self.across + across).expect("a cell in memory");
            let cell = &mut self.cells[at];
            cell.standings.add(standing);
            let (first, last) = cell.tasks.unwrap_or((task, task));
            cell.tasks = Some((first.min(task), last.max(task)));
        }
    }

    /// One letter a cell, and a point where no unit is.
    fn json(&self, (sheet, name): (usize, &str), with_tasks: bool) -> Value {
        let letters: String = self
            .cells
            .iter()
            .map(|cell| cell.tasks.map_or('.', |_| letter(&cell.standings)))
            .collect();
        let mut json = json!({
            "sheet": sheet,
            "name": name,
            "row": self.rows.start,
            "rows": self.rows.end - self.rows.start,
            "column": self.columns.start,
            "columns": self.columns.end - self.columns.start,
            "rows_per_cell": self.rows_per_cell,
            "columns_per_cell": self.columns_per_cell,
            "across": self.across,
            "cells": letters,
        });
        if with_tasks {
            let tasks: Vec<_> = self.cells.iter().map(|cell| cell.tasks).collect();
            json["tasks"] = json!(tasks);
        }
        json
    }
}

/// The sheets of a plan, or a part of one, with where each task stands; `None` if there is no such
/// sheet. Looks at every task.
pub(super) fn grid_json(plan: &Plan, standings: &[Standing], window: &Window) -> Option<Value> {
    let sheets = plan.sheets();
    let whole = window.is_whole();
    let shown = match window.sheet {
        Some(sheet) => sheet..sheet.checked_add(1)?,
        None => 0..sheets.len(),
    };
    let mut grids: Vec<_> = sheets
        .get(shown.clone())?
        .iter()
        .map(|sheet| match whole {
            true => Grid::new(0..sheet.rows, 0..sheet.columns, OVERVIEW_SIDE),
            false => Grid::new(
                part(window.row, window.rows, sheet.rows),
                part(window.column, window.columns, sheet.columns),
                PART_SIDE,
            ),
        })
        .collect();
    for (task, &standing) in (0u64..).zip(standings) {
        plan.strips(plan.task_units(TaskId(task)), &mut |strip| {
            if shown.contains(&strip.sheet) {
                grids[strip.sheet - shown.start].add(&strip, task, standing);
            }
        });
    }
    let axes = plan.axes();
    let sheets = grids.iter().zip(shown).map(|(grid, sheet)| {
        let name = sheets[sheet].name.as_str();
        grid.json((sheet, name), !whole)
    });
    Some(json!({
        "rows_are": axes[0],
        "columns_are": axes[1],
        "sheets": sheets.collect::<Vec<_>>(),
    }))
}

/// What there is of a range that was asked for.
fn part(first: Option<u64>, number: Option<u64>, all: u64) -> Range<u64> {
    let first = first.unwrap_or(0).min(all);
    first..first.saturating_add(number.unwrap_or(all)).min(all)
}

#[cfg(test)]
mod tests {
    use common::{board::Board, method::Layout, plan::PlanSpec};

    use super::*;

    fn plan(n: u8, layout: Layout) -> Plan {
        let spec = PlanSpec {
            task_cost: 2_000,
            ..PlanSpec::new(Board::new(n).unwrap(), layout)
        };
        Plan::new(spec).unwrap()
    }

    fn sheets(json: &Value) -> &Vec<Value> {
        json["sheets"].as_array().unwrap()
    }

    #[test]
    fn whatever_stands_out_is_seen_from_afar_and_found_again_nearby() {
        for (n, layout) in [
            (16, Layout::Frames),
            (15, Layout::Frames),
            (12, Layout::Border),
        ] {
            let plan = plan(n, layout);
            let tasks = usize::try_from(plan.tasks()).unwrap();
            let odd = tasks / 3;
            let mut standings = vec![Standing::Done; tasks];
            standings[odd] = Standing::Contested;
            let json = grid_json(&plan, &standings, &Window::default()).unwrap();
            assert_eq!(sheets(&json).len(), plan.sheets().len());
            let mut found = 0;
            for sheet in sheets(&json) {
                let cells = sheet["cells"].as_str().unwrap();
                let across = sheet["across"].as_u64().unwrap();
                for (at, letter) in (0u64..).zip(cells.chars()) {
                    assert!("xD.".contains(letter), "N = {n}: {letter}");
                    if letter != 'x' {
                        continue;
                    }
                    found += 1;
                    let (high, wide) = (&sheet["rows_per_cell"], &sheet["columns_per_cell"]);
                    let (high, wide) = (high.as_u64().unwrap(), wide.as_u64().unwrap());
                    let window = Window {
                        sheet: sheet["sheet"]
                            .as_u64()
                            .map(|at| usize::try_from(at).unwrap()),
                        row: Some(at / across * high),
                        rows: Some(high),
                        column: Some(at % across * wide),
                        columns: Some(wide),
                    };
                    let near = grid_json(&plan, &standings, &window).unwrap();
                    let near = &sheets(&near)[0];
                    let letters = near["cells"].as_str().unwrap().chars();
                    let tasks = near["tasks"].as_array().unwrap();
                    let named = letters.zip(tasks).filter(|(letter, _)| *letter == 'x');
                    for (_, tasks) in named {
                        let [first, last] = [0, 1].map(|end| tasks[end].as_u64().unwrap());
                        assert!((first..=last).contains(&(odd as u64)));
                    }
                }
            }
            assert!(found > 0, "N = {n}");
        }
    }

    #[test]
    fn a_window_beyond_everything_is_empty_and_a_sheet_that_is_none_is_told() {
        let plan = plan(12, Layout::Frames);
        let standings = vec![Standing::Waiting; usize::try_from(plan.tasks()).unwrap()];
        let window = |sheet, row| Window {
            sheet: Some(sheet),
            row: Some(row),
            ..Window::default()
        };
        let beyond = grid_json(&plan, &standings, &window(0, u64::MAX)).unwrap();
        assert_eq!(sheets(&beyond)[0]["cells"], "");
        for sheet in [99, usize::MAX] {
            assert_eq!(grid_json(&plan, &standings, &window(sheet, 0)), None);
        }
    }
}
