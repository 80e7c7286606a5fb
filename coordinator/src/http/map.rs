//! Task map and board picture of a run, for the dashboard.
//!
//! The task map has one letter per cell, in task order or grouped: frames by their sets A and C, prefixes by
//! their first two queens. The board is a solution, preferably from a task that is being counted.

use std::{fmt::Write as _, ops::Range};

use common::{
    messages::run::RunId,
    method::Method,
    plan::{MapSpan, Plan, TaskId},
};
use maud::{Markup, html};
use scheduler::{MapState, TaskView};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;

use crate::driver::{DriverHandle, Stopped};

/// Maximum number of cells of a map in task order.
const MAP_CELLS: u64 = 1_600;

/// A range of a run's tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Map")]
pub(super) struct TaskMap {
    /// First task of the map.
    first: u64,
    /// Number of tasks.
    tasks: u64,
    /// Tasks per cell; the last cell may have fewer.
    per_cell: u64,
    /// One letter per cell, in the plan's order: x disputed, p parked, C all confirmed, c all done and some
    /// confirmed, D all done, l a worker counts one of them, d partially done, w pending.
    #[schemars(regex(pattern = "^[xpCcDldw]*$"))]
    pub(super) cells: String,
    /// The done part of each cell's tasks: a digit from 0, none, to 9, all.
    #[schemars(regex(pattern = "^[0-9]*$"))]
    done: String,
}

/// Returns a range of the tasks as cells of one letter each.
pub(super) fn task_map(map_states: &[MapState], first: u64, number: u64) -> TaskMap {
    let all = map_states.len() as u64;
    let shown = part(Some(first), Some(number), all);
    let tasks = shown.end - shown.start;
    let per_cell = tasks.div_ceil(MAP_CELLS).max(1);
    let [start, end, length] = [shown.start, shown.end, per_cell]
        .map(|number| usize::try_from(number).expect("tasks in memory"));
    let cells = map_states[start..end].chunks(length).zip((shown.start..).step_by(length));
    let cells: Vec<_> = cells
        .map(|(states, first)| {
            let mut cell = Cell::default();
            states.iter().zip(first..).for_each(|(&state, task)| cell.add(task, state));
            cell
        })
        .collect();
    TaskMap {
        first: shown.start,
        tasks,
        per_cell,
        cells: cells.iter().map(Cell::letter).collect(),
        done: cells.iter().map(Cell::part_done).collect(),
    }
}

const fn bit(state: MapState) -> u8 {
    1 << state as u8
}

#[derive(Clone, Default)]
struct Cell {
    /// The [`bit`]s of its tasks' states.
    states: u8,
    /// The first and the last task of the cell; `None` without tasks.
    tasks: Option<(u64, u64)>,
    /// Number of additions, and of those with done tasks.
    added: u64,
    done: u64,
}

impl Cell {
    fn add(&mut self, task: u64, state: MapState) {
        self.states |= bit(state);
        self.added += 1;
        self.done += u64::from(matches!(state, MapState::Done | MapState::Confirmed));
        let (first, last) = self.tasks.unwrap_or((task, task));
        self.tasks = Some((first.min(task), last.max(task)));
    }

    /// Returns the letter of the cell, or a dot without tasks.
    fn letter(&self) -> char {
        self.tasks.map_or('.', |_| letter(self.states))
    }

    /// Returns the digit of its done part, which is 9 only if all are done, and 0 only if none is.
    fn part_done(&self) -> char {
        let digit = match self.done {
            0 => 0,
            done => (done * 9 / self.added).max(1),
        };
        char::from_digit(u32::try_from(digit).unwrap_or(9), 10).unwrap_or('9')
    }
}

/// Returns the letter of the most important state among a cell's tasks.
/// All tasks are done for `D` (none confirmed), `c` (some confirmed) and `C` (all confirmed).
fn letter(states: u8) -> char {
    const DONE: u8 = bit(MapState::Done);
    const CONFIRMED: u8 = bit(MapState::Confirmed);
    const COUNTED: u8 = DONE | CONFIRMED;
    match states {
        _ if states & bit(MapState::Disputed) > 0 => 'x',
        _ if states & bit(MapState::Parked) > 0 => 'p',
        CONFIRMED => 'C',
        COUNTED => 'c',
        DONE => 'D',
        _ if states & bit(MapState::Counting) > 0 => 'l',
        _ if states & COUNTED > 0 => 'd',
        _ => 'w',
    }
}

/// Maximum number of cells in a row or column of a sheet, if all sheets are shown.
const OVERVIEW_SIDE: u64 = 24;

/// Maximum number of cells in a row or column of a part of one sheet.
const PART_SIDE: u64 = 48;

/// A part of a sheet; all sheets if it names none.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Window {
    /// A sheet, in finer cells and with task ranges; all sheets if absent.
    sheet: Option<usize>,
    /// First row.
    row: Option<u64>,
    /// Number of rows.
    rows: Option<u64>,
    /// First column.
    column: Option<u64>,
    /// Number of columns.
    columns: Option<u64>,
}

impl Window {
    /// Returns whether this window selects all sheets.
    pub(super) fn is_whole(&self) -> bool {
        *self == Self::default()
    }
}

/// The cells of a sheet, or of a part of it.
struct Grid {
    rows: Range<u64>,
    columns: Range<u64>,
    rows_per_cell: u64,
    columns_per_cell: u64,
    across: u64,
    cells: Vec<Cell>,
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

    fn add(&mut self, strip: &MapSpan, task: u64, state: MapState) {
        let start = strip.columns.start.max(self.columns.start);
        let end = strip.columns.end.min(self.columns.end);
        if !self.rows.contains(&strip.row) || start >= end {
            return;
        }
        let down = (strip.row - self.rows.start) / self.rows_per_cell;
        let cell = |column: u64| (column - self.columns.start) / self.columns_per_cell;
        for across in cell(start)..=cell(end - 1) {
            let at = usize::try_from(down * self.across + across).expect("a cell in memory");
            self.cells[at].add(task, state);
        }
    }

    /// Describes the grid: a letter per cell, or a dot for one without tasks.
    fn sheet(&self, (sheet, name): (usize, &str), with_tasks: bool) -> Sheet {
        Sheet {
            sheet,
            name: name.to_owned(),
            row: self.rows.start,
            rows: self.rows.end - self.rows.start,
            column: self.columns.start,
            columns: self.columns.end - self.columns.start,
            rows_per_cell: self.rows_per_cell,
            columns_per_cell: self.columns_per_cell,
            across: self.across,
            cells: self.cells.iter().map(Cell::letter).collect(),
            done: self.cells.iter().map(Cell::part_done).collect(),
            tasks: with_tasks.then(|| self.cells.iter().map(|cell| cell.tasks).collect()),
        }
    }
}

/// The tasks of a run, grouped by frame or prefix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Grid")]
pub(super) struct Sheets {
    /// Meaning of a row.
    rows_are: &'static str,
    /// Meaning of a column.
    columns_are: &'static str,
    pub(super) sheets: Vec<Sheet>,
}

/// The tasks whose units have a property in common, as cells in rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(super) struct Sheet {
    /// Number of the sheet.
    sheet: usize,
    /// Common property of its units.
    name: String,
    /// First row.
    row: u64,
    /// Number of rows.
    rows: u64,
    /// First column.
    column: u64,
    /// Number of columns.
    columns: u64,
    rows_per_cell: u64,
    columns_per_cell: u64,
    /// Cells per row.
    across: u64,
    /// One letter per cell, row by row, as in the map; a dot for a cell without tasks.
    pub(super) cells: String,
    /// The done part of each cell's tasks: a digit from 0, none, to 9, all.
    done: String,
    /// For a part: first and last task of each cell.
    #[serde(skip_serializing_if = "Option::is_none")]
    tasks: Option<Vec<Option<(u64, u64)>>>,
}

/// Returns a plan's sheets, or a part of one, with the states of their tasks.
/// Returns `None` if there is no such sheet. Takes time proportional to the number of tasks.
pub(super) fn sheets(plan: &Plan, map_states: &[MapState], window: &Window) -> Option<Sheets> {
    let panels = plan.panels();
    let whole = window.is_whole();
    let shown = match window.sheet {
        Some(sheet) => sheet..sheet.checked_add(1)?,
        None => 0..panels.len(),
    };
    let mut grids: Vec<_> = panels
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
    for (task, &state) in (0u64..).zip(map_states) {
        plan.spans(plan.task_units(TaskId(task)), &mut |strip| {
            if shown.contains(&strip.panel) {
                grids[strip.panel - shown.start].add(&strip, task, state);
            }
        });
    }
    let [rows_are, columns_are] = plan.axes();
    let sheets = grids.iter().zip(shown).map(|(grid, sheet)| {
        let name = panels[sheet].name.as_str();
        grid.sheet((sheet, name), !whole)
    });
    Some(Sheets { rows_are, columns_are, sheets: sheets.collect() })
}

/// Clips a requested range to the existing one.
fn part(first: Option<u64>, number: Option<u64>, all: u64) -> Range<u64> {
    let first = first.unwrap_or(0).min(all);
    first..first.saturating_add(number.unwrap_or(all)).min(all)
}

/// Maximum number of units of a task to search: some have no solution.
const MAX_UNITS: usize = 3;

/// Maximum number of queens that the search of one unit places: about 10 ms.
pub(super) const MAX_STEPS: u32 = 4_000;

#[derive(Serialize)]
pub(super) struct BoardDrawing {
    svg: String,
    caption: String,
    task: u64,
    #[serde(skip)]
    pub(super) queens: Vec<u8>,
}

impl BoardDrawing {
    pub(super) fn markup(&self) -> Markup {
        html! {
            span id="board" { (maud::PreEscaped(&self.svg)) }
            span id="board-caption" { (self.caption) }
        }
    }

    /// Returns the address of the task's page.
    pub(super) fn task_path(&self, run: RunId) -> String {
        format!("/runs/{run}/tasks/{}", self.task)
    }
}

/// Finds a solution of a task that is being counted, otherwise of a counted one, otherwise of any.
/// Returns `None` if the search takes too long. Runs outside the driver.
pub(super) async fn find_board(
    driver: &DriverHandle,
    run: RunId,
) -> Result<Option<BoardDrawing>, Stopped> {
    let Some((plan, map_states)) = driver.map_states(run).await? else { return Ok(None) };
    let any_of = |wanted: &[MapState]| {
        let tasks = (0u64..).zip(&map_states).filter(|(_, state)| wanted.contains(state));
        let tasks: Vec<_> = tasks.map(|(task, _)| task).collect();
        tasks.get(usize::try_from(random_below(tasks.len() as u64)).unwrap_or_default()).copied()
    };
    let task = any_of(&[MapState::Counting])
        .or_else(|| any_of(&[MapState::Done, MapState::Confirmed]))
        .unwrap_or_else(|| random_below(plan.tasks()));
    let Some(task) = driver.task(run, TaskId(task)).await? else { return Ok(None) };
    let drawn = spawn_blocking(move || {
        let units = task.units.clone();
        let example = (0..MAX_UNITS).find_map(|_| {
            let unit = units.start + random_below(units.end - units.start);
            plan.example(unit, MAX_STEPS, &mut random_below)
        });
        example.map(|example| BoardDrawing {
            svg: svg(&example.queens, &example.allowed, plan.spec().layout.method()).into_string(),
            caption: caption(&task),
            task: task.task.0,
            queens: example.queens,
        })
    });
    Ok(drawn.await.ok().flatten())
}

pub(super) fn random_below(bound: u64) -> u64 {
    rand::random::<u64>() % bound.max(1)
}

fn caption(task: &TaskView) -> String {
    let worker = task.workers.first().map_or("a worker", String::as_str);
    match task.state {
        MapState::Counting => {
            format!("A solution of task {}, which {worker} is counting", task.task)
        }
        MapState::Done | MapState::Confirmed => {
            format!("A solution of task {}, counted by {worker}", task.task)
        }
        state @ (MapState::Pending | MapState::Leased | MapState::Parked | MapState::Disputed) => {
            format!("A solution of task {} ({})", task.task, state.name())
        }
    }
}

/// Draws a board with its queens, if any. Marks the columns A and C and the quadrants of a
/// frame, or the queens of a prefix.
pub(super) fn svg(queens: &[u8], allowed: &[u32], method: Method) -> Markup {
    const QUEEN: &str = "M.18.8.08.3.32.53.5.16.68.53.92.3.82.8z";
    let n = allowed.len();
    let half = n / 2;
    let mut marked = String::new();
    let mut cuts = String::new();
    let mut quadrants = "";
    match method {
        Method::Frames => {
            let (top, bottom) = (allowed[0], allowed[n - 1]);
            for column in (0..half).filter(|column| top >> column & 1 == 1) {
                let _ = write!(marked, "M{column} 0h1v{half}h-1z");
            }
            for column in (n - half..n).filter(|column| bottom >> column & 1 == 1) {
                let _ = write!(marked, "M{column} {n}h1v-{half}h-1z");
            }
            quadrants = "PQRS";
            for cut in [half, n - half] {
                let _ = write!(cuts, "M0 {cut}H{n}M{cut} 0V{n}");
            }
        }
        Method::Rows => {
            for (row, allowed) in allowed.iter().enumerate() {
                if allowed.is_power_of_two() {
                    let _ = write!(marked, "M{} {row}h1v1h-1z", allowed.trailing_zeros());
                }
            }
        }
    }
    html! {
        svg viewBox=(format!("0 0 {n} {n}")) aria-hidden="true" {
            defs {
                pattern id="squares" width="2" height="2" patternUnits="userSpaceOnUse" {
                    path class="dark" d="M1 0h1v1H0v1h1z" {}
                }
                path id="queen" d=(QUEEN) {}
            }
            rect class="light" width=(n) height=(n) {}
            rect fill="url(#squares)" width=(n) height=(n) {}
            path class="marked" d=(marked) {}
            path class="cut" d=(cuts) {}
            @for (place, letter) in quadrants.char_indices() {
                @let [x, y] = [matches!(place, 1 | 2), place > 1].map(|far| if far { n - half } else { 0 } as f64);
                text class="quadrant" x=(x + half as f64 / 2.0) y=(y + half as f64 / 2.0) font-size=(half as f64 / 2.0) { (letter) }
            }
            g class="queens" {
                @for (row, column) in queens.iter().enumerate() {
                    use href="#queen" x=(column) y=(row) {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use common::method::Layout;

    use super::*;

    fn plan(n: u8, layout: Layout) -> Plan {
        kit::plan(n, layout, 2_000)
    }

    #[test]
    fn a_disputed_task_is_visible_on_the_sheets_and_on_their_parts() {
        for (n, layout) in [(16, Layout::Frames), (15, Layout::Frames), (12, Layout::Border)] {
            let plan = plan(n, layout);
            let tasks = usize::try_from(plan.tasks()).unwrap();
            let disputed = tasks / 3;
            let mut map_states = vec![MapState::Done; tasks];
            map_states[disputed] = MapState::Disputed;
            let all = sheets(&plan, &map_states, &Window::default()).unwrap().sheets;
            assert_eq!(all.len(), plan.panels().len());
            let mut disputed_cells = 0;
            for sheet in &all {
                for (at, letter) in (0u64..).zip(sheet.cells.chars()) {
                    assert!("xD.".contains(letter), "N = {n}: {letter}");
                    if letter != 'x' {
                        continue;
                    }
                    disputed_cells += 1;
                    let window = Window {
                        sheet: Some(sheet.sheet),
                        row: Some(at / sheet.across * sheet.rows_per_cell),
                        rows: Some(sheet.rows_per_cell),
                        column: Some(at % sheet.across * sheet.columns_per_cell),
                        columns: Some(sheet.columns_per_cell),
                    };
                    let near = &sheets(&plan, &map_states, &window).unwrap().sheets[0];
                    let tasks = near.tasks.as_ref().unwrap();
                    let named = near.cells.chars().zip(tasks).filter(|(letter, _)| *letter == 'x');
                    for (_, tasks) in named {
                        let (first, last) = tasks.unwrap();
                        assert!((first..=last).contains(&(disputed as u64)));
                    }
                }
            }
            assert!(disputed_cells > 0, "N = {n}");
        }
    }

    #[test]
    fn a_cell_of_the_map_shows_the_most_important_state() {
        use MapState::{Confirmed, Counting, Disputed, Done, Leased, Parked, Pending};
        let letters = |states: &[MapState]| {
            let cells = task_map(&states.repeat(3_200), 0, u64::MAX).cells;
            cells.chars().collect::<std::collections::BTreeSet<_>>()
        };
        for (states, letter) in [
            (&[Pending, Counting, Done, Confirmed, Parked, Disputed][..], 'x'),
            (&[Pending, Counting, Done, Confirmed, Parked], 'p'),
            (&[Confirmed], 'C'),
            (&[Confirmed, Done], 'c'),
            (&[Done], 'D'),
            (&[Pending, Leased, Counting, Done, Confirmed], 'l'),
            (&[Pending, Leased, Done], 'd'),
            (&[Pending, Leased], 'w'),
            (&[Pending, Confirmed], 'd'),
            (&[Pending], 'w'),
        ] {
            assert_eq!(letters(states), [letter].into(), "{states:?}");
        }
        for (first, number, expected) in
            [(0, u64::MAX, (0, 4, "wlDC")), (2, 1, (2, 1, "D")), (9, 9, (4, 0, ""))]
        {
            let map = task_map(&[Pending, Counting, Done, Confirmed], first, number);
            assert_eq!((map.first, map.tasks, map.cells.as_str()), expected);
            assert_eq!(map.per_cell, 1);
        }
        for (states, part) in [
            (&[Pending, Counting][..], "0"),
            (&[[Done].as_slice(), &[Pending; 15]].concat(), "1"),
            (&[Done, Pending], "4"),
            (&[[Pending].as_slice(), &[Done; 15]].concat(), "8"),
            (&[Done, Confirmed], "9"),
        ] {
            let done = task_map(&states.repeat(1_600 * 16 / states.len()), 0, u64::MAX).done;
            assert_eq!(done, part.repeat(1_600), "{states:?}");
        }
    }

    #[test]
    fn a_window_beyond_all_rows_is_empty_and_an_unknown_sheet_is_none() {
        let plan = plan(12, Layout::Frames);
        let map_states = vec![MapState::Pending; usize::try_from(plan.tasks()).unwrap()];
        let window =
            |sheet, row| Window { sheet: Some(sheet), row: Some(row), ..Window::default() };
        let beyond = sheets(&plan, &map_states, &window(0, u64::MAX)).unwrap();
        assert_eq!(beyond.sheets[0].cells, "");
        for sheet in [99, usize::MAX] {
            assert_eq!(sheets(&plan, &map_states, &window(sheet, 0)), None);
        }
    }
}
