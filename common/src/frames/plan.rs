//! Frames in their natural order, and the tasks they are leased in.

use std::ops::Range;

use super::{
    cost::Costs,
    frame::{Frame, FramesOfA},
    geometry::{Geometry, Kind},
    quarter::MAKER_BYTES,
    sets::Sets,
};
use crate::{
    board::Board,
    plan::{
        sheet::{Sheet, Strip},
        spec::{BadSpec, MAX_TASKS, PlanSpec, TaskId},
    },
};

/// The smallest board that this method divides.
const LEAST_N: u8 = 4;

/// The frames of one board: by kind (type I before type II), number of queens, A and C.
#[derive(Debug)]
pub struct Division {
    side: u32,
    sets: Sets,
    rows: Vec<FramesOfA>,
    units: u64,
    costs: Costs,
    /// The first unit of each task and its cost in microseconds; after the last, the number of units.
    tasks: Vec<(u64, f64)>,
    typical: Typical,
}

/// The frames that most of the time goes into.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Typical {
    pub(crate) class: (Kind, u32),
    /// Half boards of either half that most of these frames have at most.
    pub(crate) keys: usize,
}

impl Division {
    pub(crate) fn new(spec: &PlanSpec) -> Result<Self, BadSpec> {
        if spec.board.n() < LEAST_N {
            let reason =
                format!("it needs quadrants of at least 2 × 2 squares, so N from {LEAST_N} on");
            return Err(BadSpec::Unsupported {
                layout: spec.layout,
                board: spec.board,
                reason,
            });
        }
        let mut division = Self::without_tasks(spec.board);
        (division.tasks, division.typical) = division.cut(spec)?;
        Ok(division)
    }

    /// The frames alone: estimating the costs of them all is what takes time on large boards.
    pub(crate) fn without_tasks(board: Board) -> Self {
        let n = board.n();
        let side = u32::from(n) / 2;
        let sets = Sets::new(side);
        let (rows, units) = rows(board, &sets);
        let costs = Costs::new(board, &sets);
        Self {
            side,
            sets,
            rows,
            units,
            costs,
            tasks: Vec::new(),
            typical: Typical {
                class: (Kind::Even, 0),
                keys: 0,
            },
        }
    }

    pub(crate) fn units(&self) -> u64 {
        self.units
    }

    pub(crate) fn tasks(&self) -> u64 {
        self.tasks.len() as u64 - 1
    }

    pub(crate) fn task_units(&self, task: TaskId) -> Range<u64> {
        let task = place(task);
        self.tasks[task].0..self.tasks[task + 1].0
    }

    pub(crate) fn task_cost(&self, task: TaskId) -> u64 {
        whole(self.tasks[place(task)].1)
    }

    /// Queens of the top half take their columns in n! ways at most, so do those of the bottom
    /// half, and for type II there are at most n middle-row queens; a pair counts at most 8.
    pub(crate) fn task_limit(&self, task: TaskId) -> u64 {
        let units = self.task_units(task);
        let halves = (1..=u64::from(self.side))
            .try_fold(1u64, |product, k| product.checked_mul(k)?.checked_mul(k));
        let limit = || {
            halves?
                .checked_mul(8 * u64::from(self.side))?
                .checked_mul(units.end - units.start)
        };
        limit().unwrap_or(u64::MAX)
    }

    /// The kinds of frames and their numbers of queens: each has its own sizes of lists.
    pub(crate) fn classes(&self) -> impl Iterator<Item = (Kind, u32)> {
        let alike = self.rows.chunk_by(|a, b| a.class() == b.class());
        alike.map(|rows| rows[0].class())
    }

    /// The frames that most of the time goes into.
    pub(crate) fn typical(&self) -> Typical {
        self.typical
    }

    /// Memory for the quarter lists of any frame of a class, in bytes, as estimated.
    pub(crate) fn quarter_bytes(&self, class: (Kind, u32)) -> u64 {
        let lists = |row: &FramesOfA| {
            let list = |size| self.costs.quarter_boards(size, &self.sets);
            let (upper, lower) = (list(row.top_queens()), list(row.queens));
            // P and S are held once for each middle queen, and once without it.
            let (p, s) = match row.kind {
                Kind::Even | Kind::TypeOne => (1, 1),
                Kind::TypeTwo => (self.side + 1, self.side + 2 - row.queens),
            };
            let q = list(self.side - row.queens);
            upper * f64::from(p) + q * f64::from(s) + lower + q
        };
        let boards = self.rows_of(class).take(1).map(lists).sum::<f64>();
        whole(8.0 * boards) + MAKER_BYTES.min(whole(32.0 * boards))
    }

    /// The most half boards of one row set in frames of a class, as estimated.
    pub(crate) fn row_set_keys(&self, class: (Kind, u32)) -> usize {
        let most = self
            .rows_of(class)
            .map(|row| self.costs.row_set_keys(row, &self.sets));
        let most = whole(2.0 * most.fold(0.0, f64::max));
        usize::try_from(most).unwrap_or(usize::MAX)
    }

    fn rows_of(&self, class: (Kind, u32)) -> impl Iterator<Item = &FramesOfA> {
        self.rows.iter().filter(move |row| row.class() == class)
    }

    /// n, the side of a quadrant.
    pub(crate) fn side(&self) -> u32 {
        self.side
    }

    /// N.
    pub(crate) fn board_side(&self) -> u32 {
        2 * self.side + u32::from(self.is_odd())
    }

    /// Whether there is a middle row and column.
    pub(crate) fn is_odd(&self) -> bool {
        self.rows
            .last()
            .is_some_and(|row| row.kind == Kind::TypeTwo)
    }

    /// All rows or all columns of a quadrant.
    pub(crate) fn full(&self) -> u32 {
        (1 << self.side) - 1
    }

    pub(crate) fn sets(&self) -> &Sets {
        &self.sets
    }

    pub(crate) fn geometry(&self, kind: Kind, turned: bool) -> Geometry {
        Geometry {
            kind,
            side: self.side,
            turned,
        }
    }

    /// The estimated work of a frame in microseconds, at least 1.
    pub(crate) fn unit_cost(&self, unit: u64) -> u64 {
        let (row, c) = self.row_and_c(unit);
        whole(self.costs.of(row, c, &self.sets))
    }

    /// Half boards of either half of a unit, at most, as estimated.
    pub(super) fn unit_keys(&self, unit: u64) -> usize {
        let (row, c) = self.row_and_c(unit);
        let (top, bottom) = self.costs.lengths(row, c, &self.sets);
        usize::try_from(whole(top.max(bottom))).unwrap_or(usize::MAX)
    }

    /// The frame with this index.
    pub(crate) fn frame(&self, unit: u64) -> Frame {
        let (row, c) = self.row_and_c(unit);
        Frame {
            kind: row.kind,
            queens: row.queens,
            a: row.a,
            c,
        }
    }

    /// The row that a unit is in, and the rank of its C.
    fn row_and_c(&self, unit: u64) -> (&FramesOfA, usize) {
        assert!(unit < self.units, "unit {unit} of {}", self.units);
        let row = &self.rows[self.rows.partition_point(|row| row.first_unit <= unit) - 1];
        let offset = usize::try_from(unit - row.first_unit).expect("fewer than 12870 sets C");
        (row, row.first_c + offset)
    }

    /// A sheet for each class, with a row for each A and a column for each C.
    pub(crate) fn sheets(&self) -> Vec<Sheet> {
        let sheet = |(kind, queens): (Kind, u32)| {
            let (top, name) = match kind {
                Kind::Even => (queens, format!("m = {queens}")),
                Kind::TypeOne => (queens, format!("I, m = {queens}")),
                Kind::TypeTwo => (queens - 1, format!("II, m = {queens}")),
            };
            Sheet {
                name,
                rows: self.sets.count(top) as u64,
                columns: self.sets.count(queens) as u64,
            }
        };
        self.classes().map(sheet).collect()
    }

    /// Where these units lie on the sheets.
    pub(crate) fn strips(&self, units: Range<u64>, visit: &mut dyn FnMut(Strip)) {
        // Classes come in this order, each with some rows.
        let sheet = |row: &FramesOfA| match row.kind {
            Kind::Even | Kind::TypeOne => row.queens - 1,
            Kind::TypeTwo => self.side / 2 + row.queens - 1,
        };
        let mut at = self
            .rows
            .partition_point(|row| row.first_unit <= units.start);
        let mut start = units.start;
        while start < units.end {
            let row = &self.rows[at - 1];
            let end = self.end_of(at - 1).min(units.end);
            let first_c = row.first_c as u64;
            visit(Strip {
                sheet: sheet(row) as usize,
                row: row.a as u64,
                columns: first_c + start - row.first_unit..first_c + end - row.first_unit,
            });
            start = end;
            at += 1;
        }
    }

    /// The index of this frame, if it is a unit.
    #[cfg(test)]
    pub(crate) fn unit(&self, frame: &Frame) -> Option<u64> {
        let name = |row: &FramesOfA| (row.kind, row.queens, row.a);
        let wanted = (frame.kind, frame.queens, frame.a);
        let at = self
            .rows
            .binary_search_by(|row| name(row).cmp(&wanted))
            .ok()?;
        let unit = self.rows[at].first_unit + frame.c.checked_sub(self.rows[at].first_c)? as u64;
        (unit < self.end_of(at)).then_some(unit)
    }

    fn end_of(&self, row: usize) -> u64 {
        self.rows
            .get(row + 1)
            .map_or(self.units, |next| next.first_unit)
    }

    /// Cuts the units into tasks of about `spec.task_cost`. A row that passes it is cut into parts of
    /// about equal cost, so that a task has one A; smaller rows are put together.
    fn cut(&self, spec: &PlanSpec) -> Result<(Vec<(u64, f64)>, Typical), BadSpec> {
        #[allow(clippy::cast_precision_loss)] // an estimate
        let wanted = spec.task_cost as f64;
        let mut tasks = Vec::new();
        let mut open = Open::default();
        let mut costs = Vec::new();
        let mut classes = Classes::default();
        for (at, row) in self.rows.iter().enumerate() {
            let units = row.first_unit..self.end_of(at);
            let ranks = units.clone().zip(row.first_c..).map(|(_, c)| c);
            costs.clear();
            costs.extend(ranks.map(|c| {
                let lengths = self.costs.lengths(row, c, &self.sets);
                let cost = Costs::of_lengths(lengths);
                classes.add(row.class(), cost, lengths.0.max(lengths.1));
                cost
            }));
            let total: f64 = costs.iter().sum();
            if open.cost + total > wanted {
                open.close(row.first_unit, &mut tasks);
            }
            let parts = (total / wanted).round().max(1.0);
            for (unit, &cost) in units.zip(&costs) {
                // Closed before the unit that would pass the part's share by more than its half.
                if open.cost + cost / 2.0 > total / parts && parts > 1.0 {
                    open.close(unit, &mut tasks);
                }
                open.cost += cost;
            }
            if parts > 1.0 {
                open.close(self.end_of(at), &mut tasks);
            }
            if tasks.len() as u64 > MAX_TASKS {
                let PlanSpec {
                    board,
                    layout,
                    task_cost,
                } = *spec;
                let tasks = tasks.len() as u64;
                return Err(BadSpec::TooManyTasks {
                    layout,
                    board,
                    task_cost,
                    tasks,
                });
            }
        }
        open.close(self.units, &mut tasks);
        tasks.push((self.units, 0.0));
        Ok((tasks, classes.typical()))
    }
}

/// Classes of frames, each with its cost, and with that times the length of the longer list.
#[derive(Default)]
struct Classes(Vec<((Kind, u32), f64, f64)>);

impl Classes {
    /// Adds a frame; those of one class come one after the other.
    fn add(&mut self, class: (Kind, u32), cost: f64, keys: f64) {
        let last = match self.0.last_mut() {
            Some(last) if last.0 == class => last,
            _ => self.0.push_mut((class, 0.0, 0.0)),
        };
        last.1 += cost;
        last.2 += cost * keys;
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate"
    )]
    fn typical(self) -> Typical {
        let most = self.0.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
        let (class, cost, keys) = most.expect("every board has frames");
        let keys = (MOST_LISTS * keys / cost) as usize;
        Typical { class, keys }
    }
}

/// How much longer than the mean the lists may be that count as typical.
const MOST_LISTS: f64 = 1.25;

/// A task in the making.
#[derive(Default)]
struct Open {
    first_unit: u64,
    cost: f64,
}

impl Open {
    /// Ends the task before `unit`, if there is anything in it.
    fn close(&mut self, unit: u64, tasks: &mut Vec<(u64, f64)>) {
        if unit > self.first_unit {
            tasks.push((self.first_unit, self.cost));
        }
        *self = Self {
            first_unit: unit,
            cost: 0.0,
        };
    }
}

fn place(task: TaskId) -> usize {
    usize::try_from(task.0).expect("the caller checked that there is such a task")
}

/// The nearest whole number, at least 1.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates
fn whole(estimate: f64) -> u64 {
    (estimate.round() as u64).max(1)
}

/// All rows in natural order, and the number of units.
fn rows(board: Board, sets: &Sets) -> (Vec<FramesOfA>, u64) {
    let side = u32::from(board.n()) / 2;
    let mut rows = Vec::new();
    let mut units = 0;
    let mut add = |kind, queens, a, ranks: Range<usize>| {
        rows.push(FramesOfA {
            kind,
            queens,
            a,
            first_c: ranks.start,
            first_unit: units,
        });
        units += ranks.len() as u64;
    };
    let equal_sizes = if board.n().is_multiple_of(2) {
        Kind::Even
    } else {
        Kind::TypeOne
    };
    // No queen in P and R would leave 2n queens to Q and S, which share 2n − 1 antidiagonals.
    for queens in 1..=side / 2 {
        let count = sets.count(queens);
        // Quarter turns complement the sets: A ≤ C ≤ ~A where that keeps their size.
        let halves = 2 * queens == side;
        for a in 0..if halves { count / 2 } else { count } {
            add(
                equal_sizes,
                queens,
                a,
                a..if halves { count - a } else { count },
            );
        }
    }
    if !board.n().is_multiple_of(2) {
        for queens in 1..=side {
            for a in 0..sets.count(queens - 1) {
                add(Kind::TypeTwo, queens, a, 0..sets.count(queens));
            }
        }
    }
    (rows, units)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{method::Layout, plan::Plan};
    use proptest::prelude::*;
    use std::fmt::Write;

    fn division(n: u8) -> Division {
        Division::new(&PlanSpec::new(Board::new(n).unwrap(), Layout::Frames)).unwrap()
    }

    #[test]
    fn small_boards_are_refused() {
        for n in 1..LEAST_N {
            let spec = PlanSpec::new(Board::new(n).unwrap(), Layout::Frames);
            assert!(
                matches!(Plan::new(spec), Err(BadSpec::Unsupported { .. })),
                "N = {n}"
            );
        }
    }

    #[test]
    fn every_frame_has_one_index() {
        for n in LEAST_N..=15 {
            let division = division(n);
            for unit in 0..division.units() {
                assert_eq!(division.unit(&division.frame(unit)), Some(unit), "N = {n}");
            }
        }
        // C(26, 12) frames of type II beside those of type I.
        let odd = division(27);
        let type_two = odd
            .rows
            .iter()
            .find(|row| row.kind == Kind::TypeTwo)
            .unwrap();
        assert_eq!(odd.units() - type_two.first_unit, 9_657_700);
    }

    #[test]
    fn frames_of_large_boards_have_one_index() {
        for n in [20, 23, 26] {
            let division = division(n);
            proptest!(|(place: u32)| {
                let unit = (u64::from(place) * division.units()) >> 32;
                prop_assert_eq!(division.unit(&division.frame(unit)), Some(unit));
            });
        }
    }

    #[test]
    fn tasks_cover_all_units() {
        for n in LEAST_N..=22 {
            let division = division(n);
            let mut next = 0;
            for task in 0..division.tasks() {
                let units = division.task_units(TaskId(task));
                assert_eq!(units.start, next, "N = {n}, task {task}");
                assert!(units.end > units.start, "N = {n}, task {task}");
                next = units.end;
            }
            assert_eq!(next, division.units(), "N = {n}");
        }
    }

    #[test]
    fn the_plan_is_frozen() {
        let mut found = String::new();
        for n in [4, 13, 16, 19, 20] {
            let plan = Plan::new(PlanSpec::new(Board::new(n).unwrap(), Layout::Frames)).unwrap();
            let starts = [0, 1, plan.tasks() / 3, plan.tasks() / 2, plan.tasks() - 1];
            let starts = starts.map(|task| plan.task_units(TaskId(task % plan.tasks())).start);
            let (hash, units, tasks) = (plan.hash(), plan.units(), plan.tasks());
            writeln!(found, "{n}: {hash} {units} {tasks} {starts:?}").unwrap();
        }
        assert_eq!(found, FROZEN);
    }

    /// Board: hash, units, tasks and where some tasks begin, as this version of the plan has
    /// them; other numbers need a new one.
    const FROZEN: &str = "\
4: 272e5181868483e9db2f48f600f7cb8ff805fd870f2417d616128544ea8f8235 2 1 [0, 0, 0, 0, 0]
13: 2f2bbc7150616dcc8a2af017611402d19422cdd61069fe04cf0a2ceb3a73eecc 1043 59 [0, 21, 332, 527, 1025]
16: 83d4dd87d5ac6288eec08101e5bf47967791cba97c37213fc51ce62636c65136 3298 64 [0, 64, 1092, 1510, 3226]
19: 425b0d7a721afc4f027cde0e76705b8f09ca3d925b1f52c71a917cda4f347d50 56040 108 [0, 2003, 23325, 30255, 54843]
20: bbba70926b31900264d56699bec153eac649992668b56976d47fcc8576ebbc15 46507 401 [0, 310, 15105, 21859, 45907]
";
}
