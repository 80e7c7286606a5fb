//! Frames in natural order, and the tasks they are divided into.

use std::{cmp::Ordering, ops::Range};

use super::{
    cost::Costs,
    geometry::{Frame, FramesOfA, Geometry, Kind, Sets},
    quarter::MAKER_BYTES,
};
use crate::{
    board::Board,
    plan::spec::{BadSpec, MAX_TASKS, MapPanel, MapSpan, PlanSpec, TaskId},
};

/// Smallest board that this method divides.
const MIN_N: u8 = 4;

/// Frames of one board: by kind (type I before type II), number of queens, A and C.
#[derive(Debug)]
pub struct Division {
    side: u32,
    sets: Sets,
    rows: Vec<FramesOfA>,
    units: u64,
    costs: Costs,
    /// First unit of each task with its cost in microseconds; then the number of units.
    tasks: Vec<(u64, f64)>,
    typical: TypicalClass,
}

/// The class of frames that takes most of the time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TypicalClass {
    pub(crate) class: (Kind, u32),
    /// Typical maximum number of half boards of either half.
    pub(crate) keys: usize,
}

impl Division {
    pub(crate) fn new(spec: &PlanSpec) -> Result<Self, BadSpec> {
        if spec.board.n() < MIN_N {
            let reason = format!("it needs quadrants of at least 2 × 2 squares, so N ≥ {MIN_N}");
            return Err(BadSpec::Unsupported { layout: spec.layout, board: spec.board, reason });
        }
        let mut division = Self::without_tasks(spec.board);
        (division.tasks, division.typical) = division.cut(spec)?;
        Ok(division)
    }

    /// Creates a division without tasks: computing the costs of all units takes time.
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
            typical: TypicalClass { class: (Kind::Even, 0), keys: 0 },
        }
    }

    pub(crate) fn units(&self) -> u64 {
        self.units
    }

    pub(crate) fn tasks(&self) -> u64 {
        self.tasks.len() as u64 - 1
    }

    pub(crate) fn task_units(&self, task: TaskId) -> Range<u64> {
        let task = index(task);
        self.tasks[task].0..self.tasks[task + 1].0
    }

    pub(crate) fn task_cost(&self, task: TaskId) -> u64 {
        whole(self.tasks[index(task)].1)
    }

    /// Returns an upper bound on a task's count.
    ///
    /// Queens of either half take their columns in at most n! ways, and the middle-row queen of
    /// type II has at most n columns; a pair counts at most 8.
    pub(crate) fn task_limit(&self, task: TaskId) -> u64 {
        let units = self.task_units(task);
        let halves = (1..=u64::from(self.side))
            .try_fold(1u64, |product, k| product.checked_mul(k)?.checked_mul(k));
        let limit =
            || halves?.checked_mul(8 * u64::from(self.side))?.checked_mul(units.end - units.start);
        limit().unwrap_or(u64::MAX)
    }

    /// Returns the classes of frames; each has its own list sizes.
    pub(crate) fn classes(&self) -> impl Iterator<Item = (Kind, u32)> {
        let alike = self.rows.chunk_by(|a, b| a.first.class() == b.first.class());
        alike.map(|rows| rows[0].first.class())
    }

    pub(crate) fn typical(&self) -> TypicalClass {
        self.typical
    }

    /// Estimates the memory for the quarter lists of any frame of a class, in bytes.
    pub(crate) fn quarter_bytes(&self, class: (Kind, u32)) -> u64 {
        let lists = |frame: &Frame| {
            let list = |size| self.costs.quarter_boards(size, &self.sets);
            let (upper, lower) = (list(frame.top_queens()), list(frame.queens));
            // P and S are held once per middle queen, and once without.
            let (p, s) = match frame.kind {
                Kind::Even | Kind::TypeOne => (1, 1),
                Kind::TypeTwo => (self.side + 1, self.side + 2 - frame.queens),
            };
            let q = list(self.side - frame.queens);
            upper * f64::from(p) + q * f64::from(s) + lower + q
        };
        let boards = self.rows_of(class).take(1).map(lists).sum::<f64>();
        whole(8.0 * boards) + MAKER_BYTES.min(whole(32.0 * boards))
    }

    /// Estimates the maximum number of half boards per row set in frames of a class.
    pub(crate) fn row_set_keys(&self, class: (Kind, u32)) -> usize {
        let most = self.rows_of(class).map(|first| self.costs.row_set_keys(first, &self.sets));
        let most = whole(2.0 * most.fold(0.0, f64::max));
        usize::try_from(most).unwrap_or(usize::MAX)
    }

    /// Returns the first frame of each row of a class.
    fn rows_of(&self, class: (Kind, u32)) -> impl Iterator<Item = &Frame> {
        self.rows.iter().map(|row| &row.first).filter(move |first| first.class() == class)
    }

    pub(crate) fn side(&self) -> u32 {
        self.side
    }

    pub(crate) fn board_side(&self) -> u32 {
        2 * self.side + u32::from(self.is_odd())
    }

    /// Returns whether there is a middle row and column.
    pub(crate) fn is_odd(&self) -> bool {
        self.rows.last().is_some_and(|row| row.first.kind == Kind::TypeTwo)
    }

    /// Returns all rows or columns of a quadrant.
    pub(crate) fn full(&self) -> u32 {
        (1 << self.side) - 1
    }

    pub(crate) fn sets(&self) -> &Sets {
        &self.sets
    }

    pub(crate) fn geometry(&self, kind: Kind, rotated: bool) -> Geometry {
        Geometry { kind, side: self.side, rotated }
    }

    /// Returns the estimated cost of a frame in microseconds, at least 1.
    pub(crate) fn unit_cost(&self, unit: u64) -> u64 {
        whole(Costs::of_lengths(self.costs.lengths(&self.frame(unit), &self.sets)))
    }

    /// Estimates the maximum number of half boards of either half of a unit.
    pub(super) fn unit_keys(&self, unit: u64) -> usize {
        let (top, bottom) = self.costs.lengths(&self.frame(unit), &self.sets);
        usize::try_from(whole(top.max(bottom))).unwrap_or(usize::MAX)
    }

    pub(crate) fn frame(&self, unit: u64) -> Frame {
        assert!(unit < self.units, "unit {unit} of {}", self.units);
        let row = &self.rows[self.rows.partition_point(|row| row.first_unit <= unit) - 1];
        let offset = usize::try_from(unit - row.first_unit).expect("fewer than 12870 sets C");
        Frame { c: row.first.c + offset, ..row.first }
    }

    /// Returns a map panel per class, with a row per A and a column per C.
    pub(crate) fn panels(&self) -> Vec<MapPanel> {
        let panel = |(kind, queens): (Kind, u32)| {
            let (top, name) = match kind {
                Kind::Even => (queens, format!("m = {queens}")),
                Kind::TypeOne => (queens, format!("I, m = {queens}")),
                Kind::TypeTwo => (queens - 1, format!("II, m = {queens}")),
            };
            MapPanel {
                name,
                rows: self.sets.count(top) as u64,
                columns: self.sets.count(queens) as u64,
            }
        };
        self.classes().map(panel).collect()
    }

    /// Visits the positions of these units on the map.
    pub(crate) fn spans(&self, units: Range<u64>, visit: &mut dyn FnMut(MapSpan)) {
        // The place of each class in `classes`.
        let panel = |frame: &Frame| match frame.kind {
            Kind::Even | Kind::TypeOne => frame.queens - 1,
            Kind::TypeTwo => self.side / 2 + frame.queens - 1,
        };
        let mut at = self.rows.partition_point(|row| row.first_unit <= units.start);
        let mut start = units.start;
        while start < units.end {
            let row = &self.rows[at - 1];
            let end = self.end_of(at - 1).min(units.end);
            let first_c = row.first.c as u64;
            visit(MapSpan {
                panel: panel(&row.first) as usize,
                row: row.first.a as u64,
                columns: first_c + start - row.first_unit..first_c + end - row.first_unit,
            });
            start = end;
            at += 1;
        }
    }

    /// Returns the columns that a frame allows in each row, as bits.
    ///
    /// The rows of the top half allow the columns A and ~C, those of the bottom half the others.
    pub(crate) fn allowed(&self, unit: u64) -> Vec<u32> {
        let frame = self.frame(unit);
        let (n, all) = (self.side, self.board_side());
        let a = self.sets.of_size(frame.top_queens())[frame.a];
        let c = self.sets.of_size(frame.queens)[frame.c];
        // R and Q count their columns from the right.
        let right = |set: u32| set.reverse_bits() >> (u32::BITS - all);
        let others = self.full() & !a;
        let (top, bottom) = (a | right(self.full() & !c), others | right(c));
        let center = 1 << n;
        let (top, middle) = match frame.kind {
            Kind::Even => (top, bottom),
            Kind::TypeOne => (top, center),
            Kind::TypeTwo => (top | center, others),
        };
        let of_row = |row: u32| match row.cmp(&n) {
            Ordering::Less => top,
            Ordering::Equal => middle,
            Ordering::Greater => bottom,
        };
        (0..all).map(of_row).collect()
    }

    fn end_of(&self, row: usize) -> u64 {
        self.rows.get(row + 1).map_or(self.units, |next| next.first_unit)
    }

    /// Cuts the units into tasks of about `spec.task_cost`.
    ///
    /// A row that exceeds it is cut into parts of about equal cost, so that a task has one A;
    /// smaller rows are combined.
    fn cut(&self, spec: &PlanSpec) -> Result<(Vec<(u64, f64)>, TypicalClass), BadSpec> {
        #[allow(clippy::cast_precision_loss)] // an estimate
        let wanted = spec.task_cost as f64;
        let mut tasks = Vec::new();
        let mut open = OpenTask::default();
        let mut costs = Vec::new();
        let mut classes = Classes::default();
        for (at, row) in self.rows.iter().enumerate() {
            let units = row.first_unit..self.end_of(at);
            let frames = units.clone().zip(row.first.c..);
            costs.clear();
            costs.extend(frames.map(|(_, c)| {
                let lengths = self.costs.lengths(&Frame { c, ..row.first }, &self.sets);
                let cost = Costs::of_lengths(lengths);
                classes.add(row.first.class(), cost, lengths.0.max(lengths.1));
                cost
            }));
            let total: f64 = costs.iter().sum();
            if open.cost + total > wanted {
                open.close(row.first_unit, &mut tasks);
            }
            let parts = (total / wanted).round().max(1.0);
            for (unit, &cost) in units.zip(&costs) {
                // Closes the task if half of this unit would exceed the part's share.
                if open.cost + cost / 2.0 > total / parts && parts > 1.0 {
                    open.close(unit, &mut tasks);
                }
                open.cost += cost;
            }
            if parts > 1.0 {
                open.close(self.end_of(at), &mut tasks);
            }
            if tasks.len() as u64 > MAX_TASKS {
                let PlanSpec { board, layout, task_cost } = *spec;
                let tasks = tasks.len() as u64;
                return Err(BadSpec::TooManyTasks { layout, board, task_cost, tasks });
            }
        }
        open.close(self.units, &mut tasks);
        tasks.push((self.units, 0.0));
        Ok((tasks, classes.typical()))
    }
}

/// Classes of frames with their cost, and cost times length of the longer list.
#[derive(Default)]
struct Classes(Vec<((Kind, u32), f64, f64)>);

impl Classes {
    /// Adds a frame; frames of one class are consecutive.
    fn add(&mut self, class: (Kind, u32), cost: f64, keys: f64) {
        let last = match self.0.last_mut() {
            Some(last) if last.0 == class => last,
            _ => self.0.push_mut((class, 0.0, 0.0)),
        };
        last.1 += cost;
        last.2 += cost * keys;
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an estimate")]
    fn typical(self) -> TypicalClass {
        let most = self.0.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
        let (class, cost, keys) = most.expect("every board has frames");
        let keys = (MAX_LISTS * keys / cost) as usize;
        TypicalClass { class, keys }
    }
}

/// Ratio to the mean length up to which lists count as typical.
const MAX_LISTS: f64 = 1.25;

/// A task under construction.
#[derive(Default)]
struct OpenTask {
    first_unit: u64,
    cost: f64,
}

impl OpenTask {
    /// Ends the task before `unit`, unless it is empty.
    fn close(&mut self, unit: u64, tasks: &mut Vec<(u64, f64)>) {
        if unit > self.first_unit {
            tasks.push((self.first_unit, self.cost));
        }
        *self = Self { first_unit: unit, cost: 0.0 };
    }
}

fn index(task: TaskId) -> usize {
    usize::try_from(task.0).expect("the caller checked the task")
}

/// Rounds to the nearest integer, at least 1.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates
fn whole(estimate: f64) -> u64 {
    (estimate.round() as u64).max(1)
}

/// Returns all rows in natural order, and the number of units.
fn rows(board: Board, sets: &Sets) -> (Vec<FramesOfA>, u64) {
    let side = u32::from(board.n()) / 2;
    let mut rows = Vec::new();
    let mut units = 0;
    let mut add = |kind, queens, a, ranks: Range<usize>| {
        let first = Frame { kind, queens, a, c: ranks.start };
        rows.push(FramesOfA { first, first_unit: units });
        units += ranks.len() as u64;
    };
    let equal_sizes = if board.n().is_multiple_of(2) { Kind::Even } else { Kind::TypeOne };
    // No queen in P and R would leave 2n queens to Q and S, which share 2n − 1 antidiagonals.
    for queens in 1..=side / 2 {
        let count = sets.count(queens);
        // Quarter turns complement the sets: A ≤ C ≤ ~A where that keeps their size.
        let is_half = 2 * queens == side;
        for a in 0..if is_half { count / 2 } else { count } {
            add(equal_sizes, queens, a, a..if is_half { count - a } else { count });
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
    use std::fmt::Write;

    use crate::{method::Layout, plan::Plan, test_fixture};

    #[test]
    fn small_boards_are_refused() {
        for n in 1..MIN_N {
            let spec = PlanSpec::new(Board::new(n).unwrap(), Layout::Frames);
            assert!(matches!(Plan::new(spec), Err(BadSpec::Unsupported { .. })), "N = {n}");
        }
    }

    #[test]
    fn the_plan_is_frozen() {
        let mut found = String::new();
        for n in [4, 13, 16, 19, 20] {
            let plan = test_fixture::plan(n, Layout::Frames);
            let starts = [0, 1, plan.tasks() / 3, plan.tasks() / 2, plan.tasks() - 1];
            let starts = starts.map(|task| plan.task_units(TaskId(task % plan.tasks())).start);
            let (hash, units, tasks) = (plan.hash(), plan.units(), plan.tasks());
            writeln!(found, "{n}: {hash} {units} {tasks} {starts:?}").unwrap();
        }
        assert_eq!(found, FROZEN);
        // C(26, 12) frames of type II, in addition to those of type I.
        let odd = Division::without_tasks(Board::new(27).unwrap());
        let type_two = odd.rows.iter().find(|row| row.first.kind == Kind::TypeTwo).unwrap();
        assert_eq!(odd.units() - type_two.first_unit, 9_657_700);
    }

    /// Per board: hash, units, tasks and where some tasks begin.
    ///
    /// Other numbers require a new plan version.
    const FROZEN: &str = "\
4: 272e5181868483e9db2f48f600f7cb8ff805fd870f2417d616128544ea8f8235 2 1 [0, 0, 0, 0, 0]
13: 2f2bbc7150616dcc8a2af017611402d19422cdd61069fe04cf0a2ceb3a73eecc 1043 59 [0, 21, 332, 527, 1025]
16: 83d4dd87d5ac6288eec08101e5bf47967791cba97c37213fc51ce62636c65136 3298 64 [0, 64, 1092, 1510, 3226]
19: 425b0d7a721afc4f027cde0e76705b8f09ca3d925b1f52c71a917cda4f347d50 56040 108 [0, 2003, 23325, 30255, 54843]
20: bbba70926b31900264d56699bec153eac649992668b56976d47fcc8576ebbc15 46507 401 [0, 310, 15105, 21859, 45907]
";
}
